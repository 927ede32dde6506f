/* SPDX-License-Identifier: Apache-2.0 */
/* KV slabs and hidden states that live on disk.
 *
 * A slab on disk is read into a ring of extents before its pass. Writing each new entry back would be thousands of tiny writes, or
 * the whole slab for one entry. Instead new entries are logged in host memory, with the index where the kernel put them; after a
 * read the log is replayed into the extent, so that the kernels see the slab exactly as if it had stayed in memory, in the same
 * order: the bits are the same wherever it lives. Every log_steps steps a slab is written after its pass and its log starts anew;
 * slots take turns, so that not all are written in one sweep. Scores, positions and lengths stay in host memory. */
#include "engine/base/ps_mem.h"
#include "engine/sched/sched.h"

static bool on_disk(const uint8_t *tier, size_t i) { return tier[i] == PS_TIER_DISK; }

static size_t slab_at(const struct ps_sched *s, uint32_t layer, uint32_t k)
{
    return (size_t) layer * s->plan->micro_batches + k;
}

bool ps_kv_on_disk(const struct ps_sched *s, uint32_t layer, uint32_t k)
{
    return on_disk(s->d->slab_tier, slab_at(s, layer, k));
}

struct ps_buf *ps_kv_meta(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    return &s->slab_meta[slab_at(s, layer, k)];
}

static struct ps_buf host(enum ps_kind kind, void *p, uint64_t len)
{
    return (struct ps_buf) { .where = PS_HOST, .kind = kind, .p = p, .len_bytes = len };
}

static struct ps_buf file(enum ps_kind kind, uint64_t off, uint64_t len)
{
    return (struct ps_buf) {
        .where = PS_DISK, .kind = kind, .file = PS_FILE_OFFLOAD, .off = off, .len_bytes = len
    };
}

int ps_kv_init(struct ps_sched *s)
{
    const uint32_t mbs = s->plan->micro_batches;
    size_t slabs = (size_t) s->shape->layers * mbs;
    uint64_t extent = ps_kv_extent_bytes(s->shape, s->d), hidden = ps_hidden_bytes(s->shape, s->d),
             off = 0;
    s->slab = ps_calloc(slabs, sizeof *s->slab);
    s->slab_meta = ps_calloc(slabs, sizeof *s->slab_meta);
    s->slab_rank = ps_calloc(slabs, sizeof *s->slab_rank);
    s->kv_ring = ps_calloc(s->d->kv_ring, sizeof *s->kv_ring);
    s->hidden_ring = ps_calloc(s->d->hidden_ring, sizeof *s->hidden_ring);
    if (!s->slab || !s->slab_meta || !s->slab_rank || !s->kv_ring || !s->hidden_ring)
        return ps_fail(s->dt, -ENOMEM, "KV: out of memory");
    uint32_t rank[PS_TIER__COUNT] = { 0 };
    for (size_t i = 0; i < slabs; i++) {
        bool disk = on_disk(s->d->slab_tier, i);
        uint32_t r = s->slab_rank[i] = rank[s->d->slab_tier[i]]++;
        s->slab[i] = disk ? file(PS_KIND_KV, off, extent)
                          : host(PS_KIND_KV, s->l.kv_host + r * extent, extent);
        s->slab_meta[i] = host(PS_KIND_KV, NULL, UINT64_MAX);
        off += disk ? extent : 0;
    }
    for (uint32_t i = 0; i < s->d->kv_ring; i++)
        s->kv_ring[i] = host(PS_KIND_KV, s->l.kv_ring + i * extent, extent);
    uint32_t hosts = 0;
    for (uint32_t k = 0; k < mbs; k++) {
        bool disk = on_disk(s->d->hidden_tier, k);
        s->mb[k].hidden =
            disk ? file(PS_KIND_HIDDEN, off, hidden)
                 : host(PS_KIND_HIDDEN, (uint8_t *) s->l.hidden + hosts++ * hidden, hidden);
        off += disk ? hidden : 0;
    }
    for (uint32_t i = 0; i < s->d->hidden_ring; i++)
        s->hidden_ring[i] = host(PS_KIND_HIDDEN, (uint8_t *) s->l.hidden_ring + i * hidden, hidden);
    return 0;
}

void ps_kv_done(struct ps_sched *s)
{
    free(s->slab);
    free(s->slab_meta);
    free(s->slab_rank);
    free(s->kv_ring);
    free(s->hidden_ring);
}

/* ---- one slot's bytes in an extent */

static uint64_t entry_bytes(const struct ps_sched *s)
{
    return s->shape->head_dim * ps_dtype_bytes(s->d->kv_type);
}

/* A transfer of its own costs about as much as this many bytes more of one that is under way anyhow. */
enum { IO_COST_BYTES = 32 << 10 };

/* What has to move so that entries [from, to) of every head do: these alone, where a head begins at a sector boundary and they are a
 * small part of it, else the whole slab. One rectangle for K or V. */
static struct ps_rect slot_rect(const struct ps_sched *s, const struct ps_slot *t, uint32_t from,
                                uint32_t to, bool v)
{
    const uint64_t e = entry_bytes(s), heads = s->shape->kv_heads, head = t->cap * e;
    uint64_t off = t->e0 * e * heads + (v ? ps_kv_extent_half(s->shape, s->d) : 0);
    uint64_t a = from * e / PS_PACK_ALIGN * PS_PACK_ALIGN,
             b = PS_ROUND_UP(to * e, (uint64_t) PS_PACK_ALIGN);
    if (head % PS_PACK_ALIGN || b - a + IO_COST_BYTES >= head)
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

/* Transfers of K and of V, between an extent on disk and one in memory. Whole slabs of slots that are neighbours in the pool are
 * joined: a few large transfers are faster than many small ones. */
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
    const struct ps_rect r[2] = { slot_rect(s, t, from, to, false),
                                  slot_rect(s, t, from, to, true) };
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

static int read_slab(struct ps_sched *s, uint32_t layer, uint32_t k, struct ps_buf *ring)
{
    const struct ps_mb *b = &s->mb[k];
    struct joined j = { .dst = ring, .src = &s->slab[slab_at(s, layer, k)] };
    s->dev->tag = (layer + 1) << 16 | k;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct ps_slot *t = &b->slots[b->by_run[i]];
        if (!t->on_disk) continue; /* its prompt is in this very sweep */
        int r = move_slot(s, &j, t, 0, t->on_disk);
        if (r < 0) return r;
    }
    return flush(s, &j);
}

int ps_kv_ahead(struct ps_sched *s, uint32_t layer, uint32_t k)
{
    if (layer >= s->shape->layers || !ps_kv_on_disk(s, layer, k) || s->kv_ahead > s->kv_pass)
        return 0;
    s->kv_ahead = s->kv_pass + 1;
    return read_slab(s, layer, k, &s->kv_ring[s->kv_pass % s->d->kv_ring]);
}

int ps_kv_acquire(struct ps_sched *s, uint32_t layer, uint32_t k, struct ps_pass *p)
{
    size_t i = slab_at(s, layer, k);
    if (!on_disk(s->d->slab_tier, i)) {
        p->kv = &s->slab[i];
    } else {
        int r = ps_kv_ahead(s, layer, k);
        if (r < 0) return r;
        p->kv = &s->kv_ring[s->kv_pass++ % s->d->kv_ring];
    }
    p->kv_meta = ps_kv_meta(s, layer, k);
    p->kv_mem = p->kv->p;
    return 0;
}

void ps_kv_skip(struct ps_sched *s)
{
    if (s->kv_ahead > s->kv_pass) s->kv_pass++;
}

/* Slots take turns in groups of neighbours, whose slabs are written together. */
bool ps_kv_merges(const struct ps_sched *s, const struct ps_slot *slot, uint32_t index)
{
    uint64_t steps = s->d->log_steps, turn = index * steps / s->plan->slots;
    return (slot->fed + turn) % steps == steps - 1;
}

int ps_kv_release(struct ps_sched *s, const struct ps_pass *p)
{
    if (!ps_kv_on_disk(s, p->layer, p->mb)) return 0;
    const struct ps_mb *b = &s->mb[p->mb];
    struct joined j = { .dst = &s->slab[slab_at(s, p->layer, p->mb)], .src = p->kv };
    s->dev->tag = (p->layer + 1) << 16 | p->mb;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const uint32_t index = b->by_run[i];
        const struct ps_slot *t = &b->slots[index];
        uint32_t from = 0, to;
        if (t->state == PS_SLOT_PROMPT) {
            to = ps_keep_cap(&t->keep, t->seq->n_prompt);
        } else {
            if (!ps_kv_merges(s, t, index)) continue;
            if (t->keep.heavy == PS_KEEP_ALL) from = t->on_disk;
            to = ps_keep_cap(&t->keep, t->len + 1);
        }
        int r = move_slot(s, &j, t, from, to);
        if (r < 0) return r;
    }
    return flush(s, &j);
}

/* ---- the log */

static size_t log_at(const struct ps_sched *s, const struct ps_pass *p, uint32_t index)
{
    size_t rank = s->slab_rank[slab_at(s, p->layer, p->mb)];
    return (rank * s->plan->slots + index) * s->shape->kv_heads * s->d->log_steps;
}

void ps_kv_replay_args(struct ps_sched *s, const struct ps_pass *p, uint32_t index,
                       struct ps_replay_seq *ret)
{
    const struct ps_slot *t = &s->mb[p->mb].slots[index];
    struct ps_slab slab = ps_slab_of(s, p->layer, p->mb, t, p->kv_mem);
    size_t at = log_at(s, p, index);
    *ret = (struct ps_replay_seq) { .k = slab.k,
                                    .v = slab.v,
                                    .log_k = s->l.log_k + at * entry_bytes(s),
                                    .log_v = s->l.log_v + at * entry_bytes(s),
                                    .log_index = s->l.log_index + at,
                                    .cap = t->cap,
                                    .log_cap = s->d->log_steps,
                                    .n = t->logged };
}

void ps_kv_log_args(struct ps_sched *s, const struct ps_pass *p, uint32_t index,
                    struct ps_decode_row *row)
{
    const struct ps_slot *t = &s->mb[p->mb].slots[index];
    if (ps_kv_merges(s, t, index)) return; /* the slab itself is written */
    size_t at = log_at(s, p, index);
    row->log_k = s->l.log_k + at * entry_bytes(s);
    row->log_v = s->l.log_v + at * entry_bytes(s);
    row->log_index = s->l.log_index + at;
    row->log_cap = s->d->log_steps;
    row->log_at = t->logged;
}

/* ---- hidden states */

static struct ps_rect hidden_rect(const struct ps_sched *s, uint32_t k)
{
    uint64_t b = (uint64_t) s->mb[k].n_rows * s->shape->hidden * sizeof(float);
    return (struct ps_rect) { .row_bytes = PS_ROUND_UP(b, (uint64_t) PS_PACK_ALIGN), .rows = 1 };
}

int ps_hidden_ahead(struct ps_sched *s, uint32_t k)
{
    struct ps_mb *b = &s->mb[k];
    if (!on_disk(s->d->hidden_tier, k) || s->hidden_ahead > s->hidden_pass || !b->n_rows) return 0;
    s->hidden_ahead = s->hidden_pass + 1;
    struct ps_rect r = hidden_rect(s, k);
    return ps_dev_move(s->dev, &s->hidden_ring[s->hidden_pass % s->d->hidden_ring], &b->hidden, &r);
}

int ps_hidden_acquire(struct ps_sched *s, uint32_t k, bool fresh, struct ps_pass *p)
{
    struct ps_mb *b = &s->mb[k];
    p->x_buf = &b->hidden;
    if (on_disk(s->d->hidden_tier, k)) {
        int r = fresh ? 0 : ps_hidden_ahead(s, k);
        if (r < 0) return r;
        p->x_buf = &s->hidden_ring[s->hidden_pass++ % s->d->hidden_ring];
    }
    p->x = p->x_buf->p;
    return 0;
}

int ps_hidden_release(struct ps_sched *s, const struct ps_pass *p)
{
    struct ps_mb *b = &s->mb[p->mb];
    if (!on_disk(s->d->hidden_tier, p->mb)) return 0;
    struct ps_rect r = hidden_rect(s, p->mb);
    return ps_dev_move(s->dev, &b->hidden, p->x_buf, &r);
}
