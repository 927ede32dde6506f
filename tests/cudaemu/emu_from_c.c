/* SPDX-License-Identifier: Apache-2.0 */
/* The headers in plain C, as a device that is written in C sees them. */
#include "emu_from_c.h"
#include <cublas_v2.h>
#include <cublasLt.h>
#include <cuda_runtime.h>

int emu_from_c(void)
{
    void *p = NULL;
    cudaStream_t s = NULL;
    cudaEvent_t e = NULL;
    cublasHandle_t h = NULL;
    int bad = cudaMalloc(&p, 64) != cudaSuccess;
    bad |= cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) != cudaSuccess;
    bad |= cudaEventCreateWithFlags(&e, cudaEventDisableTiming) != cudaSuccess;
    bad |= cudaMemsetAsync(p, 0, 64, s) != cudaSuccess;
    bad |= cudaEventRecord(e, s) != cudaSuccess || cudaEventSynchronize(e) != cudaSuccess;
    bad |= cublasCreate(&h) != CUBLAS_STATUS_SUCCESS || cublasDestroy(h) != CUBLAS_STATUS_SUCCESS;
    bad |= cudaEventDestroy(e) != cudaSuccess || cudaStreamDestroy(s) != cudaSuccess;
    return bad | (cudaFree(p) != cudaSuccess);
}
