/* SPDX-License-Identifier: Apache-2.0 */
/* embed and layernorm for any vector width: include after a vec_*.h. A row's order of additions depends on cols alone. */
#ifndef PS_DENSE_IMPL_H
#define PS_DENSE_IMPL_H
#include "kernels/kern.h"
#include <math.h>

PS_INLINE void embed_row(const struct ps_embed *a, enum ps_dtype t, size_t id, float *y)
{
    const size_t at = id * a->cols;
    uint32_t c = 0;
    for (; c + VL <= a->cols; c += VL) {
        const vf v = vf_w(t, a->table, at + c);
        vf_store(y + c, a->add ? vf_add(vf_load(y + c), v) : v);
    }
    const uint32_t rest = a->cols - c;
    if (!rest) return;
    const vf v = vf_w_part(t, a->table, at + c, rest);
    vf_store_part(y + c, a->add ? vf_add(vf_load_part(y + c, rest), v) : v, rest);
}

PS_INLINE int embed_run(const struct ps_embed *a, const struct ps_span *span)
{
    for (uint64_t r = span->begin; r < span->end; r++) {
        const int64_t id = (int64_t) a->ids[r] + a->ids_add - a->row0;
        if (id < 0 || id >= a->n_rows) continue;
        float *y = a->y + r * a->ldy;
        switch (a->dtype) {
        case PS_F16: embed_row(a, PS_F16, (size_t) id, y); break;
        case PS_BF16: embed_row(a, PS_BF16, (size_t) id, y); break;
        default: embed_row(a, PS_F32, (size_t) id, y); break;
        }
    }
    return 0;
}

PS_INLINE float vf_sum(vf v)
{
    float lane[VL], s = 0;
    vf_store(lane, v);
    for (int i = 0; i < VL; i++) s += lane[i];
    return s;
}

/* Four chains of vectors: the sum of x - mean, or of its square. */
PS_INLINE float row_sum(const float *x, uint32_t cols, float mean, bool square)
{
    const vf vm = vf_set1(mean);
    vf s[4] = { vf_zero(), vf_zero(), vf_zero(), vf_zero() };
    uint32_t c = 0, i = 0;
    for (; c + 4 * VL <= cols; c += 4 * VL)
        for (i = 0; i < 4; i++) {
            const vf d = vf_sub(vf_load(x + c + i * VL), vm);
            s[i] = square ? vf_fma(d, d, s[i]) : vf_add(s[i], d);
        }
    for (i = 0; c < cols; c += VL, i++) {
        const uint32_t n = cols - c < VL ? cols - c : VL;
        const vf d = vf_sub(vf_load_part(x + c, n), vm);
        s[i] = vf_fma_part(d, square ? d : vf_set1(1), s[i], n);
    }
    return vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
}

PS_INLINE void layernorm_row(const struct ps_layernorm *a, enum ps_dtype t, const float *x,
                             float *y)
{
    const float mean = row_sum(x, a->cols, 0, false) / (float) a->cols;
    const float var = row_sum(x, a->cols, mean, true) / (float) a->cols;
    const vf s = vf_set1(1 / sqrtf(var + a->eps)), vm = vf_set1(mean);
    uint32_t c = 0;
    for (; c + VL <= a->cols; c += VL) {
        const vf v = vf_mul(vf_sub(vf_load(x + c), vm), s);
        vf_store(y + c, vf_fma(v, vf_w(t, a->w, c), vf_w(t, a->b, c)));
    }
    const uint32_t n = a->cols - c;
    if (!n) return;
    const vf v = vf_mul(vf_sub(vf_load_part(x + c, n), vm), s);
    vf_store_part(y + c, vf_fma(v, vf_w_part(t, a->w, c, n), vf_w_part(t, a->b, c, n)), n);
}

PS_INLINE int layernorm_run(const struct ps_layernorm *a, const struct ps_span *span)
{
    for (uint64_t r = span->begin; r < span->end; r++) {
        const float *x = a->x + r * a->ldx;
        float *y = a->y + r * a->ldy;
        switch (a->dtype) {
        case PS_F16: layernorm_row(a, PS_F16, x, y); break;
        case PS_BF16: layernorm_row(a, PS_BF16, x, y); break;
        default: layernorm_row(a, PS_F32, x, y); break;
        }
    }
    return 0;
}
#endif
