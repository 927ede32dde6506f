/* SPDX-License-Identifier: Apache-2.0 */
/* How many kernels and library calls an OPT layer takes at decode: two norms, six linears, attention. The values do not matter here. */
#include "ps_cmocka.h"

#include "kcuda.h"

enum { HEADS = 2, D = 8, HIDDEN = HEADS * D, FFN = 4 * HIDDEN, ROWS = 257 };
static void *zeroes; /* everything reads here */
static float *out;   /* and writes there */
static void *scratch;

static void run(enum ps_op op, const void *args)
{
    const struct ps_kern *k = ps_kern_pick(op, PS_PLACE_CUDA, kcuda.stream.sm, args);
    assert_non_null(k);
    assert_true(ps_kern_scratch(k, args) <= 1 << 20);
    const struct ps_span span = { .end = ps_op_units(op, args),
                                  .scratch = scratch,
                                  .stream = &kcuda.stream };
    assert_int_equal(k->run(args, &span), 0);
}

static void linear(uint32_t m, uint32_t n, uint32_t k, enum ps_act act, bool residual)
{
    const struct ps_linear a = { .y = out,
                                 .x = zeroes,
                                 .w = zeroes,
                                 .bias = zeroes,
                                 .residual = residual ? out : NULL,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .ldx = k,
                                 .ldy = n,
                                 .ldr = n,
                                 .wtype = PS_F16,
                                 .act = act };
    run(PS_OP_linear, &a);
}

static void norm(uint32_t m)
{
    const struct ps_layernorm a = { .y = out,
                                    .x = zeroes,
                                    .w = zeroes,
                                    .b = zeroes,
                                    .rows = m,
                                    .cols = HIDDEN,
                                    .ldx = HIDDEN,
                                    .ldy = HIDDEN,
                                    .eps = 1e-5f,
                                    .dtype = PS_F16 };
    run(PS_OP_layernorm, &a);
}

/* The first step of every row. */
static void attention(uint32_t m, const struct ps_decode_row *rows)
{
    const struct ps_attn_decode a = { .rows = rows,
                                      .n_rows = m,
                                      .q_heads = HEADS,
                                      .kv_heads = HEADS,
                                      .d = D,
                                      .longest = 1,
                                      .scale = 1,
                                      .kv_type = PS_F16 };
    run(PS_OP_attn_decode, &a);
}

static uint64_t of_layer(uint32_t m, const struct ps_decode_row *rows)
{
    const struct ps_cuda_stream *s = &kcuda.stream;
    const uint64_t before = s->launches + s->calls;
    norm(m);
    for (int qkv = 0; qkv < 3; qkv++) linear(m, HIDDEN, HIDDEN, PS_ACT_NONE, false);
    attention(m, rows);
    linear(m, HIDDEN, HIDDEN, PS_ACT_NONE, true);
    norm(m);
    linear(m, FFN, HIDDEN, PS_ACT_RELU, false);
    linear(m, HIDDEN, FFN, PS_ACT_NONE, true);
    assert_int_equal(kcuda.api->sync(&kcuda.stream), 0);
    return s->launches + s->calls - before;
}

static void calls_of_a_layer(void **state)
{
    enum { BYTES = ROWS * FFN * 4 };
    static _Alignas(4096) struct ps_decode_row rows[ROWS];
    static _Alignas(4096) char nothing[BYTES];
    zeroes = kcuda_gpu(BYTES);
    kcuda_copy(zeroes, nothing, nothing, BYTES);
    out = kcuda_gpu(BYTES);
    scratch = kcuda_gpu(1 << 20);
    void *entries = kcuda_gpu((size_t) ROWS * HIDDEN * 4),
         *at = kcuda_gpu((size_t) ROWS * HIDDEN * 4);
    for (size_t r = 0; r < ROWS; r++)
        rows[r] =
            (struct ps_decode_row) { .q = zeroes,
                                     .k = zeroes,
                                     .v = zeroes,
                                     .o = out + r * HIDDEN,
                                     .slab = { .k = (char *) entries + r * HIDDEN * 4,
                                               .v = (char *) entries + r * HIDDEN * 4 + HIDDEN * 2,
                                               .pos = (int32_t *) at + r * HIDDEN,
                                               .cap = 1 },
                                     .keep = { .heavy = PS_KEEP_ALL },
                                     .at = (int32_t *) at + r * HIDDEN + HEADS };
    void *on_gpu = kcuda_gpu(sizeof rows);
    kcuda_copy(on_gpu, rows, rows, sizeof rows);
    static const uint32_t few[] = { 1, 2, 16, 17, 64, 65, 256 };
    for (size_t i = 0; i < PS_ARRAY_LEN(few); i++) assert_int_equal(of_layer(few[i], on_gpu), 9);
    assert_int_equal(of_layer(ROWS, on_gpu), 16);
    void *all[] = { zeroes, out, scratch, entries, at, on_gpu };
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) kcuda_free(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(calls_of_a_layer) };
    return cmocka_run_group_tests(tests, kcuda_open, kcuda_close);
}
