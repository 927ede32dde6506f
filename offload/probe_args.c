/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of a gauge's tasks, and the memory that they point into. */
#include "offload/probe_args.h"
#include "engine/base/ps_mem.h"
#include <string.h>

enum { WIDTH = 2048, SEQUENCES = 32, TOKENS = 2048, LOG = 16, TABLE_PARTS = 16 };

static uint64_t page_up(uint64_t n) { return PS_ROUND_UP(n, (uint64_t) 4096); }

/* Of inputs, or of outputs. */
static uint64_t act_bytes(const struct ps_rig *r) { return PS_RIG_ACT_BYTES(r->cold_bytes) / 2; }

/* ---- linear, and what goes over rows */

/* A chunk's rows, but no more than a model's widest matrices have of so many inputs. */
uint32_t ps_gauge_outputs(const struct ps_rig *r, const struct ps_gauge *g)
{
    uint64_t rows = r->chunk_bytes / ((uint64_t) g->k * ps_dtype_bytes(g->type));
    if (rows > UINT64_C(4) * g->k) rows = UINT64_C(4) * g->k;
    if (g->n) rows = g->n;
    return rows ? (uint32_t) rows : 1;
}

static float *inputs(const struct ps_rig *r) { return (float *) (void *) r->act; }
static float *outputs(const struct ps_rig *r) { return (float *) (void *) (r->act + act_bytes(r)); }

/* The next part of cold memory for a task that takes so much. */
static uint8_t *next_cold(const struct ps_rig *r, uint64_t bytes)
{
    return r->cold + r->turn % (r->cold_bytes / page_up(bytes)) * page_up(bytes);
}

static bool linear(struct ps_rig *r, const struct ps_gauge *g, struct ps_linear *a)
{
    const uint64_t act = act_bytes(r);
    const uint32_t n = ps_gauge_outputs(r, g);
    const uint64_t bytes = (uint64_t) n * g->k * ps_dtype_bytes(g->type);
    if (bytes > r->cold_bytes || (uint64_t) g->m * g->k * 2 > r->cold_bytes ||
        (uint64_t) g->m * g->k * 4 > act || (uint64_t) g->m * n * 4 > act)
        return false;
    const bool rounded = r->place == PS_PLACE_CUDA && ps_linear_rounds(r->sm, g->m, g->type);
    *a = (struct ps_linear) { .y = outputs(r),
                              .x = rounded ? NULL : inputs(r),
                              .rounded_x = rounded ? r->cold : NULL,
                              .w = next_cold(r, bytes),
                              .bias = rounded ? (void *) inputs(r) : r->cold,
                              .bias_f32 = rounded,
                              .residual = g->residual ? outputs(r) + (size_t) g->m * n : NULL,
                              .m = g->m,
                              .n = n,
                              .k = g->k,
                              .ldx = g->k,
                              .ldy = n,
                              .ldr = n,
                              .wtype = g->type };
    return true;
}

static bool layernorm(struct ps_rig *r, const struct ps_gauge *g, struct ps_layernorm *a)
{
    *a = (struct ps_layernorm) { .y = outputs(r),
                                 .x = inputs(r),
                                 .w = r->cold,
                                 .b = r->cold,
                                 .rows = g->m,
                                 .cols = g->k,
                                 .ldx = g->k,
                                 .ldy = g->k,
                                 .eps = 1e-5F,
                                 .dtype = g->type };
    return (uint64_t) g->m * g->k * 4 <= act_bytes(r);
}

/* A table comes in parts: of the rows asked for, few lie in one. */
static bool embed(struct ps_rig *r, const struct ps_gauge *g, bool write, struct ps_embed *a)
{
    const uint32_t rows = ps_gauge_outputs(r, g);
    int32_t *ids = r->ctl;
    for (uint32_t i = 0; i < g->m && write; i++)
        ids[i] = (int32_t) ((i * UINT64_C(2654435761) >> 7) % (rows * TABLE_PARTS));
    *a = (struct ps_embed) { .y = outputs(r),
                             .table = next_cold(r, r->chunk_bytes),
                             .ids = ids,
                             .rows = g->m,
                             .cols = g->k,
                             .ldy = g->k,
                             .n_rows = rows,
                             .dtype = g->type };
    return (uint64_t) g->m * g->k * 4 <= act_bytes(r);
}

static bool sample(struct ps_rig *r, const struct ps_gauge *g, bool write, struct ps_sample *a)
{
    struct ps_sample_row *rows = r->ctl;
    struct ps_sample_out *out = (void *) (rows + g->m);
    for (uint32_t i = 0; i < g->m && write; i++)
        rows[i] = (struct ps_sample_row) {
            .logits = inputs(r) + (size_t) i * g->k, .out = &out[i], .forced = -1, .top_p = 1
        };
    *a = (struct ps_sample) { .rows = rows, .n_rows = g->m, .vocab = g->k };
    return (uint64_t) g->m * g->k * 4 <= act_bytes(r);
}

/* ---- KV: slabs of `seqs` sequences lie together, all K before all V; so do their positions and scores */

uint32_t ps_gauge_room(const struct ps_gauge *g)
{
    const bool decode = g->op == PS_OP_attn_decode;
    return g->k + (g->room ? g->room : decode);
}

struct ps_slabs ps_gauge_slabs(const struct ps_rig *r, const struct ps_gauge *g, uint32_t room)
{
    struct ps_slabs s = { .seqs = g->m, .heads = WIDTH / g->d, .cap = room };
    const uint64_t head = (uint64_t) room * g->d * ps_dtype_bytes(g->type) * 2;
    if (!s.seqs) s.seqs = SEQUENCES;
    while (s.heads > 1 && s.seqs * s.heads * head > r->cold_bytes) s.heads /= 2;
    while (s.seqs > 1 && s.seqs * s.heads * head > r->cold_bytes) s.seqs /= 2;
    s.half = s.seqs * s.heads * head / 2;
    s.metas = (uint64_t) s.seqs * s.heads * room;
    s.tasks = (uint32_t) (r->cold_bytes / page_up(2 * s.half));
    const uint64_t by_meta = PS_RIG_META_BYTES(r->cold_bytes) / (8 * s.metas),
                   ctl = s.seqs * (sizeof(struct ps_decode_row) + s.heads * sizeof(int32_t)),
                   by_ctl = PS_RIG_CTL_BYTES / ctl;
    if (s.tasks > by_meta) s.tasks = (uint32_t) by_meta;
    if (s.tasks > by_ctl) s.tasks = (uint32_t) by_ctl;
    return s;
}

/* Of sequence i in task t; meta: where positions and scores are meant to be, or are written. */
struct ps_slab ps_slabs_at(const struct ps_rig *r, const struct ps_gauge *g,
                           const struct ps_slabs *s, uint32_t t, uint32_t i, uint8_t *meta)
{
    const uint64_t one = (uint64_t) s->heads * s->cap;
    uint8_t *k = r->cold + t * page_up(2 * s->half) + i * one * g->d * ps_dtype_bytes(g->type);
    float *score = (float *) (void *) (meta + t * s->metas * 8);
    return (struct ps_slab) { .k = k,
                              .v = k + s->half,
                              .score = g->scores ? score + i * one : NULL,
                              .pos = (int32_t *) (void *) (score + s->metas) + i * one,
                              .cap = s->cap };
}

static struct ps_keep keep_of(const struct ps_gauge *g)
{
    return g->scores ? (struct ps_keep) { 0, g->k / 2, g->k - g->k / 2 }
                     : (struct ps_keep) { 0, PS_KEEP_ALL, 0 };
}

static void decode_rows(const struct ps_rig *r, const struct ps_gauge *g, const struct ps_slabs *s)
{
    const size_t wide = (size_t) s->heads * g->d, kv = s->seqs * wide;
    struct ps_decode_row *row = r->ctl;
    int32_t *at = (int32_t *) (void *) (row + (size_t) s->tasks * s->seqs);
    for (uint32_t t = 0; t < s->tasks; t++)
        for (uint32_t i = 0; i < s->seqs; i++, at += s->heads)
            *row++ = (struct ps_decode_row) { .q = inputs(r) + i * wide,
                                              .k = inputs(r) + kv + i * wide,
                                              .v = inputs(r) + 2 * kv + i * wide,
                                              .o = outputs(r) + i * wide,
                                              .slab = ps_slabs_at(r, g, s, t, i, r->meta),
                                              .keep = keep_of(g),
                                              .len = g->k,
                                              .now = (int32_t) g->k,
                                              .at = at };
}

static bool attn_decode(struct ps_rig *r, const struct ps_gauge *g, bool write,
                        struct ps_attn_decode *a)
{
    const struct ps_slabs s = ps_gauge_slabs(r, g, ps_gauge_room(g));
    const uint64_t act = act_bytes(r);
    if (!s.tasks || (uint64_t) 3 * s.seqs * s.heads * g->d * 4 > act) return false;
    if (write) decode_rows(r, g, &s);
    *a = (struct ps_attn_decode) { .rows =
                                       (struct ps_decode_row *) r->ctl + r->turn % s.tasks * s.seqs,
                                   .n_rows = s.seqs,
                                   .q_heads = s.heads,
                                   .kv_heads = s.heads,
                                   .d = g->d,
                                   .longest = g->k + 1,
                                   .scale = 0.1F,
                                   .kv_type = g->type };
    return true;
}

/* Whole prompts, some TOKENS together. */
static bool attn_prompt(struct ps_rig *r, const struct ps_gauge *g, bool write,
                        struct ps_attn_prompt *a)
{
    struct ps_gauge some = *g;
    if (!some.m) some.m = g->k < TOKENS ? TOKENS / g->k : 1;
    struct ps_slabs s = ps_gauge_slabs(r, &some, g->k);
    const uint64_t most = act_bytes(r) / ((uint64_t) g->k * g->d * 4); /* heads, of all sequences */
    while (s.seqs > 1 && s.seqs * s.heads > most) s.seqs /= 2;
    while (s.heads > 1 && s.heads > most) s.heads /= 2;
    const size_t wide = (size_t) s.heads * g->d;
    if (!s.tasks || !most) return false;
    struct ps_prompt_seq *seqs = r->ctl;
    for (uint32_t i = 0; i < s.seqs && write; i++) {
        const struct ps_slab slab = ps_slabs_at(r, g, &s, 0, i, r->meta);
        seqs[i] = (struct ps_prompt_seq) { .q = inputs(r) + i * g->k * wide,
                                           .o = outputs(r) + i * g->k * wide,
                                           .k = slab.k,
                                           .v = slab.v,
                                           .score = slab.score,
                                           .rows = g->k,
                                           .cap = g->k,
                                           .total = g->k };
    }
    *a = (struct ps_attn_prompt) { .seqs = seqs,
                                   .n_seqs = s.seqs,
                                   .q_heads = s.heads,
                                   .kv_heads = s.heads,
                                   .d = g->d,
                                   .ldq = (uint32_t) wide,
                                   .ldo = (uint32_t) wide,
                                   .longest = g->k,
                                   .scale = 0.1F,
                                   .kv_type = g->type };
    return true;
}

static bool kv_round(struct ps_rig *r, const struct ps_gauge *g, struct ps_kv_round *a)
{
    const uint32_t wide = WIDTH;
    const uint64_t half = (uint64_t) g->m * wide * ps_dtype_bytes(g->type);
    if (2 * half > r->cold_bytes || (uint64_t) 8 * g->m * wide > act_bytes(r)) return false;
    uint8_t *to = next_cold(r, 2 * half);
    *a = (struct ps_kv_round) { .k = inputs(r),
                                .v = inputs(r) + (size_t) g->m * wide,
                                .dst_k = to,
                                .dst_v = to + half,
                                .rows = g->m,
                                .ldk = wide,
                                .ldv = wide,
                                .kv_heads = wide / g->d,
                                .d = g->d,
                                .cap = g->m,
                                .kv_type = g->type };
    return true;
}

/* A fifth stays; from the first of two lots of slabs into the second. */
static bool kv_compact(struct ps_rig *r, const struct ps_gauge *g, bool write,
                       struct ps_kv_compact *a)
{
    const struct ps_slabs s = ps_gauge_slabs(r, g, g->k);
    if (s.tasks < 2) return false;
    struct ps_compact_seq *seqs = r->ctl;
    for (uint32_t i = 0; i < s.seqs && write; i++)
        seqs[i] = (struct ps_compact_seq) { .src = ps_slabs_at(r, g, &s, 0, i, r->meta),
                                            .dst = ps_slabs_at(r, g, &s, 1, i, r->meta),
                                            .keep = { 0, g->k / 10, g->k / 10 },
                                            .total = g->k };
    *a = (struct ps_kv_compact) { .seqs = seqs,
                                  .n_seqs = s.seqs,
                                  .kv_heads = s.heads,
                                  .d = g->d,
                                  .longest = g->k,
                                  .kv_type = g->type };
    return true;
}

static bool kv_replay(struct ps_rig *r, const struct ps_gauge *g, bool write,
                      struct ps_kv_replay *a)
{
    const struct ps_slabs s = ps_gauge_slabs(r, g, g->k);
    const uint64_t half = (uint64_t) s.heads * LOG * g->d * ps_dtype_bytes(g->type);
    struct ps_replay_seq *seqs = r->ctl;
    int32_t *index = (void *) (seqs + s.seqs);
    const uint64_t logs = page_up(2 * half * s.seqs); /* at cold's end */
    uint8_t *log = r->cold + r->cold_bytes - logs;
    if (!s.tasks || page_up(2 * s.half) + logs > r->cold_bytes) return false;
    for (uint32_t i = 0; i < LOG * s.heads && write; i++) index[i] = (int32_t) (i * 7 % g->k);
    for (uint32_t i = 0; i < s.seqs && write; i++, log += 2 * half) {
        const struct ps_slab to = ps_slabs_at(r, g, &s, 0, i, r->meta);
        seqs[i] = (struct ps_replay_seq) { .k = to.k,
                                           .v = to.v,
                                           .log_k = log,
                                           .log_v = log + half,
                                           .log_index = index,
                                           .cap = s.cap,
                                           .log_cap = LOG,
                                           .n = LOG };
    }
    *a = (struct ps_kv_replay) { seqs, s.seqs, s.heads, g->d, g->type };
    return true;
}

bool ps_gauge_args(struct ps_rig *r, const struct ps_gauge *g, bool write, union ps_gauge_args *a)
{
    switch (g->op) {
    case PS_OP_linear: return linear(r, g, &a->linear);
    case PS_OP_layernorm: return layernorm(r, g, &a->layernorm);
    case PS_OP_embed: return embed(r, g, write, &a->embed);
    case PS_OP_sample: return sample(r, g, write, &a->sample);
    case PS_OP_attn_decode: return attn_decode(r, g, write, &a->decode);
    case PS_OP_attn_prompt: return attn_prompt(r, g, write, &a->prompt);
    case PS_OP_kv_round: return kv_round(r, g, &a->round);
    case PS_OP_kv_compact: return kv_compact(r, g, write, &a->compact);
    case PS_OP_kv_replay: return kv_replay(r, g, write, &a->replay);
    default: return false;
    }
}
