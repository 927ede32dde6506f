/* SPDX-License-Identifier: Apache-2.0 */
/* What a candidate costs, in closed form: how many sweeps the job takes, and how long each link is busy in one. */
#include "engine/plan/shape_plan.h"
#include <math.h>

static double or_guess(double known, double guess) { return known > 0 ? known : guess; }

/* What a sweep has to do. */
struct work {
    double live;     /* sequences under way */
    double rows;     /* those of prompts included */
    double ended;    /* prompts that end in it */
    double kv;       /* bytes that decode attention reads */
    double token_kv; /* bytes of one token's, in all layers */
    double kept;     /* entries of a sequence at its end */
};

/* Sequences of about the same length begin together and end together: some sweeps have as many prompt tokens as may be, the others have
 * none, and what is slow in the ones is not hidden behind what is slow in the others. Without a GPU nearly all is the cores' work, and the
 * mean will do. */
struct job {
    double fills, others; /* sweeps */
    struct work fill, other, mean;
};

static struct job job_of(const struct ps_plan_req *req, const struct ps_plan *p)
{
    const struct ps_shape *s = &req->model->shape;
    const struct ps_job_stats *j = &req->job;
    const bool all = p->split.keep.heavy == PS_KEEP_ALL;
    double n = j->requests ? (double) j->requests : 1;
    double prompt = (double) j->prompt_tokens / n, gen = (double) j->max_new_tokens / n;
    double slots = (double) p->slots * p->micro_batches,
           entries = ps_keep_cap(&p->split.keep, (uint32_t) (prompt + gen));
    double room = slots; /* with `full` a sequence takes its own length from the pool */
    if (all) {
        double each = entries + p->detail->quantum / 2.0;
        room = (double) p->micro_batches * p->detail->pool / (each < p->kv_cap ? each : p->kv_cap);
    }
    struct work w = { .live = slots < room ? slots : room, .kept = entries };
    if (w.live > n) w.live = n;
    double fills = n * prompt / p->prefill_tokens, sweeps = n * (gen > 1 ? gen : 1) / w.live;
    if (fills > sweeps) sweeps = fills;
    sweeps += w.live * prompt / p->prefill_tokens;
    if (fills < 1) fills = sweeps < 1 ? sweeps : 1;
    w.token_kv =
        s->layers * (double) ps_slab_kv_bytes(s->kv_heads, s->head_dim, p->detail->kv_type, 1);
    w.kv = w.live * w.token_kv * (all ? prompt + gen / 2 : entries);
    w.rows = n * gen / sweeps;
    struct job r = { fills, sweeps - fills, w, w, w };
    r.mean.rows += n * prompt / sweeps;
    r.fill.rows += n * prompt / fills;
    r.fill.ended = n / fills;
    return r;
}

static double share(const uint64_t b[PS_TIER__COUNT], enum ps_tier t)
{
    const double all = (double) b[0] + (double) b[1] + (double) b[2];
    return all > 0 ? (double) b[t] / all : 0;
}

static double disk_s(const struct ps_plan_req *req, const struct ps_plan *p, const struct work *w)
{
    double in = or_guess(req->rates.disk_read, 1.5e9), out = or_guess(req->rates.disk_write, 1e9);
    double kv = w->kv * share(p->kv_bytes, PS_TIER_DISK);
    double hid = 2.0 * req->model->shape.layers * (double) p->hidden_bytes[PS_TIER_DISK];
    /* A short ring cannot even out what one group takes longer to read or to compute than another. */
    if (p->weight_bytes[PS_TIER_DISK]) in /= 1 + 0.04 / (1.0 + p->prefetch);
    return ((double) p->weight_bytes[PS_TIER_DISK] + kv + hid / 2) / in +
           (kv / p->detail->log_steps + hid / 2) / out;
}

static double more(double a, double b) { return a > b ? a : b; }

static double row_flops(const struct ps_plan_req *req)
{
    return 2 * (double) req->model->weight_bytes / (double) ps_dtype_bytes(req->model->dtype);
}

/* What overlaps is nearly free, not free. */
static double together(const double *s, size_t n)
{
    double slow = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        slow = more(slow, s[i]);
        sum += s[i];
    }
    return slow + 0.1 * (sum - slow);
}

static double sweep_s(const struct ps_plan_req *req, const struct ps_plan *p, const struct work *w)
{
    double dram = or_guess(req->rates.dram, 15e9),
           gemm = or_guess(req->rates.gemm, 50e9 * req->threads);
    /* Few rows at a time reach less of the rate: the weights are widened for each lot of rows anew. */
    double lot = w->rows < p->chunk_rows ? w->rows : p->chunk_rows;
    gemm *= lot / (lot + 16.0);
    double compute =
        more(w->rows * row_flops(req) / gemm, (double) req->model->weight_bytes / dram) +
        w->kv * (1 + share(p->kv_bytes, PS_TIER_DISK)) / dram;
    double turns = 200e-6 + 150e-6 * req->model->shape.layers * p->micro_batches;
    return together((const double[]) { disk_s(req, p, w), compute }, 2) + turns;
}

/* Bytes down and up the bus, which attention on the host shortens: of a slab that visits the GPU all goes up at each step, and what is new
 * comes down; of a prompt what stays comes down. */
static void bus(const struct ps_plan_req *req, const struct ps_plan *p, const struct work *w,
                double far, double *ret_up, double *ret_down)
{
    const struct ps_shape *s = &req->model->shape;
    const double off_gpu = 1 - share(p->kv_bytes, PS_TIER_GPU), wide = 4.0 * s->layers;
    double hidden = (1 - share(p->hidden_bytes, PS_TIER_GPU)) * w->rows * s->hidden * wide;
    double asked = far * w->live * s->q_heads * s->head_dim * wide;
    *ret_up = (double) p->weight_bytes[PS_TIER_HOST] + (double) p->weight_bytes[PS_TIER_DISK] +
              w->kv * (off_gpu - far) + hidden + asked;
    *ret_down = (w->live + w->ended * w->kept) * w->token_kv * off_gpu + hidden + asked;
}

/* Lots of rows that a micro-batch goes through the weights in. */
static double lots(const struct ps_plan *p, const struct work *w)
{
    return ceil(w->rows / p->micro_batches / p->chunk_rows);
}

/* All linears. Each lot reads the weights, and takes as long as if it had some rows more, which are lost to getting them ready. Where
 * prompts are only scored, sweeps without prompts have no rows. */
static double linear_s(const struct ps_plan_req *req, const struct ps_plan *p, const struct work *w,
                       double gemm, double hbm)
{
    const double some = 64, row = row_flops(req) / gemm,
                 weights = (double) req->model->weight_bytes / hbm,
                 mbs = w->rows < p->micro_batches ? w->rows : p->micro_batches,
                 full = lots(p, w) - 1, rest = w->rows / mbs - full * p->chunk_rows;
    if (w->rows <= 0) return 0;
    return mbs * (full * more((p->chunk_rows + some) * row, weights) +
                  more((rest + some) * row, weights));
}

static double gpu_sweep_s(const struct ps_plan_req *req, const struct ps_plan *p,
                          const struct work *w)
{
    const struct ps_rates *g = &req->rates;
    const struct ps_shape *s = &req->model->shape;
    double hbm = or_guess(g->hbm, 250e9), gemm = or_guess(g->gpu_gemm, 20e12),
           dram = or_guess(g->dram, 15e9), up_rate = or_guess(g->h2d, 12e9),
           down_rate = or_guess(g->d2h, 12e9);
    double far = (double) p->host_slabs / ((double) s->layers * p->micro_batches), up, down;
    bus(req, p, w, far, &up, &down);
    double gpu = linear_s(req, p, w, gemm, hbm) + w->kv * (1 - far) / hbm;
    double host = w->kv * far / dram;
    if (!p->detail->weights_pinned) host += 2 * (double) p->weight_bytes[PS_TIER_HOST] / dram;
    /* One pass waits for its attention; of two, one computes meanwhile, unless a micro-batch has more rows than go at once. */
    double both = p->detail->passes > 1 && lots(p, w) <= 1 ? more(gpu, host) : gpu + host;
    /* A group's chunks come while the one before it is computed, as far as the ring has room for them beside that one's, which stay
     * until its last micro-batch. */
    double beside = p->prefetch + 1.0 / p->micro_batches;
    double alone = beside < 1 ? (1 - beside) * (both < up / up_rate ? both : up / up_rate) : 0;
    double turns = 200e-6 + 80e-6 * s->layers * p->micro_batches;
    const double links[] = { disk_s(req, p, w), up / up_rate, down / down_rate, both };
    return together(links, 4) + alone + turns;
}

double ps_candidate_price(const struct ps_plan_req *req, const struct ps_plan *p)
{
    const struct job j = job_of(req, p);
    if (!p->detail->gpu) return (j.fills + j.others) * sweep_s(req, p, &j.mean);
    return j.fills * gpu_sweep_s(req, p, &j.fill) + j.others * gpu_sweep_s(req, p, &j.other);
}
