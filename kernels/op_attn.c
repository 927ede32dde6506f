/* SPDX-License-Identifier: Apache-2.0 */
/* Units, scratch and cost of the attention, KV and sampling ops. */
#include "kernels/attn_scratch.h"
#include "kernels/op_info.h"

static double kv_bytes(enum ps_dtype t, double elems) { return elems * (double) ps_dtype_bytes(t); }

static uint64_t kv_round_units(const void *args)
{
    return ((const struct ps_kv_round *) args)->rows;
}
static struct ps_cost kv_round_cost(const void *args)
{
    const struct ps_kv_round *a = args;
    const double n = 2.0 * a->rows * a->kv_heads * a->d;
    return (struct ps_cost) { .bytes = 4 * n + kv_bytes(a->kv_type, n) };
}
const struct ps_op_info ps_op_info_kv_round = {
    .args_size = sizeof(struct ps_kv_round),
    .units = kv_round_units,
    .cost = kv_round_cost,
};

static uint64_t attn_prompt_units(const void *args)
{
    const struct ps_attn_prompt *a = args;
    return (uint64_t) a->n_seqs * a->kv_heads;
}
static struct ps_cost attn_prompt_cost(const void *args)
{
    const struct ps_attn_prompt *a = args;
    struct ps_cost c = { 0 };
    for (uint32_t s = 0; s < a->n_seqs; s++) {
        const struct ps_prompt_seq *q = &a->seqs[s];
        const double pairs = (double) q->rows * (q->first + (q->rows + 1) / 2.0);
        c.flops += 4 * pairs * a->q_heads * a->d;
        c.bytes += (4 + (double) ps_dtype_bytes(a->o_type)) * q->rows * a->q_heads * a->d +
                   kv_bytes(a->kv_type, 2.0 * (q->first + (double) q->rows) * a->kv_heads * a->d);
    }
    return c;
}
static size_t attn_prompt_scratch(const void *args) { return ps_prompt_scratch(args); }
const struct ps_op_info ps_op_info_attn_prompt = {
    .args_size = sizeof(struct ps_attn_prompt),
    .units = attn_prompt_units,
    .scratch = attn_prompt_scratch,
    .cost = attn_prompt_cost,
};

static uint64_t attn_decode_units(const void *args)
{
    const struct ps_attn_decode *a = args;
    return (uint64_t) a->n_rows * a->kv_heads;
}
static struct ps_cost attn_decode_cost(const void *args)
{
    const struct ps_attn_decode *a = args;
    struct ps_cost c = { 0 };
    for (uint32_t r = 0; r < a->n_rows; r++) {
        const double n = (double) a->rows[r].len + 1;
        c.flops += 4 * n * a->q_heads * a->d;
        c.bytes += kv_bytes(a->kv_type, 2 * n * a->kv_heads * a->d) +
                   (4 + (double) ps_dtype_bytes(a->o_type)) * a->q_heads * a->d +
                   8.0 * a->kv_heads * a->d + (a->rows[r].slab.score ? 12 * n * a->kv_heads : 0);
    }
    return c;
}
static size_t attn_decode_scratch(const void *args) { return ps_decode_scratch(args); }
const struct ps_op_info ps_op_info_attn_decode = {
    .args_size = sizeof(struct ps_attn_decode),
    .units = attn_decode_units,
    .scratch = attn_decode_scratch,
    .cost = attn_decode_cost,
};

static uint64_t kv_compact_units(const void *args)
{
    const struct ps_kv_compact *a = args;
    return (uint64_t) a->n_seqs * a->kv_heads;
}
static struct ps_cost kv_compact_cost(const void *args)
{
    const struct ps_kv_compact *a = args;
    struct ps_cost c = { 0 };
    for (uint32_t s = 0; s < a->n_seqs; s++) {
        const struct ps_compact_seq *q = &a->seqs[s];
        double kept = (double) q->keep.sinks + q->keep.heavy + q->keep.recent;
        if (kept > q->total) kept = q->total;
        c.bytes += a->kv_heads * (kv_bytes(a->kv_type, 4 * kept * a->d) + 8 * kept +
                                  (q->src.score ? 4.0 * q->total : 0));
    }
    return c;
}
static size_t kv_compact_scratch(const void *args) { return ps_compact_scratch(args); }
const struct ps_op_info ps_op_info_kv_compact = {
    .args_size = sizeof(struct ps_kv_compact),
    .units = kv_compact_units,
    .scratch = kv_compact_scratch,
    .cost = kv_compact_cost,
};

static uint64_t kv_replay_units(const void *args)
{
    const struct ps_kv_replay *a = args;
    return (uint64_t) a->n_seqs * a->kv_heads;
}
static struct ps_cost kv_replay_cost(const void *args)
{
    const struct ps_kv_replay *a = args;
    struct ps_cost c = { 0 };
    for (uint32_t s = 0; s < a->n_seqs; s++)
        c.bytes += a->kv_heads * kv_bytes(a->kv_type, 4.0 * a->seqs[s].n * a->d);
    return c;
}
const struct ps_op_info ps_op_info_kv_replay = {
    .args_size = sizeof(struct ps_kv_replay),
    .units = kv_replay_units,
    .cost = kv_replay_cost,
};

static uint64_t sample_units(const void *args) { return ((const struct ps_sample *) args)->n_rows; }
static struct ps_cost sample_cost(const void *args)
{
    const struct ps_sample *a = args;
    const double n = (double) a->n_rows * a->vocab;
    return (struct ps_cost) { .flops = 4 * n, .bytes = 4 * n };
}
static size_t sample_scratch(const void *args) { return ps_sample_scratch(args); }
const struct ps_op_info ps_op_info_sample = {
    .args_size = sizeof(struct ps_sample),
    .units = sample_units,
    .scratch = sample_scratch,
    .cost = sample_cost,
};
