/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE as OPT uses it (GPT-2's), from vocab.json + merges.txt or tokenizer.json, encoded and decoded as Hugging
 * Face's tokenizers do. A tokenizer is read-only once open; encoders and decoders keep their own state, so several threads
 * may each have one. */
#ifndef PS_TOKENIZER_H
#define PS_TOKENIZER_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

struct ps_tok;

/* From a model folder. -ENOENT (with a detail) when it has no tokenizer files at all; other errors name file and line. */
int ps_tok_open(const char *folder, struct ps_tok **ret, struct ps_detail *dt) ps_must_check;
void ps_tok_close(struct ps_tok *t);           /* takes NULL */
uint64_t ps_tok_hash(const struct ps_tok *t);  /* of its files' bytes */
uint32_t ps_tok_vocab(const struct ps_tok *t); /* greatest id + 1 */
int32_t ps_tok_bos(const struct ps_tok *t);    /* put in front by encode(special); -1 = none */
bool ps_tok_is_special(const struct ps_tok *t, int32_t id);
/* The bytes that a token stands for (not terminated; may be part of a character); special tokens give their text.
 * NULL for an id without a token. Static as long as t. */
const char *ps_tok_bytes(const struct ps_tok *t, int32_t id, size_t *ret_len);

/* Text to ids. One encoder a thread; its memory is kept between calls. */
struct ps_encoder;
int ps_encoder_open(const struct ps_tok *t, struct ps_encoder **ret) ps_must_check;
void ps_encoder_close(struct ps_encoder *e); /* takes NULL */
/* Encodes `len` bytes of valid UTF-8 (NUL allowed). `special`: puts the model's prefix (OPT: </s>) in front. Special tokens that
 * stand in the text are recognised as Hugging Face does. *ret points to the encoder's memory, valid until its next call. -EILSEQ for what
 * is not UTF-8, -EFBIG for more than 1 GiB, -ENOMEM. */
int ps_encode(struct ps_encoder *e, const char *text, size_t len, bool special, const int32_t **ret,
              size_t *ret_n) ps_must_check;

/* Streaming detokeniser: bytes of an unfinished character wait; bytes that can never become one are U+FFFD. What it puts out
 * is valid UTF-8 always. Plain struct, no allocation. */
struct ps_decoder {
    const struct ps_tok *tok;
    bool skip_special; /* special tokens give no text */
    uint8_t wait[4];
    uint8_t n_wait;
};
enum { PS_DECODE_SLACK = 16 }; /* bytes that out needs beyond 3 x the token's own */
/* Longest output of one token: size of `out` that always suffices. */
size_t ps_tok_longest(const struct ps_tok *t);
/* Writes what token id adds; returns the number of bytes. */
size_t ps_decode(struct ps_decoder *d, int32_t id, char *out);
/* The end: what still waits becomes U+FFFD. */
size_t ps_decode_end(struct ps_decoder *d, char *out);
#endif
