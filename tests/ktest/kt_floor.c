/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can do at best, measured in the same run: fused multiply-adds from registers, and reading
 * more memory than the caches hold. A bench's floor is the longer of its flops and its bytes at these rates. */
#include "kt.h"
#include <immintrin.h>

enum { FMA_LOOPS = 200000, CHAINS = 16 };
static volatile float sink;

/* CHAINS independent chains of `width` lanes; the same text for both widths. */
#define FMA_BODY(T, set1, fmadd, first)                                 \
    T acc[CHAINS], a = set1(0.999f), b = set1(0.001f);                  \
    for (int i = 0; i < CHAINS; i++) acc[i] = set1((float) i);          \
    for (int l = 0; l < FMA_LOOPS; l++)                                 \
        for (int i = 0; i < CHAINS; i++) acc[i] = fmadd(acc[i], a, b);  \
    for (int i = 1; i < CHAINS; i++) acc[0] = fmadd(acc[0], a, acc[i]); \
    sink = first(acc[0]);

__attribute__((target("avx512f"))) static void fma512(void)
{
    FMA_BODY(__m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32)
}
__attribute__((target("avx2,fma"))) static void fma256(void)
{
    FMA_BODY(__m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32)
}

double kt_floor_flops_of_one(const struct kt *kt)
{
    return 2.0 * FMA_LOOPS * CHAINS * (kt->cpu & 2 ? 16 : kt->cpu & 1 ? 8 : 0);
}
void kt_floor_fma(void *ud, unsigned worker)
{
    const struct kt *kt = ud;
    if (kt->cpu & 2)
        fma512();
    else if (kt->cpu & 1)
        fma256();
}

/* Several streams a thread, as a reader of weight rows has; prefetched a little ahead. */
__attribute__((target("avx2"))) static void read256(const char *p, size_t bytes)
{
    enum { STREAMS = 4 };
    const size_t part = bytes / STREAMS & ~(size_t) 127;
    __m256i s[4] = { _mm256_setzero_si256() };
    for (size_t i = 0; i < part; i += 128)
        for (int j = 0; j < STREAMS; j++) {
            const char *q = p + (size_t) j * part + i;
            _mm_prefetch(q + 1024, _MM_HINT_T0);
            _mm_prefetch(q + 1088, _MM_HINT_T0);
            for (int v = 0; v < 4; v++)
                s[v] = _mm256_xor_si256(
                    s[v], _mm256_load_si256((const __m256i *) (const void *) (q + 32 * v)));
        }
    s[0] = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
    sink = (float) _mm256_extract_epi32(s[0], 0);
}

void kt_floor_read(void *ud, unsigned worker)
{
    const struct kt_read *r = ud;
    const size_t part = r->bytes / r->threads & ~(size_t) 4095;
    read256(r->p + worker * part, part);
}
