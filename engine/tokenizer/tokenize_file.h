/* SPDX-License-Identifier: Apache-2.0 */
/* The work of `penstock tokenize`: a whole text file to one JSON list of ids, and such a list back to text. Both stream: memory
 * stays at a few MiB, but for a text without any space to cut at (at most 1 GiB). */
#ifndef PS_TOKENIZE_FILE_H
#define PS_TOKENIZE_FILE_H
#include "engine/tokenizer/tokenizer.h"
#include <stdio.h>

/* Writes "[2, 31414, 232]\n". `special`: with the model's prefix (OPT: </s>). Text that is not UTF-8 is -EILSEQ and names the
 * byte. */
int ps_tokenize_file(const struct ps_tok *t, const char *path, bool special, FILE *out,
                     struct ps_detail *dt) ps_must_check;
/* Writes the text of a JSON list of ids, and nothing else. `special`: with the text of special tokens. Anything but a list of ids that
 * have a token is -PS_EFORMAT. */
int ps_detokenize_file(const struct ps_tok *t, const char *path, bool special, FILE *out,
                       struct ps_detail *dt) ps_must_check;
#endif
