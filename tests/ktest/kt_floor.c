/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can do at best, measured in the same run: fused multiply-adds from registers, and reading
 * more memory than the caches hold. A bench's floor is the longer of its flops and its bytes at these rates. */
#include "engine/base/ps_cpu.h"
#include "kt.h"
#include <immintrin.h>

enum { FMA_LOOPS = 200000, CHAINS = 12 };
static volatile float sink;

#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define SET512(i) __m512 c##i = _mm512_set1_ps(i);
#define FMA512(i) c##i = _mm512_fmadd_ps(c##i, a, b);
#define SUM512(i) s = _mm512_add_ps(s, c##i);
__attribute__((target("avx512f"))) static void fma512(void)
{
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    __m512 s = b;
    TWELVE(SET512)
    for (int l = 0; l < FMA_LOOPS; l++) {
        TWELVE(FMA512)
    }
    TWELVE(SUM512)
    sink = _mm512_cvtss_f32(s);
}

#define SET256(i) __m256 c##i = _mm256_set1_ps(i);
#define FMA256(i) c##i = _mm256_fmadd_ps(c##i, a, b);
#define SUM256(i) s = _mm256_add_ps(s, c##i);
__attribute__((target("avx2,fma"))) static void fma256(void)
{
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    __m256 s = b;
    TWELVE(SET256)
    for (int l = 0; l < FMA_LOOPS; l++) {
        TWELVE(FMA256)
    }
    TWELVE(SUM256)
    sink = _mm256_cvtss_f32(s);
}

double kt_floor_flops_of_one(const struct kt *kt)
{
    return 2.0 * FMA_LOOPS * CHAINS *
           (kt->cpu & PS_CPU_AVX512 ? 16
            : kt->cpu & PS_CPU_AVX2 ? 8
                                    : 0);
}
void kt_floor_fma(void *ud, unsigned worker)
{
    const struct kt *kt = ud;
    if (kt->cpu & PS_CPU_AVX512)
        fma512();
    else if (kt->cpu & PS_CPU_AVX2)
        fma256();
}

/* `streams` runs of 4 KiB at a time, as a reader of weight rows has, fetched `ahead` bytes before their use. */
__attribute__((target("avx2"))) static void read256(const char *p, size_t bytes, size_t streams,
                                                    size_t ahead)
{
    enum { RUN = 4096 };
    __m256i s[4] = { _mm256_setzero_si256() };
    for (size_t at = 0; at + streams * RUN <= bytes; at += streams * RUN)
        for (size_t i = 0; i < RUN; i += 128)
            for (size_t j = 0; j < streams; j++) {
                const char *q = p + at + j * RUN + i;
                if (ahead) {
                    _mm_prefetch((const char *) ((uintptr_t) q + ahead), _MM_HINT_T1);
                    _mm_prefetch((const char *) ((uintptr_t) q + ahead + 64), _MM_HINT_T1);
                }
                for (int v = 0; v < 4; v++)
                    s[v] = _mm256_xor_si256(
                        s[v], _mm256_load_si256((const __m256i *) (const void *) (q + 32 * v)));
            }
    s[0] = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
    sink = (float) _mm256_extract_epi32(s[0], 0);
}

void kt_floor_read(void *ud, unsigned worker)
{
    static const size_t ways[KT_READ_WAYS][2] = {
        { 1, 0 }, { 1, 2048 }, { 4, 16384 }, { 8, 32768 }, { 8, 65536 }
    };
    const struct kt_read *r = ud;
    const size_t part = r->bytes / r->threads & ~(size_t) 4095;
    read256(r->p + worker * part, part, ways[r->way][0], ways[r->way][1]);
}
