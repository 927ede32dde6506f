/* SPDX-License-Identifier: Apache-2.0 */
/* Small kernels, right ones and wrong ones, for the emulation's own test: launchers that queue on a stream. */
#ifndef PS_EMU_KERNELS_CUH
#define PS_EMU_KERNELS_CUH
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* y[0] = sum of x[0..63]; without its barriers a race. */
void sum_block(float *y, const float *x, bool barriers, cudaStream_t s);
/* y[i] = x[i] * 2 for i < n, blocks of 32. */
void twice(float *y, const float *x, unsigned n, cudaStream_t s);
/* One warp: y[0..31] = a function of all of the warp's operations, right only if each does what it should. */
void warp_ops(unsigned *y, cudaStream_t s);
/* y[i] = x[31 - i] through shared memory within one warp; without __syncwarp() a race. */
void mirror(float *y, const float *x, bool sync, cudaStream_t s);
/* y[i] = x[n - 1 - i] through n + extra floats of dynamic shared memory, of which n are there. */
void dynamic(float *y, const float *x, unsigned n, unsigned extra, cudaStream_t s);
/* y = a shared element that nobody wrote. */
void unwritten(float *y, cudaStream_t s);
/* count[0] += 1, max[1] = greatest thread, CAS-add into [2], float sum in f: by 4 blocks of 64; plain: without atomics. */
void atomics(int *count, float *f, bool plain, cudaStream_t s);
/* y[i] = x[i] + x[i] in half pairs, eight halves to a load; n a multiple of 8. */
void halves(__half *y, const __half *x, unsigned n, cudaStream_t s);
void bhalves(__nv_bfloat16 *y, const __nv_bfloat16 *x, unsigned n, cudaStream_t s);
void misaligned(float *y, cudaStream_t s);
void diverging(bool deadlock, cudaStream_t s);
/* y[b] = b; the last block to finish adds them up in y[n], which takes a fence. */
void last_block(float *y, unsigned *counter, unsigned n, unsigned steps, cudaStream_t s);
void trapping(cudaStream_t s);
#endif
