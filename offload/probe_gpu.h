/* SPDX-License-Identifier: Apache-2.0 */
/* A quick look at a GPU: its links, its memory, its linears, as the cuda device uses them. */
#ifndef PS_PROBE_GPU_H
#define PS_PROBE_GPU_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include "kernels/cuda/ps_cuda.h"

struct ps_probe_gpu {
    uint64_t copy_bytes; /* of one copy; a multiple of 4096 */
    uint32_t m, n, k;    /* of the linear */
    enum ps_dtype dtype; /* its weights' */
    unsigned times;      /* of each, after one that is not counted; at least 1 */
};
struct ps_gpu_rates {
    double h2d, d2h, hbm,
        flops; /* bytes/s from and to pinned memory, bytes/s read and written, flop/s */
};
/* Takes its memory and gives it back: three times copy_bytes and the linear's operands of the GPU, copy_bytes of the host's, pinned. */
int ps_probe_gpu(const struct ps_cuda_api *api, const struct ps_probe_gpu *how,
                 struct ps_gpu_rates *ret, struct ps_detail *dt) ps_must_check;
#endif
