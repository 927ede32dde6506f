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

/* ---- weights that pass by */

enum { GPU = 1 << PS_TIER_GPU, HOST = 1 << PS_TIER_HOST, DISK = 1 << PS_TIER_DISK };

/* Of the chunks in some tiers; tier NULL: of all. */
static struct ps_passing passing(const struct ps_packed *m, const uint8_t *tier, unsigned tiers)
{
    struct ps_passing r = { 0 };
    uint64_t first = 0, last = 0, sum = 0;
    for (uint32_t i = 0; i < m->n_chunks; i++) {
        if (!tier || tiers >> tier[i] & 1) sum += m->chunks[i].len;
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

struct ps_passing ps_weights_passing(const struct ps_packed *m) { return passing(m, NULL, 0); }

static uint64_t part(uint64_t bytes, double pct) { return (uint64_t) ((double) bytes * pct / 100); }

/* At most: an even share of any run of chunks is met within a chunk at either end. */
static struct ps_passing share_passing(const struct ps_packed *m, const struct ps_passing *all,
                                       double pct)
{
    if (pct <= 0) return (struct ps_passing) { 0 };
    if (pct > 99.999) return *all;
    const uint64_t ends = 2 * (uint64_t) m->chunk_bytes;
    return (struct ps_passing) { min64(part(all->all, pct) + ends, all->all),
                                 min64(part(all->most, pct) + ends, all->most),
                                 min64(part(all->pair, pct) + ends, all->pair) };
}

/* What the rings are for. */
struct streams {
    struct ps_passing disk, off_gpu, staged; /* staged: beside a GPU, through the host's ring */
    bool loaded;                             /* some stay on the GPU */
};

/* Room for so many groups, of which there are not more than there are. */
static uint64_t ahead(const struct ps_packed *m, const struct ps_passing *w, uint32_t prefetch)
{
    const uint64_t groups = m->shape.layers + 1;
    return PS_ROUND_UP(min64(prefetch, groups) * (w->all / groups), (uint64_t) PS_PACK_ALIGN);
}

/* Where COMPUTE takes them from: room for what stays until the last micro-batch, for what is read ahead, and for what is skipped where
 * a chunk would reach over the ring's end. */
static uint64_t ring_bytes(const struct ps_packed *m, const struct ps_passing *w, uint32_t prefetch,
                           uint32_t passes)
{
    uint64_t stays = passes > 1 ? w->pair : w->most;
    return min64(stays + m->chunk_bytes + max64(ahead(m, w, prefetch), m->chunk_bytes), 2 * w->all);
}

static void weight_rings(const struct ps_packed *m, uint32_t prefetch, const struct streams *w,
                         struct ps_plan_detail *d)
{
    if (!d->gpu) {
        d->ring_bytes = ring_bytes(m, &w->disk, prefetch, 1);
        return;
    }
    d->gpu_ring_bytes = ring_bytes(m, &w->off_gpu, prefetch, d->passes);
    /* On the host a chunk's room is free again when its copy was submitted. */
    if (w->staged.all || w->loaded)
        d->ring_bytes = 3 * (uint64_t) m->chunk_bytes + ahead(m, &w->staged, prefetch);
}

/* ---- placement */

static void count(const struct ps_shares *s, size_t n, uint8_t *tier, uint64_t sum[PS_TIER__COUNT])
{
    ps_spread(NULL, n, s->pct, PS_TIER__COUNT, tier, sum);
}

static size_t slabs_of(const struct ps_plan_req *req, uint32_t micro_batches)
{
    return (size_t) req->model->shape.layers * micro_batches;
}

void ps_count_shares(const struct ps_shares *s, size_t n, uint64_t ret[PS_TIER__COUNT])
{
    count(s, n, NULL, ret);
}

/* Of the slabs that do not lie on the GPU an even share: their decode attention is the host's. */
static uint64_t share_of(uint64_t far, const struct ps_candidate *c)
{
    return (uint64_t) ((double) far * c->attention_host_pct / 100 + 1e-6);
}

static void place_attention(const struct ps_candidate *c, size_t slabs, struct ps_plan_detail *d)
{
    uint64_t far = 0;
    for (size_t i = 0; i < slabs && d->gpu; i++) {
        if (d->slab_tier[i] == PS_TIER_GPU) continue;
        far++;
        d->slab_host[i] = share_of(far, c) > share_of(far - 1, c);
    }
}

/* The arrays; weight_bytes as they came to be. */
static int place(const struct ps_plan_req *req, const struct ps_candidate *c, struct ps_plan *p,
                 struct ps_detail *dt)
{
    const struct ps_packed *m = req->model;
    struct ps_plan_detail *d = p->detail;
    const size_t slabs = slabs_of(req, p->micro_batches);
    uint64_t sum[PS_TIER__COUNT];
    d->chunk_tier = ps_calloc(m->n_chunks, 1);
    d->slab_tier = ps_calloc(slabs, 1);
    d->slab_host = ps_calloc(slabs, 1);
    d->hidden_tier = ps_calloc(p->micro_batches, 1);
    ps_auto_free uint64_t *bytes = ps_calloc(m->n_chunks, sizeof *bytes);
    ps_auto_free uint32_t *group = ps_calloc(m->n_chunks, sizeof *group);
    if (!d->chunk_tier || !d->slab_tier || !d->slab_host || !d->hidden_tier || !bytes || !group)
        return ps_fail(dt, -ENOMEM, "plan: out of memory");
    for (uint32_t i = 0; i < m->n_chunks; i++) {
        bytes[i] = m->chunks[i].len;
        group[i] = m->chunks[i].group;
    }
    if (d->gpu) /* a matrix in one piece is one launch */
        ps_spread_groups(bytes, group, m->n_chunks, c->weights.pct, PS_TIER__COUNT, d->chunk_tier,
                         p->weight_bytes);
    else
        ps_spread(bytes, m->n_chunks, c->weights.pct, PS_TIER__COUNT, d->chunk_tier,
                  p->weight_bytes);
    count(&c->kv, slabs, d->slab_tier, sum);
    count(&c->hidden, p->micro_batches, d->hidden_tier, sum);
    place_attention(c, slabs, d);
    return 0;
}

/* ---- sizes */

/* Extents through which slabs or hidden states of another tier pass; one more where two passes are under way. */
static uint32_t extents(const struct ps_plan_detail *d, bool any)
{
    return any ? 2 + d->passes : 0;
}

static void extent_rings(const struct ps_candidate *c, struct ps_plan_detail *d)
{
    d->kv_ring = extents(d, c->slabs[PS_TIER_DISK]);
    d->hidden_ring = extents(d, c->mbs[PS_TIER_DISK]);
    if (!d->gpu) return;
    d->gpu_kv_ring = extents(d, c->slabs[PS_TIER_HOST] || c->slabs[PS_TIER_DISK]);
    d->gpu_hidden_ring = extents(d, c->mbs[PS_TIER_HOST] || c->mbs[PS_TIER_DISK]);
}

static void rows(const struct ps_plan_req *req, const struct ps_candidate *c, struct ps_plan *p)
{
    const struct ps_shape *s = &req->model->shape;
    struct ps_plan_detail *d = p->detail;
    uint64_t share = ((uint64_t) c->prompt_tokens + p->micro_batches - 1) / p->micro_batches;
    uint64_t most = min64((uint64_t) p->slots * req->job.longest_prompt, UINT32_MAX - p->slots);
    d->mb_prompt = (uint32_t) min64(max64(share, req->job.longest_prompt), most);
    d->mb_rows = p->slots + d->mb_prompt;
    p->chunk_rows = (uint32_t) min64(c->chunk_rows, d->mb_rows);
    uint64_t logit_rows = max64((64u << 20) / (4 * (uint64_t) s->vocab), 8);
    d->head_rows = (uint32_t) min64(min64(logit_rows, p->chunk_rows),
                                    req->job.scores_prompts ? d->mb_rows : p->slots);
}

static int tier_bytes(const struct ps_plan_req *req, const struct ps_candidate *c,
                      struct ps_plan *p, struct ps_detail *dt)
{
    const struct ps_shape *s = &req->model->shape;
    bool over = false;
    for (int t = 0; t < PS_TIER__COUNT; t++) {
        over |=
            __builtin_mul_overflow(c->slabs[t], ps_kv_extent_bytes(s, p->detail), &p->kv_bytes[t]);
        over |=
            __builtin_mul_overflow(c->mbs[t], ps_hidden_bytes(s, p->detail), &p->hidden_bytes[t]);
    }
    return over ? ps_fail(dt, -PS_EBUDGET,
                          "%u slots in %u micro-batches: more KV than can be counted", p->slots,
                          p->micro_batches)
                : 0;
}

/* All sizes but the arenas'; weight_bytes are set. */
static int geometry(const struct ps_plan_req *req, const struct ps_candidate *c,
                    const struct streams *w, struct ps_plan *p, struct ps_detail *dt)
{
    const struct ps_shape *s = &req->model->shape;
    struct ps_plan_detail *d = p->detail;
    bool all = p->split.keep.heavy == PS_KEEP_ALL;
    d->quantum = quantum(s, d, all, c->slabs[PS_TIER_DISK] > 0);
    uint32_t longest = req->job.longest_total > 1 ? req->job.longest_total - 1 : 1;
    if (longest < req->job.longest_prompt)
        longest = req->job.longest_prompt; /* one that is only scored */
    p->kv_cap = ps_slab_cap(d, &p->split.keep, longest);
    d->pool = pool_entries(req, p, all);
    rows(req, c, p);
    if (d->gpu)
        p->host_slabs = (uint32_t) share_of(c->slabs[PS_TIER_HOST] + c->slabs[PS_TIER_DISK], c);
    d->passes = p->host_slabs && p->micro_batches > 1 ? 2 : 1;
    weight_rings(req->model, p->prefetch, w, d);
    extent_rings(c, d);
    d->log_steps = c->log_steps;
    d->most_banned = req->job.most_banned;
    return tier_bytes(req, c, p, dt);
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
static int measure(const struct ps_plan_req *req, struct ps_plan *p, bool tables,
                   struct ps_detail *dt)
{
    struct ps_plan_detail *d = p->detail;
    ps_auto_arena struct ps_arena *host = NULL, *gpu = NULL;
    const struct ps_arena_cfg cfg = { .measure = true };
    struct ps_layout l = { 0 };
    d->scratch_bytes = ps_candidate_scratch(req, p);
    if (d->gpu) d->gpu_scratch_bytes = ps_candidate_gpu_scratch(req, p);
    int r = ps_arena_open(&cfg, &host, dt);
    if (!r) r = ps_layout_host(host, req->model, p, req->threads, &l, dt);
    if (!r && d->gpu) r = ps_arena_open(&cfg, &gpu, dt);
    if (!r && gpu) r = ps_layout_gpu(gpu, req->model, p, &l, dt);
    if (r < 0) return r;
    p->host_bytes = ps_arena_used(host);
    p->disk_bytes = p->kv_bytes[PS_TIER_DISK] + p->hidden_bytes[PS_TIER_DISK];
    p->pinned_bytes = l.pinned_bytes;
    if (gpu) {
        d->gpu_mem_bytes = ps_arena_used(gpu);
        p->gpu_bytes = ps_dev_cuda_bytes(&(const struct ps_dev_cuda_cfg) {
            .mem_bytes = d->gpu_mem_bytes, .scratch_bytes = d->gpu_scratch_bytes });
    }
    if (!tables) return 0;
    d->table = table_text(host);
    if (gpu) d->gpu_table = table_text(gpu);
    return d->table && (d->gpu_table || !gpu) ? 0 : ps_fail(dt, -ENOMEM, "plan: out of memory");
}

static int begin(const struct ps_plan_req *req, const struct ps_candidate *c,
                 struct ps_plan_detail *d, struct ps_plan *ret, struct ps_detail *dt)
{
    *ret = (struct ps_plan) { .slots = c->slots,
                              .micro_batches = c->micro_batches,
                              .prefill_tokens = c->prompt_tokens,
                              /* beyond a sweep's there are no layers */
                              .prefetch = (uint32_t) min64(c->prefetch, req->model->shape.layers),
                              .detail = d };
    d->kv_type = req->kv_config.type;
    d->gpu = req->gpu.mem_bytes > 0;
    d->gpu_sm = req->gpu.sm;
    d->weights_pinned = d->gpu && c->weights_pinned;
    int r = ps_kv_resolve(&req->kv_config, req->job.longest_total, req->job.longest_prompt,
                          &ret->split, dt);
    d->scores = ret->split.scores;
    return r;
}

/* From the shares alone, but for the arenas. */
static int shares_geometry(const struct ps_plan_req *req, const struct ps_candidate *c,
                           const struct ps_passing *weights, struct ps_plan *ret,
                           struct ps_plan_detail *d, struct ps_detail *dt)
{
    const struct ps_packed *m = req->model;
    const double *pct = c->weights.pct;
    *d = (struct ps_plan_detail) { 0 };
    int r = begin(req, c, d, ret, dt);
    if (r < 0) return r;
    const double staged = pct[PS_TIER_DISK] + (d->weights_pinned ? 0 : pct[PS_TIER_HOST]);
    const struct streams w = { .disk = share_passing(m, weights, pct[PS_TIER_DISK]),
                               .off_gpu =
                                   share_passing(m, weights, pct[PS_TIER_HOST] + pct[PS_TIER_DISK]),
                               .staged = share_passing(m, weights, staged),
                               .loaded = pct[PS_TIER_GPU] > 0 };
    for (int t = 0; t < PS_TIER__COUNT; t++)
        ret->weight_bytes[t] = share_passing(m, weights, pct[t]).all;
    return geometry(req, c, &w, ret, dt);
}

int ps_candidate_size(const struct ps_plan_req *req, const struct ps_candidate *c,
                      const struct ps_passing *weights, struct ps_plan *ret,
                      struct ps_plan_detail *d, struct ps_detail *dt)
{
    int r = shares_geometry(req, c, weights, ret, d, dt);
    return r < 0 ? r : measure(req, ret, false, dt);
}

int ps_candidate_quote(const struct ps_plan_req *req, const struct ps_candidate *c,
                       const struct ps_passing *weights, double *ret, struct ps_detail *dt)
{
    struct ps_plan p;
    struct ps_plan_detail d;
    int r = shares_geometry(req, c, weights, &p, &d, dt);
    if (!r) *ret = ps_candidate_price(req, &p);
    return r;
}

int ps_candidate_build(const struct ps_plan_req *req, const struct ps_candidate *c,
                       struct ps_plan *ret, struct ps_detail *dt)
{
    const struct ps_packed *m = req->model;
    struct ps_plan p;
    struct ps_plan_detail *d = ps_calloc(1, sizeof *d);
    if (!d) return ps_fail(dt, -ENOMEM, "plan: out of memory");
    d->from = *c;
    int r = begin(req, c, d, &p, dt);
    if (!r) r = place(req, c, &p, dt);
    if (!r) {
        const uint8_t *tier = d->chunk_tier;
        const struct streams w = { .disk = passing(m, tier, DISK),
                                   .off_gpu = passing(m, tier, HOST | DISK),
                                   .staged =
                                       passing(m, tier, d->weights_pinned ? DISK : HOST | DISK),
                                   .loaded = p.weight_bytes[PS_TIER_GPU] > 0 };
        r = geometry(req, c, &w, &p, dt);
    }
    if (!r) r = measure(req, &p, true, dt);
    if (r < 0) {
        ps_plan_done(&p);
        return r;
    }
    p.predicted_s = ps_candidate_price(req, &p);
    *ret = p;
    return 0;
}
