/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the search: what becomes of one candidate (fill.c), for the loops over all of them (search.c). */
#ifndef PS_SEARCH_IMPL_H
#define PS_SEARCH_IMPL_H
#include "engine/plan/shape_plan.h"

/* What a candidate's shape leaves for weights at most, in percent of them. */
struct ps_room {
    double gpu, host;
};

struct ps_search_state {
    const struct ps_plan_req *req;
    struct ps_passing weights;
    struct ps_best *best;      /* that fit */
    struct ps_candidate least; /* the one that exceeds its ceilings least */
    double excess;             /* of least, in bytes */
    bool any;
    bool coarse; /* a first look, so that the second soon knows what is hopeless */
    struct ps_detail *dt;
};

static inline bool ps_is_auto(const struct ps_shares *s) { return s->pct[PS_TIER_GPU] < 0; }

/* ALL_NEAR: it fits, and no weights pass by. */
enum { PS_TRY_NO = 0, PS_TRY_FITS, PS_TRY_ALL_NEAR };
/* One candidate, but for what is automatic: its weights, and hidden states, which lie where COMPUTE works if they fit there. It is taken over as
 * one of the best, or the least. */
int ps_try(struct ps_search_state *s, struct ps_candidate c) ps_must_check;
/* What `least`, the smallest of its shape, leaves for weights, if it takes no more than it must: hidden states and what passes by somewhere
 * else. */
int ps_room_beside(struct ps_search_state *s, struct ps_candidate least,
                   struct ps_room *ret) ps_must_check;
/* If memory held nothing but weights. */
struct ps_room ps_room_all(const struct ps_search_state *s);
/* Whether a candidate would not be taken even if it left that much for weights, and hidden states cost nothing: 1, 0, or an error. */
int ps_hopeless(struct ps_search_state *s, struct ps_candidate c,
                const struct ps_room *room) ps_must_check;
#endif
