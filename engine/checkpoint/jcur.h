/* SPDX-License-Identifier: Apache-2.0 */
/* A cursor over JSON text, for the large headers of checkpoint files: no tree, no allocation, strict (RFC 8259, UTF-8, no
 * NUL in strings), nesting bounded. Strings are decoded in place, so the text is overwritten as it is read. Each call
 * returns >= 0, or -PS_EFORMAT with `err` and the position set. */
#ifndef PS_JCUR_H
#define PS_JCUR_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

struct ps_jcur {
    char *p, *end, *start;
    const char *err; /* what was wrong */
    bool first;      /* just behind an opening bracket */
};

void ps_jcur_init(struct ps_jcur *c, char *text, size_t len);
static inline size_t ps_jcur_at(const struct ps_jcur *c) { return (size_t) (c->p - c->start); }

/* '{' or '['. */
int ps_jcur_open(struct ps_jcur *c, char bracket) ps_must_check;
/* 1: *key is the next member's name, and its value follows; 0: the object ended. */
int ps_jcur_key(struct ps_jcur *c, char **key) ps_must_check;
/* 1: another element follows; 0: the array ended. */
int ps_jcur_next(struct ps_jcur *c) ps_must_check;
/* A string, decoded and terminated inside the text. */
int ps_jcur_str(struct ps_jcur *c, char **ret, size_t *ret_len) ps_must_check;
/* An integer >= 0 without sign, fraction or exponent. */
int ps_jcur_u64(struct ps_jcur *c, uint64_t *ret) ps_must_check;
/* Any value. */
int ps_jcur_skip(struct ps_jcur *c) ps_must_check;
/* Nothing but white space may be left. */
int ps_jcur_done(struct ps_jcur *c) ps_must_check;
#endif
