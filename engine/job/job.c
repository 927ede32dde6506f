/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a job: input, identity, OUTPUT and its lock, first pass, plan, what is there already, run, order, report. Each
 * step is a function of struct ps_job_work; whatever it opened is closed in one place. */
#include "engine/base/ps_mem.h"
#include "engine/job/job_work.h"
#include "engine/job/lengths_of.h"
#include "engine/job/report.h"
#include "engine/job/trace.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

static bool stopped(const struct ps_job_work *w) { return w->cfg->stop && *w->cfg->stop; }

static void warn(const struct ps_job_work *w, const char *text)
{
    if (w->cfg->warn) w->cfg->warn(w->cfg->ud, text);
}

/* What a user would rather know now than when the job is over. */
static void warn_requests(const struct ps_job_work *w)
{
    const struct ps_first *f = &w->first;
    char text[PS_MESSAGE_MAX + 200];
    if (f->failed) {
        (void) snprintf(text, sizeof text,
                        "%u of %u request%s an error record, the first that of line %u: %s",
                        f->failed, w->table.n,
                        f->failed > 1    ? "s get"
                        : w->table.n > 1 ? "s gets"
                                         : " gets",
                        f->first_failed, f->first_message);
        for (char *c = text; *c; c++) /* a line may name control characters */
            if ((unsigned char) *c < ' ' || *c == 0x7f) *c = '?';
        warn(w, text);
    }
    if (f->no_tokens)
        warn(w, "the model has no tokenizer files, so results have no text; "
                "\"return_token_ids\": true in a request gives its ids");
}

/* Of so many that they would take more than 4 MiB their mean will do. */
static int find_lengths(const struct ps_job_work *w, struct ps_lengths *ret)
{
    enum { LENGTHS_MAX = 1 << 19 };
    const struct ps_job_stats *s = &w->first.stats;
    if (s->requests <= LENGTHS_MAX) return ps_lengths_of(&w->spool, &w->table, s->requests, ret);
    *ret = (struct ps_lengths) { .n = s->requests,
                                 .each_prompt = (uint32_t) (s->prompt_tokens / s->requests),
                                 .each_gen = (uint32_t) (s->max_new_tokens / s->requests) };
    return 0;
}

static int make_plan(struct ps_job_work *w)
{
    w->predicted = (struct ps_simulated) { 0 };
    struct ps_lengths lengths = { 0 };
    int r = find_lengths(w, &lengths);
    if (r < 0 && r != -ENOMEM)
        (void) ps_fail(w->dt, r, "%s: the job's temporary files beside it: %s", w->cfg->output,
                       ps_err_str(r));
    if (!r)
        r = w->cfg->engine.plan_make(w->cfg->engine.ud, &w->req, &lengths, &w->plan, &w->predicted,
                                     &w->ret->plan_text, w->dt);
    ps_lengths_done(&lengths);
    w->planned = r >= 0;
    return r;
}

static int make_first_plan(struct ps_job_work *w)
{
    w->req = w->cfg->plan;
    w->req.model = w->cfg->model;
    w->req.job = w->first.stats;
    return make_plan(w);
}

/* Room for the sequences that the plan has under way. */
static int open_slots(struct ps_job_work *w)
{
    const struct ps_job_stats *st = &w->first.stats;
    struct ps_slots_cfg c = {
        .n = w->planned ? w->plan.slots * w->plan.micro_batches + 2 : 1,
        .longest_prompt = st->longest_prompt ? st->longest_prompt : 1,
        .longest_total = st->longest_total ? st->longest_total : 1,
        .most_top = st->most_top,
        .most_stop_bytes = w->first.most_stop_bytes,
        .most_stop_ids = w->first.most_stop_ids,
        .logprobs = w->first.logprobs,
        .beside = w->cfg->output,
    };
    w->feed.gpu = w->planned && w->plan.gpu_bytes;
    return ps_slots_open(&c, &w->feed.slots, w->dt);
}

static int open_feed(struct ps_job_work *w)
{
    struct ps_feed *f = &w->feed;
    f->cfg = w->cfg;
    f->spool = &w->spool;
    f->table = &w->table;
    f->output = &w->output;
    f->journal = &w->journal;
    f->result = w->ret;
    f->eos = w->cfg->model->shape.eos;
    f->t0 = w->t0;
    f->expected = w->first.stats.max_new_tokens;
    f->base[PS_SUM_TOKENIZER_S] = w->first.tokenizer_s;
    f->rec = (struct ps_recorder) { .spool = &w->spool,
                                    .tok = w->cfg->tok,
                                    .model = w->cfg->model->shape.name,
                                    .job = w->job,
                                    .created = w->journal.started };
    int r = ps_recorder_init(&f->rec);
    return r < 0 ? r : open_slots(w);
}

/* Into the journal: the sums of this run so far, and of the results that are on disk. */
static int note_sums(struct ps_job_work *w)
{
    struct ps_part_sum part;
    int r = ps_output_sum(&w->output, &part, w->dt);
    if (r < 0) return r;
    r = ps_journal_sums(&w->journal, w->ret->sums, &part);
    return r < 0 ? ps_fail(w->dt, r, "%s: write failed: %s", w->output.journal, ps_err_str(r)) : 0;
}

/* From here on the job has state on disk. */
static int begin(struct ps_job_work *w)
{
    struct ps_done d = { 0 };
    int r = 0;
    if (!w->resume)
        r = ps_journal_begin(&w->journal, &w->ident,
                             w->cfg->now ? w->cfg->now : (int64_t) time(NULL),
                             w->cfg->dump_kv != NULL);
    if (r < 0)
        return ps_fail_in(w->dt, r, "%s: write failed: %s", w->output.journal, ps_err_str(r));
    r = ps_output_open(&w->output, !w->resume, &w->journal.part, w->job,
                       w->cfg->model->shape.layers, &w->table, &d, w->dt);
    if (r < 0) return r;
    ps_job_use_done(w, &d);
    r = note_sums(w);
    if (r < 0) return r;
    w->feed.before = d.generated_tokens;
    if (w->first.stats.requests)
        w->feed.ended = (double) w->first.stats.max_new_tokens * (double) (d.done - d.failed) /
                        (double) w->first.stats.requests;
    if (w->cfg->trace) r = ps_trace_open(w->cfg->trace, &w->trace, w->dt);
    return r;
}

/* No more memory than that can be pinned for the GPU: another plan, before anything has begun. */
static int plan_with_less(struct ps_job_work *w, uint64_t could)
{
    char text[700];
    (void) snprintf(text, sizeof text,
                    "%.500s; planning again with %.1f MiB pinned (ulimit -l is a limit)",
                    w->dt->text, (double) could / (1 << 20));
    warn(w, text);
    w->req.pin_max = could ? could : 1;
    return make_plan(w);
}

/* Where even that is too much, one without the GPU, unless it is asked for. */
static int plan_again(struct ps_job_work *w, uint64_t could)
{
    w->cfg->engine.plan_done(&w->plan);
    ps_slots_close(&w->feed.slots);
    w->planned = false;
    int r = w->req.pin_max ? -PS_EPIN : plan_with_less(w, could);
    if ((r == -PS_EPIN || r == -PS_EBUDGET) && ps_plan_leave_gpu(&w->req)) {
        warn(w, "going on without the GPU: no plan for it needs so little pinned memory");
        ps_job_result_done(w->ret);
        r = make_plan(w);
    }
    if (r < 0) return r;
    w->dt->text[0] = 0;
    return open_slots(w);
}

static int run_plan(struct ps_job_work *w, struct ps_run_stats *st)
{
    struct ps_run_cfg c = w->cfg->run;
    struct ps_run_io io = ps_feed_io(&w->feed);
    c.model = w->cfg->model;
    c.plan = &w->plan;
    c.kv_config = &w->req.kv_config;
    c.dump_kv = w->cfg->dump_kv != NULL;
    if (w->trace) {
        c.trace = ps_trace_task;
        c.trace_ud = w->trace;
    }
    return w->cfg->engine.run(&c, &io, st, w->dt);
}

static int generate(struct ps_job_work *w)
{
    struct ps_run_stats st = { 0 };
    int r = run_plan(w, &st);
    for (int again = 0; r == -PS_EPIN && again < 2; again++) {
        r = plan_again(w, st.pinned_bytes);
        if (!r) r = run_plan(w, &st);
    }
    w->ret->pinned_bytes = st.pinned_bytes;
    memcpy(w->ret->taken_bytes, st.taken_bytes, sizeof st.taken_bytes);
    if (r >= 0) w->feed.last = st;
    if (r < 0 && w->feed.dt.text[0]) *w->dt = w->feed.dt; /* ours is the cause */
    return r;
}

/* Makes what was finished durable, whatever ended the run; keeps the first error. */
static int settle(struct ps_job_work *w, int r)
{
    struct ps_detail first = *w->dt;
    int e = ps_output_sync(&w->output, w->dt);
    ps_feed_sums(&w->feed, &w->feed.last, w->ret->sums);
    if (e >= 0) e = note_sums(w);
    if (r < 0) *w->dt = first;
    if (r >= 0 && e < 0) r = e;
    for (int i = 0; i < PS_SUM__COUNT; i++) w->ret->sums[i] += w->journal.sums[i];
    return r;
}

static int report(struct ps_job_work *w)
{
    struct ps_report rep = { w->cfg, w->ret, w->planned ? &w->plan : NULL, &w->req,
                             w->predicted.run.sweeps ? &w->predicted : NULL };
    ps_report_limit(&rep, w->ret->limit, sizeof w->ret->limit);
    return w->cfg->report ? ps_report_write(&rep, w->cfg->report, w->dt) : 0;
}

static int run_it(struct ps_job_work *w)
{
    int r = open_feed(w);
    if (!r && w->ret->done < w->ret->requests) r = w->planned && !stopped(w) ? generate(w) : 0;
    if (!r && !stopped(w)) {
        r = ps_feed_drain(&w->feed);
        if (r < 0) *w->dt = w->feed.dt;
    }
    r = settle(w, r);
    if (r < 0) return r;
    if (w->ret->done < w->ret->requests) {
        w->ret->interrupted = true;
        return stopped(w) || r == PS_GO_STOP
                   ? 0
                   : ps_fail(w->dt, -EPROTO, "the run ended with %llu of %llu requests",
                             (unsigned long long) w->ret->done,
                             (unsigned long long) w->ret->requests);
    }
    ps_job_phase(w, PS_JOB_ORDERING, w->ret->done);
    return ps_output_finish(&w->output, &w->table, w->cfg->order_completion, w->cfg->stop, w->dt);
}

/* A report of what is asked for and predicted, if one is wanted. */
static int dry_run(struct ps_job_work *w)
{
    int r = ps_output_check_parts(&w->output, w->resume ? &w->journal.part : NULL, w->dt);
    if (r < 0) return r;
    w->ret->prompt_tokens = w->first.stats.prompt_tokens;
    w->ret->failed = w->first.failed;
    r = report(w);
    if (r < 0 || !w->planned) return r;
    w->ret->plan_text = w->cfg->engine.plan_text(&w->req, &w->plan);
    return w->ret->plan_text ? 0 : -ENOMEM;
}

static int course(struct ps_job_work *w)
{
    int r = ps_output_init(&w->output, w->cfg->output, w->cfg->dump_kv);
    if (!r) r = ps_job_open_input(w);
    if (!r) r = ps_job_open_output(w);
    if (r > 0) {
        if (w->cfg->report && access(w->cfg->report, F_OK) < 0) return report(w);
        return 0;
    }
    if (!r) r = ps_job_read_input(w);
    if (!r) warn_requests(w);
    if (!r && !w->table.n) return report(w);
    if (!r && w->first.stats.requests) r = make_first_plan(w);
    if (r < 0) return r;
    if (w->cfg->dry_run) return dry_run(w);
    r = begin(w);
    if (!r) r = run_it(w);
    if (r < 0 && r != -ECANCELED) return r;
    w->ret->interrupted |= r == -ECANCELED;
    int e = report(w);
    /* Only a job that is over loses its journal. */
    if (!w->ret->interrupted) w->journal.remove = true;
    return e;
}

int ps_job_run(const struct ps_job_cfg *cfg, struct ps_job_result *ret, struct ps_detail *dt)
{
    struct ps_detail own = { "" };
    struct ps_job_work *w = ps_calloc(1, sizeof *w);
    if (!w) return -ENOMEM;
    *w = (struct ps_job_work) {
        .cfg = cfg, .ret = ret, .dt = dt ? dt : &own, .in_fd = -1, .t0 = ps_job_now_s()
    };
    w->output.out.fd = w->output.kept.fd = w->journal.fd = w->spool.out.fd = w->table.out.fd =
        w->feed.slots.fd = -1;
    int r = course(w);
    if (r == -ECANCELED && stopped(w)) {
        ret->interrupted = true;
        r = 0;
    }
    if (r < 0 && !w->dt->text[0]) r = ps_fail(w->dt, r, "%s", ps_err_str(r));
    struct ps_detail trace_dt = { "" };
    const int e = ps_trace_close(w->trace, &trace_dt);
    if (e < 0 && r < 0) warn(w, trace_dt.text);
    if (e < 0 && !r) r = ps_fail(w->dt, e, "%s", trace_dt.text);
    ps_recorder_done(&w->feed.rec);
    ps_slots_close(&w->feed.slots);
    if (w->planned) cfg->engine.plan_done(&w->plan);
    ps_spool_close(&w->spool);
    ps_table_close(&w->table);
    ps_output_done(&w->output);
    if (w->journal_open) ps_journal_close(&w->journal);
    if (w->in_fd >= 0) (void) close(w->in_fd);
    free(w);
    return r;
}

void ps_job_result_done(struct ps_job_result *r)
{
    free(r->plan_text);
    r->plan_text = NULL;
}
