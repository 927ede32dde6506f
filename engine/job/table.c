/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/table.h"
#include "engine/base/ps_mem.h"

enum { FIRST_SET = 1 << 12 };

int ps_table_init(struct ps_table *t)
{
    *t = (struct ps_table) { 0 };
    t->chunks = ps_calloc(PS_TABLE_CHUNK, sizeof(struct ps_table_chunk *));
    return t->chunks ? 0 : -ENOMEM;
}

void ps_table_done(struct ps_table *t)
{
    for (size_t i = 0; t->chunks && i < PS_TABLE_CHUNK && t->chunks[i]; i++) free(t->chunks[i]);
    free(t->chunks);
    free(t->set);
    *t = (struct ps_table) { 0 };
}

int ps_table_add(struct ps_table *t, uint64_t off, uint32_t line)
{
    if (t->n >= UINT32_MAX - 1) return -EOVERFLOW;
    struct ps_table_chunk **c = &t->chunks[t->n / PS_TABLE_CHUNK];
    if (!*c && !(*c = ps_calloc(1, sizeof(struct ps_table_chunk)))) return -ENOMEM;
    (*c)->off[t->n % PS_TABLE_CHUNK] = off;
    (*c)->line[t->n % PS_TABLE_CHUNK] = line;
    t->n++;
    return 0;
}

uint64_t *ps_table_off(const struct ps_table *t, uint32_t i)
{
    return &t->chunks[i / PS_TABLE_CHUNK]->off[i % PS_TABLE_CHUNK];
}

uint32_t ps_table_line(const struct ps_table *t, uint32_t i)
{
    return t->chunks[i / PS_TABLE_CHUNK]->line[i % PS_TABLE_CHUNK];
}

bool ps_table_is_done(const struct ps_table *t, uint32_t i)
{
    return t->chunks[i / PS_TABLE_CHUNK]->done[i % PS_TABLE_CHUNK / 8] >> (i % 8) & 1;
}

void ps_table_set_done(struct ps_table *t, uint32_t i)
{
    t->chunks[i / PS_TABLE_CHUNK]->done[i % PS_TABLE_CHUNK / 8] |= (uint8_t) (1u << (i % 8));
}

int64_t ps_table_find_line(const struct ps_table *t, uint32_t line)
{
    uint32_t lo = 0, hi = t->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (ps_table_line(t, mid) < line)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < t->n && ps_table_line(t, lo) == line ? (int64_t) lo : -1;
}

/* The place of an entry follows from the 32 bits of its hash that it holds, so that growing needs nothing else. */
static uint64_t place(uint64_t hash32, uint64_t cap) { return hash32 * 0x9e3779b1u & (cap - 1); }

static int grow(struct ps_table *t)
{
    uint64_t cap = t->set_cap ? t->set_cap * 2 : FIRST_SET;
    uint64_t *set = ps_calloc(cap, sizeof *set);
    if (!set) return -ENOMEM;
    for (uint64_t i = 0; i < t->set_cap; i++) {
        uint64_t e = t->set[i];
        if (!e) continue;
        uint64_t at = place(e >> 32, cap);
        while (set[at]) at = (at + 1) & (cap - 1);
        set[at] = e;
    }
    free(t->set);
    t->set = set;
    t->set_cap = cap;
    return 0;
}

int ps_table_unique(struct ps_table *t, uint64_t hash, uint32_t index,
                    int (*same)(void *ud, uint32_t other), void *ud)
{
    if (t->set_n + 1 > t->set_cap / 4 * 3) {
        int r = grow(t);
        if (r < 0) return r;
    }
    uint64_t at = place(hash >> 32, t->set_cap);
    for (; t->set[at]; at = (at + 1) & (t->set_cap - 1)) {
        if (t->set[at] >> 32 != hash >> 32) continue;
        int r = same(ud, (uint32_t) t->set[at] - 1);
        if (r) return r;
    }
    t->set[at] = hash >> 32 << 32 | (index + 1);
    t->set_n++;
    return 0;
}

void ps_table_drop_set(struct ps_table *t)
{
    free(t->set);
    t->set = NULL;
    t->set_cap = t->set_n = 0;
}
