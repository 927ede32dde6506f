/* SPDX-License-Identifier: Apache-2.0 */
/* Ids back to text. A token may end within a character: the bytes of a character that can still become whole wait. What cannot
 * is replaced by U+FFFD, one for each maximal subpart (Unicode 3.9, as Python and Rust do). */
#include "engine/base/ps_utf8.h"
#include "engine/tokenizer/tok_impl.h"
#include <string.h>

static const char replacement[3] = { '\xef', '\xbf', '\xbd' };

/* Whether the character that waits may go on with this byte. */
static bool goes_on(const struct ps_decoder *d, uint8_t b)
{
    return d->n_wait == 1 ? ps_utf8_second(d->wait[0], b) : (b & 0xc0) == 0x80;
}

static size_t put_byte(struct ps_decoder *d, uint8_t b, char *out)
{
    size_t n = 0;
    if (d->n_wait) {
        if (goes_on(d, b)) {
            d->wait[d->n_wait++] = b;
            if (d->n_wait < ps_utf8_lead(d->wait[0])) return 0;
            n = d->n_wait;
            memcpy(out, d->wait, n);
            d->n_wait = 0;
            return n;
        }
        n = ps_decode_end(d, out);
    }
    switch (ps_utf8_lead(b)) {
    case 0: memcpy(out + n, replacement, 3); return n + 3;
    case 1: out[n] = (char) b; return n + 1;
    default:
        d->wait[0] = b;
        d->n_wait = 1;
        return n;
    }
}

size_t ps_tok_longest(const struct ps_tok *t) { return 3 * (size_t) t->max_len + PS_DECODE_SLACK; }

size_t ps_decode(struct ps_decoder *d, int32_t id, char *out)
{
    size_t len, n = 0;
    const char *s = ps_tok_bytes(d->tok, id, &len);
    if (!s || (d->skip_special && ps_tok_is_special(d->tok, id))) return 0;
    for (size_t i = 0; i < len; i++) n += put_byte(d, (uint8_t) s[i], out + n);
    return n;
}

size_t ps_decode_end(struct ps_decoder *d, char *out)
{
    if (!d->n_wait) return 0;
    d->n_wait = 0;
    memcpy(out, replacement, 3);
    return 3;
}
