/* SPDX-License-Identifier: Apache-2.0 */
/* JSON read where it lies: no tree and no allocation, so that a list of ten million numbers costs nothing. For what is large or
 * comes from strangers (headers of checkpoints, lines of a job); small files that are read whole have ps_json.h.
 *
 * A cursor walks over the text and is strict as it goes (RFC 8259, valid UTF-8, no lone surrogates, bounded nesting): whoever walks
 * to the end and asks ps_jscan_done() has checked all of it. ps_jscan_check() does just that in advance, for callers who must know
 * that a text is JSON before they take anything from it; on a checked text only calls for the wrong type fail.
 *
 * Strings are decoded in place: str, text and name overwrite the string that they stand on, in front of the cursor's new place.
 * Everything else leaves the text alone, so a copy of the cursor is a place to come back to until strings behind it are decoded.
 *
 * Calls return >= 0, or -PS_EFORMAT with `err` in words and the cursor on what is wrong: ps_jscan_at() says where. One thread. */
#ifndef PS_JSCAN_H
#define PS_JSCAN_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

enum { PS_JSCAN_DEPTH = 128 }; /* that check and skip go down */

enum ps_jtype {
    PS_J_NONE, /* the end, or nothing that begins a value */
    PS_J_OBJECT,
    PS_J_ARRAY,
    PS_J_STRING,
    PS_J_NUMBER,
    PS_J_TRUE,
    PS_J_FALSE,
    PS_J_NULL
};

struct ps_jscan {
    char *p, *end, *start;
    const char *err; /* what was wrong last */
    bool first;      /* just behind an opening bracket */
};

/* Text of a known length, which may hold NUL; not terminated unless said so. */
struct ps_jstr {
    char *s;
    size_t len;
};
bool ps_jstr_is(struct ps_jstr s, const char *text);
/* Takes the escapes out of a string as ps_jscan_raw() or _key() gave it, in place, once. */
struct ps_jstr ps_jstr_decode(struct ps_jstr raw);

void ps_jscan_init(struct ps_jscan *c, char *text, size_t len);
/* Bytes in front of the cursor. */
static inline size_t ps_jscan_at(const struct ps_jscan *c) { return (size_t) (c->p - c->start); }
/* For callers: notes what is wrong with what they read, returns -PS_EFORMAT. */
int ps_jscan_fail(struct ps_jscan *c, const char *what);

/* Of the value that follows, by its first character. */
enum ps_jtype ps_jscan_type(struct ps_jscan *c);
/* '{' or '['. */
int ps_jscan_open(struct ps_jscan *c, char bracket) ps_must_check;
/* In an array. 1: another element follows; 0: it ended. */
int ps_jscan_next(struct ps_jscan *c) ps_must_check;
/* In an object. 1: the next member's key, as written, and its value follows; 0: it ended. */
int ps_jscan_key(struct ps_jscan *c, struct ps_jstr *ret) ps_must_check;
/* The same, the key decoded and terminated; NUL in it is refused. */
int ps_jscan_name(struct ps_jscan *c, char **ret) ps_must_check;

/* A string: as written between its quotes; decoded and terminated; decoded, terminated and without NUL. */
int ps_jscan_raw(struct ps_jscan *c, struct ps_jstr *ret) ps_must_check;
int ps_jscan_str(struct ps_jscan *c, struct ps_jstr *ret) ps_must_check;
int ps_jscan_text(struct ps_jscan *c, char **ret) ps_must_check;

/* A number that is written as an integer and lies in [-2^63, 2^64), as magnitude and sign. Out of that range: -ERANGE and the
 * nearest that is in it. The cursor stays where it is on failure. */
struct ps_jint {
    uint64_t mag;
    bool neg;
};
int ps_jscan_int(struct ps_jscan *c, struct ps_jint *ret) ps_must_check;
/* One without a sign. */
int ps_jscan_u64(struct ps_jscan *c, uint64_t *ret) ps_must_check;
/* A number of less than 512 characters that a double can hold. */
int ps_jscan_double(struct ps_jscan *c, double *ret) ps_must_check;
int ps_jscan_bool(struct ps_jscan *c, bool *ret) ps_must_check;
/* Any value, checked. */
int ps_jscan_skip(struct ps_jscan *c) ps_must_check;
/* Nothing but white space may be left. */
int ps_jscan_done(struct ps_jscan *c) ps_must_check;

/* Whether the text is one JSON value and white space: 0, or -PS_EFORMAT and "column N: what" (N in bytes, from 1). */
int ps_jscan_check(char *text, size_t len, struct ps_detail *dt) ps_must_check;
#endif
