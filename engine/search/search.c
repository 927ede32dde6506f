/* SPDX-License-Identifier: Apache-2.0 */
/* The closed form names a few plans that differ; the simulation orders them. Around the winner, what the closed form is least sure of
 * is tried: how many prompt tokens go into a sweep, and how far ahead weights are read. */
#include "engine/search/search.h"
#include "engine/plan/layout.h"
#include <math.h>
#include <string.h>

static double most_of(const struct ps_worker_rates *w, enum ps_dtype type)
{
    double most = 0;
    for (uint32_t i = 0; i < w->n_linear; i++)
        for (uint32_t j = 0; w->linear[i].wtype == type && j < w->linear[i].over_m.n; j++)
            most = fmax(most, w->linear[i].over_m.y[j]);
    return most > 0 ? most : w->flops;
}

void ps_search_rates(const struct ps_profile *p, struct ps_plan_req *req)
{
    const enum ps_dtype type = req->model->dtype;
    req->rates = (struct ps_rates) { .disk_read = p->disk_read.alone,
                                     .disk_write = p->disk_write.alone,
                                     .dram = p->host.mem,
                                     .gemm = most_of(&p->host, type),
                                     .h2d = p->h2d.alone,
                                     .d2h = p->d2h.alone,
                                     .hbm = p->gpu.mem,
                                     .gpu_gemm = most_of(&p->gpu, type) };
}

enum { FOUND_MAX = 16, MORE = 3 }; /* MORE candidates than are wanted are simulated */

struct search {
    struct ps_simulate_cfg sim; /* but for the plan */
    struct ps_plan_req req;
    struct ps_detail *dt;
    struct ps_planned found[FOUND_MAX]; /* best first */
    unsigned n;
};

static int simulate(struct search *s, const struct ps_plan *plan, struct ps_simulated *ret)
{
    s->sim.plan = plan;
    if (s->sim.stop && *s->sim.stop) return -ECANCELED;
    int r = ps_simulate(&s->sim, ret, s->dt);
    return r < 0 ? r : 0;
}

static void drop(struct search *s, unsigned i)
{
    ps_plan_done(&s->found[i].plan);
    s->n--;
    memmove(&s->found[i], &s->found[i + 1], (s->n - i) * sizeof s->found[0]);
}

/* Takes *p over. */
static void put(struct search *s, const struct ps_planned *p)
{
    unsigned i = s->n++;
    for (; i > 0 && s->found[i - 1].sim.total_s > p->sim.total_s; i--)
        s->found[i] = s->found[i - 1];
    s->found[i] = *p;
}

static bool same(const struct ps_plan *a, const struct ps_plan *b)
{
    return a->slots == b->slots && a->micro_batches == b->micro_batches &&
           a->prefill_tokens == b->prefill_tokens && a->prefetch == b->prefetch &&
           a->chunk_rows == b->chunk_rows && a->host_slabs == b->host_slabs &&
           a->detail->log_steps == b->detail->log_steps &&
           !memcmp(a->kv_bytes, b->kv_bytes, sizeof a->kv_bytes) &&
           !memcmp(a->hidden_bytes, b->hidden_bytes, sizeof a->hidden_bytes) &&
           !memcmp(a->weight_bytes, b->weight_bytes, sizeof a->weight_bytes);
}

static bool known(const struct search *s, const struct ps_plan *p)
{
    for (unsigned i = 0; i < s->n; i++)
        if (same(&s->found[i].plan, p)) return true;
    return false;
}

/* Simulates the n best by the closed form for q, as far as there is room for them. */
static int candidates(struct search *s, const struct ps_plan_req *q, unsigned n, char **ret_text)
{
    struct ps_plan plans[FOUND_MAX];
    unsigned made = 0;
    int r = ps_plan_best(q, n, plans, &made, ret_text, s->dt);
    for (unsigned i = 0; i < made; i++) {
        struct ps_planned p = { .plan = plans[i] };
        const bool wanted = !r && s->n < FOUND_MAX - 1 && !known(s, &p.plan);
        if (wanted) r = simulate(s, &p.plan, &p.sim);
        if (wanted && !r)
            put(s, &p);
        else
            ps_plan_done(&plans[i]);
    }
    return r;
}

/* Where the closed form thinks too well of something, what it likes best gets worse as there is more of it. So there are candidates that need
 * less of it: no KV or hidden states on disk, slower links. */
static int modest_candidates(struct search *s)
{
    struct ps_plan_req q = s->req;
    q.disk_space = 0;
    int r = candidates(s, &q, 1, NULL);
    q = s->req;
    q.rates.disk_read /= 2;
    q.rates.disk_write /= 2;
    if (!r || r == -PS_EBUDGET) r = candidates(s, &q, 1, NULL);
    return r == -PS_EBUDGET ? 0 : r;
}

static struct ps_shares shares_of(const uint64_t bytes[PS_TIER__COUNT])
{
    struct ps_shares s;
    const double all = (double) bytes[0] + (double) bytes[1] + (double) bytes[2];
    for (int t = 0; t < PS_TIER__COUNT; t++)
        s.pct[t] = all > 0 ? 100 * (double) bytes[t] / all : t == PS_TIER_HOST ? 100 : 0;
    return s;
}

/* The winner with this many prompt tokens a sweep and layers read ahead (0: what the closed form likes): it takes the winner's place if it is
 * faster. What does not fit is no variant. */
static int variant(struct search *s, uint32_t prompt_tokens, uint32_t prefetch)
{
    const struct ps_plan *best = &s->found[0].plan;
    struct ps_plan_req q = s->req;
    struct ps_planned p = { 0 };
    q.gpu_batch_size = best->slots;
    q.num_gpu_batches = best->micro_batches;
    q.kv = shares_of(best->kv_bytes);
    if (!q.prefill_tokens) q.prefill_tokens = prompt_tokens;
    if (!q.prefetch) q.prefetch = prefetch;
    int r = ps_plan_make(&q, &p.plan, NULL, s->dt);
    if (r == -PS_EBUDGET) return 0;
    if (r < 0) return r;
    if (p.plan.prefill_tokens == best->prefill_tokens && p.plan.prefetch == best->prefetch &&
        p.plan.host_slabs == best->host_slabs) {
        ps_plan_done(&p.plan);
        return 0;
    }
    r = simulate(s, &p.plan, &p.sim);
    if (r < 0 || p.sim.total_s >= s->found[0].sim.total_s) {
        ps_plan_done(&p.plan);
        return r;
    }
    drop(s, 0);
    put(s, &p);
    return 0;
}

/* Nothing is read ahead where nothing passes by. */
static bool passes_by(const struct ps_plan *p)
{
    return p->weight_bytes[PS_TIER_DISK] || (p->gpu_bytes && p->weight_bytes[PS_TIER_HOST]);
}

static int refine(struct search *s)
{
    const uint32_t tokens = s->found[0].plan.prefill_tokens, ahead = s->found[0].plan.prefetch;
    int r = 0;
    if (!s->req.prefill_tokens) {
        r = variant(s, tokens / 2 + 1, ahead);
        if (!r) r = variant(s, tokens < UINT32_MAX / 2 ? tokens * 2 : tokens, ahead);
    }
    if (!r && !s->req.prefetch && passes_by(&s->found[0].plan))
        r = variant(s, s->found[0].plan.prefill_tokens, ahead > 1 ? 1 : 2);
    return r;
}

int ps_search(const struct ps_plan_req *req, const struct ps_profile *p,
              const struct ps_lengths *lengths, const struct ps_schedule *schedule, unsigned n,
              const volatile int *stop, struct ps_planned *ret, unsigned *ret_n, char **ret_text,
              struct ps_detail *dt)
{
    struct search s = { .req = *req, .dt = dt };
    const unsigned most = FOUND_MAX - 1; /* room for a variant */
    ps_search_rates(p, &s.req);
    s.sim = (struct ps_simulate_cfg) { .model = req->model,
                                       .kv_config = &s.req.kv_config,
                                       .profile = p,
                                       .lengths = lengths,
                                       .schedule = schedule,
                                       .stop = stop };
    int r = candidates(&s, &s.req, n + MORE < most ? n + MORE : most, ret_text);
    if (!r) r = modest_candidates(&s);
    if (!r) r = refine(&s);
    while (s.n > (r < 0 ? 0 : n)) drop(&s, s.n - 1);
    if (r < 0) return r;
    memcpy(ret, s.found, s.n * sizeof *ret);
    *ret_n = s.n;
    return 0;
}
