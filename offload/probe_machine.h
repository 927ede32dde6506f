/* SPDX-License-Identifier: Apache-2.0 */
/* All of a machine: a hardware profile, measured with the engine's own devices, stores, kernels and sizes. The machine should have nothing
 * else to do meanwhile; what was noisy all the same is marked so in the profile. */
#ifndef PS_PROBE_MACHINE_H
#define PS_PROBE_MACHINE_H
#include "kernels/cuda/ps_cuda.h"
#include "offload/machine.h"

enum { PS_PROBE_THREADS_MAX = 256 };

struct ps_probe_machine {
    unsigned threads;   /* behind COMPUTE, 1 to PS_PROBE_THREADS_MAX */
    bool quick;         /* fewer points */
    double seconds;     /* about as long as it may take; 0 = 90, or 15 if quick */
    const char *folder; /* on the disk to be measured; a file without a name is written there */
    const char *io;     /* "uring", "pread"; NULL = best */
    const char *
        reads; /* a file on that disk which has been there for long: reads count as they are of this one; NULL = of the one just written */
    uint64_t
        host_mem; /* that it may take; it wants 1 GiB (or five times the caches), and works with 256 MiB */
    uint64_t disk_space;           /* that it may take; it leaves nine tenths of what is free */
    const struct ps_cuda_api *gpu; /* NULL: none */
    uint64_t gpu_mem;              /* that it may take of the GPU */
    void (*progress)(void *ud, const char *what, double done); /* of it all; may be NULL */
    void (*warn)(void *ud, const char *text);                  /* may be NULL */
    void *ud;
    const volatile int *stop; /* may be NULL: -ECANCELED */
};
/* As many as the CPUs that this process may use, as far as a probe goes. */
static inline unsigned ps_probe_threads(const struct ps_machine *m)
{
    return !m->cpus ? 1 : m->cpus < PS_PROBE_THREADS_MAX ? m->cpus : PS_PROBE_THREADS_MAX;
}
/* *ret is the profile's text; the caller frees it. */
int ps_probe_machine(const struct ps_probe_machine *cfg, char **ret,
                     struct ps_detail *dt) ps_must_check;
#endif
