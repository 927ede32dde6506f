/* SPDX-License-Identifier: Apache-2.0 */
/* One candidate: its placement, the sizes that follow from it, and its memory. */
#include "engine/plan/shape_plan.h"
#include "engine/base/ps_mem.h"
#include "offload/dev_cuda.h"
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

/* ---- rings of weights */

enum { GPU = 1 << PS_TIER_GPU, HOST = 1 << PS_TIER_HOST, DISK = 1 << PS_TIER_DISK };

/* The chunks that pass by, because they lie in one of some tiers. */
struct passing {
    uint64_t all, most, pair; /* bytes; of the largest group, and of the two largest neighbours */
};

static struct passing passing(const struct ps_packed *m, const uint8_t *tier, unsigned tiers)
{
    struct passing r = { 0 };
    uint64_t first = 0, last = 0, sum = 0;
    for (uint32_t i = 0; i < m->n_chunks; i++) {
        if (tiers >> tier[i] & 1) sum += m->chunks[i].len;
        if (i + 1 < m->n_chunks && m->chunks[i + 1].group == m->chunks[i].group) continue;
        if (m->chunks[i].group == 0) first = sum;
        r.all += sum;
        r.most = max64(r.most, sum);
        r.pair = max64(r.pair, last + sum);
        last = sum;
        sum = 0;
    }
    r.pair = max64(r.pair, last + first); /* the stem follows the last layer */
    return r;
}

static uint64_t ahead(const struct ps_packed *m, const struct passing *w, uint32_t prefetch)
{
    return PS_ROUND_UP(prefetch * (w->all / (m->shape.layers + 1)), (uint64_t) PS_PACK_ALIGN);
}

/* Where COMPUTE takes them from: room for what stays until the last micro-batch, for what is read ahead, and for what is skipped where
 * a chunk would reach over the ring's end. */
static uint64_t ring_bytes(const struct ps_packed *m, const struct passing *w, uint32_t prefetch,
                           uint32_t passes)
{
    uint64_t stays = passes > 1 ? w->pair : w->most;
    return min64(stays + m->chunk_bytes + max64(ahead(m, w, prefetch), m->chunk_bytes), 2 * w->all);
}

static void weight_rings(const struct ps_packed *m, const struct ps_candidate *c,
                         struct ps_plan_detail *d)
{
    const struct passing disk = passing(m, d->chunk_tier, DISK),
                         off_gpu = passing(m, d->chunk_tier, HOST | DISK),
                         copied = passing(m, d->chunk_tier, d->weights_pinned ? DISK : HOST | DISK),
                         loaded = passing(m, d->chunk_tier, GPU);
    if (!d->gpu) {
        d->ring_bytes = ring_bytes(m, &disk, c->prefetch, 1);
        return;
    }
    d->gpu_ring_bytes = ring_bytes(m, &off_gpu, c->prefetch, d->passes);
    /* On the host a chunk's room is free again when its copy was submitted. */
    if (copied.all || loaded.all)
        d->ring_bytes = 3 * (uint64_t) m->chunk_bytes + ahead(m, &copied, c->prefetch);
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
#define SPREAD(n, shares, tier, sum) ps_spread(bytes, n, (shares).pct, PS_TIER__COUNT, tier, sum)
    for (uint32_t i = 0; i < m->n_chunks; i++) bytes[i] = m->chunks[i].len;
    SPREAD(m->n_chunks, c->weights, d->chunk_tier, p->weight_bytes);
    for (size_t i = 0; i < slabs; i++) bytes[i] = 1;
    SPREAD(slabs, c->kv, d->slab_tier, p->kv_bytes);
    for (uint32_t i = 0; i < p->micro_batches; i++) bytes[i] = 1;
    SPREAD(p->micro_batches, c->hidden, d->hidden_tier, p->hidden_bytes);
#undef SPREAD
    return 0;
}

/* Of the slabs that do not lie on the GPU an even share: their decode attention is the host's. */
static void place_attention(const struct ps_plan_req *req, const struct ps_candidate *c,
                            struct ps_plan *p)
{
    struct ps_plan_detail *d = p->detail;
    const size_t slabs = (size_t) req->model->shape.layers * p->micro_batches;
    double due = 0;
    for (size_t i = 0; i < slabs && d->gpu; i++) {
        if (d->slab_tier[i] == PS_TIER_GPU) continue;
        due += c->attention_host_pct / 100;
        if (due < 1 - 1e-9) continue;
        due -= 1;
        d->slab_host[i] = 1;
        p->host_slabs++;
    }
    d->passes = p->host_slabs && p->micro_batches > 1 ? 2 : 1;
}

/* Extents through which slabs or hidden states of another tier pass; one more where two passes are under way. */
static uint32_t extents(const struct ps_plan_detail *d, bool any)
{
    return any ? 2 + d->passes : 0;
}

static void rings(const struct ps_plan_req *req, const struct ps_candidate *c, struct ps_plan *p)
{
    struct ps_plan_detail *d = p->detail;
    const uint64_t *kv = p->kv_bytes, *hidden = p->hidden_bytes;
    weight_rings(req->model, c, d);
    d->kv_ring = extents(d, kv[PS_TIER_DISK]);
    d->hidden_ring = extents(d, hidden[PS_TIER_DISK]);
    if (!d->gpu) return;
    d->gpu_kv_ring = extents(d, kv[PS_TIER_HOST] || kv[PS_TIER_DISK]);
    d->gpu_hidden_ring = extents(d, hidden[PS_TIER_HOST] || hidden[PS_TIER_DISK]);
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
    place_attention(req, c, p);
    rings(req, c, p);
    d->log_steps = c->log_steps;
    d->most_banned = req->job.most_banned;
    /* tiers were counted in items; now in bytes */
    for (int t = 0; t < PS_TIER__COUNT; t++) {
        p->kv_bytes[t] *= ps_kv_extent_bytes(s, d);
        p->hidden_bytes[t] *= ps_hidden_bytes(s, d);
    }
    d->scratch_bytes = ps_candidate_scratch(req, p);
    if (d->gpu) d->gpu_scratch_bytes = ps_candidate_gpu_scratch(req, p);
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

/* Both arenas' own arithmetic. */
static int measure(const struct ps_plan_req *req, struct ps_plan *p, struct ps_detail *dt)
{
    struct ps_plan_detail *d = p->detail;
    ps_auto_arena struct ps_arena *host = NULL, *gpu = NULL;
    const struct ps_arena_cfg cfg = { .measure = true };
    struct ps_layout l = { 0 };
    int r = ps_arena_open(&cfg, &host, dt);
    if (!r) r = ps_layout_host(host, req->model, p, req->threads, &l, dt);
    if (!r && d->gpu) r = ps_arena_open(&cfg, &gpu, dt);
    if (!r && gpu) r = ps_layout_gpu(gpu, req->model, p, &l, dt);
    if (r < 0) return r;
    p->host_bytes = ps_arena_used(host);
    p->disk_bytes = p->kv_bytes[PS_TIER_DISK] + p->hidden_bytes[PS_TIER_DISK];
    d->table = table_text(host);
    if (!d->table) return ps_fail(dt, -ENOMEM, "plan: out of memory");
    if (!gpu) return 0;
    p->pinned_bytes = l.pinned_bytes;
    d->gpu_mem_bytes = ps_arena_used(gpu);
    p->gpu_bytes = ps_dev_cuda_bytes(&(const struct ps_dev_cuda_cfg) {
        .mem_bytes = d->gpu_mem_bytes, .scratch_bytes = d->gpu_scratch_bytes });
    d->gpu_table = table_text(gpu);
    return d->gpu_table ? 0 : ps_fail(dt, -ENOMEM, "plan: out of memory");
}

int ps_candidate_build(const struct ps_plan_req *req, const struct ps_candidate *c,
                       struct ps_plan *ret, struct ps_detail *dt)
{
    struct ps_plan p = { .slots = c->slots,
                         .micro_batches = c->micro_batches,
                         .prefill_tokens = c->prompt_tokens,
                         .prefetch = c->prefetch };
    p.detail = ps_calloc(1, sizeof *p.detail);
    if (!p.detail) return ps_fail(dt, -ENOMEM, "plan: out of memory");
    p.detail->kv_type = req->kv_config.type;
    p.detail->gpu = req->gpu.mem_bytes > 0;
    p.detail->weights_pinned = p.detail->gpu && c->weights_pinned;
    int r = ps_kv_resolve(&req->kv_config, req->job.longest_total, req->job.longest_prompt,
                          &p.split, dt);
    p.detail->scores = p.split.scores;
    if (!r) r = geometry(req, c, &p, dt);
    if (!r) r = measure(req, &p, dt);
    if (r < 0) {
        ps_plan_done(&p);
        return r;
    }
    *ret = p;
    return 0;
}
