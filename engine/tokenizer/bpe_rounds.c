/* SPDX-License-Identifier: Apache-2.0 */
/* Merges of a long word whose rules are in the order of training: what a merge makes is joined by later rules only, so that all pairs of the
 * lowest rank can be merged in one round, left to right, and nothing of a lower rank comes up meanwhile. The places of pairs wait in a
 * list for each rank; a heap has the ranks whose lists are not empty. A round knows its places in advance, so that their memory is on its
 * way when they are looked at: of a word of megabytes little is in the caches. */
#include "engine/base/ps_mem.h"
#include "engine/tokenizer/tok_impl.h"
#include <string.h>

#define END UINT32_MAX
enum { PER_CHUNK = 14, AHEAD = 12 };

struct chunk { /* a cache line */
    uint32_t next, n, at[PER_CHUNK];
};

struct list {
    const struct tok_merge *rule;
    uint32_t head, tail; /* chunks; head END: empty */
};

struct tok_rounds {
    struct list *list; /* by rank; all of them empty between words */
    uint32_t n_lists;
    uint32_t *heap;
    uint32_t n_heap;
    struct chunk *chunk;
    uint32_t n_chunks, free; /* used so far; given back */
    uint32_t *at;            /* a round's places */
    size_t cap;              /* bytes of a word that there is room for */
};

void tok_rounds_close(struct tok_rounds *r)
{
    if (!r) return;
    free(r->list);
    free(r->heap);
    free(r->chunk);
    free(r->at);
    free(r);
}

static int open(struct tok_bpe *b, const struct ps_tok *t)
{
    struct tok_rounds *r = ps_calloc(1, sizeof *r);
    if (!r) return -ENOMEM;
    r->n_lists = t->n_merges;
    r->list = ps_calloc(r->n_lists, sizeof *r->list);
    r->heap = ps_calloc(r->n_lists, sizeof *r->heap);
    /* At most n - 1 places at first, and each of at most n - 1 merges takes one and puts in two; of each list a chunk is not full. */
    const size_t n_chunks = 2 * b->cap / PER_CHUNK + r->n_lists + 1;
    r->chunk = n_chunks < END ? ps_calloc(n_chunks, sizeof *r->chunk) : NULL;
    r->at = ps_calloc(b->cap, sizeof *r->at);
    if (!r->list || !r->heap || !r->chunk || !r->at) {
        tok_rounds_close(r);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < r->n_lists; i++) r->list[i].head = END;
    r->free = END;
    r->cap = b->cap;
    b->rounds = r;
    return 0;
}

static void rank_push(struct tok_rounds *r, uint32_t v)
{
    uint32_t i = r->n_heap++;
    for (uint32_t up; i && r->heap[up = (i - 1) / 2] > v; i = up) r->heap[i] = r->heap[up];
    r->heap[i] = v;
}

static uint32_t rank_pop(struct tok_rounds *r)
{
    const uint32_t top = r->heap[0], v = r->heap[--r->n_heap];
    uint32_t i = 0;
    for (uint32_t c; (c = 2 * i + 1) < r->n_heap; i = c) {
        if (c + 1 < r->n_heap && r->heap[c + 1] < r->heap[c]) c++;
        if (r->heap[c] >= v) break;
        r->heap[i] = r->heap[c];
    }
    r->heap[i] = v;
    return top;
}

static uint32_t new_chunk(struct tok_rounds *r)
{
    uint32_t c = r->free;
    if (c == END)
        c = r->n_chunks++;
    else
        r->free = r->chunk[c].next;
    r->chunk[c].next = END;
    r->chunk[c].n = 0;
    return c;
}

/* The pair that begins at `at`, if there is a rule for it. */
static void push(struct tok_bpe *b, const struct ps_tok *t, uint32_t at)
{
    struct tok_rounds *r = b->rounds;
    const struct tok_merge *m = tok_merge_find(t, b->node[at].id, b->node[b->node[at].next].id);
    b->work++;
    if (!m) return;
    struct list *l = &r->list[m->rank];
    if (l->head == END) {
        l->rule = m;
        l->head = l->tail = new_chunk(r);
        rank_push(r, m->rank);
    } else if (r->chunk[l->tail].n == PER_CHUNK) {
        l->tail = r->chunk[l->tail].next = new_chunk(r);
    }
    struct chunk *c = &r->chunk[l->tail];
    c->at[c->n++] = at;
}

/* Takes a list's places. Those of a token joined to its like, which may overlap, are in order: the bytes of a token are joined in the same way
 * wherever they stand, so one round made it everywhere, and noted its pairs from left to right. The order of others makes no difference. */
static size_t take(struct tok_rounds *r, struct list *l)
{
    size_t n = 0;
    for (uint32_t c = l->head, next; c != END; c = next) {
        struct chunk *x = &r->chunk[c];
        memcpy(r->at + n, x->at, x->n * sizeof *x->at);
        n += x->n;
        next = x->next;
        x->next = r->free;
        r->free = c;
    }
    l->head = END;
    return n;
}

static void join(struct tok_bpe *b, const struct ps_tok *t, uint32_t at, int32_t left,
                 int32_t right, int32_t both)
{
    struct tok_node *x = &b->node[at];
    const uint32_t next = x->next;
    if (x->id != left || next == END || b->node[next].id != right) return; /* changed since */
    x->id = both;
    b->node[next].id = -1;
    x->next = b->node[next].next;
    if (x->next != END) b->node[x->next].prev = at;
    if (x->prev != END) push(b, t, x->prev);
    if (x->next != END) push(b, t, at);
}

int tok_rounds_merge(struct tok_bpe *b, const struct ps_tok *t, size_t n)
{
    if (b->rounds && (b->rounds->cap < n || b->rounds->n_lists != t->n_merges)) {
        tok_rounds_close(b->rounds);
        b->rounds = NULL;
    }
    int e = b->rounds ? 0 : open(b, t);
    if (e < 0) return e;
    struct tok_rounds *r = b->rounds;
    r->n_chunks = 0;
    r->free = END;
    for (size_t i = 0; i + 1 < n; i++) push(b, t, (uint32_t) i);
    while (r->n_heap) {
        struct list *l = &r->list[rank_pop(r)];
        const int32_t left = (int32_t) (l->rule->pair >> 32), right = (int32_t) l->rule->pair;
        const size_t n_at = take(r, l);
        b->work += n_at;
        for (size_t i = 0; i < n_at; i++) {
            if (i + AHEAD < n_at) __builtin_prefetch(&b->node[r->at[i + AHEAD]], 1);
            join(b, t, r->at[i], left, right, l->rule->id);
        }
    }
    return 0;
}
