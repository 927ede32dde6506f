/* SPDX-License-Identifier: Apache-2.0 */
/* The x86 rows. table_avx2.c and table_avx512.c list them. */
#ifndef PS_X86_ROWS_H
#define PS_X86_ROWS_H
#include "kernels/kern.h"

#define PS_X86_FN(o)                                                 \
    int ps_##o##_avx2(const void *args, const struct ps_span *span); \
    int ps_##o##_avx512(const void *args, const struct ps_span *span);
PS_X86_FN(kv_round)
PS_X86_FN(attn_prompt)
PS_X86_FN(attn_decode)
PS_X86_FN(kv_compact)
PS_X86_FN(sample)
PS_X86_FN(linear_wide)
#undef PS_X86_FN

#define PS_X86_ROW_IF(o, isa, flags, takes_)                                         \
    {                                                                                \
        .op = PS_OP_##o, .name = #o "_" #isa, .place = PS_PLACE_HOST, .need = flags, \
        .takes = (takes_), .run = ps_##o##_##isa                                     \
    }
#define PS_X86_ROW(o, isa, flags) PS_X86_ROW_IF(o, isa, flags, NULL)

/* What is rounded for a library's products (CUDA) is the reference's alone here. */
static inline bool ps_x86_layernorm_takes(const void *args)
{
    return !((const struct ps_layernorm *) args)->rounded;
}
static inline bool ps_x86_linear_takes(const struct ps_linear *a)
{
    return !a->rounded_x && !a->rounded_y && !a->bias_f32;
}
static inline bool ps_x86_attn_prompt_takes(const void *args)
{
    return ((const struct ps_attn_prompt *) args)->o_type == PS_F32;
}
static inline bool ps_x86_attn_decode_takes(const void *args)
{
    return ((const struct ps_attn_decode *) args)->o_type == PS_F32;
}

int ps_embed_avx2(const void *args, const struct ps_span *span);
int ps_layernorm_avx2(const void *args, const struct ps_span *span);
int ps_embed_avx512(const void *args, const struct ps_span *span);
int ps_layernorm_avx512(const void *args, const struct ps_span *span);
int ps_linear_avx2(const void *args, const struct ps_span *span);
bool ps_linear_avx2_takes(const void *args);
bool ps_linear_wide_takes_avx2(const void *args);
bool ps_linear_wide_takes_avx512(const void *args);
int ps_linear_avx512(const void *args, const struct ps_span *span);
bool ps_linear_avx512_takes(const void *args);
#endif
