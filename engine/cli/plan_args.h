/* SPDX-License-Identifier: Apache-2.0 */
/* plan's options, read. */
#ifndef PS_PLAN_ARGS_H
#define PS_PLAN_ARGS_H
#include "engine/cli/plan.h"
#include "engine/job/job.h"

enum { PS_PLAN_TOP_MAX = 8, PS_SWEEPS_MAX = 8 };

struct ps_plan_args {
    const char *model, *hardware, *job, *output, *format;
    const char *of_job, *described; /* an option that --job needs, one that it rules out; or NULL */
    bool json, text;
    int dtype; /* enum ps_dtype, or -1: the config's */
    unsigned top;
    uint64_t limit;
    struct ps_params defaults; /* of --job's lines */
    struct ps_point point;
    const char *sweep[PS_SWEEPS_MAX];
    unsigned n_sweep;
    char command[1024];
};
/* A profile's file, or "this": what was probed of this machine, else a quick probe. */
int ps_plan_hardware(const char *hardware, const struct ps_engine_args *e, struct ps_profile *ret,
                     struct ps_detail *dt) ps_must_check;
/* Ends the process with 2 (and a message) for what it cannot read. */
void ps_plan_parse(int argc, char **argv, struct ps_plan_args *ret);
#endif
