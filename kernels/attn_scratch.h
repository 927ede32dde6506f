/* SPDX-License-Identifier: Apache-2.0 */
/* How the rows of the attention, KV and sampling ops cut a worker's scratch: op_attn.c sizes it, the rows carve it. */
#ifndef PS_ATTN_SCRATCH_H
#define PS_ATTN_SCRATCH_H
#include "engine/base/ps_util.h"
#include "kernels/kern.h"

/* Rows of f32 in scratch are padded so that whole vectors may be read and written. */
enum { PS_ATTN_PAD = 16 };
static inline size_t ps_attn_pad(size_t n) { return PS_ROUND_UP(n, (size_t) PS_ATTN_PAD); }

/* Decode: per query head of the group the logits of all entries, the query, the output; the new K and V. */
static inline size_t ps_decode_scratch(const struct ps_attn_decode *a)
{
    const size_t group = a->q_heads / a->kv_heads, ld = ps_attn_pad(a->longest) + PS_ATTN_PAD;
    const size_t rows = sizeof(float) * (group * (ld + 2 * ps_attn_pad(a->d) + PS_ATTN_PAD) +
                                         4 * ps_attn_pad(a->d));
    const size_t ref = 2 * sizeof(double) * a->longest;
    return rows > ref ? rows : ref;
}

/* Prompt: PS_PROMPT_ROWS query rows (of any of the group's heads) x all their keys, their outputs, and K transposed
 * in panels of at most PS_PROMPT_PANEL keys. */
enum { PS_PROMPT_ROWS = 48, PS_PROMPT_PANEL = 64 };
static inline size_t ps_prompt_ld(const struct ps_attn_prompt *a)
{
    return PS_ROUND_UP((size_t) a->longest, (size_t) PS_PROMPT_PANEL) + PS_ATTN_PAD;
}
static inline size_t ps_prompt_scratch(const struct ps_attn_prompt *a)
{
    const size_t rows = sizeof(float) * ((PS_PROMPT_ROWS + (size_t) a->d) * ps_prompt_ld(a) +
                                         PS_PROMPT_ROWS * ps_attn_pad(a->d));
    const size_t ref = sizeof(double) * a->longest;
    return rows > ref ? rows : ref;
}

/* Compaction: sortable keys of the scores, a histogram. */
enum { PS_COMPACT_BINS = 2048 };
static inline size_t ps_compact_scratch(const struct ps_kv_compact *a)
{
    return sizeof(uint32_t) * ((size_t) a->longest + PS_COMPACT_BINS);
}

/* Sampling: a copy of the logits, the candidates, a histogram. */
struct ps_cand {
    float x;
    int32_t id;
};
enum { PS_SAMPLE_BINS = 4096 };
static inline size_t ps_sample_scratch(const struct ps_sample *a)
{
    return (sizeof(float) + sizeof(struct ps_cand)) * ps_attn_pad(a->vocab) +
           sizeof(uint32_t) * PS_SAMPLE_BINS;
}
#endif
