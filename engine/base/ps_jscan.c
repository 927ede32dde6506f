/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_jscan.h"
#include "engine/base/ps_utf8.h"
#include <math.h>
#include <string.h>

bool ps_jstr_is(struct ps_jstr s, const char *text)
{
    return s.len == strlen(text) && !memcmp(s.s, text, s.len);
}

void ps_jscan_init(struct ps_jscan *c, char *text, size_t len)
{
    *c = (struct ps_jscan) { .p = text, .end = text + len, .start = text };
}

int ps_jscan_fail(struct ps_jscan *c, const char *what)
{
    c->err = what;
    return -PS_EFORMAT;
}

static int bad(struct ps_jscan *c, char *at, const char *what)
{
    c->p = at;
    return ps_jscan_fail(c, what);
}

static void white(struct ps_jscan *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

enum ps_jtype ps_jscan_type(struct ps_jscan *c)
{
    white(c);
    if (c->p == c->end) return PS_J_NONE;
    switch (*c->p) {
    case '{': return PS_J_OBJECT;
    case '[': return PS_J_ARRAY;
    case '"': return PS_J_STRING;
    case 't': return PS_J_TRUE;
    case 'f': return PS_J_FALSE;
    case 'n': return PS_J_NULL;
    default: return *c->p == '-' || (*c->p >= '0' && *c->p <= '9') ? PS_J_NUMBER : PS_J_NONE;
    }
}

/* ---- objects and arrays */

int ps_jscan_open(struct ps_jscan *c, char bracket)
{
    white(c);
    if (c->p == c->end || *c->p != bracket)
        return ps_jscan_fail(c,
                             bracket == '{' ? "an object was expected" : "an array was expected");
    c->p++;
    c->first = true;
    return 0;
}

/* In front of the first element, or of a comma, or of the closing bracket. 1: an element follows. */
static int separator(struct ps_jscan *c, char closing)
{
    white(c);
    bool first = c->first;
    c->first = false;
    if (c->p == c->end) return ps_jscan_fail(c, "it ends too early");
    if (*c->p == closing) {
        c->p++;
        return 0;
    }
    if (first) return 1;
    if (*c->p != ',') return ps_jscan_fail(c, "a comma or the closing bracket was expected");
    c->p++;
    white(c);
    if (c->p < c->end && *c->p == closing)
        return ps_jscan_fail(c, "a value was expected after the comma");
    return 1;
}

int ps_jscan_next(struct ps_jscan *c) { return separator(c, ']'); }

int ps_jscan_key(struct ps_jscan *c, struct ps_jstr *ret)
{
    int r = separator(c, '}');
    if (r <= 0) return r;
    if (ps_jscan_type(c) != PS_J_STRING)
        return ps_jscan_fail(c, "a key in double quotes was expected");
    if ((r = ps_jscan_raw(c, ret)) < 0) return r;
    white(c);
    if (c->p == c->end || *c->p != ':') return ps_jscan_fail(c, "a colon was expected");
    c->p++;
    return 1;
}

/* ---- strings */

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char h = p[i];
        int d = h >= '0' && h <= '9'                 ? h - '0'
                : (h | 32) >= 'a' && (h | 32) <= 'f' ? (h | 32) - 'a' + 10
                                                     : -1;
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    return v;
}

/* Bytes of the escape at p, a backslash; 0 with *why. */
static size_t escape_len(const char *p, const char *end, const char **why)
{
    size_t left = (size_t) (end - p);
    *why = "a broken escape in a string";
    if (left < 2) return 0;
    if (p[1] != 'u') return memchr("\"\\/bfnrt", p[1], 8) ? 2 : 0;
    int u = left < 6 ? -1 : hex4(p + 2);
    if (u < 0) return 0;
    if (u < 0xd800 || u > 0xdfff) return 6;
    *why = "a lone surrogate in a string";
    if (u > 0xdbff || left < 12 || p[6] != '\\' || p[7] != 'u') return 0;
    int low = hex4(p + 8);
    return low >= 0xdc00 && low <= 0xdfff ? 12 : 0;
}

int ps_jscan_raw(struct ps_jscan *c, struct ps_jstr *ret)
{
    white(c);
    if (c->p == c->end || *c->p != '"') return ps_jscan_fail(c, "a string was expected");
    char *from = c->p + 1, *p = from;
    while (p < c->end && *p != '"') {
        const char *why = "bytes that are not UTF-8";
        if ((uint8_t) *p < 0x20)
            return bad(c, p, "a control character in a string (it must be escaped)");
        size_t n =
            *p == '\\' ? escape_len(p, c->end, &why) : ps_utf8_char(p, (size_t) (c->end - p));
        if (!n) return bad(c, p, why);
        p += n;
    }
    if (p == c->end) return bad(c, p, "a string without an end");
    *ret = (struct ps_jstr) { from, (size_t) (p - from) };
    c->p = p + 1;
    return 0;
}

/* The character of the escape at *in, which moves behind it, to *out. It never takes more room than the escape did. */
static void decode_escape(const char **in, char **out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    char e = (*in)[1];
    const char *f = strchr(from, e);
    if (e != 'u') {
        *in += 2;
        *(*out)++ = f ? to[f - from] : e;
        return;
    }
    int u = hex4(*in + 2);
    *in += 6;
    if (u >= 0xd800 && u <= 0xdbff) {
        u = 0x10000 + ((u - 0xd800) << 10) + (hex4(*in + 2) - 0xdc00);
        *in += 6;
    }
    *out += ps_utf8_put(*out, (uint32_t) u);
}

struct ps_jstr ps_jstr_decode(struct ps_jstr raw)
{
    const char *in = memchr(raw.s, '\\', raw.len), *end = raw.s + raw.len;
    if (!in) return raw;
    char *out = raw.s + (in - raw.s);
    while (in < end) {
        decode_escape(&in, &out);
        const char *next = memchr(in, '\\', (size_t) (end - in));
        size_t n = (size_t) ((next ? next : end) - in);
        memmove(out, in, n);
        out += n;
        in += n;
    }
    raw.len = (size_t) (out - raw.s);
    return raw;
}

/* What a raw string that the cursor has left becomes: terminated at the latest over its closing quote. */
static struct ps_jstr decode_and_end(struct ps_jstr raw)
{
    struct ps_jstr s = ps_jstr_decode(raw);
    s.s[s.len] = 0;
    return s;
}

static int without_nul(struct ps_jscan *c, struct ps_jstr raw, char **ret)
{
    struct ps_jstr s = decode_and_end(raw);
    if (memchr(s.s, 0, s.len)) return bad(c, raw.s, "NUL in a string");
    *ret = s.s;
    return 0;
}

int ps_jscan_name(struct ps_jscan *c, char **ret)
{
    struct ps_jstr raw;
    int r = ps_jscan_key(c, &raw);
    if (r <= 0) return r;
    return (r = without_nul(c, raw, ret)) < 0 ? r : 1;
}

int ps_jscan_str(struct ps_jscan *c, struct ps_jstr *ret)
{
    struct ps_jstr raw;
    int r = ps_jscan_raw(c, &raw);
    if (r < 0) return r;
    *ret = decode_and_end(raw);
    return 0;
}

int ps_jscan_text(struct ps_jscan *c, char **ret)
{
    struct ps_jstr raw;
    int r = ps_jscan_raw(c, &raw);
    return r < 0 ? r : without_nul(c, raw, ret);
}

/* ---- numbers and words */

static char *digits(char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

/* Checks the number at the cursor, which stays; *ret is its end. */
static int number(struct ps_jscan *c, char **ret)
{
    white(c);
    char *p = c->p + (c->p < c->end && *c->p == '-'), *q = digits(p, c->end);
    if (q == p) return bad(c, p, "a number was expected");
    if (*p == '0' && q - p > 1) return bad(c, p, "a number that begins with 0");
    if (q < c->end && *q == '.') {
        p = q + 1;
        q = digits(p, c->end);
        if (q == p) return bad(c, p, "a digit was expected");
    }
    if (q < c->end && (*q == 'e' || *q == 'E')) {
        p = q + 1;
        if (p < c->end && (*p == '+' || *p == '-')) p++;
        q = digits(p, c->end);
        if (q == p) return bad(c, p, "a digit was expected");
    }
    *ret = q;
    return 0;
}

int ps_jscan_int(struct ps_jscan *c, struct ps_jint *ret)
{
    char *end, *at;
    if (ps_jscan_type(c) != PS_J_NUMBER) return ps_jscan_fail(c, "an integer was expected");
    at = c->p;
    int r = number(c, &end);
    if (r < 0) return bad(c, at, c->err);
    bool neg = *at == '-', over = false;
    uint64_t v = 0;
    const char *q = at + neg;
    for (; q < end && *q >= '0' && *q <= '9'; q++) {
        over |= __builtin_mul_overflow(v, (uint64_t) 10, &v);
        over |= __builtin_add_overflow(v, (uint64_t) (*q - '0'), &v);
    }
    if (q < end) return ps_jscan_fail(c, "an integer was expected");
    const uint64_t most = neg ? (uint64_t) 1 << 63 : UINT64_MAX;
    if (over || v > most) {
        *ret = (struct ps_jint) { most, neg };
        c->err = "an integer that is too large";
        return -ERANGE;
    }
    *ret = (struct ps_jint) { v, neg && v };
    c->p = end;
    return 0;
}

int ps_jscan_u64(struct ps_jscan *c, uint64_t *ret)
{
    struct ps_jint v;
    if (ps_jscan_type(c) == PS_J_NUMBER && *c->p == '-')
        return ps_jscan_fail(c, "an integer without a sign was expected");
    if (ps_jscan_int(c, &v) < 0) return -PS_EFORMAT;
    *ret = v.mag;
    return 0;
}

int ps_jscan_double(struct ps_jscan *c, double *ret)
{
    char text[512], *end, *at;
    if (ps_jscan_type(c) != PS_J_NUMBER) return ps_jscan_fail(c, "a number was expected");
    at = c->p;
    int r = number(c, &end);
    if (r < 0) return bad(c, at, c->err);
    size_t n = (size_t) (end - at);
    if (n >= sizeof text) return ps_jscan_fail(c, "a number of too many digits");
    memcpy(text, at, n);
    text[n] = 0;
    double v = strtod(text, NULL);
    if (!isfinite(v)) return ps_jscan_fail(c, "a number that is too large");
    *ret = v;
    c->p = end;
    return 0;
}

static int word(struct ps_jscan *c)
{
    static const char *const words[] = { "true", "false", "null" };
    white(c);
    for (size_t i = 0; i < PS_ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i]);
        if ((size_t) (c->end - c->p) < n || memcmp(c->p, words[i], n) != 0) continue;
        c->p += n;
        return 0;
    }
    return ps_jscan_fail(c, c->p == c->end ? "it ends too early" : "a value was expected");
}

int ps_jscan_bool(struct ps_jscan *c, bool *ret)
{
    enum ps_jtype t = ps_jscan_type(c);
    if (t != PS_J_TRUE && t != PS_J_FALSE) return ps_jscan_fail(c, "true or false was expected");
    int r = word(c);
    if (r < 0) return r;
    *ret = t == PS_J_TRUE;
    return 0;
}

/* ---- whole values */

int ps_jscan_skip(struct ps_jscan *c)
{
    bool is_object[PS_JSCAN_DEPTH];
    unsigned depth = 0;
    do {
        struct ps_jstr s;
        char *end = NULL;
        int r;
        switch (ps_jscan_type(c)) {
        case PS_J_OBJECT:
        case PS_J_ARRAY:
            if (depth == PS_JSCAN_DEPTH) return ps_jscan_fail(c, "nested too deep");
            is_object[depth++] = *c->p == '{';
            r = ps_jscan_open(c, *c->p);
            break;
        case PS_J_STRING: r = ps_jscan_raw(c, &s); break;
        case PS_J_NUMBER:
            r = number(c, &end);
            if (r >= 0) c->p = end;
            break;
        default: r = word(c);
        }
        if (r < 0) return r;
        while (depth && !(r = is_object[depth - 1] ? ps_jscan_key(c, &s) : ps_jscan_next(c)))
            depth--;
        if (r < 0) return r;
    } while (depth);
    return 0;
}

int ps_jscan_done(struct ps_jscan *c)
{
    white(c);
    return c->p == c->end ? 0 : ps_jscan_fail(c, "something follows the value");
}

int ps_jscan_check(char *text, size_t len, struct ps_detail *dt)
{
    struct ps_jscan c;
    ps_jscan_init(&c, text, len);
    if (ps_jscan_skip(&c) >= 0 && ps_jscan_done(&c) >= 0) return 0;
    return ps_fail(dt, -PS_EFORMAT, "column %zu: %s", ps_jscan_at(&c) + 1, c.err);
}
