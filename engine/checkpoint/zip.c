/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/checkpoint/zip.h"
#include "engine/base/ps_mem.h"
#include <string.h>

enum { END_BYTES = 22, END64_BYTES = 56, LOCATOR_BYTES = 20, ENTRY_BYTES = 46, LOCAL_BYTES = 30 };
enum { COMMENT_MAX = 65535, DIR_BYTES_MAX = 64 << 20, ENTRIES_MAX = 1 << 18 };

static uint64_t le(const char *p, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t) (unsigned char) p[i] << (8 * i);
    return v;
}

static int bad(const struct ps_src_file *f, struct ps_detail *dt, const char *what)
{
    return ps_fail(dt, -PS_EFORMAT, "%s: not a usable zip archive: %s", f->path, what);
}

struct end {
    uint64_t entries, dir_bytes, dir_off;
};

/* The end record of a zip64 archive, found through the locator that stands before the plain one. */
static int end64(const struct ps_src_file *f, const char *locator, uint64_t locator_off,
                 struct end *ret, struct ps_detail *dt)
{
    char rec[END64_BYTES];
    uint64_t off = le(locator + 8, 8);
    if (off > locator_off || locator_off - off < END64_BYTES)
        return bad(f, dt, "its zip64 end record is out of place");
    int r = ps_src_pread(f, rec, sizeof rec, off, dt);
    if (r < 0) return r;
    if (le(rec, 4) != 0x06064b50) return bad(f, dt, "its zip64 end record is damaged");
    if (le(rec + 16, 4) || le(rec + 20, 4)) return bad(f, dt, "it has several parts");
    ret->entries = le(rec + 32, 8);
    ret->dir_bytes = le(rec + 40, 8);
    ret->dir_off = le(rec + 48, 8);
    return 0;
}

static int find_end(const struct ps_src_file *f, struct end *ret, struct ps_detail *dt)
{
    const uint64_t most = LOCATOR_BYTES + END_BYTES + COMMENT_MAX;
    size_t n = f->size < most ? (size_t) f->size : (size_t) most;
    ps_auto_free char *tail = ps_calloc(n, 1);
    if (!tail) return ps_fail(dt, -ENOMEM, "out of memory for %s", f->path);
    int r = ps_src_pread(f, tail, n, f->size - n, dt);
    if (r < 0) return r;
    size_t at = n < END_BYTES ? 0 : n - END_BYTES + 1;
    while (at > 0) {
        const char *p = tail + --at;
        if (le(p, 4) != 0x06054b50 || le(p + 20, 2) != n - at - END_BYTES) continue;
        if (le(p + 4, 2) && le(p + 4, 2) != 0xffff) return bad(f, dt, "it has several parts");
        *ret = (struct end) { le(p + 10, 2), le(p + 12, 4), le(p + 16, 4) };
        if (at >= LOCATOR_BYTES && le(p - LOCATOR_BYTES, 4) == 0x07064b50)
            return end64(f, p - LOCATOR_BYTES, f->size - n + at - LOCATOR_BYTES, ret, dt);
        return 0;
    }
    return ps_fail(dt, -PS_EFORMAT,
                   "%s: it begins like a zip archive but its end is missing: it is cut short (an "
                   "interrupted download or copy?)",
                   f->path);
}

/* Sizes and offsets of 32 ones stand in the zip64 extra field, in this order. */
static bool widen(const char *extra, size_t n, uint64_t *usize, uint64_t *csize, uint64_t *off)
{
    uint64_t *const fields[] = { usize, csize, off };
    if (*usize != UINT32_MAX && *csize != UINT32_MAX && *off != UINT32_MAX) return true;
    while (n >= 4) {
        size_t id = le(extra, 2), len = le(extra + 2, 2);
        if (len > n - 4) return false;
        if (id == 1) {
            const char *p = extra + 4;
            for (size_t i = 0; i < PS_ARRAY_LEN(fields); i++) {
                if (*fields[i] != UINT32_MAX) continue;
                if (extra + 4 + len - p < 8) return false;
                *fields[i] = le(p, 8);
                p += 8;
            }
            return true;
        }
        extra += 4 + len;
        n -= 4 + len;
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ps_zip_entry *) a)->name, ((const struct ps_zip_entry *) b)->name);
}

/* Names are terminated where they stand, by moving each over the 46 bytes in front of it, which are read by then. */
static int read_entries(struct ps_zip *z, size_t len, struct ps_detail *dt)
{
    size_t at = 0;
    for (uint32_t i = 0; i < z->n; i++) {
        char *p = z->dir + at;
        if (len - at < ENTRY_BYTES || le(p, 4) != 0x02014b50)
            return bad(z->f, dt, "its directory is damaged");
        size_t name = le(p + 28, 2), extra = le(p + 30, 2), comment = le(p + 32, 2);
        size_t whole = ENTRY_BYTES + name + extra + comment;
        if (len - at < whole) return bad(z->f, dt, "its directory is cut short");
        uint64_t csize = le(p + 20, 4), usize = le(p + 24, 4), off = le(p + 42, 4);
        if (!widen(p + ENTRY_BYTES + name, extra, &usize, &csize, &off))
            return bad(z->f, dt, "its directory's zip64 fields are damaged");
        struct ps_zip_entry *e = &z->entries[i];
        *e = (struct ps_zip_entry) { .name = p,
                                     .header = off,
                                     .bytes = usize,
                                     .crc = (uint32_t) le(p + 16, 4),
                                     .method = (uint16_t) le(p + 10, 2),
                                     .flags = (uint16_t) le(p + 8, 2) };
        if (e->method == 0 && csize != usize)
            return bad(z->f, dt, "a stored entry with two different sizes");
        memmove(p, p + ENTRY_BYTES, name);
        p[name] = 0;
        if (strlen(p) != name) return bad(z->f, dt, "NUL in an entry's name");
        at += whole;
    }
    qsort(z->entries, z->n, sizeof *z->entries, by_name);
    for (uint32_t i = 1; i < z->n; i++)
        if (!strcmp(z->entries[i - 1].name, z->entries[i].name))
            return ps_fail(dt, -PS_EFORMAT, "%s: the archive has two entries %.200s", z->f->path,
                           z->entries[i].name);
    return 0;
}

int ps_zip_open(const struct ps_src_file *f, struct ps_zip *ret, struct ps_detail *dt)
{
    struct end end = { 0 };
    struct ps_zip z = { .f = f };
    int r = find_end(f, &end, dt);
    if (r < 0) return r;
    if (end.entries > ENTRIES_MAX || end.dir_bytes > DIR_BYTES_MAX)
        return bad(f, dt, "its directory is too large");
    if (end.dir_off > f->size || end.dir_bytes > f->size - end.dir_off)
        return bad(f, dt, "its directory reaches out of the file: it is cut short");
    if (end.dir_bytes / ENTRY_BYTES < end.entries)
        return bad(f, dt, "its directory is shorter than its entries need");
    z.n = (uint32_t) end.entries;
    z.dir_off = end.dir_off;
    z.dir = ps_calloc((size_t) end.dir_bytes + 1, 1);
    z.entries = ps_calloc(z.n, sizeof *z.entries);
    r = z.dir && z.entries ? ps_src_pread(f, z.dir, (size_t) end.dir_bytes, end.dir_off, dt)
                           : ps_fail(dt, -ENOMEM, "out of memory for %s's directory", f->path);
    if (r == 0) r = read_entries(&z, (size_t) end.dir_bytes, dt);
    if (r < 0) {
        ps_zip_done(&z);
        return r;
    }
    *ret = z;
    return 0;
}

void ps_zip_done(struct ps_zip *z)
{
    free(z->dir);
    free(z->entries);
    *z = (struct ps_zip) { 0 };
}

const struct ps_zip_entry *ps_zip_find(const struct ps_zip *z, const char *name)
{
    struct ps_zip_entry key = { .name = name };
    return z->n ? bsearch(&key, z->entries, z->n, sizeof key, by_name) : NULL;
}

int ps_zip_place(const struct ps_zip *z, const struct ps_zip_entry *e, uint64_t *ret_off,
                 struct ps_detail *dt)
{
    char local[LOCAL_BYTES];
    if (e->flags & 1)
        return ps_fail(dt, -PS_EUNSUPPORTED, "%s: entry %.200s is encrypted", z->f->path, e->name);
    if (e->method)
        return ps_fail(dt, -PS_EUNSUPPORTED,
                       "%s: entry %.200s is compressed (method %u); torch.save stores entries as "
                       "they are: save the model again with it",
                       z->f->path, e->name, e->method);
    if (e->header > z->dir_off || z->dir_off - e->header < LOCAL_BYTES)
        return ps_fail(dt, -PS_EFORMAT, "%s: entry %.200s is out of place", z->f->path, e->name);
    int r = ps_src_pread(z->f, local, sizeof local, e->header, dt);
    if (r < 0) return r;
    if (le(local, 4) != 0x04034b50)
        return ps_fail(dt, -PS_EFORMAT, "%s: entry %.200s is damaged", z->f->path, e->name);
    uint64_t off = e->header + LOCAL_BYTES + le(local + 26, 2) + le(local + 28, 2);
    if (off > z->dir_off || e->bytes > z->dir_off - off)
        return ps_fail(dt, -PS_EFORMAT, "%s: entry %.200s (%llu bytes) reaches out of the file",
                       z->f->path, e->name, (unsigned long long) e->bytes);
    *ret_off = off;
    return 0;
}
