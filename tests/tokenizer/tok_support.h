/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers from strings, and what they make of a text, for the tests of this folder. */
#ifndef TOK_SUPPORT_H
#define TOK_SUPPORT_H
#include "engine/base/ps_mem.h"
#include "engine/tokenizer/tok_impl.h"
#include "ps_cmocka.h"

#ifndef SOURCE_ROOT
#define SOURCE_ROOT "."
#endif

/* All 256 bytes as ids 0-255 in a JSON object's members, without the braces; `more` is put behind. */
const char *tiny_vocab(const char *more);
/* Files from strings; NULL = absent. They are copied. */
struct tok_files tiny_files(const char *vocab, const char *merges, const char *config);
void put_file(struct tok_files *fs, int file, const char *text);
/* Builds, frees the files, fails the test on an error. */
struct ps_tok *must_build(struct tok_files fs);
/* Builds, expects this error and the word in its text. */
void must_refuse(struct tok_files fs, int err, const char *word);

/* "[1, 2, 3]" in a static buffer. */
const char *ids_text(const int32_t *id, size_t n);
const char *encode_text(const struct ps_tok *t, const char *text, size_t len, bool special);
#define assert_ids(t, text, special, want) \
    assert_string_equal(encode_text(t, text, strlen(text), special), want)
/* A whole sequence through a decoder; to be freed. */
char *decode_all(const struct ps_tok *t, const int32_t *id, size_t n, bool skip, size_t *ret_len);
#endif
