/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: one candidate plan, its memory and its price. */
#ifndef PS_SHAPE_PLAN_H
#define PS_SHAPE_PLAN_H
#include "engine/plan/layout.h"

struct ps_candidate {
    uint32_t slots, micro_batches, prompt_tokens, chunk_rows, prefetch, log_steps;
    double kv_disk_pct, hidden_disk_pct;
    double weights_host_pct; /* of the weights' bytes */
};

/* Fills *ret (released with ps_plan_done) with the candidate's geometry, placement and memory: host_bytes, disk_bytes, table. */
int ps_candidate_build(const struct ps_plan_req *req, const struct ps_candidate *c,
                       struct ps_plan *ret, struct ps_detail *dt) ps_must_check;
/* Seconds for the whole job, from the rates: the sweeps it takes times the slowest link of one. */
double ps_candidate_price(const struct ps_plan_req *req, const struct ps_plan *p);
#endif
