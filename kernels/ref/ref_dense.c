/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar reference of embed, layernorm, convert, linear and call: double accumulation, nothing clever. */
#include "kernels/ref/ref_rows.h"
#include <math.h>

int ps_embed_ref(const void *args, const struct ps_span *span)
{
    const struct ps_embed *a = args;
    for (uint64_t r = span->begin; r < span->end; r++) {
        const int64_t id = (int64_t) a->ids[r] + a->ids_add - a->row0;
        if (id < 0 || id >= a->n_rows) continue;
        for (uint32_t c = 0; c < a->cols; c++) {
            const float v = ps_dtype_get(a->dtype, a->table, (size_t) id * a->cols + c);
            float *y = &a->y[r * a->ldy + c];
            *y = a->add ? *y + v : v;
        }
    }
    return 0;
}

int ps_layernorm_ref(const void *args, const struct ps_span *span)
{
    const struct ps_layernorm *a = args;
    for (uint64_t r = span->begin; r < span->end; r++) {
        const float *x = a->x + r * a->ldx;
        double mean = 0, var = 0;
        for (uint32_t c = 0; c < a->cols; c++) mean += (double) x[c];
        mean /= a->cols;
        for (uint32_t c = 0; c < a->cols; c++)
            var += ((double) x[c] - mean) * ((double) x[c] - mean);
        var /= a->cols;
        const double s = 1 / sqrt(var + (double) a->eps);
        for (uint32_t c = 0; c < a->cols; c++) {
            const float y =
                (float) (((double) x[c] - mean) * s * (double) ps_dtype_get(a->dtype, a->w, c) +
                         (double) ps_dtype_get(a->dtype, a->b, c));
            if (a->rounded) ps_dtype_put(a->dtype, a->rounded, r * a->cols + c, y);
            if (a->y) a->y[r * a->ldy + c] = y;
        }
    }
    return 0;
}

int ps_convert_ref(const void *args, const struct ps_span *span)
{
    const struct ps_convert *a = args;
    for (uint64_t i = span->begin * PS_CONVERT_UNIT; i < span->end * PS_CONVERT_UNIT && i < a->n;
         i++)
        ps_dtype_put(a->to, a->y, i, ps_dtype_get(a->from, a->x, i));
    return 0;
}

static double dot(const struct ps_linear *a, uint32_t m, uint32_t n)
{
    const enum ps_dtype xtype = a->rounded_x ? a->wtype : PS_F32;
    const void *x = a->rounded_x ? a->rounded_x : a->x;
    double s = 0;
    for (uint32_t k = 0; k < a->k; k++)
        s += (double) ps_dtype_get(xtype, x, (size_t) m * a->ldx + k) *
             (double) ps_dtype_get(a->wtype, a->w, (size_t) n * a->k + k);
    return s;
}

static void put(const struct ps_linear *a, size_t at, double s)
{
    if (a->rounded_y)
        ps_dtype_put(a->wtype, a->rounded_y, at, ps_f64_to_f32_odd(s));
    else
        a->y[at] = a->odd ? ps_f64_to_f32_odd(s) : (float) s;
}

int ps_linear_ref(const void *args, const struct ps_span *span)
{
    const struct ps_linear *a = args;
    uint64_t end = span->end * PS_LINEAR_UNIT;
    if (end > a->n) end = a->n;
    for (uint32_t m = 0; m < a->m; m++)
        for (uint32_t n = (uint32_t) (span->begin * PS_LINEAR_UNIT); n < end; n++) {
            double s = dot(a, m, n);
            if (a->bias) s += (double) ps_dtype_get(a->bias_f32 ? PS_F32 : a->wtype, a->bias, n);
            if (a->act == PS_ACT_RELU && s < 0) s = 0; /* NaN stays NaN */
            if (a->residual) s += (double) a->residual[(size_t) m * a->ldr + n];
            put(a, (size_t) m * a->ldy + n, s);
        }
    return 0;
}

int ps_call_ref(const void *args, const struct ps_span *span)
{
    const struct ps_call *a = args;
    return span->begin < span->end ? a->fn(a->ud, a->arg) : 0;
}
