/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for CUDA's header: see cuda_runtime.h. */
#ifndef PS_CUDAEMU_BF16_H
#define PS_CUDAEMU_BF16_H
#include "cudaemu_half.h"

CUDAEMU_HALF_TYPE(__nv_bfloat16, __nv_bfloat162, bf16_to_f32, f32_to_bf16)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(nv_bfloat16 h) { return h; }
static inline nv_bfloat16 __float2bfloat16(float f) { return nv_bfloat16(f); }
static inline nv_bfloat16 __float2bfloat16_rn(float f) { return nv_bfloat16(f); }
static inline nv_bfloat16 __ushort_as_bfloat16(unsigned short u)
{
    nv_bfloat16 h;
    h.x = u;
    return h;
}
static inline unsigned short __bfloat16_as_ushort(nv_bfloat16 h) { return h.x; }
static inline nv_bfloat162 __halves2bfloat162(nv_bfloat16 a, nv_bfloat16 b) { return { a, b }; }
static inline nv_bfloat162 __bfloat162bfloat162(nv_bfloat16 a) { return { a, a }; }
static inline nv_bfloat162 make_bfloat162(nv_bfloat16 a, nv_bfloat16 b) { return { a, b }; }
static inline nv_bfloat162 __float2bfloat162_rn(float f)
{
    return { nv_bfloat16(f), nv_bfloat16(f) };
}
static inline nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return { nv_bfloat16(a), nv_bfloat16(b) };
}
static inline nv_bfloat162 __float22bfloat162_rn(float2 f)
{
    return { nv_bfloat16(f.x), nv_bfloat16(f.y) };
}
static inline float2 __bfloat1622float2(nv_bfloat162 h) { return { (float) h.x, (float) h.y }; }
static inline nv_bfloat16 __low2bfloat16(nv_bfloat162 h) { return h.x; }
static inline nv_bfloat16 __high2bfloat16(nv_bfloat162 h) { return h.y; }
#endif
