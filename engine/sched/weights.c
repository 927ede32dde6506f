/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed chunks are read in the order of their use, over and over, into a ring of bytes. Offsets into the ring are counted without end
 * (`virtual`): a chunk lies at its offset modulo the ring's size, in one piece; where it would reach over the end, the rest of the round is
 * skipped. A read may be submitted once every use of what lay there was submitted (free_pos); that those uses are over is the device's
 * business: the new content's buffer takes over what the old ones' readers and writers were. */
#include "engine/base/ps_mem.h"
#include "engine/sched/sched.h"
#include <assert.h>
#include <stdatomic.h>

/* A ring of at most twice all streamed bytes has at most this many chunks in it, whole or in part, counting old ones. */
enum { PAST_EXTRA = 4 };
static uint64_t past_size(const struct ps_weights *w)
{
    return 2 * (uint64_t) w->n_stream + PAST_EXTRA;
}

static struct ps_buf chunk_buf(void *p, uint64_t len)
{
    return (struct ps_buf) { .where = PS_HOST, .kind = PS_KIND_WEIGHTS, .p = p, .len_bytes = len };
}

static void map_roles(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    for (uint32_t i = 0; i < (s->shape->layers + 1) * PS_W__COUNT; i++) w->by_role[i] = -1;
    for (uint32_t i = 0; i < s->m->n_tensors; i++) {
        const struct ps_tensor *t = &s->m->tensors[i].t;
        w->by_role[t->group * PS_W__COUNT + t->role] = (int32_t) i;
    }
}

int ps_weights_init(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    uint32_t n = s->m->n_chunks, groups = s->shape->layers + 1;
    w->resident = ps_calloc(n, sizeof *w->resident);
    w->place = ps_calloc(n, sizeof *w->place);
    w->past = ps_calloc(2 * (size_t) n + PAST_EXTRA, sizeof *w->past);
    w->stream = ps_calloc(n, sizeof *w->stream);
    w->in_group = ps_calloc(groups, sizeof *w->in_group);
    w->by_role = ps_calloc((size_t) groups * PS_W__COUNT, sizeof *w->by_role);
    w->verified = ps_calloc(n, sizeof *w->verified);
    if (!w->resident || !w->place || !w->past || !w->stream || !w->in_group || !w->by_role ||
        !w->verified)
        return ps_fail(s->dt, -ENOMEM, "weights: out of memory");
    w->file = (struct ps_buf) { .where = PS_DISK,
                                .kind = PS_KIND_WEIGHTS,
                                .file = PS_FILE_WEIGHTS,
                                .len_bytes = s->m->file_bytes };
    uint64_t off = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct ps_chunk *c = &s->m->chunks[i];
        if (s->d->chunk_tier[i] == PS_TIER_HOST) {
            w->resident[i] = chunk_buf(s->l.resident + off, c->len);
            off += c->len;
        } else {
            w->stream[w->n_stream++] = i;
            w->in_group[c->group]++;
        }
    }
    map_roles(s);
    return 0;
}

void ps_weights_done(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    free(w->resident);
    free(w->place);
    free(w->past);
    free(w->stream);
    free(w->in_group);
    free(w->by_role);
    free(w->verified);
}

static struct ps_buf *chunk_place(struct ps_sched *s, uint32_t c)
{
    return s->d->chunk_tier[c] == PS_TIER_HOST ? &s->w.resident[c] : &s->w.place[c].buf;
}

/* On the HOST queue: arg is the chunk and, for a streamed one, where in the ring it lies, in units of 4 KiB. */
static int verify(void *ud, uint64_t arg)
{
    struct ps_sched *s = ud;
    uint32_t c = (uint32_t) arg;
    bool resident = s->d->chunk_tier[c] == PS_TIER_HOST;
    const void *p = resident ? s->w.resident[c].p : s->l.ring + (arg >> 32) * PS_PACK_ALIGN;
    struct ps_detail dt;
    int r = ps_pack_verify(s->m, c, p, &dt);
    if (r < 0 && !atomic_exchange(&s->verify_failed, 1)) s->verify_detail = dt;
    return r;
}

static int read_chunk(struct ps_sched *s, uint32_t c)
{
    struct ps_buf *b = chunk_place(s, c);
    const struct ps_chunk *k = &s->m->chunks[c];
    s->dev->tag = k->group << 16;
    int r = ps_dev_move(s->dev, b, &s->w.file,
                        &(struct ps_rect) { .src_off = k->off, .row_bytes = k->len, .rows = 1 });
    if (r < 0 || (s->w.verified[c] && !s->cfg->verify_always)) return r;
    s->w.verified[c] = true;
    bool resident = s->d->chunk_tier[c] == PS_TIER_HOST;
    uint64_t at = resident ? 0 : (uint64_t) ((uint8_t *) b->p - s->l.ring) / PS_PACK_ALIGN;
    struct ps_call call = { verify, s, c | at << 32 };
    return ps_dev_run(s->dev, PS_Q_HOST, PS_OP_call, &call, &(struct ps_use) { b, true }, 1);
}

int ps_weights_load(struct ps_sched *s)
{
    for (uint32_t i = 0; i < s->m->n_chunks; i++) {
        if (s->d->chunk_tier[i] != PS_TIER_HOST) continue;
        int r = read_chunk(s, i);
        if (r < 0) return r;
    }
    return ps_dev_drain(s->dev);
}

static uint32_t at_pos(const struct ps_weights *w, uint64_t pos)
{
    return w->stream[pos % w->n_stream];
}

/* Where the next chunk would lie; false while something that is still needed lies there, or the chunk itself is still there. */
static bool find_room(const struct ps_sched *s, uint32_t c, uint64_t *ret_begin)
{
    const struct ps_weights *w = &s->w;
    uint64_t ring = s->d->ring_bytes, len = s->m->chunks[c].len, begin = w->virtual_end;
    if (begin % ring + len > ring) begin += ring - begin % ring;
    *ret_begin = begin;
    if (w->read_pos == w->free_pos) return true;
    if (w->read_pos - w->free_pos == w->n_stream) return false;
    return begin + len - w->place[at_pos(w, w->free_pos)].begin <= ring;
}

static uint64_t max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Whoever still reads or writes what lay in [begin, end) one round ago has to be done before this buffer is written. */
static void inherit(struct ps_weights *w, struct ps_buf *b, uint64_t begin, uint64_t end,
                    uint64_t ring)
{
    for (; w->past_begin < w->past_end; w->past_begin++) {
        const struct ps_ring_chunk *old = &w->past[w->past_begin % past_size(w)];
        if (old->begin + ring >= end) break;
        b->read[old->buf.wrote_q] = max64(b->read[old->buf.wrote_q], old->buf.wrote);
        for (int q = 0; q < PS_Q__COUNT; q++) b->read[q] = max64(b->read[q], old->buf.read[q]);
        if (old->end + ring > end) break; /* the next one lies on its other half */
    }
}

static int read_next(struct ps_sched *s, uint32_t c, uint64_t begin)
{
    struct ps_weights *w = &s->w;
    uint64_t ring = s->d->ring_bytes, len = s->m->chunks[c].len;
    struct ps_ring_chunk *p = &w->place[c];
    *p = (struct ps_ring_chunk) { chunk_buf(s->l.ring + begin % ring, len), begin, begin + len };
    inherit(w, &p->buf, begin, begin + len, ring);
    w->virtual_end = begin + len;
    w->read_pos++;
    return read_chunk(s, c);
}

/* Reads on as far as there is room, to position `target` at most, while less than `bytes` lie beyond position `from`. */
static int read_ahead(struct ps_sched *s, uint64_t target, uint64_t from, uint64_t bytes)
{
    struct ps_weights *w = &s->w;
    uint64_t begin, ahead = 0;
    for (uint64_t p = from; p < w->read_pos; p++) ahead += s->m->chunks[at_pos(w, p)].len;
    while (w->n_stream && w->read_pos < target) {
        uint32_t c = at_pos(w, w->read_pos);
        if (ahead + s->m->chunks[c].len > bytes || !find_room(s, c, &begin)) return 0;
        ahead += s->m->chunks[c].len;
        int r = read_next(s, c, begin);
        if (r < 0) return r;
    }
    return 0;
}

int ps_weights_begin(struct ps_sched *s, uint32_t group)
{
    uint64_t end = s->w.free_pos + s->w.in_group[group];
    int r = read_ahead(s, end, end, UINT64_MAX);
    assert(r < 0 || s->w.read_pos >= end); /* the plan's ring holds the largest group */
    return r;
}

int ps_weights_spread(struct ps_sched *s, uint32_t group, uint32_t part, uint32_t parts)
{
    uint64_t end = s->w.free_pos + s->w.in_group[group];
    return read_ahead(s, UINT64_MAX, end, s->d->ring_bytes * (part + 1) / parts);
}

void ps_weights_end(struct ps_sched *s, uint32_t group)
{
    struct ps_weights *w = &s->w;
    for (uint32_t i = 0; i < w->in_group[group]; i++, w->free_pos++) {
        w->past[w->past_end % past_size(w)] = w->place[at_pos(w, w->free_pos)];
        w->past_end++;
        assert(w->past_end - w->past_begin <= past_size(w));
    }
}

const struct ps_packed_tensor *ps_weights_tensor(const struct ps_sched *s, uint32_t group,
                                                 enum ps_role role)
{
    int32_t i = s->w.by_role[group * PS_W__COUNT + role];
    return i < 0 ? NULL : &s->m->tensors[i];
}

struct ps_part ps_weights_part(struct ps_sched *s, const struct ps_packed_tensor *t, uint32_t c)
{
    const struct ps_chunk *k = &s->m->chunks[c];
    struct ps_buf *b = chunk_place(s, c);
    struct ps_part part = { .buf = b, .rows = t->t.rows };
    if (k->n_tensors > 1 || k->rows == 0) {
        part.p = (const uint8_t *) b->p + (t->off - k->off);
    } else {
        part.p = b->p;
        part.row0 = k->row0;
        part.rows = k->rows;
    }
    return part;
}
