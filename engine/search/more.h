/* SPDX-License-Identifier: Apache-2.0 */
/* What a little more of something would bring: finite differences of the simulation. With more memory plans are made anew; with a faster
 * link the plan stays, for next to the best plan what another one brings is of second order. */
#ifndef PS_MORE_H
#define PS_MORE_H
#include "engine/search/search.h"
#include "offload/profile_set.h"

enum {
    PS_MORE_GPU_MEM, /* 1 GiB */
    PS_MORE_HOST_MEM,
    PS_MORE_RATE, /* and enum ps_rate_of: 10 % */
    PS_MORE__COUNT = PS_MORE_RATE + PS_RATE__COUNT
};
struct ps_more {
    /* Of the job; 0: the machine has none of it. As simulated: it may be a little slower with more of something, in ways that no schedule avoids. */
    double total_s[PS_MORE__COUNT];
};

/* `best` is ps_search()'s first. So many simulations at a time. */
int ps_search_more(const struct ps_plan_req *req, const struct ps_profile *p,
                   const struct ps_lengths *lengths, const struct ps_schedule *schedule,
                   unsigned threads, const volatile int *stop, const struct ps_planned *best,
                   struct ps_more *ret, struct ps_detail *dt) ps_must_check;
#endif
