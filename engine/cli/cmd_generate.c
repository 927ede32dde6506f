/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cli/generate.h"
#include <stdio.h>
#include <string.h>

/* Without tokenizer files it takes token ids only. Those of the user's own folder, before a model is packed of which they are the fault. */
static int open_tok(const char *folder, struct ps_generate_model *m, struct ps_detail *dt)
{
    int r = ps_tok_open(folder, &m->tok, dt);
    if (r != -ENOENT && r != -ENOTDIR)
        return r; /* what else a MODEL is that is none is told by who opens it */
    dt->text[0] = 0;
    return 0;
}

static int exit_code(const struct ps_job_result *r)
{
    if (r->interrupted) return PS_EXIT_SIGNAL;
    return r->failed ? PS_EXIT_SOME_FAILED : PS_EXIT_OK;
}

/* What a dry run adds to the plan: all that `penstock plan` says of one. */
static void say_planned(const struct ps_planning *g, bool planned)
{
    if (!planned || g->total_s <= 0) return;
    (void) printf("\nSimulated on %s:\n",
                  g->profile.measured ? "this machine's profile" : "what a quick look saw");
    ps_figures_print(&g->figures, 1);
    ps_more_print(&g->more, g->total_s, g->tokens);
}

static int run_job(struct ps_generate_args *a, struct ps_detail *dt)
{
    struct ps_job_result res = { 0 };
    ps_generate_ui(&a->job, a->progress);
    int r = ps_job_run(&a->job, &res, dt), rc;
    ps_progress_end();
    if (res.plan_text) (void) fputs(res.plan_text, r < 0 ? stderr : stdout);
    if (r < 0) {
        rc = ps_say_error(r, dt);
    } else if (a->job.dry_run && res.requests && !res.interrupted && !res.already_done) {
        say_planned(&a->planning, res.plan_text != NULL);
        if (!res.plan_text) ps_say("no request is valid, so there is nothing to plan");
        rc = exit_code(&res);
    } else {
        ps_generate_summary(&a->job, &res);
        rc = exit_code(&res);
    }
    ps_job_result_done(&res);
    return rc;
}

int ps_cmd_generate(int argc, char **argv)
{
    struct ps_generate_args a;
    struct ps_generate_model m = { 0 };
    struct ps_detail dt = { "" };
    ps_generate_parse(argc, argv, &a);
    ps_signals_catch();
    int r = ps_check_swapped("MODEL", a.model, "INPUT", a.job.input, &dt), rc;
    if (!r) r = ps_generate_machine(&a, a.job.output, &m, &dt);
    if (!r) r = open_tok(a.model, &m, &dt);
    if (!r) r = ps_generate_open(&a, &m, &dt);
    if (!r) {
        a.job.model = m.packed;
        a.job.tok = m.tok;
        ps_generate_probe(&a, m.offload_dir);
        rc = run_job(&a, &dt);
    } else {
        rc = ps_say_error(r, &dt);
    }
    if (rc == PS_EXIT_FAILED && m.packed_folder && strstr(dt.text, m.packed_folder))
        ps_say("%s is a copy that was packed from %s: remove it, and it is made anew",
               m.packed_folder, a.model);
    ps_generate_close(&m);
    return rc;
}
