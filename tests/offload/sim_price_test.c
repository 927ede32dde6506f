/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated device takes for each kind of task, beside pencil and paper. */
#include "ps_cmocka.h"
#include "virtual_rig.h"
#include <math.h>

/* Seconds that the op takes alone. */
static double takes(struct rig *g, enum ps_q q, enum ps_op op, const void *args)
{
    const double before = rig_drained(g);
    assert_ok(ps_dev_run(g->dev, q, op, args, NULL, 0));
    return rig_drained(g) - before;
}

static void inside(struct rig *g) { assert_string_equal(g->outside.text, ""); }
/* What was said, which is then forgotten: the first is kept. */
static void outside(struct rig *g, const char *word)
{
    assert_says(&g->outside, word);
    g->outside.text[0] = '\0';
}

static const struct ps_profile linears = {
    .host = { .mem = 10 * G,
              .flops = 500 * G,
              .task_s = 0.25,
              .n_linear = 3,
              .linear = { { PS_F16, 4096, { 2, { 1, 100 }, { 8 * G, 800 * G } } },
                          { PS_F16, 1024, { 2, { 1, 100 }, { 2 * G, 200 * G } } },
                          { PS_BF16, 1024, { 1, { 1 }, { 3 * G } } } } },
    .gpu = { .flops = 7 * G, .mem = 100 * G },
};
static double linear_s(struct rig *g, uint32_t m, uint32_t k, enum ps_dtype wtype)
{
    const struct ps_linear a = { .m = m, .n = 1000000, .k = k, .wtype = wtype };
    return takes(g, PS_Q_COMPUTE, PS_OP_linear, &a);
}

static void linear(void **state)
{
    struct rig *g = rig_open(linears, false);
    near(linear_s(g, 1, 4096, PS_F16), 0.25 + 2 * 1e6 * 4096 / (8 * G));
    near(linear_s(g, 10, 4096, PS_F16), 0.25 + 2 * 1e7 * 4096 / (80 * G));
    near(linear_s(g, 10, 2048, PS_F16), 0.25 + 2 * 1e7 * 2048 / (40 * G)); /* half of the way */
    near(linear_s(g, 10, 2048, PS_F16), 0.25 + 2 * 1e7 * 2048 / (40 * G)); /* known by now */
    near(linear_s(g, 100, 512, PS_F16), 0.25 + 2 * 1e8 * 512 / (200 * G));
    near(linear_s(g, 7, 20, PS_BF16), 0.25 + 2 * 7e6 * 20 / (3 * G)); /* one rate for all */
    inside(g);
    near(linear_s(g, 1000, 4096, PS_F16), 0.25 + 2 * 1e9 * 4096 / (800 * G));
    outside(g, "rows 1000, f16, inputs 4096, on the host");
    (void) linear_s(g, 2000, 4096, PS_F16);
    (void) linear_s(g, 3000, 4096, PS_F16);
    outside(g, "rows 2000"); /* the first */
    near(linear_s(g, 10, 16384, PS_F16), 0.25 + 2 * 1e7 * 16384 / (80 * G));
    outside(g, "inputs 16384");
    near(linear_s(g, 10, 256, PS_F16), 0.25 + 2 * 1e7 * 256 / (20 * G));
    outside(g, "inputs 256");
    /* No curve: as long as the flops, or the bytes. */
    near(linear_s(g, 100, 100, PS_F32), 0.25 + (4 * 1e8 + 4 * 100 * (100 + 1e6)) / (10 * G));
    outside(g, "f32");
    near(linear_s(g, 1000, 5000, PS_F32), 0.25 + 2 * 1e9 * 5000 / (500 * G));
    g = rig_open(linears, true);
    near(linear_s(g, 1, 4096, PS_F16), 2 * 1e6 * 4096 / (7 * G));
    inside(g); /* nothing was measured that it could be beyond of */
}

static const struct ps_profile attention = {
    .host = { .mem = 10 * G,
              .scores = 1.5,
              .n_decode = 2,
              .decode = { { PS_F16, 64, { 2, { 100, 10000 }, { 1 * G, 4 * G } } },
                          { PS_F16, 256, { 2, { 100, 10000 }, { 4 * G, 16 * G } } } },
              .n_prompt = 1,
              .prompt = { { PS_F16, 64, { 2, { 10, 1000 }, { 1 * G, 100 * G } } } } },
};

static void decode(void **state)
{
    struct rig *g = rig_open(attention, false);
    float score;
    struct ps_decode_row rows[3] = { { .len = 99 }, { .len = 999 }, { .len = 99 } };
    struct ps_attn_decode a = {
        .rows = rows, .n_rows = 3, .q_heads = 8, .kv_heads = 8, .d = 64, .kv_type = PS_F16
    };
    const double entry = 2 * 2 * 8 * 64;
    near(takes(g, PS_Q_COMPUTE, PS_OP_attn_decode, &a), 200 * entry / G + 1000 * entry / (2 * G));
    rows[1].slab.score = &score;
    near(takes(g, PS_Q_COMPUTE, PS_OP_attn_decode, &a),
         200 * entry / G + 1.5 * 1000 * entry / (2 * G));
    a.d = 128; /* between both curves */
    near(takes(g, PS_Q_HOST, PS_OP_attn_decode, &a),
         2 * (200 * entry / (2 * G) + 1.5 * 1000 * entry / (4 * G)));
    inside(g);
    rows[2].len = 19999;
    near(takes(g, PS_Q_COMPUTE, PS_OP_attn_decode, &a),
         2 * (100 * entry / (2 * G) + 1.5 * 1000 * entry / (4 * G) + 20000 * entry / (8 * G)));
    outside(g, "decode attention: entries 20000, f16, head dimension 128");
    a.kv_type = PS_F32;
    near(takes(g, PS_Q_COMPUTE, PS_OP_attn_decode, &a),
         ps_op_cost(PS_OP_attn_decode, &a).bytes / (10 * G));
    outside(g, "f32");
}

/* More lengths than rates are kept for, again and again. */
static void many_lengths(void **state)
{
    struct rig *g = rig_open(attention, false);
    for (int again = 0; again < 2; again++)
        for (uint32_t n = 100; n <= 10000; n += 3) {
            const struct ps_decode_row row = { .len = n - 1 };
            const struct ps_attn_decode a = {
                .rows = &row, .n_rows = 1, .q_heads = 8, .kv_heads = 8, .d = 64, .kv_type = PS_F16
            };
            const double rate = G * pow(n / 100.0, log(4) / log(100)),
                         got = takes(g, PS_Q_COMPUTE, PS_OP_attn_decode, &a),
                         want = n * 2048.0 / rate;
            if (!(fabs(got - want) <= 1e-6 * want)) fail_msg("%u: %g s, wanted %g", n, got, want);
        }
    inside(g);
}

static void prompts(void **state)
{
    struct rig *g = rig_open(attention, false);
    /* A prompt of 10; the second half of one of 100. */
    struct ps_prompt_seq seqs[2] = { { .rows = 10, .total = 10 },
                                     { .rows = 50, .first = 50, .total = 100 } };
    struct ps_attn_prompt a = {
        .seqs = seqs, .n_seqs = 2, .q_heads = 8, .kv_heads = 8, .d = 64, .kv_type = PS_F16
    };
    const double pair = 4 * 8 * 64;
    near(takes(g, PS_Q_COMPUTE, PS_OP_attn_prompt, &a),
         55 * pair / G + (50 * 50 + 50 * 51 / 2.0) * pair / (10 * G));
    inside(g);
    seqs[0].rows = 5;
    near(takes(g, PS_Q_COMPUTE, PS_OP_attn_prompt, &a),
         15 * pair / G + (50 * 50 + 50 * 51 / 2.0) * pair / (10 * G));
    outside(g, "prompt attention: tokens 5");
}

static int nothing(void *ud, uint64_t arg) { return 0; }

static void other_ops(void **state)
{
    const struct ps_layernorm norm = { .rows = 1000, .cols = 1000, .dtype = PS_F32 };
    const double bytes = ps_op_cost(PS_OP_layernorm, &norm).bytes;
    struct rig *g = rig_open((struct ps_profile) { .host.mem = 2 * G }, false);
    near(takes(g, PS_Q_COMPUTE, PS_OP_layernorm, &norm), bytes / (2 * G));
    g = rig_open((struct ps_profile) { .host = { .mem = 2 * G, .flops = 0.5 * G } }, false);
    near(takes(g, PS_Q_COMPUTE, PS_OP_layernorm, &norm), 7e6 / (0.5 * G));
    g = rig_open(
        (struct ps_profile) {
            .host = { .mem = 2 * G, .flops = 0.5 * G, .op = { [PS_OP_layernorm] = 8 * G } } },
        false);
    near(takes(g, PS_Q_COMPUTE, PS_OP_layernorm, &norm), bytes / (8 * G));
    /* A checksum of so many bytes. */
    g->profile.host.op[PS_OP_call] = 3 * G;
    rig_reopen(g);
    const struct ps_call call = { nothing, NULL, 0, 6000000000 };
    near(takes(g, PS_Q_HOST, PS_OP_call, &call), 2);
}

static double move_s(struct rig *g, enum ps_where to, enum ps_where from, const struct ps_rect *r)
{
    struct ps_buf a = rig_buf(to), b = rig_buf(from);
    const double before = rig_drained(g);
    assert_ok(ps_dev_move(g->dev, &a, &b, r));
    return rig_drained(g) - before;
}

static void moves(void **state)
{
    const struct ps_profile x = { .host = { .mem = 100 * G, .copy = 4 * G, .task_s = 3 },
                                  .gpu = { .copy = 100 * G },
                                  .disk_read = { 2 * G, 1 * G },
                                  .disk_write = { 1 * G, 0.5 * G },
                                  .h2d = { 5 * G, 4 * G },
                                  .d2h = { 4 * G, 3 * G },
                                  .disk_s = 0.5,
                                  .copy_s = 0.125 };
    const struct ps_rect one = { .row_bytes = 1000000000, .rows = 1 },
                         rows = { .row_bytes = 100000000,
                                  .rows = 10,
                                  .dst_pitch = 100000000,
                                  .src_pitch = 200000000 },
                         close = { .row_bytes = 100000000,
                                   .rows = 10,
                                   .dst_pitch = 100000000,
                                   .src_pitch = 100000000 };
    struct rig *g = rig_open(x, true);
    near(move_s(g, PS_HOST, PS_DISK, &one), 0.5 + 0.5);
    near(move_s(g, PS_DISK, PS_HOST, &one), 0.5 + 1);
    near(move_s(g, PS_HOST, PS_DISK, &rows), 10 * 0.5 + 0.5);
    near(move_s(g, PS_HOST, PS_DISK, &close), 0.5 + 0.5);
    near(move_s(g, PS_GPU, PS_HOST, &one), 0.125 + 0.2);
    near(move_s(g, PS_GPU, PS_HOST, &rows), 0.125 + 0.2);
    near(move_s(g, PS_HOST, PS_GPU, &one), 0.125 + 0.25);
    near(move_s(g, PS_HOST, PS_HOST, &one), 3 + 0.5);
    near(move_s(g, PS_GPU, PS_GPU, &one), 0.125 + 0.02);
    inside(g);
}

static void refused(struct ps_profile *x, double *field, double bad)
{
    const double good = *field;
    struct ps_dev *d = (void *) 0x1;
    *field = bad;
    assert_err(ps_dev_sim_open(&(struct ps_sim_cfg) { .profile = x }, &d), EINVAL);
    assert_true(d == (void *) 0x1);
    *field = good;
}

static void bad_numbers_are_refused(void **state)
{
    struct ps_profile x = linears;
    struct ps_dev *d = NULL;
    x.host.n_decode = x.host.n_prompt = 1;
    x.host.decode[0] = x.host.prompt[0] = attention.host.decode[0];
    double *const fields[] = { &x.disk_read.alone,
                               &x.disk_write.beside,
                               &x.h2d.alone,
                               &x.d2h.beside,
                               &x.io_cores,
                               &x.disk_s,
                               &x.copy_s,
                               &x.host.mem,
                               &x.host.copy,
                               &x.host.flops,
                               &x.gpu.task_s,
                               &x.gpu.scores,
                               &x.gpu.op[PS_OP_sample],
                               &x.host.linear[2].k,
                               &x.host.linear[1].over_m.x[1],
                               &x.host.linear[1].over_m.y[1],
                               &x.host.decode[0].d,
                               &x.host.prompt[0].over_n.y[0] };
    for (size_t i = 0; i < PS_ARRAY_LEN(fields); i++) {
        refused(&x, fields[i], -1);
        refused(&x, fields[i], NAN);
        refused(&x, fields[i], INFINITY);
    }
    refused(&x, &x.host.linear[1].over_m.x[1], 1); /* not after the one before it */
    refused(&x, &x.host.linear[1].over_m.y[1], 0);
    assert_ok(ps_dev_sim_open(&(struct ps_sim_cfg) { .profile = &x }, &d));
    ps_dev_close(d);
    x.host.linear[0].over_m.n = 0;
    assert_err(ps_dev_sim_open(&(struct ps_sim_cfg) { .profile = &x }, &d), EINVAL);
    x.host.linear[0].over_m.n = PS_CURVE_MAX + 1;
    assert_err(ps_dev_sim_open(&(struct ps_sim_cfg) { .profile = &x }, &d), EINVAL);
    x.host.n_linear = PS_RATES_MAX + 1;
    assert_err(ps_dev_sim_open(&(struct ps_sim_cfg) { .profile = &x }, &d), EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear),
        cmocka_unit_test(decode),
        cmocka_unit_test(many_lengths),
        cmocka_unit_test(prompts),
        cmocka_unit_test(other_ops),
        cmocka_unit_test(moves),
        cmocka_unit_test(bad_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
