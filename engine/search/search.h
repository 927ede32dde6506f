/* SPDX-License-Identifier: Apache-2.0 */
/* The planner: from a model, a job and a machine's profile to plans with their simulated time. Closed forms prune (ps_plan_best), the best
 * candidates are simulated. */
#ifndef PS_SEARCH_H
#define PS_SEARCH_H
#include "engine/plan/layout.h"
#include "engine/search/simulate.h"

/* Sweeps of a job that are simulated to compare plans. */
enum { PS_SEARCH_SWEEPS = 6 };

/* How much is tried. What comes out first is the same however many plans are asked for. */
enum ps_search_effort {
    PS_SEARCH_WHOLE,
    PS_SEARCH_BRIEF, /* for very many searches: a few plans are simulated, the best one by 16 sweeps; ask for that one alone */
};
enum { PS_SEARCH_TOP = 8 }; /* plans that may be asked for */

struct ps_planned {
    struct ps_plan plan;
    struct ps_simulated sim;
};

/* Puts the profile's figures where the closed form looks for them: req->rates. */
void ps_search_rates(const struct ps_profile *p, struct ps_plan_req *req);

/* The `n` best plans that fit (1 to PS_SEARCH_TOP), best first; *ret_n of them (>= 1). Release each with ps_plan_done(). Errors are ps_plan_make()'s, -ECANCELED
 * when *stop was set. */
int ps_search(const struct ps_plan_req *req, const struct ps_profile *p,
              const struct ps_lengths *lengths, const struct ps_schedule *schedule,
              enum ps_search_effort effort, unsigned n, const volatile int *stop,
              struct ps_planned *ret, unsigned *ret_n, char **ret_text,
              struct ps_detail *dt) ps_must_check;
/* The plan that was made from `from` (plan.detail->from) for a machine that has no more of any memory, with the same model, job and options, on
 * this one: simulated as ps_search() does with its best. So that more is not slower where a search with more does not find what one with less did. -PS_EBUDGET: it does not fit, for there is less of
 * something. */
int ps_search_same(const struct ps_plan_req *req, const struct ps_profile *p,
                   const struct ps_lengths *lengths, const struct ps_schedule *schedule,
                   enum ps_search_effort effort, const struct ps_candidate *from,
                   const volatile int *stop, struct ps_planned *ret,
                   struct ps_detail *dt) ps_must_check;
#endif
