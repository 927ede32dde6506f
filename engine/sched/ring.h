/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of bytes that some of the model's chunks pass through in the order of their use, over and over. Offsets are counted without end
 * (`virtual`): a chunk lies at its offset modulo the ring's size, in one piece; where it would reach over the end, the rest of the round is
 * skipped. A chunk may be put once every use of what lay there was submitted (free_pos); that those uses are over is the device's
 * business: the new content's buffer takes over what the old ones' readers and writers were. */
#ifndef PS_RING_H
#define PS_RING_H
#include "engine/checkpoint/pack.h"
#include "offload/dev.h"

/* A chunk in the ring: its bytes are [begin, end) in endless offsets. */
struct ps_ring_chunk {
    struct ps_buf buf;
    uint64_t begin, end;
};

struct ps_ring {
    uint8_t *mem;
    enum ps_where where;
    uint64_t room,
        bytes; /* what there is, and what is used of it: at most twice what passes in a round */
    const struct ps_chunk *chunks;
    uint32_t *stream; /* the chunks that pass, in order; the order repeats for ever */
    uint64_t *before; /* [n_stream] bytes of those before one */
    uint64_t round;   /* bytes of all */
    uint32_t n_stream;
    uint32_t *in_group;          /* [groups] how many of a group's chunks pass */
    struct ps_ring_chunk *place; /* [all chunks], where one was last put */
    struct ps_ring_chunk *past;  /* queue: what was used up and may still be in somebody's hands */
    uint64_t put_pos, free_pos;  /* positions in the repeating order: put, and all uses submitted */
    uint64_t virtual_end;        /* of what was put last */
    uint64_t past_begin, past_end;
    uint64_t over[PS_Q__COUNT]; /* per queue, the last task of all that lay where was put since */
};

int ps_ring_init(struct ps_ring *r, const struct ps_packed *m, uint8_t *mem, enum ps_where where,
                 uint64_t bytes) ps_must_check;
void ps_ring_done(struct ps_ring *r);
void ps_ring_add(struct ps_ring *r, uint32_t chunk); /* in order of use; before the first put */
uint32_t ps_ring_at(const struct ps_ring *r, uint64_t pos); /* the chunk there */
/* Whether the chunk at put_pos could be put now. */
bool ps_ring_room(const struct ps_ring *r);
/* Makes room for it: its buffer, to be filled. After ps_ring_room(). */
struct ps_buf *ps_ring_put(struct ps_ring *r);
/* All uses of the next n chunks were submitted. */
void ps_ring_free(struct ps_ring *r, uint32_t n);
/* Bytes of the chunks from position `from` to put_pos. */
uint64_t ps_ring_ahead(const struct ps_ring *r, uint64_t from);
#endif
