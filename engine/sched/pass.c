/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/sched.h"
#include <assert.h>
#include <string.h>

float *ps_pass_act(struct ps_sched *s, const struct ps_pass *p, enum ps_actv a)
{
    if (a == PS_A_NONE) return NULL;
    if (a == PS_A_X) return p->x + (size_t) p->row0 * s->shape->hidden;
    if (a == PS_A_LOGITS) return s->l.logits;
    return a == PS_A_O && p->twin ? s->l.o2 : s->l.act[a];
}

struct ps_buf *ps_pass_buf(struct ps_sched *s, const struct ps_pass *p, enum ps_actv a)
{
    if (a == PS_A_NONE) return NULL;
    if (a == PS_A_X) return p->x_buf;
    if (a == PS_A_LOGITS) return &s->logits;
    return a == PS_A_O && p->twin ? &s->o2 : &s->act[a];
}

enum ps_dtype ps_pass_type(const struct ps_sched *s, const struct ps_pass *p, enum ps_actv a)
{
    return p->rounds && ps_actv_rounds(a) && !(a == PS_A_O && p->o_f32) ? s->m->dtype : PS_F32;
}

/* A vector of a group (norm, bias); p NULL when the step has none. */
static struct vector {
    const uint8_t *p;
    struct ps_buf *buf;
} vector(struct ps_sched *s, uint32_t group, enum ps_role role)
{
    const struct ps_packed_tensor *t = role ? ps_weights_tensor(s, group, role) : NULL;
    if (!t) return (struct vector) { 0 };
    struct ps_part part = ps_weights_part(s, t, t->first_chunk);
    return (struct vector) { part.p, part.uses[0].buf };
}

/* With the buffers of the part's chunks in front. */
static int run_part(struct ps_sched *s, enum ps_op op, const void *args, const struct ps_part *part,
                    const struct ps_use *more, unsigned n_more)
{
    struct ps_use uses[PS_PART_CHUNKS + 4];
    memcpy(uses, part->uses, part->chunks * sizeof *uses);
    memcpy(uses + part->chunks, more, n_more * sizeof *uses);
    return ps_dev_run(s->dev, PS_Q_COMPUTE, op, args, uses, part->chunks + n_more);
}

/* Whether H may hold a rounded copy while step i of the list runs, and after it: it has the room, and nothing that a later step reads, nor is
 * it what step i makes. */
static bool h_is_free(const struct ps_sched *s, const struct ps_steps *list, unsigned i)
{
    if (list->s[i].out == PS_A_H) return false;
    if (ps_actv_width(s->shape, list->s[i].in) > 2 * ps_actv_width(s->shape, PS_A_H)) return false;
    for (; i < list->n; i++) {
        if (list->s[i].in == PS_A_H) return false;
        if (list->s[i].out == PS_A_H) return true;
    }
    return true;
}

/* What a linear reads next, and only linears read, is rounded; X, which stays f32, once more into H. */
static int step_norm(struct ps_sched *s, const struct ps_steps *list, unsigned i, struct ps_pass *p,
                     uint32_t group)
{
    const struct ps_step *t = &list->s[i];
    const bool rounded = ps_pass_type(s, p, t->out) != PS_F32,
               copy = p->rounds && !rounded && i + 1 < list->n && t[1].op == PS_STEP_LINEAR &&
                      t[1].in == t->out && h_is_free(s, list, i + 1);
    float *y = ps_pass_act(s, p, t->out);
    struct vector w = vector(s, group, t->w), b = vector(s, group, t->b);
    uint32_t cols = ps_actv_width(s->shape, t->in);
    struct ps_layernorm args = { .y = rounded ? NULL : y,
                                 .x = ps_pass_act(s, p, t->in),
                                 .w = w.p,
                                 .b = b.p,
                                 .rounded = rounded ? y
                                            : copy  ? s->l.act[PS_A_H]
                                                    : NULL,
                                 .rows = p->rows,
                                 .cols = cols,
                                 .ldx = cols,
                                 .ldy = cols,
                                 .eps = s->shape->eps,
                                 .dtype = s->m->dtype };
    struct ps_use uses[5] = { { w.buf, false },
                              { b.buf, false },
                              { ps_pass_buf(s, p, t->in), false },
                              { ps_pass_buf(s, p, t->out), true },
                              { copy ? &s->act[PS_A_H] : NULL, true } };
    if (copy) p->copied = t->out;
    return ps_dev_run(s->dev, PS_Q_COMPUTE, PS_OP_layernorm, &args, uses, 5);
}

/* What a linear reads: as it is kept, or, of a pass that rounds, H's copy of it, which is made if it is not there. */
struct input {
    const float *x;
    const void *rounded;
    struct ps_buf *buf;
};
static int input(struct ps_sched *s, const struct ps_steps *list, unsigned i, struct ps_pass *p,
                 struct input *ret)
{
    const enum ps_actv in = list->s[i].in;
    const float *x = ps_pass_act(s, p, in);
    const bool rounded = ps_pass_type(s, p, in) != PS_F32;
    *ret = (struct input) { rounded ? NULL : x, rounded ? x : NULL, ps_pass_buf(s, p, in) };
    if (!p->rounds || rounded || !h_is_free(s, list, i)) return 0;
    const struct ps_convert args = { .y = s->l.act[PS_A_H],
                                     .x = x,
                                     .n = (uint64_t) p->rows * ps_actv_width(s->shape, in),
                                     .to = s->m->dtype,
                                     .from = PS_F32 };
    int r =
        p->copied == in
            ? 0
            : ps_dev_run(s->dev, PS_Q_COMPUTE, PS_OP_convert, &args,
                         (struct ps_use[]) { { ret->buf, false }, { &s->act[PS_A_H], true } }, 2);
    *ret = (struct input) { NULL, args.y, &s->act[PS_A_H] };
    p->copied = in;
    return r;
}

/* The bias of step i: beside rounded inputs the library wants that of an f32 result in f32. */
static struct vector bias_of(struct ps_sched *s, const struct ps_steps *list, unsigned i,
                             const struct ps_pass *p, uint32_t group, bool wide)
{
    struct vector v = vector(s, group, list->s[i].b);
    assert(!v.p || !wide || list == &s->layer); /* nothing else has biases that are kept */
    if (v.p && wide) v.p = (const uint8_t *) ps_weights_bias(s, p->layer, i, &v.buf);
    return v;
}

/* One task per chunk of the matrix, or piece of several: the first can start while the last is still on its way. */
static int step_linear(struct ps_sched *s, const struct ps_steps *list, unsigned i,
                       struct ps_pass *p, uint32_t group)
{
    const struct ps_step *t = &list->s[i];
    const struct ps_packed_tensor *w = ps_weights_tensor(s, group, t->w);
    const enum ps_dtype type = ps_pass_type(s, p, t->out);
    const bool wide = p->rounds && type == PS_F32;
    struct vector bias = bias_of(s, list, i, p, group, wide);
    const size_t bias_bytes = ps_dtype_bytes(wide ? PS_F32 : w->dtype);
    const float *res = ps_pass_act(s, p, t->residual);
    uint8_t *out = (uint8_t *) ps_pass_act(s, p, t->out);
    uint32_t ldy = ps_actv_width(s->shape, t->out);
    struct ps_part part;
    struct input in;
    int r = input(s, list, i, p, &in);
    for (uint32_t c = w->first_chunk; c < w->first_chunk + w->n_chunks && !r; c += part.chunks) {
        part = ps_weights_part(s, w, c);
        uint8_t *y = out + part.row0 * ps_dtype_bytes(type);
        struct ps_linear args = { .y = type == PS_F32 ? (float *) (void *) y : NULL,
                                  .rounded_y = type == PS_F32 ? NULL : y,
                                  .x = in.x,
                                  .rounded_x = in.rounded,
                                  .w = part.p,
                                  .bias = bias.p ? bias.p + part.row0 * bias_bytes : NULL,
                                  .residual = res ? res + part.row0 : NULL,
                                  .m = p->rows,
                                  .n = part.rows,
                                  .k = w->t.cols,
                                  .ldx = w->t.cols,
                                  .ldy = ldy,
                                  .ldr = ldy,
                                  .wtype = w->dtype,
                                  .act = t->act,
                                  .bias_f32 = wide,
                                  .exact = s->d->kv_type == PS_F32, /* for checking */
                                  .odd = t->out == PS_A_K || t->out == PS_A_V };
        struct ps_use uses[4] = { { bias.buf, false },
                                  { in.buf, false },
                                  { ps_pass_buf(s, p, t->residual), false },
                                  { ps_pass_buf(s, p, t->out), true } };
        r = run_part(s, PS_OP_linear, &args, &part, uses, 4);
    }
    return r;
}

static int step_embed(struct ps_sched *s, const struct ps_step *t, const struct ps_pass *p)
{
    bool tokens = t->op == PS_STEP_TOKENS;
    const struct ps_packed_tensor *w = ps_weights_tensor(s, 0, t->w);
    struct ps_part part;
    for (uint32_t c = w->first_chunk; c < w->first_chunk + w->n_chunks; c += part.chunks) {
        part = ps_weights_part(s, w, c);
        struct ps_embed args = { .y = ps_pass_act(s, p, t->out),
                                 .table = part.p,
                                 .ids = (tokens ? p->ids : p->ids_pos) + p->row0,
                                 .rows = p->rows,
                                 .cols = w->t.cols,
                                 .ldy = ps_actv_width(s->shape, t->out),
                                 .row0 = part.row0,
                                 .n_rows = part.rows,
                                 .ids_add = tokens ? 0 : s->shape->position_add,
                                 .dtype = w->dtype,
                                 .add = t->add };
        struct ps_use uses[2] = { { p->ids_buf, false }, { ps_pass_buf(s, p, t->out), true } };
        int r = run_part(s, PS_OP_embed, &args, &part, uses, 2);
        if (r < 0) return r;
    }
    return 0;
}

/* Steps [from, to). */
static int steps(struct ps_sched *s, const struct ps_steps *list, unsigned from, unsigned to,
                 struct ps_pass *p, uint32_t group)
{
    int r = 0;
    s->dev->tag = group << 16 | p->mb;
    for (unsigned i = from; i < to && !r; i++) {
        const struct ps_step *t = &list->s[i];
        if (t->out == p->copied || t->out == PS_A_H) p->copied = PS_A_NONE;
        switch (t->op) {
        case PS_STEP_TOKENS:
        case PS_STEP_POSITIONS: r = step_embed(s, t, p); break;
        case PS_STEP_NORM: r = step_norm(s, list, i, p, group); break;
        case PS_STEP_LINEAR: r = step_linear(s, list, i, p, group); break;
        case PS_STEP_ATTENTION: r = ps_attention(s, p); break;
        }
    }
    return r;
}

/* Before a list's first step. */
static void begin(struct ps_sched *s, struct ps_pass *p, bool far)
{
    p->rounds = s->dev->rounds && ps_rows_rounded(s->d, s->m->dtype, p->rows);
    p->o_f32 = far;
    p->copied = PS_A_NONE;
}

int ps_pass_steps(struct ps_sched *s, const struct ps_steps *list, struct ps_pass *p,
                  uint32_t group)
{
    begin(s, p, false);
    return steps(s, list, 0, list->n, p, group);
}

int ps_pass_barrier(struct ps_sched *s) { return s->how.barrier ? ps_dev_drain(s->dev) : 0; }

/* The layer's steps to its attention and with it. */
static unsigned first_half(const struct ps_sched *s)
{
    unsigned i = 0;
    while (s->layer.s[i].op != PS_STEP_ATTENTION) i++;
    return i + 1;
}

int ps_pass_finish(struct ps_sched *s)
{
    struct ps_pass p = s->waiting;
    const bool counted = s->dev->counted;
    if (!s->waits) return 0;
    s->waits = false;
    s->dev->counted = ps_mb_decodes(&s->mb[p.mb]);
    p.copied = PS_A_NONE; /* H has been another pass's since */
    int r = steps(s, &s->layer, first_half(s), s->layer.n, &p, p.layer + 1);
    if (!r && p.last) r = ps_hidden_release(s, &p);
    s->dev->counted = counted;
    if (p.ends) ps_weights_end(s, p.layer + 1);
    return r;
}

void ps_pass_layer_end(struct ps_sched *s, uint32_t layer)
{
    if (s->waits && s->waiting.layer == layer)
        s->waiting.ends = true;
    else
        ps_weights_end(s, layer + 1);
}

/* Whether the host has some of these rows' attention, beside a GPU. */
static bool goes_far(struct ps_sched *s, const struct ps_pass *p)
{
    return s->d->gpu && ps_kv_home(s, p->layer, p->mb)->on_host && p->row0 < s->mb[p->mb].n_decode;
}

/* While attention of one pass runs on the host, COMPUTE has other rows of the micro-batch, then the first half of the next that will
 * wait, and only then this one's second half. */
static int run_rows(struct ps_sched *s, struct ps_pass *p)
{
    const unsigned half = first_half(s);
    const bool far = goes_far(s, p), wait = far && s->d->passes > 1 &&
                                            !s->how.barrier; /* else COMPUTE has nothing to do */
    begin(s, p, far);
    if (wait)
        p->twin = (unsigned) (s->wait_pass++ % 2);
    else
        p->twin = s->waits ? 1 - s->waiting.twin : 0;
    int r = steps(s, &s->layer, 0, half, p, p->layer + 1);
    if (r < 0) return r;
    if (!wait) return steps(s, &s->layer, half, s->layer.n, p, p->layer + 1);
    r = ps_pass_finish(s);
    s->waiting = *p;
    s->waits = true;
    return r;
}

/* What the pass after (layer, k) needs. */
static int hidden_ahead(struct ps_sched *s, uint32_t k)
{
    uint32_t k2 = (k + 1) % s->plan->micro_batches;
    if (k2 == k) return 0; /* its own are written only after this pass */
    return s->waits && s->waiting.mb == k2 ? 0 : ps_hidden_ahead(s, k2);
}

static int ahead(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    uint32_t k2 = (k + 1) % s->plan->micro_batches;
    int r = hidden_ahead(s, k);
    return r < 0 ? r : ps_kv_ahead(s, layer + (k2 == 0), k2);
}

static int pass_layer(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    struct ps_mb *b = &s->mb[k];
    struct ps_pass p = { .layer = layer, .mb = k };
    if (!b->n_rows) {
        ps_kv_skip(s, layer, k);
        return ps_weights_spread(s, k, s->plan->micro_batches);
    }
    int r = s->waits && s->waiting.mb == k ? ps_pass_finish(s) : 0;
    if (!r) r = ps_hidden_acquire(s, k, false, &p);
    if (!r) r = ps_kv_acquire(s, layer, k, &p);
    if (!r) r = ahead(s, layer, k);
    if (!r) r = ps_weights_spread(s, k, s->plan->micro_batches);
    for (; !r && p.row0 < b->n_rows; p.row0 += p.rows) {
        p.rows =
            b->n_rows - p.row0 < s->plan->chunk_rows ? b->n_rows - p.row0 : s->plan->chunk_rows;
        r = run_rows(s, &p);
    }
    if (!r) r = ps_pass_barrier(s);
    if (!r) r = ps_kv_release(s, &p);
    if (s->waits && s->waiting.mb == k)
        s->waiting.last = true;
    else if (!r)
        r = ps_hidden_release(s, &p);
    return r < 0 ? r : hidden_ahead(s, k);
}

/* What is read ahead during a pass counts as its own. */
int ps_pass_layer(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    const bool decode = ps_mb_decodes(&s->mb[k]);
    s->stats.decode_passes += decode;
    s->dev->counted = decode;
    int r = ps_weights_begin(s, layer + 1);
    if (!r) r = pass_layer(s, layer, k);
    s->dev->counted = false;
    return r;
}
