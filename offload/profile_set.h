/* SPDX-License-Identifier: Apache-2.0 */
/* A profile with another figure in it: for sweeps, and for what a little more of something would bring. */
#ifndef PS_PROFILE_SET_H
#define PS_PROFILE_SET_H
#include "offload/profile.h"

/* What a machine may have more of. */
enum ps_rate_of {
    PS_RATE_DISK_READ,
    PS_RATE_DISK_WRITE,
    PS_RATE_H2D,
    PS_RATE_D2H,
    PS_RATE_DRAM,
    PS_RATE_GEMM, /* of the host */
    PS_RATE_HBM,
    PS_RATE_GPU_GEMM,
    PS_RATE__COUNT
};
const char *ps_rate_path(enum ps_rate_of what); /* in a profile: "disk.read" */
const char *ps_rate_text(enum ps_rate_of what); /* in a sentence: "disk reads" */
/* bytes/s or flop/s; 0: it is not there, or not known */
double ps_profile_rate(const struct ps_profile *p, enum ps_rate_of what);
/* It becomes `factor` times as fast in everything that was probed of it: curves, beside the other direction, and, of memory, attention over
 * KV and small ops. */
void ps_profile_scale(struct ps_profile *p, enum ps_rate_of what, double factor);

/* The host with so many threads behind its kernels. Fewer than were measured (p->threads, or one a core) are slower: in proportion, or, where memory is
 * the limit, by its rate over the number of threads (as it was, where that is not known). More bring nothing. */
void ps_profile_threads(struct ps_profile *p, unsigned threads);

/* Sets a figure by its path ("disk.read", "gpu.mem", "price") to a number with its unit ("4GB/s", "16G"). Of those above what was probed of
 * them is scaled, too. -ENOENT: there is no such figure; -PS_EUSAGE with what was expected. */
int ps_profile_set(struct ps_profile *p, const char *path, const char *value,
                   struct ps_detail *dt) ps_must_check;
/* Whether setting this figure scales others, which are to be set after it if they are set, too. */
bool ps_profile_scales(const char *path);
/* The figure, if more of it is better: a size or a rate; false: it is another one, or there is none. */
bool ps_profile_amount(const struct ps_profile *p, const char *path, double *ret);
#endif
