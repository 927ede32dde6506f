/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: one line that is written over on a terminal, a line every ten seconds elsewhere; and what is said at the end. */
#include "engine/cli/generate.h"
#include "engine/job/first_pass.h"
#include <inttypes.h>
#include <stdio.h>

static struct ui {
    bool terminal;
    double last;
} ui;

static void duration(double s, char text[32])
{
    unsigned long t = (unsigned long) (s + 0.5);
    if (s < 0)
        (void) snprintf(text, 32, "?");
    else if (t < 3600)
        (void) snprintf(text, 32, "%lu:%02lu", t / 60, t % 60);
    else
        (void) snprintf(text, 32, "%lu:%02lu:%02lu", t / 3600, t / 60 % 60, t % 60);
}

static void describe(const struct ps_job_progress *p, char *text, size_t n)
{
    char left[32];
    duration(p->left_s, left);
    switch (p->phase) {
    case PS_JOB_READING: (void) snprintf(text, n, "reading requests: %" PRIu64, p->done); break;
    case PS_JOB_ORDERING:
        (void) snprintf(text, n, "putting %" PRIu64 " result%s in order", p->total,
                        ps_plural(p->total));
        break;
    case PS_JOB_RUNNING:
        (void) snprintf(text, n,
                        "%" PRIu64 "/%" PRIu64 " request%s, %u under way, %" PRIu64
                        " token%s, %.1f tokens/s, %s left",
                        p->done, p->total, ps_plural(p->total), p->active, p->generated,
                        ps_plural(p->generated),
                        p->elapsed_s > 0 ? (double) p->generated / p->elapsed_s : 0, left);
        break;
    }
}

static void on_progress(void *ud, const struct ps_job_progress *p)
{
    char text[200];
    double now = ps_job_now_s();
    if (ui.last == 0) ui.last = now;
    if (now - ui.last < (ui.terminal ? 0.2 : 10)) return;
    ui.last = now;
    describe(p, text, sizeof text);
    if (ui.terminal)
        ps_progress_line(text);
    else
        ps_say("%s", text);
}

void ps_generate_ui(struct ps_job_cfg *job, enum ps_progress_mode mode)
{
    ui.terminal = mode == PS_PROGRESS_AUTO && isatty(STDERR_FILENO);
    if (mode != PS_PROGRESS_NONE) job->progress = on_progress;
    job->warn = ps_say_warning;
    job->run.warn = ps_say_warning;
}

void ps_generate_summary(const struct ps_job_cfg *job, const struct ps_job_result *r)
{
    const char *errors = r->failed == 1 ? "an error" : "errors";
    char time[32];
    if (!job->limit) {
        ps_say("--limit 0: there is nothing to do, and no result");
        return;
    }
    if (!r->requests && !r->interrupted) {
        ps_say("%s holds no request: there is nothing to do, and no result", job->input);
        return;
    }
    if (r->already_done) {
        ps_say("%s is complete already: %" PRIu64 " result%s, %" PRIu64
               " of them %s (--no-resume does it again)",
               job->output, r->requests, ps_plural(r->requests), r->failed, errors);
        return;
    }
    if (r->interrupted && !r->done) {
        ps_say("interrupted before the first result; the same command begins again");
        return;
    }
    if (r->interrupted) {
        ps_say("interrupted; %" PRIu64 " of %" PRIu64
               " result%s in %s.part: the same command%s goes on",
               r->done, r->requests, r->requests == 1 ? " is kept" : "s are kept", job->output,
               job->no_resume ? " without --no-resume" : "");
        return;
    }
    double s = r->sums[PS_SUM_TOTAL_S], gen = r->sums[PS_SUM_PREFILL_S] + r->sums[PS_SUM_DECODE_S];
    duration(s, time);
    ps_say("%" PRIu64 " result%s in %s (%" PRIu64 " of them %s): %" PRIu64 " prompt and %" PRIu64
           " generated token%s in %s, %.1f tokens/s%s%s",
           r->requests, ps_plural(r->requests), job->output, r->failed, errors, r->prompt_tokens,
           r->generated_tokens, ps_plural(r->generated_tokens), time,
           gen > 0 ? (double) r->generated_tokens / gen : 0, r->limit[0] ? "; limited by " : "",
           r->limit);
}
