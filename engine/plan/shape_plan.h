/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: one candidate plan, its memory and its price. */
#ifndef PS_SHAPE_PLAN_H
#define PS_SHAPE_PLAN_H
#include "engine/plan/layout.h"

/* Bytes of weights that pass by: of all groups, of the largest, and of the two largest neighbours. */
struct ps_passing {
    uint64_t all, most, pair;
};
/* Of all chunks. */
struct ps_passing ps_weights_passing(const struct ps_packed *m);

/* Of n slabs or micro-batches. */
void ps_count_shares(const struct ps_shares *s, size_t n, uint64_t ret[PS_TIER__COUNT]);
/* The candidate's geometry and memory from its shares alone, quickly: no arrays, no tables. ret->detail is *d. What a chunk more or less
 * in a tier comes to is counted in: a plan with these shares takes no more, and at most so many chunks less, on the host and on the GPU. */
enum { PS_SIZE_SLACK_CHUNKS = 10 };
int ps_candidate_size(const struct ps_plan_req *req, const struct ps_candidate *c,
                      const struct ps_passing *weights, struct ps_plan *ret,
                      struct ps_plan_detail *d, struct ps_detail *dt) ps_must_check;
/* Its price, whether it fits or not. */
int ps_candidate_quote(const struct ps_plan_req *req, const struct ps_candidate *c,
                       const struct ps_passing *weights, double *ret,
                       struct ps_detail *dt) ps_must_check;
/* The same as ps_candidate_size(), to the byte and with arrays and tables. Released with ps_plan_done(). */
int ps_candidate_build(const struct ps_plan_req *req, const struct ps_candidate *c,
                       struct ps_plan *ret, struct ps_detail *dt) ps_must_check;

/* Bytes of scratch of one worker on the host, where COMPUTE's rows or those of HOST need it; p's geometry is set. */
size_t ps_candidate_scratch(const struct ps_plan_req *req, const struct ps_plan *p);
/* Bytes of scratch on the GPU that COMPUTE's rows need. */
size_t ps_candidate_gpu_scratch(const struct ps_plan_req *req, const struct ps_plan *p);

/* Seconds for the whole job, from the rates: the sweeps it takes times the slowest link of one. */
double ps_candidate_price(const struct ps_plan_req *req, const struct ps_plan *p);

/* Bytes of weights, KV and hidden states that lie there. */
uint64_t ps_plan_on_disk(const struct ps_plan *p);
bool ps_plan_fits(const struct ps_plan_req *req, const struct ps_plan *p);
bool ps_plan_pins_too_much(const struct ps_plan_req *req, const struct ps_plan *p);
/* The best candidates so far, best first. Of those that are alike (a neighbouring value here or there) only the best is in. */
enum { PS_BEST_MAX = 16 };
struct ps_best {
    unsigned most, n; /* most <= PS_BEST_MAX */
    struct ps_found {
        struct ps_candidate c;
        double predicted_s;
        uint64_t host_bytes, disk_bytes;
    } at[PS_BEST_MAX];
};
void ps_best_add(struct ps_best *b, const struct ps_candidate *c, const struct ps_plan *p);
/* What takes longer is not taken. */
double ps_best_limit(const struct ps_best *b);

/* The best candidates that fit, as far as sizes tell (best->most is set, best->n is 0); if none does, *least is the one that exceeds its
 * ceilings least. */
int ps_plan_search(const struct ps_plan_req *req, struct ps_best *best, struct ps_candidate *least,
                   struct ps_detail *dt) ps_must_check;
/* Why it does not fit, itemised, and what would; the caller frees it. NULL when out of memory. */
char *ps_plan_refusal(const struct ps_plan_req *req, const struct ps_plan *least);
#endif
