/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a row: as generate would what is run here, as plan would what is simulated. Other schedules get the plan of ours, so that nothing but
 * the schedule differs. */
#include "engine/cli/bench.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Defaults as plan has them. */
static int described_machine(struct ps_bench *b, struct ps_bench_row *row,
                             const struct ps_job_stats *stats, struct ps_plan_req *ret,
                             struct ps_detail *dt)
{
    struct ps_point p = { .engine = row->engine,
                          .profile = *b->profile,
                          .to_probe = b->to_probe,
                          .stats = *stats,
                          .lengths = row->lengths };
    p.engine.plan.prefetch = ret->prefetch;
    int r = ps_point_check(&p, row->model->packed, dt);
    if (!r) r = ps_point_probe(&p, dt);
    if (r < 0) return r;
    *b->profile = p.profile;
    b->to_probe = false;
    r = ps_point_complete(&p, row->model->packed, dt);
    if (r < 0) return r;
    *ret = p.engine.plan;
    row->args.planning.profile = p.profile;
    return 0;
}

/* What it can do is looked at once for so many threads. */
static int this_machine(struct ps_bench *b, struct ps_bench_row *row, struct ps_detail *dt)
{
    struct ps_generate_args *a = &row->args;
    struct ps_job_cfg *j = &a->job;
    int r = ps_generate_machine(a, b->output ? b->output : "bench", &row->where, dt);
    if (r < 0) return r;
    if (j->gpu) (void) snprintf(b->gpu, sizeof b->gpu, "%s", j->gpu->name);
    struct ps_bench_probed *p = &row->model->probed[j->gpu != NULL];
    if (!p->is || p->planning.profile.threads != j->plan.threads) {
        j->report = ""; /* wants rates, however small the model */
        ps_generate_probe(a, row->where.offload_dir);
        *p = (struct ps_bench_probed) { true, a->planning };
    }
    a->planning = p->planning;
    j->plan.model = row->model->packed;
    ps_search_rates(&a->planning.profile, &j->plan);
    return 0;
}

static int find_machine(struct ps_bench *b, struct ps_bench_row *row,
                        const struct ps_job_stats *stats, struct ps_detail *dt)
{
    struct ps_generate_args *a = &row->args;
    struct ps_job_cfg *j = &a->job;
    *a = (struct ps_generate_args) { .model = row->model->path, .engine = row->engine };
    j->plan = row->engine.plan;
    j->run = row->engine.run;
    j->model = row->model->packed;
    if (row->how.barrier && !j->plan.prefetch) j->plan.prefetch = 1;
    return b->profile ? described_machine(b, row, stats, &j->plan, dt) : this_machine(b, row, dt);
}

static int choose(struct ps_bench *b, struct ps_bench_row *row, struct ps_detail *dt)
{
    struct ps_planning *g = &row->args.planning;
    struct ps_planned x;
    unsigned n = 0;
    int r;
    if (row->planned) ps_plan_done(&row->plan);
    row->planned = false;
    free(row->text);
    row->text = NULL;
    if (b->profile)
        r = ps_search(&row->req, &g->profile, &row->lengths, NULL, PS_SEARCH_WHOLE, 1,
                      ps_signals_count(), &x, &n, &row->text, dt);
    else
        r = ps_generate_plan(g, &row->req, &row->lengths, &x.plan, &x.sim, &row->text, dt);
    if (r < 0) return r;
    row->plan = x.plan;
    row->plan.predicted_s = 0; /* was in our schedule, by rough figures */
    row->planned = true;
    return 0;
}

bool ps_bench_projects(const struct ps_bench *b, const struct ps_bench_row *row)
{
    return b->project && row->gen.most > 3 * (uint64_t) b->project + 8;
}

/* Of the requests that there are and in the row's schedule, which the plan was not made for. */
static int predict(struct ps_bench_row *row, struct ps_detail *dt)
{
    const struct ps_planning *g = &row->args.planning;
    const struct ps_simulate_cfg cfg = { .model = row->model->packed,
                                         .plan = &row->plan,
                                         .kv_config = &row->req.kv_config,
                                         .profile = &g->profile,
                                         .lengths = &row->lengths,
                                         .schedule = &row->how,
                                         .stop = ps_signals_count() };
    struct ps_simulated s;
    if (!g->known) return 0;
    int r = ps_simulate(&cfg, &s, dt);
    if (r >= 0) row->plan.predicted_s = s.total_s;
    return r;
}

int ps_bench_replan(struct ps_bench *b, struct ps_bench_row *row, struct ps_detail *dt)
{
    int r = choose(b, row, dt);
    return r < 0 || b->profile ? r : predict(row, dt);
}

/* Without a number of requests, the plan is one for many, and it is run as long as it takes to fill its block twice. */
int ps_bench_plan(struct ps_bench *b, struct ps_bench_row *row, struct ps_detail *dt)
{
    enum { MANY = 8192 };
    const struct ps_shape *s = &row->model->packed->shape;
    const bool open = !row->requests && !row->job;
    struct ps_job_stats stats;
    int r = ps_bench_lengths(b, row, open ? MANY : row->requests, &stats, dt);
    if (r < 0) return r;
    if (stats.longest_total > s->positions)
        return ps_fail(dt, -PS_EUSAGE,
                       "%" PRIu32 " tokens of a prompt and its answer: %s has %" PRIu32
                       " positions",
                       stats.longest_total, s->name, s->positions);
    r = find_machine(b, row, &stats, dt);
    if (r < 0) return r;
    row->req = row->args.job.plan;
    row->req.model = row->model->packed;
    row->req.job = stats;
    r = choose(b, row, dt);
    if (r < 0) return r;
    const uint64_t block = (uint64_t) row->plan.slots * row->plan.micro_batches;
    row->requests = open ? 2 * block : stats.requests;
    if (ps_bench_projects(b, row) && row->requests > block) row->requests = block;
    r = ps_bench_lengths(b, row, row->requests, &stats, dt);
    return r < 0 || b->profile ? r : predict(row, dt);
}
