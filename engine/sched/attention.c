/* SPDX-License-Identifier: Apache-2.0 */
/* The attention step of some rows of a micro-batch. Decode rows come first in a micro-batch, then prompts one after the other; a
 * prompt may be cut by the ends of the row chunk. Prompt K and V are rounded into a place of their own, attended there, and what the
 * policy keeps goes to the slab when the prompt's last row was done. Beside a GPU, decode rows of slabs that attention visits on the host
 * send their q, k and v there and get the result back. */
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

struct ps_slab ps_slab_of(const struct ps_sched *s, const struct ps_slot *t, uint8_t *extent,
                          int32_t *pos, float *score)
{
    const uint64_t at = (uint64_t) t->e0 * s->shape->kv_heads;
    uint64_t byte = at * s->shape->head_dim * ps_dtype_bytes(s->d->kv_type);
    return (struct ps_slab) { .k = extent ? extent + byte : NULL,
                              .v =
                                  extent ? extent + ps_kv_extent_half(s->shape, s->d) + byte : NULL,
                              .score = score ? score + at : NULL,
                              .pos = pos ? pos + at : NULL,
                              .cap = t->cap };
}

struct att {
    struct ps_sched *s;
    const struct ps_pass *p;
    struct ps_ctl *ctl;
    struct ps_buf *ctl_buf;
    const float *q, *k, *v;
    uint8_t *o;
    enum ps_dtype o_type;
    uint32_t wide, kv_wide; /* elements of a row of q and o, of k and v */
    float scale;
};

#define RUN(q, op, args, ...)                                                     \
    ps_dev_run(a->s->dev, q, PS_OP_##op, args, (struct ps_use[]) { __VA_ARGS__ }, \
               sizeof((struct ps_use[]) { __VA_ARGS__ }) / sizeof(struct ps_use))

static struct ps_use in(struct att *a, enum ps_actv x)
{
    return (struct ps_use) { &a->s->act[x], false };
}
static struct ps_buf *out(struct att *a) { return ps_pass_buf(a->s, a->p, PS_A_O); }

static size_t o_bytes(const struct att *a) { return a->wide * ps_dtype_bytes(a->o_type); }

/* ---- decode rows */

/* One row's operands but for q, k, v and o, which begin at row `at` of `io`. */
struct io {
    const float *q, *k, *v;
    void *o;
};
static struct ps_decode_row decode_row(struct att *a, uint32_t index, uint32_t i,
                                       const struct io *io, size_t at)
{
    struct ps_sched *s = a->s;
    const struct ps_home *h = ps_kv_home(s, a->p->layer, a->p->mb);
    const struct ps_slot *t = &s->mb[a->p->mb].slots[index];
    struct ps_buf *kv = h->on_host ? a->p->far : a->p->near;
    struct ps_decode_row r = { .q = io->q + at * a->wide,
                               .k = io->k + at * a->kv_wide,
                               .v = io->v + at * a->kv_wide,
                               .o = (uint8_t *) io->o + at * o_bytes(a),
                               .slab = ps_slab_of(s, t, kv->p, h->pos, h->score),
                               .keep = t->keep,
                               .len = t->len,
                               .now = (int32_t) t->fed,
                               .at = a->ctl->at + (size_t) i * s->shape->kv_heads };
    if (!h->on_host && h->tier != PS_TIER_GPU)
        ps_kv_new_args(s, i, &r);
    else if (h->tier == PS_TIER_DISK)
        ps_kv_log_args(s, a->p, index, &r);
    return r;
}

static struct ps_attn_decode decode_args(struct att *a, uint32_t from, uint32_t n,
                                         const struct io *io, size_t at)
{
    struct ps_sched *s = a->s;
    const struct ps_mb *b = &s->mb[a->p->mb];
    struct ps_attn_decode args = { .rows = a->ctl->decode,
                                   .n_rows = n,
                                   .q_heads = s->shape->q_heads,
                                   .kv_heads = s->shape->kv_heads,
                                   .d = s->shape->head_dim,
                                   .scale = a->scale,
                                   .kv_type = s->d->kv_type,
                                   .o_type = a->o_type };
    for (uint32_t i = 0; i < n; i++) {
        struct ps_decode_row *r = &a->ctl->decode[i];
        *r = decode_row(a, b->decode[from + i], i, io, at + i);
        if (r->len + 1 > args.longest) args.longest = r->len + 1;
    }
    return args;
}

/* Where a pass's decode rows meet the host's attention. */
struct ps_far {
    struct ps_buf *in, *out;
    float *q, *k, *v, *o;
};
static struct ps_far far_of(struct ps_sched *s, const struct ps_pass *p)
{
    const unsigned twin = p->twin % s->d->passes;
    const size_t row = (size_t) twin * s->plan->slots;
    const size_t wide = ps_actv_width(s->shape, PS_A_Q), kv_wide = ps_actv_width(s->shape, PS_A_K);
    return (struct ps_far) { &s->far_in[twin],           &s->far_o[twin],
                             s->l.far_q + row * wide,    s->l.far_k + row * kv_wide,
                             s->l.far_v + row * kv_wide, s->l.far_o + row * wide };
}

/* Rows [0, n) of a far place, from or to the rows of an activation. */
static int rows_far(struct att *a, enum ps_actv x, size_t row, struct ps_buf *far, float *place,
                    uint32_t n, bool up)
{
    struct ps_sched *s = a->s;
    struct ps_buf *act = ps_pass_buf(s, a->p, x);
    const uint64_t wide = ps_actv_width(s->shape, x);
    const uint8_t *there = (const uint8_t *) (ps_pass_act(s, a->p, x) + row * wide);
    const uint64_t far_off = (uint64_t) ((uint8_t *) place - (uint8_t *) far->p),
                   near_off = (uint64_t) (there - (uint8_t *) act->p);
    return ps_dev_move(s->dev, up ? act : far, up ? far : act,
                       &(struct ps_rect) { .dst_off = up ? near_off : far_off,
                                           .src_off = up ? far_off : near_off,
                                           .row_bytes = n * wide * sizeof(float),
                                           .rows = 1 });
}

/* On the host beside a GPU: q, k and v go down. */
static int decode_far(struct att *a, uint32_t from, uint32_t n)
{
    struct ps_sched *s = a->s;
    struct ps_home *h = ps_kv_home(s, a->p->layer, a->p->mb);
    const struct ps_far f = far_of(s, a->p);
    const size_t row = from - a->p->row0;
    int r = rows_far(a, PS_A_Q, row, f.in, f.q, n, false);
    if (!r) r = rows_far(a, PS_A_K, row, f.in, f.k, n, false);
    if (!r) r = rows_far(a, PS_A_V, row, f.in, f.v, n, false);
    if (r < 0) return r;
    struct ps_attn_decode args = decode_args(a, from, n, &(struct io) { f.q, f.k, f.v, f.o }, 0);
    return RUN(PS_Q_HOST, attn_decode, &args, { f.in, false }, { f.out, true }, { a->p->far, true },
               { &h->meta, true }, { &h->log, true }, { a->ctl_buf, true });
}

/* And the result comes up, when COMPUTE's part of it is submitted: that one must not wait for this. */
static int result_up(struct att *a, uint32_t from, uint32_t n)
{
    const struct ps_far f = far_of(a->s, a->p);
    return rows_far(a, PS_A_O, from - a->p->row0, f.out, f.o, n, true);
}

static int decode(struct att *a, uint32_t from, uint32_t n)
{
    struct ps_sched *s = a->s;
    struct ps_home *h = ps_kv_home(s, a->p->layer, a->p->mb);
    struct io io = { a->q, a->k, a->v, a->o };
    struct ps_attn_decode args = decode_args(a, from, n, &io, from - a->p->row0);
    const bool visits = a->p->far && a->p->far != a->p->near;
    struct ps_buf *block = &s->gpu_new_rows[s->new_pass % PS_NEW_BLOCKS];
    int r = RUN(PS_Q_COMPUTE, attn_decode, &args, in(a, PS_A_Q), in(a, PS_A_K), in(a, PS_A_V),
                { out(a), true }, { a->p->near, true }, { &h->meta, true },
                { visits ? block : &h->log, true }, { a->ctl_buf, true });
    return r < 0 || !visits ? r : ps_kv_new_home(s, a->p, from, n);
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
    return RUN(PS_Q_COMPUTE, kv_round, &args, in(a, PS_A_K), in(a, PS_A_V),
               { &s->prompt_kv, true });
}

static void compact_args(struct att *a, const struct ps_slot *t, const struct place *at,
                         struct ps_compact_seq *ret)
{
    uint32_t total = t->seq->n_prompt;
    *ret = (struct ps_compact_seq) {
        .src = { .k = at->k, .v = at->v, .score = at->score, .cap = total },
        .dst = ps_slab_of(a->s, t, a->p->near->p, a->p->pos, a->p->score),
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
                                   .kv_type = s->d->kv_type,
                                   .o_type = a->o_type };
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
                                                                 .o = a->o + row * o_bytes(a),
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
    int r = RUN(PS_Q_COMPUTE, attn_prompt, &args, in(a, PS_A_Q), { out(a), true },
                { &s->prompt_kv, true }, { a->ctl_buf, false });
    if (r < 0 || !done.n_seqs) return r;
    return RUN(PS_Q_COMPUTE, kv_compact, &done, { &s->prompt_kv, false }, { a->p->near, true },
               { a->p->near_meta, true }, { a->ctl_buf, false });
}

int ps_attention(struct ps_sched *s, const struct ps_pass *p)
{
    const struct ps_mb *b = &s->mb[p->mb];
    struct att a = { .s = s,
                     .p = p,
                     .q = s->l.act[PS_A_Q],
                     .k = s->l.act[PS_A_K],
                     .v = s->l.act[PS_A_V],
                     .o = (uint8_t *) ps_pass_act(s, p, PS_A_O),
                     .o_type = ps_pass_type(s, p, PS_A_O),
                     .wide = s->shape->q_heads * s->shape->head_dim,
                     .kv_wide = s->shape->kv_heads * s->shape->head_dim,
                     .scale = 1.0f / sqrtf((float) s->shape->head_dim) };
    int r = ps_sched_ctl(s, &a.ctl, &a.ctl_buf);
    uint32_t to = p->row0 + p->rows, decodes = to < b->n_decode ? to : b->n_decode;
    const uint32_t n = p->row0 < decodes ? decodes - p->row0 : 0;
    const bool far = s->d->gpu && ps_kv_home(s, p->layer, p->mb)->on_host;
    if (!r && n) r = far ? decode_far(&a, p->row0, n) : decode(&a, p->row0, n);
    if (!r && far && n) r = ps_sched_ctl(s, &a.ctl, &a.ctl_buf); /* the host has the other one */
    if (!r && to > b->n_decode) r = prompts(&a, p->row0, to);
    return r < 0 || !n || !far ? r : result_up(&a, p->row0, n);
}
