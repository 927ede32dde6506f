/* SPDX-License-Identifier: Apache-2.0 */
/* plan's options, read. */
#ifndef PS_PLAN_ARGS_H
#define PS_PLAN_ARGS_H
#include "engine/cli/plan.h"

enum { PS_SWEEPS_MAX = 8 };

struct ps_plan_args {
    const char *model, *hardware /* NULL: not given */, *output, *format;
    struct ps_job_file job;         /* path NULL: it is described */
    const char *of_job, *described; /* an option that --job needs, one that it rules out; or NULL */
    bool json;
    int dtype; /* enum ps_dtype, or -1: the config's */
    unsigned top;
    struct ps_point point;
    const char *sweep[PS_SWEEPS_MAX];
    unsigned n_sweep;
    char command[1024];
};
/* Whether one of the sweep's axes has this name. */
bool ps_plan_sweeps(const struct ps_plan_args *a, const char *name);
/* Ends the process with 2 (and a message) for what it cannot read. */
void ps_plan_parse(int argc, char **argv, struct ps_plan_args *ret);
#endif
