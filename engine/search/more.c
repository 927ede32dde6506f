/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/search/more.h"

struct more {
    const struct ps_plan_req *req;
    struct ps_simulate_cfg sim; /* but for plan and profile */
    struct ps_detail *dt;
};

static int simulate(struct more *m, const struct ps_profile *p, const struct ps_plan *plan,
                    double *ret)
{
    struct ps_simulated sim;
    m->sim.profile = p;
    m->sim.plan = plan;
    int r = ps_simulate(&m->sim, &sim, m->dt);
    if (!r) *ret = sim.total_s;
    return r;
}

/* The best of a few other plans; *s, if it is less. */
static int more_memory(struct more *m, const struct ps_profile *p, bool gpu, double *s)
{
    enum { FEW = 3 };
    struct ps_plan plans[FEW];
    struct ps_plan_req q = *m->req;
    unsigned n = 0;
    *(gpu ? &q.gpu.mem_bytes : &q.host_mem) += (uint64_t) 1 << 30;
    int r = ps_plan_best(&q, FEW, plans, &n, NULL, m->dt);
    for (unsigned i = 0; i < n; i++) {
        double now = *s;
        if (!r) r = simulate(m, p, &plans[i], &now);
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

int ps_search_more(const struct ps_plan_req *req, const struct ps_profile *p,
                   const struct ps_lengths *lengths, const struct ps_schedule *schedule,
                   const volatile int *stop, const struct ps_planned *best, struct ps_more *ret,
                   struct ps_detail *dt)
{
    struct more m = { req, { 0 }, dt };
    double *total = ret->total_s, base = 0;
    m.sim = (struct ps_simulate_cfg) { .model = req->model,
                                       .kv_config = &req->kv_config,
                                       .lengths = lengths,
                                       .schedule = schedule,
                                       .most_sweeps = PS_SEARCH_SWEEPS,
                                       .coarse = true,
                                       .stop = stop };
    int r = simulate(&m, p, &best->plan, &base);
    if (r < 0) return r;
    for (int i = 0; i < PS_MORE__COUNT; i++) total[i] = base;
    if (req->gpu.mem_bytes) r = more_memory(&m, p, true, &total[PS_MORE_GPU_MEM]);
    if (!r) r = more_memory(&m, p, false, &total[PS_MORE_HOST_MEM]);
    if (!req->gpu.mem_bytes) total[PS_MORE_GPU_MEM] = 0;
    for (int i = 0; !r && i < PS_RATE__COUNT; i++) {
        const enum ps_rate_of what = (enum ps_rate_of) i;
        struct ps_profile faster = *p;
        ps_profile_scale(&faster, what, 1.1);
        if (is_there(req, p, what))
            r = simulate(&m, &faster, &best->plan, &total[PS_MORE_RATE + i]);
        else
            total[PS_MORE_RATE + i] = 0;
    }
    for (int i = 0; i < PS_MORE__COUNT; i++)
        total[i] = (total[i] < base ? total[i] : base) / base * best->sim.total_s;
    return r;
}
