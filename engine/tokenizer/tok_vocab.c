/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a tokenizer: ids to bytes, bytes to ids, pairs to merges. All strings lie in one block. */
#include "engine/base/ps_mem.h"
#include "engine/tokenizer/tok_impl.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* A power of two with at least half of it free. */
static uint32_t table_size(size_t n)
{
    uint32_t cap = 4;
    while (cap < 2 * n) cap *= 2;
    return cap;
}

int tok_vocab_init(struct ps_tok *t, uint32_t n_ids, uint32_t n_tokens, size_t bytes)
{
    t->n_ids = n_ids;
    t->slot_mask = table_size(n_tokens) - 1;
    t->block_cap = bytes;
    t->entry = ps_calloc(n_ids, sizeof(*t->entry));
    t->slot = ps_calloc((size_t) t->slot_mask + 1, sizeof(*t->slot));
    t->block = ps_calloc(1, bytes);
    return t->entry && t->slot && t->block ? 0 : -ENOMEM;
}

int tok_block_put(struct ps_tok *t, const char *s, size_t len, uint32_t *ret_off)
{
    if (len > t->block_cap - t->block_len) return -ENOBUFS; /* sized from the files: cannot be */
    memcpy(t->block + t->block_len, s, len);
    *ret_off = (uint32_t) t->block_len;
    t->block_len += len;
    return 0;
}

/* The slot of these bytes, or the free one where they would go. */
static uint32_t *slot_of(const struct ps_tok *t, const char *bytes, size_t len, bool raw)
{
    uint32_t i = (uint32_t) XXH3_64bits(bytes, len) & t->slot_mask;
    for (;; i = (i + 1) & t->slot_mask) {
        if (!t->slot[i]) return &t->slot[i];
        const struct tok_entry *e = &t->entry[t->slot[i] - 1];
        if (e->len == len && !(e->flags & TOK_RAW) == !raw &&
            !memcmp(t->block + e->off, bytes, len))
            return &t->slot[i];
    }
}

int tok_vocab_add(struct ps_tok *t, const char *text, size_t len, int32_t id, const char *where,
                  struct ps_detail *dt)
{
    struct tok_entry *e = &t->entry[id];
    if (e->flags)
        return ps_fail(dt, -PS_EFORMAT, "%s: id %d is given to two tokens, one of them \"%.*s\"",
                       where, id, len > 80 ? 80 : (int) len, text);
    if (len > t->block_cap - t->block_len || len >= 1 << 24) return -ENOBUFS;
    char *to = t->block + t->block_len;
    size_t n = len;
    bool raw = !tok_text_to_bytes(text, len, to, &n);
    if (raw) memcpy(to, text, len);
    e->off = (uint32_t) t->block_len;
    e->len = (uint32_t) n & 0xffffff;
    t->block_len += n;
    uint32_t *slot = slot_of(t, to, n, raw);
    if (*slot)
        return ps_fail(dt, -PS_EFORMAT, "%s: token \"%.*s\" is given twice", where,
                       len > 80 ? 80 : (int) len, text);
    e->flags = TOK_USED | (raw ? TOK_RAW : 0);
    *slot = (uint32_t) id + 1;
    if (n > t->max_len) t->max_len = (uint32_t) n;
    return 0;
}

int32_t tok_vocab_find_bytes(const struct ps_tok *t, const char *bytes, size_t len)
{
    int32_t id = (int32_t) *slot_of(t, bytes, len, false) - 1;
    return id >= 0 && t->entry[id].flags & TOK_EXTRA ? -1 : id;
}

int32_t tok_vocab_find(const struct ps_tok *t, const char *text, size_t len)
{
    char b[TOK_MAX_CONTENT];
    size_t n;
    if (len > sizeof(b)) return -1;
    bool raw = !tok_text_to_bytes(text, len, b, &n);
    return (int32_t) (raw ? *slot_of(t, text, len, true) : *slot_of(t, b, n, false)) - 1;
}

int tok_merges_init(struct ps_tok *t, size_t n)
{
    t->merge_mask = table_size(n) - 1;
    t->merge = ps_calloc((size_t) t->merge_mask + 1, sizeof(*t->merge));
    if (!t->merge) return -ENOMEM;
    for (size_t i = 0; i <= t->merge_mask; i++) t->merge[i].pair = TOK_NO_PAIR;
    return 0;
}

int tok_merges_add(struct ps_tok *t, const char *a, size_t a_len, const char *b, size_t b_len,
                   uint32_t rank, const char *where, struct ps_detail *dt)
{
    enum { MAX = 4096 };
    char bytes[2 * MAX];
    size_t na, nb;
    if (!a_len || !b_len || a_len > MAX || b_len > MAX)
        return ps_fail(dt, -PS_EFORMAT, "%s: a merge needs two tokens of 1 to %d bytes", where,
                       MAX);
    if (!tok_text_to_bytes(a, a_len, bytes, &na) || !tok_text_to_bytes(b, b_len, bytes + na, &nb))
        return ps_fail(dt, -PS_EFORMAT,
                       "%s: a character of \"%.*s %.*s\" is outside the byte alphabet", where,
                       (int) a_len, a, (int) b_len, b);
    int32_t left = tok_vocab_find_bytes(t, bytes, na);
    int32_t right = tok_vocab_find_bytes(t, bytes + na, nb);
    int32_t both = tok_vocab_find_bytes(t, bytes, na + nb);
    if (left < 0 || right < 0 || both < 0)
        return ps_fail(dt, -PS_EFORMAT, "%s: merge \"%.*s %.*s\": %s is not in the vocabulary",
                       where, (int) a_len, a, (int) b_len, b,
                       left < 0    ? "its first token"
                       : right < 0 ? "its second token"
                                   : "what it makes");
    uint64_t pair = (uint64_t) (uint32_t) left << 32 | (uint32_t) right;
    uint32_t i = (uint32_t) ((pair * 0x9e3779b97f4a7c15u) >> 32) & t->merge_mask;
    while (t->merge[i].pair != TOK_NO_PAIR && t->merge[i].pair != pair) i = (i + 1) & t->merge_mask;
    t->merge[i] = (struct tok_merge) { pair, rank, both }; /* of equal rules the last counts */
    t->n_merges++;
    return 0;
}

int tok_merges_look(struct ps_tok *t)
{
    uint32_t *made = ps_calloc(t->n_ids, sizeof *made); /* 1 + the highest rank that makes it */
    if (!made) return -ENOMEM;
    const struct tok_merge *end = t->merge + t->merge_mask + 1;
    for (const struct tok_merge *m = t->merge; m < end; m++)
        if (m->pair != TOK_NO_PAIR && made[m->id] <= m->rank) made[m->id] = m->rank + 1;
    t->in_order = true;
    for (const struct tok_merge *m = t->merge; m < end; m++)
        if (m->pair != TOK_NO_PAIR &&
            (made[m->pair >> 32] > m->rank || made[(uint32_t) m->pair] > m->rank))
            t->in_order = false;
    free(made);
    return 0;
}

/* The line's end, without its \n or \r\n. */
static const char *line_end(const char *p, const char *end, const char **ret_next)
{
    const char *nl = memchr(p, '\n', (size_t) (end - p));
    *ret_next = nl ? nl + 1 : end;
    if (!nl) nl = end;
    return nl > p && nl[-1] == '\r' ? nl - 1 : nl;
}

int tok_merges_text(struct ps_tok *t, const char *data, size_t len, const char *where,
                    struct ps_detail *dt)
{
    const char *end = data + len, *next;
    size_t lines = 1, line = 0;
    for (const char *p = data; p < end && (p = memchr(p, '\n', (size_t) (end - p))); p++) lines++;
    int r = tok_merges_init(t, lines);
    if (r < 0) return r;
    uint32_t rank = 0;
    while (len && (end[-1] == '\n' || end[-1] == '\r')) end--, len--; /* blank lines at the end */
    for (const char *p = data; p < end; p = next) {
        const char *e = line_end(p, end, &next);
        line++;
        if (line == 1 && e - p >= 8 && !memcmp(p, "#version", 8)) continue;
        char place[4200];
        (void) snprintf(place, sizeof(place), "%s:%zu", where, line);
        const char *gap = memchr(p, ' ', (size_t) (e - p));
        if (!gap || memchr(gap + 1, ' ', (size_t) (e - gap - 1)))
            return ps_fail(dt, -PS_EFORMAT, "%s: expected two tokens with one space between them",
                           place);
        r = tok_merges_add(t, p, (size_t) (gap - p), gap + 1, (size_t) (e - gap - 1), rank++, place,
                           dt);
        if (r < 0) return r;
    }
    return 0;
}
