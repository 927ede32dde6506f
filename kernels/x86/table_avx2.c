/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_cpu.h"
#include "kernels/x86/x86_rows.h"

const struct ps_kern ps_kern_table_avx2[] = {
    PS_X86_ROW(embed, avx2, PS_CPU_AVX2),
    PS_X86_ROW_IF(layernorm, avx2, PS_CPU_AVX2, ps_x86_layernorm_takes),
    { .op = PS_OP_linear,
      .name = "linear_avx2",
      .place = PS_PLACE_HOST,
      .need = PS_CPU_AVX2,
      .takes = ps_linear_avx2_takes,
      .run = ps_linear_avx2 },
    { .op = PS_OP_linear,
      .name = "linear_wide_avx2",
      .place = PS_PLACE_HOST,
      .need = PS_CPU_AVX2,
      .takes = ps_linear_wide_takes_avx2,
      .run = ps_linear_wide_avx2 },
    PS_X86_ROW_IF(attn_prompt, avx2, PS_CPU_AVX2, ps_x86_attn_prompt_takes),
    PS_X86_ROW(kv_round, avx2, PS_CPU_AVX2),
    PS_X86_ROW_IF(attn_decode, avx2, PS_CPU_AVX2, ps_x86_attn_decode_takes),
    PS_X86_ROW(kv_compact, avx2, PS_CPU_AVX2),
    PS_X86_ROW(sample, avx2, PS_CPU_AVX2),
    { 0 },
};
