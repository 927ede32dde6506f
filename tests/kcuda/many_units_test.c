/* SPDX-License-Identifier: Apache-2.0 */
/* Decode attention of more KV heads and rows than PS_CUDA_COUNTERS. */
#include "ps_cmocka.h"

#include "cudaemu.h"
#include "kcuda.h"

/* Units are counted in PS_CUDA_COUNTERS places: more go in two launches. Each head attends to its new entry alone: o is its v. */
static void more_units_than_counters(void **state)
{
    enum { MANY = PS_CUDA_COUNTERS / 2 + 1, BYTES = MANY * 4 };
    static _Alignas(4096) float v[2][MANY], o[2][MANY];
    static _Alignas(4096) struct ps_decode_row rows[2];
    for (size_t r = 0; r < 2; r++)
        for (size_t h = 0; h < MANY; h++) v[r][h] = (float) (1 + h % 1000 + 1000 * r);
    float *on_gpu = kcuda_gpu(sizeof v), *outs = kcuda_gpu(sizeof o);
    void *entries = kcuda_gpu(sizeof v), *at = kcuda_gpu(sizeof v),
         *rows_on_gpu = kcuda_gpu(sizeof rows);
    int32_t *positions = kcuda_gpu(sizeof v);
    kcuda_copy(on_gpu, v, v, sizeof v);
    for (size_t r = 0; r < 2; r++)
        rows[r] = (struct ps_decode_row) { .q = on_gpu + r * MANY,
                                           .k = on_gpu + r * MANY,
                                           .v = on_gpu + r * MANY,
                                           .o = outs + r * MANY,
                                           .slab = { .k = (char *) entries + r * BYTES,
                                                     .v = (char *) entries + r * BYTES + BYTES / 2,
                                                     .pos = positions + r * MANY,
                                                     .cap = 1 },
                                           .keep = { .heavy = PS_KEEP_ALL },
                                           .at = (int32_t *) at + r * MANY };
    kcuda_copy(rows_on_gpu, rows, rows, sizeof rows);
    const struct ps_attn_decode a = { .rows = rows_on_gpu,
                                      .n_rows = 2,
                                      .q_heads = MANY,
                                      .kv_heads = MANY,
                                      .d = 1,
                                      .longest = 1,
                                      .scale = 1,
                                      .kv_type = PS_F16 };
    const struct ps_cuda_stream *stream = &kcuda.stream;
    const uint64_t before = stream->launches;
    const struct ps_kern *k = ps_kern_pick(PS_OP_attn_decode, PS_PLACE_CUDA, stream->sm, &a);
    assert_non_null(k);
    assert_int_equal(ps_kern_scratch(k, &a), 0);
    const struct ps_span span = { .end = ps_op_units(PS_OP_attn_decode, &a),
                                  .stream = &kcuda.stream };
    assert_int_equal(span.end, 2 * MANY);
    assert_int_equal(k->run(&a, &span), 0);
    assert_int_equal(stream->launches - before, 2);
    kcuda_copy(o, outs, o, sizeof o);
    assert_memory_equal(o, v, sizeof o);
    assert_int_equal(cudaemu_reports(), 0);
    void *all[] = { on_gpu, outs, entries, at, rows_on_gpu, positions };
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) kcuda_free(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(more_units_than_counters) };
    return cmocka_run_group_tests(tests, kcuda_open, kcuda_close);
}
