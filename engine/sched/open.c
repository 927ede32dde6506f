/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/open.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The file for KV and hidden states: its room is taken now, so that a full disk shows before the first token. It has no name, so nothing
 * is left behind however the process ends. */
static int make_offload_file(struct ps_opened *x)
{
    uint64_t bytes = x->s.plan->disk_bytes;
    const char *dir = x->s.cfg->offload_dir;
    if (!bytes) return 0;
    x->offload_name = ps_concat("the offload file in ", dir, "");
    if (!x->offload_name) return ps_fail(x->s.dt, -ENOMEM, "offload file: out of memory");
    int r = ps_store_unnamed(dir, &x->offload_fd, x->offload_as, x->s.dt);
    if (r < 0) return ps_fail_in(x->s.dt, r, "--offload-dir");
    r = posix_fallocate(x->offload_fd, 0, (off_t) bytes);
    if (r)
        return ps_fail(x->s.dt, -r,
                       "--offload-dir %s: no room for %.1f MiB of KV and hidden states: %s", dir,
                       (double) bytes / (1 << 20), strerror(r));
    return 0;
}

static int open_store(struct ps_opened *x)
{
    const struct ps_run_cfg *c = x->s.cfg;
    struct ps_store_file files[2] = {
        { .path = x->s.m->path },
        { .path = x->offload_name, .open_as = x->offload_as, .write = true }
    };
    struct ps_store_cfg cfg = { .files = files,
                                .n_files = x->offload_fd >= 0 ? 2 : 1,
                                .depth = c->queue_depth,
                                .mem = ps_arena_base(x->host),
                                .mem_bytes = ps_arena_used(x->host),
                                .fault = getenv("PS_FAULT") };
    struct ps_detail why = { "" };
    int r;
    if (c->io) {
        const struct ps_store_ops *ops = ps_store_find(c->io);
        if (!ops)
            return ps_fail(x->s.dt, -PS_EUSAGE,
                           "--io %s: unknown, or not built in; uring and pread are there", c->io);
        r = ps_store_open(ops, &cfg, &x->store, x->s.dt);
    } else {
        r = ps_store_open_best(&cfg, &x->store, &why, x->s.dt);
    }
    if (!r && why.text[0] && c->warn) c->warn(c->warn_ud, why.text);
    return r;
}

/* No more can be pinned: another plan has to leave room for what the device pins itself. */
static void keep_room(struct ps_sched *s)
{
    uint64_t *n = &s->stats.pinned_bytes;
    *n -= *n < PS_DEV_CUDA_PINS_BYTES ? *n : PS_DEV_CUDA_PINS_BYTES;
}

/* What the GPU copies, reads and writes of the host's memory. */
static int pin(struct ps_opened *x)
{
    struct ps_sched *s = &x->s;
    const struct ps_pinned_range front = { s->host_mem, PS_ROUND_UP(s->l.pinned_bytes, 4096) };
    struct ps_detail why;
    int r = ps_pinned_open(s->cfg->cuda, &front, 1, UINT64_MAX, &x->pinned, &why);
    if (r < 0) return ps_fail(s->dt, r, "pinned memory: %s", ps_err_str(r));
    s->stats.pinned_bytes = ps_pinned_bytes(x->pinned);
    if (s->stats.pinned_bytes == front.bytes) return 0;
    keep_room(s);
    return ps_fail(s->dt, -PS_EPIN, "%s", why.text);
}

static int open_sim(struct ps_sched *s)
{
    struct ps_sim_cfg sim = *s->cfg->sim;
    sim.gpu = s->d->gpu;
    if (!sim.trace) {
        sim.trace = s->cfg->trace;
        sim.trace_ud = s->cfg->trace_ud;
    }
    return ps_dev_sim_open(&sim, &s->dev);
}

static int no_device(const struct ps_sched *s, int r)
{
    return ps_fail(s->dt, r, "the device, with %u --threads: %s%s", s->cfg->threads, ps_err_str(r),
                   ps_err_limits(r));
}

/* Where a GPU's memory is that is not there: an address that nobody goes to. */
static void *nowhere(void) { return (void *) (uintptr_t) (UINT64_C(1) << 30); }

/* Memory of the GPU is the device's, cut up here; a mapping stands for it where tests have no GPU behind the plan. */
static int open_gpu(struct ps_opened *x, const struct ps_dev_cfg *cfg)
{
    struct ps_sched *s = &x->s;
    const struct ps_run_cfg *c = s->cfg;
    struct ps_arena_cfg mem = { .bytes = s->d->gpu_mem_bytes };
    int r = 0;
    if (c->sim) {
        r = open_sim(s);
        mem.base = nowhere();
    } else if (c->device) {
        r = c->device(cfg, &s->dev);
    } else {
        struct ps_dev_cuda_cfg cuda = { .api = c->cuda,
                                        .mem_bytes = s->d->gpu_mem_bytes,
                                        .scratch_bytes = s->d->gpu_scratch_bytes };
        r = pin(x);
        if (r < 0) return r;
        cuda.pinned = x->pinned;
        r = ps_dev_cuda_open(cfg, &cuda, &s->dev, s->dt);
        if (r == -PS_EPIN) keep_room(s);
        if (r < 0) return r;
        mem.base = ps_dev_cuda_mem(s->dev);
    }
    if (r < 0) return no_device(s, r);
    r = ps_arena_open(&mem, &x->gpu, s->dt);
    if (!r) r = ps_layout_gpu(x->gpu, s->m, s->plan, &s->l, s->dt);
    if (!r) s->gpu_mem = ps_arena_base(x->gpu);
    return r;
}

static int open_device(struct ps_opened *x)
{
    struct ps_sched *s = &x->s;
    const struct ps_run_cfg *c = s->cfg;
    struct ps_dev_cfg cfg = { .store = x->store,
                              .threads = c->threads,
                              .scratch_bytes = s->d->scratch_bytes,
                              .scratch = s->l.worker_scratch,
                              .trace = c->trace,
                              .trace_ud = c->trace_ud };
    if (s->d->gpu) return open_gpu(x, &cfg);
    int (*open)(const struct ps_dev_cfg *, struct ps_dev **) =
        c->device ? c->device : ps_dev_cpu_open;
    int r = c->sim ? open_sim(s) : open(&cfg, &s->dev);
    return r < 0 ? no_device(s, r) : 0;
}

static void init_bufs(struct ps_sched *s)
{
    const struct ps_buf host = { .where = PS_HOST, .p = s->host_mem, .len_bytes = UINT64_MAX },
                        gpu = { .where = PS_GPU, .p = s->gpu_mem, .len_bytes = UINT64_MAX },
                        near = s->d->gpu ? gpu : host;
    for (int a = 0; a < PS_A__COUNT; a++) s->act[a] = near;
    s->o2 = s->prompt_kv = s->gather = s->logits = near;
    s->scored = s->from_gpu = host;
    for (unsigned i = 0; i < PS_ARRAY_LEN(s->far_in); i++) s->far_in[i] = s->far_o[i] = host;
    for (unsigned i = 0; i < PS_CTL_BLOCKS; i++) s->ctl[i] = host;
}

static int init_sched(struct ps_sched *s)
{
    ps_model_steps(s->shape, &s->embed, &s->layer, &s->head);
    init_bufs(s);
    int r = ps_weights_init(s);
    if (!r) r = ps_slots_init(s);
    if (!r) r = ps_kv_init(s);
    if (!r) r = ps_hidden_init(s);
    if (!r) r = ps_skip_init(s);
    return r;
}

/* A simulated machine may have more memory than there is here, or than a limit allows: of its arena only what is touched is memory. */
static int simulated_memory(const struct ps_sched *s, struct ps_arena_cfg *mem)
{
    ps_auto_arena struct ps_arena *measured = NULL;
    struct ps_layout l = { 0 };
    int r = ps_arena_open(&(const struct ps_arena_cfg) { .measure = true }, &measured, s->dt);
    if (!r) r = ps_layout_host(measured, s->m, s->plan, s->cfg->threads, &l, s->dt);
    mem->front_bytes = l.control_bytes;
    return r;
}

/* What was taken of each tier. */
static int count_taken(struct ps_opened *x)
{
    uint64_t *taken = x->s.stats.taken_bytes;
    struct stat st;
    taken[PS_TIER_HOST] = ps_arena_used(x->host);
    if (x->gpu)
        taken[PS_TIER_GPU] = ps_dev_cuda_bytes(&(const struct ps_dev_cuda_cfg) {
            .mem_bytes = ps_arena_used(x->gpu), .scratch_bytes = x->s.d->gpu_scratch_bytes });
    if (x->offload_fd < 0) return 0;
    if (fstat(x->offload_fd, &st) < 0)
        return ps_fail(x->s.dt, -errno, "%s: %s", x->offload_name, strerror(errno));
    taken[PS_TIER_DISK] = (uint64_t) st.st_size;
    return 0;
}

int ps_open_run(struct ps_opened *x)
{
    struct ps_sched *s = &x->s;
    const struct ps_run_cfg *c = s->cfg;
    struct ps_arena_cfg mem = { .bytes = s->plan->host_bytes,
                                .populate = !c->sim, /* then nothing is read or computed */
                                .numa_nodes = c->numa_nodes,
                                .near_pci = s->d->gpu ? c->near_pci : NULL };
    int r = c->sim ? simulated_memory(s, &mem) : 0;
    if (!r) r = ps_arena_open(&mem, &x->host, s->dt);
    if (!r) r = ps_layout_host(x->host, s->m, s->plan, c->threads, &s->l, s->dt);
    if (!r) s->host_mem = ps_arena_base(x->host);
    if (!r && !c->sim) r = make_offload_file(x);
    if (!r && !c->sim) r = open_store(x);
    if (!r) r = open_device(x);
    if (!r) s->dev->serial = s->how.no_overlap;
    if (!r) r = init_sched(s);
    if (!r) r = count_taken(x);
    return r;
}

void ps_close_run(struct ps_opened *x)
{
    ps_dev_close(x->s.dev); /* first: its tasks use all of the rest */
    ps_skip_done(&x->s);
    ps_hidden_done(&x->s);
    ps_kv_done(&x->s);
    ps_slots_done(&x->s);
    ps_weights_done(&x->s);
    x->store = ps_store_close(x->store);
    if (x->offload_fd >= 0) (void) close(x->offload_fd);
    free(x->offload_name);
    ps_pinned_close(x->pinned);
    ps_arena_close(x->gpu);
    ps_arena_close(x->host);
}
