/* SPDX-License-Identifier: Apache-2.0 */
/* How many kernels and library calls an OPT layer takes at decode: two norms, six linears, attention. The values do not matter here. */
#include "ps_cmocka.h"

#include "kernels/cuda/ps_cuda.h"

enum { HEADS = 2, D = 8, HIDDEN = HEADS * D, FFN = 4 * HIDDEN, ROWS = 257, BLAS = 1 << 16 };
static const struct ps_cuda_api *api;
static struct ps_cuda_stream stream;
static void *zeroes; /* everything reads here */
static float *out;   /* and writes there */
static void *scratch;

static void run(enum ps_op op, const void *args)
{
    const struct ps_kern *k = ps_kern_pick(op, PS_PLACE_CUDA, stream.sm, args);
    assert_non_null(k);
    assert_true(ps_kern_scratch(k, args) <= 1 << 20);
    const struct ps_span span = { .end = ps_op_units(op, args),
                                  .scratch = scratch,
                                  .stream = &stream };
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
    const uint64_t before = stream.launches + stream.calls;
    norm(m);
    for (int qkv = 0; qkv < 3; qkv++) linear(m, HIDDEN, HIDDEN, PS_ACT_NONE, false);
    attention(m, rows);
    linear(m, HIDDEN, HIDDEN, PS_ACT_NONE, true);
    norm(m);
    linear(m, FFN, HIDDEN, PS_ACT_RELU, false);
    linear(m, HIDDEN, FFN, PS_ACT_NONE, true);
    assert_int_equal(api->sync(&stream), 0);
    return stream.launches + stream.calls - before;
}

static void *gpu(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(api->alloc(bytes, &p), 0);
    return p;
}

static void copy(void *dst, void *src, size_t bytes)
{
    assert_int_equal(api->pin(src, bytes), 0);
    assert_int_equal(api->copy(&stream, dst, src, bytes), 0);
    assert_int_equal(api->sync(&stream), 0);
    assert_int_equal(api->unpin(src), 0);
}

static void calls_of_a_layer(void **state)
{
    enum { BYTES = ROWS * FFN * 4 };
    static _Alignas(4096) struct ps_decode_row rows[ROWS];
    static _Alignas(4096) char nothing[BYTES];
    zeroes = gpu(BYTES);
    copy(zeroes, nothing, BYTES);
    out = gpu(BYTES);
    scratch = gpu(1 << 20);
    void *entries = gpu((size_t) ROWS * HIDDEN * 4), *at = gpu((size_t) ROWS * HIDDEN * 4);
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
    void *on_gpu = gpu(sizeof rows);
    copy(on_gpu, rows, sizeof rows);
    static const uint32_t few[] = { 1, 2, 16, 17, 64, 65, 256 };
    for (size_t i = 0; i < PS_ARRAY_LEN(few); i++) assert_int_equal(of_layer(few[i], on_gpu), 9);
    assert_int_equal(of_layer(ROWS, on_gpu), 16);
    void *all[] = { zeroes, out, scratch, entries, at, on_gpu };
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) assert_int_equal(api->free(all[i]), 0);
}

static int open_stream(void **state)
{
    api = ps_cuda_module();
    ps_kern_add(api->rows);
    stream.blas_bytes = BLAS;
    stream.blas_mem = gpu(BLAS);
    stream.counters = gpu(PS_CUDA_COUNTERS * sizeof *stream.counters);
    stream.err = gpu(PS_OP__COUNT * sizeof *stream.err);
    return api->open(&stream);
}

static int close_stream(void **state)
{
    int r = api->close(&stream);
    void *all[] = { stream.blas_mem, stream.counters, stream.err };
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++)
        if (r >= 0) r = api->free(all[i]);
    return r;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(calls_of_a_layer) };
    return cmocka_run_group_tests(tests, open_stream, close_stream);
}
