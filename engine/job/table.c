/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/table.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include <string.h>

enum { ENTRY = sizeof(struct ps_table_entry), TABLE_BUF = 4096 * ENTRY, FIRST_SET = 64 };

int ps_table_open(const char *path, uint64_t set_budget, struct ps_table *ret, struct ps_detail *dt)
{
    *ret = (struct ps_table) { .out.fd = -1, .set_budget = set_budget };
    int fd = ps_temp_beside(path, dt);
    return fd < 0 ? fd : ps_jout_init(&ret->out, fd, 0, TABLE_BUF);
}

static void drop_sets(struct ps_table *t)
{
    for (size_t i = 0; i < PS_TABLE_SETS; i++) free(t->sets[i].slots);
    memset(t->sets, 0, sizeof t->sets);
}

void ps_table_close(struct ps_table *t)
{
    drop_sets(t);
    free(t->done);
    if (t->out.fd >= 0) (void) close(t->out.fd);
    ps_jout_done(&t->out);
}

int ps_table_add(struct ps_table *t, uint64_t off, uint32_t line)
{
    if (t->n >= UINT32_MAX - 1) return -EOVERFLOW;
    int r = ps_grow(&t->done, &t->done_bytes, (t->n + 7) / 8, t->n / 8 + 1, 1);
    if (r < 0) return r;
    ps_jout_bytes(&t->out, &(struct ps_table_entry) { .off = off, .line = line }, ENTRY);
    t->n++;
    return t->out.err;
}

int ps_table_complete(struct ps_table *t)
{
    drop_sets(t);
    return ps_jout_flush(&t->out);
}

/* TABLE_BUF holds whole entries, so one is either in the file or in the buffer. */
static int get(const struct ps_table *t, uint32_t i, struct ps_table_entry *ret)
{
    uint64_t at = (uint64_t) i * ENTRY;
    if (at < t->out.at) return ps_pread_all(t->out.fd, ret, ENTRY, at);
    memcpy(ret, t->out.buf + (at - t->out.at), ENTRY);
    return 0;
}

int ps_table_off(const struct ps_table *t, uint32_t i, uint64_t *ret)
{
    struct ps_table_entry e;
    int r = get(t, i, &e);
    if (!r) *ret = e.off;
    return r;
}

bool ps_table_is_done(const struct ps_table *t, uint32_t i)
{
    return t->done[i / 8] >> (i % 8) & 1;
}

int ps_table_set_done(struct ps_table *t, uint32_t i, uint64_t off)
{
    int r = ps_pwrite_all(t->out.fd, &off, sizeof off, (uint64_t) i * ENTRY);
    if (!r) t->done[i / 8] |= (uint8_t) (1u << (i % 8));
    return r;
}

int ps_table_find_line(struct ps_table *t, uint32_t line, uint32_t *ret)
{
    uint32_t lo = 0, hi = t->n, i = line - 1 - t->blank;
    while (lo < hi) {
        struct ps_table_entry e;
        if (i < lo || i >= hi) i = lo + (hi - lo) / 2;
        int r = get(t, i, &e);
        if (r < 0) return r;
        if (e.line == line) {
            t->blank = line - 1 - i;
            *ret = i;
            return 1;
        }
        if (e.line < line)
            lo = i + 1;
        else
            hi = i;
        i = lo + (hi - lo) / 2;
    }
    return 0;
}

/* The place of an entry follows from the 32 bits of its hash that it holds, so that growing needs nothing else. */
static uint64_t place(uint64_t hash32, uint64_t cap) { return hash32 * 0x9e3779b1u & (cap - 1); }

static int grow(struct ps_table *t, struct ps_table_set *s)
{
    uint64_t cap = s->cap ? s->cap * 2 : FIRST_SET, more = (cap - s->cap) * sizeof *s->slots;
    if (t->set_bytes + more > t->set_budget) return -PS_EBUDGET;
    uint64_t *slots = ps_calloc(cap, sizeof *slots);
    if (!slots) return -ENOMEM;
    for (uint64_t i = 0; i < s->cap; i++) {
        uint64_t e = s->slots[i];
        if (!e) continue;
        uint64_t at = place(e >> 32, cap);
        while (slots[at]) at = (at + 1) & (cap - 1);
        slots[at] = e;
    }
    free(s->slots);
    s->slots = slots;
    s->cap = cap;
    t->set_bytes += more;
    return 0;
}

int ps_table_unique(struct ps_table *t, uint64_t hash, uint32_t index,
                    int (*same)(void *ud, uint32_t other), void *ud)
{
    struct ps_table_set *s = &t->sets[hash >> 58];
    if (s->n + 1 > s->cap / 4 * 3) {
        int r = grow(t, s);
        if (r < 0) return r;
    }
    uint64_t at = place(hash >> 32, s->cap);
    for (; s->slots[at]; at = (at + 1) & (s->cap - 1)) {
        if (s->slots[at] >> 32 != hash >> 32) continue;
        int r = same(ud, (uint32_t) s->slots[at] - 1);
        if (r) return r;
    }
    s->slots[at] = hash >> 32 << 32 | (index + 1);
    s->n++;
    return 0;
}
