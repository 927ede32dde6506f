/* SPDX-License-Identifier: Apache-2.0 */
/* What the user fixed is fixed; the rest is searched over a small grid: each candidate's memory is sized from its shares, what is left goes
 * to weights, and the cheapest that fits wins. */
#include "engine/plan/shape_plan.h"
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

struct sized {
    struct ps_plan p;
    struct ps_plan_detail d;
};

struct search {
    const struct ps_plan_req *req;
    struct ps_passing weights;
    struct ps_candidate best,
        least; /* the cheapest that fits; else the one that exceeds its ceilings least */
    struct sized best_size;
    double excess; /* of least, in bytes */
    bool found, any;
    struct ps_detail *dt;
};

static bool is_auto(const struct ps_shares *s) { return s->pct[PS_TIER_GPU] < 0; }
static bool on_disk(const struct ps_shares *s) { return s->pct[PS_TIER_DISK] > 0; }
static struct ps_shares all_in(enum ps_tier t)
{
    struct ps_shares s = { { 0 } };
    s.pct[t] = 100;
    return s;
}

static double beyond(uint64_t used, uint64_t ceiling)
{
    return used > ceiling ? (double) (used - ceiling) : 0;
}

static double excess(const struct ps_plan_req *q, const struct ps_plan *p)
{
    return beyond(p->host_bytes, q->host_mem) + beyond(p->disk_bytes, q->disk_space) +
           beyond(p->gpu_bytes, q->gpu.mem_bytes) +
           (q->pin_max ? beyond(p->pinned_bytes, q->pin_max) : 0);
}

bool ps_plan_fits(const struct ps_plan_req *req, const struct ps_plan *p)
{
    return excess(req, p) <= 0;
}

/* Of two that are equally fast: nothing goes to the disk for nothing. */
static bool takes_less(const struct ps_plan *a, const struct ps_plan *b)
{
    return a->disk_bytes != b->disk_bytes ? a->disk_bytes < b->disk_bytes
                                          : a->host_bytes < b->host_bytes;
}

/* Whether it fits; takes it over as the best or the least. */
static bool consider(struct search *s, const struct ps_candidate *c, struct sized *z)
{
    const double over = excess(s->req, &z->p);
    if (over > 0) {
        if (!s->any || over < s->excess) {
            s->least = *c;
            s->excess = over;
        }
        s->any = true;
        return false;
    }
    z->p.predicted_s = ps_candidate_price(s->req, &z->p);
    const double gain = s->found ? s->best_size.p.predicted_s / z->p.predicted_s : 2;
    if (gain > 1.0001 || (gain > 0.9999 && takes_less(&z->p, &s->best_size.p))) {
        s->best = *c;
        s->best_size = *z;
    }
    s->found = true;
    return true;
}

/* Sizes and considers; beside a GPU whose copies cannot have so much pinned memory, with what stays on the host left out of it. 1: it fits. */
static int try_shares(struct search *s, struct ps_candidate *c, struct sized *ret)
{
    const struct ps_plan_req *q = s->req;
    c->weights_pinned = true;
    int r = ps_candidate_size(q, c, &s->weights, &ret->p, &ret->d, s->dt);
    if (!r && q->pin_max && ret->p.pinned_bytes > q->pin_max) {
        c->weights_pinned = false;
        r = ps_candidate_size(q, c, &s->weights, &ret->p, &ret->d, s->dt);
    }
    return r < 0 ? r : consider(s, c, ret);
}

/* Percent of the weights that may stay in a tier of which so much is taken while all of them pass by. What stays does not pass through the
 * ring any more. */
static double percent_that_stays(const struct search *s, uint64_t ceiling, uint64_t taken,
                                 uint64_t ring)
{
    const double chunk = s->req->model->chunk_bytes, all = (double) s->weights.all;
    const double left = (double) ceiling - (double) taken - 4 * chunk; /* ends of runs */
    double each = all - (double) ring + 3 * chunk;
    if (each < all / 2) each = all / 2;
    return left <= 0 ? 0 : left < each ? 100 * left / each : 100;
}

static enum ps_tier near(const struct search *s)
{
    return s->req->gpu.mem_bytes ? PS_TIER_GPU : PS_TIER_HOST;
}

enum { NO = 0, FITS, ALL_NEAR }; /* ALL_NEAR: it fits, and no weights pass by */

/* Automatic weights: all where COMPUTE works; else as much as is left of the GPU, then of the host, and the rest on disk. */
static int fill(struct search *s, struct ps_candidate *c)
{
    const struct ps_plan_req *q = s->req;
    struct sized z;
    int r = 0;
    if (s->weights.all <= (near(s) == PS_TIER_GPU ? q->gpu.mem_bytes : q->host_mem) ||
        s->weights.all < s->weights.most + 4 * (uint64_t) q->model->chunk_bytes) {
        c->weights = all_in(near(s));
        r = try_shares(s, c, &z);
        if (r) return r < 0 ? r : ALL_NEAR;
    }
    c->weights = all_in(PS_TIER_DISK);
    r = try_shares(s, c, &z);
    if (r <= 0) return r;
    const struct sized base = z;
    double *pct = c->weights.pct, gpu = 0;
    if (near(s) == PS_TIER_GPU)
        gpu = percent_that_stays(s, q->gpu.mem_bytes, base.p.gpu_bytes, base.d.gpu_ring_bytes);
    /* What lies on the host and is not pinned passes through its ring all the same. */
    for (int i = r = 0; !r && i < 2; i++) {
        double host =
            percent_that_stays(s, q->host_mem, base.p.host_bytes, i ? 0 : base.d.ring_bytes);
        pct[PS_TIER_GPU] = gpu;
        pct[PS_TIER_HOST] = host < 100 - gpu ? host : 100 - gpu;
        pct[PS_TIER_DISK] = 100 - gpu - pct[PS_TIER_HOST];
        r = try_shares(s, c, &z);
    }
    return r < 0 ? r : FITS;
}

/* One candidate, but for what is automatic: its weights, and hidden states, which lie where COMPUTE works if they fit there. */
static int try_one(struct search *s, struct ps_candidate c)
{
    const struct ps_plan_req *q = s->req;
    const bool choose = is_auto(&q->hidden) && q->gpu.mem_bytes;
    struct sized z;
    int r = 0;
    for (int host = !choose; !r && host < 2; host++) {
        if (is_auto(&q->hidden)) c.hidden = all_in(host ? PS_TIER_HOST : PS_TIER_GPU);
        ps_count_shares(&c.hidden, c.micro_batches, c.mbs);
        r = is_auto(&q->weights) ? fill(s, &c) : try_shares(s, &c, &z);
    }
    return r;
}

/* The values to try: the one that was asked for, or a grid. */
struct grid {
    const uint32_t *v;
    size_t n;
};
static struct grid grid_of(const uint32_t *fixed, const uint32_t *v, size_t n)
{
    return *fixed ? (struct grid) { fixed, 1 } : (struct grid) { v, n };
}
#define GRID(fixed, grid) grid_of(&(fixed), grid, PS_ARRAY_LEN(grid))

static uint32_t prompt_cap(const struct ps_plan_req *q, uint32_t v)
{
    return v > q->job.longest_prompt ? v : q->job.longest_prompt;
}

/* The least memory for this many slots: nothing of more slots fits if this does not. */
static int try_least(struct search *s, struct ps_candidate c)
{
    const struct ps_plan_req *q = s->req;
    c.prompt_tokens = prompt_cap(q, q->prefill_tokens);
    c.chunk_rows = rows_grid[0];
    c.prefetch = q->prefetch;
    c.log_steps = log_grid[0];
    return try_one(s, c);
}

static double percent(uint64_t part, uint64_t all)
{
    return part < all ? 100.0 * (double) part / (double) all : 100;
}

/* Whether a candidate would not be taken even if memory held nothing but weights, and hidden states cost nothing. */
static int hopeless(struct search *s, struct ps_candidate c)
{
    const struct ps_plan_req *q = s->req;
    double best;
    if (is_auto(&q->weights)) {
        double gpu = percent(q->gpu.mem_bytes, s->weights.all),
               host = percent(q->host_mem, s->weights.all);
        if (host > 100 - gpu) host = 100 - gpu;
        c.weights = (struct ps_shares) { { gpu, host, 100 - gpu - host } };
    }
    if (is_auto(&q->hidden)) c.hidden = all_in(near(s));
    c.weights_pinned = true;
    ps_count_shares(&c.hidden, c.micro_batches, c.mbs);
    int r = ps_candidate_quote(q, &c, &s->weights, &best, s->dt);
    return r < 0 ? r : s->found && best > s->best_size.p.predicted_s * 1.0002;
}

/* Prompt tokens a sweep that take the place of what ends in one, once the block is full: each sweep has about the same to do, then. */
static uint32_t steady_tokens(const struct ps_plan_req *q, const struct ps_candidate *c)
{
    const struct ps_job_stats *j = &q->job;
    double gen = (double) (j->max_new_tokens > j->requests ? j->max_new_tokens : j->requests);
    double t = (double) c->slots * c->micro_batches * (double) j->prompt_tokens / gen;
    return t < UINT32_MAX ? (uint32_t) t : UINT32_MAX;
}

static int search_rest(struct search *s, struct ps_candidate c)
{
    const struct ps_plan_req *q = s->req;
    uint32_t tokens[PS_ARRAY_LEN(prompt_grid) + 1];
    memcpy(tokens, prompt_grid, sizeof prompt_grid);
    tokens[PS_ARRAY_LEN(prompt_grid)] = steady_tokens(q, &c);
    const struct grid prompt = grid_of(&q->prefill_tokens, tokens,
                                       PS_ARRAY_LEN(prompt_grid) + (q->gpu.mem_bytes > 0)),
                      ahead = GRID(q->prefetch, prefetch_grid);
    const bool disk = on_disk(&c.kv) || on_disk(&c.hidden);
    const size_t rows = q->gpu.mem_bytes ? PS_ARRAY_LEN(rows_grid) : ROWS_WITHOUT_GPU;
    for (size_t i = 0; i < prompt.n * rows; i++) {
        c.prompt_tokens = prompt_cap(q, prompt.v[i / rows]);
        c.chunk_rows = rows_grid[rows - 1 - i % rows];
        for (size_t j = 0; j < (disk ? PS_ARRAY_LEN(log_grid) : 1); j++)
            for (size_t k = 0; k < ahead.n; k++) {
                c.log_steps = log_grid[j];
                c.prefetch = ahead.v[k];
                int r = hopeless(s, c);
                if (!r)
                    r = try_one(s, c);
                else if (r > 0)
                    r = 0;
                if (r < 0) return r;
                if (r == ALL_NEAR) break;
            }
    }
    return 0;
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

static int search_slots(struct search *s, struct ps_candidate c)
{
    size_t i = 0;
    while ((c.slots = slots_at(s->req, c.micro_batches, &i))) {
        int r = try_least(s, c);
        if (r > 0)
            r = search_rest(s, c);
        else if (!r)
            return 0;
        if (r < 0) return r;
    }
    return 0;
}

static int search_attention(struct search *s, struct ps_candidate c)
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

static int search_blocks(struct search *s, struct ps_candidate c)
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

int ps_plan_search(const struct ps_plan_req *req, struct ps_candidate *ret, struct ps_detail *dt)
{
    struct search s = { .req = req, .weights = ps_weights_passing(req->model), .dt = dt };
    const size_t kvs = req->gpu.mem_bytes ? PS_ARRAY_LEN(kv_grid) : KV_WITHOUT_GPU;
    struct ps_candidate c = { .weights = req->weights, .hidden = req->hidden };
    for (size_t i = 0; i < (is_auto(&req->kv) ? kvs : 1); i++) {
        c.kv = is_auto(&req->kv) ? kv_grid[i] : req->kv;
        int r = search_blocks(&s, c);
        if (r < 0) return r;
    }
    *ret = s.found ? s.best : s.least;
    return 0;
}
