/* SPDX-License-Identifier: Apache-2.0 */
/* KV slabs that do not live where attention wants them.
 *
 * A slab on disk is read into a ring of extents on the host before its pass, and what was logged since it was last written is put
 * back into it (kvlog.c). A slab that the GPU attends to but does not hold is copied into a ring of extents there, and only its new
 * entries come back. Prompts are compacted where COMPUTE works; what they leave comes down with their slots' runs. */
#include "engine/base/ps_mem.h"
#include "engine/sched/sched.h"
#include <assert.h>

size_t ps_slab_at(const struct ps_sched *s, uint32_t layer, uint32_t k)
{
    return (size_t) layer * s->plan->micro_batches + k;
}

struct ps_home *ps_kv_home(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    return &s->home[ps_slab_at(s, layer, k)];
}

static struct ps_buf kv_buf(enum ps_where where, void *p, uint64_t len)
{
    return (struct ps_buf) { .where = where, .kind = PS_KIND_KV, .p = p, .len_bytes = len };
}

/* ---- who lives where */

struct dealt {
    uint64_t kv[PS_TIER__COUNT], meta, gpu_meta; /* slabs so far */
};

static void place_slab(struct ps_sched *s, size_t i, struct dealt *n)
{
    const uint64_t extent = ps_kv_extent_bytes(s->shape, s->d),
                   entries = (uint64_t) s->d->pool * s->shape->kv_heads;
    struct ps_home *h = &s->home[i];
    h->tier = (enum ps_tier) s->d->slab_tier[i];
    h->on_host = !s->d->gpu || s->d->slab_host[i];
    h->rank = n->kv[h->tier]++;
    if (h->tier == PS_TIER_DISK)
        h->kv = (struct ps_buf) { .where = PS_DISK,
                                  .kind = PS_KIND_KV,
                                  .file = PS_FILE_OFFLOAD,
                                  .off = h->rank * extent,
                                  .len_bytes = extent };
    else if (h->tier == PS_TIER_GPU)
        h->kv = kv_buf(PS_GPU, s->l.gpu_kv + h->rank * extent, extent);
    else
        h->kv = kv_buf(PS_HOST, s->l.kv_host + h->rank * extent, extent);
    uint64_t at = entries * (h->on_host ? n->meta++ : n->gpu_meta++);
    float *score = h->on_host ? s->l.score : s->l.gpu_score;
    h->pos = (h->on_host ? s->l.pos : s->l.gpu_pos) + at;
    h->score = score ? score + at : NULL;
    h->meta =
        kv_buf(h->on_host ? PS_HOST : PS_GPU, h->on_host ? s->host_mem : s->gpu_mem, UINT64_MAX);
    h->log = kv_buf(PS_HOST, NULL, UINT64_MAX);
}

int ps_kv_init(struct ps_sched *s)
{
    const size_t slabs = (size_t) s->shape->layers * s->plan->micro_batches;
    const uint64_t extent = ps_kv_extent_bytes(s->shape, s->d),
                   fresh = ps_new_row_bytes(s->shape, s->d) * s->plan->slots;
    s->home = ps_calloc(slabs, sizeof *s->home);
    s->kv_ring = ps_calloc(s->d->kv_ring, sizeof *s->kv_ring);
    s->gpu_kv_ring = ps_calloc(s->d->gpu_kv_ring, sizeof *s->gpu_kv_ring);
    s->gpu_ring_meta = ps_calloc(s->d->gpu_kv_ring, sizeof *s->gpu_ring_meta);
    if (!s->home || !s->kv_ring || !s->gpu_kv_ring || !s->gpu_ring_meta)
        return ps_fail(s->dt, -ENOMEM, "KV: out of memory");
    struct dealt n = { 0 };
    for (size_t i = 0; i < slabs; i++) place_slab(s, i, &n);
    for (uint32_t i = 0; i < s->d->kv_ring; i++)
        s->kv_ring[i] = kv_buf(PS_HOST, s->l.kv_ring + i * extent, extent);
    for (uint32_t i = 0; i < s->d->gpu_kv_ring; i++) {
        s->gpu_kv_ring[i] = kv_buf(PS_GPU, s->l.gpu_kv_ring + i * extent, extent);
        s->gpu_ring_meta[i] = kv_buf(PS_GPU, s->gpu_mem, UINT64_MAX);
    }
    for (unsigned i = 0; s->d->gpu && i < PS_NEW_BLOCKS; i++) {
        s->new_rows[i] = kv_buf(PS_HOST, s->l.new_rows + i * fresh, fresh);
        s->gpu_new_rows[i] = kv_buf(PS_GPU, s->l.gpu_new_rows + i * fresh, fresh);
    }
    return 0;
}

void ps_kv_done(struct ps_sched *s)
{
    free(s->home);
    free(s->kv_ring);
    free(s->gpu_kv_ring);
    free(s->gpu_ring_meta);
}

/* ---- one slot's bytes in an extent */

static uint64_t entry_bytes(const struct ps_sched *s)
{
    return s->shape->head_dim * ps_dtype_bytes(s->d->kv_type);
}

/* A transfer of its own costs about as much as this many bytes more of one that is under way anyhow. */
enum { IO_COST_BYTES = 32 << 10, COPY_COST_BYTES = 4 << 10 };

/* What has to move so that entries [from, to) of every head do: these alone, where a head begins at a boundary of `align` bytes and they
 * are a small part of it, else the whole slab. One rectangle for K or V. */
static struct ps_rect slot_rect(const struct ps_sched *s, const struct ps_slot *t, uint32_t from,
                                uint32_t to, bool disk, bool v)
{
    const uint64_t e = entry_bytes(s), heads = s->shape->kv_heads, head = t->cap * e,
                   align = disk ? PS_PACK_ALIGN : 1, cost = disk ? IO_COST_BYTES : COPY_COST_BYTES;
    uint64_t off = t->e0 * e * heads + (v ? ps_kv_extent_half(s->shape, s->d) : 0);
    uint64_t a = from * e / align * align, b = PS_ROUND_UP(to * e, align);
    if (head % align || b - a + cost >= head)
        return (struct ps_rect) {
            .dst_off = off, .src_off = off, .row_bytes = head * heads, .rows = 1
        };
    off += a;
    return (struct ps_rect) { .dst_off = off,
                              .src_off = off,
                              .row_bytes = b - a,
                              .rows = heads,
                              .dst_pitch = head,
                              .src_pitch = head };
}

uint64_t ps_kv_slot_bytes(const struct ps_sched *s, const struct ps_slot *t, uint32_t from,
                          uint32_t to, bool disk)
{
    const struct ps_rect r = slot_rect(s, t, from, to, disk, false);
    return 2 * r.row_bytes * r.rows;
}

/* Transfers of K and of V between two extents. Whole slabs of slots that are neighbours in the pool are joined: a few large transfers
 * are faster than many small ones. */
struct joined {
    struct ps_buf *dst, *src;
    struct ps_rect r[2]; /* not submitted yet: whole slabs, K and V; row_bytes 0 = nothing */
};

static int flush(struct ps_sched *s, struct joined *j)
{
    for (int v = 0; v < 2; v++) {
        int err = j->r[v].row_bytes ? ps_dev_move(s->dev, j->dst, j->src, &j->r[v]) : 0;
        if (err < 0) return err;
        j->r[v].row_bytes = 0;
    }
    return 0;
}

static int move_slot(struct ps_sched *s, struct joined *j, const struct ps_slot *t, uint32_t from,
                     uint32_t to)
{
    const bool disk = j->dst->where == PS_DISK || j->src->where == PS_DISK;
    const struct ps_rect r[2] = { slot_rect(s, t, from, to, disk, false),
                                  slot_rect(s, t, from, to, disk, true) };
    const bool whole = r[0].rows == 1;
    if (whole && j->r[0].row_bytes && j->r[0].src_off + j->r[0].row_bytes == r[0].src_off) {
        j->r[0].row_bytes += r[0].row_bytes;
        j->r[1].row_bytes += r[1].row_bytes;
        return 0;
    }
    int err = flush(s, j);
    j->r[0] = r[0];
    j->r[1] = r[1];
    return err < 0 || whole ? err : flush(s, j);
}

/* Entries [0, n) of each slot that has some, n its `on_disk` or its `len`. */
static int move_filled(struct ps_sched *s, uint32_t k, struct ps_buf *dst, struct ps_buf *src)
{
    const struct ps_mb *b = &s->mb[k];
    struct joined j = { .dst = dst, .src = src };
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct ps_slot *t = &b->slots[b->by_run[i]];
        uint32_t n = src->where == PS_DISK ? t->on_disk : t->len;
        if (!n) continue; /* its prompt is in this very sweep */
        int r = move_slot(s, &j, t, 0, n);
        if (r < 0) return r;
    }
    return flush(s, &j);
}

/* ---- in */

/* By which places. */
static struct ps_kv_way way(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    struct ps_home *h = ps_kv_home(s, layer, k);
    struct ps_kv_way w = { .set = true, .layer = layer, .k = k };
    if (h->tier == PS_TIER_GPU) {
        w.near = &h->kv;
        return w;
    }
    w.far = h->tier == PS_TIER_DISK ? &s->kv_ring[s->kv_pass++ % s->d->kv_ring] : &h->kv;
    if (!s->d->gpu)
        w.near = w.far;
    else if (!h->on_host)
        w.near = &s->gpu_kv_ring[s->gpu_kv_pass++ % s->d->gpu_kv_ring];
    return w;
}

static int bring(struct ps_sched *s, uint32_t layer, uint32_t k, struct ps_kv_way *w)
{
    struct ps_home *h = ps_kv_home(s, layer, k);
    int r = 0;
    *w = way(s, layer, k);
    s->dev->tag = (layer + 1) << 16 | k;
    if (h->tier == PS_TIER_DISK) r = move_filled(s, k, w->far, &h->kv);
    if (!r && h->tier == PS_TIER_DISK) r = ps_kv_replay(s, layer, k, w->far);
    if (r < 0 || !w->far || !w->near || w->far == w->near) return r;
    return move_filled(s, k, w->near, w->far);
}

/* Whether attention finds it where it lives. */
static bool at_home(const struct ps_sched *s, const struct ps_home *h)
{
    return h->tier == PS_TIER_GPU || (h->tier == PS_TIER_HOST && h->on_host);
}

int ps_kv_ahead(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    if (layer >= s->shape->layers || at_home(s, ps_kv_home(s, layer, k)) || s->kv_next.set)
        return 0;
    return bring(s, layer, k, &s->kv_next);
}

void ps_kv_pretend(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    if (!at_home(s, ps_kv_home(s, layer, k)) && !s->kv_next.set) s->kv_next = way(s, layer, k);
}

int ps_kv_acquire(struct ps_sched *s, uint32_t layer, uint32_t k, struct ps_pass *p)
{
    struct ps_home *h = ps_kv_home(s, layer, k);
    struct ps_kv_way w = s->kv_next;
    int r = 0;
    if (w.set)
        assert(w.layer == layer && w.k == k);
    else
        r = bring(s, layer, k, &w);
    s->kv_next.set = false;
    p->near = w.near;
    p->far = w.far;
    p->pos = h->pos;
    p->score = h->score;
    p->near_meta = &h->meta;
    if (!s->d->gpu || !h->on_host || !s->mb[k].n_prompt) return r;
    /* Attention is on the host; prompts are compacted on the GPU, for once. */
    uint64_t i = s->gpu_kv_pass++ % s->d->gpu_kv_ring, at = i * s->d->pool * s->shape->kv_heads;
    p->near = &s->gpu_kv_ring[i];
    p->near_meta = &s->gpu_ring_meta[i];
    p->pos = s->l.gpu_ring_pos + at;
    p->score = s->l.gpu_ring_score ? s->l.gpu_ring_score + at : NULL;
    return r;
}

void ps_kv_skip(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    if (s->kv_next.layer == layer && s->kv_next.k == k) s->kv_next.set = false;
}

/* ---- out */

/* A slot's positions or scores, from the GPU to the host. */
static int fetch_meta(struct ps_sched *s, struct ps_buf *dst, void *to, struct ps_buf *src,
                      const void *from, uint64_t bytes)
{
    struct ps_rect r = { .dst_off = (uint64_t) ((uint8_t *) to - (uint8_t *) dst->p),
                         .src_off = (uint64_t) ((const uint8_t *) from - (uint8_t *) src->p),
                         .row_bytes = bytes,
                         .rows = 1 };
    return ps_dev_move(s->dev, dst, src, &r);
}

int ps_kv_fetch_meta(struct ps_sched *s, struct ps_buf *dst, int32_t *pos, float *score,
                     struct ps_buf *src, const int32_t *from_pos, const float *from_score,
                     uint64_t n)
{
    int r = fetch_meta(s, dst, pos, src, from_pos, n * sizeof *pos);
    if (r < 0 || !from_score) return r;
    return fetch_meta(s, dst, score, src, from_score, n * sizeof *score);
}

/* Positions and scores that prompts left on the GPU, to the host: those of neighbours together. */
static int bring_down_meta(struct ps_sched *s, const struct ps_pass *p)
{
    const struct ps_mb *b = &s->mb[p->mb];
    struct ps_home *h = ps_kv_home(s, p->layer, p->mb);
    const uint64_t heads = s->shape->kv_heads;
    for (uint32_t i = 0; i < b->n_runs;) {
        const struct ps_slot *t = &b->slots[b->by_run[i++]];
        if (t->state != PS_SLOT_PROMPT) continue;
        uint64_t at = t->e0 * heads, n = t->cap * heads;
        for (; i < b->n_runs; i++, n += t->cap * heads) {
            t = &b->slots[b->by_run[i]];
            if (t->state != PS_SLOT_PROMPT || t->e0 * heads != at + n) break;
        }
        int r = ps_kv_fetch_meta(s, &h->meta, h->pos + at, h->score ? h->score + at : NULL,
                                 p->near_meta, p->pos + at, p->score ? p->score + at : NULL, n);
        if (r < 0) return r;
    }
    return 0;
}

/* What prompts left on the GPU, to the host. */
static int bring_down_prompts(struct ps_sched *s, const struct ps_pass *p)
{
    const struct ps_mb *b = &s->mb[p->mb];
    struct joined j = { .dst = p->far, .src = p->near };
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct ps_slot *t = &b->slots[b->by_run[i]];
        if (t->state != PS_SLOT_PROMPT) continue;
        int r = move_slot(s, &j, t, 0, ps_keep_cap(&t->keep, t->seq->n_prompt));
        if (r < 0) return r;
    }
    int r = flush(s, &j);
    return r < 0 || !ps_kv_home(s, p->layer, p->mb)->on_host ? r : bring_down_meta(s, p);
}

bool ps_kv_written(const struct ps_sched *s, uint32_t k, uint32_t index, uint32_t *from,
                   uint32_t *to)
{
    const struct ps_slot *t = &s->mb[k].slots[index];
    *from = 0;
    if (t->state == PS_SLOT_PROMPT) {
        *to = ps_keep_cap(&t->keep, t->seq->n_prompt);
        return true;
    }
    if (t->state == PS_SLOT_ENDED || !ps_kv_merges(s, t, index)) return false;
    if (t->keep.heavy == PS_KEEP_ALL) *from = t->on_disk;
    *to = ps_keep_cap(&t->keep, t->len + 1);
    return true;
}

static int write_slab(struct ps_sched *s, const struct ps_pass *p)
{
    const struct ps_mb *b = &s->mb[p->mb];
    struct joined j = { .dst = &ps_kv_home(s, p->layer, p->mb)->kv, .src = p->far };
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const uint32_t index = b->by_run[i];
        uint32_t from, to;
        if (!ps_kv_written(s, p->mb, index, &from, &to)) continue;
        int r = move_slot(s, &j, &b->slots[index], from, to);
        if (r < 0) return r;
    }
    return flush(s, &j);
}

int ps_kv_release(struct ps_sched *s, const struct ps_pass *p)
{
    int r = 0;
    s->dev->tag = (p->layer + 1) << 16 | p->mb;
    if (p->near && p->far && p->near != p->far) r = bring_down_prompts(s, p);
    if (!r && ps_kv_home(s, p->layer, p->mb)->tier == PS_TIER_DISK) r = write_slab(s, p);
    return r;
}
