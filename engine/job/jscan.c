/* SPDX-License-Identifier: Apache-2.0 */
/* The checker is a loop with a bit stack for the nesting; the cursor functions rely on it having passed. */
#include "engine/job/jscan.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of the valid character at s, or 0. */
static size_t utf8_char(const uint8_t *s, size_t left)
{
    if (s[0] < 0x80) return 1;
    size_t n = s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (!n || left < n) return 0;
    uint8_t lo = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t hi = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < lo || s[1] > hi) return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return n;
}

size_t ps_utf8_valid(const char *s, size_t len)
{
    size_t i = 0;
    while (i < len) {
        size_t n = utf8_char((const uint8_t *) s + i, len - i);
        if (!n) break;
        i += n;
    }
    return i;
}

size_t ps_utf8_points(const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((uint8_t) s[i] & 0xc0) != 0x80;
    return n;
}

static int hex4(const char *p, const char *end)
{
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    return v;
}

static const char *skip_ws(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) p++;
    return p;
}

/* p stands behind a backslash. Returns the end of the escape, or NULL with *why set. */
static const char *check_escape(const char *p, const char *end, const char **why)
{
    *why = "bad escape in a string";
    if (p >= end) return NULL;
    if (*p != 'u') return memchr("\"\\/bfnrt", *p, 8) ? p + 1 : NULL;
    int u = hex4(p + 1, end);
    if (u < 0) return NULL;
    p += 5;
    if (u < 0xd800 || u > 0xdfff) return p;
    *why = "lone surrogate in a string";
    if (u > 0xdbff || end - p < 6 || p[0] != '\\' || p[1] != 'u') return NULL;
    int low = hex4(p + 2, end);
    return low >= 0xdc00 && low <= 0xdfff ? p + 6 : NULL;
}

/* p stands behind the opening quote. */
static const char *check_string(const char *p, const char *end, const char **why, const char **at)
{
    while (p < end && *p != '"') {
        *at = p;
        if (*p == '\\') {
            const char *q = check_escape(p + 1, end, why);
            if (!q) return NULL;
            p = q;
        } else if ((uint8_t) *p < 0x20) {
            *why = "control character in a string (it must be escaped)";
            return NULL;
        } else {
            size_t n = utf8_char((const uint8_t *) p, (size_t) (end - p));
            if (!n) {
                *why = "bytes that are not UTF-8";
                return NULL;
            }
            p += n;
        }
    }
    *at = p;
    *why = "string without an end";
    return p < end ? p + 1 : NULL;
}

static const char *digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

static const char *check_number(const char *p, const char *end)
{
    if (p < end && *p == '-') p++;
    const char *q = digits(p, end);
    if (q == p || (*p == '0' && q - p > 1)) return NULL;
    if (q < end && *q == '.') {
        p = q + 1;
        q = digits(p, end);
        if (q == p) return NULL;
    }
    if (q < end && (*q == 'e' || *q == 'E')) {
        p = q + 1;
        if (p < end && (*p == '+' || *p == '-')) p++;
        q = digits(p, end);
        if (q == p) return NULL;
    }
    return q;
}

/* A value that is neither object nor array. */
static const char *check_scalar(const char *p, const char *end, const char **why, const char **at)
{
    static const char *const words[] = { "true", "false", "null" };
    *at = p;
    if (*p == '"') return check_string(p + 1, end, why, at);
    *why = "bad number";
    if (*p == '-' || (*p >= '0' && *p <= '9')) return check_number(p, end);
    *why = "a value was expected";
    for (size_t i = 0; i < PS_ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i]);
        if ((size_t) (end - p) >= n && !memcmp(p, words[i], n)) return p + n;
    }
    return NULL;
}

/* What may stand at p next. */
enum want { WANT_VALUE, WANT_VALUE_OR_END, WANT_KEY, WANT_KEY_OR_END, WANT_MORE };

struct check {
    const char *p, *end, *why, *at;
    unsigned depth;
    enum want want;
    uint8_t is_object[PS_JSON_DEPTH];
};

static bool check_key(struct check *c)
{
    c->at = c->p;
    c->why = "a key in double quotes was expected";
    if (*c->p != '"') return false;
    c->p = check_string(c->p + 1, c->end, &c->why, &c->at);
    if (!c->p) return false;
    c->at = c->p = skip_ws(c->p, c->end);
    c->why = "':' was expected";
    if (c->p >= c->end || *c->p != ':') return false;
    c->p++;
    c->want = WANT_VALUE;
    return true;
}

static bool check_value(struct check *c)
{
    if (*c->p != '{' && *c->p != '[') {
        c->p = check_scalar(c->p, c->end, &c->why, &c->at);
        c->want = WANT_MORE;
        return c->p;
    }
    c->at = c->p;
    c->why = "nested too deep";
    if (c->depth == PS_JSON_DEPTH) return false;
    bool object = *c->p++ == '{';
    c->is_object[c->depth++] = object;
    c->want = object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    return true;
}

static bool check_close(struct check *c)
{
    if (*c->p != (c->is_object[c->depth - 1] ? '}' : ']')) return false;
    c->p++;
    c->depth--;
    c->want = WANT_MORE;
    return true;
}

static bool check_step(struct check *c)
{
    switch (c->want) {
    case WANT_KEY_OR_END:
        if (check_close(c)) return true;
        __attribute__((fallthrough));
    case WANT_KEY: return check_key(c);
    case WANT_VALUE_OR_END:
        if (check_close(c)) return true;
        __attribute__((fallthrough));
    case WANT_VALUE: return check_value(c);
    case WANT_MORE:
        if (check_close(c)) return true;
        c->at = c->p;
        c->why = "',' or the end of the list or object was expected";
        if (*c->p != ',') return false;
        c->p++;
        c->want = c->is_object[c->depth - 1] ? WANT_KEY : WANT_VALUE;
        return true;
    }
    return false;
}

int ps_json_check(const char *s, size_t len, struct ps_detail *dt)
{
    struct check c = { .p = s, .end = s + len, .at = s, .want = WANT_VALUE };
    do {
        c.p = skip_ws(c.p, c.end);
        c.at = c.p;
        c.why = "it ends too early";
        if (c.p == c.end || !check_step(&c))
            return ps_fail(dt, -EINVAL, "column %zu: %s", (size_t) (c.at - s) + 1, c.why);
    } while (c.depth);
    c.p = skip_ws(c.p, c.end);
    if (c.p != c.end)
        return ps_fail(dt, -EINVAL, "column %zu: something follows the value",
                       (size_t) (c.p - s) + 1);
    return 0;
}

/* ---- the cursor */

static void ws(struct ps_jwalk *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

enum ps_jtype ps_j_type(struct ps_jwalk *c)
{
    ws(c);
    if (c->p >= c->end) return PS_J_NONE;
    switch (*c->p) {
    case '{': return PS_J_OBJECT;
    case '[': return PS_J_ARRAY;
    case '"': return PS_J_STRING;
    case 't': return PS_J_TRUE;
    case 'f': return PS_J_FALSE;
    case 'n': return PS_J_NULL;
    default: return PS_J_NUMBER;
    }
}

static void skip_scalar(struct ps_jwalk *c)
{
    if (c->p < c->end && *c->p == '"') {
        (void) ps_j_raw(c);
        return;
    }
    while (c->p < c->end && !memchr(",]} \t\r\n", *c->p, 7)) c->p++;
}

void ps_j_skip(struct ps_jwalk *c)
{
    size_t depth = 0;
    do {
        ws(c);
        if (c->p >= c->end) return;
        if (*c->p == '{' || *c->p == '[') {
            depth++;
            c->p++;
        } else if (*c->p == '}' || *c->p == ']') {
            depth -= depth > 0;
            c->p++;
        } else if (*c->p == ',' || *c->p == ':') {
            c->p++;
        } else {
            skip_scalar(c);
        }
    } while (depth);
}

void ps_j_enter(struct ps_jwalk *c)
{
    ws(c);
    if (c->p < c->end) c->p++;
}

bool ps_j_next(struct ps_jwalk *c)
{
    ws(c);
    if (c->p < c->end && *c->p == ',') {
        c->p++;
        ws(c);
    }
    if (c->p >= c->end) return false;
    if (*c->p != ']' && *c->p != '}') return true;
    c->p++;
    return false;
}

bool ps_j_next_key(struct ps_jwalk *c, struct ps_jstr *ret_raw)
{
    if (!ps_j_next(c)) return false;
    *ret_raw = ps_j_raw(c);
    ws(c);
    if (c->p < c->end) c->p++; /* ':' */
    return true;
}

struct ps_jstr ps_j_raw(struct ps_jwalk *c)
{
    ws(c);
    if (c->p < c->end) c->p++;
    struct ps_jstr r = { c->p, 0 };
    while (c->p < c->end && *c->p != '"') c->p += *c->p == '\\' && c->end - c->p > 1 ? 2 : 1;
    r.len = (size_t) (c->p - r.s);
    if (c->p < c->end) c->p++;
    return r;
}

static size_t put_utf8(char *o, uint32_t u)
{
    if (u < 0x80) {
        o[0] = (char) u;
        return 1;
    }
    if (u < 0x800) {
        o[0] = (char) (0xc0 | u >> 6);
        o[1] = (char) (0x80 | (u & 63));
        return 2;
    }
    if (u < 0x10000) {
        o[0] = (char) (0xe0 | u >> 12);
        o[1] = (char) (0x80 | (u >> 6 & 63));
        o[2] = (char) (0x80 | (u & 63));
        return 3;
    }
    o[0] = (char) (0xf0 | u >> 18);
    o[1] = (char) (0x80 | (u >> 12 & 63));
    o[2] = (char) (0x80 | (u >> 6 & 63));
    o[3] = (char) (0x80 | (u & 63));
    return 4;
}

struct ps_jstr ps_j_unescape(struct ps_jstr raw)
{
    char *in = raw.s, *end = raw.s + raw.len, *out;
    char *first = memchr(in, '\\', raw.len);
    if (!first) return raw;
    for (in = out = first; in < end;) {
        if (*in != '\\' || end - in < 2) {
            *out++ = *in++;
            continue;
        }
        static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
        const char *f = strchr(from, in[1]);
        if (in[1] != 'u') {
            *out++ = f ? to[f - from] : in[1];
            in += 2;
            continue;
        }
        int u = hex4(in + 2, end);
        in += 6;
        if (u >= 0xd800 && u <= 0xdbff && end - in >= 6) {
            u = 0x10000 + ((u - 0xd800) << 10) + (hex4(in + 2, end) - 0xdc00);
            in += 6;
        }
        out += put_utf8(out, (uint32_t) (u < 0 ? 0xfffd : u));
    }
    raw.len = (size_t) (out - raw.s);
    return raw;
}

int ps_j_int(struct ps_jwalk *c, struct ps_jint *ret)
{
    ws(c);
    const char *p = c->p;
    bool neg = p < c->end && *p == '-', over = false;
    p += neg;
    uint64_t v = 0;
    const char *q = p;
    for (; q < c->end && *q >= '0' && *q <= '9'; q++) {
        over |= __builtin_mul_overflow(v, (uint64_t) 10, &v);
        over |= __builtin_add_overflow(v, (uint64_t) (*q - '0'), &v);
    }
    if (q == p || (q < c->end && (*q == '.' || *q == 'e' || *q == 'E'))) return 0;
    if (over) v = UINT64_MAX;
    *ret = (struct ps_jint) { v, neg && v };
    if (over || (neg && v > (uint64_t) 1 << 63)) return -ERANGE;
    c->p += q - c->p;
    *ret = (struct ps_jint) { v, neg && v };
    return 1;
}

bool ps_j_double(struct ps_jwalk *c, double *ret)
{
    if (ps_j_type(c) != PS_J_NUMBER) return false;
    char text[512]; /* a number of more digits than that is refused: no double needs them */
    struct ps_jwalk e = *c;
    skip_scalar(&e);
    size_t n = (size_t) (e.p - c->p);
    if (n >= sizeof text) return false;
    memcpy(text, c->p, n);
    text[n] = 0;
    char *stop;
    double v = strtod(text, &stop);
    if (stop == text || !isfinite(v)) return false;
    c->p = e.p;
    *ret = v;
    return true;
}

bool ps_jstr_is(struct ps_jstr s, const char *text)
{
    return s.len == strlen(text) && !memcmp(s.s, text, s.len);
}
