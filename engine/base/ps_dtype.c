/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_dtype.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    size_t bytes;
} types[PS_DTYPE__COUNT] = {
    [PS_F32] = { "f32", 4 },
    [PS_F16] = { "f16", 2 },
    [PS_BF16] = { "bf16", 2 },
};

size_t ps_dtype_bytes(enum ps_dtype t) { return types[t].bytes; }
const char *ps_dtype_name(enum ps_dtype t) { return types[t].name; }

int ps_dtype_parse(const char *name, enum ps_dtype *ret)
{
    for (int t = 0; t < PS_DTYPE__COUNT; t++)
        if (!strcasecmp(name, types[t].name)) {
            *ret = (enum ps_dtype) t;
            return 0;
        }
    return -EINVAL;
}

static float bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float ps_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t) (h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 0x3ffu;
    if (exp == 31) return bits_f32(sign | 0x7f800000u | man << 13);
    if (exp) return bits_f32(sign | (exp + 112) << 23 | man << 13);
    float f = (float) man * 0x1p-24f; /* zero and subnormals */
    return sign ? -f : f;
}

uint16_t ps_f32_to_f16(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t) (sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) return (uint16_t) (sign | 0x7c00u); /* 65520 and above */
    if (a < 0x38800000u) { /* below 2^-14: add so that the ulp is 2^-24 */
        uint32_t r = f32_bits(bits_f32(a) + 0.5f) - f32_bits(0.5f);
        return (uint16_t) (sign | r);
    }
    a += 0xfffu + (a >> 13 & 1u);
    return (uint16_t) (sign | (a - 0x38000000u) >> 13);
}

float ps_f64_to_f32_odd(double d)
{
    float f = (float) d;
    uint32_t u = f32_bits(f);
    if ((double) f == d || f != f || u & 1 || (u & 0x7fffffffu) >= 0x7f800000u) return f;
    /* f is even and inexact: the odd neighbour on d's side is the one. */
    bool away = (double) (u >> 31 ? -f : f) < (d < 0 ? -d : d);
    return bits_f32(away ? u + 1 : u - 1);
}

float ps_bf16_to_f32(uint16_t h) { return bits_f32((uint32_t) h << 16); }

uint16_t ps_f32_to_bf16(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t) (u >> 16 | 0x40u);
    return (uint16_t) ((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

float ps_dtype_get(enum ps_dtype t, const void *p, size_t i)
{
    if (t == PS_F16) return ps_f16_to_f32(((const uint16_t *) p)[i]);
    if (t == PS_BF16) return ps_bf16_to_f32(((const uint16_t *) p)[i]);
    return ((const float *) p)[i];
}

void ps_dtype_put(enum ps_dtype t, void *p, size_t i, float v)
{
    if (t == PS_F16)
        ((uint16_t *) p)[i] = ps_f32_to_f16(v);
    else if (t == PS_BF16)
        ((uint16_t *) p)[i] = ps_f32_to_bf16(v);
    else
        ((float *) p)[i] = v;
}
