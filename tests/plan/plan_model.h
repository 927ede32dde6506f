/* SPDX-License-Identifier: Apache-2.0 */
/* Models and jobs to plan for: the published shapes, without weights. */
#ifndef PLAN_MODEL_H
#define PLAN_MODEL_H
#include "engine/plan/layout.h"

/* Of configs/models/NAME.json; closed with ps_pack_close(). Fails the test when it cannot be made. */
struct ps_packed *pm_model(const char *name);
/* `n` requests of a prompt of so many tokens each; 4 threads, everything automatic, 1 TB of disk. */
struct ps_plan_req pm_req(const struct ps_packed *m, uint64_t n, uint32_t prompt, uint32_t gen,
                          uint64_t host_mem, uint64_t gpu_mem);
#define GIB ((uint64_t) 1 << 30)
#define MIB ((uint64_t) 1 << 20)
/* Fails the test unless what p says of itself is so: shares of its arrays, bytes of its layout, rings, ceilings. */
void pm_check(const struct ps_plan_req *q, const struct ps_plan *p);
#endif
