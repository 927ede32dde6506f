/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_mem.h"
#include "engine/base/ps_utf8.h"
#include "engine/tokenizer/tok_impl.h"
#include <string.h>
#include <xxhash.h>

int ps_encoder_open(const struct ps_tok *t, struct ps_encoder **ret)
{
    struct ps_encoder *e = ps_calloc(1, sizeof(*e));
    if (!e) return -ENOMEM;
    e->t = t;
    e->cache = ps_calloc(TOK_CACHE_SLOTS, sizeof(*e->cache));
    int r = e->cache ? tok_words_open(t->pretok, &e->words) : -ENOMEM;
    if (r < 0) {
        ps_encoder_close(e);
        return r;
    }
    *ret = e;
    return 0;
}

void ps_encoder_close(struct ps_encoder *e)
{
    if (!e) return;
    tok_words_close(e->words);
    tok_bpe_done(&e->bpe);
    free(e->cache);
    free(e->out);
    free(e->joined);
    free(e);
}

/* Room for n more ids. */
static int reserve(struct ps_encoder *e, size_t n)
{
    return ps_grow(&e->out, &e->cap, e->n, e->n + n, sizeof(*e->out));
}

/* The ids of a word's bytes. One that the vocabulary lacks is the unknown token, if there is one, else nothing. */
static size_t bytes_to_ids(const struct ps_tok *t, const char *w, size_t len, int32_t *id)
{
    size_t n = 0;
    bool fuse = false;
    for (size_t i = 0; i < len; i++) {
        int32_t b = t->byte_id[(uint8_t) w[i]];
        if (b >= 0)
            id[n++] = b;
        else if (t->unk >= 0 && !fuse)
            id[n++] = t->unk;
        fuse = b < 0 && t->fuse_unk;
    }
    return n;
}

static int encode_word(struct ps_encoder *e, const char *w, size_t len)
{
    const struct ps_tok *t = e->t;
    struct tok_cached *c = NULL;
    if (len <= sizeof(c->word)) {
        c = &e->cache[XXH3_64bits(w, len) % TOK_CACHE_SLOTS];
        if (c->len == len && !memcmp(c->word, w, len)) {
            int r = reserve(e, c->n);
            if (r < 0) return r;
            memcpy(e->out + e->n, c->id, c->n * sizeof(*c->id));
            e->n += c->n;
            return 0;
        }
    }
    int r = reserve(e, len);
    if (r < 0) return r;
    int32_t *id = e->out + e->n;
    int32_t whole = t->ignore_merges ? tok_vocab_find_bytes(t, w, len) : -1;
    size_t n;
    if (whole >= 0) {
        id[0] = whole;
        n = 1;
    } else {
        n = bytes_to_ids(t, w, len, id);
        r = tok_bpe_merge(&e->bpe, t, id, n, &n);
        if (r < 0) return r;
    }
    e->n += n;
    if (c && n <= PS_ARRAY_LEN(c->id)) {
        c->len = (uint8_t) len;
        c->n = (uint8_t) n;
        memcpy(c->word, w, len);
        memcpy(c->id, id, n * sizeof(*id));
    }
    return 0;
}

/* A stretch without added tokens. */
static int encode_plain(struct ps_encoder *e, const char *s, size_t len)
{
    if (e->t->add_prefix_space && s[0] != ' ') {
        int r = ps_grow(&e->joined, &e->joined_cap, 0, len + 1, 1);
        if (r < 0) return r;
        e->joined[0] = ' ';
        memcpy(e->joined + 1, s, len++);
        s = e->joined;
    }
    if (!e->t->use_regex) return encode_word(e, s, len);
    for (size_t at = 0; at < len;) {
        int64_t end = tok_words_next(e->words, s, len, at);
        if (end < 0) return (int) end;
        int r = encode_word(e, s + at, (size_t) end - at);
        if (r < 0) return r;
        at = (size_t) end;
    }
    return 0;
}

/* Cuts at the tokens of a set; what lies between goes to the next set, in the end to the words. */
static int encode_set(struct ps_encoder *e, int set, const char *s, size_t len)
{
    if (set == 2) return encode_plain(e, s, len);
    struct tok_scan sc;
    struct tok_span sp;
    tok_scan_init(&sc, e->t, set, s, len);
    while (tok_scan_next(&sc, &sp)) {
        int r = 0;
        if (sp.id < 0)
            r = encode_set(e, set + 1, s + sp.start, sp.end - sp.start);
        else if ((r = reserve(e, 1)) >= 0)
            e->out[e->n++] = sp.id;
        if (r < 0) return r;
    }
    return 0;
}

int ps_encode(struct ps_encoder *e, const char *text, size_t len, bool special, const int32_t **ret,
              size_t *ret_n)
{
    const struct ps_tok *t = e->t;
    e->n = 0;
    if (len > TOK_MAX_TEXT) return -EFBIG;
    if (ps_utf8_valid(text, len) != len) return -EILSEQ;
    int r = reserve(e, TOK_MAX_AFFIX);
    if (r < 0) return r;
    for (uint32_t i = 0; special && i < t->n_prefix; i++) e->out[e->n++] = t->prefix[i];
    if (len) r = encode_set(e, 0, text, len);
    if (r >= 0) r = reserve(e, TOK_MAX_AFFIX);
    if (r < 0) return r;
    for (uint32_t i = 0; special && i < t->n_suffix; i++) e->out[e->n++] = t->suffix[i];
    *ret = e->out;
    *ret_n = e->n;
    return 0;
}
