/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens: found in the text before it is cut into words. Among those that begin at the same place the longest counts, as
 * in Hugging Face's Aho-Corasick (leftmost-longest); a token that must be a single word and is not is stepped over whole. */
#include "engine/base/ps_mem.h"
#include "engine/tokenizer/tok_impl.h"
#include <string.h>

/* `flags` without place. Its id must be free, or be this text's already. */
int tok_added_add(struct ps_tok *t, const char *text, size_t len, struct tok_added flags,
                  const char *where, struct ps_detail *dt)
{
    int r = ps_grow(&t->added, &t->cap_added, t->n_added, (size_t) t->n_added + 1, sizeof flags);
    if (r < 0) return r;
    struct tok_added *a = &t->added[t->n_added];
    *a = flags;
    a->len = (uint32_t) len;
    r = tok_block_put(t, text, len, &a->off);
    if (r < 0) return r;
    if (tok_vocab_find(t, text, len) != a->id) {
        r = tok_vocab_add(t, text, len, a->id, where, dt);
        if (r < 0) return r;
        t->entry[a->id].flags |= TOK_EXTRA;
    }
    t->entry[a->id].flags |= TOK_ADDED | (a->special ? TOK_SPECIAL : 0);
    t->n_added++;
    return 0;
}

static int by_content(const void *a, const void *b, void *arg)
{
    const struct ps_tok *t = arg;
    const struct tok_added *x = &t->added[*(const uint32_t *) a],
                           *y = &t->added[*(const uint32_t *) b];
    int c = memcmp(t->block + x->off, t->block + y->off, x->len < y->len ? x->len : y->len);
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

int tok_added_sort(struct ps_tok *t)
{
    for (int k = 0; k < 2; k++) {
        struct tok_set *set = &t->set[k];
        set->sorted = ps_calloc(t->n_added, sizeof(*set->sorted));
        if (!set->sorted) return -ENOMEM;
        for (uint32_t i = 0; i < t->n_added; i++) {
            if (t->added[i].normalized != k) continue;
            set->sorted[set->n++] = i;
            set->first[(uint8_t) t->block[t->added[i].off]] = true;
        }
        qsort_r(set->sorted, set->n, sizeof(*set->sorted), by_content, t);
    }
    return 0;
}

/* In sorted[lo..hi), all of which share `depth` bytes: the first whose next byte is >= b. */
static uint32_t lower(const struct tok_scan *sc, uint32_t lo, uint32_t hi, size_t depth, int b)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct tok_added *a = &sc->t->added[sc->set->sorted[mid]];
        int c = depth < a->len ? (uint8_t) sc->t->block[a->off + depth] : -1;
        if (c < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static const struct tok_added *longest_at(const struct tok_scan *sc, size_t at)
{
    const struct tok_added *best = NULL;
    uint32_t lo = 0, hi = sc->set->n;
    for (size_t depth = 0; at + depth < sc->len; depth++) {
        int b = (uint8_t) sc->s[at + depth];
        lo = lower(sc, lo, hi, depth, b);
        hi = lower(sc, lo, hi, depth, b + 1);
        if (lo == hi) break;
        const struct tok_added *a = &sc->t->added[sc->set->sorted[lo]];
        if (a->len == depth + 1) best = a; /* the shortest of a range comes first */
    }
    return best;
}

void tok_scan_init(struct tok_scan *sc, const struct ps_tok *t, int set, const char *s, size_t len)
{
    *sc = (struct tok_scan) { .t = t, .set = &t->set[set], .s = s, .len = len };
}

static bool alone(const struct tok_scan *sc, size_t start, size_t end)
{
    int32_t c;
    if (start && (tok_char_end(sc->s, start, &c), tok_is_word(c))) return false;
    return end == sc->len || (tok_char_at(sc->s + end, sc->len - end, &c), !tok_is_word(c));
}

static size_t strip_left(const struct tok_scan *sc, size_t start)
{
    while (start > sc->done) {
        int32_t c;
        size_t k = tok_char_end(sc->s, start, &c);
        if (!tok_is_space(c)) break;
        start -= k;
    }
    return start > sc->done ? start : sc->done;
}

static size_t strip_right(struct tok_scan *sc, size_t end)
{
    /* Tokens that are white space themselves may lie in a stretch that was walked before. */
    if (end < sc->blank_until) return sc->blank_until;
    while (end < sc->len) {
        int32_t c;
        size_t k = tok_char_at(sc->s + end, sc->len - end, &c);
        if (!tok_is_space(c)) break;
        end += k;
    }
    return sc->blank_until = end;
}

bool tok_scan_next(struct tok_scan *sc, struct tok_span *ret)
{
    if (sc->held) {
        sc->held = false;
        *ret = sc->next;
        return true;
    }
    while (sc->set->n && sc->pos < sc->len) {
        size_t at = sc->pos;
        if (!sc->set->first[(uint8_t) sc->s[at]]) {
            sc->pos++;
            continue;
        }
        const struct tok_added *a = longest_at(sc, at);
        sc->pos += a ? a->len : 1;
        if (!a || (a->single_word && !alone(sc, at, sc->pos))) continue;
        size_t start = a->lstrip ? strip_left(sc, at) : at;
        size_t end = a->rstrip ? strip_right(sc, sc->pos) : sc->pos;
        if (start >= end) continue; /* white space that the token before has taken already */
        sc->next = (struct tok_span) { a->id, start, end };
        sc->held = sc->done < start;
        *ret = sc->held ? (struct tok_span) { -1, sc->done, start } : sc->next;
        sc->done = end;
        return true;
    }
    if (sc->done >= sc->len) return false;
    *ret = (struct tok_span) { -1, sc->done, sc->len };
    sc->done = sc->len;
    return true;
}
