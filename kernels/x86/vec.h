/* SPDX-License-Identifier: Apache-2.0 */
/* The vector width of the file being compiled: 16 floats with AVX-512 flags, 8 with AVX2 flags. The attention, KV and
 * sampling rows are written once in these terms and compiled twice; PS_ISA() gives their functions two names. A
 * function ending in `n` touches only the first n lanes in memory; lanes that it does not load are zero. */
#ifndef PS_VEC_H
#define PS_VEC_H
#include "engine/base/ps_dtype.h"
#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define PS_INLINE     static inline __attribute__((always_inline))
#define PS_CAT_(a, b) a##b
#define PS_CAT(a, b)  PS_CAT_(a, b)

#ifdef __AVX512F__
#define PS_ISA(name) PS_CAT(name, _avx512)
enum { VL = 16 };
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

PS_INLINE vm vm_first(unsigned n) { return (vm) ((1u << n) - 1); }
PS_INLINE unsigned vm_bits(vm m) { return m; }
PS_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
PS_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
PS_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
PS_INLINE vf vf_loadn(const float *p, unsigned n) { return _mm512_maskz_loadu_ps(vm_first(n), p); }
PS_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
PS_INLINE void vf_storen(float *p, unsigned n, vf x) { _mm512_mask_storeu_ps(p, vm_first(n), x); }
PS_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
PS_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
PS_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
PS_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
PS_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
PS_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); } /* b if one is NaN */
PS_INLINE vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
PS_INLINE vm vf_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
PS_INLINE vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
PS_INLINE vf vf_pick(vm m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
PS_INLINE vf vf_round(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT); }
PS_INLINE vf vf_ldexp(vf x, vf n) { return _mm512_scalef_ps(x, n); }

PS_INLINE vi vf_trunc(vf x) { return _mm512_cvttps_epi32(x); }
PS_INLINE vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
PS_INLINE vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
PS_INLINE vi vi_loadn(const int32_t *p, unsigned n)
{
    return _mm512_maskz_loadu_epi32(vm_first(n), p);
}
PS_INLINE void vi_store(int32_t *p, vi x) { _mm512_storeu_si512(p, x); }
PS_INLINE vi vi_iota(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
PS_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
PS_INLINE vm vi_gt(vi a, vi b) { return _mm512_cmpgt_epi32_mask(a, b); }
PS_INLINE vi vi_pick(vm m, vi yes, vi no) { return _mm512_mask_blend_epi32(m, no, yes); }
PS_INLINE vm vm_and(vm a, vm b) { return a & b; }
PS_INLINE vm vm_or(vm a, vm b) { return a | b; }
PS_INLINE vm vm_andnot(vm no, vm b) { return (vm) (~no & b); }

PS_INLINE vf vh_load(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p));
}
PS_INLINE vf vh_loadn(const uint16_t *p, unsigned n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vm_first(n), p));
}
PS_INLINE void vh_storen(uint16_t *p, unsigned n, vf x)
{
    _mm256_mask_storeu_epi16(p, vm_first(n),
                             _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

PS_INLINE float vf_sum(vf x) /* one fixed tree */
{
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
PS_INLINE float vf_greatest(vf x) { return _mm512_reduce_max_ps(x); }

/* Lane i of the result: the sum of a[i]'s lanes, by one fixed tree. */
PS_INLINE vf vf_sum_each(const vf *a)
{
    vf s[8], t[4];
    for (int i = 0; i < 8; i++)
        s[i] = vf_add(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]),
                      _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
    for (int i = 0; i < 4; i++) {
        const __m512d x = _mm512_castps_pd(s[2 * i]), y = _mm512_castps_pd(s[2 * i + 1]);
        t[i] = vf_add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                      _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    const vf u =
        vf_add(_mm512_shuffle_f32x4(t[0], t[1], 0x44), _mm512_shuffle_f32x4(t[0], t[1], 0xee));
    const vf v =
        vf_add(_mm512_shuffle_f32x4(t[2], t[3], 0x44), _mm512_shuffle_f32x4(t[2], t[3], 0xee));
    return vf_add(_mm512_shuffle_f32x4(u, v, 0x88), _mm512_shuffle_f32x4(u, v, 0xdd));
}
PS_INLINE __m128 vf_quarter(vf x, int i)
{
    return i == 0   ? _mm512_castps512_ps128(x)
           : i == 1 ? _mm512_extractf32x4_ps(x, 1)
           : i == 2 ? _mm512_extractf32x4_ps(x, 2)
                    : _mm512_extractf32x4_ps(x, 3);
}
/* m[i] lane j becomes m[j] lane i. */
PS_INLINE void vf_transpose(vf *m)
{
    vf s[16], t[16];
    for (int i = 0; i < 8; i++) {
        s[2 * i] = _mm512_unpacklo_ps(m[2 * i], m[2 * i + 1]);
        s[2 * i + 1] = _mm512_unpackhi_ps(m[2 * i], m[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            const __m512d x = _mm512_castps_pd(s[4 * i + k]),
                          y = _mm512_castps_pd(s[4 * i + 2 + k]);
            t[4 * i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            t[4 * i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    }
    for (int k = 0; k < 4; k++) /* t[4i + k]: columns k, 4+k, 8+k, 12+k of rows 4i.. */
    {
        const vf a = _mm512_shuffle_f32x4(t[k], t[4 + k], 0x44);
        const vf b = _mm512_shuffle_f32x4(t[8 + k], t[12 + k], 0x44);
        const vf c = _mm512_shuffle_f32x4(t[k], t[4 + k], 0xee);
        const vf e = _mm512_shuffle_f32x4(t[8 + k], t[12 + k], 0xee);
        m[k] = _mm512_shuffle_f32x4(a, b, 0x88);
        m[4 + k] = _mm512_shuffle_f32x4(a, b, 0xdd);
        m[8 + k] = _mm512_shuffle_f32x4(c, e, 0x88);
        m[12 + k] = _mm512_shuffle_f32x4(c, e, 0xdd);
    }
}

#else
#define PS_ISA(name) PS_CAT(name, _avx2)
enum { VL = 8 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm; /* all ones or zero per lane */

PS_INLINE __m256i vm_first_i(unsigned n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int) n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
PS_INLINE vm vm_first(unsigned n) { return _mm256_castsi256_ps(vm_first_i(n)); }
PS_INLINE unsigned vm_bits(vm m) { return (unsigned) _mm256_movemask_ps(m); }
PS_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
PS_INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
PS_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
PS_INLINE vf vf_loadn(const float *p, unsigned n) { return _mm256_maskload_ps(p, vm_first_i(n)); }
PS_INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
PS_INLINE void vf_storen(float *p, unsigned n, vf x) { _mm256_maskstore_ps(p, vm_first_i(n), x); }
PS_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
PS_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
PS_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
PS_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
PS_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
PS_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); } /* b if one is NaN */
PS_INLINE vm vf_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
PS_INLINE vm vf_ge(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
PS_INLINE vm vf_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
PS_INLINE vf vf_pick(vm m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, m); }
PS_INLINE vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n for whole n in [-250, 250], rounded once: by two factors, the first exact. */
PS_INLINE vf vf_ldexp(vf x, vf n)
{
    const __m256i i = _mm256_cvtps_epi32(n), a = _mm256_srai_epi32(i, 1),
                  b = _mm256_sub_epi32(i, a);
    const __m256i bias = _mm256_set1_epi32(127);
    x = vf_mul(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(a, bias), 23)));
    return vf_mul(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(b, bias), 23)));
}

PS_INLINE vi vf_trunc(vf x) { return _mm256_cvttps_epi32(x); }
PS_INLINE vi vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
PS_INLINE vi vi_load(const int32_t *p) { return _mm256_loadu_si256((const __m256i *) p); }
PS_INLINE vi vi_loadn(const int32_t *p, unsigned n)
{
    return _mm256_maskload_epi32(p, vm_first_i(n));
}
PS_INLINE void vi_store(int32_t *p, vi x) { _mm256_storeu_si256((__m256i *) p, x); }
PS_INLINE vi vi_iota(void) { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
PS_INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
PS_INLINE vm vi_gt(vi a, vi b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b)); }
PS_INLINE vi vi_pick(vm m, vi yes, vi no)
{
    return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(m));
}
PS_INLINE vm vm_and(vm a, vm b) { return _mm256_and_ps(a, b); }
PS_INLINE vm vm_or(vm a, vm b) { return _mm256_or_ps(a, b); }
PS_INLINE vm vm_andnot(vm no, vm b) { return _mm256_andnot_ps(no, b); }

PS_INLINE vf vh_load(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p));
}
PS_INLINE vf vh_loadn(const uint16_t *p, unsigned n)
{
    uint16_t t[8] = { 0 };
    for (unsigned i = 0; i < n; i++) t[i] = p[i];
    return vh_load(t);
}
PS_INLINE void vh_storen(uint16_t *p, unsigned n, vf x)
{
    uint16_t t[8];
    _mm_storeu_si128((__m128i *) t,
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    for (unsigned i = 0; i < n; i++) p[i] = t[i];
}

PS_INLINE float vf_sum(vf x)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
PS_INLINE float vf_greatest(vf x)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
PS_INLINE vf vf_sum_each(const vf *a)
{
    vf s[4], t[2];
    for (int i = 0; i < 4; i++)
        s[i] = vf_add(_mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]),
                      _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]));
    for (int i = 0; i < 2; i++) {
        const __m256d x = _mm256_castps_pd(s[2 * i]), y = _mm256_castps_pd(s[2 * i + 1]);
        t[i] = vf_add(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                      _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
    }
    return vf_add(_mm256_permute2f128_ps(t[0], t[1], 0x20),
                  _mm256_permute2f128_ps(t[0], t[1], 0x31));
}
PS_INLINE __m128 vf_quarter(vf x, int i)
{
    return i == 0 ? _mm256_castps256_ps128(x) : _mm256_extractf128_ps(x, 1);
}
PS_INLINE void vf_transpose(vf *m)
{
    vf s[8], t[8];
    for (int i = 0; i < 4; i++) {
        s[2 * i] = _mm256_unpacklo_ps(m[2 * i], m[2 * i + 1]);
        s[2 * i + 1] = _mm256_unpackhi_ps(m[2 * i], m[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            const __m256d x = _mm256_castps_pd(s[4 * i + k]),
                          y = _mm256_castps_pd(s[4 * i + 2 + k]);
            t[4 * i + 2 * k] = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
            t[4 * i + 2 * k + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
        }
    }
    for (int k = 0; k < 4; k++) {
        m[k] = _mm256_permute2f128_ps(t[k], t[4 + k], 0x20);
        m[4 + k] = _mm256_permute2f128_ps(t[k], t[4 + k], 0x31);
    }
}
#endif

/* e^x for x <= 0 (and a little above), within 1 ulp; 0 where that is below f32, NaN stays NaN. x = n ln 2 + r,
 * e^r = 1 + r + r^2 P(r) with P the interpolant of degree 4 at Chebyshev's points: 1.1e-8 off at most. */
PS_INLINE vf vf_exp(vf x)
{
    x = vf_max(vf_set1(-150.0f), x);
    const vf n = vf_round(vf_mul(x, vf_set1(0x1.715476p+0f)));
    vf r = vf_fma(n, vf_set1(-0x1.62e8p-1f), x);
    r = vf_fma(n, vf_set1(0x1.e8082ep-16f), r);
    vf p = vf_set1(0x1.6d110ap-10f);
    p = vf_fma(p, r, vf_set1(0x1.120b6ep-7f));
    p = vf_fma(p, r, vf_set1(0x1.55551ap-5f));
    p = vf_fma(p, r, vf_set1(0x1.5554dcp-3f));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, vf_mul(r, r), r);
    return vf_ldexp(vf_add(p, vf_set1(1.0f)), n);
}

/* Elements i.. of a KV array; `half` is a constant where these are inlined. */
PS_INLINE const void *kv_at(const void *p, bool half, size_t i)
{
    return (const char *) p + (i << (half ? 1 : 2));
}
PS_INLINE vf kv_load(const void *p, bool half, size_t i)
{
    return half ? vh_load((const uint16_t *) p + i) : vf_load((const float *) p + i);
}
PS_INLINE vf kv_loadn(const void *p, bool half, size_t i, unsigned n)
{
    return half ? vh_loadn((const uint16_t *) p + i, n) : vf_loadn((const float *) p + i, n);
}
PS_INLINE void kv_storen(void *p, bool half, size_t i, unsigned n, vf x)
{
    if (half)
        vh_storen((uint16_t *) p + i, n, x);
    else
        vf_storen((float *) p + i, n, x);
}
#endif
