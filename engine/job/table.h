/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept in memory of each request of the input: an offset (into the spool, later into the results), its line
 * number and whether it is done; and, while the input is read, a hash set that finds custom_ids that come twice. About 13
 * bytes a request, and up to 20 more during the first pass. */
#ifndef PS_TABLE_H
#define PS_TABLE_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

enum { PS_TABLE_CHUNK = 1 << 16 };
struct ps_table_chunk {
    uint64_t off[PS_TABLE_CHUNK];
    uint32_t line[PS_TABLE_CHUNK];
    uint8_t done[PS_TABLE_CHUNK / 8];
};

struct ps_table {
    struct ps_table_chunk **chunks; /* PS_TABLE_CHUNK of them, made as needed */
    uint32_t n;                     /* requests */
    uint64_t *set;                  /* hash << 32 | index + 1; 0 = free */
    uint64_t set_cap, set_n;
};

int ps_table_init(struct ps_table *t) ps_must_check;
void ps_table_done(struct ps_table *t);
/* Appends; lines ascend. */
int ps_table_add(struct ps_table *t, uint64_t off, uint32_t line) ps_must_check;
uint64_t *ps_table_off(const struct ps_table *t, uint32_t i);
uint32_t ps_table_line(const struct ps_table *t, uint32_t i);
bool ps_table_is_done(const struct ps_table *t, uint32_t i);
void ps_table_set_done(struct ps_table *t, uint32_t i);
/* The request of that line: its index, or -1. */
int64_t ps_table_find_line(const struct ps_table *t, uint32_t line);

/* Puts request `index` into the set unless an equal one is there: 0 if it is new, 1 if not, or an error. same(ud, other) tells
 * whether request `other`, whose hash looks alike, has the same custom_id: 1, 0 or an error. */
int ps_table_unique(struct ps_table *t, uint64_t hash, uint32_t index,
                    int (*same)(void *ud, uint32_t other), void *ud) ps_must_check;
void ps_table_drop_set(struct ps_table *t);
#endif
