/* SPDX-License-Identifier: Apache-2.0 */
/* JSON from strangers, in bounded memory: one pass checks a whole text (grammar, UTF-8, nesting), then a cursor walks it in
 * place and takes what it wants. Nothing is allocated, no tree is built, so a list of ten million numbers costs nothing. */
#ifndef PS_JSCAN_H
#define PS_JSCAN_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

enum { PS_JSON_DEPTH = 128 };

enum ps_jtype {
    PS_J_NONE,
    PS_J_OBJECT,
    PS_J_ARRAY,
    PS_J_STRING,
    PS_J_NUMBER,
    PS_J_TRUE,
    PS_J_FALSE,
    PS_J_NULL
};

/* 0 if the text is one JSON value (RFC 8259, valid UTF-8, no lone surrogates, at most PS_JSON_DEPTH deep) and white
 * space; else -EINVAL and the column. */
int ps_json_check(const char *s, size_t len, struct ps_detail *dt) ps_must_check;
/* Bytes of the longest valid UTF-8 prefix (len if all is valid). */
size_t ps_utf8_valid(const char *s, size_t len);
size_t ps_utf8_points(const char *s, size_t len); /* of valid UTF-8 */

/* A place in a checked text. Calls on an unchecked one stay inside it, and mean nothing. */
struct ps_jwalk {
    char *p, *end;
};
struct ps_jstr {
    char *s;
    size_t len;
};

enum ps_jtype ps_j_type(struct ps_jwalk *c); /* of the value at the cursor */
void ps_j_skip(struct ps_jwalk *c);
/* Steps into an object or array; then _next() stands before each value in turn, false at the end (and behind it). */
void ps_j_enter(struct ps_jwalk *c);
bool ps_j_next(struct ps_jwalk *c);
bool ps_j_next_key(struct ps_jwalk *c, struct ps_jstr *ret_raw);
/* The string between its quotes, as written. */
struct ps_jstr ps_j_raw(struct ps_jwalk *c);
/* Takes the escapes out in place; the result never grows. */
struct ps_jstr ps_j_unescape(struct ps_jstr raw);
/* A number that is written as an integer and lies in [-2^63, 2^64): 1; out of that range: -ERANGE; anything else: 0. The value is
 * magnitude and sign (out of range: of the nearest). The cursor moves on only in the first case. */
struct ps_jint {
    uint64_t mag;
    bool neg;
};
int ps_j_int(struct ps_jwalk *c, struct ps_jint *ret);
bool ps_j_double(struct ps_jwalk *c, double *ret); /* false: no number, or not finite */
bool ps_jstr_is(struct ps_jstr s, const char *text);
#endif
