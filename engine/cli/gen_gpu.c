/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPU a job may use, and how much of it. */
#include "engine/cli/generate.h"
#include "kernels/cuda/ps_cuda.h"
#include <inttypes.h>
#include <stdio.h>

const struct ps_cuda_api *ps_gpu_usable(struct ps_cuda_info *ret, struct ps_detail *why)
{
    const struct ps_cuda_api *api = NULL;
    if (!ps_cuda_driver()) {
        (void) ps_fail(why, -ENODEV, "libcuda.so.1, the driver's library, is not found");
        return NULL;
    }
    if (ps_cuda_load(NULL, &api, why) < 0) return NULL;
    int r = api->info(ret);
    if (r < 0) {
        (void) ps_fail(why, r, "%s", api->error());
        return NULL;
    }
    if (ret->sm < PS_CUDA_SM_MIN) {
        (void) ps_fail(why, -PS_EUNSUPPORTED,
                       "%s has compute capability %u.%u, %u.%u is the least that will do",
                       ret->name, ret->sm / 10, ret->sm % 10, PS_CUDA_SM_MIN / 10,
                       PS_CUDA_SM_MIN % 10);
        return NULL;
    }
    return api;
}

static int without(const struct ps_generate_args *a, const char *why, struct ps_detail *dt)
{
    const char *option = ps_engine_needs_gpu(&a->job.plan);
    char text[600];
    if (option)
        return ps_fail(dt, -PS_EUSAGE,
                       "%s, and no GPU can be used (%.500s); host and disk would work, and doctor "
                       "says more",
                       option, why);
    if (!a->engine.gpu_mem || a->engine.gpu_mem == UINT64_MAX) return 0;
    (void) snprintf(text, sizeof text,
                    "--gpu-mem does nothing here: no GPU can be used (%.500s); doctor says more",
                    why);
    ps_say_warning(NULL, text);
    return 0;
}

/* The driver's share of what is free grows when a program begins. */
uint64_t ps_gpu_ceiling(const struct ps_cuda_info *gpu, uint64_t wanted)
{
    const uint64_t most = gpu->free_bytes - gpu->free_bytes / 20;
    char text[300];
    if (gpu->free_bytes < gpu->total_bytes / 4 * 3) {
        (void) snprintf(text, sizeof text,
                        "%.120s: only %" PRIu64 " of %" PRIu64
                        " MiB are free; other processes hold the rest",
                        gpu->name, gpu->free_bytes >> 20, gpu->total_bytes >> 20);
        ps_say_warning(NULL, text);
    }
    if (wanted == UINT64_MAX) return most;
    if (wanted <= most) return wanted;
    (void) snprintf(text, sizeof text,
                    "--gpu-mem is more than there is: of %" PRIu64 " MiB free, at most %" PRIu64
                    " MiB are used",
                    gpu->free_bytes >> 20, most >> 20);
    ps_say_warning(NULL, text);
    return most;
}

int ps_generate_gpu(struct ps_generate_args *a, struct ps_detail *dt)
{
    struct ps_job_cfg *j = &a->job;
    struct ps_detail why = { "" };
    if (!a->engine.gpu_mem) return without(a, "--gpu-mem 0 forbids it", dt);
    const struct ps_cuda_api *api = ps_gpu_usable(&a->gpu, &why);
    if (!api) return without(a, why.text, dt);
    j->plan.gpu = (struct ps_plan_gpu) { .mem_bytes = ps_gpu_ceiling(&a->gpu, a->engine.gpu_mem),
                                         .sm = a->gpu.sm,
                                         .asked = a->engine.gpu_mem != UINT64_MAX ||
                                                  ps_engine_needs_gpu(&j->plan) };
    j->run.cuda = api;
    j->run.near_pci = a->gpu.pci;
    j->gpu = &a->gpu;
    return 0;
}
