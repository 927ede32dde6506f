/* SPDX-License-Identifier: Apache-2.0 */
/* What cuda_fp16.h and cuda_bf16.h have in common: a 16-bit type H, its pair H2, and the functions that carry the same
 * name for both. Each operation is done in f32 and rounded once to nearest even (exact for +, -, * and fma's f32 sum aside). */
#ifndef PS_CUDAEMU_HALF_H
#define PS_CUDAEMU_HALF_H
#include <cuda_runtime.h>

namespace cudaemu
{
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t) (h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 0x3ffu;
    if (exp == 31) return from_bits<float>(sign | 0x7f800000u | man << 13);
    if (exp) return from_bits<float>(sign | (exp + 112) << 23 | man << 13);
    float f = (float) man * 0x1p-24f; // zero and subnormals
    return sign ? -f : f;
}
static inline uint16_t f32_to_f16(float f)
{
    uint32_t u = from_bits<uint32_t>(bits(f)), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return 0x7fff;                       // NaN: CUDA has one
    if (a >= 0x477ff000u) return (uint16_t) (sign | 0x7c00u); // 65520 and above
    if (a < 0x38800000u) { // below 2^-14: add so that the ulp is 2^-24
        float r = from_bits<float>(a) + 0.5f;
        return (uint16_t) (sign | (from_bits<uint32_t>(bits(r)) - 0x3f000000u));
    }
    a += 0xfffu + (a >> 13 & 1u);
    return (uint16_t) (sign | (a - 0x38000000u) >> 13);
}
static inline float bf16_to_f32(uint16_t h) { return from_bits<float>((uint64_t) h << 16); }
static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u = from_bits<uint32_t>(bits(f));
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t) ((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
} // namespace cudaemu

#define CUDAEMU_HALF_TYPE(H, H2, to_f32, from_f32)                                                 \
    struct H {                                                                                     \
        uint16_t x;                                                                                \
        H() = default;                                                                             \
        H(float f) : x(cudaemu::from_f32(f)) {}                                                    \
        H(double f) : H((float) f) {}                                                              \
        H(int i) : H((float) i) {}                                                                 \
        operator float() const { return cudaemu::to_f32(x); }                                      \
    };                                                                                             \
    struct __attribute__((aligned(4))) H2 {                                                        \
        H x, y;                                                                                    \
        H2() = default;                                                                            \
        H2(H a, H b) : x(a), y(b) {}                                                               \
    };                                                                                             \
    static inline H __hadd(H a, H b) { return H((float) a + (float) b); }                          \
    static inline H __hsub(H a, H b) { return H((float) a - (float) b); }                          \
    static inline H __hmul(H a, H b) { return H((float) a * (float) b); }                          \
    static inline H __hfma(H a, H b, H c)                                                          \
    {                                                                                              \
        return H((float) ((double) a * (double) b + (double) c));                                  \
    }                                                                                              \
    static inline H __hmax(H a, H b) { return H(std::fmax((float) a, (float) b)); }                \
    static inline H __hmin(H a, H b) { return H(std::fmin((float) a, (float) b)); }                \
    static inline H __hneg(H a) { return H(-(float) a); }                                          \
    static inline bool __hisnan(H a) { return std::isnan((float) a); }                             \
    static inline int __hisinf(H a) { return std::isinf((float) a) ? (float) a > 0 ? 1 : -1 : 0; } \
    static inline bool __hlt(H a, H b) { return (float) a < (float) b; }                           \
    static inline bool __hgt(H a, H b) { return (float) a > (float) b; }                           \
    static inline bool __heq(H a, H b) { return (float) a == (float) b; }                          \
    static inline H2 __hadd2(H2 a, H2 b) { return { __hadd(a.x, b.x), __hadd(a.y, b.y) }; }        \
    static inline H2 __hsub2(H2 a, H2 b) { return { __hsub(a.x, b.x), __hsub(a.y, b.y) }; }        \
    static inline H2 __hmul2(H2 a, H2 b) { return { __hmul(a.x, b.x), __hmul(a.y, b.y) }; }        \
    static inline H2 __hfma2(H2 a, H2 b, H2 c)                                                     \
    {                                                                                              \
        return { __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) };                                   \
    }                                                                                              \
    static inline H2 __hmax2(H2 a, H2 b) { return { __hmax(a.x, b.x), __hmax(a.y, b.y) }; }        \
    static inline float __low2float(H2 a) { return a.x; }                                          \
    static inline float __high2float(H2 a) { return a.y; }
#endif
