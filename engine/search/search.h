/* SPDX-License-Identifier: Apache-2.0 */
/* The planner: from a model, a job and a machine's profile to plans with their simulated time. Closed forms prune (ps_plan_best), the best
 * candidates are simulated. */
#ifndef PS_SEARCH_H
#define PS_SEARCH_H
#include "engine/search/simulate.h"

/* Sweeps of a job that are simulated to compare plans. */
enum { PS_SEARCH_SWEEPS = 6 };

struct ps_planned {
    struct ps_plan plan;
    struct ps_simulated sim;
};

/* Puts the profile's figures where the closed form looks for them: req->rates. */
void ps_search_rates(const struct ps_profile *p, struct ps_plan_req *req);

/* The `n` best plans that fit, best first; *ret_n of them (>= 1). Release each with ps_plan_done(). Errors are ps_plan_make()'s, -ECANCELED
 * when *stop was set. */
int ps_search(const struct ps_plan_req *req, const struct ps_profile *p,
              const struct ps_lengths *lengths, const struct ps_schedule *schedule, unsigned n,
              const volatile int *stop, struct ps_planned *ret, unsigned *ret_n, char **ret_text,
              struct ps_detail *dt) ps_must_check;
#endif
