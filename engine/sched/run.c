/* SPDX-License-Identifier: Apache-2.0 */
/* A run: what it needs is opened (open.c), weights are loaded, then sweeps. A sweep takes the tokens of the last one, admits, embeds, goes
 * over the layers with all micro-batches, and ends with the head. The stem (token table) passes by once per sweep: for the head of one
 * sweep and the embedding of the next. */
#include "engine/base/ps_mem.h"
#include "engine/sched/open.h"

/* ---- sweeps */

/* The device's own clock: of the wall, or virtual. */
static double clock_s(const struct ps_sched *s)
{
    return ps_dev_is_sim(s->dev) ? ps_dev_sim_now_s(s->dev) : (double) ps_now_ns() * 1e-9;
}

static void get_stats(struct ps_sched *s)
{
    ps_dev_stats_get(s->dev, &s->stats.dev);
    ps_skip_bytes(s, s->stats.dev.bytes);
    s->stats.active = s->active;
}

/* The last sweep's time, split by rows between prompts and decode. */
static void book_time(struct ps_sched *s, uint64_t prompt_rows, uint64_t decode_rows)
{
    if (s->io->skip) get_stats(s);
    double now = clock_s(s), t = now - s->mark_s, rows = (double) (prompt_rows + decode_rows);
    if (rows <= 0) return; /* before the first: what was submitted by now is its own */
    s->mark_s = now;
    s->stats.prefill_s += t * (double) prompt_rows / rows;
    s->stats.decode_s += t * (double) decode_rows / rows;
}

static void count_rows(const struct ps_sched *s, uint64_t *prompt, uint64_t *decode)
{
    *prompt = *decode = 0;
    for (uint32_t k = 0; k < s->plan->micro_batches; k++) {
        *decode += s->mb[k].n_decode;
        *prompt += s->mb[k].n_rows - s->mb[k].n_decode;
    }
}

static int call_sweep(struct ps_sched *s)
{
    if (!s->io->skip) get_stats(s); /* else of the moment when the last one's tokens were there */
    const bool real = !ps_dev_is_sim(s->dev);
    uint64_t t0 = real ? ps_now_ns() : 0;
    int r = s->io->sweep ? s->io->sweep(s->io->ud, &s->stats) : 0;
    if (real) s->stats.host_s += (double) (ps_now_ns() - t0) * 1e-9;
    if (r == PS_GO_STOP) s->stop = true;
    return r < 0 ? r : 0;
}

/* New sequences in, rows laid out. */
static int lay_out(struct ps_sched *s, uint32_t k)
{
    int r = ps_slots_admit(s, k);
    if (!r) ps_slots_lay_rows(s, k);
    return r;
}

static int embed(struct ps_sched *s, uint32_t k)
{
    int r = 0;
    if (s->mb[k].n_rows) r = ps_weights_begin(s, 0);
    if (!r && s->mb[k].n_rows) r = ps_weights_spread(s, k, s->plan->micro_batches);
    return r < 0 ? r : ps_head_embed(s, k);
}

static int take_all(struct ps_sched *s)
{
    int r = 0;
    for (uint32_t k = 0; !r && k < s->plan->micro_batches; k++) r = ps_slots_take_tokens(s, k);
    if (!r && s->how.no_continuous && !s->active) ps_slots_clear(s);
    return r;
}

/* Before anything is submitted or waited for: a simulation's tokens are there at once. */
static int lay_out_all(struct ps_sched *s)
{
    int r = take_all(s);
    for (uint32_t k = 0; !r && !s->stop && k < s->plan->micro_batches; k++) r = lay_out(s, k);
    return r < 0 || s->stop || !s->active ? r : ps_skip_ask(s);
}

/* Tokens of the last sweep out, new sequences in, rows laid out, embedded: micro-batch by micro-batch, so that the job's work on
 * the first overlaps the head of the others. */
static int turn(struct ps_sched *s)
{
    uint64_t prompt, decode;
    const uint32_t mbs = s->plan->micro_batches;
    const bool ask = s->io->skip;
    count_rows(s, &prompt, &decode);
    s->prompt_budget = s->plan->prefill_tokens;
    s->skips = false;
    int r = ask ? lay_out_all(s) : 0;
    for (uint32_t k = 0; !r && s->how.no_continuous && k < mbs; k++) r = ps_slots_wait(s, k);
    if (!r && s->how.no_continuous && !ask) r = take_all(s);
    for (uint32_t k = 0; !r && k < mbs; k++) {
        r = ps_slots_wait(s, k);
        if (!r && !ask) r = ps_slots_take_tokens(s, k);
        if (r < 0) return r;
        if (k == mbs - 1) book_time(s, prompt, decode);
        if (s->stop) continue;
        if (!ask) r = lay_out(s, k);
        if (!r && !s->skips) r = embed(s, k);
    }
    return r;
}

static int layers(struct ps_sched *s)
{
    const uint32_t mbs = s->plan->micro_batches;
    for (uint32_t j = 0; j < s->shape->layers; j++) {
        for (uint32_t k = 0; k < mbs; k++) {
            int r = ps_pass_layer(s, j, k);
            if (r < 0) return r;
        }
        ps_pass_layer_end(s, j);
        /* The job writes down what the last sweep brought while the device has work. */
        if (j == 0 && s->stats.sweeps) {
            int r = call_sweep(s);
            if (r < 0) return r;
        }
    }
    return ps_pass_finish(s);
}

static int sweep(struct ps_sched *s)
{
    const uint32_t mbs = s->plan->micro_batches;
    bool more;
    int r = ps_slots_more(s, &more);
    ps_weights_end(s, 0); /* embedding was its last use */
    if (!r && !more) ps_weights_last(s);
    if (!r) r = layers(s);
    for (uint32_t k = 0; !r && k < mbs; k++) {
        r = ps_weights_begin(s, 0);
        if (!r) r = ps_weights_spread(s, k, mbs);
        if (!r) r = ps_head_run(s, k);
    }
    for (uint32_t k = 0; k < mbs; k++) ps_slots_advance(s, k);
    s->stats.sweeps++;
    if (!r && more) r = ps_kv_ahead(s, 0, 0);
    return r;
}

/* A sweep that is left out (struct ps_run_io). */
static int skip(struct ps_sched *s)
{
    int r = s->stats.sweeps ? call_sweep(s) : 0;
    ps_skip_sweep(s);
    s->stats.sweeps++;
    return r;
}

static int run_sweeps(struct ps_sched *s)
{
    s->mark_s = clock_s(s);
    for (;;) {
        int r = turn(s);
        if (r < 0) return r;
        if (s->stop || !s->active) break;
        r = s->skips ? skip(s) : sweep(s);
        if (r < 0) return r;
    }
    if (!s->stop && s->pending)
        return ps_fail(
            s->dt, -PS_EBUDGET,
            "a sequence of %u prompt tokens and max_tokens %u fits into no slot of this plan (%u "
            "entries a "
            "micro-batch, %u prompt tokens a sweep): the plan was made for other requests",
            s->pending->n_prompt, s->pending->max_tokens, s->d->pool, s->plan->prefill_tokens);
    bool stopped = s->stop;
    int r = ps_dev_drain(s->dev); /* what was read ahead counts, too */
    if (!r) get_stats(s);
    if (!r) r = call_sweep(s);
    return r < 0 ? r : stopped || s->stop ? PS_GO_STOP : 0;
}

/* Weights came to where they stay. */
static void loaded(struct ps_sched *s, double s_taken)
{
    s->stats.load_s = s_taken;
    ps_dev_stats_get(s->dev, &s->stats.dev);
    for (int q = 0; q < PS_Q__COUNT; q++)
        s->stats.load_bytes[q] = (uint64_t) ps_dev_moved(&s->stats.dev, (enum ps_q) q);
}

/* A failed task says more than the code that a later call returned. */
static int explain(struct ps_sched *s, int r)
{
    if (r >= 0 || !s->dev) return r;
    int first = ps_dev_drain(s->dev);
    if (first >= 0) return r;
    if (s->verify_failed) return ps_fail(s->dt, first, "%s", s->verify_detail.text);
    return ps_fail(s->dt, first, "%s", ps_dev_error_text(s->dev));
}

int ps_run(const struct ps_run_cfg *cfg, const struct ps_run_io *io, struct ps_run_stats *ret,
           struct ps_detail *dt)
{
    ps_auto_free struct ps_opened *x = ps_calloc(1, sizeof *x);
    if (!x) return ps_fail(dt, -ENOMEM, "run: out of memory");
    struct ps_detail none;
    x->offload_fd = -1;
    x->s = (struct ps_sched) { .cfg = cfg,
                               .io = io,
                               .m = cfg->model,
                               .shape = &cfg->model->shape,
                               .plan = cfg->plan,
                               .d = cfg->plan->detail,
                               .how = cfg->schedule ? *cfg->schedule : (struct ps_schedule) { 0 },
                               .dt = dt ? dt : &none };
    uint64_t t0 = ps_now_ns();
    int r = ps_open_run(x);
    if (r >= 0) r = ps_weights_load(&x->s);
    if (r >= 0) loaded(&x->s, cfg->sim ? clock_s(&x->s) : (double) (ps_now_ns() - t0) * 1e-9);
    if (r >= 0) r = run_sweeps(&x->s);
    r = explain(&x->s, r);
    if (r >= 0 && x->pinned) ps_dev_cuda_counts(x->s.dev, &x->s.stats.gpu);
    if (x->s.dev) get_stats(&x->s);
    *ret = x->s.stats;
    ps_close_run(x);
    return r;
}
