/* SPDX-License-Identifier: Apache-2.0 */
/* How generate chooses a plan. */
#include "engine/cli/generate.h"

static int simulated(const struct ps_planning *g, const struct ps_plan_req *req,
                     const struct ps_lengths *lengths, struct ps_planned *x, struct ps_detail *dt)
{
    const struct ps_simulate_cfg cfg = { .model = req->model,
                                         .plan = &x->plan,
                                         .kv_config = &req->kv_config,
                                         .profile = &g->profile,
                                         .lengths = lengths,
                                         .stop = g->stop };
    return ps_simulate(&cfg, &x->sim, dt);
}

static int choose(const struct ps_planning *g, const struct ps_plan_req *req,
                  const struct ps_lengths *lengths, struct ps_planned *ret, char **ret_text,
                  struct ps_detail *dt)
{
    unsigned n = 0;
    if (g->profile.measured)
        return ps_search(req, &g->profile, lengths, NULL, PS_SEARCH_WHOLE, 1, g->stop, ret, &n,
                         ret_text, dt);
    int r = ps_plan_make(req, &ret->plan, ret_text, dt);
    if (r < 0) return r;
    r = simulated(g, req, lengths, ret, dt);
    if (r < 0) ps_plan_done(&ret->plan);
    return r;
}

int ps_generate_plan(void *ud, const struct ps_plan_req *req, const struct ps_lengths *lengths,
                     struct ps_plan *ret, struct ps_simulated *ret_predicted, char **ret_text,
                     struct ps_detail *dt)
{
    struct ps_planning *g = ud;
    struct ps_planned x;
    if (!g->known) return ps_plan_make(req, ret, ret_text, dt);
    int r = choose(g, req, lengths, &x, ret_text, dt);
    if (r < 0) return r;
    ps_figures_of(req, &g->profile, &x, &g->figures);
    if (g->wants_more)
        r = ps_search_more(req, &g->profile, lengths, NULL, req->threads, g->stop, &x, &g->more,
                           dt);
    if (r < 0) {
        ps_plan_done(&x.plan);
        return r;
    }
    *ret_predicted = x.sim;
    g->total_s = x.sim.total_s;
    g->tokens = (double) req->job.max_new_tokens;
    x.plan.predicted_s = x.sim.total_s;
    *ret = x.plan;
    return 0;
}
