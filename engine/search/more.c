/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/search/more.h"
#include <pthread.h>
#include <stdatomic.h>

struct more {
    const struct ps_plan_req *req;
    const struct ps_profile *profile;
    const struct ps_plan *best;
    struct ps_simulate_cfg sim; /* but for plan and profile */
    double *total;
    _Atomic int next;     /* enum, to be looked at */
    pthread_mutex_t lock; /* of what follows */
    int err;
    struct ps_detail dt;
};

static int simulate(const struct more *m, const struct ps_profile *p, const struct ps_plan *plan,
                    double *ret, struct ps_detail *dt)
{
    struct ps_simulated sim;
    struct ps_simulate_cfg cfg = m->sim;
    cfg.profile = p;
    cfg.plan = plan;
    int r = ps_simulate(&cfg, &sim, dt);
    if (!r) *ret = sim.total_s;
    return r;
}

/* The best plan, with what it takes, *s, and a few others. */
static int more_memory(const struct more *m, bool gpu, double *s, struct ps_detail *dt)
{
    enum { FEW = 3 };
    struct ps_plan plans[FEW];
    struct ps_plan_req q = *m->req;
    unsigned n = 0;
    *(gpu ? &q.gpu.mem_bytes : &q.host_mem) += (uint64_t) 1 << 30;
    int r = ps_plan_best(&q, FEW, plans, &n, NULL, dt);
    for (unsigned i = 0; i < n; i++) {
        double now = *s;
        if (!r) r = simulate(m, m->profile, &plans[i], &now, dt);
        if (now < *s) *s = now;
        ps_plan_done(&plans[i]);
    }
    return r;
}

static bool is_there(const struct ps_plan_req *q, const struct ps_profile *p, enum ps_rate_of what)
{
    const bool of_gpu = what == PS_RATE_H2D || what == PS_RATE_D2H || what == PS_RATE_HBM ||
                        what == PS_RATE_GPU_GEMM;
    return ps_profile_rate(p, what) > 0 && (!of_gpu || q->gpu.mem_bytes);
}

static int faster(const struct more *m, enum ps_rate_of what, double *s, struct ps_detail *dt)
{
    struct ps_profile p = *m->profile;
    ps_profile_scale(&p, what, 1.1);
    return simulate(m, &p, m->best, s, dt);
}

/* *s: what it takes as it is. */
static int look_at(const struct more *m, int i, double *s, struct ps_detail *dt)
{
    const enum ps_rate_of rate = (enum ps_rate_of)(i - PS_MORE_RATE);
    const bool there = i == PS_MORE_HOST_MEM  ? true
                       : i == PS_MORE_GPU_MEM ? m->req->gpu.mem_bytes > 0
                                              : is_there(m->req, m->profile, rate);
    if (!there) *s = 0;
    if (!there) return 0;
    return i < PS_MORE_RATE ? more_memory(m, i == PS_MORE_GPU_MEM, s, dt) : faster(m, rate, s, dt);
}

static void *work(void *ud)
{
    struct more *m = ud;
    for (int i; (i = atomic_fetch_add(&m->next, 1)) < PS_MORE__COUNT;) {
        struct ps_detail dt = { "" };
        const int r = look_at(m, i, &m->total[i], &dt);
        if (r >= 0) continue;
        (void) pthread_mutex_lock(&m->lock);
        if (!m->err) m->dt = dt;
        if (!m->err) m->err = r;
        (void) pthread_mutex_unlock(&m->lock);
        atomic_store(&m->next, PS_MORE__COUNT);
    }
    return NULL;
}

/* Each is a simulation of its own. */
static int work_together(struct more *m, unsigned threads, struct ps_detail *dt)
{
    pthread_t t[PS_MORE__COUNT];
    unsigned n = 0;
    (void) pthread_mutex_init(&m->lock, NULL);
    while (n + 1 < threads && n + 1 < PS_MORE__COUNT)
        if (pthread_create(&t[n], NULL, work, m)) /* fewer will do */
            break;
        else
            n++;
    (void) work(m);
    while (n) (void) pthread_join(t[--n], NULL);
    (void) pthread_mutex_destroy(&m->lock);
    if (m->err && dt) *dt = m->dt;
    return m->err;
}

int ps_search_more(const struct ps_plan_req *req, const struct ps_profile *p,
                   const struct ps_lengths *lengths, const struct ps_schedule *schedule,
                   unsigned threads, const volatile int *stop, const struct ps_planned *best,
                   struct ps_more *ret, struct ps_detail *dt)
{
    struct more m = { .req = req, .profile = p, .best = &best->plan, .total = ret->total_s };
    double *total = ret->total_s, base = 0;
    m.sim = (struct ps_simulate_cfg) { .model = req->model,
                                       .kv_config = &req->kv_config,
                                       .lengths = lengths,
                                       .schedule = schedule,
                                       .most_sweeps = PS_SEARCH_SWEEPS,
                                       .coarse = true,
                                       .stop = stop };
    int r = simulate(&m, p, &best->plan, &base, dt);
    if (r < 0) return r;
    for (int i = 0; i < PS_MORE__COUNT; i++) total[i] = base;
    r = work_together(&m, threads, dt);
    for (int i = 0; i < PS_MORE__COUNT; i++) total[i] *= best->sim.total_s / base;
    return r;
}
