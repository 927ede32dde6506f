/* SPDX-License-Identifier: Apache-2.0 */
/* A model folder's tokenizer files, and a text for what comes of them. The input is seven parts with a byte 0x1e between them:
 * tokenizer.json, vocab.json, merges.txt, tokenizer_config.json, special_tokens_map.json, added_tokens.json, the text. An empty part is a
 * file that is not there. */
#include "engine/base/ps_utf8.h"
#include "engine/tokenizer/tok_impl.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *copy(const uint8_t *p, size_t n)
{
    char *s = malloc(n + 1);
    if (!s) abort();
    memcpy(s, p, n);
    s[n] = 0;
    return s;
}

static void use(const struct ps_tok *t, const uint8_t *text, size_t len)
{
    struct ps_encoder *e;
    const int32_t *id;
    size_t n;
    if (ps_encoder_open(t, &e) < 0) abort();
    if (ps_encode(e, (const char *) text, len, true, &id, &n) >= 0) {
        struct ps_decoder d = { .tok = t };
        char *out = malloc(ps_tok_longest(t));
        if (!out) abort();
        for (size_t i = 0; i < n; i++) {
            if (id[i] < 0 || (uint32_t) id[i] >= ps_tok_vocab(t)) abort();
            size_t k = ps_decode(&d, id[i], out);
            if (k > ps_tok_longest(t) || ps_utf8_valid(out, k) != k) abort();
        }
        if (ps_decode_end(&d, out) > 3) abort();
        free(out);
    }
    ps_encoder_close(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tok_files fs = { .folder = "fuzz" };
    struct ps_tok *t = NULL;
    struct ps_detail dt = { "" };
    for (int i = 0; i < TOK__FILES; i++) {
        const uint8_t *end = size ? memchr(data, 0x1e, size) : NULL;
        size_t n = end ? (size_t) (end - data) : size;
        if (n) fs.f[i] = (struct tok_file) { copy(data, n), n };
        data += n + (end ? 1 : 0);
        size -= n + (end ? 1 : 0);
    }
    if (fs.f[TOK_FAST].data)
        for (int i = TOK_VOCAB; i <= TOK_MERGES; i++) {
            free(fs.f[i].data);
            fs.f[i] = (struct tok_file) { 0 };
        }
    int r = tok_build(&fs, &t, &dt);
    if (r < 0 && r != -ENOMEM && !dt.text[0]) abort(); /* every refusal says why */
    tok_files_done(&fs);
    if (r >= 0) use(t, data, size);
    ps_tok_close(t);
    return 0;
}
