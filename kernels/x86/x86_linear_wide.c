/* SPDX-License-Identifier: Apache-2.0 */
/* linear for few inputs: products and sums in f64, which is exact but for the last bits. With K this small the time does not
 * matter, and what small models are used for is comparing: K and V that are rounded to f16 land on the oracle's side of a rounding
 * boundary. Lanes along K; two columns by four rows at a time; one fixed reduction at the end, so a row's bits do not depend on M. */
#include "kernels/kern.h"
#include "kernels/x86/vec.h"
#include "kernels/x86/x86_rows.h"

#ifdef __AVX512F__
enum { DL = 8 };
typedef __m512d vd;
PS_INLINE vd vd_zero(void) { return _mm512_setzero_pd(); }
PS_INLINE vd vd_load(const double *p) { return _mm512_loadu_pd(p); }
PS_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
PS_INLINE vd vd_widen(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
PS_INLINE void vd_store(double *p, vd x) { _mm512_storeu_pd(p, x); }
#else
enum { DL = 4 };
typedef __m256d vd;
PS_INLINE vd vd_zero(void) { return _mm256_setzero_pd(); }
PS_INLINE vd vd_load(const double *p) { return _mm256_loadu_pd(p); }
PS_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
PS_INLINE vd vd_widen(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
PS_INLINE void vd_store(double *p, vd x) { _mm256_storeu_pd(p, x); }
#endif

enum { COLS = 2, ROWS = 4, K_MAX = PS_LINEAR_WIDE_K };

static double sum(vd v, const double *tail)
{
    double l[8] = { 0 };
    vd_store(l, v);
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])) + *tail;
}

static void finish(const struct ps_linear *a, uint32_t m, uint32_t n, double s)
{
    if (a->bias) s += (double) ps_dtype_get(a->wtype, a->bias, n);
    if (a->act == PS_ACT_RELU && s < 0) s = 0;
    if (a->residual) s += (double) a->residual[(size_t) m * a->ldr + n];
    a->y[(size_t) m * a->ldy + n] = a->odd ? ps_f64_to_f32_odd(s) : (float) s;
}

/* Rows m .. m+mr of the two columns whose widened weights are in w. */
PS_INLINE void tile(const struct ps_linear *a, const double *w, uint32_t m, unsigned mr, uint32_t n,
                    unsigned nr)
{
    vd acc[ROWS][COLS];
    double tail[ROWS][COLS] = { { 0 } };
    const uint32_t body = a->k / DL * DL;
    for (unsigned i = 0; i < ROWS; i++)
        for (unsigned j = 0; j < COLS; j++) acc[i][j] = vd_zero();
    for (uint32_t k = 0; k < body; k += DL)
        for (unsigned i = 0; i < mr; i++) {
            const vd x = vd_widen(a->x + (size_t) (m + i) * a->ldx + k);
            for (unsigned j = 0; j < COLS; j++)
                acc[i][j] = vd_fma(x, vd_load(w + j * K_MAX + k), acc[i][j]);
        }
    for (uint32_t k = body; k < a->k; k++)
        for (unsigned i = 0; i < mr; i++)
            for (unsigned j = 0; j < COLS; j++)
                tail[i][j] += (double) a->x[(size_t) (m + i) * a->ldx + k] * w[j * K_MAX + k];
    for (unsigned i = 0; i < mr; i++)
        for (unsigned j = 0; j < nr; j++) finish(a, m + i, n + j, sum(acc[i][j], &tail[i][j]));
}

static void columns(const struct ps_linear *a, double *w, uint32_t n, unsigned nr)
{
    for (unsigned j = 0; j < nr; j++)
        for (uint32_t k = 0; k < a->k; k++)
            w[j * K_MAX + k] = (double) ps_dtype_get(a->wtype, a->w, (size_t) (n + j) * a->k + k);
    uint32_t m = 0;
    for (; m + ROWS <= a->m; m += ROWS) tile(a, w, m, ROWS, n, nr);
    for (; m < a->m; m++) tile(a, w, m, 1, n, nr);
}

int PS_ISA(ps_linear_wide)(const void *args, const struct ps_span *span)
{
    const struct ps_linear *a = args;
    double w[COLS * K_MAX] = { 0 };
    uint64_t end = span->end * PS_LINEAR_UNIT;
    if (end > a->n) end = a->n;
    for (uint64_t n = span->begin * PS_LINEAR_UNIT; n < end; n += COLS)
        columns(a, w, (uint32_t) n, end - n < COLS ? (unsigned) (end - n) : COLS);
    return 0;
}

bool PS_ISA(ps_linear_wide_takes)(const void *args)
{
    return ((const struct ps_linear *) args)->k <= K_MAX;
}
