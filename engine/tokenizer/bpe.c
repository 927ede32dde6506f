/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-pair merges within one word: always the rule of the lowest rank, of equal ones the leftmost. A short word looks for it
 * by going over its pairs; a long one (a megabyte of one letter is one word) keeps its tokens in a linked list and their pairs in lists by
 * rank (bpe_rounds.c), or, where rules are in no order of training, in a heap, so that n bytes cost n log n. */
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
    const struct tok_merge *m = tok_merge_find(t, b->node[at].id, b->node[b->node[at].next].id);
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
    if (n < b->cap + b->cap / 2) n = b->cap + b->cap / 2;
    if (n < 1024) n = 1024;
    tok_bpe_done(b);
    b->node = ps_calloc(n, sizeof *b->node);
    if (!b->node) return -ENOMEM;
    b->cap = n;
    return 0;
}

static int merge_by_heap(struct tok_bpe *b, const struct ps_tok *t, size_t n)
{
    /* n - 1 pairs at first; a merge takes one out and puts at most two in. */
    if (!b->heap) b->heap = ps_calloc(2 * b->cap, sizeof *b->heap);
    if (!b->heap) return -ENOMEM;
    b->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) push(b, t, (uint32_t) i);
    while (b->n_heap) {
        uint64_t top = b->heap[0];
        b->heap[0] = b->heap[--b->n_heap];
        if (b->n_heap) sift_down(b, 0);
        uint32_t at = (uint32_t) top;
        struct tok_node *x = &b->node[at];
        if (x->id < 0 || x->next == END) continue;
        struct tok_node *right = &b->node[x->next];
        const struct tok_merge *m = tok_merge_find(t, x->id, right->id);
        if (!m || m->rank != top >> 32) continue; /* one of the two has changed since */
        x->id = m->id;
        right->id = -1;
        x->next = right->next;
        if (x->next != END) b->node[x->next].prev = at;
        if (x->prev != END) push(b, t, x->prev);
        if (x->next != END) push(b, t, at);
    }
    return 0;
}

static int merge_long(struct tok_bpe *b, const struct ps_tok *t, int32_t *id, size_t n,
                      size_t *ret_n)
{
    int r = reserve(b, n);
    if (r < 0) return r;
    for (size_t i = 0; i < n; i++)
        b->node[i] = (struct tok_node) { id[i], i ? (uint32_t) i - 1 : END,
                                         i + 1 < n ? (uint32_t) i + 1 : END };
    b->work += n;
    r = t->in_order ? tok_rounds_merge(b, t, n) : merge_by_heap(b, t, n);
    if (r < 0) return r;
    size_t k = 0;
    for (uint32_t i = 0; i != END; i = b->node[i].next) id[k++] = b->node[i].id;
    *ret_n = k;
    return 0;
}

int tok_bpe_merge(struct tok_bpe *b, const struct ps_tok *t, int32_t *id, size_t n, size_t *ret_n)
{
    if (n <= TOK_SHORT) {
        *ret_n = merge_short(b, t, id, n);
        return 0;
    }
    return merge_long(b, t, id, n, ret_n);
}

void tok_bpe_done(struct tok_bpe *b)
{
    free(b->node);
    free(b->heap);
    tok_rounds_close(b->rounds);
    b->node = NULL;
    b->heap = NULL;
    b->rounds = NULL;
    b->cap = 0;
}
