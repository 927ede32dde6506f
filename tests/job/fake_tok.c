/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the tokenizer library: the same functions, byte by byte. */
#include "engine/base/ps_mem.h"
#include "engine/base/ps_utf8.h"
#include "fake.h"
#include <string.h>

struct ps_tok {
    int none;
};
struct ps_encoder {
    int32_t *ids;
    size_t cap;
};
static struct ps_tok tok;
const struct ps_tok *fake_tok(void) { return &tok; }
void ps_tok_close(struct ps_tok *t) {}
uint32_t ps_tok_vocab(const struct ps_tok *t) { return FAKE_VOCAB; }
int32_t ps_tok_bos(const struct ps_tok *t) { return 2; }
bool ps_tok_is_special(const struct ps_tok *t, int32_t id) { return id < 3; }
uint64_t ps_tok_hash(const struct ps_tok *t) { return 7; }
size_t ps_tok_longest(const struct ps_tok *t) { return 32; }

const char *ps_tok_bytes(const struct ps_tok *t, int32_t id, size_t *ret_len)
{
    static const char *const special[] = { "<s>", "<pad>", "</s>" };
    static const char *const more[] = { "ab", "</", "\xe2\x82" };
    static char bytes[256];
    if (id < 0 || id >= FAKE_VOCAB) return NULL;
    if (id < 3 || id >= 259) {
        const char *s = id < 3 ? special[id] : more[id - 259];
        *ret_len = strlen(s);
        return s;
    }
    bytes[id - 3] = (char) (id - 3);
    *ret_len = 1;
    return &bytes[id - 3];
}

int ps_encoder_open(const struct ps_tok *t, struct ps_encoder **ret)
{
    *ret = ps_calloc(1, sizeof **ret);
    return *ret ? 0 : -ENOMEM;
}
void ps_encoder_close(struct ps_encoder *e)
{
    if (e) free(e->ids);
    free(e);
}
int ps_encode(struct ps_encoder *e, const char *text, size_t len, bool special, const int32_t **ret,
              size_t *ret_n)
{
    if (len + 1 > e->cap) {
        free(e->ids);
        e->cap = 0;
        e->ids = ps_calloc(len + 1, sizeof(int32_t));
        if (!e->ids) return -ENOMEM;
        e->cap = len + 1;
    }
    size_t n = 0;
    if (special) e->ids[n++] = 2;
    for (size_t i = 0; i < len;) {
        bool eos = len - i >= 4 && !memcmp(text + i, "</s>", 4);
        e->ids[n++] = eos ? 2 : 3 + (uint8_t) text[i];
        i += eos ? 4 : 1;
    }
    *ret = e->ids;
    *ret_n = n;
    return 0;
}

/* Bytes gather until they are a character or cannot become one. */
static size_t feed(struct ps_decoder *d, uint8_t c, char *out)
{
    size_t n = 0;
    d->wait[d->n_wait++] = c;
    for (;;) {
        uint8_t w = d->wait[0];
        size_t need = w < 0x80 ? 1 : w >= 0xf0 ? 4 : w >= 0xe0 ? 3 : w >= 0xc2 ? 2 : 0;
        if (need && d->n_wait < need && (d->n_wait == 1 || (d->wait[d->n_wait - 1] & 0xc0) == 0x80))
            return n;
        if (need && d->n_wait == need && ps_utf8_valid((char *) d->wait, need) == need) {
            memcpy(out + n, d->wait, need);
            d->n_wait = 0;
            return n + need;
        }
        memcpy(out + n, "\xef\xbf\xbd", 3);
        n += 3;
        size_t drop =
            d->n_wait > 1 && (d->wait[d->n_wait - 1] & 0xc0) != 0x80 ? d->n_wait - 1u : d->n_wait;
        memmove(d->wait, d->wait + drop, d->n_wait - drop);
        d->n_wait = (uint8_t) (d->n_wait - drop);
        if (!d->n_wait) return n;
    }
}
size_t ps_decode(struct ps_decoder *d, int32_t id, char *out)
{
    size_t len, n = 0;
    if (d->skip_special && id < 3) return 0;
    const char *s = ps_tok_bytes(d->tok, id, &len);
    for (size_t i = 0; s && i < len; i++) n += feed(d, (uint8_t) s[i], out + n);
    return n;
}
size_t ps_decode_end(struct ps_decoder *d, char *out)
{
    if (!d->n_wait) return 0;
    d->n_wait = 0;
    memcpy(out, "\xef\xbf\xbd", 3);
    return 3;
}
