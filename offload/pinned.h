/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that a GPU copies from and to and that its kernels read: registered with it (api->pin) until the close.
 *
 * In chunks: one registration of very much memory fails in the driver whatever is free (from 512 GiB on with pages of 4 KiB:
 * vllm-project/vllm#51081), and where the system refuses more (its limit for locked memory, WSL), what was pinned by then stays.
 *
 * What holds of copies: the host side of a copy must lie in one registration. CUDA promises a copy for memory that is "entirely
 * registered" or not registered at all (CUDA Driver API, "API synchronization behavior"), but one that spans two
 * registrations, neighbours as they may be, fails with "invalid argument" (sgl-project/sglang#36798). So the cuda device asks
 * ps_pinned_run() and cuts copies at the boundaries, and its callers need not know them. Kernels address bytes, and may cross. */
#ifndef PS_PINNED_H
#define PS_PINNED_H
#include "kernels/cuda/ps_cuda.h"

struct ps_detail;
struct ps_pinned;

struct ps_pinned_range {
    void *p; /* at a page's begin */
    uint64_t bytes;
};
enum { PS_PINNED_CHUNK = 256 << 20, PS_PINNED_LEAST = 1 << 20 };

/* Pins the whole pages of the ranges, the first first, until all are, or most_bytes, or no further chunk of at least
 * PS_PINNED_LEAST (or what is left) is taken: then *why says how far it came, and in CUDA's words what stopped it; it is ""
 * if everything is pinned. An error only for -ENOMEM, and -EINVAL: a range that does not begin with a page. */
int ps_pinned_open(const struct ps_cuda_api *api, const struct ps_pinned_range *r, size_t n,
                   uint64_t most_bytes, struct ps_pinned **ret, struct ps_detail *why)
    __attribute__((warn_unused_result));
/* Nothing may use the memory any more. Takes NULL. */
void ps_pinned_close(struct ps_pinned *p);
uint64_t ps_pinned_bytes(const struct ps_pinned *p);
/* How many of the bytes from `at` on lie in one registration; 0: none, the first is not pinned. Any thread. */
uint64_t ps_pinned_run(const struct ps_pinned *p, const void *at, uint64_t bytes);
#endif
