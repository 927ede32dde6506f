/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/search/simulate.h"
#include "engine/plan/layout.h"
#include "engine/search/lengths.h"
#include <stdio.h>

struct simulation {
    const struct ps_simulate_cfg *cfg;
    struct ps_feed feed;
    bool stopped;
};

static int next(void *ud, struct ps_seq **ret)
{
    return ps_feed_next(&((struct simulation *) ud)->feed, ret);
}

static int scored(void *ud, struct ps_seq *s, uint32_t first, const struct ps_sample_out *out,
                  uint32_t n)
{
    return 0;
}

static int token(void *ud, struct ps_seq *s, uint32_t index, const struct ps_sample_out *out,
                 bool *ret_end)
{
    return 0;
}

static int end(void *ud, struct ps_seq *s)
{
    ps_feed_end(&((struct simulation *) ud)->feed, s);
    return 0;
}

static int sweep(void *ud, const struct ps_run_stats *stats)
{
    struct simulation *x = ud;
    x->stopped = x->cfg->stop && *x->cfg->stop;
    return x->stopped ? PS_GO_STOP : PS_GO_ON;
}

int ps_simulate(const struct ps_simulate_cfg *cfg, struct ps_simulated *ret, struct ps_detail *dt)
{
    struct simulation x = { .cfg = cfg };
    int r = ps_feed_init(&x.feed, cfg->lengths, cfg->plan, dt);
    if (r < 0) return r;
    struct ps_detail outside = { "" };
    const struct ps_sim_cfg sim = {
        .profile = cfg->profile, .trace = cfg->trace, .trace_ud = cfg->trace_ud, .outside = &outside
    };
    const struct ps_run_cfg run = { .model = cfg->model,
                                    .plan = cfg->plan,
                                    .kv_config = cfg->kv_config,
                                    .threads = cfg->profile->threads,
                                    .schedule = cfg->schedule,
                                    .sim = &sim };
    const struct ps_run_io io = {
        .ud = &x, .next = next, .scored = scored, .token = token, .end = end, .sweep = sweep
    };
    struct ps_simulated s = { 0 };
    r = ps_run(&run, &io, &s.run, dt);
    ps_feed_done(&x.feed);
    if (r < 0) return r;
    if (x.stopped) return -ECANCELED;
    s.total_s = s.run.prefill_s + s.run.decode_s;
    s.sweeps_run = s.run.sweeps;
    s.outside = outside.text[0] != '\0';
    (void) snprintf(s.outside_what, sizeof s.outside_what, "%.159s", outside.text);
    *ret = s;
    return 0;
}
