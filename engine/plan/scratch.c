/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch: of one worker on the host, and of the rows on a GPU, each for the largest op of a plan's shapes. */
#include "engine/plan/shape_plan.h"
#include "kernels/kern.h"

static uint32_t max32(uint32_t a, uint32_t b) { return a > b ? a : b; }

static uint32_t widest(const struct ps_shape *s)
{
    return max32(max32(s->ffn, s->hidden), max32(s->embed, s->q_heads * s->head_dim));
}

#define NEED(size, op, ...)                                                         \
    do {                                                                            \
        size_t b_ = size(req, PS_OP_##op, &(const struct ps_##op) { __VA_ARGS__ }); \
        if (b_ > need) need = b_;                                                   \
    } while (0)

static size_t on_host(const struct ps_plan_req *req, enum ps_op op, const void *args)
{
    return ps_op_scratch(op, args);
}

/* Beside a GPU the host's cores have decode attention at most. */
size_t ps_candidate_scratch(const struct ps_plan_req *req, const struct ps_plan *p)
{
    const struct ps_shape *s = &req->model->shape;
    const uint32_t longest = req->job.longest_total, rows = p->chunk_rows, wide = widest(s);
    size_t need = 4096;
    NEED(on_host, attn_decode, .n_rows = 1, .q_heads = s->q_heads, .kv_heads = s->kv_heads,
         .d = s->head_dim, .longest = longest + 1, .kv_type = p->detail->kv_type);
    if (!p->detail->gpu) {
        NEED(on_host, linear, .m = rows, .n = wide, .k = wide, .ldx = wide, .ldy = wide,
             .wtype = req->model->dtype);
        NEED(on_host, linear, .m = rows, .n = s->vocab, .k = s->embed, .ldx = s->embed,
             .ldy = s->vocab, .wtype = req->model->dtype);
        NEED(on_host, attn_prompt, .n_seqs = 1, .q_heads = s->q_heads, .kv_heads = s->kv_heads,
             .d = s->head_dim, .longest = longest, .kv_type = p->detail->kv_type);
        NEED(on_host, kv_compact, .n_seqs = 1, .kv_heads = s->kv_heads, .d = s->head_dim,
             .longest = longest, .kv_type = p->detail->kv_type);
        NEED(on_host, sample, .n_rows = 1, .vocab = s->vocab);
    }
    return PS_ROUND_UP(need, (size_t) 4096);
}

/* What the rows of kernels/cuda take at most: for planning where they are not at hand. */
static size_t guess(enum ps_op op, const void *args)
{
    switch (op) {
    case PS_OP_attn_prompt: { /* maximum and sum */
        const struct ps_attn_prompt *a = args;
        return (size_t) a->n_seqs * a->longest * a->q_heads * 2 * sizeof(float);
    }
    case PS_OP_attn_decode: { /* of each 256 entries their logits and what came of them */
        const struct ps_attn_decode *a = args;
        const size_t pieces = a->longest / 256 + 1;
        return (size_t) a->n_rows * a->q_heads * (pieces * (256 + a->d + 2) + 2) * sizeof(float);
    }
    case PS_OP_sample: { /* a sort key and a mass for each logit */
        const struct ps_sample *a = args;
        return (size_t) a->n_rows * a->vocab * (sizeof(uint64_t) + sizeof(uint32_t));
    }
    default: return 0;
    }
}

static size_t on_gpu(const struct ps_plan_req *req, enum ps_op op, const void *args)
{
    const struct ps_kern *k = ps_kern_pick(op, PS_PLACE_CUDA, req->gpu.sm, args);
    return k ? ps_kern_scratch(k, args) : guess(op, args);
}

size_t ps_candidate_gpu_scratch(const struct ps_plan_req *req, const struct ps_plan *p)
{
    const struct ps_shape *s = &req->model->shape;
    const struct ps_plan_detail *d = p->detail;
    const uint32_t rows = p->chunk_rows,
                   longest = req->job.longest_total ? req->job.longest_total : 1,
                   decode = rows < p->slots ? rows : p->slots;
    size_t need = 0;
    /* As many rows in all as go through a layer together, of prompts however long. */
    NEED(on_gpu, attn_prompt, .n_seqs = (rows + longest - 1) / longest, .q_heads = s->q_heads,
         .kv_heads = s->kv_heads, .d = s->head_dim, .longest = longest, .kv_type = d->kv_type);
    NEED(on_gpu, attn_decode, .n_rows = decode, .q_heads = s->q_heads, .kv_heads = s->kv_heads,
         .d = s->head_dim, .longest = p->kv_cap + 1, .kv_type = d->kv_type);
    NEED(on_gpu, sample, .n_rows = d->head_rows, .vocab = s->vocab);
    return need;
}
