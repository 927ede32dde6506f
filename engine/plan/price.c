/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan/shape_plan.h"

double ps_candidate_price(const struct ps_plan_req *req, const struct ps_plan *p)
{
    const struct ps_shape *s = &req->model->shape;
    const struct ps_job_stats *j = &req->job;
    const struct ps_rates *g = &req->rates;
    double disk_r = g->disk_read > 0 ? g->disk_read : 1.5e9,
           disk_w = g->disk_write > 0 ? g->disk_write : 1e9;
    double dram = g->dram > 0 ? g->dram : 15e9, gemm = g->gemm > 0 ? g->gemm : 50e9 * req->threads;
    double n = j->requests ? (double) j->requests : 1;
    double prompt = (double) j->prompt_tokens / n, gen = (double) j->max_new_tokens / n;
    double slots = (double) p->slots * p->micro_batches,
           entries = ps_keep_cap(&p->split.keep, (uint32_t) (prompt + gen));
    double room = slots; /* with `full` a sequence takes its own length from the pool */
    if (p->split.keep.heavy == PS_KEEP_ALL) {
        double each = entries + p->detail->quantum / 2.0;
        room = (double) p->micro_batches * p->detail->pool / (each < p->kv_cap ? each : p->kv_cap);
    }
    double live = slots < room ? slots : room;
    if (live > n) live = n;
    double sweeps = n * (gen > 1 ? gen : 1) / live, fills = n * prompt / p->prefill_tokens;
    if (fills > sweeps) sweeps = fills;
    sweeps += live * prompt / p->prefill_tokens;
    double rows = n * (prompt + gen) / sweeps;
    double filled = p->split.keep.heavy == PS_KEEP_ALL ? prompt + gen / 2 : entries;
    double kv = live * s->layers *
                (double) ps_slab_kv_bytes(s->kv_heads, s->head_dim, p->detail->kv_type, 1) * filled;
    double slab_all = (double) (p->kv_bytes[PS_TIER_HOST] + p->kv_bytes[PS_TIER_DISK]);
    double kv_disk = slab_all > 0 ? kv * (double) p->kv_bytes[PS_TIER_DISK] / slab_all : 0;
    /* A short ring cannot even out what one group takes longer to read or to compute than another. */
    if (p->weight_bytes[PS_TIER_DISK]) disk_r /= 1 + 0.04 / (1 + p->prefetch);
    double weights = (double) req->model->weight_bytes;
    double flops = 2 * weights / (double) ps_dtype_bytes(req->model->dtype);
    double hid = 2.0 * s->layers * (double) p->hidden_bytes[PS_TIER_DISK];
    double t_disk = ((double) p->weight_bytes[PS_TIER_DISK] + kv_disk + hid / 2) / disk_r +
                    (kv_disk / p->detail->log_steps + hid / 2) / disk_w;
    /* Few rows at a time reach less of the rate: the weights are widened for each lot of rows anew. */
    double lot = rows < p->chunk_rows ? rows : p->chunk_rows;
    gemm *= lot / (lot + 16.0);
    double t_gemm = rows * flops / gemm, t_weights = weights / dram;
    double t_compute = (t_gemm > t_weights ? t_gemm : t_weights) + (kv + kv_disk) / dram;
    /* What overlaps is nearly free, not free; and a sweep's tasks and turns cost something whatever is in them. */
    double slow = t_disk > t_compute ? t_disk : t_compute, fast = t_disk + t_compute - slow;
    double turns = 200e-6 + 150e-6 * s->layers * p->micro_batches;
    return sweeps * (slow + 0.1 * fast + turns);
}
