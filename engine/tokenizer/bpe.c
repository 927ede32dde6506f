/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-pair merges within one word: always the rule of the lowest rank, of equal ones the leftmost. A short word looks for it
 * by going over its pairs; a long one (a megabyte of one letter is one word) keeps the pairs in a heap over a linked list, so
 * that n bytes cost n log n. */
#include "engine/base/ps_mem.h"
#include "engine/tokenizer/tok_impl.h"
#include <string.h>

#define NO_RANK UINT32_MAX
#define END     UINT32_MAX

static size_t merge_short(struct tok_bpe *b, const struct ps_tok *t, int32_t *id, size_t n)
{
    uint32_t rank[TOK_SHORT];
    int32_t to[TOK_SHORT];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct tok_merge *m = tok_merge_find(t, id[i], id[i + 1]);
        rank[i] = m ? m->rank : NO_RANK;
        to[i] = m ? m->id : -1;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        b->work += n;
        if (rank[best] == NO_RANK) break;
        id[best] = to[best];
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof(*id));
        memmove(rank + best, rank + best + 1, (n - best) * sizeof(*rank));
        memmove(to + best, to + best + 1, (n - best) * sizeof(*to));
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct tok_merge *m = tok_merge_find(t, id[i], id[i + 1]);
            rank[i] = m ? m->rank : NO_RANK;
            to[i] = m ? m->id : -1;
        }
    }
    return n;
}

static void sift_down(struct tok_bpe *b, size_t i)
{
    uint64_t v = b->heap[i];
    for (size_t c; (c = 2 * i + 1) < b->n_heap; i = c) {
        b->work++;
        if (c + 1 < b->n_heap && b->heap[c + 1] < b->heap[c]) c++;
        if (b->heap[c] >= v) break;
        b->heap[i] = b->heap[c];
    }
    b->heap[i] = v;
}

static void push(struct tok_bpe *b, const struct ps_tok *t, uint32_t at)
{
    const struct tok_merge *m = tok_merge_find(t, b->id[at], b->id[b->next[at]]);
    if (!m) return;
    uint64_t v = (uint64_t) m->rank << 32 | at;
    size_t i = b->n_heap++;
    for (size_t up; i && b->heap[up = (i - 1) / 2] > v; i = up) {
        b->heap[i] = b->heap[up];
        b->work++;
    }
    b->heap[i] = v;
}

static int reserve(struct tok_bpe *b, size_t n)
{
    if (n <= b->cap) return 0;
    tok_bpe_done(b);
    b->id = ps_calloc(n, sizeof(*b->id));
    b->prev = ps_calloc(n, sizeof(*b->prev));
    b->next = ps_calloc(n, sizeof(*b->next));
    /* n - 1 pairs at first; a merge takes one out and puts at most two in. */
    b->heap = ps_calloc(2 * n, sizeof(*b->heap));
    if (!b->id || !b->prev || !b->next || !b->heap) {
        tok_bpe_done(b);
        return -ENOMEM;
    }
    b->cap = n;
    return 0;
}

static size_t merge_long(struct tok_bpe *b, const struct ps_tok *t, int32_t *id, size_t n)
{
    memcpy(b->id, id, n * sizeof(*id));
    b->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        b->prev[i] = i ? (uint32_t) i - 1 : END;
        b->next[i] = i + 1 < n ? (uint32_t) i + 1 : END;
        const struct tok_merge *m = i + 1 < n ? tok_merge_find(t, id[i], id[i + 1]) : NULL;
        if (m) b->heap[b->n_heap++] = (uint64_t) m->rank << 32 | i;
    }
    for (size_t i = b->n_heap / 2; i-- > 0;) sift_down(b, i);
    while (b->n_heap) {
        uint64_t top = b->heap[0];
        b->heap[0] = b->heap[--b->n_heap];
        if (b->n_heap) sift_down(b, 0);
        uint32_t at = (uint32_t) top, right = b->id[at] < 0 ? END : b->next[at];
        if (right == END) continue;
        const struct tok_merge *m = tok_merge_find(t, b->id[at], b->id[right]);
        if (!m || m->rank != top >> 32) continue; /* one of the two has changed since */
        b->id[at] = m->id;
        b->id[right] = -1;
        b->next[at] = b->next[right];
        if (b->next[at] != END) b->prev[b->next[at]] = at;
        if (b->prev[at] != END) push(b, t, b->prev[at]);
        if (b->next[at] != END) push(b, t, at);
    }
    size_t k = 0;
    for (uint32_t i = 0; i != END; i = b->next[i]) id[k++] = b->id[i];
    b->work += n;
    return k;
}

int tok_bpe_merge(struct tok_bpe *b, const struct ps_tok *t, int32_t *id, size_t n, size_t *ret_n)
{
    if (n <= TOK_SHORT) {
        *ret_n = merge_short(b, t, id, n);
        return 0;
    }
    int r = reserve(b, n);
    if (r < 0) return r;
    *ret_n = merge_long(b, t, id, n);
    return 0;
}

void tok_bpe_done(struct tok_bpe *b)
{
    free(b->id);
    free(b->prev);
    free(b->next);
    free(b->heap);
    b->id = NULL;
    b->prev = b->next = NULL;
    b->heap = NULL;
    b->cap = 0;
}
