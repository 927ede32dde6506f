/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: one candidate plan, its memory and its price. */
#ifndef PS_SHAPE_PLAN_H
#define PS_SHAPE_PLAN_H
#include "engine/plan/layout.h"

struct ps_candidate {
    uint32_t slots, micro_batches, prompt_tokens, chunk_rows, prefetch, log_steps;
    struct ps_shares weights, kv, hidden; /* of bytes, slabs, micro-batches */
    /* Beside a GPU: */
    double attention_host_pct; /* of the slabs that do not lie on it */
    bool weights_pinned;
};

/* Fills *ret (released with ps_plan_done) with the candidate's geometry, placement and memory: the bytes of each tier, tables. */
int ps_candidate_build(const struct ps_plan_req *req, const struct ps_candidate *c,
                       struct ps_plan *ret, struct ps_detail *dt) ps_must_check;
/* Bytes of scratch of one worker on the host, where COMPUTE's rows or those of HOST need it. */
size_t ps_candidate_scratch(const struct ps_plan_req *req, const struct ps_plan *p);
/* Bytes of scratch on the GPU that COMPUTE's rows need for this plan's shapes; p's geometry is set. */
size_t ps_candidate_gpu_scratch(const struct ps_plan_req *req, const struct ps_plan *p);
/* Seconds for the whole job, from the rates: the sweeps it takes times the slowest link of one. */
double ps_candidate_price(const struct ps_plan_req *req, const struct ps_plan *p);
#endif
