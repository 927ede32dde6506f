/* SPDX-License-Identifier: Apache-2.0 */
/* What a probe writes is what a reader takes; with every allocation failing. And a whole, small probe of this machine. */
#include "engine/base/ps_mem.h"
#include "offload/probe_machine.h"
#include "offload/profile_write.h"
#include "ps_cmocka.h"
#include <math.h>

static const struct ps_rate read_rate = {
    .median = 20.123e9, .min = 19e9, .max = 21e9, .noisy = true
};

static int build(char **text, struct ps_detail *dt)
{
    static const double x[2] = { 1, 64 };
    static const struct ps_rate y[2] = { { .median = 2e9, .min = 2e9, .max = 2e9 },
                                         { .median = 180e9, .min = 100e9, .max = 190e9 } };
    static const struct ps_rate none = { 0 };
    struct ps_profile_out o;
    int r = ps_out_open(&o);
    if (r < 0) return r;
    ps_out_note(&o, "note %d", 1);
    ps_out_set(&o, o.root, "name", json_string("n"));
    ps_out_set(&o, o.root, "measured", json_string("today"));
    ps_out_set(&o, o.root, "notes", json_incref(o.notes));
    json_t *host = ps_out_object(&o, o.root, "host"), *disk = ps_out_object(&o, o.root, "disk");
    ps_out_value(&o, host, "mem", 24.5 * 0x1p30, "GiB");
    ps_out_value(&o, host, "task", 1.5e-6, "us");
    ps_out_rate(&o, host, "read", &read_rate, "GB/s");
    ps_out_rate(&o, host, "flops", &y[1], "GFLOP/s");
    json_t *item = ps_out_item(&o, ps_out_list(&o, host, "linear"));
    ps_out_set(&o, item, "weights", json_string("f16"));
    ps_out_set(&o, item, "k", json_integer(2048));
    ps_out_curve(&o, item, "over_m", x, y, 2, "GFLOP/s");
    ps_out_rate(&o, disk, "read", &none, "GB/s");
    ps_out_rate(&o, disk, "write", &none, "GB/s");
    assert_true(o.err || (o.figures == 5 && o.noisy == 1 && o.throttled == 0));
    r = ps_out_text(&o, text, dt);
    ps_out_close(&o);
    return r;
}

static void round_trip(void **state)
{
    ps_auto_free char *text = NULL;
    ps_auto_free struct ps_profile *p = calloc(1, sizeof *p);
    struct ps_detail dt;
    assert_ok_dt(build(&text, &dt), &dt);
    assert_ok_dt(ps_profile_parse(text, strlen(text), "text", p, &dt), &dt);
    assert_true(p->measured && p->noisy && fabs(p->host.mem / 20.12e9 - 1) < 1e-9);
    assert_true(p->host_mem == (uint64_t) (24.5 * 0x1p30) &&
                fabs(p->host.task_s / 1.5e-6 - 1) < 1e-9);
    assert_true(p->host.n_linear == 1 && p->host.linear[0].over_m.y[0] == 2e9 &&
                p->host.linear[0].over_m.y[1] == 180e9 && p->disk_read.alone == 0);
    assert_non_null(strstr(text, "note 1"));
    assert_non_null(
        strstr(text, "\"read\": {\"value\": 20.12, \"spread\": [19, 21], \"unit\": \"GB/s\""));
}

static void every_allocation_fails(void **state)
{
    int r = -1;
    for (uint64_t nth = 1; r < 0; nth++) {
        ps_auto_free char *text = NULL;
        struct ps_detail dt = { "" };
        assert_true(nth < 2000);
        ps_mem_fault_arm(nth);
        r = build(&text, &dt);
        int hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (r == 0 && hit) fail_msg("allocation %llu failed unnoticed", (unsigned long long) nth);
        if (r < 0 && r != -ENOMEM) fail_msg("%llu: %s", (unsigned long long) nth, dt.text);
    }
}

static volatile int stop;
static double last;
static void open_fails(void **state)
{
    for (unsigned n = 1;; n++) {
        struct ps_profile_out o;
        ps_mem_fault_arm(n);
        const int r = ps_out_open(&o);
        const bool hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (r < 0)
            assert_true(r == -ENOMEM && !o.root && !o.notes); /* nothing for its caller to close */
        ps_out_close(&o);
        if (!hit) break;
        assert_true(n < 100);
    }
}

static void on_progress(void *ud, const char *what, double done)
{
    if (!*what || !(done >= last - 1e-9) || !(done <= 1.0001)) *(int *) ud = -1;
    last = done;
}

static int probe(char **text, struct ps_detail *dt, int *ud)
{
    const struct ps_probe_machine cfg = { .threads = 2,
                                          .quick = true,
                                          .seconds = 0.3,
                                          .folder = ".",
                                          .host_mem = UINT64_C(256) << 20,
                                          .disk_space = UINT64_C(64) << 20,
                                          .progress = on_progress,
                                          .ud = ud,
                                          .stop = &stop };
    last = 0;
    return ps_probe_machine(&cfg, text, dt);
}

static void this_machine(void **state)
{
    ps_auto_free char *text = NULL;
    ps_auto_free struct ps_profile *p = calloc(1, sizeof *p);
    struct ps_machine m;
    struct ps_detail dt;
    int bad = 0;
    assert_ok_dt(probe(&text, &dt, &bad), &dt);
    assert_true(!bad && last > 0.9);
    assert_ok_dt(ps_profile_parse(text, strlen(text), "text", p, &dt), &dt);
    ps_machine_read("", &m);
    assert_true(ps_profile_is_this(p, &m, "") && p->threads == 2);
    assert_true(p->host.mem > 1e8 && p->host.flops > 1e7 && p->host.n_linear == 2 &&
                p->host.n_decode == 3 && p->host.n_prompt == 2);
    for (int op = 0; op < PS_OP__COUNT; op++)
        if (op != PS_OP_convert /* a GPU's */ && op != PS_OP_linear && op != PS_OP_attn_decode &&
            op != PS_OP_attn_prompt)
            if (!(p->host.op[op] > 0)) fail_msg("%s was not measured", ps_op_name((enum ps_op) op));
    assert_true(p->disk_read.alone > 0 && p->disk_write.beside > 0 && p->n_disk_read == 3);
    assert_true(p->host.task_s > 0 && p->host.task_s < 0.1 && p->host.copy > 0);
}

static void stopped(void **state)
{
    char *text = NULL;
    struct ps_detail dt;
    int bad = 0;
    stop = 1;
    assert_err(probe(&text, &dt, &bad), ECANCELED);
    assert_null(text);
    stop = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(round_trip),
                                        cmocka_unit_test(every_allocation_fails),
                                        cmocka_unit_test(open_fails),
                                        cmocka_unit_test(this_machine), cmocka_unit_test(stopped) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
