/* SPDX-License-Identifier: Apache-2.0 */
/* What the user fixed is fixed; the rest is searched over a small grid, twice: a coarse one first, so that most of the whole one is known to
 * be hopeless without a look at its memory. */
#include "engine/plan/search_impl.h"
#include <string.h>

static const uint32_t batch_grid[] = {
    1,  2,  3,  4,  5,  6,   7,   8,   9,   10,  12,  14,  16,  20,  24,  28,   32,   40,
    48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 512, 768, 1024, 1536, 2048
};
static const uint32_t mb_grid[] = { 1, 2, 4, 8, 16 };
static const uint32_t log_grid[] = { 4, 8, 16 };
static const uint32_t prompt_grid[] = { 0, 1024, 4096, 16384 }; /* 0: the longest prompt alone */
static const uint32_t rows_grid[] = { 64, 512, 2048 };
enum { ROWS_WITHOUT_GPU = 2 };
static const uint32_t prefetch_grid[] = { 2, 1, 0 };
static const struct ps_shares kv_grid[] = { { { 0, 100, 0 } }, { { 0, 50, 50 } }, { { 0, 0, 100 } },
                                            { { 100, 0, 0 } }, { { 75, 25, 0 } }, { { 50, 50, 0 } },
                                            { { 25, 75, 0 } } };
enum { KV_WITHOUT_GPU = 3 };
static const double attention_grid[] = { 0, 25, 50, 75, 100 };

static bool on_disk(const struct ps_shares *s) { return s->pct[PS_TIER_DISK] > 0; }

/* The values to try: the one that was asked for, or a grid. */
struct grid {
    const uint32_t *v;
    size_t n;
};
static struct grid grid_of(const uint32_t *fixed, const uint32_t *v, size_t n)
{
    return *fixed ? (struct grid) { fixed, 1 } : (struct grid) { v, n };
}

static struct grid ahead_of(const struct ps_plan_req *q)
{
    static const uint32_t none = 0;
    return q->prefetch == PS_PREFETCH_NONE
               ? (struct grid) { &none, 1 }
               : grid_of(&q->prefetch, prefetch_grid, PS_ARRAY_LEN(prefetch_grid));
}

static uint32_t prompt_cap(const struct ps_plan_req *q, uint32_t v)
{
    return v > q->job.longest_prompt ? v : q->job.longest_prompt;
}

/* The smallest for this many slots. */
static struct ps_candidate least_of(const struct ps_plan_req *q, struct ps_candidate c)
{
    c.prompt_tokens = prompt_cap(q, q->prefill_tokens);
    c.chunk_rows = q->chunk_rows ? q->chunk_rows : rows_grid[0];
    c.prefetch = ahead_of(q).v[ahead_of(q).n - 1];
    c.log_steps = log_grid[0];
    return c;
}

/* Prompt tokens a sweep that take the place of what ends in one, once the block is full: each sweep has about the same to do, then. */
static uint32_t steady_tokens(const struct ps_plan_req *q, const struct ps_candidate *c)
{
    const struct ps_job_stats *j = &q->job;
    double gen = (double) (j->max_new_tokens > j->requests ? j->max_new_tokens : j->requests);
    double t = (double) c->slots * c->micro_batches * (double) j->prompt_tokens / gen;
    return t < UINT32_MAX ? (uint32_t) t : UINT32_MAX;
}

/* 1: hopeless, or tried; 2: and it needs no ring for weights. */
static int try_unless_hopeless(struct ps_search_state *s, const struct ps_candidate *c,
                               const struct ps_room *room)
{
    int r = ps_hopeless(s, *c, room);
    if (r) return r;
    r = ps_try(s, *c);
    return r < 0 ? r : r == PS_TRY_ALL_NEAR ? 2 : 1;
}

static struct grid rows_of(const struct ps_plan_req *q)
{
    return grid_of(&q->chunk_rows, rows_grid,
                   q->gpu.mem_bytes ? PS_ARRAY_LEN(rows_grid) : ROWS_WITHOUT_GPU);
}
static size_t logs_of(const struct ps_candidate *c)
{
    return on_disk(&c->kv) || on_disk(&c->hidden) ? PS_ARRAY_LEN(log_grid) : 1;
}

/* What costs most memory is fastest: if that is hopeless, all ways to go through a block with so many prompt tokens a sweep are. */
static struct ps_candidate fastest_of(const struct ps_plan_req *q, struct ps_candidate c)
{
    const struct grid rows = rows_of(q);
    c.chunk_rows = rows.v[rows.n - 1];
    c.log_steps = log_grid[logs_of(&c) - 1];
    c.prefetch = ahead_of(q).v[0];
    return c;
}

static int search_passes(struct ps_search_state *s, struct ps_candidate c,
                         const struct ps_room *room)
{
    const struct ps_plan_req *q = s->req;
    const struct grid rows = rows_of(q), ahead = ahead_of(q);
    const struct ps_candidate fastest = fastest_of(q, c);
    int r = s->coarse ? try_unless_hopeless(s, &fastest, room) : ps_hopeless(s, fastest, room);
    if (r || s->coarse) return r < 0 ? r : 0;
    for (size_t i = rows.n; i-- > 0;)
        for (size_t j = 0; j < logs_of(&c); j++)
            for (size_t k = 0; k < ahead.n; k++) {
                c.chunk_rows = rows.v[i];
                c.log_steps = log_grid[j];
                c.prefetch = ahead.v[k];
                r = try_unless_hopeless(s, &c, room);
                if (r < 0) return r;
                if (r == 2) break;
            }
    return 0;
}

struct prompts {
    size_t n;
    uint32_t v[PS_ARRAY_LEN(prompt_grid) + 1];
};

/* From the grid, up to what takes all prompts of the job in at once. */
static struct prompts prompts_of(const struct ps_plan_req *q, const struct ps_candidate *c)
{
    struct prompts p = { 0 };
    if (q->prefill_tokens) return (struct prompts) { 1, { prompt_cap(q, q->prefill_tokens) } };
    for (size_t i = 0; i < PS_ARRAY_LEN(prompt_grid); i++) {
        p.v[p.n++] = prompt_cap(q, prompt_grid[i]);
        if (q->job.requests && prompt_grid[i] >= q->job.prompt_tokens) break;
    }
    if (q->gpu.mem_bytes) p.v[p.n++] = prompt_cap(q, steady_tokens(q, c));
    return p;
}

/* Whether all with this block are. */
static int block_hopeless(struct ps_search_state *s, struct ps_candidate c, const struct prompts *p)
{
    const struct ps_plan_req *q = s->req;
    const struct ps_room all = ps_room_all(s);
    int r = 1;
    c = fastest_of(q, c);
    for (size_t i = 0; r > 0 && i < p->n; i++) {
        c.prompt_tokens = p->v[i];
        r = ps_hopeless(s, c, &all);
    }
    return r;
}

/* 1: tried, or hopeless; 0: it does not fit, and nothing of more slots would. */
static int search_block(struct ps_search_state *s, const struct ps_candidate *block)
{
    const struct prompts prompts = prompts_of(s->req, block);
    struct ps_candidate c = *block;
    struct ps_room room;
    int r = block_hopeless(s, c, &prompts);
    if (r) return r;
    r = ps_try(s, least_of(s->req, c));
    if (r <= 0) return r;
    r = ps_room_beside(s, least_of(s->req, c), &room);
    for (size_t i = 0; !r && i < prompts.n; i++) {
        c.prompt_tokens = prompts.v[i];
        r = search_passes(s, c, &room);
    }
    return r < 0 ? r : 1;
}

/* Slots of a micro-batch, ascending: the i-th value, or 0 after the last. Blocks are no larger than the job, but for the first that is. */
static uint32_t slots_at(const struct ps_plan_req *q, uint32_t mbs, size_t *i)
{
    if (q->gpu_batch_size) return (*i)++ ? 0 : q->gpu_batch_size;
    for (; *i < PS_ARRAY_LEN(batch_grid); (*i)++) {
        const uint64_t all = batch_grid[*i] * (q->num_gpu_batches ? (uint64_t) mbs : 1),
                       before =
                           *i ? batch_grid[*i - 1] * (q->num_gpu_batches ? (uint64_t) mbs : 1) : 0;
        if (*i && before >= q->job.requests) return 0;
        if (all < mbs || all % mbs) continue;
        (*i)++;
        return (uint32_t) (all / mbs);
    }
    return 0;
}

static int search_slots(struct ps_search_state *s, struct ps_candidate c)
{
    int r = 1;
    for (size_t i = 0; r > 0 && (c.slots = slots_at(s->req, c.micro_batches, &i));)
        if (!s->coarse || i % 2) r = search_block(s, &c);
    return r < 0 ? r : 0;
}

static int search_attention(struct ps_search_state *s, struct ps_candidate c)
{
    const struct ps_plan_req *q = s->req;
    static const double one[] = { 0, 100 };
    const bool choice = q->gpu.mem_bytes && c.kv.pct[PS_TIER_GPU] < 100;
    const bool grid = choice && q->attention == PS_ATTENTION_AUTO;
    const double *v = grid ? attention_grid : &one[choice && q->attention == PS_ATTENTION_HOST];
    for (size_t i = 0; i < (grid ? PS_ARRAY_LEN(attention_grid) : 1); i++) {
        c.attention_host_pct = v[i];
        int r = search_slots(s, c);
        if (r < 0) return r;
    }
    return 0;
}

static int search_blocks(struct ps_search_state *s, struct ps_candidate c)
{
    const struct ps_plan_req *q = s->req;
    /* Several micro-batches hide transfers of KV and hidden states, and attention on the host. */
    const bool moves =
        on_disk(&c.kv) || on_disk(&c.hidden) || (q->gpu.mem_bytes && c.kv.pct[PS_TIER_GPU] < 100);
    const struct grid mbs = grid_of(&q->num_gpu_batches, mb_grid,
                                    moves || q->gpu_batch_size ? PS_ARRAY_LEN(mb_grid) : 1);
    for (size_t i = 0; i < mbs.n; i++) {
        if (q->gpu_batch_size && i &&
            (uint64_t) q->gpu_batch_size * mbs.v[i - 1] >= q->job.requests)
            break;
        c.micro_batches = mbs.v[i];
        ps_count_shares(&c.kv, (size_t) q->model->shape.layers * mbs.v[i], c.slabs);
        int r = search_attention(s, c);
        if (r < 0) return r;
    }
    return 0;
}

int ps_plan_search(const struct ps_plan_req *req, struct ps_best *best, struct ps_candidate *least,
                   struct ps_detail *dt)
{
    struct ps_search_state s = {
        .req = req, .weights = ps_weights_passing(req->model), .best = best, .dt = dt
    };
    const size_t kvs = req->gpu.mem_bytes ? PS_ARRAY_LEN(kv_grid) : KV_WITHOUT_GPU;
    struct ps_candidate c = { .weights = req->weights, .hidden = req->hidden };
    for (int pass = 0; pass < 2; pass++) {
        s.coarse = !pass;
        for (size_t i = 0; i < (ps_is_auto(&req->kv) ? kvs : 1); i++) {
            c.kv = ps_is_auto(&req->kv) ? kv_grid[i] : req->kv;
            int r = search_blocks(&s, c);
            if (r < 0) return r;
        }
    }
    *least = s.least;
    return 0;
}
