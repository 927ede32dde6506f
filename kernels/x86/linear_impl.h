/* SPDX-License-Identifier: Apache-2.0 */
/* linear for any vector width: include after a vec_*.h, with MR and PANEL_TILES (rows of a register tile)
 * and DOT_* (the same along k: rows, columns, inputs at a time) defined.
 *
 * The order of additions is the same for every M and every way to cut the work. K is taken in blocks of
 * PS_LIN_KB; in a block, class c (0 .. VL-1) is the chain of fused multiply-adds over k = c, c+VL, c+2VL, ...;
 * y is the sum of the chains, classes ascending within blocks ascending. Two ways lead to these same bits:
 *
 *  - few rows (linear_dot.h): lanes along k. A lane is a class, so w is used as it lies.
 *  - many rows (linear_panel.h): lanes along n. Tiles of w and x are packed with the classes apart.
 */
#ifndef PS_LINEAR_IMPL_H
#define PS_LINEAR_IMPL_H
#include "kernels/x86/linear_dot.h"
#include "kernels/x86/linear_panel.h"
#include "kernels/x86/x86_rows.h"

/* One function per type: the type is a constant in everything inlined into it. */
#define LINEAR_TYPE(t)                                                                           \
    static __attribute__((noinline)) void dot_span_##t(const struct ps_linear *a, uint32_t n0,   \
                                                       uint32_t n1, float *scratch)              \
    {                                                                                            \
        dot_span(a, t, n0, n1, scratch);                                                         \
    }                                                                                            \
    static __attribute__((noinline)) void panel_span_##t(const struct ps_linear *a, uint32_t n0, \
                                                         uint32_t n1, float *scratch)            \
    {                                                                                            \
        panel_span(a, t, n0, n1, scratch);                                                       \
    }
LINEAR_TYPE(PS_F32)
LINEAR_TYPE(PS_F16)
LINEAR_TYPE(PS_BF16)

static inline int linear_run(const struct ps_linear *a, const struct ps_span *span)
{
    typedef void span_fn(const struct ps_linear *, uint32_t, uint32_t, float *);
    static span_fn *const dot[] = {
        [PS_F32] = dot_span_PS_F32, [PS_F16] = dot_span_PS_F16, [PS_BF16] = dot_span_PS_BF16
    };
    static span_fn *const panel[] = {
        [PS_F32] = panel_span_PS_F32, [PS_F16] = panel_span_PS_F16, [PS_BF16] = panel_span_PS_BF16
    };
    const uint64_t end = span->end * PS_LINEAR_UNIT;
    const uint32_t n0 = (uint32_t) (span->begin * PS_LINEAR_UNIT),
                   n1 = end < a->n ? (uint32_t) end : a->n;
    if (n0 < n1) (a->m <= PS_LIN_DOT_MAX ? dot : panel)[a->wtype](a, n0, n1, span->scratch);
    return 0;
}

/* Rows with types that have no code here go to the next slower row. */
static inline bool linear_takes(const void *args)
{
    const struct ps_linear *a = args;
    return (a->wtype == PS_F32 || a->wtype == PS_F16 || a->wtype == PS_BF16) &&
           ps_x86_linear_takes(a);
}
#endif
