/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for CUDA's header: see cuda_runtime.h. */
#ifndef PS_CUDAEMU_FP16_H
#define PS_CUDAEMU_FP16_H
#include "cudaemu_half.h"

CUDAEMU_HALF_TYPE(__half, __half2, f16_to_f32, f32_to_f16)
typedef __half half;
typedef __half2 half2;

static inline float __half2float(half h) { return h; }
static inline half __float2half(float f) { return half(f); }
static inline half __float2half_rn(float f) { return half(f); }
static inline half __ushort_as_half(unsigned short u)
{
    half h;
    h.x = u;
    return h;
}
static inline unsigned short __half_as_ushort(half h) { return h.x; }
static inline half2 __halves2half2(half a, half b) { return { a, b }; }
static inline half2 __half2half2(half a) { return { a, a }; }
static inline half2 make_half2(half a, half b) { return { a, b }; }
static inline half2 __float2half2_rn(float f) { return { half(f), half(f) }; }
static inline half2 __floats2half2_rn(float a, float b) { return { half(a), half(b) }; }
static inline half2 __float22half2_rn(float2 f) { return { half(f.x), half(f.y) }; }
static inline float2 __half22float2(half2 h) { return { (float) h.x, (float) h.y }; }
static inline half __low2half(half2 h) { return h.x; }
static inline half __high2half(half2 h) { return h.y; }
#endif
