/* SPDX-License-Identifier: Apache-2.0 */
#include "virtual_rig.h"
#include "ps_cmocka.h"
#include <math.h>

void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want)))) fail_msg("%.12g, wanted %.12g", got, want);
}

static void note(void *ud, enum ps_q q, const struct ps_task *t, uint64_t t0, uint64_t t1)
{
    struct rig *g = ud;
    if (g->n_spans == RIG_SPANS) return;
    g->span[g->n_spans].q = q;
    g->span[g->n_spans].t0 = (double) t0 * 1e-9;
    g->span[g->n_spans++].t1 = (double) t1 * 1e-9;
}

struct rig *rig_open(struct ps_profile profile, bool gpu)
{
    static struct rig g;
    ps_dev_close(g.dev);
    g = (struct rig) { .profile = profile };
    g.profile.host.op[PS_OP_call] = g.profile.gpu.op[PS_OP_call] = G;
    g.cfg = (struct ps_sim_cfg) {
        .profile = &g.profile, .gpu = gpu, .trace = note, .trace_ud = &g, .outside = &g.outside
    };
    rig_reopen(&g);
    return &g;
}

void rig_reopen(struct rig *g)
{
    ps_dev_close(g->dev);
    g->n_spans = 0;
    assert_ok(ps_dev_sim_open(&g->cfg, &g->dev));
    assert_true(ps_dev_is_sim(g->dev));
}

double rig_drained(struct rig *g)
{
    assert_ok(ps_dev_drain(g->dev));
    return ps_dev_sim_now_s(g->dev);
}

struct ps_buf rig_buf(enum ps_where where)
{
    return (struct ps_buf) { .where = where, .len_bytes = UINT64_MAX };
}

void rig_move(struct rig *g, struct ps_buf *dst, struct ps_buf *src, double bytes)
{
    const struct ps_rect r = { .row_bytes = (uint64_t) bytes, .rows = 1 };
    assert_ok(ps_dev_move(g->dev, dst, src, &r));
}

void rig_move_alone(struct rig *g, enum ps_where to, enum ps_where from, enum ps_kind kind,
                    double bytes)
{
    struct ps_buf a = rig_buf(to), b = rig_buf(from);
    a.kind = b.kind = kind;
    rig_move(g, &a, &b, bytes);
}

static int nothing(void *ud, uint64_t arg) { return 0; }

void rig_call(struct rig *g, enum ps_q q, double s, struct ps_buf *wrote, struct ps_buf *read)
{
    const struct ps_call c = { nothing, NULL, 0, (uint64_t) llround(s * G) };
    const struct ps_use uses[] = { { wrote, true }, { read, false } };
    assert_ok(ps_dev_run(g->dev, q, PS_OP_call, &c, uses, 2));
}

struct ps_dev_stats rig_stats(struct rig *g)
{
    struct ps_dev_stats st;
    ps_dev_stats_get(g->dev, &st);
    return st;
}
