/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_linear.h"
#include <math.h>

/* Some of the rows at a time, twelve at most. */
static bool some_rows(struct kt *kt, const void *args, unsigned i, void *ret_args)
{
    static uint32_t at;
    const struct ps_linear *a = args;
    struct ps_linear *r = ret_args;
    if (i == 0) at = 0;
    if (at == a->m) return false;
    *r = *a;
    r->m = 1 + kt_below(kt, a->m - at < 12 ? a->m - at : 12);
    const size_t wb = ps_dtype_bytes(a->wtype);
    if (a->rounded_x)
        r->rounded_x = (const char *) a->rounded_x + at * a->ldx * wb;
    else
        r->x += (size_t) at * a->ldx;
    if (a->rounded_y)
        r->rounded_y = (char *) a->rounded_y + at * a->ldy * wb;
    else
        r->y += (size_t) at * a->ldy;
    if (r->residual) r->residual += (size_t) at * a->ldr;
    at += r->m;
    return true;
}

/* From 17 rows on the CUDA row rounds x to f16, 2^-11 an input, or splits it into two of bf16, 2^-17. Of a sum of any length that is 2e-4
 * or 4e-6 of its usual size; what bias and ReLU leave of it may be smaller. What comes rounded is taken as it is. */
static float looseness(const struct ps_linear *a)
{
    const float f32 = a->m <= 16           ? 0
                      : a->rounded_x       ? 2e-5f
                      : a->wtype == PS_F32 ? 2e-5f
                      : a->wtype == PS_F16 ? 2e-3f
                                           : 6e-5f;
    return a->rounded_y ? kt_rounded(a->wtype, f32) : f32;
}

static void one(struct kt *kt, uint32_t m, uint32_t n, uint32_t k, enum ps_dtype t)
{
    struct ps_linear a = { .m = m, .n = n, .k = k, .wtype = t };
    a.ldx = k + kt_below(kt, 3);
    a.ldy = n + kt_below(kt, 3);
    const size_t ny = (size_t) (m - 1) * a.ldy + n, nx = (size_t) (m - 1) * a.ldx + k;
    const bool rounded_x = !kt_below(kt, 3), rounded_y = !kt_below(kt, 4);
    const uint32_t res = rounded_y ? 0 : kt_below(kt, 3); /* none, its own, y itself */
    if (rounded_y) {
        a.rounded_y = kt_out(kt, kt_type_of(t), ny, kt_rounded(t, 2e-5f));
    } else {
        a.y = res == 2 ? kt_inout(kt, KT_F32, ny, 2e-5f) : kt_out(kt, KT_F32, ny, 2e-5f);
        for (size_t i = 0; res == 2 && i < ny; i++) a.y[i] = kt_uniform(kt, -1, 1);
    }
    a.ldr = res == 1 ? n + kt_below(kt, 3) : a.ldy;
    a.residual = res == 0   ? NULL
                 : res == 2 ? a.y
                            : kt_in_f32(kt, (size_t) (m - 1) * a.ldr + n, -1, 1);
    if (rounded_x)
        a.rounded_x = kt_in_dtype(kt, t, nx, -1, 1);
    else
        a.x = kt_in_f32(kt, nx, -1, 1);
    a.w = kt_in_dtype(kt, t, (size_t) n * k, -1, 1);
    a.bias_f32 = kt_below(kt, 2);
    if (kt_below(kt, 3)) a.bias = kt_in_dtype(kt, a.bias_f32 ? PS_F32 : t, n, -1, 1);
    a.act = kt_below(kt, 2) ? PS_ACT_RELU : PS_ACT_NONE;
    kt_check(kt,
             &(struct kt_spec) { .op = PS_OP_linear,
                                 .args = &a,
                                 .piece = some_rows,
                                 .loose = looseness(&a),
                                 .usual = 0.5f * sqrtf((float) k) },
             "%ux%ux%u %s%s%s bias=%d act=%d res=%u", m, n, k, ps_dtype_name(t),
             rounded_x ? " rounded x" : "", rounded_y ? " rounded y" : "",
             a.bias ? 1 + a.bias_f32 : 0, (int) a.act, res);
}

static void check(struct kt *kt)
{
    static const uint32_t ms[] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  12, 13, 14,
                                   15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 131 };
    static const uint32_t odd[] = { 1,  2,  7,  8,  9,  15,  16,  17,  31,
                                    32, 33, 63, 64, 65, 127, 129, 191, 257 };
    enum { N_MS = sizeof ms / sizeof ms[0], N_ODD = sizeof odd / sizeof odd[0] };
    for (int t = 0; t < PS_DTYPE__COUNT; t++) {
        for (unsigned i = 0; i < N_MS; i++)
            for (int j = 0; j < 4; j++)
                one(kt, ms[i], odd[kt_below(kt, N_ODD)], odd[kt_below(kt, N_ODD)],
                    (enum ps_dtype) t);
        for (unsigned i = 0; i < N_ODD; i++) {
            one(kt, ms[kt_below(kt, N_MS)], odd[i], 40, (enum ps_dtype) t);
            one(kt, ms[kt_below(kt, N_MS)], 40, odd[i], (enum ps_dtype) t);
        }
        one(kt, 33, 67, 2048, (enum ps_dtype) t);
        one(kt, 5, 67, 8195, (enum ps_dtype) t);
        for (int i = 0; i < 4; i++) {
            one(kt, 256, 40, 65, (enum ps_dtype) t);
            one(kt, 257, 40, 65, (enum ps_dtype) t);
        }
        one(kt, 300, 130, 259, (enum ps_dtype) t);
        one(kt, 700, 70, 67, (enum ps_dtype) t);
    }
}

const struct kt_test kt_test_linear = { PS_OP_linear, check, kt_bench_linear };
