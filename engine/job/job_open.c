/* SPDX-License-Identifier: Apache-2.0 */
/* A job until it is planned: which input it is, whose OUTPUT and journal are, what the lines say. */
#include "engine/job/job_work.h"
#include "engine/job/lines.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

void ps_job_phase(const struct ps_job_work *w, enum ps_job_phase ph, uint64_t done)
{
    if (!w->cfg->progress) return;
    struct ps_job_progress p = { .phase = ph,
                                 .done = done,
                                 .total = ph == PS_JOB_READING ? 0 : w->ret->requests,
                                 .elapsed_s = ps_job_now_s() - w->t0,
                                 .left_s = -1 };
    w->cfg->progress(w->cfg->ud, &p);
}

int ps_job_open_input(struct ps_job_work *w)
{
    if (!w->cfg->tok && w->cfg->defaults.n_stop)
        return ps_fail(
            w->dt, -PS_EUSAGE,
            "--stop: the model has no tokenizer files, so there is no text to find it in; "
            "\"stop_token_ids\" in the requests would work");
    int r = ps_input_open(w->cfg, &w->in_fd, w->dt);
    if (r < 0) return r;
    if (fstat(w->in_fd, &w->in_stat) < 0) return -errno;
    r = ps_ident_make(w->cfg, w->in_fd, &w->ident, w->dt);
    w->job = ps_ident_hash(&w->ident);
    return r;
}

void ps_job_use_done(struct ps_job_work *w, const struct ps_done *d)
{
    w->ret->done = w->ret->resumed = d->done;
    w->ret->failed = d->failed;
    w->ret->prompt_tokens = d->prompt_tokens;
    w->ret->generated_tokens = d->generated_tokens;
}

/* OUTPUT is there, and is this job's: 1, nothing is left to do but what a cut-short end left; or 0, --no-resume began the job anew and
 * was interrupted, so that is what the journal is about. */
static int already_done(struct ps_job_work *w, const struct ps_done *d)
{
    int r = ps_output_tidy(&w->output, w->job, d, w->cfg->dry_run, w->dt);
    if (r < 0 || (!r && w->resume)) return r;
    ps_job_use_done(w, d);
    w->ret->requests = d->done;
    w->ret->already_done = true;
    if (r && w->resume && !w->cfg->dry_run) w->journal.remove = true;
    return 1;
}

/* How many requests INPUT has, and the sum of their lines' keys: what the first pass would find. */
static int count_input(const struct ps_job_work *w, uint64_t *ret_n, uint64_t *ret_lines)
{
    struct ps_lines l;
    int kind = 0, r = ps_lines_init(&l, w->in_fd);
    *ret_n = *ret_lines = 0;
    while (!r && *ret_n < w->cfg->limit) {
        char *s = NULL;
        size_t len = 0;
        kind = ps_lines_next(&l, &s, &len);
        if (kind <= 0) break;
        if (w->cfg->stop && *w->cfg->stop) r = -ECANCELED;
        if (kind == PS_LINE_OK && !w->cfg->text && ps_line_blank(s, len)) continue;
        ++*ret_n;
        *ret_lines += ps_line_key((uint32_t) l.line);
    }
    ps_lines_done(&l);
    if (!r && kind < 0)
        r = ps_fail(w->dt, kind, "INPUT %s: read failed: %s", w->cfg->input, ps_err_str(kind));
    return r;
}

/* Whether an OUTPUT of this job is all of it, as it is asked for: a line that is gone, or the end of one, is damage. (What was changed inside of a line is not seen:
 * no sum of OUTPUT is kept.) */
static int check_complete(const struct ps_job_work *w, const struct ps_done *d)
{
    uint64_t n, lines;
    int r = count_input(w, &n, &lines);
    if (r < 0) return r;
    const char *path = w->cfg->output, *then = "--no-resume (or --overwrite) does the job again";
    if (d->torn)
        return ps_fail(w->dt, -PS_ECORRUPT,
                       "%s is this job's, but its last line is cut short: it is damaged; %s", path,
                       then);
    if (d->done != n || d->lines != lines)
        return ps_fail(
            w->dt, -PS_ECORRUPT,
            "%s is this job's, but has %" PRIu64 " result%s of %" PRIu64 "%s: it is damaged; %s",
            path, d->done, ps_plural(d->done), n, d->done == n ? ", some twice" : "", then);
    if (!w->cfg->order_completion && !d->in_order)
        return ps_fail(w->dt, -PS_ECONFLICT,
                       "%s is complete, but its results are in the order of completion (--order "
                       "completion accepts that); %s",
                       path, then);
    return 0;
}

/* Of the files that only a run can make: nothing ran, so they are not made. */
static void warn_not_written(const struct ps_job_work *w)
{
    const struct {
        const char *option, *file;
    } asked[] = { { "--dump-kv", w->cfg->dump_kv },
                  { "--trace", w->cfg->trace },
                  { "--report", w->cfg->report } };
    for (size_t i = 0; w->cfg->warn && i < PS_ARRAY_LEN(asked); i++) {
        char text[PATH_MAX + 200];
        if (!asked[i].file) continue;
        bool there = access(asked[i].file, F_OK) == 0;
        if (!there && asked[i].file == w->cfg->report) continue; /* OUTPUT is enough for it */
        (void) snprintf(text, sizeof text,
                        "%s %s: the job is complete already and nothing runs, so %s; --no-resume "
                        "does the job again",
                        asked[i].option, asked[i].file,
                        there ? "the file that is there stays as it is" : "it is not written");
        w->cfg->warn(w->cfg->ud, text);
    }
}

/* Takes the lock (a dry run only looks whether another has it), and finds out whose the journal is. */
static int open_journal(struct ps_job_work *w)
{
    char changed[900];
    int r = (w->cfg->dry_run ? ps_journal_look : ps_journal_open)(
        w->output.journal, w->cfg->no_resume, &w->journal, w->dt);
    if (r < 0) return r;
    w->journal_open = true;
    if (w->journal.fresh) {
        struct stat st;
        if (w->cfg->no_resume || stat(w->output.part, &st) < 0 || !st.st_size) return 0;
        return ps_fail(w->dt, -PS_ECONFLICT,
                       "%s is there without its journal, so nobody can tell whose results it has; "
                       "--no-resume discards it",
                       w->output.part);
    }
    if (!ps_ident_same(&w->journal.ident, &w->ident, changed, sizeof changed))
        return ps_fail(w->dt, -PS_ECONFLICT,
                       "%s belongs to another job (INPUT here: %s): %s; the same command as then "
                       "goes on with it, "
                       "--no-resume discards what it has",
                       w->output.journal, w->cfg->input, changed);
    w->resume = w->journal.job == w->job;
    if (!w->resume)
        return ps_fail(w->dt, -PS_ECONFLICT, "%s is damaged; --no-resume starts the job anew",
                       w->output.journal);
    if (w->cfg->dump_kv && !w->journal.dump_kv)
        return ps_fail(w->dt, -PS_ECONFLICT,
                       "--dump-kv was not given when the job began, so the KV of its first results "
                       "is gone; --no-resume starts it anew");
    return 0;
}

/* 1: there is nothing to do. */
int ps_job_open_output(struct ps_job_work *w)
{
    struct ps_done d;
    int there = ps_output_look(&w->output, w->job, &d, w->dt);
    if (there == -PS_ECONFLICT && w->cfg->overwrite) {
        there = 0;
        w->dt->text[0] = 0;
    }
    if (there < 0) return there;
    if (w->cfg->no_resume) there = 0;
    int r = open_journal(w);
    if (!there || (r && r != -PS_ECONFLICT && r != -PS_EFORMAT)) return r;
    struct ps_detail journal_dt = *w->dt;
    int e = check_complete(w, &d);
    if ((e == -PS_ECORRUPT || e == -PS_ECONFLICT) &&
        (w->cfg->overwrite || (w->resume && !access(w->output.part, F_OK)))) { /* it is made anew */
        *w->dt = journal_dt;
        return r;
    }
    if (e < 0) return e;
    int done = already_done(w, &d); /* what is not ours is not needed */
    if (done > 0) warn_not_written(w);
    return done ? done : r;
}

static void on_read(void *ud, uint64_t requests) { ps_job_phase(ud, PS_JOB_READING, requests); }

int ps_job_read_input(struct ps_job_work *w)
{
    const struct ps_shape *s = &w->cfg->model->shape;
    struct ps_first_cfg c = {
        .rules = { .vocab = s->vocab,
                   .positions = s->positions,
                   .has_tokenizer = w->cfg->tok != NULL,
                   .params = w->cfg->defaults },
        .tok = w->cfg->tok,
        .fd = w->in_fd,
        .input = w->cfg->input,
        .beside = w->cfg->output,
        .text = w->cfg->text,
        .limit = w->cfg->limit,
        .stop = w->cfg->stop,
        .progress = on_read,
        .progress_ud = w,
    };
    struct stat st;
    int r = ps_table_open(w->cfg->output, w->cfg->ids_mem, &w->table, w->dt);
    if (!r) r = ps_spool_open(w->cfg->output, &w->spool, w->dt);
    if (!r) r = ps_first_pass(&c, &w->spool, &w->table, &w->first, w->dt);
    if (r < 0) return r;
    if (fstat(w->in_fd, &st) < 0 || st.st_size != w->in_stat.st_size ||
        st.st_mtim.tv_sec != w->in_stat.st_mtim.tv_sec ||
        st.st_mtim.tv_nsec != w->in_stat.st_mtim.tv_nsec)
        return ps_fail(w->dt, -EAGAIN, "INPUT %s changed while it was read", w->cfg->input);
    w->ret->requests = w->table.n;
    return 0;
}
