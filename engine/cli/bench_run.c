/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a row as generate would, and runs it: through the scheduler, with requests that are there without any file; or simulated. */
#include "engine/base/ps_mem.h"
#include "engine/cli/bench.h"
#include "engine/cli/plan.h"
#include "engine/job/first_pass.h"
#include "engine/job/report.h"
#include "engine/search/simulate.h"
#include "offload/profile_set.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- the plan */

static struct ps_job_stats stats_of(const struct ps_bench_row *row, uint64_t n)
{
    return (struct ps_job_stats) { .requests = n,
                                   .prompt_tokens = n * row->prompt,
                                   .max_new_tokens = n * row->gen,
                                   .longest_prompt = row->prompt,
                                   .longest_total = row->prompt + row->gen };
}

/* Defaults as plan has them. */
static int described_machine(const struct ps_bench *b, const struct ps_bench_row *row,
                             struct ps_plan_req *ret, struct ps_detail *dt)
{
    struct ps_point p = { .engine = row->engine,
                          .profile = *b->profile,
                          .prompt_len = row->prompt,
                          .gen_len = row->gen,
                          .requests = row->requests };
    p.engine.plan.prefetch = ret->prefetch;
    int r = ps_point_complete(&p, b->packed, dt);
    if (!r) *ret = p.engine.plan;
    return r;
}

static int find_machine(struct ps_bench *b, struct ps_bench_row *row, struct ps_detail *dt)
{
    struct ps_generate_args *a = &row->args;
    struct ps_job_cfg *j = &a->job;
    const char *beside = b->output ? b->output : "bench";
    *a = (struct ps_generate_args) { .model = b->model, .engine = row->engine };
    j->plan = row->engine.plan;
    j->run = row->engine.run;
    j->model = b->packed;
    if (row->how.barrier && !j->plan.prefetch) j->plan.prefetch = 1;
    if (b->profile) return described_machine(b, row, &j->plan, dt);
    int r = ps_generate_machine(a, beside, &row->where, dt);
    if (r < 0) return r;
    if (j->gpu) (void) snprintf(b->gpu, sizeof b->gpu, "%s", j->gpu->name);
    struct ps_bench_probed *p = &b->probed[j->gpu != NULL];
    if (!p->is) {
        j->report = ""; /* wants rates, however small the model */
        ps_generate_probe(a, row->where.offload_dir);
        *p = (struct ps_bench_probed) { true, j->plan.rates };
    }
    j->plan.rates = p->rates;
    return 0;
}

static int plan_for(struct ps_bench_row *row, uint64_t n, struct ps_detail *dt)
{
    if (row->planned) ps_plan_done(&row->plan);
    row->planned = false;
    row->req.job = stats_of(row, n);
    int r = ps_plan_make(&row->req, &row->plan, &row->text, dt);
    row->planned = r >= 0;
    return r;
}

/* Whether so much is left out that it is worth it. */
static bool projects(const struct ps_bench *b, const struct ps_bench_row *row)
{
    return b->project && row->gen > 3 * (uint64_t) b->project + 8;
}

static int plan_row(struct ps_bench *b, struct ps_bench_row *row, struct ps_detail *dt)
{
    enum { LONG_JOB = 1 << 20 };
    const uint32_t positions = b->packed->shape.positions;
    if ((uint64_t) row->prompt + row->gen > positions)
        return ps_fail(dt, -PS_EUSAGE,
                       "%" PRIu32 " + %" PRIu32 " tokens: %s has %" PRIu32 " positions",
                       row->prompt, row->gen, b->packed->shape.name, positions);
    int r = find_machine(b, row, dt);
    if (r < 0) return r;
    row->req = row->args.job.plan;
    row->req.model = b->packed;
    r = plan_for(row, row->requests ? row->requests : LONG_JOB, dt);
    if (r < 0) return r;
    const uint64_t block = (uint64_t) row->plan.slots * row->plan.micro_batches;
    if (!row->requests) row->requests = 2 * block;
    if (projects(b, row) && row->requests > block) row->requests = block;
    return 0;
}

/* ---- the run */

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
                 text = (size_t) TEXT_TOKENS + row->prompt;
    const uint32_t vocab = s->b->packed->shape.vocab, special = vocab > 8 ? 4 : 0;
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
                                 .n_prompt = s->row->prompt,
                                 .max_tokens = s->row->gen,
                                 .key = s->at,
                                 .top_p = 1,
                                 .ud = o } };
    s->at++;
    *ret = &o->seq;
    return 1;
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
        (void) snprintf(
            text, sizeof text, "%s: %" PRIu64 "/%" PRIu64 " requests, %" PRIu64 " tokens in %.0f s",
            s->row->name, s->run->requests, s->row->requests, st->generated_tokens, now - s->t0);
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
    c.model = b->packed;
    c.plan = &row->plan;
    c.kv_config = &row->req.kv_config;
    c.schedule = &row->how;
    c.warn = ps_say_warning;
    const struct ps_run_io io = { .ud = &s,
                                  .next = on_next,
                                  .token = on_token,
                                  .jump = on_jump,
                                  .end = on_end,
                                  .sweep = on_sweep };
    if (projects(b, row))
        s.project = (struct ps_projection) {
            .sweeps = b->project, .gen = row->gen, .requests = (uint32_t) row->requests, .place = -1
        };
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

static int run_row(struct ps_bench *b, struct ps_bench_row *row, struct ps_bench_run *ret,
                   struct ps_detail *dt)
{
    int r = run_plan(b, row, ret, dt);
    if (r != -PS_EPIN || ret->st.pinned_bytes >= row->plan.pinned_bytes) return r;
    ps_say_warning(NULL, dt->text);
    row->req.pin_max = ret->st.pinned_bytes; /* no more can be pinned */
    r = plan_for(row, row->requests, dt);
    return r < 0 ? r : run_plan(b, row, ret, dt);
}

static int simulate(struct ps_bench *b, struct ps_bench_row *row, struct ps_bench_run *ret,
                    struct ps_detail *dt)
{
    const struct ps_lengths lengths = { .n = row->requests,
                                        .each_prompt = row->prompt,
                                        .each_gen = row->gen };
    struct ps_profile machine = *b->profile;
    ps_profile_threads(&machine, row->req.threads);
    const struct ps_simulate_cfg cfg = { .model = b->packed,
                                         .plan = &row->plan,
                                         .kv_config = &row->req.kv_config,
                                         .profile = &machine,
                                         .lengths = &lengths,
                                         .schedule = &row->how,
                                         .stop = ps_signals_count() };
    struct ps_simulated s = { 0 };
    *ret = (struct ps_bench_run) { 0 };
    int r = ps_simulate(&cfg, &s, dt);
    if (r == -ECANCELED) return PS_GO_STOP;
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
    int r = row->planned ? 0 : plan_row(b, row, &row->dt);
    if (!r && !row->run) row->run = ps_calloc(b->repeats, sizeof *row->run);
    if (!r && !row->run) r = -ENOMEM;
    if (!r) r = (b->profile ? simulate : run_row)(b, row, &row->run[row->n_runs], &row->dt);
    if (r >= 0) row->n_runs++;
    if (r < 0) row->err = r;
    if (r < 0 && !row->dt.text[0]) (void) ps_fail(&row->dt, r, "%s", ps_err_str(r));
    return r > 0;
}

void ps_bench_row_done(struct ps_bench_row *row)
{
    if (row->planned) ps_plan_done(&row->plan);
    ps_generate_close(&row->where);
    free(row->text);
    free(row->run);
}
