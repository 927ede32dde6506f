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

#define PS_X86_ROW(o, isa, flags)                                                    \
    {                                                                                \
        .op = PS_OP_##o, .name = #o "_" #isa, .place = PS_PLACE_HOST, .need = flags, \
        .run = ps_##o##_##isa                                                        \
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
