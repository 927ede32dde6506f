/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer's JSON files through jansson, and what they say about added tokens, before the tables exist. */
#ifndef PS_TOK_JSON_H
#define PS_TOK_JSON_H
#include "engine/base/ps_json.h"
#include "engine/tokenizer/tok_impl.h"

/* An added token still without its place. */
struct tok_pending {
    const char *text; /* in the JSON tree */
    size_t len;
    const char *file; /* its name, for messages */
    struct tok_added as;
};

struct tok_source {
    const struct tok_files *fs;
    struct ps_detail *dt;
    json_t *root[TOK__FILES]; /* objects; NULL = no such file (merges.txt never is one) */
    json_t *vocab;            /* borrowed: token -> id */
    bool gpt2;                /* the class is GPT2Tokenizer or nothing is said */
    struct tok_pending *pend;
    size_t n_pend, cap_pend;
    json_t *seen;            /* content -> its place in pend */
    int64_t next_id, max_id; /* for a token without one; the greatest in use */
};

/* Parses the files there are. Duplicate keys and anything but an object at the top are refused with file and line. */
int tok_source_open(const struct tok_files *fs, struct tok_source *ret,
                    struct ps_detail *dt) ps_must_check;
void tok_source_done(struct tok_source *s);

/* "folder/file: " in front of what is wrong with it. */
int tok_source_fail(const struct tok_source *s, int file, int err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A boolean or null / absent (then `def`). */
int tok_json_bool(const struct tok_source *s, int file, const json_t *obj, const char *key,
                  bool def, bool *ret) ps_must_check;
/* Whether text is null, absent or empty. */
bool tok_json_nothing(const json_t *v);

/* Gathers the added tokens of all files into pend, each with an id. */
int tok_source_added(struct tok_source *s) ps_must_check;
/* The id of a token's text among vocabulary and added tokens, -1 = none. */
int64_t tok_source_id(const struct tok_source *s, const char *text);
/* The text of "bos_token" and so on as the configuration has it; NULL = none. */
const char *tok_source_named(const struct tok_source *s, const char *name);
#endif
