/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/ring.h"
#include "engine/base/ps_mem.h"
#include <assert.h>
#include <string.h>

/* A ring of at most twice the bytes of a round has at most this many chunks in it, whole or in part, counting old ones. */
enum { PAST_EXTRA = 4 };
static uint64_t past_size(const struct ps_ring *r)
{
    return 2 * (uint64_t) r->n_stream + PAST_EXTRA;
}

int ps_ring_init(struct ps_ring *r, const struct ps_packed *m, uint8_t *mem, enum ps_where where,
                 uint64_t bytes)
{
    const size_t n = m->n_chunks, groups = (size_t) m->shape.layers + 1;
    *r = (struct ps_ring) { .mem = mem, .where = where, .room = bytes, .chunks = m->chunks };
    r->stream = ps_calloc(n, sizeof *r->stream);
    r->before = ps_calloc(n, sizeof *r->before);
    r->in_group = ps_calloc(groups, sizeof *r->in_group);
    r->place = ps_calloc(n, sizeof *r->place);
    r->past = ps_calloc(2 * n + PAST_EXTRA, sizeof *r->past);
    return r->stream && r->before && r->in_group && r->place && r->past ? 0 : -ENOMEM;
}

void ps_ring_done(struct ps_ring *r)
{
    free(r->stream);
    free(r->before);
    free(r->in_group);
    free(r->place);
    free(r->past);
}

void ps_ring_add(struct ps_ring *r, uint32_t chunk)
{
    r->before[r->n_stream] = r->round;
    r->round += r->chunks[chunk].len;
    r->stream[r->n_stream++] = chunk;
    r->in_group[r->chunks[chunk].group]++;
    r->bytes += 2 * (uint64_t) r->chunks[chunk].len;
    if (r->bytes > r->room) r->bytes = r->room;
}

uint32_t ps_ring_at(const struct ps_ring *r, uint64_t pos) { return r->stream[pos % r->n_stream]; }

static uint64_t next_len(const struct ps_ring *r)
{
    return r->chunks[ps_ring_at(r, r->put_pos)].len;
}

static uint64_t next_begin(const struct ps_ring *r)
{
    uint64_t at = r->virtual_end % r->bytes, len = next_len(r);
    return r->virtual_end + (at + len > r->bytes ? r->bytes - at : 0);
}

/* False while something that is still needed lies there, or the chunk itself is still there. */
bool ps_ring_room(const struct ps_ring *r)
{
    if (r->put_pos == r->free_pos) return true;
    if (r->put_pos - r->free_pos == r->n_stream) return false;
    return next_begin(r) + next_len(r) - r->place[ps_ring_at(r, r->free_pos)].begin <= r->bytes;
}

static uint64_t max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Whoever still reads or writes what lay in [begin, end) one round ago has to be done before this buffer is written; and who did before
 * that, since what lay where a round ended early is not written over by the next. */
static void inherit(struct ps_ring *r, struct ps_buf *b, uint64_t end)
{
    for (; r->past_begin < r->past_end; r->past_begin++) {
        const struct ps_ring_chunk *old = &r->past[r->past_begin % past_size(r)];
        if (old->begin + r->bytes >= end) break;
        r->over[old->buf.wrote_q] = max64(r->over[old->buf.wrote_q], old->buf.wrote);
        for (int q = 0; q < PS_Q__COUNT; q++) r->over[q] = max64(r->over[q], old->buf.read[q]);
        if (old->end + r->bytes > end) break; /* the next one lies on its other half */
    }
    memcpy(b->read, r->over, sizeof b->read);
}

struct ps_buf *ps_ring_put(struct ps_ring *r)
{
    const uint64_t begin = next_begin(r), len = next_len(r);
    struct ps_ring_chunk *p = &r->place[ps_ring_at(r, r->put_pos)];
    *p = (struct ps_ring_chunk) { { .where = r->where,
                                    .kind = PS_KIND_WEIGHTS,
                                    .p = r->mem + begin % r->bytes,
                                    .len_bytes = len },
                                  begin,
                                  begin + len };
    inherit(r, &p->buf, begin + len);
    r->virtual_end = begin + len;
    r->put_pos++;
    return &p->buf;
}

void ps_ring_free(struct ps_ring *r, uint32_t n)
{
    for (; n; n--, r->free_pos++) {
        r->past[r->past_end % past_size(r)] = r->place[ps_ring_at(r, r->free_pos)];
        r->past_end++;
        assert(r->past_end - r->past_begin <= past_size(r));
    }
}

/* Of all positions before this one. */
static uint64_t bytes_to(const struct ps_ring *r, uint64_t pos)
{
    return r->n_stream ? pos / r->n_stream * r->round + r->before[pos % r->n_stream] : 0;
}

uint64_t ps_ring_ahead(const struct ps_ring *r, uint64_t from)
{
    return from < r->put_pos ? bytes_to(r, r->put_pos) - bytes_to(r, from) : 0;
}
