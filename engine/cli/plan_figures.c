/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a plan: what is printed, written as JSON, or a row of a sweep's table. */
#include "engine/cli/plan.h"
#include "engine/plan/layout.h"
#include <math.h>

#define FIGURES(X)                                                                   \
    X(TOKENS_PER_S, "tokens_per_s", "tokens/s", RATE)                                \
    X(REQUESTS_PER_S, "requests_per_s", "requests/s", RATE)                          \
    X(TOTAL_S, "total_s", "total", SECONDS)                                          \
    X(PREFILL_S, "prefill_s", "prompts take", SECONDS)                               \
    X(DECODE_S, "decode_s", "generation takes", SECONDS)                             \
    X(LOAD_S, "load_s", "loading before", SECONDS)                                   \
    X(LATENCY_S, "latency_s", "a request takes", SECONDS)                            \
    X(TOKENS_PER_USD, "tokens_per_usd", "tokens per dollar", RATE)                   \
    X(SLOTS, "gpu_batch_size", "slots in a micro-batch", COUNT)                      \
    X(BATCHES, "num_gpu_batches", "micro-batches", COUNT)                            \
    X(PROMPT_TOKENS, "prefill_tokens", "prompt tokens a sweep", COUNT)               \
    X(PREFETCH, "prefetch", "layers read ahead", COUNT)                              \
    X(KV_ENTRIES, "kv_entries", "KV entries a sequence", COUNT)                      \
    X(WEIGHTS_GPU, "weights_gpu", "weights on the GPU", PERCENT)                     \
    X(WEIGHTS_HOST, "weights_host", "weights on the host", PERCENT)                  \
    X(WEIGHTS_DISK, "weights_disk", "weights on disk", PERCENT)                      \
    X(KV_GPU, "kv_gpu", "KV on the GPU", PERCENT)                                    \
    X(KV_HOST, "kv_host", "KV on the host", PERCENT)                                 \
    X(KV_DISK, "kv_disk", "KV on disk", PERCENT)                                     \
    X(HIDDEN_GPU, "hidden_gpu", "hidden on the GPU", PERCENT)                        \
    X(HIDDEN_HOST, "hidden_host", "hidden on the host", PERCENT)                     \
    X(HIDDEN_DISK, "hidden_disk", "hidden on disk", PERCENT)                         \
    X(ATTENTION_HOST, "attention_host", "attention on the host", PERCENT)            \
    X(GPU_BYTES, "gpu_bytes", "GPU memory", BYTES)                                   \
    X(HOST_BYTES, "host_bytes", "host memory", BYTES)                                \
    X(PINNED_BYTES, "pinned_bytes", "of it pinned", BYTES)                           \
    X(DISK_BYTES, "disk_bytes", "disk for KV, hidden", BYTES)                        \
    X(READ_BYTES, "disk_read_bytes", NULL, BYTES)                                    \
    X(WRITE_BYTES, "disk_write_bytes", NULL, BYTES)                                  \
    X(H2D_BYTES, "h2d_bytes", NULL, BYTES)                                           \
    X(D2H_BYTES, "d2h_bytes", NULL, BYTES)                                           \
    X(LOAD_READ_BYTES, "load_disk_read_bytes", NULL, BYTES)                          \
    X(LOAD_H2D_BYTES, "load_h2d_bytes", NULL, BYTES)                                 \
    X(READ_PER_TOKEN, "disk_read_bytes_per_token", "a token reads from disk", BYTES) \
    X(WRITE_PER_TOKEN, "disk_write_bytes_per_token", "writes to disk", BYTES)        \
    X(H2D_PER_TOKEN, "h2d_bytes_per_token", "copies to the GPU", BYTES)              \
    X(D2H_PER_TOKEN, "d2h_bytes_per_token", "copies from the GPU", BYTES)            \
    X(DRAM_PER_TOKEN, "dram_bytes_per_token", "moves in host memory", BYTES)         \
    X(HBM_PER_TOKEN, "hbm_bytes_per_token", "moves in GPU memory", BYTES)            \
    X(READ_BUSY, "disk_read_busy", "disk reads busy", PERCENT)                       \
    X(WRITE_BUSY, "disk_write_busy", "disk writes busy", PERCENT)                    \
    X(H2D_BUSY, "h2d_busy", "copies to the GPU busy", PERCENT)                       \
    X(D2H_BUSY, "d2h_busy", "copies from it busy", PERCENT)                          \
    X(GPU_BUSY, "gpu_busy", "GPU busy", PERCENT)                                     \
    X(HOST_BUSY, "host_busy", "host cores busy", PERCENT)                            \
    X(WAIT_WEIGHTS, "wait_weights", "compute waits for weights", PERCENT)            \
    X(WAIT_KV, "wait_kv", "it waits for KV", PERCENT)                                \
    X(WAIT_OTHER, "wait_other", "it waits for the rest", PERCENT)

enum figure {
#define X(name, key, label, kind) F_##name,
    FIGURES(X)
#undef X
        F__COUNT
};
_Static_assert((int) F__COUNT <= (int) PS_FIGURES_MAX, "figures");

static const struct ps_figure figures[] = {
#define X(name, key, label, kind) { key, label, PS_FIG_##kind },
    FIGURES(X)
#undef X
};

_Static_assert(F_D2H_BYTES - F_READ_BYTES == 3 && F_D2H_PER_TOKEN - F_READ_PER_TOKEN == 3,
               "links' order");

const struct ps_figure *ps_figure_at(size_t i) { return i < F__COUNT ? &figures[i] : NULL; }

static json_t *figure_json(double v)
{
    if (isnan(v)) return json_null();
    return v == floor(v) && fabs(v) < 0x1p53 ? json_integer((json_int_t) v) : json_real(v);
}

int ps_figures_put(const struct ps_figures *f, json_t *to)
{
    int r = 0;
    for (size_t k = 0; !r && k < F__COUNT; k++)
        r = json_object_set_new(to, figures[k].key, figure_json(f->v[k]));
    if (!r) r = json_object_set_new(to, "limit", json_string(f->limit));
    return r ? r : json_object_set_new(to, "limit_busy", json_real(f->limit_busy));
}

static void shares(const uint64_t b[PS_TIER__COUNT], bool gpu, double *ret)
{
    const double all = (double) b[0] + (double) b[1] + (double) b[2];
    for (int t = 0; t < PS_TIER__COUNT; t++)
        ret[t] = t == PS_TIER_GPU && !gpu ? NAN : all > 0 ? 100 * (double) b[t] / all : 0;
}

static void shape(const struct ps_packed *m, const struct ps_plan *p, double *v)
{
    const bool gpu = p->detail->gpu;
    const uint64_t slabs = (uint64_t) m->shape.layers * p->micro_batches;
    v[F_SLOTS] = p->slots;
    v[F_BATCHES] = p->micro_batches;
    v[F_PROMPT_TOKENS] = p->prefill_tokens;
    v[F_PREFETCH] = p->prefetch;
    v[F_KV_ENTRIES] = p->kv_cap;
    shares(p->weight_bytes, gpu, &v[F_WEIGHTS_GPU]);
    shares(p->kv_bytes, gpu, &v[F_KV_GPU]);
    shares(p->hidden_bytes, gpu, &v[F_HIDDEN_GPU]);
    v[F_ATTENTION_HOST] = gpu ? 100.0 * p->host_slabs / (double) slabs : NAN;
    v[F_GPU_BYTES] = gpu ? (double) p->gpu_bytes : NAN;
    v[F_HOST_BYTES] = (double) p->host_bytes;
    v[F_PINNED_BYTES] = gpu ? (double) p->pinned_bytes : NAN;
    v[F_DISK_BYTES] = (double) p->disk_bytes;
}

static void times(const struct ps_job_stats *j, double usd, const struct ps_planned *x, double *v)
{
    const struct ps_simulated *s = &x->sim;
    const double n = (double) j->requests, gen = (double) j->max_new_tokens;
    v[F_TOTAL_S] = s->total_s;
    v[F_PREFILL_S] = s->run.prefill_s;
    v[F_DECODE_S] = s->run.decode_s;
    v[F_LOAD_S] = s->run.load_s;
    v[F_TOKENS_PER_S] = gen / s->total_s;
    v[F_REQUESTS_PER_S] = n / s->total_s;
    v[F_TOKENS_PER_USD] = usd > 0 ? gen / s->total_s * 3600 / usd : NAN;
    v[F_LATENCY_S] = s->end_s;
}

static double less(double all, double part) { return all > part ? all - part : 0; }

/* Of the job alone: loading before it is told apart. A job that only scores has prompt tokens alone. */
static void links(const struct ps_job_stats *j, const struct ps_planned *x, double *v)
{
    const struct ps_run_stats *s = &x->sim.run;
    const struct ps_dev_stats *d = &s->dev;
    const bool gpu = x->plan.detail->gpu;
    const double gen = (double) j->max_new_tokens,
                 tokens = gen > 0 ? gen : (double) j->prompt_tokens,
                 near = d->mem_bytes[PS_Q_COMPUTE] / tokens,
                 up = ps_dev_moved(d, PS_Q_H2D) + ps_dev_moved(d, PS_Q_UP);
    v[F_LOAD_READ_BYTES] = (double) s->load_bytes[PS_Q_READ];
    v[F_LOAD_H2D_BYTES] = gpu ? (double) s->load_bytes[PS_Q_H2D] : NAN;
    v[F_READ_BYTES] = ps_dev_moved(d, PS_Q_READ) - v[F_LOAD_READ_BYTES];
    v[F_WRITE_BYTES] = ps_dev_moved(d, PS_Q_WRITE);
    v[F_H2D_BYTES] = gpu ? up - v[F_LOAD_H2D_BYTES] : NAN;
    v[F_D2H_BYTES] = gpu ? ps_dev_moved(d, PS_Q_D2H) : NAN;
    for (int i = 0; i < 4; i++) v[F_READ_PER_TOKEN + i] = v[F_READ_BYTES + i] / tokens;
    v[F_DRAM_PER_TOKEN] = d->mem_bytes[PS_Q_HOST] / tokens + (gpu ? 0 : near);
    v[F_HBM_PER_TOKEN] = gpu ? near : NAN;
}

/* Percent of the job's time, of which `before` seconds were busy before it. */
static double busy(const struct ps_planned *x, enum ps_q q, double before)
{
    const double s = less((double) x->sim.run.dev.busy_ns[q] * 1e-9, before), all = x->sim.total_s;
    return all > 0 ? fmin(100 * s / all, 100) : 0;
}

static void busies(double h2d, const struct ps_planned *x, double *v)
{
    const bool gpu = x->plan.detail->gpu;
    const double copied = h2d > 0 ? (double) x->plan.weight_bytes[PS_TIER_GPU] / h2d : 0;
    v[F_READ_BUSY] = busy(x, PS_Q_READ, x->sim.run.load_s);
    v[F_WRITE_BUSY] = busy(x, PS_Q_WRITE, 0);
    v[F_H2D_BUSY] = gpu ? fmin(busy(x, PS_Q_H2D, copied) + busy(x, PS_Q_UP, 0), 100) : NAN;
    v[F_D2H_BUSY] = gpu ? busy(x, PS_Q_D2H, 0) : NAN;
    v[F_GPU_BUSY] = gpu ? busy(x, PS_Q_COMPUTE, 0) : NAN;
    v[F_HOST_BUSY] = busy(x, gpu ? PS_Q_HOST : PS_Q_COMPUTE, 0);
}

/* Percent of the job's time in which COMPUTE had a next task that waited for it. */
static void waits(const struct ps_planned *x, double *v)
{
    const uint64_t *ns = x->sim.run.dev.stall_ns;
    const double percent = x->sim.total_s > 0 ? 100e-9 / x->sim.total_s : 0;
    v[F_WAIT_WEIGHTS] = fmin(percent * (double) ns[PS_KIND_WEIGHTS], 100);
    v[F_WAIT_KV] = fmin(percent * (double) ns[PS_KIND_KV], 100);
    v[F_WAIT_OTHER] = fmin(percent * (double) (ns[PS_KIND_OTHER] + ns[PS_KIND_HIDDEN]), 100);
}

void ps_figures_of(const struct ps_plan_req *q, const struct ps_profile *p,
                   const struct ps_planned *x, struct ps_figures *ret)
{
    static const struct {
        enum figure f;
        const char *name;
    } limits[] = { { F_READ_BUSY, "disk read" }, { F_WRITE_BUSY, "disk write" },
                   { F_H2D_BUSY, "h2d" },        { F_D2H_BUSY, "d2h" },
                   { F_GPU_BUSY, "GPU" },        { F_HOST_BUSY, "host cores" } };
    double *v = ret->v;
    times(&q->job, p->usd_per_hour, x, v);
    shape(q->model, &x->plan, v);
    links(&q->job, x, v);
    busies(p->h2d.alone, x, v);
    waits(x, v);
    ret->limit_busy = -1;
    for (size_t i = 0; i < PS_ARRAY_LEN(limits); i++)
        if (v[limits[i].f] > ret->limit_busy) {
            ret->limit = limits[i].name;
            ret->limit_busy = v[limits[i].f];
        }
}
