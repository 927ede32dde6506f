/* SPDX-License-Identifier: Apache-2.0 */
/* What both ways of linear_impl.h share: outputs from sums, and prefetches. */
#ifndef PS_LINEAR_FINISH_H
#define PS_LINEAR_FINISH_H
#include "kernels/linear_scratch.h"

/* y[m, n .. n+cnt) from finished sums. */
PS_INLINE void finish(const struct ps_linear *a, enum ps_dtype t, uint32_t m, uint32_t n, vf v,
                      uint32_t cnt)
{
    float *y = a->y + (size_t) m * a->ldy + n;
    const float *res = a->residual ? a->residual + (size_t) m * a->ldr + n : NULL;
    const bool full = cnt >= VL;
    if (a->bias) v = vf_add(v, full ? vf_w(t, a->bias, n) : vf_w_part(t, a->bias, n, cnt));
    if (a->act == PS_ACT_RELU) v = vf_relu(v);
    if (res) v = vf_add(v, full ? vf_load(res) : vf_load_part(res, cnt));
    if (full)
        vf_store(y, v);
    else
        vf_store_part(y, v, cnt);
}

PS_INLINE void prefetch_far(uintptr_t at) /* may lie past the end: a prefetch never faults */
{
    _mm_prefetch((const char *) at, _MM_HINT_T1);
}

PS_INLINE void prefetch_near(uintptr_t at) { _mm_prefetch((const char *) at, _MM_HINT_T0); }
#endif
