/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cli/plan_sweep.h"
#include "engine/cli/ticker.h"
#include "engine/job/lengths_of.h"
#include "offload/machine.h"
#include <stdio.h>

static int read_job(const struct ps_plan_args *a, const struct ps_packed *m, struct ps_point *p,
                    struct ps_detail *dt)
{
    struct ps_ticker t;
    ps_ticker_begin(&t, "reading --job");
    const int r = ps_job_file_read(&a->job, a->model, m, &p->stats, &p->lengths, dt);
    ps_ticker_end(&t);
    return r;
}

struct answer {
    struct ps_planned found[PS_SEARCH_TOP];
    struct ps_more more;
    unsigned n;
    char *text; /* why there is none */
};

static int search(unsigned top, const struct ps_point *p, struct answer *ret, struct ps_detail *dt)
{
    const struct ps_plan_req *q = &p->engine.plan;
    struct ps_machine machine;
    struct ps_ticker t;
    ps_machine_read("", &machine);
    ps_ticker_begin(&t, "planning");
    int r = ps_search(q, &p->profile, &p->lengths, NULL, PS_SEARCH_WHOLE, top, ps_signals_count(),
                      ret->found, &ret->n, &ret->text, dt);
    atomic_store(&t.what, "planning: what a little more would bring");
    if (!r)
        r = ps_search_more(q, &p->profile, &p->lengths, NULL, machine.cpus, ps_signals_count(),
                           &ret->found[0], &ret->more, dt);
    ps_ticker_end(&t);
    return r;
}

static int plan(const struct ps_plan_args *a, struct ps_point *p, const struct ps_packed *m,
                struct ps_detail *dt)
{
    struct answer x = { .n = 0 };
    int r = ps_point_check(p, m, dt);
    if (!r) r = ps_point_probe(p, dt);
    if (!r) r = ps_point_complete(p, m, dt);
    if (!r) r = search(a->top, p, &x, dt);
    if (x.text) (void) fputs(x.text, stderr);
    const struct ps_plan_answer answer = { m, p, x.found, x.n, &x.more };
    if (!r && a->json)
        r = ps_plan_print_json(&answer);
    else if (!r)
        r = ps_plan_print(&answer);
    while (x.n) ps_plan_done(&x.found[--x.n].plan);
    free(x.text);
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
    int r = 0;
    if (a.hardware || !ps_plan_sweeps(&a, "hardware"))
        r = ps_plan_hardware(a.hardware ? a.hardware : "this", &p->profile, &p->to_probe, &dt);
    if (!r) r = ps_model_outline(a.model, a.dtype, &m, &dt);
    if (!r && a.job.path) r = read_job(&a, m, p, &dt);
    lengths = p->lengths;
    if (!r) r = a.n_sweep ? ps_plan_sweep(&a, p, m, &dt) : plan(&a, p, m, &dt);
    ps_lengths_done(&lengths);
    return r < 0 ? ps_say_error(r, &dt) : PS_EXIT_OK;
}
