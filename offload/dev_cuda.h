/* SPDX-License-Identifier: Apache-2.0 */
/* The device whose COMPUTE, H2D, UP and D2H are a GPU's: see dev.h for the contract. */
#ifndef PS_DEV_CUDA_H
#define PS_DEV_CUDA_H
#include "kernels/cuda/ps_cuda.h"
#include "offload/dev.h"
#include "offload/pinned.h"

struct ps_dev_cuda_cfg {
    const struct ps_cuda_api *api; /* of ps_cuda_load() */
    uint64_t mem_bytes;            /* of the GPU, for the caller's buffers */
    size_t scratch_bytes;          /* of the GPU, for the rows on COMPUTE (ps_kern_scratch) */
    const struct ps_pinned *
        pinned; /* where moves to and from the GPU have their host side; NULL: in one registration each */
};
/* Of host memory, pinned by the device itself. */
enum { PS_DEV_CUDA_PINS_BYTES = 4096 };
/* Memory of the GPU that a device with this configuration takes, all of it at open. */
uint64_t ps_dev_cuda_bytes(const struct ps_dev_cuda_cfg *cfg);
/* Host memory that moves to and from the GPU touch must be pinned while they run; the arguments of a kernel that are arrays
 * of structs are read by the GPU, too. cfg->threads work behind HOST. -PS_EPIN: no more can be pinned. */
int ps_dev_cuda_open(const struct ps_dev_cfg *cfg, const struct ps_dev_cuda_cfg *cuda,
                     struct ps_dev **ret, struct ps_detail *dt) ps_must_check;
void *ps_dev_cuda_mem(const struct ps_dev *d); /* mem_bytes, 256-byte aligned */

/* What was asked of CUDA. */
struct ps_dev_cuda_asked {
    uint64_t launches, calls;       /* of kernels, of products by cuBLASLt */
    uint64_t copies, events, waits; /* event records; waits of one stream for another */
};
/* Since open. */
struct ps_dev_cuda_counts {
    struct ps_dev_cuda_asked all, counted; /* for tasks that are `counted` */
    uint64_t syncs;                        /* times that a host thread waited for an event */
};
void ps_dev_cuda_counts(struct ps_dev *d, struct ps_dev_cuda_counts *ret); /* after a drain */
#endif
