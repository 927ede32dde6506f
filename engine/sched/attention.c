/* SPDX-License-Identifier: Apache-2.0 */
/* The attention step of some rows of a micro-batch. Decode rows come first in a micro-batch, then prompts one after the other; a
 * prompt may be cut by the ends of the row chunk. Prompt K and V are rounded into a place of their own, attended there, and what the
 * policy keeps goes to the slab when the prompt's last row was done. */
#include "engine/sched/sched.h"
#include <math.h>

/* Waits for half of the blocks at a time: a wake-up of this thread for each block would leave the device without tasks. */
int ps_sched_ctl(struct ps_sched *s, struct ps_ctl **ret, struct ps_buf **ret_buf)
{
    const uint32_t n = PS_CTL_BLOCKS, half = n / 2, i = s->ctl_next++ % n;
    for (uint32_t j = i; i % half == 0 && j < i + half; j++) {
        int r = ps_dev_wait(s->dev, &s->ctl[j], true);
        if (r < 0) return r;
    }
    *ret = &s->l.ctl[i];
    *ret_buf = &s->ctl[i];
    return 0;
}

struct ps_slab ps_slab_of(const struct ps_sched *s, uint32_t layer, uint32_t k,
                          const struct ps_slot *t, uint8_t *extent)
{
    const uint64_t heads = s->shape->kv_heads, at = (uint64_t) t->e0 * heads;
    uint64_t meta = ((uint64_t) layer * s->plan->micro_batches + k) * s->d->pool * heads + at;
    uint64_t byte = at * s->shape->head_dim * ps_dtype_bytes(s->d->kv_type);
    return (struct ps_slab) { .k = extent ? extent + byte : NULL,
                              .v =
                                  extent ? extent + ps_kv_extent_half(s->shape, s->d) + byte : NULL,
                              .score = s->l.score ? s->l.score + meta : NULL,
                              .pos = s->l.pos + meta,
                              .cap = t->cap };
}

struct att {
    struct ps_sched *s;
    const struct ps_pass *p;
    struct ps_ctl *ctl;
    struct ps_buf *ctl_buf;
    const float *q, *k, *v;
    float *o;
    uint32_t wide, kv_wide; /* elements of a row of q and o, of k and v */
    float scale;
};

#define RUN(op, args, ...)                                                                   \
    ps_dev_run(a->s->dev, PS_Q_COMPUTE, PS_OP_##op, args, (struct ps_use[]) { __VA_ARGS__ }, \
               sizeof((struct ps_use[]) { __VA_ARGS__ }) / sizeof(struct ps_use))

static struct ps_use in(struct att *a, enum ps_actv x)
{
    return (struct ps_use) { &a->s->act[x], false };
}

/* ---- decode rows */

static int replay(struct att *a, uint32_t from, uint32_t n)
{
    struct ps_sched *s = a->s;
    const struct ps_mb *b = &s->mb[a->p->mb];
    uint32_t n_seqs = 0;
    if (!ps_kv_on_disk(s, a->p->layer, a->p->mb)) return 0;
    for (uint32_t i = from; i < from + n; i++)
        if (b->slots[b->decode[i]].logged)
            ps_kv_replay_args(s, a->p, b->decode[i], &a->ctl->replay[n_seqs++]);
    if (!n_seqs) return 0;
    struct ps_kv_replay args = { .seqs = a->ctl->replay,
                                 .n_seqs = n_seqs,
                                 .kv_heads = s->shape->kv_heads,
                                 .d = s->shape->head_dim,
                                 .kv_type = s->d->kv_type };
    return RUN(kv_replay, &args, { a->p->kv, true }, { a->p->kv_meta, false },
               { a->ctl_buf, false });
}

static int decode(struct att *a, uint32_t from, uint32_t n)
{
    struct ps_sched *s = a->s;
    const struct ps_mb *b = &s->mb[a->p->mb];
    bool disk = ps_kv_on_disk(s, a->p->layer, a->p->mb);
    struct ps_attn_decode args = { .rows = a->ctl->decode,
                                   .n_rows = n,
                                   .q_heads = s->shape->q_heads,
                                   .kv_heads = s->shape->kv_heads,
                                   .d = s->shape->head_dim,
                                   .scale = a->scale,
                                   .kv_type = s->d->kv_type };
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = b->decode[from + i];
        const struct ps_slot *t = &b->slots[index];
        size_t row = from + i - a->p->row0;
        struct ps_decode_row *r = &a->ctl->decode[i];
        *r = (struct ps_decode_row) { .q = a->q + row * a->wide,
                                      .k = a->k + row * a->kv_wide,
                                      .v = a->v + row * a->kv_wide,
                                      .o = a->o + row * a->wide,
                                      .slab = ps_slab_of(s, a->p->layer, a->p->mb, t, a->p->kv_mem),
                                      .keep = t->keep,
                                      .len = t->len,
                                      .now = (int32_t) t->fed,
                                      .at = a->ctl->at + (size_t) i * s->shape->kv_heads };
        if (disk) ps_kv_log_args(s, a->p, index, r);
        if (t->len + 1 > args.longest) args.longest = t->len + 1;
    }
    return RUN(attn_decode, &args, in(a, PS_A_Q), in(a, PS_A_K), in(a, PS_A_V),
               { &s->act[PS_A_O], true }, { a->p->kv, true }, { a->p->kv_meta, true },
               { a->ctl_buf, true });
}

/* ---- prompts */

/* Where a prompt's rounded K, V and scores lie: the prompts of a micro-batch one after the other, in row order. */
struct place {
    uint8_t *k, *v;
    float *score;
};
static struct place prompt_place(const struct att *a, uint32_t first_token)
{
    const struct ps_sched *s = a->s;
    uint64_t at = (uint64_t) first_token * s->shape->kv_heads;
    uint64_t byte = at * s->shape->head_dim * ps_dtype_bytes(s->d->kv_type);
    return (struct place) { s->l.prompt_k + byte, s->l.prompt_v + byte,
                            s->l.prompt_score ? s->l.prompt_score + at : NULL };
}

static int round_rows(struct att *a, const struct place *at, uint32_t total, uint32_t first,
                      uint32_t n, size_t row)
{
    struct ps_sched *s = a->s;
    struct ps_kv_round args = { .k = a->k + row * a->kv_wide,
                                .v = a->v + row * a->kv_wide,
                                .dst_k = at->k,
                                .dst_v = at->v,
                                .rows = n,
                                .ldk = a->kv_wide,
                                .ldv = a->kv_wide,
                                .kv_heads = s->shape->kv_heads,
                                .d = s->shape->head_dim,
                                .cap = total,
                                .at = first,
                                .kv_type = s->d->kv_type };
    return RUN(kv_round, &args, in(a, PS_A_K), in(a, PS_A_V), { &s->prompt_kv, true });
}

static void compact_args(struct att *a, const struct ps_slot *t, const struct place *at,
                         struct ps_compact_seq *ret)
{
    uint32_t total = t->seq->n_prompt;
    *ret = (struct ps_compact_seq) {
        .src = { .k = at->k, .v = at->v, .score = at->score, .cap = total },
        .dst = ps_slab_of(a->s, a->p->layer, a->p->mb, t, a->p->kv_mem),
        .keep = t->keep,
        .total = total
    };
}

static int prompts(struct att *a, uint32_t from, uint32_t to)
{
    struct ps_sched *s = a->s;
    const struct ps_mb *b = &s->mb[a->p->mb];
    uint32_t heads = s->shape->kv_heads;
    struct ps_attn_prompt args = { .seqs = a->ctl->prompt,
                                   .q_heads = s->shape->q_heads,
                                   .kv_heads = heads,
                                   .d = s->shape->head_dim,
                                   .ldq = a->wide,
                                   .ldo = a->wide,
                                   .scale = a->scale,
                                   .kv_type = s->d->kv_type };
    struct ps_kv_compact done = { .seqs = a->ctl->compact,
                                  .kv_heads = heads,
                                  .d = s->shape->head_dim,
                                  .kv_type = s->d->kv_type };
    for (uint32_t i = 0; i < b->n_prompt; i++) {
        const struct ps_slot *t = &b->slots[b->prompt[i]];
        uint32_t total = t->seq->n_prompt, lo = t->row > from ? t->row : from, hi = t->row + total;
        if (hi > to) hi = to;
        if (lo >= hi) continue;
        uint32_t first = lo - t->row, n = hi - lo;
        size_t row = lo - a->p->row0;
        struct place at = prompt_place(a, t->row - b->n_decode);
        int r = round_rows(a, &at, total, first, n, row);
        if (r < 0) return r;
        a->ctl->prompt[args.n_seqs++] = (struct ps_prompt_seq) { .q = a->q + row * a->wide,
                                                                 .o = a->o + row * a->wide,
                                                                 .k = at.k,
                                                                 .v = at.v,
                                                                 .score = at.score,
                                                                 .rows = n,
                                                                 .first = first,
                                                                 .cap = total,
                                                                 .total = total };
        if (first + n > args.longest) args.longest = first + n;
        if (hi < t->row + total) continue;
        compact_args(a, t, &at, &a->ctl->compact[done.n_seqs++]);
        if (total > done.longest) done.longest = total;
    }
    if (!args.n_seqs) return 0;
    int r = RUN(attn_prompt, &args, in(a, PS_A_Q), { &s->act[PS_A_O], true },
                { &s->prompt_kv, true }, { a->ctl_buf, false });
    if (r < 0 || !done.n_seqs) return r;
    return RUN(kv_compact, &done, { &s->prompt_kv, false }, { a->p->kv, true },
               { a->p->kv_meta, true }, { a->ctl_buf, false });
}

int ps_attention(struct ps_sched *s, const struct ps_pass *p)
{
    const struct ps_mb *b = &s->mb[p->mb];
    struct att a = { .s = s,
                     .p = p,
                     .q = s->l.act[PS_A_Q],
                     .k = s->l.act[PS_A_K],
                     .v = s->l.act[PS_A_V],
                     .o = s->l.act[PS_A_O],
                     .wide = s->shape->q_heads * s->shape->head_dim,
                     .kv_wide = s->shape->kv_heads * s->shape->head_dim,
                     .scale = 1.0f / sqrtf((float) s->shape->head_dim) };
    int r = ps_sched_ctl(s, &a.ctl, &a.ctl_buf);
    uint32_t to = p->row0 + p->rows, decodes = to < b->n_decode ? to : b->n_decode;
    if (!r && p->row0 < decodes) {
        r = replay(&a, p->row0, decodes - p->row0);
        if (!r) r = decode(&a, p->row0, decodes - p->row0);
    }
    if (!r && to > b->n_decode) r = prompts(&a, p->row0, to);
    return r;
}
