/* SPDX-License-Identifier: Apache-2.0 */
/* Where the machine was not probed: half a second, and only where its answer is used: for a report, and to plan for a model that is worth
 * it. */
#include "engine/base/ps_mem.h"
#include "engine/cli/generate.h"
#include "engine/search/search.h"
#include "offload/dev.h"
#include "offload/probe.h"
#include "offload/probe_gpu.h"
#include "offload/profile_set.h"
#include <string.h>

static const double slice_s = 0.15;
enum {
    PROBE_WORTH_BYTES = 256 << 20,
    DISK_WORTH_BYTES = 64 << 20,
    GEMM_M = 256,
    GEMM_N = 1024,
    GEMM_K = 1024,
    DRAM_BYTES = 128 << 20,
    DISK_BYTES = 256 << 20,
    GPU_WORTH_BYTES = 1 << 30,
    GPU_COPY_BYTES = 64 << 20,
    GPU_GEMM_M = 1024,
    GPU_GEMM = 4096
};

struct gemm {
    struct ps_dev *dev;
    struct ps_linear args;
    struct ps_buf x, w, y;
};

static int one_gemm(void *ud)
{
    struct gemm *g = ud;
    struct ps_use uses[] = { { &g->x, false }, { &g->w, false }, { &g->y, true } };
    int r = ps_dev_run(g->dev, PS_Q_COMPUTE, PS_OP_linear, &g->args, uses, 3);
    return r < 0 ? r : ps_dev_wait(g->dev, &g->y, false);
}

static struct ps_buf buffer(void *p, size_t bytes)
{
    return (struct ps_buf) { .where = PS_HOST, .p = p, .len_bytes = bytes };
}

static double probe_gemm(unsigned threads, enum ps_dtype type)
{
    size_t wb = (size_t) GEMM_N * GEMM_K * ps_dtype_bytes(type),
           xb = (size_t) GEMM_M * GEMM_K * sizeof(float),
           yb = (size_t) GEMM_M * GEMM_N * sizeof(float);
    ps_auto_free void *w = ps_aligned(64, wb), *x = ps_aligned(64, xb), *y = ps_aligned(64, yb),
                      *scratch = NULL;
    struct ps_dev *dev = NULL;
    struct ps_rate rate = { 0 };
    if (!w || !x || !y) return 0;
    memset(w, 0, wb);
    memset(x, 0, xb);
    struct gemm g = { .args = { .y = y,
                                .x = x,
                                .w = w,
                                .m = GEMM_M,
                                .n = GEMM_N,
                                .k = GEMM_K,
                                .ldx = GEMM_K,
                                .ldy = GEMM_N,
                                .wtype = type },
                      .x = buffer(x, xb),
                      .w = buffer(w, wb),
                      .y = buffer(y, yb) };
    size_t need = PS_ROUND_UP(ps_op_scratch(PS_OP_linear, &g.args) + 64, 64);
    scratch = ps_aligned(64, need * (threads + 1));
    struct ps_dev_cfg cfg = { .threads = threads, .scratch_bytes = need, .scratch = scratch };
    if (!scratch || ps_dev_cpu_open(&cfg, &dev) < 0) return 0;
    g.dev = dev;
    double flops = 2.0 * GEMM_M * GEMM_N * GEMM_K;
    int r = ps_probe_repeat(one_gemm, &g, flops, slice_s, &rate);
    ps_dev_close(dev);
    return r < 0 ? 0 : rate.median;
}

/* Beside a GPU, whose memory it takes for a moment. */
static void probe_gpu(struct ps_job_cfg *job)
{
    const struct ps_probe_gpu how = { .copy_bytes = GPU_COPY_BYTES,
                                      .m = GPU_GEMM_M,
                                      .n = GPU_GEMM,
                                      .k = GPU_GEMM,
                                      .dtype = job->model->dtype,
                                      .times = 8 };
    struct ps_gpu_rates r = { 0 };
    if (job->model->weight_bytes < PROBE_WORTH_BYTES || job->plan.gpu.mem_bytes < GPU_WORTH_BYTES ||
        ps_probe_gpu(job->run.cuda, &how, &r, NULL) < 0)
        return;
    job->probed.h2d = r.h2d;
    job->probed.d2h = r.d2h;
    job->probed.hbm = r.hbm;
    job->probed.flops = r.flops;
}

static void quick_look(struct ps_job_cfg *job, const char *offload_dir)
{
    const struct ps_packed *m = job->model;
    struct ps_probe_disk disk = { .store = job->run.io,
                                  .depth = job->run.queue_depth,
                                  .max_bytes = DISK_BYTES,
                                  .max_s = slice_s };
    struct ps_rate rate;
    bool direct = false;
    uint64_t dram = job->plan.host_mem / 2 < DRAM_BYTES ? job->plan.host_mem / 2 : DRAM_BYTES;
    if (!ps_probe_dram(job->plan.threads, dram, slice_s, &rate, NULL))
        job->probed.dram = rate.median;
    /* What came of the page cache, or of too few bytes, says nothing about the disk. */
    if (m->file_bytes >= DISK_WORTH_BYTES &&
        !ps_probe_disk_read(m->path, &disk, &rate, &direct, NULL) && direct)
        job->probed.disk_read = rate.median;
    if (job->plan.disk_space > (uint64_t) DISK_BYTES * 4) {
        disk.max_bytes = DISK_BYTES / 8;
        if (!ps_probe_disk_write(offload_dir, &disk, &rate, &direct, NULL) && direct)
            job->probed.disk_write = rate.median;
    }
    if (job->gpu)
        probe_gpu(job);
    else
        job->probed.flops = probe_gemm(job->plan.threads, m->dtype);
}

/* A profile of what a quick look saw. The rest is what such machines have: what a task costs before it begins. */
static void flat_profile(const struct ps_generate_args *a, struct ps_profile *ret)
{
    const struct ps_job_probed *p = &a->job.probed;
    const bool gpu = a->job.gpu != NULL;
    *ret = (struct ps_profile) {
        .cores = a->job.plan.threads,
        .gpu_mem = a->job.plan.gpu.mem_bytes,
        .sm = a->job.plan.gpu.sm,
        .host = { .mem = p->dram,
                  .flops = gpu ? 50e9 * a->job.plan.threads : p->flops,
                  .task_s = 10e-6 },
        .gpu = { .mem = p->hbm, .flops = gpu ? p->flops : 0, .task_s = 5e-6 },
        .disk_read = { .alone = p->disk_read },
        .disk_write = { .alone = p->disk_write },
        .h2d = { .alone = p->h2d },
        .d2h = { .alone = p->d2h },
    };
}

static void report_profile(struct ps_job_cfg *job, const struct ps_profile *p)
{
    job->probed = (struct ps_job_probed) { .disk_read = p->disk_read.alone,
                                           .disk_write = p->disk_write.alone,
                                           .dram = p->host.mem,
                                           .h2d = p->h2d.alone,
                                           .d2h = p->d2h.alone,
                                           .hbm = p->gpu.mem,
                                           .flops = job->gpu ? job->plan.rates.gpu_gemm
                                                             : job->plan.rates.gemm };
}

void ps_generate_probe(struct ps_generate_args *a, const char *offload_dir)
{
    struct ps_job_cfg *job = &a->job;
    struct ps_profile *p = &a->planning.profile;
    const bool large = job->model->weight_bytes >= PROBE_WORTH_BYTES;
    job->plan.model = job->model;
    const bool before = ps_profile_of_this(job->gpu ? a->gpu.name : "", p);
    if (!before && !job->report && !large) return;
    if (!before) {
        quick_look(job, offload_dir);
        flat_profile(a, p);
    }
    ps_profile_threads(p, job->plan.threads);
    ps_search_rates(p, &job->plan);
    if (before) report_profile(job, p);
    ps_profile_guess_disk(p);
    a->planning.known = (before || large) && p->host.mem > 0 && p->host.flops > 0 &&
                        (!job->gpu || (p->gpu.mem > 0 && p->gpu.flops > 0 && p->h2d.alone > 0));
}
