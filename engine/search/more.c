/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/search/more.h"

struct more {
    const struct ps_plan_req *req;
    const struct ps_profile *profile;
    const struct ps_lengths *lengths;
    const struct ps_schedule *schedule;
    const volatile int *stop;
    struct ps_detail *dt;
};

/* The best plan's time; *s, if it is less. */
static int search(const struct more *m, const struct ps_plan_req *req, const struct ps_profile *p,
                  double *s)
{
    struct ps_planned one;
    unsigned n = 0;
    int r = ps_search(req, p, m->lengths, m->schedule, 1, m->stop, &one, &n, NULL, m->dt);
    if (r < 0) return r;
    if (one.sim.total_s < *s) *s = one.sim.total_s;
    ps_plan_done(&one.plan);
    return 0;
}

static int more_memory(const struct more *m, bool gpu, double *s)
{
    struct ps_plan_req q = *m->req;
    *(gpu ? &q.gpu.mem_bytes : &q.host_mem) += (uint64_t) 1 << 30;
    return search(m, &q, m->profile, s);
}

/* As it is, or planned anew. */
static int more_rate(const struct more *m, const struct ps_plan *plan, enum ps_rate_of what,
                     double *s)
{
    struct ps_profile p = *m->profile;
    struct ps_simulated sim;
    ps_profile_scale(&p, what, 1.1);
    int r = ps_simulate(&(const struct ps_simulate_cfg) { .model = m->req->model,
                                                          .plan = plan,
                                                          .kv_config = &m->req->kv_config,
                                                          .profile = &p,
                                                          .lengths = m->lengths,
                                                          .schedule = m->schedule,
                                                          .stop = m->stop },
                        &sim, m->dt);
    if (r < 0) return r;
    if (sim.total_s < *s) *s = sim.total_s;
    return search(m, m->req, &p, s);
}

int ps_search_more(const struct ps_plan_req *req, const struct ps_profile *p,
                   const struct ps_lengths *lengths, const struct ps_schedule *schedule,
                   const volatile int *stop, const struct ps_planned *best, struct ps_more *ret,
                   struct ps_detail *dt)
{
    const struct more m = { req, p, lengths, schedule, stop, dt };
    int r = 0;
    for (int i = 0; i < PS_MORE__COUNT; i++) ret->total_s[i] = best->sim.total_s;
    if (req->gpu.mem_bytes)
        r = more_memory(&m, true, &ret->total_s[PS_MORE_GPU_MEM]);
    else
        ret->total_s[PS_MORE_GPU_MEM] = 0;
    if (!r) r = more_memory(&m, false, &ret->total_s[PS_MORE_HOST_MEM]);
    for (int i = 0; !r && i < PS_RATE__COUNT; i++) {
        const enum ps_rate_of what = (enum ps_rate_of) i;
        const bool gpu = what == PS_RATE_H2D || what == PS_RATE_D2H || what == PS_RATE_HBM ||
                         what == PS_RATE_GPU_GEMM;
        if (ps_profile_rate(p, what) <= 0 || (gpu && !req->gpu.mem_bytes))
            ret->total_s[PS_MORE_RATE + i] = 0;
        else
            r = more_rate(&m, &best->plan, what, &ret->total_s[PS_MORE_RATE + i]);
    }
    return r;
}
