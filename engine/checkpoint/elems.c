/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar forms, and AVX2 + F16C forms of the same for x86. The fast form only says whether a block of elements was good; where
 * it was not, the scalar form finds the element. */
#include "engine/checkpoint/elems.h"
#include "engine/base/ps_cpu.h"
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define FAST __attribute__((target("avx2,fma,f16c")))
#endif

enum { BLOCK = 4096 };

static float get(enum ps_dtype t, const void *p, size_t i)
{
    uint16_t h;
    float f;
    if (t == PS_F32) {
        memcpy(&f, (const char *) p + 4 * i, 4);
        return f;
    }
    memcpy(&h, (const char *) p + 2 * i, 2);
    return t == PS_F16 ? ps_f16_to_f32(h) : ps_bf16_to_f32(h);
}

static size_t convert_scalar(enum ps_dtype from, const void *src, enum ps_dtype to, void *dst,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float f = get(from, src, i);
        if (!isfinite(f)) return i;
        ps_dtype_put(to, dst, i, f);
        if (!isfinite(ps_dtype_get(to, dst, i))) return i;
    }
    return n;
}

/* A counter through MurmurHash3's 32-bit finaliser (public domain, A. Appleby); its four bytes are summed. */
static float random_value(uint32_t key, uint32_t i, float base, float scale)
{
    uint32_t x = i * 0x9e3779b1u + key;
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    int32_t sum = (int32_t) ((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24)) - 510;
    float z = (float) sum * scale;
    return base + z;
}

static void random_scalar(uint32_t key, uint32_t i0, float base, float scale, enum ps_dtype to,
                          void *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ps_dtype_put(to, dst, i, random_value(key, i0 + (uint32_t) i, base, scale));
}

#ifdef FAST
FAST static inline __m256 load8(enum ps_dtype t, const char *p, size_t i)
{
    if (t == PS_F32) return _mm256_loadu_ps((const float *) (const void *) (p + 4 * i));
    __m128i h = _mm_loadu_si128((const __m128i *) (const void *) (p + 2 * i));
    if (t == PS_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* Stores 8 finite values; what overflows shows in the result as its all-ones exponent. Returns the mask of those. */
FAST static inline __m256i store8(enum ps_dtype t, char *p, size_t i, __m256 f)
{
    if (t == PS_F32) {
        _mm256_storeu_ps((float *) (void *) (p + 4 * i), f);
        return _mm256_setzero_si256();
    }
    __m128i h;
    __m128i exp = _mm_set1_epi16(t == PS_F16 ? 0x7c00 : 0x7f80);
    if (t == PS_F16) {
        h = _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    } else {
        __m256i u = _mm256_castps_si256(f);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
        u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        u = _mm256_srli_epi32(u, 16);
        h = _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
    }
    _mm_storeu_si128((__m128i *) (void *) (p + 2 * i), h);
    return _mm256_castsi128_si256(_mm_cmpeq_epi16(_mm_and_si128(h, exp), exp));
}

FAST static inline bool convert_block(enum ps_dtype from, const char *src, enum ps_dtype to,
                                      char *dst, size_t n)
{
    const __m256i exp = _mm256_set1_epi32(0x7f800000);
    __m256i bad = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 8) {
        __m256 f = load8(from, src, i);
        __m256i e = _mm256_and_si256(_mm256_castps_si256(f), exp);
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(e, exp));
        bad = _mm256_or_si256(bad, store8(to, dst, i, f));
    }
    return _mm256_testz_si256(bad, bad);
}

/* The types are constants in each branch, so that the inner loop has no branches. */
FAST static bool convert_fast(enum ps_dtype from, const char *src, enum ps_dtype to, char *dst,
                              size_t n)
{
    switch ((int) from * 3 + (int) to) {
    case PS_F32 * 3 + PS_F32: return convert_block(PS_F32, src, PS_F32, dst, n);
    case PS_F32 * 3 + PS_F16: return convert_block(PS_F32, src, PS_F16, dst, n);
    case PS_F32 * 3 + PS_BF16: return convert_block(PS_F32, src, PS_BF16, dst, n);
    case PS_F16 * 3 + PS_F32: return convert_block(PS_F16, src, PS_F32, dst, n);
    case PS_F16 * 3 + PS_F16: return convert_block(PS_F16, src, PS_F16, dst, n);
    case PS_F16 * 3 + PS_BF16: return convert_block(PS_F16, src, PS_BF16, dst, n);
    case PS_BF16 * 3 + PS_F32: return convert_block(PS_BF16, src, PS_F32, dst, n);
    case PS_BF16 * 3 + PS_F16: return convert_block(PS_BF16, src, PS_F16, dst, n);
    default: return convert_block(PS_BF16, src, PS_BF16, dst, n);
    }
}

FAST static inline void random_block(uint32_t key, uint32_t i0, float base, float scale,
                                     enum ps_dtype to, char *dst, size_t n)
{
    const __m256i step = _mm256_set1_epi32((int) (8u * 0x9e3779b1u));
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i ctr = _mm256_add_epi32(_mm256_set1_epi32((int) i0), lane);
    ctr = _mm256_mullo_epi32(ctr, _mm256_set1_epi32((int) 0x9e3779b1u));
    ctr = _mm256_add_epi32(ctr, _mm256_set1_epi32((int) key));
    const __m256 b = _mm256_set1_ps(base), s = _mm256_set1_ps(scale);
    for (size_t i = 0; i < n; i += 8) {
        __m256i x = _mm256_xor_si256(ctr, _mm256_srli_epi32(ctr, 16));
        x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int) 0x85ebca6bu));
        x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 13));
        x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int) 0xc2b2ae35u));
        x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
        x = _mm256_maddubs_epi16(x, _mm256_set1_epi8(1));
        x = _mm256_madd_epi16(x, _mm256_set1_epi16(1));
        x = _mm256_sub_epi32(x, _mm256_set1_epi32(510));
        __m256 z = _mm256_mul_ps(_mm256_cvtepi32_ps(x), s);
        (void) store8(to, dst, i, _mm256_add_ps(b, z));
        ctr = _mm256_add_epi32(ctr, step);
    }
}

FAST static void random_fast(uint32_t key, uint32_t i0, float base, float scale, enum ps_dtype to,
                             char *dst, size_t n)
{
    if (to == PS_F32)
        random_block(key, i0, base, scale, PS_F32, dst, n);
    else if (to == PS_F16)
        random_block(key, i0, base, scale, PS_F16, dst, n);
    else
        random_block(key, i0, base, scale, PS_BF16, dst, n);
}
#endif

size_t ps_elems_convert(enum ps_dtype from, const void *src, enum ps_dtype to, void *dst, size_t n)
{
    size_t i = 0, sb = ps_dtype_bytes(from), db = ps_dtype_bytes(to);
#ifdef FAST
    const bool fast = ps_cpu_flags() & PS_CPU_AVX2;
    while (fast && n - i >= 8) {
        size_t m = n - i < BLOCK ? (n - i) & ~(size_t) 7 : BLOCK;
        if (!convert_fast(from, (const char *) src + i * sb, to, (char *) dst + i * db, m)) break;
        i += m;
    }
#endif
    return i + convert_scalar(from, (const char *) src + i * sb, to, (char *) dst + i * db, n - i);
}

size_t ps_elems_compare(enum ps_dtype ta, const void *a, enum ps_dtype tb, const void *b, size_t n)
{
    size_t eb = ps_dtype_bytes(ta);
    if (ta == tb && !memcmp(a, b, n * eb)) return n;
    for (size_t i = 0; i < n; i++)
        if (get(ta, a, i) != get(tb, b, i)) return i;
    return n;
}

void ps_elems_random(uint64_t key, uint64_t i0, float base, float scale, enum ps_dtype to,
                     void *dst, size_t n)
{
    const float unit = scale / 147.79716f; /* deviation of the sum: sqrt(4 (256^2 - 1) / 12) */
    size_t db = ps_dtype_bytes(to);
    while (n) { /* 32-bit counters; the upper half of the index goes into the key */
        uint32_t lo = (uint32_t) i0, hi = (uint32_t) (i0 >> 32);
        uint32_t k = (uint32_t) key ^ (uint32_t) (key >> 32) ^ hi * 0x85ebca77u;
        uint64_t left = 0x100000000u - (uint64_t) lo;
        size_t m = n < left ? n : (size_t) left, done = 0;
#ifdef FAST
        if (ps_cpu_flags() & PS_CPU_AVX2) {
            done = m & ~(size_t) 7;
            random_fast(k, lo, base, unit, to, dst, done);
        }
#endif
        random_scalar(k, lo + (uint32_t) done, base, unit, to, (char *) dst + done * db, m - done);
        dst = (char *) dst + m * db;
        i0 += m;
        n -= m;
    }
}
