/* SPDX-License-Identifier: Apache-2.0 */
/* Element types of weights and KV, and scalar conversions for the reference kernels and for loaders.
 * Quantised types (int8/int4 groups) will join here. */
#ifndef PS_DTYPE_H
#define PS_DTYPE_H
#include <stddef.h>
#include <stdint.h>

enum ps_dtype { PS_F32, PS_F16, PS_BF16, PS_DTYPE__COUNT };

size_t ps_dtype_bytes(enum ps_dtype t);
/* "f32", "f16", "bf16". */
const char *ps_dtype_name(enum ps_dtype t);
/* Accepts our names and safetensors' ("F16"): 0, or -EINVAL with *ret untouched. */
int ps_dtype_parse(const char *name, enum ps_dtype *ret) __attribute__((warn_unused_result));

float ps_f16_to_f32(uint16_t h);
/* Round to nearest even, as IEEE 754: beyond 65504 + half a step becomes infinity, NaN stays NaN. */
uint16_t ps_f32_to_f16(float f);
/* Truncated, the last bit set if anything was cut off: keeps a second rounding from seeing a tie that is none. */
float ps_f64_to_f32_odd(double d);
float ps_bf16_to_f32(uint16_t h);
uint16_t ps_f32_to_bf16(float f); /* round to nearest even; NaN stays NaN */
/* Element i of an array of type t. */
float ps_dtype_get(enum ps_dtype t, const void *p, size_t i);
void ps_dtype_put(enum ps_dtype t, void *p, size_t i, float v);
#endif
