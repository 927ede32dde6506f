/* SPDX-License-Identifier: Apache-2.0 */
/* The vector vocabulary of linear_impl.h, 8 lanes. Included by AVX2 sources only. */
#ifndef PS_VEC_AVX2_H
#define PS_VEC_AVX2_H
#include "engine/base/ps_dtype.h"
#include <immintrin.h>
#include <string.h>

typedef __m256 vf;
enum { VL = 8 };

#define PS_INLINE  static inline __attribute__((always_inline, unused))

/* Keeps v in a register: compilers would load it again for each use, and loads are what is short. */
#define VF_KEEP(v) __asm__("" : "+x"(v))

PS_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
PS_INLINE vf vf_set1(float f) { return _mm256_set1_ps(f); }
PS_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
PS_INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
PS_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
PS_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
PS_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
/* NaN stays NaN: max gives its second operand then. */
PS_INLINE vf vf_relu(vf a) { return _mm256_max_ps(_mm256_setzero_ps(), a); }
PS_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }

/* The first n lanes (0 .. VL); memory beyond them is not touched, lanes beyond them are zero. */
PS_INLINE __m256i vf_mask(uint32_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int) n), lane);
}
PS_INLINE vf vf_load_part(const float *p, uint32_t n) { return _mm256_maskload_ps(p, vf_mask(n)); }
PS_INLINE void vf_store_part(float *p, vf v, uint32_t n) { _mm256_maskstore_ps(p, vf_mask(n), v); }
/* Lanes from n on keep c. */
PS_INLINE vf vf_fma_part(vf a, vf b, vf c, uint32_t n)
{
    return _mm256_blendv_ps(c, _mm256_fmadd_ps(a, b, c), _mm256_castsi256_ps(vf_mask(n)));
}

PS_INLINE vf vf_widen(enum ps_dtype t, __m128i h)
{
    if (t == PS_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
/* VL elements of type t, from element i on, widened. */
PS_INLINE vf vf_w(enum ps_dtype t, const void *w, size_t i)
{
    if (t == PS_F32) return _mm256_loadu_ps((const float *) w + i);
    return vf_widen(t,
                    _mm_loadu_si128((const __m128i *) (const void *) ((const uint16_t *) w + i)));
}
PS_INLINE vf vf_w_part(enum ps_dtype t, const void *w, size_t i, uint32_t n)
{
    if (t == PS_F32) return vf_load_part((const float *) w + i, n);
    __m128i h = _mm_setzero_si128();
    memcpy(&h, (const uint16_t *) w + i, n * sizeof(uint16_t));
    return vf_widen(t, h);
}

/* r[i] lane j <-> r[j] lane i. */
PS_INLINE void vf_transpose(vf r[VL])
{
    vf t[VL];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            const __m256d a = _mm256_castps_pd(t[i + j]), b = _mm256_castps_pd(t[i + j + 2]);
            r[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    for (int i = 0; i < 4; i++) {
        const vf a = r[i], b = r[i + 4];
        r[i] = _mm256_permute2f128_ps(a, b, 0x20);
        r[i + 4] = _mm256_permute2f128_ps(a, b, 0x31);
    }
}
#endif
