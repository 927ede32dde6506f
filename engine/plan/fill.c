/* SPDX-License-Identifier: Apache-2.0 */
/* One candidate of the search: it is sized from its shares, what memory it leaves goes to weights, and its price says whether it is kept. */
#include "engine/plan/search_impl.h"

struct sized {
    struct ps_plan p;
    struct ps_plan_detail d;
};

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

uint64_t ps_plan_on_disk(const struct ps_plan *p)
{
    return p->weight_bytes[PS_TIER_DISK] + p->kv_bytes[PS_TIER_DISK] +
           p->hidden_bytes[PS_TIER_DISK];
}

static double excess(const struct ps_plan_req *q, const struct ps_plan *p)
{
    return (q->no_disk ? (double) ps_plan_on_disk(p) : 0) + beyond(p->host_bytes, q->host_mem) +
           beyond(p->disk_bytes, q->disk_space) + beyond(p->gpu_bytes, q->gpu.mem_bytes) +
           (q->pin_max ? beyond(p->pinned_bytes, q->pin_max) : 0);
}

bool ps_plan_fits(const struct ps_plan_req *req, const struct ps_plan *p)
{
    return excess(req, p) <= 0;
}

/* Sizes count a few chunks more than come to be: what exceeds its ceilings by no more may fit. Where there is something that fits for sure, that counts
 * only if weights must lie as they are wished: automatic ones leave as much of their own. */
static int as_built(struct ps_search_state *s, const struct ps_candidate *c, double *over)
{
    const double slack = 2.0 * PS_SIZE_SLACK_CHUNKS * s->req->model->chunk_bytes;
    struct ps_plan p;
    if (*over <= 0 || *over > slack || (s->best->n && ps_is_auto(&s->req->weights))) return 0;
    int r = ps_candidate_build(s->req, c, &p, s->dt);
    if (r < 0) return r;
    *over = excess(s->req, &p);
    ps_plan_done(&p);
    return 0;
}

/* 1: it fits; takes it over as one of the best, or the least. */
static int consider(struct ps_search_state *s, const struct ps_candidate *c, struct sized *z)
{
    double over = excess(s->req, &z->p);
    int r = as_built(s, c, &over);
    if (r < 0) return r;
    if (over > 0) {
        if (!s->any || over < s->excess) {
            s->least = *c;
            s->excess = over;
        }
        s->any = true;
        return 0;
    }
    z->p.predicted_s = ps_candidate_price(s->req, &z->p);
    ps_best_add(s->best, c, &z->p);
    return 1;
}

/* Sizes and considers; beside a GPU whose copies cannot have so much pinned memory, with what stays on the host left out of it. 1: it fits. */
static int try_shares(struct ps_search_state *s, struct ps_candidate *c, struct sized *ret)
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
static double percent_that_stays(const struct ps_search_state *s, uint64_t ceiling, uint64_t taken,
                                 uint64_t ring)
{
    const double chunk = s->req->model->chunk_bytes, all = (double) s->weights.all;
    const double left = (double) ceiling - (double) taken - 4 * chunk; /* ends of runs */
    double each = all - (double) ring + 3 * chunk;
    if (each < all / 2) each = all / 2;
    return left <= 0 ? 0 : left < each ? 100 * left / each : 100;
}

static enum ps_tier near(const struct ps_search_state *s)
{
    return s->req->gpu.mem_bytes ? PS_TIER_GPU : PS_TIER_HOST;
}

/* None on disk: what the GPU has no room for is the host's. While nothing fits, more is tried on the GPU than is sure to fit there, for what does
 * not lie there may be too much for the host. */
static int fill_without_disk(struct ps_search_state *s, struct ps_candidate *c)
{
    const struct ps_plan_req *q = s->req;
    const double step = 50.0 * q->model->chunk_bytes / (double) s->weights.all;
    struct sized z;
    c->weights = all_in(PS_TIER_HOST);
    int r = try_shares(s, c, &z);
    const int fits = r;
    if (r < 0 || near(s) == PS_TIER_HOST) return r;
    double gpu = percent_that_stays(s, q->gpu.mem_bytes, z.p.gpu_bytes, z.d.gpu_ring_bytes);
    for (int i = r = 0; !r && gpu < 100 && i < (s->best->n ? 1 : 2 * PS_SIZE_SLACK_CHUNKS); i++) {
        const struct ps_search_state was = *s;
        c->weights = (struct ps_shares) { { gpu, 100 - gpu, 0 } };
        r = try_shares(s, c, &z);
        if (!r && i) *s = was; /* a little more of the GPU's memory is not what is asked for */
        gpu += step;
    }
    return r ? r : fits;
}

/* Automatic weights: all where COMPUTE works; else as much as is left of the GPU, then of the host, and the rest on disk. */
static int fill(struct ps_search_state *s, struct ps_candidate *c)
{
    const struct ps_plan_req *q = s->req;
    struct sized z;
    int r = 0;
    if (s->weights.all <= (near(s) == PS_TIER_GPU ? q->gpu.mem_bytes : q->host_mem) ||
        s->weights.all < s->weights.most + 4 * (uint64_t) q->model->chunk_bytes) {
        c->weights = all_in(near(s));
        r = try_shares(s, c, &z);
        if (r) return r < 0 ? r : PS_TRY_ALL_NEAR;
    }
    if (q->no_disk) return fill_without_disk(s, c);
    c->weights = all_in(PS_TIER_DISK);
    r = try_shares(s, c, &z);
    if (!r) return s->best->n ? 0 : fill_without_disk(s, c); /* the disk's ring may be too large */
    if (r < 0) return r;
    const struct sized base = z;
    double *pct = c->weights.pct, gpu = 0;
    if (near(s) == PS_TIER_GPU)
        gpu = percent_that_stays(s, q->gpu.mem_bytes, base.p.gpu_bytes, base.d.gpu_ring_bytes);
    /* What lies on the host and is not pinned passes through its ring all the same. */
    for (int i = r = 0; !r && i < 2; i++) {
        const double host =
            percent_that_stays(s, q->host_mem, base.p.host_bytes, i ? 0 : base.d.ring_bytes);
        pct[PS_TIER_GPU] = gpu;
        pct[PS_TIER_HOST] = host < 100 - gpu ? host : 100 - gpu;
        pct[PS_TIER_DISK] = 100 - gpu - pct[PS_TIER_HOST];
        r = try_shares(s, c, &z);
    }
    return r < 0 ? r : PS_TRY_FITS;
}

int ps_try(struct ps_search_state *s, struct ps_candidate c)
{
    const struct ps_plan_req *q = s->req;
    const bool choose = ps_is_auto(&q->hidden) && q->gpu.mem_bytes;
    struct sized z;
    int r = 0;
    for (int host = !choose; !r && host < 2; host++) {
        if (ps_is_auto(&q->hidden)) c.hidden = all_in(host ? PS_TIER_HOST : PS_TIER_GPU);
        ps_count_shares(&c.hidden, c.micro_batches, c.mbs);
        r = ps_is_auto(&q->weights) ? fill(s, &c) : try_shares(s, &c, &z);
    }
    return r;
}

static double percent(uint64_t ceiling, uint64_t taken, uint64_t all)
{
    const uint64_t left = ceiling > taken ? ceiling - taken : 0;
    return left < all ? 100.0 * (double) left / (double) all : 100;
}

int ps_room_beside(struct ps_search_state *s, struct ps_candidate c, struct ps_room *ret)
{
    const struct ps_plan_req *q = s->req;
    struct sized z;
    *ret = (struct ps_room) { 0 };
    if (!ps_is_auto(&q->weights)) return 0;
    c.weights = all_in(PS_TIER_DISK);
    c.weights_pinned = true;
    if (ps_is_auto(&q->hidden)) c.hidden = all_in(near(s));
    ps_count_shares(&c.hidden, c.micro_batches, c.mbs);
    int r = ps_candidate_size(q, &c, &s->weights, &z.p, &z.d, s->dt);
    if (r < 0) return r;
    const uint64_t *hidden = z.p.hidden_bytes;
    ret->gpu = percent(q->gpu.mem_bytes, z.p.gpu_bytes - z.d.gpu_ring_bytes - hidden[PS_TIER_GPU],
                       s->weights.all);
    ret->host = percent(q->host_mem, z.p.host_bytes - z.d.ring_bytes - hidden[PS_TIER_HOST],
                        s->weights.all);
    return 0;
}

struct ps_room ps_room_all(const struct ps_search_state *s)
{
    return (struct ps_room) { percent(s->req->gpu.mem_bytes, 0, s->weights.all),
                              percent(s->req->host_mem, 0, s->weights.all) };
}

int ps_hopeless(struct ps_search_state *s, struct ps_candidate c, const struct ps_room *room)
{
    const struct ps_plan_req *q = s->req;
    double quote;
    if (ps_is_auto(&q->weights)) {
        double host = room->host < 100 - room->gpu ? room->host : 100 - room->gpu;
        c.weights = (struct ps_shares) { { room->gpu, host, 100 - room->gpu - host } };
    }
    if (ps_is_auto(&q->hidden)) c.hidden = all_in(near(s));
    c.weights_pinned = true;
    ps_count_shares(&c.hidden, c.micro_batches, c.mbs);
    int r = ps_candidate_quote(q, &c, &s->weights, &quote, s->dt);
    return r < 0 ? r : quote > ps_best_limit(s->best);
}
