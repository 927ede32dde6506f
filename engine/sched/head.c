/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a sweep: ids to X, and X to logits to tokens. Only the rows that need logits are gathered: the decode rows and each
 * prompt's last, or all of a prompt that is scored. */
#include "engine/sched/sched.h"
#include <assert.h>
#include <string.h>

int ps_head_embed(struct ps_sched *s, uint32_t k)
{
    struct ps_mb *b = &s->mb[k];
    struct ps_pass p = { .mb = k,
                         .ids = b->ids.p,
                         .ids_pos = s->l.ids_pos + (size_t) k * s->d->mb_rows,
                         .ids_buf = &b->ids };
    if (!b->n_rows) return 0;
    int r = ps_hidden_acquire(s, k, true, &p);
    for (; !r && p.row0 < b->n_rows; p.row0 += p.rows) {
        p.rows =
            b->n_rows - p.row0 < s->plan->chunk_rows ? b->n_rows - p.row0 : s->plan->chunk_rows;
        r = ps_pass_steps(s, &s->embed, &p, 0);
    }
    if (!r) r = ps_pass_barrier(s);
    return r < 0 ? r : ps_hidden_release(s, &p);
}

/* The slot's list of banned ids where COMPUTE's kernels can read it. Its earlier readers have been waited for. */
static const int32_t *banned(const struct ps_sched *s, uint32_t k, const struct ps_slot *t)
{
    const struct ps_seq *q = t->seq;
    if (!s->d->gpu || !q->n_banned) return q->banned;
    size_t slot = (size_t) k * s->plan->slots + (size_t) (t - s->mb[k].slots);
    int32_t *to = s->l.banned + slot * s->d->most_banned;
    assert(q->n_banned <= s->d->most_banned);
    memcpy(to, q->banned, q->n_banned * sizeof *to);
    return to;
}

static void sample_row(const struct ps_sched *s, uint32_t k, const struct ps_slot *t,
                       uint32_t logits_row, struct ps_sample_out *out, struct ps_sample_row *ret)
{
    const struct ps_seq *q = t->seq;
    *ret = (struct ps_sample_row) { .logits = s->l.logits + (size_t) logits_row * s->shape->vocab,
                                    .out = out,
                                    .banned = banned(s, k, t),
                                    .key = q->key,
                                    .index = t->made,
                                    .n_banned = t->made < q->min_tokens ? q->n_banned : 0,
                                    .n_top = q->n_top,
                                    .top_k = q->top_k,
                                    .forced = -1,
                                    .temperature = q->temperature,
                                    .top_p = q->top_p };
}

/* Rows at[0..n) of the micro-batch: gather, the head's steps, sample. n <= head_rows. */
static int head_rows(struct ps_sched *s, uint32_t k, const struct ps_pass *from, const int32_t *at,
                     const struct ps_sample_row *rows, uint32_t n, struct ps_buf *outs)
{
    struct ps_mb *b = &s->mb[k];
    const uint32_t hidden = s->shape->hidden;
    struct ps_embed gather = { .y = s->l.gather,
                               .table = from->x,
                               .ids = at,
                               .rows = n,
                               .cols = hidden,
                               .ldy = hidden,
                               .n_rows = b->n_rows,
                               .dtype = PS_F32 };
    s->dev->tag = k;
    int r =
        ps_dev_run(s->dev, PS_Q_COMPUTE, PS_OP_embed, &gather,
                   (struct ps_use[]) {
                       { &s->gather, true }, { from->x_buf, false }, { &b->gather_ids, false } },
                   3);
    if (r < 0) return r;
    struct ps_pass p = { .mb = k, .rows = n, .x = s->l.gather, .x_buf = &s->gather };
    r = ps_pass_steps(s, &s->head, &p, 0);
    if (r < 0) return r;
    struct ps_sample sample = { .rows = rows, .n_rows = n, .vocab = s->shape->vocab };
    return ps_dev_run(
        s->dev, PS_Q_COMPUTE, PS_OP_sample, &sample,
        (struct ps_use[]) { { &s->logits, false }, { &b->gather_ids, false }, { outs, true } }, 3);
}

/* A prompt's own log-probabilities: row i tells of token i + 1. Handed over chunk by chunk. */
static int score(struct ps_sched *s, uint32_t k, const struct ps_pass *from, struct ps_slot *t)
{
    struct ps_mb *b = &s->mb[k];
    int32_t *at = b->gather_ids.p;
    struct ps_sample_row *rows = s->l.sample_rows + (size_t) k * s->d->mb_rows;
    uint32_t all = t->seq->n_prompt - 1;
    for (uint32_t i = 0; i < all; i += s->d->head_rows) {
        uint32_t n = all - i < s->d->head_rows ? all - i : s->d->head_rows;
        int r = ps_dev_wait(s->dev, &b->gather_ids, true);
        if (r < 0) return r;
        for (uint32_t j = 0; j < n; j++) {
            at[j] = (int32_t) (t->row + i + j);
            sample_row(s, k, t, j, &s->l.scored[j], &rows[j]);
            rows[j].forced = t->seq->prompt[i + j + 1];
        }
        r = head_rows(s, k, from, at, rows, n, &s->scored);
        if (!r) r = ps_dev_wait(s->dev, &s->scored, false);
        if (r < 0) return r;
        for (uint32_t j = 0; j < n; j++) {
            if (ps_dev_is_sim(s->dev))
                s->l.scored[j] = (struct ps_sample_out) { .token = rows[j].forced };
            if (s->l.scored[j].token < 0)
                return ps_fail(s->dt, -PS_ENUMERIC,
                               "prompt token %u: the logits hold NaN or infinity", i + j + 1);
        }
        r = s->io->scored(s->io->ud, t->seq, i + 1, s->l.scored, n);
        if (r < 0) return r;
    }
    return 0;
}

static int next_tokens(struct ps_sched *s, uint32_t k, const struct ps_pass *from)
{
    struct ps_mb *b = &s->mb[k];
    int32_t *at = b->gather_ids.p;
    struct ps_sample_row *rows = s->l.sample_rows + (size_t) k * s->d->mb_rows;
    struct ps_sample_out *outs = b->outs.p;
    uint32_t n = 0, cap = s->d->head_rows;
    int r = ps_dev_wait(s->dev, &b->gather_ids, true);
    if (r < 0) return r;
    for (uint32_t i = 0; i < b->n_decode; i++, n++) {
        uint32_t index = b->decode[i];
        at[n] = (int32_t) b->slots[index].row;
        sample_row(s, k, &b->slots[index], n % cap, &outs[index], &rows[n]);
    }
    for (uint32_t i = 0; i < b->n_prompt; i++) {
        uint32_t index = b->prompt[i];
        const struct ps_slot *t = &b->slots[index];
        if (!t->seq->max_tokens) continue;
        at[n] = (int32_t) (t->row + t->seq->n_prompt - 1);
        sample_row(s, k, t, n % cap, &outs[index], &rows[n]);
        n++;
    }
    for (uint32_t i = 0; i < n; i += cap) {
        r = head_rows(s, k, from, at + i, rows + i, n - i < cap ? n - i : cap, &b->outs);
        if (r < 0) return r;
    }
    return 0;
}

int ps_head_run(struct ps_sched *s, uint32_t k)
{
    struct ps_mb *b = &s->mb[k];
    struct ps_pass from = { .mb = k };
    if (!b->n_rows) return 0;
    int r = ps_hidden_acquire(s, k, false, &from);
    for (uint32_t i = 0; !r && i < b->n_prompt; i++) {
        struct ps_slot *t = &b->slots[b->prompt[i]];
        if (t->seq->score_prompt && t->seq->n_prompt > 1) r = score(s, k, &from, t);
    }
    if (!r) r = next_tokens(s, k, &from);
    if (!r) r = ps_pass_barrier(s);
    b->has_outs = true;
    return r;
}
