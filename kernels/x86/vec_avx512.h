/* SPDX-License-Identifier: Apache-2.0 */
/* The vector vocabulary of linear_impl.h, 16 lanes. Included by AVX-512 sources only. */
#ifndef PS_VEC_AVX512_H
#define PS_VEC_AVX512_H
#include "engine/base/ps_dtype.h"
#include <immintrin.h>

typedef __m512 vf;
enum { VL = 16 };

#define PS_INLINE  static inline __attribute__((always_inline, unused))

/* Keeps v in a register: compilers would load it again for each use, and loads are what is short. */
#define VF_KEEP(v) __asm__("" : "+v"(v))

PS_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
PS_INLINE vf vf_set1(float f) { return _mm512_set1_ps(f); }
PS_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
PS_INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
PS_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
PS_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
PS_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
/* NaN stays NaN: max gives its second operand then. */
PS_INLINE vf vf_relu(vf a) { return _mm512_max_ps(_mm512_setzero_ps(), a); }
PS_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }

/* The first n lanes (0 .. VL); memory beyond them is not touched, lanes beyond them are zero. */
PS_INLINE __mmask16 vf_mask(uint32_t n) { return (__mmask16) ((1u << n) - 1); }
PS_INLINE vf vf_load_part(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps(vf_mask(n), p);
}
PS_INLINE void vf_store_part(float *p, vf v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, vf_mask(n), v);
}
/* Lanes from n on keep c. */
PS_INLINE vf vf_fma_part(vf a, vf b, vf c, uint32_t n)
{
    return _mm512_mask3_fmadd_ps(a, b, c, vf_mask(n));
}

/* VL elements of type t, from element i on, widened. */
PS_INLINE vf vf_w(enum ps_dtype t, const void *w, size_t i)
{
    if (t == PS_F32) return _mm512_loadu_ps((const float *) w + i);
    const __m256i h =
        _mm256_loadu_si256((const __m256i *) (const void *) ((const uint16_t *) w + i));
    if (t == PS_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
PS_INLINE vf vf_w_part(enum ps_dtype t, const void *w, size_t i, uint32_t n)
{
    if (t == PS_F32) return vf_load_part((const float *) w + i, n);
    const __m256i h = _mm256_maskz_loadu_epi16(vf_mask(n), (const uint16_t *) w + i);
    if (t == PS_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* r[i] lane j <-> r[j] lane i: pairs, quads, then 128-bit blocks. */
PS_INLINE void vf_transpose(vf r[VL])
{
    vf t[VL];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}
#endif
