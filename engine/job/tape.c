/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/tape.h"
#include "engine/base/ps_file.h"
#include "engine/job/jout.h"
#include <string.h>

uint32_t ps_tape_entry_bytes(bool lean, uint32_t n_top) { return lean ? 4 : 8 + 8 * n_top; }

void ps_tape_begin(struct ps_tape *t, bool lean, uint32_t n_top)
{
    t->n = t->count = 0;
    t->spilled = 0;
    t->lean = lean;
    t->n_top = n_top;
    t->entry_bytes = ps_tape_entry_bytes(lean, n_top);
}

int ps_tape_put(struct ps_tape *t, const struct ps_sample_out *out)
{
    if (t->cap - t->n < t->entry_bytes) {
        int r = ps_pwrite_all(t->fd, t->buf, t->n, t->region + t->spilled);
        if (r < 0) return r;
        t->spilled += t->n;
        t->n = 0;
    }
    uint8_t *p = t->buf + t->n;
    memcpy(p, &out->token, 4);
    if (!t->lean) {
        memcpy(p + 4, &out->logprob, 4);
        for (uint32_t i = 0; i < t->n_top; i++) {
            const int32_t none = -1;
            memcpy(p + 8 + 8 * i, i < out->n_top ? &out->top_id[i] : &none, 4);
            memcpy(p + 12 + 8 * i, &out->top_logprob[i], 4);
        }
    }
    t->n += t->entry_bytes;
    t->count++;
    return 0;
}

void ps_tape_rewind(const struct ps_tape *t, void *buf, uint32_t cap, struct ps_tape_reader *ret)
{
    *ret = (struct ps_tape_reader) { .t = t,
                                     .buf = buf,
                                     .cap = cap / t->entry_bytes * t->entry_bytes };
}

static int refill(struct ps_tape_reader *r)
{
    const struct ps_tape *t = r->t;
    uint64_t total = t->spilled + t->n;
    if (r->at >= total) return -ENODATA;
    uint32_t n = total - r->at < r->cap ? (uint32_t) (total - r->at) : r->cap;
    if (r->at < t->spilled) {
        if (n > t->spilled - r->at) n = (uint32_t) (t->spilled - r->at);
        int e = ps_pread_all(t->fd, r->buf, n, t->region + r->at);
        if (e < 0) return e;
    } else {
        memcpy(r->buf, t->buf + (r->at - t->spilled), n);
    }
    r->at += n;
    r->from = 0;
    r->to = n;
    return 0;
}

int ps_tape_next(struct ps_tape_reader *r, struct ps_tape_entry *ret)
{
    if (r->from == r->to) {
        int e = refill(r);
        if (e < 0) return e;
    }
    const uint8_t *p = r->buf + r->from;
    memcpy(&ret->token, p, 4);
    ret->logprob = 0;
    ret->n_top = 0;
    if (!r->t->lean) {
        memcpy(&ret->logprob, p + 4, 4);
        for (uint32_t i = 0; i < r->t->n_top; i++) {
            memcpy(&ret->top_id[i], p + 8 + 8 * i, 4);
            memcpy(&ret->top_logprob[i], p + 12 + 8 * i, 4);
            if (ret->top_id[i] < 0) break;
            ret->n_top++;
        }
    }
    r->from += r->t->entry_bytes;
    return 0;
}
