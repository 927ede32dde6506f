/* SPDX-License-Identifier: Apache-2.0 */
/* linear for few inputs: products and sums in f64, which is exact but for the last bits. With K this small the time does not
 * matter much, and what small models are used for is comparing: K and V that are rounded to f16 land on the oracle's side of a rounding
 * boundary. Lanes along K; four columns by a few rows at a time; one fixed reduction at the end, so a row's bits do not depend on M. */
#include "kernels/kern.h"
#include "kernels/x86/vec.h"
#include "kernels/x86/x86_rows.h"

#ifdef __AVX512F__
enum { DL = 8, ROWS = 4 };
typedef __m512d vd;
PS_INLINE vd vd_zero(void) { return _mm512_setzero_pd(); }
PS_INLINE vd vd_load(const double *p) { return _mm512_loadu_pd(p); }
PS_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
PS_INLINE vd vd_widen(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
PS_INLINE vd vd_widen_half(const uint16_t *p, bool bf16)
{
    const __m128i h = _mm_loadu_si128((const __m128i *) p);
    if (!bf16) return _mm512_cvtps_pd(_mm256_cvtph_ps(h));
    return _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)));
}
PS_INLINE void vd_store(double *p, vd x) { _mm512_storeu_pd(p, x); }
#else
enum { DL = 4, ROWS = 2 };
typedef __m256d vd;
PS_INLINE vd vd_zero(void) { return _mm256_setzero_pd(); }
PS_INLINE vd vd_load(const double *p) { return _mm256_loadu_pd(p); }
PS_INLINE vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
PS_INLINE vd vd_widen(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
PS_INLINE vd vd_widen_half(const uint16_t *p, bool bf16)
{
    const __m128i h = _mm_loadl_epi64((const __m128i *) p);
    if (!bf16) return _mm256_cvtps_pd(_mm_cvtph_ps(h));
    return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(h), 16)));
}
PS_INLINE void vd_store(double *p, vd x) { _mm256_storeu_pd(p, x); }
#endif

enum { COLS = 4, K_MAX = PS_LINEAR_WIDE_K };

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

static void widen_row(const struct ps_linear *a, uint32_t n, double *w)
{
    const size_t at = (size_t) n * a->k;
    uint32_t k = 0;
    for (; k + DL <= a->k; k += DL)
        vd_store(w + k, a->wtype == PS_F32
                            ? vd_widen((const float *) a->w + at + k)
                            : vd_widen_half((const uint16_t *) a->w + at + k, a->wtype == PS_BF16));
    for (; k < a->k; k++) w[k] = (double) ps_dtype_get(a->wtype, a->w, at + k);
}

static void columns(const struct ps_linear *a, double *w, uint32_t n, unsigned nr)
{
    for (unsigned j = 0; j < nr; j++) widen_row(a, n + j, w + j * K_MAX);
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
    const struct ps_linear *a = args;
    return a->k <= K_MAX && ps_x86_linear_takes(a);
}
