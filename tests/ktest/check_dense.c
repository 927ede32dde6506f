/* SPDX-License-Identifier: Apache-2.0 */
/* embed, layernorm, convert, call. */
#include "ktest.h"
#include <errno.h>

static void check_embed(struct kt *kt)
{
    static const uint32_t cols[] = { 1, 7, 8, 9, 15, 16, 17, 33, 768, 1021 };
    for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++)
        for (int t = 0; t < PS_DTYPE__COUNT; t++)
            for (int add = 0; add < 2; add++) {
                struct ps_embed a = { .rows = 1 + kt_below(kt, 9),
                                      .cols = cols[i],
                                      .n_rows = 1 + kt_below(kt, 20) };
                a.row0 = kt_below(kt, 3) * 5;
                a.ldy = a.cols + kt_below(kt, 3);
                a.dtype = (enum ps_dtype) t;
                a.add = add;
                a.ids_add = (int32_t) kt_below(kt, 3);
                const size_t n = (size_t) (a.rows - 1) * a.ldy + a.cols;
                float *y = add ? kt_inout(kt, KT_F32, n, 0) : kt_out(kt, KT_F32, n, 0);
                for (size_t j = 0; add && j < n; j++) y[j] = kt_uniform(kt, -1, 1);
                a.y = y;
                a.table = kt_in_dtype(kt, a.dtype, (size_t) a.n_rows * a.cols, -2, 2);
                a.ids = kt_in_i32(kt, a.rows, 0,
                                  (int32_t) (a.row0 + a.n_rows + 4)); /* some are in no piece */
                kt_check(kt, &(struct kt_spec) { .op = PS_OP_embed, .args = &a }, "%ux%u %s add=%d",
                         a.rows, a.cols, ps_dtype_name(a.dtype), add);
            }
}
const struct kt_test kt_test_embed = { PS_OP_embed, check_embed, NULL };

static void check_layernorm(struct kt *kt)
{
    static const uint32_t cols[] = { 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 127, 768, 2048, 4099 };
    for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++)
        for (int t = 0; t < PS_DTYPE__COUNT; t++)
            for (int in_place = 0; in_place < 2; in_place++) {
                struct ps_layernorm a = { .rows = 1 + kt_below(kt, 5),
                                          .cols = cols[i],
                                          .eps = 1e-5f };
                a.dtype = (enum ps_dtype) t;
                a.ldx = a.cols + kt_below(kt, 3);
                a.ldy = in_place ? a.ldx : a.cols + kt_below(kt, 3);
                const size_t nx = (size_t) (a.rows - 1) * a.ldx + a.cols,
                             ny = (size_t) (a.rows - 1) * a.ldy + a.cols;
                /* With one column the variance is zero: only b is left. A mean far from zero is the hard case. */
                const float mean = kt_uniform(kt, -3, 3);
                /* Two columns may lie so near each other that the mean's last bit shows, times 1/sqrt(eps). */
                const float tol = a.cols < 7 ? 2e-4f : 2e-5f;
                float *y = in_place ? kt_inout(kt, KT_F32, ny, tol) : kt_out(kt, KT_F32, ny, tol);
                for (size_t j = 0; in_place && j < ny; j++)
                    y[j] = kt_uniform(kt, mean - 2, mean + 2);
                a.y = y;
                a.x = in_place ? y : kt_in_f32(kt, nx, mean - 2, mean + 2);
                if (kt_below(kt, 2))
                    a.rounded = kt_out(kt, kt_type_of(a.dtype), (size_t) a.rows * a.cols,
                                       kt_rounded(a.dtype, tol));
                if (a.rounded && !in_place && kt_below(kt, 2)) a.y = NULL; /* y stays as it is */
                a.w = kt_in_dtype(kt, a.dtype, a.cols, 0.5f, 1.5f);
                a.b = kt_in_dtype(kt, a.dtype, a.cols, -1, 1);
                kt_check(kt, &(struct kt_spec) { .op = PS_OP_layernorm, .args = &a },
                         "%ux%u %s in_place=%d rounded=%d", a.rows, a.cols, ps_dtype_name(a.dtype),
                         in_place, a.rounded ? a.y ? 1 : 2 : 0);
            }
}

static void bench_layernorm(struct kt *kt)
{
    const size_t rows = 256, cols = 2048;
    float *x = kt_big(kt, rows * cols * 4), *y = kt_big(kt, rows * cols * 4),
          *w = kt_big(kt, cols * 8);
    kt_big_fill(kt, x, PS_F32, rows * cols, -2, 2);
    kt_big_fill(kt, w, PS_F32, cols * 2, 0, 1);
    const struct ps_layernorm a = { .y = y,
                                    .x = x,
                                    .w = w,
                                    .b = w + cols,
                                    .rows = 256,
                                    .cols = 2048,
                                    .ldx = 2048,
                                    .ldy = 2048,
                                    .eps = 1e-5f };
    const void *args = &a;
    kt_bench(kt, &(struct kt_bench) { .op = PS_OP_layernorm, .args = &args, .n_args = 1 },
             "256x2048");
}
const struct kt_test kt_test_layernorm = { PS_OP_layernorm, check_layernorm, bench_layernorm };

static void check_convert(struct kt *kt)
{
    static const uint32_t ns[] = { 1, 2, 255, 257, 4095, 4096, 4097, 12289 };
    for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++)
        for (int from = 0; from < PS_DTYPE__COUNT; from++)
            for (int to = 0; to < PS_DTYPE__COUNT; to++) {
                struct ps_convert a = { .n = ns[i] };
                a.from = (enum ps_dtype) from;
                a.to = (enum ps_dtype) to;
                a.x = kt_in_dtype(kt, a.from, ns[i], -100, 100);
                a.y = kt_out(kt, kt_type_of(a.to), ns[i], 0);
                kt_check(kt, &(struct kt_spec) { .op = PS_OP_convert, .args = &a }, "%u %s to %s",
                         ns[i], ps_dtype_name(a.from), ps_dtype_name(a.to));
            }
}
const struct kt_test kt_test_convert = { PS_OP_convert, check_convert, NULL };

static int put(void *ud, uint64_t arg)
{
    *(int32_t *) ud = (int32_t) arg;
    return arg > 100 ? -EIO : 0;
}

static void check_call(struct kt *kt)
{
    for (int bad = 0; bad < 2; bad++) {
        const struct ps_call a = { .fn = put,
                                   .ud = kt_out(kt, KT_I32, 1, 0),
                                   .arg = bad ? 101 : 42 };
        kt_check(kt, &(struct kt_spec) { .op = PS_OP_call, .args = &a, .want_rc = bad ? -EIO : 0 },
                 "bad=%d", bad);
    }
}
const struct kt_test kt_test_call = { PS_OP_call, check_call, NULL };
