/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/probe_kernels.h"
#include "offload/probe_args.h"
#include <math.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

void ps_rig_fill(void *p, uint64_t bytes, bool f32)
{
    enum { PIECE = 1 << 20 }; /* the rest is the same again: copies are quicker */
    const uint64_t n = bytes < PIECE ? bytes : PIECE;
    uint32_t x = 2463534242u, *w = p;
    for (uint64_t i = 0; i < n / 4; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        w[i] = f32 ? (x & 0x80ff83ffu) | 0x3d002c00u : (x & 0x83ff83ffu) | 0x2c002c00u;
    }
    for (uint64_t at = n; at < bytes; at += n)
        memcpy((uint8_t *) p + at, p, bytes - at < n ? bytes - at : n);
}

static size_t scratch_of(struct ps_rig *r, const struct ps_gauge *g)
{
    union ps_gauge_args a;
    if (g->copy || g->op == PS_OP_call || !ps_gauge_args(r, g, true, &a)) return 0;
    if (r->place == PS_PLACE_HOST) return ps_op_scratch(g->op, &a);
    const struct ps_kern *k = ps_kern_pick(g->op, r->place, r->sm, &a);
    return k ? ps_kern_scratch(k, &a) : 0;
}

size_t ps_rig_scratch(struct ps_rig *r, const struct ps_gauge *g, unsigned n)
{
    size_t most = 4096;
    for (unsigned i = 0; i < n; i++) {
        const size_t b = scratch_of(r, &g[i]);
        if (b > most) most = b;
    }
    return PS_ROUND_UP(most, (size_t) 4096);
}

static enum ps_where where(const struct ps_rig *r)
{
    return r->place == PS_PLACE_HOST ? PS_HOST : PS_GPU;
}

static struct ps_buf buffer(enum ps_where w, void *p, uint64_t bytes)
{
    return (struct ps_buf) { .where = w, .p = p, .len_bytes = bytes };
}

/* Positions ascending and scores of any order, for all slabs of the gauge. */
static int write_meta(struct ps_rig *r, const struct ps_gauge *g)
{
    const struct ps_slabs s = ps_gauge_slabs(r, g, ps_gauge_room(g));
    struct ps_gauge scored = *g;
    scored.scores = true;
    uint8_t *to = r->stage ? r->stage : r->meta;
    for (uint32_t t = 0; t < s.tasks; t++)
        for (uint32_t i = 0; i < s.seqs; i++) {
            const struct ps_slab one = ps_slabs_at(r, &scored, &s, t, i, to);
            for (uint32_t e = 0; e < s.heads * s.cap; e++) {
                one.pos[e] = (int32_t) (e % s.cap);
                one.score[e] = (float) (e * 2654435761u >> 8);
            }
        }
    if (!r->stage) return 0;
    const struct ps_rect all = { .row_bytes = r->near.len_bytes, .rows = 1 };
    return ps_dev_move(r->dev, &r->near, &r->staged, &all);
}

/* For a gauge's tasks: nothing may be under way. */
static int prepare(struct ps_rig *r, struct ps_gauge *g)
{
    union ps_gauge_args a;
    const uint64_t meta = PS_RIG_META_BYTES(r->cold_bytes), half = r->cold_bytes / 2;
    r->near = buffer(where(r), r->meta, meta);
    r->staged = buffer(PS_HOST, r->stage, meta);
    r->side[0] = buffer(where(r), r->cold, half);
    r->side[1] = buffer(where(r), r->cold + half, half);
    if (g->copy || g->op == PS_OP_call) {
        g->work = (double) r->chunk_bytes * (g->copy ? 2 : 1);
        return 0;
    }
    g->left_out |= !ps_gauge_args(r, g, true, &a);
    if (g->left_out) return 0;
    const struct ps_cost cost = ps_op_cost(g->op, &a);
    g->work = g->op == PS_OP_linear || g->op == PS_OP_attn_prompt ? cost.flops : cost.bytes;
    if (g->op == PS_OP_attn_decode)
        g->work = 2.0 * a.decode.n_rows * a.decode.kv_heads * (g->k + 1.0) * g->d *
                  (double) ps_dtype_bytes(g->type);
    const bool kv = g->op == PS_OP_attn_decode || g->op == PS_OP_kv_compact;
    return kv ? write_meta(r, g) : 0;
}

static int checksum(void *ud, uint64_t at)
{
    const struct ps_rig *r = ud;
    return XXH3_64bits(r->cold + at, r->chunk_bytes) == 0 ? 1 : 0;
}

static int submit_copy(struct ps_rig *r, uint64_t at)
{
    const struct ps_rect one = {
        at % r->side[0].len_bytes, at % r->side[0].len_bytes, r->chunk_bytes, 1, 0, 0
    };
    return ps_dev_move(r->dev, &r->side[1], &r->side[0], &one);
}

int ps_rig_submit(struct ps_rig *r, struct ps_gauge *g, struct ps_buf *needs)
{
    union ps_gauge_args a;
    struct ps_use use[] = { { &r->near, true }, { needs, false } };
    r->turn++;
    const uint64_t at = r->turn * r->chunk_bytes % (r->cold_bytes / 2);
    if (g->copy) return submit_copy(r, at);
    if (g->op == PS_OP_call) {
        const struct ps_call call = { checksum, r, at, r->chunk_bytes };
        return ps_dev_run(r->dev, g->q, PS_OP_call, &call, use, 2);
    }
    if (!ps_gauge_args(r, g, false, &a)) return -EINVAL;
    return ps_dev_run(r->dev, g->q, g->op, &a, use, 2);
}

/* ---- time */

static int slice(struct ps_rig *r, struct ps_gauge *g, uint64_t n, double *ret_s)
{
    if (r->stop && *r->stop) return -ECANCELED;
    const uint64_t t0 = ps_now_ns();
    int e = 0;
    for (uint64_t i = 0; i < n && !e; i++) {
        e = ps_rig_submit(r, g, NULL);
        if (!e && g->apart) e = ps_dev_drain(r->dev);
    }
    const int d = ps_dev_drain(r->dev);
    *ret_s = ps_probe_since_s(t0);
    return e < 0 ? e : d;
}

/* One that is not counted, then three slices. */
static int visit(struct ps_rig *r, struct ps_gauge *g, double max_s)
{
    enum { SLICES = 3, TASKS_MOST = 1 << 14 };
    double s;
    int e = prepare(r, g);
    if (e < 0 || g->left_out) return e;
    e = slice(r, g, 1, &s);
    if (!(g->task_s > 0)) g->task_s = s;
    for (int i = 0; i < SLICES && !e; i++) {
        const double n = max_s / SLICES / g->task_s;
        const uint64_t tasks = n < 1 ? 1 : n > TASKS_MOST ? TASKS_MOST : (uint64_t) n;
        e = slice(r, g, tasks, &s);
        if (e) break;
        g->task_s = s / (double) tasks;
        ps_slices_add(&g->s, g->work * (double) tasks, s);
    }
    return e;
}

/* Whether this one will take too long, going by the one before it, if that is the same with fewer rows or entries. */
static bool hopeless(const struct ps_gauge *g, const struct ps_gauge *before, double max_s)
{
    enum { LONGER = 30 };
    if (!before || before->op != g->op || before->type != g->type) return false;
    const double more = (double) g->m / (before->m ? before->m : 1) * g->k / before->k;
    return more >= 1 && (before->left_out || before->task_s * sqrt(more) > LONGER * max_s);
}

int ps_rig_measure(struct ps_rig *r, struct ps_gauge *g, unsigned n, unsigned rounds, double max_s,
                   void (*progress)(void *ud, double share), void *ud, struct ps_detail *dt)
{
    const double each = max_s / n / rounds;
    int e = 0;
    for (unsigned k = 0; k < rounds && !e; k++)
        for (unsigned i = 0; i < n && !e; i++) {
            if (!k) g[i].left_out = hopeless(&g[i], i ? &g[i - 1] : NULL, each);
            if (!g[i].left_out) e = visit(r, &g[i], each);
            if (progress) progress(ud, (k + (i + 1.0) / n) / rounds);
        }
    if (!e || e == -ECANCELED) return e;
    const char *why = ps_dev_error_text(r->dev);
    return ps_fail(dt, e, "probing kernels: %s", *why ? why : ps_err_str(e));
}
