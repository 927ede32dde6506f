/* SPDX-License-Identifier: Apache-2.0 */
/* The closed form names a few plans that differ; the simulation orders them. Around the winner, what the closed form is least sure of
 * is tried: how many prompt tokens go into a sweep, and how far ahead weights are read. */
#include "engine/search/search.h"
#include "engine/plan/shape_plan.h"
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

enum { FOUND_MAX = 24 };

struct effort {
    unsigned candidates; /* that the closed form names, and are simulated */
    bool each; /* and the best of each number of micro-batches, and of either place of attention */
    double hope;       /* unless they take so many times as long as the first, by the closed form */
    unsigned variants; /* of the winner, at most */
    unsigned close;    /* of the best so many are looked at closely, */
    uint32_t sweeps;   /* by so many sweeps of theirs; 0 = as many as it takes */
};
static const struct effort efforts[] = {
    [PS_SEARCH_WHOLE] = { 11, true, 2, 24, PS_SEARCH_TOP, 0 },
    [PS_SEARCH_BRIEF] = { 2, false, 1.25, 4, 1, 16 },
};

struct search {
    struct ps_simulate_cfg sim; /* but for the plan */
    struct ps_plan_req req;
    struct ps_detail *dt;
    struct ps_planned found[FOUND_MAX]; /* best first */
    unsigned n;
    double hope_s;        /* by the closed form; what takes longer is not simulated */
    struct effort effort; /* variants: that may still be simulated */
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

/* Simulates the n best by the closed form for q, as far as there is room for them and hope. */
static int candidates(struct search *s, const struct ps_plan_req *q, unsigned n, char **ret_text)
{
    struct ps_plan plans[FOUND_MAX];
    unsigned made = 0;
    int r = ps_plan_best(q, n, plans, &made, ret_text, s->dt);
    if (!r && !s->hope_s) s->hope_s = s->effort.hope * plans[0].predicted_s;
    for (unsigned i = 0; i < made; i++) {
        struct ps_planned p = { .plan = plans[i] };
        const bool wanted =
            !r && s->n < FOUND_MAX - 1 && !known(s, &p.plan) && plans[i].predicted_s < s->hope_s;
        if (wanted) r = simulate(s, &p.plan, &p.sim);
        if (wanted && !r)
            put(s, &p);
        else
            ps_plan_done(&plans[i]);
    }
    return r;
}

static int one_candidate(struct search *s, const struct ps_plan_req *q)
{
    int r = candidates(s, q, 1, NULL);
    return r == -PS_EBUDGET ? 0 : r;
}

/* Where the closed form thinks too well of something, what it likes best gets worse as there is more of it. So there are candidates that need
 * less of it: no KV or hidden states on disk, a slower disk. */
static int modest_candidates(struct search *s)
{
    struct ps_plan_req q = s->req;
    q.disk_space = 0;
    s->hope_s *= 2;
    int r = one_candidate(s, &q);
    q = s->req;
    q.rates.disk_read /= 2;
    q.rates.disk_write /= 2;
    if (!r) r = one_candidate(s, &q);
    s->hope_s /= 2;
    return r;
}

/* As the closed form would like them best if that were fixed: what it prices a little too low takes the places of all others in its list. */
static int fixed_candidates(struct search *s)
{
    static const struct {
        uint32_t batches, prefetch;
        enum ps_attention_at at;
    } fixed[] = { { .batches = 1 },           { .batches = 2 },           { .batches = 4 },
                  { .batches = 8 },           { .batches = 16 },          { .prefetch = 1 },
                  { .at = PS_ATTENTION_GPU }, { .at = PS_ATTENTION_HOST } };
    const struct ps_plan_req *req = &s->req;
    int r = 0;
    for (size_t i = 0; !r && i < PS_ARRAY_LEN(fixed); i++) {
        struct ps_plan_req q = *req;
        if (!q.num_gpu_batches) q.num_gpu_batches = fixed[i].batches;
        if (!q.prefetch) q.prefetch = fixed[i].prefetch;
        if (q.gpu.mem_bytes && q.attention == PS_ATTENTION_AUTO) q.attention = fixed[i].at;
        const bool another = q.num_gpu_batches != req->num_gpu_batches ||
                             q.prefetch != req->prefetch || q.attention != req->attention;
        if (another) r = one_candidate(s, &q);
    }
    return r;
}

static struct ps_shares shares_of(const uint64_t bytes[PS_TIER__COUNT])
{
    struct ps_shares s;
    const double all = (double) bytes[0] + (double) bytes[1] + (double) bytes[2];
    for (int t = 0; t < PS_TIER__COUNT; t++)
        s.pct[t] = all > 0 ? 100 * (double) bytes[t] / all : t == PS_TIER_HOST ? 100 : 0;
    return s;
}

/* That asks for the plan's, unless it is partly the host's. */
static enum ps_attention_at attention_of(const struct ps_plan *p)
{
    const uint64_t *slabs = p->detail->from.slabs;
    return !p->host_slabs                                               ? PS_ATTENTION_GPU
           : p->host_slabs == slabs[PS_TIER_HOST] + slabs[PS_TIER_DISK] ? PS_ATTENTION_HOST
                                                                        : PS_ATTENTION_AUTO;
}

/* What may be varied of the winner, all by a factor; as far as it was not fixed. rows 0: as the closed form likes them. */
struct step {
    double slots, batches, tokens, ahead, rows;
};
static const struct step steps[] = {
    { 1, 1, 2, 1, 0 },     { 1, 1, 0.5, 1, 0 },     { 1, 1, 1, 1, 4 },   { 1, 1, 1, 1, 0.25 },
    { 1, 1, 1, 2, 0 },     { 1, 1, 1, 0.5, 0 },     { 0.5, 2, 1, 1, 0 }, { 2, 0.5, 1, 1, 0 },
    { 1.5, 1, 1.5, 1, 0 }, { 0.67, 1, 0.67, 1, 0 }, { 2, 1, 1, 1, 0 },   { 0.5, 1, 1, 1, 0 },
};

static uint32_t scaled(uint32_t v, double factor)
{
    const double x = v * factor + 0.5;
    return x < 1 ? 1 : x > 1 << 24 ? 1 << 24 : (uint32_t) x;
}

/* *r is 1 if it is better: then it takes the winner's place. What does not fit is no variant. */
static int variant(struct search *s, const struct step *step)
{
    const struct ps_plan *best = &s->found[0].plan;
    struct ps_plan_req q = s->req;
    struct ps_planned p = { 0 };
    q.kv = shares_of(best->kv_bytes);
    if (s->effort.each && q.gpu.mem_bytes && q.attention == PS_ATTENTION_AUTO)
        q.attention = attention_of(best);
    if (!q.gpu_batch_size) q.gpu_batch_size = scaled(best->slots, step->slots);
    if (!q.num_gpu_batches) q.num_gpu_batches = scaled(best->micro_batches, step->batches);
    if (!q.prefill_tokens) q.prefill_tokens = scaled(best->prefill_tokens, step->tokens);
    if (!q.prefetch) q.prefetch = scaled(best->prefetch ? best->prefetch : 1, step->ahead);
    if (step->rows > 0) q.chunk_rows = scaled(best->chunk_rows, step->rows);
    int r = ps_plan_make(&q, &p.plan, NULL, s->dt);
    if (r == -PS_EBUDGET) return 0;
    if (r < 0) return r;
    if (known(s, &p.plan)) {
        ps_plan_done(&p.plan);
        return 0;
    }
    r = simulate(s, &p.plan, &p.sim);
    s->effort.variants--;
    if (r < 0 || p.sim.total_s > s->found[0].sim.total_s * 0.999) {
        ps_plan_done(&p.plan);
        return r;
    }
    drop(s, 0);
    put(s, &p);
    return 1;
}

/* Steps until none of them is an improvement. */
static int refine(struct search *s)
{
    size_t since = 0;
    for (size_t i = 0; since < PS_ARRAY_LEN(steps) && s->effort.variants; i++) {
        int r = variant(s, &steps[i % PS_ARRAY_LEN(steps)]);
        if (r < 0) return r;
        since = r ? 0 : since + 1;
    }
    return 0;
}

static void look_closely(struct search *s)
{
    s->sim.most_sweeps = s->effort.sweeps;
    s->sim.coarse = false;
}

/* What was a quick look is looked at closely: of as many plans as may be told of, however many will be, for it may put another one first. */
static int finish(struct search *s)
{
    struct ps_planned p[FOUND_MAX];
    while (s->n > s->effort.close) drop(s, s->n - 1);
    look_closely(s);
    const unsigned n = s->n;
    memcpy(p, s->found, n * sizeof *p);
    s->n = 0;
    int r = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!r && p[i].sim.sweeps_run < p[i].sim.run.sweeps) r = simulate(s, &p[i].plan, &p[i].sim);
        put(s, &p[i]);
    }
    return r;
}

static void begin(const struct ps_plan_req *req, const struct ps_profile *p,
                  const struct ps_lengths *lengths, const struct ps_schedule *schedule,
                  enum ps_search_effort effort, const volatile int *stop, struct search *ret,
                  struct ps_detail *dt)
{
    *ret = (struct search) { .req = *req, .dt = dt, .effort = efforts[effort] };
    ps_search_rates(p, &ret->req);
    ret->sim = (struct ps_simulate_cfg) { .model = req->model,
                                          .kv_config = &ret->req.kv_config,
                                          .profile = p,
                                          .lengths = lengths,
                                          .schedule = schedule,
                                          .most_sweeps = PS_SEARCH_SWEEPS,
                                          .coarse = true,
                                          .stop = stop };
}

int ps_search_same(const struct ps_plan_req *req, const struct ps_profile *p,
                   const struct ps_lengths *lengths, const struct ps_schedule *schedule,
                   enum ps_search_effort effort, const struct ps_candidate *from,
                   const volatile int *stop, struct ps_planned *ret, struct ps_detail *dt)
{
    struct search s;
    struct ps_planned x;
    begin(req, p, lengths, schedule, effort, stop, &s, dt);
    look_closely(&s);
    int r = ps_candidate_build(&s.req, from, &x.plan, dt);
    if (r < 0) return r;
    r = ps_plan_fits(&s.req, &x.plan)
            ? 0
            : ps_fail(dt, -PS_EBUDGET,
                      "a plan of a machine with less does not fit on one with more");
    if (!r) r = simulate(&s, &x.plan, &x.sim);
    if (r < 0)
        ps_plan_done(&x.plan);
    else
        *ret = x;
    return r;
}

int ps_search(const struct ps_plan_req *req, const struct ps_profile *p,
              const struct ps_lengths *lengths, const struct ps_schedule *schedule,
              enum ps_search_effort effort, unsigned n, const volatile int *stop,
              struct ps_planned *ret, unsigned *ret_n, char **ret_text, struct ps_detail *dt)
{
    struct search s;
    begin(req, p, lengths, schedule, effort, stop, &s, dt);
    int r = candidates(&s, &s.req, s.effort.candidates, ret_text);
    if (!r) r = modest_candidates(&s);
    if (!r && s.effort.each) r = fixed_candidates(&s);
    if (!r) r = refine(&s);
    if (!r) r = finish(&s);
    while (s.n > (r < 0 ? 0 : n)) drop(&s, s.n - 1);
    if (r < 0) return r;
    memcpy(ret, s.found, s.n * sizeof *ret);
    *ret_n = s.n;
    return 0;
}
