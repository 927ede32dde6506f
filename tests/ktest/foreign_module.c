/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for a module of another version of Penstock. */
#include "kernels/cuda/ps_cuda.h"

__attribute__((visibility("default"))) const struct ps_cuda_api *ps_cuda_module(void)
{
    static const struct ps_cuda_api api = { .abi = PS_CUDA_ABI + 1 };
    return &api;
}
