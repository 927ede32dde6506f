/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/cli/plan_sweep.h"
#include "engine/job/lengths_of.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the job */

struct job {
    struct ps_tok *tok;
    struct ps_spool spool;
    struct ps_table table;
    struct ps_first first;
    int fd;
};

static int first_pass(const struct ps_plan_args *a, const struct ps_packed *m, const char *beside,
                      struct job *j, struct ps_detail *dt)
{
    const struct ps_first_cfg cfg = { .rules = { .vocab = m->shape.vocab,
                                                 .positions = m->shape.positions,
                                                 .has_tokenizer = j->tok != NULL,
                                                 .params = a->defaults },
                                      .tok = j->tok,
                                      .fd = j->fd,
                                      .input = a->job,
                                      .beside = beside,
                                      .text = a->text,
                                      .limit = a->limit,
                                      .stop = ps_signals_count() };
    int r = ps_table_open(beside, UINT64_MAX / 4, &j->table, dt);
    if (!r) r = ps_spool_open(beside, &j->spool, dt);
    return r < 0 ? r : ps_first_pass(&cfg, &j->spool, &j->table, &j->first, dt);
}

static int take_job(const struct ps_plan_args *a, const struct job *j, struct ps_point *p,
                    struct ps_detail *dt)
{
    const struct ps_first *f = &j->first;
    if (!f->stats.requests)
        return ps_fail(
            dt, -PS_EFORMAT, "--job %s: no valid request%s%s%s", a->job,
            f->failed ? "; the first line in error: " : "", f->failed ? f->first_message : "",
            f->failed && !j->tok ? " (MODEL has no tokenizer files here, so prompts must "
                                   "be lists of token ids)"
                                 : "");
    if (f->failed)
        ps_say("warning: %u of %u lines are in error and are not planned for, the first line %u: "
               "%s%s",
               f->failed, j->table.n, f->first_failed, f->first_message,
               j->tok ? "" : " (MODEL has no tokenizer files here: prompts must be token ids)");
    p->stats = f->stats;
    return ps_lengths_of(&j->spool, &j->table, f->stats.requests, &p->lengths);
}

static int read_job(const struct ps_plan_args *a, const struct ps_packed *m, struct ps_point *p,
                    struct ps_detail *dt)
{
    struct job j = { .fd = -1 };
    const char *tmp = getenv("TMPDIR");
    ps_auto_free char *beside = ps_concat(tmp && *tmp ? tmp : "/tmp", "/", "penstock-plan");
    struct stat st;
    if (!beside) return -ENOMEM;
    j.spool.out.fd = j.table.out.fd = -1;
    j.fd = open(a->job, O_RDONLY | O_CLOEXEC);
    if (j.fd < 0 || fstat(j.fd, &st) < 0)
        return ps_fail(dt, -errno, "--job %s: cannot open: %s", a->job, ps_err_str(errno));
    int r =
        S_ISREG(st.st_mode)
            ? 0
            : ps_fail(dt, -PS_EUSAGE, "--job %s: a regular file of requests was expected", a->job);
    if (!r) r = ps_tok_open(a->model, &j.tok, dt);
    if (r == -ENOENT || r == -ENOTDIR) r = 0; /* token ids only */
    if (!r) r = first_pass(a, m, beside, &j, dt);
    if (!r) r = take_job(a, &j, p, dt);
    ps_spool_close(&j.spool);
    ps_table_close(&j.table);
    ps_tok_close(j.tok);
    (void) close(j.fd);
    return r;
}

/* ---- one plan, or several */

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
    if (!r && a.job) r = read_job(&a, m, p, &dt);
    if (a.job) lengths = p->lengths;
    if (!r) r = a.n_sweep ? ps_plan_sweep(&a, p, m, &dt) : plan(&a, p, m, &dt);
    ps_lengths_done(&lengths);
    return r < 0 ? ps_say_error(r, &dt) : PS_EXIT_OK;
}
