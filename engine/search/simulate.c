/* SPDX-License-Identifier: Apache-2.0 */
/* Twice through the job: once all its sweeps are only laid out, to know which stand for which (sample.h), then those are run, each in its
 * place. What was measured of them is added up by their weights. */
#include "engine/search/simulate.h"
#include "engine/base/ps_mem.h"
#include "engine/plan/layout.h"
#include "engine/search/repeat.h"
#include "engine/search/sample.h"
#include "engine/search/waits.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>

/* What is only known of sweeps that ran, as one list of numbers. */
enum { FIGURES = 2 + PS_Q__COUNT * 4 + PS_OP__COUNT + PS_KIND__COUNT + 1 };
struct figures {
    double at[FIGURES];
};

struct simulation {
    const struct ps_simulate_cfg *cfg;
    struct ps_length_feed feed;
    struct ps_loads loads;
    struct ps_laid laid;
    struct ps_repeat repeat;
    struct ps_picks sample;
    struct figures *took, before; /* took: of each pick */
    uint32_t to_run, measured;    /* picks */
    uint64_t asked;               /* sweeps */
    struct ps_waits waits;
    struct ps_detail outside;
};

/* ---- figures */

static void put(struct figures *f, unsigned *n, double x) { f->at[(*n)++] = x; }

static struct figures figures_of(const struct ps_run_stats *s)
{
    const struct ps_dev_stats *d = &s->dev;
    struct figures f;
    unsigned n = 0;
    put(&f, &n, s->prefill_s);
    put(&f, &n, s->decode_s);
    for (int q = 0; q < PS_Q__COUNT; q++) {
        put(&f, &n, (double) d->tasks[q]);
        put(&f, &n, (double) d->busy_ns[q]);
        put(&f, &n, d->flops[q]);
        put(&f, &n, d->mem_bytes[q]);
    }
    for (int o = 0; o < PS_OP__COUNT; o++) put(&f, &n, (double) d->op_ns[o]);
    for (int k = 0; k < PS_KIND__COUNT; k++) put(&f, &n, (double) d->stall_ns[k]);
    put(&f, &n, (double) d->idle_ns);
    assert(n == FIGURES);
    return f;
}

static double get(const struct figures *f, unsigned *n) { return f->at[(*n)++]; }
static uint64_t get_whole(const struct figures *f, unsigned *n)
{
    return (uint64_t) llround(fmax(get(f, n), 0));
}

static void set_figures(const struct figures *f, struct ps_run_stats *s)
{
    struct ps_dev_stats *d = &s->dev;
    unsigned n = 0;
    s->prefill_s = get(f, &n);
    s->decode_s = get(f, &n);
    for (int q = 0; q < PS_Q__COUNT; q++) {
        d->tasks[q] = get_whole(f, &n);
        d->busy_ns[q] = get_whole(f, &n);
        d->flops[q] = get(f, &n);
        d->mem_bytes[q] = get(f, &n);
    }
    for (int o = 0; o < PS_OP__COUNT; o++) d->op_ns[o] = get_whole(f, &n);
    for (int k = 0; k < PS_KIND__COUNT; k++) d->stall_ns[k] = get_whole(f, &n);
    d->idle_ns = get_whole(f, &n);
}

/* The job's, from those of the sweeps that ran. */
static void sum_up(struct simulation *x, struct ps_run_stats *s)
{
    struct figures sum = { { 0 } };
    for (uint32_t i = 0; i < x->sample.n; i++)
        for (unsigned k = 0; x->sample.at[i].counts && k < FIGURES; k++)
            sum.at[k] += x->sample.at[i].weight * x->took[i].at[k];
    set_figures(&sum, s);
}

/* ---- the scheduler's questions */

static int next(void *ud, struct ps_seq **ret)
{
    return ps_length_feed_next(&((struct simulation *) ud)->feed, ret);
}

static int scored(void *ud, struct ps_seq *s, uint32_t first, const struct ps_sample_out *out,
                  uint32_t n)
{
    return 0;
}

static int token(void *ud, struct ps_seq *s, uint32_t index, const struct ps_sample_out *out,
                 bool *ret_end)
{
    struct simulation *x = ud;
    if (!index) ps_waits_begin(&x->waits, s->key, x->asked - 1);
    return 0;
}

static int end(void *ud, struct ps_seq *s)
{
    struct simulation *x = ud;
    if (!s->max_tokens) ps_waits_begin(&x->waits, s->key, x->asked - 1);
    ps_waits_end(&x->waits, s->key, x->asked - 1);
    ps_length_feed_end(&x->feed, s);
    return 0;
}

static bool cancelled(const struct simulation *x) { return x->cfg->stop && *x->cfg->stop; }

static int lay(void *ud, const struct ps_sweep_shape *h)
{
    struct simulation *x = ud;
    double load[PS_LOAD__COUNT];
    x->asked = h->sweep + 1;
    ps_loads_of(&x->loads, h, load);
    ps_laid_add(&x->laid, load);
    ps_repeat_sweep(&x->repeat, h);
    return cancelled(x) ? -ECANCELED : 1;
}

static int pick(void *ud, const struct ps_sweep_shape *h)
{
    struct simulation *x = ud;
    struct ps_pick *p = &x->sample.at[x->to_run];
    if (cancelled(x)) return -ECANCELED;
    x->asked = h->sweep + 1;
    if (x->to_run == x->sample.n || p->sweep != h->sweep) return 1;
    ps_loads_of(&x->loads, h, p->load);
    x->to_run++;
    return 0;
}

static int count(void *ud, const struct ps_run_stats *stats)
{
    ps_repeat_stats(&((struct simulation *) ud)->repeat, stats);
    return PS_GO_ON;
}

/* The sweep before the one that was asked about last. */
static int measure(void *ud, const struct ps_run_stats *stats)
{
    struct simulation *x = ud;
    const struct figures now = figures_of(stats);
    if (x->measured < x->sample.n && x->sample.at[x->measured].sweep == stats->sweeps - 1) {
        struct figures *to = &x->took[x->measured++];
        for (unsigned k = 0; k < FIGURES; k++) to->at[k] = now.at[k] - x->before.at[k];
    }
    x->before = now;
    return PS_GO_ON;
}

static int run(struct simulation *x, bool laying, struct ps_run_stats *ret, struct ps_detail *dt)
{
    const struct ps_simulate_cfg *c = x->cfg;
    const struct ps_sim_cfg sim = { .profile = c->profile,
                                    .gpu = c->plan->detail->gpu,
                                    .trace = laying ? NULL : c->trace,
                                    .trace_ud = c->trace_ud,
                                    .outside = &x->outside };
    const struct ps_run_cfg cfg = { .model = c->model,
                                    .plan = c->plan,
                                    .kv_config = c->kv_config,
                                    .threads = c->profile->threads,
                                    .schedule = c->schedule,
                                    .sim = &sim };
    const struct ps_run_io io = { .ud = x,
                                  .next = next,
                                  .scored = scored,
                                  .token = token,
                                  .end = end,
                                  .sweep = laying ? count : measure,
                                  .skip = laying ? lay : pick };
    ps_length_feed_rewind(&x->feed);
    x->asked = 0;
    return ps_run(&cfg, &io, ret, dt);
}

/* From the laid sweeps' times, the waits of the requests that were looked at. */
static int find_waits(struct simulation *x, struct ps_simulated *ret)
{
    for (uint32_t i = 0; i < x->sample.n; i++)
        x->took[i].at[0] += x->took[i].at[1]; /* prefill and decode */
    ps_sample_times(&x->laid, &x->sample, &x->took[0].at[0], FIGURES);
    return ps_waits_find(&x->waits, &x->laid, ret);
}

/* ---- */

/* What is run unless the caller says how much: about so many tasks, whatever a sweep has of them. */
enum { TASKS = 4000000, MOST_SWEEPS = 256, LEAST_SWEEPS = 16 };

static uint32_t most_sweeps(const struct ps_simulate_cfg *c)
{
    const double chunks = c->model->n_chunks, mbs = c->plan->micro_batches,
                 layers = c->model->shape.layers,
                 steps = c->plan->detail->gpu ? 16 * layers : 8 * layers + chunks;
    if (c->every_sweep) return UINT32_MAX;
    if (c->most_sweeps) return c->most_sweeps;
    return (uint32_t) fmax(LEAST_SWEEPS, fmin(MOST_SWEEPS, TASKS / (2 * chunks + mbs * steps)));
}

static int simulate(struct simulation *x, struct ps_simulated *ret, struct ps_detail *dt)
{
    int r = run(x, true, &ret->run, dt);
    if (r < 0) return r;
    ps_repeat_end(&x->repeat);
    ps_laid_repeat(&x->laid, x->repeat.from, x->repeat.to, x->repeat.times);
    ps_waits_repeat(&x->waits, x->feed.n, x->repeat.begin.asked, x->repeat.end.asked,
                    x->repeat.times);
    r = ps_sample_pick(&x->laid, most_sweeps(x->cfg), &x->sample);
    if (r < 0) return r;
    x->took = ps_calloc(x->sample.n + 1, sizeof *x->took);
    if (!x->took) return -ENOMEM;
    r = run(x, false, &ret->run, dt);
    if (r < 0) return r;
    for (int q = 0; q < PS_Q__COUNT; q++) ret->tasks_run += ret->run.dev.tasks[q];
    ret->sweeps_run = x->sample.n;
    ps_repeat_count(&x->repeat, &ret->run);
    if (x->sample.n < ret->run.sweeps) {
        ps_sample_weigh(&x->laid, &x->sample);
        sum_up(x, &ret->run);
    }
    ret->total_s = ret->run.prefill_s + ret->run.decode_s;
    return 0;
}

/* Tokens that are laid out of a job whose requests differ. */
enum { LAID = 1 << 22, LAID_COARSE = 1 << 19 };

/* Of requests that are alike few are handed out. */
static uint64_t waits_of(const struct simulation *x)
{
    const uint64_t few = 1 << 16, n = x->feed.n;
    return x->feed.all.alike && !x->cfg->every_sweep && n > few ? few : n;
}

static int prepare(struct simulation *x, struct ps_detail *dt)
{
    const struct ps_simulate_cfg *c = x->cfg;
    int r = ps_length_feed_init(&x->feed, c->lengths, c->plan, dt);
    if (!r)
        ps_repeat_init(&x->repeat, &x->feed, c->plan, c->coarse ? LAID_COARSE : LAID,
                       c->every_sweep);
    if (!r) r = ps_loads_init(&x->loads, x->cfg);
    if (!r) r = ps_laid_init(&x->laid);
    if (!r) r = ps_waits_init(&x->waits, waits_of(x));
    return r;
}

int ps_simulate(const struct ps_simulate_cfg *cfg, struct ps_simulated *ret, struct ps_detail *dt)
{
    struct simulation x = { .cfg = cfg };
    struct ps_simulated s = { 0 };
    int r = prepare(&x, dt);
    if (!r) r = simulate(&x, &s, dt);
    if (!r) r = find_waits(&x, &s);
    s.outside = x.outside.text[0] != '\0';
    (void) snprintf(s.outside_what, sizeof s.outside_what, "%.159s", x.outside.text);
    ps_waits_done(&x.waits);
    ps_laid_done(&x.laid);
    ps_loads_done(&x.loads);
    ps_length_feed_done(&x.feed);
    free(x.sample.at);
    free(x.took);
    if (r == -ENOMEM && dt && !dt->text[0]) return ps_fail(dt, r, "simulation: out of memory");
    if (r < 0) return r == -ENOMEM ? ps_fail_in(dt, r, "simulation") : r;
    *ret = s;
    return 0;
}
