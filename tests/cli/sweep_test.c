/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep's point beside the one that has less: when it takes that one's plan. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/cli/plan_sweep.h"
#include "ps_cmocka.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct ps_profile machine = {
    .name = "a machine",
    .cores = 4,
    .threads = 4,
    .host_mem = UINT64_C(8) << 30,
    .disk_space = UINT64_C(100) << 30,
    .host = { .mem = 4e10, .copy = 4e10, .flops = 8e11, .task_s = 5e-6 },
    .disk_read = { .alone = 2e9 },
    .disk_write = { .alone = 1e9 },
};

struct fixture {
    struct ps_packed *model;
    struct ps_point base;
    struct ps_sweep s; /* host-mem: LESS, MORE */
};
enum { LESS, MORE };

/* LESS is planned for as a sweep does it; MORE is as it would be if nothing had been found. */
static void begin(struct fixture *x, const double amounts[2])
{
    struct ps_detail dt = { "" };
    struct ps_planned p;
    unsigned n = 0;
    char path[512];
    *x = (struct fixture) {
        .base = { .profile = machine, .prompt_len = 64, .gen_len = 8, .requests = 20 }
    };
    ps_engine_args_init(&x->base.engine);
    (void) snprintf(path, sizeof path, "%s/opt-125m.json", getenv("PS_CONFIGS"));
    assert_ok_dt(ps_model_outline(path, -1, &x->model, &dt), &dt);
    assert_ok_dt(ps_axis_parse("host-mem=200M,900M", &x->s.axis[0], &dt), &dt);
    x->s.n_axes = 1;
    x->s.n_rows = 2;
    x->s.rows = ps_calloc(2, sizeof *x->s.rows);
    assert_non_null(x->s.rows);
    assert_int_equal(ps_axis_order(&x->s.axis[0], amounts), 0);
    struct ps_point at = x->base;
    assert_ok_dt(ps_point_set(&at, "host-mem", x->s.axis[0].values[LESS], &dt), &dt);
    assert_ok_dt(ps_point_complete(&at, x->model, &dt), &dt);
    assert_ok_dt(ps_search(&at.engine.plan, &at.profile, &at.lengths, NULL, PS_SEARCH_BRIEF, 1,
                           NULL, &p, &n, NULL, &dt),
                 &dt);
    x->s.rows[LESS] = (struct ps_sweep_row) { .planned = true,
                                              .total_s = p.sim.total_s,
                                              .from = p.plan.detail->from };
    ps_figures_of(&at.engine.plan, &at.profile, &p, &x->s.rows[LESS].figures);
    ps_plan_done(&p.plan);
    x->s.rows[MORE] =
        (struct ps_sweep_row) { .total_s = INFINITY, .reason = ps_concat("no plan fits", "", "") };
}

static void end(struct fixture *x)
{
    free(x->s.rows[LESS].reason);
    free(x->s.rows[MORE].reason);
    free(x->s.rows);
    ps_axis_done(&x->s.axis[0]);
    ps_pack_close(x->model);
}

static int settle(struct fixture *x, size_t row)
{
    struct ps_detail dt = { "" };
    return ps_sweep_settle(&x->base, x->model, &x->s, row, &dt);
}

static const double rising[2] = { 1, 2 };

static void where_none_was_found(void **state)
{
    struct fixture x;
    begin(&x, rising);
    const struct ps_sweep_row *less = &x.s.rows[LESS], *more = &x.s.rows[MORE];
    assert_int_equal(settle(&x, LESS), 0); /* has nothing below it */
    assert_int_equal(settle(&x, MORE), 0);
    assert_true(more->planned && !more->reason);
    assert_true(more->total_s == less->total_s);
    assert_memory_equal(&more->from.weights, &less->from.weights, sizeof less->from.weights);
    assert_true(more->figures.v[0] == less->figures.v[0] && more->figures.v[0] > 0);
    end(&x);
}

static void where_a_slower_one_was_found(void **state)
{
    struct fixture x;
    begin(&x, rising);
    struct ps_sweep_row *less = &x.s.rows[LESS], *more = &x.s.rows[MORE];
    more->planned = true;
    more->total_s = less->total_s * 1.5;
    assert_int_equal(settle(&x, MORE), 0);
    assert_true(more->total_s == less->total_s);
    more->total_s = less->total_s / 2; /* a faster one stays */
    assert_int_equal(settle(&x, MORE), 0);
    assert_true(more->total_s == less->total_s / 2);
    end(&x);
}

/* What cannot be asked for, what has a GPU where the other has none, what has nothing to take: they are as they were. */
static void what_is_left_alone(void **state)
{
    struct fixture x;
    begin(&x, rising);
    struct ps_sweep_row *less = &x.s.rows[LESS], *more = &x.s.rows[MORE];
    more->total_s = 0;
    assert_int_equal(settle(&x, MORE), 0);
    assert_false(more->planned);
    more->total_s = INFINITY;
    more->gpu = true;
    assert_int_equal(settle(&x, MORE), 0);
    assert_false(more->planned);
    more->gpu = less->planned = false;
    assert_int_equal(settle(&x, MORE), 0);
    assert_true(!more->planned && more->reason);
    end(&x);
}

/* A plan of what is not less: an error, not an end of all. */
static void what_does_not_fit(void **state)
{
    static const double falling[2] = { 2, 1 };
    struct fixture x;
    begin(&x, falling);
    struct ps_sweep_row *const r = x.s.rows;
    struct ps_point at = x.base;
    struct ps_detail dt = { "" };
    struct ps_planned p;
    unsigned n = 0;
    assert_ok_dt(ps_point_set(&at, "host-mem", x.s.axis[0].values[MORE], &dt), &dt);
    assert_ok_dt(ps_point_complete(&at, x.model, &dt), &dt);
    assert_ok_dt(ps_search(&at.engine.plan, &at.profile, &at.lengths, NULL, PS_SEARCH_BRIEF, 1,
                           NULL, &p, &n, NULL, &dt),
                 &dt);
    assert_true(p.plan.host_bytes > 200 << 20);
    r[MORE].planned = true;
    r[MORE].total_s = r[LESS].total_s / 2;
    r[MORE].from = p.plan.detail->from;
    ps_plan_done(&p.plan);
    assert_err(settle(&x, LESS), PS_EBUDGET);
    assert_true(r[LESS].planned);
    end(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_none_was_found),
        cmocka_unit_test(where_a_slower_one_was_found),
        cmocka_unit_test(what_is_left_alone),
        cmocka_unit_test(what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
