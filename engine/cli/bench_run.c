/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a row: through the scheduler, with requests that are there without any file; or simulated. */
#include "engine/base/ps_mem.h"
#include "engine/cli/bench.h"
#include "engine/job/first_pass.h"
#include "engine/job/lengths_of.h"
#include "engine/job/report.h"
#include "engine/search/lengths.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { TEXT_TOKENS = 1 << 16, STEP = 10007 }; /* prompts begin so far apart in one random text */

struct one {
    struct ps_seq seq;
    uint64_t hash;
};
struct source {
    const struct ps_bench *b;
    const struct ps_bench_row *row;
    struct ps_bench_run *run;
    struct one *seqs, **unused; /* as many as are under way at most, and one */
    uint32_t n_unused;
    int32_t *text;
    uint64_t at;
    double told_s, t0;
    struct ps_projection project; /* sweeps 0: a whole run */
    bool projected;
};

static int open_source(struct source *s)
{
    const struct ps_bench_row *row = s->row;
    const size_t room = (size_t) row->plan.slots * row->plan.micro_batches + 1,
                 text = (size_t) TEXT_TOKENS + row->prompt.most;
    const uint32_t vocab = row->model->packed->shape.vocab, special = vocab > 8 ? 4 : 0;
    s->seqs = ps_calloc(room, sizeof *s->seqs);
    s->unused = ps_calloc(room, sizeof *s->unused);
    s->text = ps_calloc(text, sizeof *s->text);
    if (!s->seqs || !s->unused || !s->text) return -ENOMEM;
    for (size_t i = 0; i < room; i++) s->unused[i] = &s->seqs[i];
    for (size_t i = 0; i < text; i++)
        s->text[i] = (int32_t) (special + XXH64(&i, sizeof i, s->b->seed) % (vocab - special));
    s->n_unused = (uint32_t) room;
    return 0;
}

static void close_source(struct source *s)
{
    free(s->seqs);
    free(s->unused);
    free(s->text);
}

static int on_next(void *ud, struct ps_seq **ret)
{
    struct source *s = ud;
    if (s->at == s->row->requests) return 0;
    struct one *o = s->unused[--s->n_unused];
    *o = (struct one) { .seq = { .prompt = s->text + s->at * STEP % TEXT_TOKENS,
                                 .n_prompt = ps_lengths_prompt(&s->row->lengths, s->at),
                                 .max_tokens = ps_lengths_gen(&s->row->lengths, s->at),
                                 .key = s->at,
                                 .top_p = 1,
                                 .ud = o } };
    o->seq.score_prompt = !o->seq.max_tokens;
    s->at++;
    *ret = &o->seq;
    return 1;
}

static int on_scored(void *ud, struct ps_seq *q, uint32_t first, const struct ps_sample_out *out,
                     uint32_t n)
{
    struct one *o = q->ud;
    for (uint32_t i = 0; i < n; i++) o->hash = XXH64(&out[i].token, sizeof out[i].token, o->hash);
    return 0;
}

static int on_token(void *ud, struct ps_seq *q, uint32_t index, const struct ps_sample_out *out,
                    bool *ret_end)
{
    struct one *o = q->ud;
    struct source *s = ud;
    o->hash = XXH64(&out->token, sizeof out->token, o->hash);
    if (index >= s->project.leader) s->project.leader = index + 1;
    return 0;
}

static uint32_t on_jump(void *ud, const struct ps_seq *q, uint32_t made)
{
    return ((struct source *) ud)->project.skip;
}

static int on_end(void *ud, struct ps_seq *q)
{
    struct source *s = ud;
    struct one *o = q->ud;
    s->run->hash += XXH64(&o->hash, sizeof o->hash, q->key);
    s->run->requests++;
    s->unused[s->n_unused++] = o;
    return 0;
}

static int on_sweep(void *ud, const struct ps_run_stats *st)
{
    struct source *s = ud;
    const double now = ps_job_now_s();
    if (isatty(STDERR_FILENO) && now - s->told_s > 0.2) {
        char text[200];
        (void) snprintf(text, sizeof text,
                        "%s: %" PRIu64 "/%" PRIu64 " request%s, %" PRIu64 " token%s in %.0f s",
                        s->row->name, s->run->requests, s->row->requests,
                        ps_plural(s->row->requests), st->generated_tokens,
                        ps_plural(st->generated_tokens), now - s->t0);
        ps_progress_line(text);
        s->told_s = now;
    }
    if (*ps_signals_count()) return PS_GO_STOP;
    s->projected = s->project.sweeps && ps_project_sweep(&s->project, st);
    return s->projected ? PS_GO_STOP : PS_GO_ON;
}

/* From here on the peak is counted anew; where that is not allowed, it is the process's, and not the run's. */
static bool forget_peak(void)
{
    ps_auto_close int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "5", 1) == 1;
}

/* The whole of a run, or of what it stands for. */
static void take_times(const struct source *s, struct ps_bench_run *ret)
{
    ret->complete = s->projected || ret->requests == s->row->requests;
    ret->prefill_s = ret->st.prefill_s;
    ret->decode_s = ret->st.decode_s;
    ret->prompt_tokens = ret->st.prompt_tokens;
    ret->generated_tokens = ret->st.generated_tokens;
    if (s->projected) ps_project(&s->project, ret);
}

static int run_plan(struct ps_bench *b, struct ps_bench_row *row, struct ps_bench_run *ret,
                    struct ps_detail *dt)
{
    struct source s = { .b = b, .row = row, .run = ret, .t0 = ps_job_now_s() };
    struct ps_run_cfg c = row->args.job.run;
    c.model = row->model->packed;
    c.plan = &row->plan;
    c.kv_config = &row->req.kv_config;
    c.schedule = &row->how;
    c.warn = ps_say_warning;
    const struct ps_run_io io = { .ud = &s,
                                  .next = on_next,
                                  .scored = on_scored,
                                  .token = on_token,
                                  .jump = on_jump,
                                  .end = on_end,
                                  .sweep = on_sweep };
    if (ps_bench_projects(b, row))
        s.project = (struct ps_projection) { .sweeps = b->project,
                                             .gen = row->gen.most,
                                             .requests = (uint32_t) row->requests,
                                             .place = -1 };
    const bool fresh = forget_peak();
    *ret = (struct ps_bench_run) { 0 };
    int r = open_source(&s);
    if (!r) r = ps_run(&c, &io, &ret->st, dt);
    close_source(&s);
    ps_progress_end();
    if (fresh) ret->peak_host = ps_peak_rss_bytes();
    take_times(&s, ret);
    return r == PS_GO_STOP && s.projected ? 0 : r;
}

/* No more than that can be pinned: another plan; where even that is too much, one without the GPU, unless it is asked for. */
static int plan_again(struct ps_bench *b, struct ps_bench_row *row, uint64_t could,
                      struct ps_detail *dt)
{
    int r = -PS_EPIN;
    if (!row->req.pin_max) {
        ps_say_warning(NULL, dt->text);
        row->req.pin_max = could ? could : 1;
        r = ps_bench_replan(b, row, dt);
    }
    if ((r != -PS_EPIN && r != -PS_EBUDGET) || !ps_plan_leave_gpu(&row->req)) return r;
    ps_say_warning(NULL, "going on without the GPU: no plan for it needs so little pinned memory");
    return ps_bench_replan(b, row, dt);
}

static int run_row(struct ps_bench *b, struct ps_bench_row *row, struct ps_bench_run *ret,
                   struct ps_detail *dt)
{
    int r = run_plan(b, row, ret, dt);
    for (int again = 0; r == -PS_EPIN && again < 2; again++) {
        r = plan_again(b, row, ret->st.pinned_bytes, dt);
        if (!r) r = run_plan(b, row, ret, dt);
    }
    return r;
}

static int simulate(struct ps_bench *b, struct ps_bench_row *row, struct ps_bench_run *ret,
                    struct ps_detail *dt)
{
    const struct ps_simulate_cfg cfg = { .model = row->model->packed,
                                         .plan = &row->plan,
                                         .kv_config = &row->req.kv_config,
                                         .profile = &row->args.planning.profile,
                                         .lengths = &row->lengths,
                                         .schedule = &row->how,
                                         .stop = ps_signals_count() };
    struct ps_simulated s = { 0 };
    *ret = (struct ps_bench_run) { 0 };
    int r = ps_simulate(&cfg, &s, dt);
    if (r < 0) return r;
    ret->st = s.run;
    ret->prefill_s = s.run.prefill_s;
    ret->decode_s = s.run.decode_s;
    ret->prompt_tokens = s.run.prompt_tokens;
    ret->generated_tokens = s.run.generated_tokens;
    ret->requests = row->requests;
    ret->complete = true;
    if (s.outside) memcpy(ret->outside, s.outside_what, sizeof ret->outside);
    return 0;
}

int ps_bench_measure(struct ps_bench *b, struct ps_bench_row *row)
{
    int r = row->planned ? 0 : ps_bench_plan(b, row, &row->dt);
    if (!r && !row->run) row->run = ps_calloc(b->repeats, sizeof *row->run);
    if (!r && !row->run) r = -ENOMEM;
    if (!r) r = (b->profile ? simulate : run_row)(b, row, &row->run[row->n_runs], &row->dt);
    if (r == -ECANCELED) return 1;
    if (r >= 0) row->n_runs++;
    if (r < 0) row->err = r;
    if (r < 0 && !row->dt.text[0]) (void) ps_fail(&row->dt, r, "%s", ps_err_str(r));
    return r > 0;
}

void ps_bench_row_done(struct ps_bench_row *row)
{
    if (row->planned) ps_plan_done(&row->plan);
    ps_generate_close(&row->where);
    ps_lengths_done(&row->lengths);
    ps_lengths_done(&row->of_job);
    free(row->own_job);
    free(row->text);
    free(row->run);
}
