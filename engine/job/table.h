/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of each request of the input: an offset (into the spool, later into the results) and its line number, in an unlinked file, so
 * that a million requests cost disk; in memory, whether it is done, a bit. While the input is read there is a hash set, too, that finds
 * custom_ids that come twice: 11 to 22 bytes a request, within a budget. */
#ifndef PS_TABLE_H
#define PS_TABLE_H
#include "engine/job/jout.h"

enum { PS_TABLE_SETS = 1 << 6 };
struct ps_table_set {
    uint64_t *slots; /* upper half of a hash << 32 | index + 1; 0 = free */
    uint64_t cap, n;
};

struct ps_table {
    struct ps_jout out; /* struct ps_table_entry, in order */
    uint32_t n;         /* requests */
    /* Lines without a request before the one that was found last: where to look first for the next. */
    uint32_t blank;
    uint8_t *done;
    size_t done_bytes;
    /* By the hash's first 6 bits, so that not all grow at once. */
    struct ps_table_set sets[PS_TABLE_SETS];
    uint64_t set_bytes, set_budget;
};
struct ps_table_entry {
    uint64_t off;
    uint32_t line, unused;
};

/* Beside `path`; set_budget: bytes that the hash set may take. */
int ps_table_open(const char *path, uint64_t set_budget, struct ps_table *ret,
                  struct ps_detail *dt) ps_must_check;
void ps_table_close(struct ps_table *t);
/* Appends; lines ascend. */
int ps_table_add(struct ps_table *t, uint64_t off, uint32_t line) ps_must_check;
/* Puts request `index` into the set unless an equal one is there: 0 if it is new, 1 if not, or an error (-PS_EBUDGET). same(ud, other)
 * tells whether request `other`, whose hash looks alike, has the same custom_id: 1, 0 or an error. */
int ps_table_unique(struct ps_table *t, uint64_t hash, uint32_t index,
                    int (*same)(void *ud, uint32_t other), void *ud) ps_must_check;
/* All requests are in. */
int ps_table_complete(struct ps_table *t) ps_must_check;

int ps_table_off(const struct ps_table *t, uint32_t i, uint64_t *ret) ps_must_check;
bool ps_table_is_done(const struct ps_table *t, uint32_t i);
/* Request i is done, its record is at `off`. */
int ps_table_set_done(struct ps_table *t, uint32_t i, uint64_t off) ps_must_check;
/* The request of that line: 1, 0 if there is none, or an error. */
int ps_table_find_line(struct ps_table *t, uint32_t line, uint32_t *ret) ps_must_check;
#endif
