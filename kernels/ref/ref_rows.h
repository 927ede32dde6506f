/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar reference rows. table_ref.c lists them. */
#ifndef PS_REF_ROWS_H
#define PS_REF_ROWS_H
#include "kernels/kern.h"

int ps_embed_ref(const void *args, const struct ps_span *span);
int ps_layernorm_ref(const void *args, const struct ps_span *span);
int ps_convert_ref(const void *args, const struct ps_span *span);
int ps_linear_ref(const void *args, const struct ps_span *span);
int ps_kv_round_ref(const void *args, const struct ps_span *span);
int ps_attn_prompt_ref(const void *args, const struct ps_span *span);
int ps_attn_decode_ref(const void *args, const struct ps_span *span);
int ps_kv_compact_ref(const void *args, const struct ps_span *span);
int ps_kv_replay_ref(const void *args, const struct ps_span *span);
int ps_sample_ref(const void *args, const struct ps_span *span);
int ps_call_ref(const void *args, const struct ps_span *span);
#endif
