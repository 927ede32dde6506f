/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref_rows.h"

#define ROW(o)                                                                          \
    {                                                                                   \
        .op = PS_OP_##o, .name = #o "_ref", .place = PS_PLACE_HOST, .run = ps_##o##_ref \
    }
const struct ps_kern ps_kern_table_ref[] = {
    ROW(embed),       ROW(layernorm),  ROW(convert),   ROW(linear), ROW(kv_round), ROW(attn_prompt),
    ROW(attn_decode), ROW(kv_compact), ROW(kv_replay), ROW(sample), ROW(call),     { 0 },
};
