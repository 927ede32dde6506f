/* SPDX-License-Identifier: Apache-2.0 */
/* Decode attention of more KV heads and rows than PS_CUDA_COUNTERS. */
#include "ps_cmocka.h"

#include "cudaemu.h"
#include "kernels/cuda/ps_cuda.h"

static const struct ps_cuda_api *api;
static struct ps_cuda_stream stream;

static void *gpu(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(api->alloc(bytes, &p), 0);
    return p;
}

/* One side is `host`. */
static void copy(void *dst, void *src, void *host, size_t bytes)
{
    assert_int_equal(api->pin(host, bytes), 0);
    assert_int_equal(api->copy(&stream, dst, src, bytes), 0);
    assert_int_equal(api->sync(&stream), 0);
    assert_int_equal(api->unpin(host), 0);
}

/* Units are counted in PS_CUDA_COUNTERS places: more go in two launches. Each head attends to its new entry alone: o is its v. */
static void more_units_than_counters(void **state)
{
    enum { MANY = PS_CUDA_COUNTERS / 2 + 1, BYTES = MANY * 4 };
    static _Alignas(4096) float v[2][MANY], o[2][MANY];
    static _Alignas(4096) struct ps_decode_row rows[2];
    for (size_t r = 0; r < 2; r++)
        for (size_t h = 0; h < MANY; h++) v[r][h] = (float) (1 + h % 1000 + 1000 * r);
    float *on_gpu = gpu(sizeof v), *outs = gpu(sizeof o);
    void *entries = gpu(sizeof v), *at = gpu(sizeof v), *rows_on_gpu = gpu(sizeof rows);
    int32_t *positions = gpu(sizeof v);
    copy(on_gpu, v, v, sizeof v);
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
    copy(rows_on_gpu, rows, rows, sizeof rows);
    const struct ps_attn_decode a = { .rows = rows_on_gpu,
                                      .n_rows = 2,
                                      .q_heads = MANY,
                                      .kv_heads = MANY,
                                      .d = 1,
                                      .longest = 1,
                                      .scale = 1,
                                      .kv_type = PS_F16 };
    const uint64_t before = stream.launches;
    const struct ps_kern *k = ps_kern_pick(PS_OP_attn_decode, PS_PLACE_CUDA, stream.sm, &a);
    assert_non_null(k);
    assert_int_equal(ps_kern_scratch(k, &a), 0);
    const struct ps_span span = { .end = ps_op_units(PS_OP_attn_decode, &a), .stream = &stream };
    assert_int_equal(span.end, 2 * MANY);
    assert_int_equal(k->run(&a, &span), 0);
    assert_int_equal(stream.launches - before, 2);
    copy(o, outs, o, sizeof o);
    assert_memory_equal(o, v, sizeof o);
    assert_int_equal(cudaemu_reports(), 0);
    void *all[] = { on_gpu, outs, entries, at, rows_on_gpu, positions };
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) assert_int_equal(api->free(all[i]), 0);
}

static int open_stream(void **state)
{
    api = ps_cuda_module();
    ps_kern_add(api->rows);
    stream.blas_bytes = 1 << 16;
    stream.blas_mem = gpu(stream.blas_bytes);
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(more_units_than_counters) };
    return cmocka_run_group_tests(tests, open_stream, close_stream);
}
