/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed chunks are read in the order of their use, over and over, into a ring of equal slots: position p of the endless order lies in
 * slot p % ring_slots. A read may be submitted once every use of the slot's former content was submitted (free_pos); that those
 * uses are over is the device's business. */
#include "engine/base/ps_mem.h"
#include "engine/sched/sched.h"
#include <stdatomic.h>

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
    w->ring = ps_calloc(s->d->ring_slots, sizeof *w->ring);
    w->slot = ps_calloc(n, sizeof *w->slot);
    w->stream = ps_calloc(n, sizeof *w->stream);
    w->in_group = ps_calloc(groups, sizeof *w->in_group);
    w->by_role = ps_calloc((size_t) groups * PS_W__COUNT, sizeof *w->by_role);
    w->verified = ps_calloc(n, sizeof *w->verified);
    if (!w->resident || !w->ring || !w->slot || !w->stream || !w->in_group || !w->by_role ||
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
    for (uint32_t i = 0; i < s->d->ring_slots; i++)
        w->ring[i] = chunk_buf(s->l.ring + (uint64_t) i * s->m->chunk_bytes, s->m->chunk_bytes);
    map_roles(s);
    return 0;
}

void ps_weights_done(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    free(w->resident);
    free(w->ring);
    free(w->slot);
    free(w->stream);
    free(w->in_group);
    free(w->by_role);
    free(w->verified);
}

static struct ps_buf *chunk_place(struct ps_sched *s, uint32_t c)
{
    return s->d->chunk_tier[c] == PS_TIER_HOST ? &s->w.resident[c] : &s->w.ring[s->w.slot[c]];
}

/* On the HOST queue: arg names the chunk, and the ring slot where it lies if it is a streamed one. */
static int verify(void *ud, uint64_t arg)
{
    struct ps_sched *s = ud;
    uint32_t c = (uint32_t) arg, slot = (uint32_t) (arg >> 32);
    const struct ps_buf *b =
        s->d->chunk_tier[c] == PS_TIER_HOST ? &s->w.resident[c] : &s->w.ring[slot];
    struct ps_detail dt;
    int r = ps_pack_verify(s->m, c, b->p, &dt);
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
    struct ps_call call = { verify, s, c | (uint64_t) s->w.slot[c] << 32 };
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

int ps_weights_ahead(struct ps_sched *s, uint64_t target)
{
    struct ps_weights *w = &s->w;
    uint64_t room = w->free_pos + s->d->ring_slots;
    for (; w->read_pos < target && w->read_pos < room; w->read_pos++) {
        uint32_t c = w->stream[w->read_pos % w->n_stream];
        w->slot[c] = (uint32_t) (w->read_pos % s->d->ring_slots);
        int r = read_chunk(s, c);
        if (r < 0) return r;
    }
    return 0;
}

int ps_weights_begin(struct ps_sched *s, uint32_t group)
{
    return ps_weights_ahead(s, s->w.free_pos + s->w.in_group[group]);
}

int ps_weights_spread(struct ps_sched *s, uint32_t group, uint32_t part, uint32_t parts)
{
    uint64_t own = s->w.in_group[group], spare = s->d->ring_slots - own;
    return ps_weights_ahead(s, s->w.free_pos + own + spare * (part + 1) / parts);
}

void ps_weights_end(struct ps_sched *s, uint32_t group) { s->w.free_pos += s->w.in_group[group]; }

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
