/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan/shape_plan.h"
#include "engine/base/ps_mem.h"
#include "kernels/kern.h"
#include "policy/placement/spread.h"
#include <stdio.h>
#include <string.h>

static uint64_t gcd(uint64_t a, uint64_t b) { return b ? gcd(b, a % b) : a; }
static uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- geometry */

/* Slabs on disk must begin and end at sector boundaries: with `full` each head does, so that only the filled part moves; with a
 * budget, which soon fills, the slab as a whole does. On the host `full` has length classes of 16 entries. */
static uint32_t quantum(const struct ps_shape *s, const struct ps_plan_detail *d, bool all,
                        bool disk)
{
    if (!disk) return all ? 16 : 1;
    uint64_t entry = s->head_dim * ps_dtype_bytes(d->kv_type);
    if (!all) entry *= s->kv_heads;
    return (uint32_t) (PS_PACK_ALIGN / gcd(PS_PACK_ALIGN, entry));
}

/* With `full` the pool holds as many sequences as fit at the job's mean length, one of the longest at least. Entries are counted in 32
 * bits: of more slots some would stay empty. */
static uint32_t pool_entries(const struct ps_plan_req *req, const struct ps_plan *p, bool all)
{
    uint64_t most = min64((uint64_t) p->slots * p->kv_cap, UINT32_MAX);
    most -= most % p->detail->quantum;
    if (!all || !req->job.requests) return (uint32_t) most;
    double mean =
        (double) (req->job.prompt_tokens + req->job.max_new_tokens) / (double) req->job.requests;
    double want = p->slots * (mean + p->detail->quantum) * 1.02;
    uint64_t pool = max64((uint64_t) want, p->kv_cap) + p->detail->quantum - 1;
    pool -= pool % p->detail->quantum;
    return (uint32_t) min64(pool, most);
}

static void worker_scratch(const struct ps_plan_req *req, struct ps_plan *p)
{
    const struct ps_shape *s = &req->model->shape;
    uint32_t widest = (uint32_t) max64(max64(s->ffn, s->hidden),
                                       max64(s->embed, (uint64_t) s->q_heads * s->head_dim));
    uint32_t longest = req->job.longest_total, rows = p->chunk_rows;
    size_t need = 4096;
#define NEED(op, ...)                                                                   \
    do {                                                                                \
        size_t b_ = ps_op_scratch(PS_OP_##op, &(const struct ps_##op) { __VA_ARGS__ }); \
        if (b_ > need) need = b_;                                                       \
    } while (0)
    NEED(linear, .m = rows, .n = widest, .k = widest, .ldx = widest, .ldy = widest,
         .wtype = req->model->dtype);
    NEED(linear, .m = rows, .n = s->vocab, .k = s->embed, .ldx = s->embed, .ldy = s->vocab,
         .wtype = req->model->dtype);
    NEED(attn_prompt, .n_seqs = 1, .q_heads = s->q_heads, .kv_heads = s->kv_heads, .d = s->head_dim,
         .longest = longest, .kv_type = p->detail->kv_type);
    NEED(attn_decode, .n_rows = 1, .q_heads = s->q_heads, .kv_heads = s->kv_heads, .d = s->head_dim,
         .longest = longest + 1, .kv_type = p->detail->kv_type);
    NEED(kv_compact, .n_seqs = 1, .kv_heads = s->kv_heads, .d = s->head_dim, .longest = longest,
         .kv_type = p->detail->kv_type);
    NEED(sample, .n_rows = 1, .vocab = s->vocab);
#undef NEED
    p->detail->scratch_bytes = PS_ROUND_UP(need, (size_t) 4096);
}

/* Room for the streamed chunks of the largest group, which stay until its last micro-batch, for what is read ahead, and for what is
 * skipped where a chunk would reach over the ring's end. */
static uint64_t ring_bytes(const struct ps_packed *m, const uint8_t *tier, uint32_t prefetch)
{
    uint64_t groups = m->shape.layers + 1, all = 0, most = 0, in_group = 0;
    for (uint32_t i = 0; i < m->n_chunks; i++) {
        if (i == 0 || m->chunks[i].group != m->chunks[i - 1].group) in_group = 0;
        if (tier[i] != PS_TIER_DISK) continue;
        all += m->chunks[i].len;
        in_group += m->chunks[i].len;
        most = max64(most, in_group);
    }
    if (!all) return 0;
    uint64_t ahead = PS_ROUND_UP(prefetch * (all / groups), (uint64_t) PS_PACK_ALIGN);
    return min64(most + m->chunk_bytes + max64(ahead, m->chunk_bytes), 2 * all);
}

/* ---- placement */

static int place(const struct ps_plan_req *req, const struct ps_candidate *c, struct ps_plan *p,
                 struct ps_detail *dt)
{
    const struct ps_packed *m = req->model;
    struct ps_plan_detail *d = p->detail;
    size_t slabs = (size_t) m->shape.layers * p->micro_batches,
           most = m->n_chunks > slabs ? m->n_chunks : slabs;
    if (p->micro_batches > most) most = p->micro_batches;
    d->chunk_tier = ps_calloc(m->n_chunks, 1);
    d->slab_tier = ps_calloc(slabs, 1);
    d->slab_host = ps_calloc(slabs, 1);
    d->hidden_tier = ps_calloc(p->micro_batches, 1);
    ps_auto_free uint64_t *bytes = ps_calloc(most, sizeof *bytes);
    if (!d->chunk_tier || !d->slab_tier || !d->slab_host || !d->hidden_tier || !bytes)
        return ps_fail(dt, -ENOMEM, "plan: out of memory");
#define SPREAD(n, disk_pct, tier, sum) \
    ps_spread(bytes, n, (double[]) { 0, 100 - (disk_pct), disk_pct }, PS_TIER__COUNT, tier, sum)
    for (uint32_t i = 0; i < m->n_chunks; i++) bytes[i] = m->chunks[i].len;
    SPREAD(m->n_chunks, 100 - c->weights_host_pct, d->chunk_tier, p->weight_bytes);
    for (size_t i = 0; i < slabs; i++) bytes[i] = 1;
    SPREAD(slabs, c->kv_disk_pct, d->slab_tier, p->kv_bytes);
    for (uint32_t i = 0; i < p->micro_batches; i++) bytes[i] = 1;
    SPREAD(p->micro_batches, c->hidden_disk_pct, d->hidden_tier, p->hidden_bytes);
#undef SPREAD
    return 0;
}

static uint32_t ring_of(uint32_t on_disk, uint32_t want)
{
    return on_disk ? (want < 3 ? 3 : want) : 0;
}

static int geometry(const struct ps_plan_req *req, const struct ps_candidate *c, struct ps_plan *p,
                    struct ps_detail *dt)
{
    const struct ps_shape *s = &req->model->shape;
    struct ps_plan_detail *d = p->detail;
    bool all = p->split.keep.heavy == PS_KEEP_ALL;
    int r = place(req, c, p, dt);
    if (r < 0) return r;
    d->quantum = quantum(s, d, all, p->kv_bytes[PS_TIER_DISK] > 0);
    uint32_t longest = req->job.longest_total > 1 ? req->job.longest_total - 1 : 1;
    if (longest < req->job.longest_prompt)
        longest = req->job.longest_prompt; /* one that is only scored */
    p->kv_cap = ps_slab_cap(d, &p->split.keep, longest);
    d->pool = pool_entries(req, p, all);
    uint64_t share = ((uint64_t) c->prompt_tokens + p->micro_batches - 1) / p->micro_batches;
    uint64_t rows = min64((uint64_t) p->slots * req->job.longest_prompt, UINT32_MAX - p->slots);
    d->mb_prompt = (uint32_t) min64(max64(share, req->job.longest_prompt), rows);
    d->mb_rows = p->slots + d->mb_prompt;
    p->chunk_rows = (uint32_t) min64(c->chunk_rows, d->mb_rows);
    uint64_t logit_rows = max64((64u << 20) / (4 * (uint64_t) s->vocab), 8);
    d->head_rows = (uint32_t) min64(min64(logit_rows, p->chunk_rows),
                                    req->job.scores_prompts ? d->mb_rows : p->slots);
    d->ring_bytes = ring_bytes(req->model, d->chunk_tier, c->prefetch);
    d->kv_ring = ring_of(p->kv_bytes[PS_TIER_DISK] > 0, 3);
    d->hidden_ring = ring_of(p->hidden_bytes[PS_TIER_DISK] > 0, 3);
    d->log_steps = c->log_steps;
    d->passes = 1;
    d->most_banned = req->job.most_banned;
    /* tiers were counted in items; now in bytes */
    for (int t = 0; t < PS_TIER__COUNT; t++) {
        p->kv_bytes[t] *= ps_kv_extent_bytes(s, d);
        p->hidden_bytes[t] *= ps_hidden_bytes(s, d);
    }
    worker_scratch(req, p);
    return 0;
}

static char *table_text(const struct ps_arena *a)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    const struct ps_arena_item *it;
    for (size_t i = 0; (it = ps_arena_item(a, i)); i++)
        fprintf(f, "  %12.1f MiB  %s\n", (double) it->bytes / (1 << 20), it->name);
    fprintf(f, "  %12.1f MiB  in all\n", (double) ps_arena_used(a) / (1 << 20));
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

int ps_candidate_build(const struct ps_plan_req *req, const struct ps_candidate *c,
                       struct ps_plan *ret, struct ps_detail *dt)
{
    struct ps_plan p = { .slots = c->slots,
                         .micro_batches = c->micro_batches,
                         .prefill_tokens = c->prompt_tokens,
                         .prefetch = c->prefetch };
    ps_auto_arena struct ps_arena *arena = NULL;
    p.detail = ps_calloc(1, sizeof *p.detail);
    if (!p.detail) return ps_fail(dt, -ENOMEM, "plan: out of memory");
    p.detail->kv_type = req->kv_config.type;
    int r = ps_kv_resolve(&req->kv_config, req->job.longest_total, req->job.longest_prompt,
                          &p.split, dt);
    p.detail->scores = p.split.scores;
    if (!r) r = geometry(req, c, &p, dt);
    if (!r) r = ps_arena_open(&(struct ps_arena_cfg) { .measure = true }, &arena, dt);
    struct ps_layout l = { 0 };
    if (!r) r = ps_layout_host(arena, req->model, &p, req->threads, &l, dt);
    if (!r) {
        p.host_bytes = ps_arena_used(arena);
        p.disk_bytes = p.kv_bytes[PS_TIER_DISK] + p.hidden_bytes[PS_TIER_DISK];
        p.detail->table = table_text(arena);
        if (!p.detail->table) r = ps_fail(dt, -ENOMEM, "plan: out of memory");
    }
    if (r < 0) {
        ps_plan_done(&p);
        return r;
    }
    *ret = p;
    return 0;
}

/* ---- price */

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
