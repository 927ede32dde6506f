/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a tokenizer, shared by the files of this folder and their tests.
 *
 * tok_files.c reads a folder's files; tok_load.c turns them into a struct ps_tok with the help of tok_json.c (jansson),
 * tok_vocab.c (strings, ids, merges) and tok_added.c (added tokens). After that nothing writes to it. encode.c cuts text at
 * added tokens (tok_added.c), cuts the pieces into words (pretok.c, PCRE2) and merges bytes into tokens (bpe.c). decode.c needs
 * the bytes of the ids only. */
#ifndef PS_TOK_IMPL_H
#define PS_TOK_IMPL_H
#include "engine/tokenizer/tokenizer.h"

enum {
    TOK_MAX_FILE = 64 << 20,  /* bytes of any one file */
    TOK_MAX_IDS = 1 << 22,    /* ids are below this */
    TOK_MAX_ADDED = 1 << 16,  /* added tokens */
    TOK_MAX_CONTENT = 4096,   /* bytes of an added token */
    TOK_MAX_AFFIX = 16,       /* ids in front of a text, and behind it */
    TOK_MAX_TEXT = 1 << 30,   /* bytes given to one ps_encode */
    TOK_CACHE_SLOTS = 1 << 14 /* words that an encoder remembers */
};

enum { TOK_USED = 1, TOK_SPECIAL = 2, TOK_ADDED = 4, TOK_RAW = 8, TOK_EXTRA = 16 };

/* What an id stands for: bytes in the tokenizer's block. TOK_RAW: its text has characters outside the byte alphabet, so that
 * they stand for themselves. TOK_EXTRA: the model's vocabulary lacks it, only an added token has this id. */
struct tok_entry {
    uint32_t off;
    uint32_t len : 24, flags : 8;
};

struct tok_merge {
    uint64_t pair; /* left id << 32 | right id; TOK_NO_PAIR = free slot */
    uint32_t rank;
    int32_t id;
};
#define TOK_NO_PAIR UINT64_MAX

/* A token looked for in the text itself. */
struct tok_added {
    uint32_t off, len; /* content in the block, as written */
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
};

/* Hugging Face looks for tokens with normalized = false first, then in what is left for the others. */
struct tok_set {
    uint32_t *sorted; /* indices into added[], by content */
    uint32_t n;
    bool first[256]; /* bytes that a content starts with */
};

struct tok_pretok; /* pretok.c */

struct ps_tok {
    struct tok_entry *entry;
    uint32_t n_ids;
    char *block;
    size_t block_len, block_cap;
    uint32_t *slot; /* hash of bytes -> id + 1, 0 = free */
    uint32_t slot_mask;
    uint32_t max_len; /* bytes of the longest entry */
    uint64_t hash;
    struct tok_merge *merge;
    uint32_t merge_mask, n_merges;
    struct tok_added *added;
    uint32_t n_added;
    size_t cap_added;
    struct tok_set set[2];
    int32_t byte_id[256]; /* -1: the vocabulary lacks it */
    int32_t unk, bos;
    int32_t prefix[TOK_MAX_AFFIX], suffix[TOK_MAX_AFFIX];
    uint32_t n_prefix, n_suffix;
    bool in_order; /* whatever a rule joins is made by rules of lower rank */
    bool add_prefix_space, use_regex, ignore_merges, fuse_unk;
    struct tok_pretok *pretok;
};

/* ---- tok_files.c: a tokenizer's files in memory; data NULL = absent */
enum { TOK_FAST, TOK_VOCAB, TOK_MERGES, TOK_CONFIG, TOK_SPECIAL_MAP, TOK_ADDED_IDS, TOK__FILES };
struct tok_file {
    char *data;
    size_t len;
};
struct tok_files {
    const char *folder; /* for messages */
    struct tok_file f[TOK__FILES];
};
extern const char *const tok_file_name[TOK__FILES];
int tok_files_read(const char *folder, struct tok_files *ret, struct ps_detail *dt) ps_must_check;
void tok_files_done(struct tok_files *fs);

/* ---- tok_load.c */
int tok_build(const struct tok_files *fs, struct ps_tok **ret, struct ps_detail *dt) ps_must_check;

/* ---- tok_vocab.c. `where` is "folder/file", for messages. */
/* Room for ids below n_ids and about `bytes` of text. */
int tok_vocab_init(struct ps_tok *t, uint32_t n_ids, uint32_t n_tokens, size_t bytes) ps_must_check;
/* Enters a token's text under an id that is free (checked). */
int tok_vocab_add(struct ps_tok *t, const char *text, size_t len, int32_t id, const char *where,
                  struct ps_detail *dt) ps_must_check;
/* The id of a token's text (at most TOK_MAX_CONTENT bytes), -1 = none. */
int32_t tok_vocab_find(const struct ps_tok *t, const char *text, size_t len);
/* The id of the vocabulary's own token for these bytes, -1 = none. */
int32_t tok_vocab_find_bytes(const struct ps_tok *t, const char *bytes, size_t len);
int tok_block_put(struct ps_tok *t, const char *s, size_t len, uint32_t *ret_off) ps_must_check;
int tok_merges_init(struct ps_tok *t, size_t n) ps_must_check;
/* The next rule, by texts; rank is its place in the list. */
int tok_merges_add(struct ps_tok *t, const char *a, size_t a_len, const char *b, size_t b_len,
                   uint32_t rank, const char *where, struct ps_detail *dt) ps_must_check;
int tok_merges_text(struct ps_tok *t, const char *data, size_t len, const char *where,
                    struct ps_detail *dt) ps_must_check;
/* When all are in: finds in_order. */
int tok_merges_look(struct ps_tok *t) ps_must_check;
static inline const struct tok_merge *tok_merge_find(const struct ps_tok *t, int32_t a, int32_t b)
{
    uint64_t pair = (uint64_t) (uint32_t) a << 32 | (uint32_t) b;
    uint32_t i = (uint32_t) ((pair * 0x9e3779b97f4a7c15u) >> 32) & t->merge_mask;
    for (;; i = (i + 1) & t->merge_mask) {
        const struct tok_merge *m = &t->merge[i];
        if (m->pair == pair) return m;
        if (m->pair == TOK_NO_PAIR) return NULL;
    }
}

/* ---- tok_added.c */
int tok_added_add(struct ps_tok *t, const char *text, size_t len, struct tok_added flags,
                  const char *where, struct ps_detail *dt) ps_must_check;
int tok_added_sort(struct ps_tok *t) ps_must_check; /* once, when all are in */

/* Walks over the tokens of one set in a text, giving the plain stretches between them as well. */
struct tok_scan {
    const struct ps_tok *t;
    const struct tok_set *set;
    const char *s;
    size_t len;
    size_t pos;         /* where to look on */
    size_t done;        /* everything before has been given out */
    size_t blank_until; /* white space known to reach here */
    bool held;          /* `next` waits: the stretch before it went first */
    struct tok_span {
        int32_t id; /* -1: plain text */
        size_t start, end;
    } next;
};
void tok_scan_init(struct tok_scan *sc, const struct ps_tok *t, int set, const char *s, size_t len);
bool tok_scan_next(struct tok_scan *sc, struct tok_span *ret);

/* ---- tok_utf8.c */
extern const uint16_t
    tok_byte_char[256];       /* GPT-2's alphabet: the character that stands for a byte */
bool tok_is_space(int32_t c); /* Unicode's White_Space */
bool tok_is_word(int32_t c);  /* \w of Rust's regex crate */
size_t tok_char_at(const char *s, size_t n, int32_t *c);  /* of valid UTF-8: its length */
size_t tok_char_end(const char *s, size_t n, int32_t *c); /* the last one before n */
/* A token's text to its bytes, at most len of them: false = it has other characters, nothing is written that counts. */
bool tok_text_to_bytes(const char *text, size_t len, char *ret, size_t *ret_len);

/* ---- pretok.c */
int tok_pretok_open(bool jit, struct tok_pretok **ret, struct ps_detail *dt) ps_must_check;
void tok_pretok_close(struct tok_pretok *p); /* takes NULL */
bool tok_pretok_jit(const struct tok_pretok *p);
/* A thread's own part of it. */
struct tok_words;
int tok_words_open(const struct tok_pretok *p, struct tok_words **ret) ps_must_check;
void tok_words_close(struct tok_words *w); /* takes NULL */
/* The end of the word that starts at `at` (< len); < 0 is an error. Valid UTF-8 only. */
int64_t tok_words_next(struct tok_words *w, const char *s, size_t len, size_t at);

/* ---- bpe.c, bpe_rounds.c: scratch for one word */
struct tok_node { /* a byte of the word, or the token that begins there */
    int32_t id;   /* -1: it is part of the token before */
    uint32_t prev, next;
};
struct tok_bpe {
    struct tok_node *node;
    uint64_t *heap; /* rank << 32 | position */
    size_t cap, n_heap;
    struct tok_rounds *rounds; /* bpe_rounds.c */
    uint64_t work;             /* steps taken, for the tests of growth */
};
enum { TOK_SHORT = 32 };
/* Merges n ids in place, returns how many are left. Short words need no scratch. */
int tok_bpe_merge(struct tok_bpe *b, const struct ps_tok *t, int32_t *id, size_t n,
                  size_t *ret_n) ps_must_check;
void tok_bpe_done(struct tok_bpe *b);
/* The same for a long word, of which b->node has room, by rules in training's order (ps_tok.in_order). */
int tok_rounds_merge(struct tok_bpe *b, const struct ps_tok *t, size_t n) ps_must_check;
void tok_rounds_close(struct tok_rounds *r); /* takes NULL */

/* ---- encode.c */
struct tok_cached {
    uint8_t len, n; /* len 0 = free */
    char word[30];
    int32_t id[8];
};
struct ps_encoder {
    const struct ps_tok *t;
    struct tok_words *words;
    struct tok_bpe bpe;
    struct tok_cached *cache;
    int32_t *out;
    size_t n, cap;
    char *joined; /* a piece with a space in front */
    size_t joined_cap;
};
#endif
