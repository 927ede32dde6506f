/* SPDX-License-Identifier: Apache-2.0 */
/* How many kernels and library calls an OPT layer takes at decode: two norms, six linears, attention; and how linear answers to what the
 * library does. The values do not matter here. */
#include "ps_cmocka.h"

#include "cudaemu.h"
#include "kcuda.h"

enum { HEADS = 1, D = 8, HIDDEN = HEADS * D, FFN = 4 * HIDDEN, ROWS = 257, BYTES = ROWS * FFN * 4 };
static void *zeroes; /* everything reads here */
static void *out;    /* and writes there */
static void *rows;   /* on the GPU: the first step of ROWS rows */
static void *slabs[2];

static int try(enum ps_op op, const void *args)
{
    const struct ps_kern *k = ps_kern_pick(op, PS_PLACE_CUDA, kcuda.stream.sm, args);
    assert_non_null(k);
    assert_int_equal(ps_kern_scratch(k, args), 0);
    const struct ps_span span = { .end = ps_op_units(op, args), .stream = &kcuda.stream };
    return k->run(args, &span);
}

static void run(enum ps_op op, const void *args) { assert_int_equal(try(op, args), 0); }

/* `rounds`: as a pass of many rows has it. */
static struct ps_linear linear_args(uint32_t m, uint32_t n, uint32_t k, bool rounds)
{
    return (struct ps_linear) { .y = out,
                                .x = rounds ? NULL : zeroes,
                                .rounded_x = rounds ? zeroes : NULL,
                                .w = zeroes,
                                .bias = zeroes,
                                .bias_f32 = rounds,
                                .m = m,
                                .n = n,
                                .k = k,
                                .ldx = k,
                                .ldy = n,
                                .ldr = n,
                                .wtype = PS_F16 };
}

static void project(uint32_t m, bool rounds)
{
    const struct ps_linear a = linear_args(m, HIDDEN, HIDDEN, rounds);
    run(PS_OP_linear, &a);
}

static void back(uint32_t m, uint32_t k, bool rounds)
{
    struct ps_linear a = linear_args(m, HIDDEN, k, rounds);
    a.residual = out;
    run(PS_OP_linear, &a);
}

static void wide(uint32_t m, bool rounds)
{
    struct ps_linear a = linear_args(m, FFN, HIDDEN, rounds);
    a.act = PS_ACT_RELU;
    if (rounds) {
        a.y = NULL;
        a.rounded_y = out;
        a.bias_f32 = false;
    }
    run(PS_OP_linear, &a);
}

static void norm(uint32_t m, bool f32, bool rounded)
{
    const struct ps_layernorm a = { .y = f32 ? out : NULL,
                                    .rounded = rounded ? (char *) out + BYTES / 2 : NULL,
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

static void convert(uint32_t m)
{
    const struct ps_convert a = { out, zeroes, (uint64_t) m * HIDDEN, PS_F16, PS_F32 };
    run(PS_OP_convert, &a);
}

static void attention(uint32_t m, bool rounds)
{
    const struct ps_attn_decode a = { .rows = rows,
                                      .n_rows = m,
                                      .q_heads = HEADS,
                                      .kv_heads = HEADS,
                                      .d = D,
                                      .longest = 1,
                                      .scale = 1,
                                      .kv_type = PS_F16,
                                      .o_type = rounds ? PS_F16 : PS_F32 };
    run(PS_OP_attn_decode, &a);
}

/* What the scheduler submits (engine/sched/pass.c), of a matrix in one piece. */
static uint64_t of_layer(uint32_t m, bool norm_before)
{
    const bool rounds = m > PS_LINEAR_OWN_ROWS;
    struct ps_cuda_stream *s = &kcuda.stream;
    const uint64_t before = s->launches + s->calls;
    if (norm_before)
        norm(m, !rounds, rounds);
    else if (rounds)
        convert(m);
    for (int qkv = 0; qkv < 3; qkv++) project(m, rounds);
    attention(m, rounds);
    back(m, HIDDEN, rounds);
    norm(m, !norm_before || !rounds, rounds);
    wide(m, rounds);
    back(m, FFN, rounds);
    if (!norm_before) norm(m, true, false);
    assert_int_equal(kcuda.api->sync(s), 0);
    return s->launches + s->calls - before;
}

static void calls_of_a_layer(void **state)
{
    static const uint32_t few[] = { 1, 2, 16, 17, 64, 65, 256 };
    for (size_t i = 0; i < PS_ARRAY_LEN(few); i++)
        for (int before = 0; before < 2; before++) assert_int_equal(of_layer(few[i], before), 9);
    const unsigned products = cudaemu_calls("cublasLtMatmul");
    assert_int_equal(of_layer(ROWS, true), 9);
    assert_int_equal(of_layer(ROWS, false), 10);
    assert_int_equal(cudaemu_calls("cublasLtMatmul") - products, 12);
}

/* A layer's, of so many rows that they are the library's. */
static void linears(void)
{
    for (int qkv = 0; qkv < 3; qkv++) project(ROWS, true);
    back(ROWS, HIDDEN, true);
    wide(ROWS, true);
    back(ROWS, FFN, true);
}

/* An algorithm is asked for once for a shape: Q, K and V, O, FC1, FC2 are four. With more shapes than are kept the oldest are asked for again. */
static void a_shape_is_asked_for_once(void **state)
{
    const char *ask = "cublasLtMatmulAlgoGetHeuristic";
    linears();
    const unsigned before = cudaemu_calls(ask);
    for (int i = 0; i < 4; i++) linears();
    assert_int_equal(cudaemu_calls(ask), before);
    for (uint32_t m = 1; m <= 70; m++) project(m, true);
    assert_int_equal(cudaemu_calls(ask), before + 70);
    linears();
    assert_int_equal(cudaemu_calls(ask), before + 74);
    assert_int_equal(kcuda.api->sync(&kcuda.stream), 0);
    assert_int_equal(cudaemu_reports(), 0);
}

/* What the library has nothing for is our own kernel's, and so is ReLU before a residual, and a bias of another type. */
static void what_the_library_has_not(void **state)
{
    struct ps_linear a = linear_args(ROWS + 1, HIDDEN, HIDDEN, true);
    struct ps_cuda_stream *s = &kcuda.stream;
    const unsigned products = cudaemu_calls("cublasLtMatmul");
    uint64_t launches = s->launches;
    cudaemu_lt_refuse(true);
    run(PS_OP_linear, &a);
    run(PS_OP_linear, &a);
    cudaemu_lt_refuse(false);
    assert_int_equal(s->launches, launches + 2);
    a.m++;
    a.bias_f32 = false;
    run(PS_OP_linear, &a);
    a.bias_f32 = true;
    a.act = PS_ACT_RELU;
    a.residual = out;
    run(PS_OP_linear, &a);
    assert_int_equal(s->launches, launches + 4);
    assert_int_equal(cudaemu_calls("cublasLtMatmul"), products);
    assert_int_equal(kcuda.api->sync(s), 0);
}

/* A failed call is told of, and the next time begins anew. */
static void what_fails(void **state)
{
    static const char *const calls[] = { "cublasLtMatmulDescInit",
                                         "cublasLtMatmulDescSetAttribute",
                                         "cublasLtMatrixLayoutInit",
                                         "cublasLtMatmulPreferenceInit",
                                         "cublasLtMatmulPreferenceSetAttribute",
                                         "cublasLtMatmulAlgoGetHeuristic",
                                         "cublasLtMatmul" };
    struct ps_linear a = linear_args(ROWS + 10, HIDDEN, HIDDEN, true);
    for (size_t i = 0; i < PS_ARRAY_LEN(calls); i++) {
        a.m++;
        cudaemu_fail(calls[i], 1, 2);
        assert_int_equal(try(PS_OP_linear, &a), -ENOMEM);
        assert_non_null(strstr(kcuda.api->error(), calls[i]));
        run(PS_OP_linear, &a);
    }
    assert_int_equal(kcuda.api->sync(&kcuda.stream), 0);
}

static int open_all(void **state)
{
    static _Alignas(4096) struct ps_decode_row on_host[ROWS];
    static _Alignas(4096) char nothing[BYTES];
    int r = kcuda_open(state);
    if (r < 0) return r;
    zeroes = kcuda_gpu(BYTES);
    kcuda_copy(zeroes, nothing, nothing, BYTES);
    out = kcuda_gpu(BYTES);
    char *entries = slabs[0] = kcuda_gpu((size_t) ROWS * HIDDEN * 4);
    int32_t *at = slabs[1] = kcuda_gpu((size_t) ROWS * HIDDEN * 4);
    for (size_t i = 0; i < ROWS; i++)
        on_host[i] = (struct ps_decode_row) { .q = zeroes,
                                              .k = zeroes,
                                              .v = zeroes,
                                              .o = (float *) out + i * HIDDEN,
                                              .slab = { .k = entries + i * HIDDEN * 4,
                                                        .v = entries + i * HIDDEN * 4 + HIDDEN * 2,
                                                        .pos = at + i * HIDDEN,
                                                        .cap = 1 },
                                              .keep = { .heavy = PS_KEEP_ALL },
                                              .at = at + i * HIDDEN + HEADS };
    rows = kcuda_gpu(sizeof on_host);
    kcuda_copy(rows, on_host, on_host, sizeof on_host);
    return 0;
}

static int close_all(void **state)
{
    void *all[] = { zeroes, out, rows, slabs[0], slabs[1] };
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) kcuda_free(all[i]);
    return kcuda_close(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(calls_of_a_layer),
                                        cmocka_unit_test(a_shape_is_asked_for_once),
                                        cmocka_unit_test(what_the_library_has_not),
                                        cmocka_unit_test(what_fails) };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
