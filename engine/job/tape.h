/* SPDX-License-Identifier: Apache-2.0 */
/* What a sequence has produced, token by token, kept in a small buffer and, past that, in the slot's own region of an unlinked
 * file: twenty log-probabilities a token for thousands of sequences would not fit beside a model. Fixed entries; written once, then read
 * from the start as often as a record needs. */
#ifndef PS_TAPE_H
#define PS_TAPE_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include "kernels/ops.h"

struct ps_tape {
    uint8_t *buf; /* the caller's */
    uint32_t cap, n;
    int fd;
    uint64_t region, spilled; /* of the file: the slot's start, bytes there */
    uint32_t entry_bytes, n_top;
    bool lean; /* tokens only */
    uint32_t count;
};

struct ps_tape_entry {
    int32_t token;
    float logprob;
    uint32_t n_top;
    int32_t top_id[PS_TOP_MAX];
    float top_logprob[PS_TOP_MAX];
};

uint32_t ps_tape_entry_bytes(bool lean, uint32_t n_top);
/* Empties it for a sequence. */
void ps_tape_begin(struct ps_tape *t, bool lean, uint32_t n_top);
int ps_tape_put(struct ps_tape *t, const struct ps_sample_out *out) ps_must_check;

struct ps_tape_reader {
    const struct ps_tape *t;
    uint8_t *buf; /* the caller's, at least one entry */
    uint32_t cap, from, to;
    uint64_t at;
};
void ps_tape_rewind(const struct ps_tape *t, void *buf, uint32_t cap, struct ps_tape_reader *ret);
/* The next entry; -ENODATA past the end. */
int ps_tape_next(struct ps_tape_reader *r, struct ps_tape_entry *ret) ps_must_check;
#endif
