/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cli/plan_sweep.h"
#include "engine/job/lengths_of.h"
#include <stdio.h>

static int plan(const struct ps_plan_args *a, struct ps_point *p, const struct ps_packed *m,
                struct ps_detail *dt)
{
    struct ps_planned found[PS_PLAN_TOP_MAX];
    struct ps_more more;
    ps_auto_free char *text = NULL;
    unsigned n = 0;
    const struct ps_plan_req *q = &p->engine.plan;
    int r = ps_point_complete(p, m, dt);
    if (!r)
        r = ps_search(q, &p->profile, &p->lengths, NULL, a->top, ps_signals_count(), found, &n,
                      &text, dt);
    if (text) (void) fputs(text, stderr);
    if (!r)
        r = ps_search_more(q, &p->profile, &p->lengths, NULL, ps_signals_count(), &found[0], &more,
                           dt);
    const struct ps_plan_answer answer = { m, p, found, n, &more };
    if (!r && a->json)
        r = ps_plan_print_json(&answer);
    else if (!r)
        ps_plan_print(&answer);
    while (n) ps_plan_done(&found[--n].plan);
    return r;
}

int ps_cmd_plan(int argc, char **argv)
{
    struct ps_plan_args a;
    ps_auto_pack struct ps_packed *m = NULL;
    struct ps_detail dt = { "" };
    ps_plan_parse(argc, argv, &a);
    struct ps_point *p = &a.point;
    struct ps_lengths lengths = { 0 };
    ps_signals_catch();
    int r = ps_plan_hardware(a.hardware, &p->engine, &p->profile, &dt);
    if (!r) r = ps_model_outline(a.model, a.dtype, &m, &dt);
    if (!r && a.job.path) r = ps_job_file_read(&a.job, a.model, m, &p->stats, &p->lengths, &dt);
    lengths = p->lengths;
    if (!r) r = a.n_sweep ? ps_plan_sweep(&a, p, m, &dt) : plan(&a, p, m, &dt);
    ps_lengths_done(&lengths);
    return r < 0 ? ps_say_error(r, &dt) : PS_EXIT_OK;
}
