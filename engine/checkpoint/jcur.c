/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/checkpoint/jcur.h"
#include <string.h>

enum { DEPTH_MAX = 64 };

static int bad(struct ps_jcur *c, const char *what)
{
    c->err = what;
    return -PS_EFORMAT;
}

void ps_jcur_init(struct ps_jcur *c, char *text, size_t len)
{
    *c = (struct ps_jcur) { .p = text, .end = text + len, .start = text };
}

static void white(struct ps_jcur *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

int ps_jcur_open(struct ps_jcur *c, char bracket)
{
    white(c);
    if (c->p == c->end || *c->p != bracket)
        return bad(c, bracket == '{' ? "an object was expected" : "an array was expected");
    c->p++;
    c->first = true;
    return 0;
}

/* Behind the first element: ',' or the closing bracket. 1: an element follows. */
static int separator(struct ps_jcur *c, char closing)
{
    white(c);
    if (c->p == c->end) return bad(c, "the text ends too early");
    if (*c->p == closing) {
        c->p++;
        c->first = false;
        return 0;
    }
    if (c->first) {
        c->first = false;
        return 1;
    }
    if (*c->p != ',') return bad(c, "a comma or closing bracket was expected");
    c->p++;
    white(c);
    if (c->p < c->end && *c->p == closing) return bad(c, "a value was expected after the comma");
    return 1;
}

int ps_jcur_next(struct ps_jcur *c) { return separator(c, ']'); }

int ps_jcur_key(struct ps_jcur *c, char **key)
{
    size_t len;
    int r = separator(c, '}');
    if (r <= 0) return r;
    if ((r = ps_jcur_str(c, key, &len)) < 0) return r;
    white(c);
    if (c->p == c->end || *c->p != ':') return bad(c, "a colon was expected");
    c->p++;
    return 1;
}

static int hex4(const char *p, unsigned *ret)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        char h = p[i];
        unsigned d;
        if (h >= '0' && h <= '9')
            d = (unsigned) (h - '0');
        else if ((h | 32) >= 'a' && (h | 32) <= 'f')
            d = (unsigned) ((h | 32) - 'a') + 10;
        else
            return -1;
        v = v << 4 | d;
    }
    *ret = v;
    return 0;
}

/* \uXXXX behind the 'u' (a surrogate pair takes two), as UTF-8 to *w. It never needs more room than the escape took. */
static int unicode(struct ps_jcur *c, char **w)
{
    unsigned u, lo;
    if (c->end - c->p < 4 || hex4(c->p, &u) < 0) return bad(c, "a broken \\u escape");
    c->p += 4;
    if (u == 0) return bad(c, "NUL in a string");
    if (u >= 0xdc00 && u < 0xe000) return bad(c, "a lone surrogate");
    if (u >= 0xd800 && u < 0xdc00) {
        if (c->end - c->p < 6 || c->p[0] != '\\' || c->p[1] != 'u' || hex4(c->p + 2, &lo) < 0 ||
            lo < 0xdc00 || lo > 0xdfff)
            return bad(c, "a lone surrogate");
        c->p += 6;
        u = 0x10000 + ((u - 0xd800) << 10) + (lo - 0xdc00);
    }
    char *o = *w;
    if (u < 0x80) {
        *o++ = (char) u;
    } else if (u < 0x800) {
        *o++ = (char) (0xc0 | u >> 6);
        *o++ = (char) (0x80 | (u & 63));
    } else if (u < 0x10000) {
        *o++ = (char) (0xe0 | u >> 12);
        *o++ = (char) (0x80 | (u >> 6 & 63));
        *o++ = (char) (0x80 | (u & 63));
    } else {
        *o++ = (char) (0xf0 | u >> 18);
        *o++ = (char) (0x80 | (u >> 12 & 63));
        *o++ = (char) (0x80 | (u >> 6 & 63));
        *o++ = (char) (0x80 | (u & 63));
    }
    *w = o;
    return 0;
}

/* Length of the well-formed UTF-8 character at p (Unicode, table 3-7), 0 if it is none. */
static int utf8_len(const char *text, const char *end)
{
    const unsigned char *p = (const unsigned char *) text;
    ptrdiff_t left = end - text;
    unsigned char a = p[0], lo = 0x80, hi = 0xbf;
    int n;
    if (a < 0x80) return 1;
    if (a >= 0xc2 && a <= 0xdf) {
        n = 2;
    } else if (a >= 0xe0 && a <= 0xef) {
        n = 3;
        if (a == 0xe0) lo = 0xa0;
        if (a == 0xed) hi = 0x9f;
    } else if (a >= 0xf0 && a <= 0xf4) {
        n = 4;
        if (a == 0xf0) lo = 0x90;
        if (a == 0xf4) hi = 0x8f;
    } else {
        return 0;
    }
    if (left < n || p[1] < lo || p[1] > hi) return 0;
    for (int i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return n;
}

static int escape(struct ps_jcur *c, char **w)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (c->p == c->end) return bad(c, "the text ends inside a string");
    char e = *c->p++;
    if (e == 'u') return unicode(c, w);
    const char *at = e ? strchr(from, e) : NULL;
    if (!at) return bad(c, "an unknown escape");
    *(*w)++ = to[at - from];
    return 0;
}

int ps_jcur_str(struct ps_jcur *c, char **ret, size_t *ret_len)
{
    white(c);
    if (c->p == c->end || *c->p != '"') return bad(c, "a string was expected");
    char *w = ++c->p;
    *ret = w;
    for (;;) {
        if (c->p == c->end) return bad(c, "the text ends inside a string");
        unsigned char ch = (unsigned char) *c->p;
        if (ch == '"') break;
        if (ch < 0x20) return bad(c, "a control character in a string");
        if (ch == '\\') {
            c->p++;
            int r = escape(c, &w);
            if (r < 0) return r;
            continue;
        }
        int n = utf8_len(c->p, c->end);
        if (!n) return bad(c, "a string that is not UTF-8");
        memmove(w, c->p, (size_t) n);
        w += n;
        c->p += n;
    }
    *w = 0; /* at the latest over the closing quote */
    c->p++;
    *ret_len = (size_t) (w - *ret);
    return 0;
}

int ps_jcur_u64(struct ps_jcur *c, uint64_t *ret)
{
    white(c);
    const char *from = c->p;
    uint64_t v = 0;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9') {
        uint64_t d = (uint64_t) (*c->p - '0');
        if (v > (UINT64_MAX - d) / 10) return bad(c, "an integer that is too large");
        v = v * 10 + d;
        c->p++;
    }
    if (c->p == from || (*from == '0' && c->p - from > 1))
        return bad(c, "a non-negative integer was expected");
    if (c->p < c->end && (*c->p == '.' || *c->p == 'e' || *c->p == 'E'))
        return bad(c, "an integer was expected");
    *ret = v;
    return 0;
}

static int number_or_word(struct ps_jcur *c)
{
    static const char *const words[] = { "true", "false", "null" };
    for (size_t i = 0; i < PS_ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i]);
        if ((size_t) (c->end - c->p) >= n && !memcmp(c->p, words[i], n)) {
            c->p += n;
            return 0;
        }
    }
    const char *from = c->p;
    while (c->p < c->end && *c->p && strchr("+-.0123456789eE", *c->p)) c->p++;
    return c->p == from ? bad(c, "a value was expected") : 0;
}

int ps_jcur_skip(struct ps_jcur *c)
{
    char close[DEPTH_MAX];
    int depth = 0;
    char *text;
    size_t len;
    for (;;) {
        int r = 1;
        white(c);
        if (c->p == c->end) return bad(c, "the text ends too early");
        if (*c->p == '{' || *c->p == '[') {
            if (depth == DEPTH_MAX) return bad(c, "nested too deep");
            close[depth++] = *c->p == '{' ? '}' : ']';
            c->p++;
            c->first = true;
        } else if ((r = *c->p == '"' ? ps_jcur_str(c, &text, &len) : number_or_word(c)) < 0) {
            return r;
        }
        for (;;) {
            if (!depth) return 0;
            r = close[depth - 1] == '}' ? ps_jcur_key(c, &text) : ps_jcur_next(c);
            if (r < 0) return r;
            if (r) break;
            depth--;
        }
    }
}

int ps_jcur_done(struct ps_jcur *c)
{
    white(c);
    return c->p == c->end ? 0 : bad(c, "something follows the end");
}
