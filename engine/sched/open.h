/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PS_OPEN_H
#define PS_OPEN_H
#include "engine/sched/sched.h"

/* What a run opens. The device uses all of the rest, and what is pinned lies in the host's arena: ps_close_run() keeps to that. */
struct ps_opened {
    struct ps_sched s;
    struct ps_arena *host, *gpu;
    struct ps_store *store;
    struct ps_pinned *pinned;
    int offload_fd; /* -1: there is none */
    char offload_as[32], *offload_name;
};
/* s has its cfg, plan, model and detail. 0, or an error with the detail in s.dt; ps_close_run() either way. */
int ps_open_run(struct ps_opened *x) ps_must_check;
void ps_close_run(struct ps_opened *x);
#endif
