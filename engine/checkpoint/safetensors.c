/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors format: 8 bytes little-endian length, that many bytes of JSON, then the tensors' bytes back to back. The
 * format's own rules are enforced: a header of at most 100 MB, unique names, and offsets that cover the rest of the
 * file without gap or overlap. */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/source.h"
#include <string.h>
#include <xxhash.h>

#define HEADER_BYTES_MAX 100000000u

static const struct {
    const char *name;
    unsigned bits;
    int dtype;
} dtypes[] = {
    { "F16", 16, PS_F16 },    { "BF16", 16, PS_BF16 },  { "F32", 32, PS_F32 }, { "F64", 64, -1 },
    { "I64", 64, -1 },        { "I32", 32, -1 },        { "I16", 16, -1 },     { "I8", 8, -1 },
    { "U64", 64, -1 },        { "U32", 32, -1 },        { "U16", 16, -1 },     { "U8", 8, -1 },
    { "BOOL", 8, -1 },        { "C64", 64, -1 },        { "F8_E4M3", 8, -1 },  { "F8_E5M2", 8, -1 },
    { "F8_E8M0", 8, -1 },     { "F4", 4, -1 },          { "F6_E2M3", 6, -1 },  { "F6_E3M2", 6, -1 },
    { "F8_E4M3FNUZ", 8, -1 }, { "F8_E5M2FNUZ", 8, -1 },
};

struct st {
    struct ps_src *src;
    struct ps_src_file *f;
    uint32_t file;
    struct ps_jscan c;
    struct ps_detail *dt;
    size_t first;     /* index of this file's first tensor */
    const char *name; /* of the tensor whose entry is being read; NULL outside of entries */
};

static int syntax(struct st *s)
{
    const char *err = s->c.err ? s->c.err : "malformed";
    size_t at = 8 + ps_jscan_at(&s->c);
    if (s->name)
        return ps_fail(s->dt, -PS_EFORMAT, "%s: tensor %.200s: header, byte %zu: %s", s->f->path,
                       s->name, at, err);
    return ps_fail(s->dt, -PS_EFORMAT, "%s: header, byte %zu: %s", s->f->path, at, err);
}

static int metadata(struct st *s)
{
    struct ps_jstr key, val;
    int r = ps_jscan_open(&s->c, '{');
    while (r >= 0 && (r = ps_jscan_key(&s->c, &key)) > 0) {
        if (ps_jscan_str(&s->c, &val) < 0) return syntax(s);
        if (ps_jstr_is(key, "penstock")) s->f->meta_pack = val;
        if (ps_jstr_is(key, "chunks")) s->f->meta_table = val;
    }
    return r < 0 ? syntax(s) : 0;
}

static int u64_list(struct st *s, uint64_t *ret, uint32_t cap, uint32_t *ret_n)
{
    uint32_t n = 0;
    int r = ps_jscan_open(&s->c, '[');
    while (r >= 0 && (r = ps_jscan_next(&s->c)) > 0) {
        if (n == cap) return ps_jscan_fail(&s->c, "more numbers than expected");
        if ((r = ps_jscan_u64(&s->c, &ret[n++])) < 0) return r;
    }
    *ret_n = n;
    return r;
}

struct entry {
    bool dtype, shape, offsets;
    unsigned bits;
    uint64_t at[2];
};

static int dtype(struct st *s, struct ps_src_tensor *t, struct entry *e)
{
    struct ps_jstr name;
    if (ps_jscan_str(&s->c, &name) < 0) return syntax(s);
    size_t i = 0;
    while (i < PS_ARRAY_LEN(dtypes) && !ps_jstr_is(name, dtypes[i].name)) i++;
    if (i == PS_ARRAY_LEN(dtypes))
        return ps_fail(s->dt, -PS_EFORMAT, "%s: tensor %.200s: unknown dtype \"%.40s\"", s->f->path,
                       t->name, name.s);
    t->dtype_name = dtypes[i].name;
    t->dtype = dtypes[i].dtype;
    e->bits = dtypes[i].bits;
    return 0;
}

static int fields(struct st *s, struct ps_src_tensor *t, struct entry *e)
{
    struct ps_jstr key;
    uint32_t n = 0;
    int r = ps_jscan_open(&s->c, '{');
    while (r >= 0 && (r = ps_jscan_key(&s->c, &key)) > 0) {
        bool *seen = ps_jstr_is(key, "dtype")          ? &e->dtype
                     : ps_jstr_is(key, "shape")        ? &e->shape
                     : ps_jstr_is(key, "data_offsets") ? &e->offsets
                                                       : NULL;
        if (!seen || *seen)
            r = ps_jscan_fail(&s->c, seen ? "a field is there twice"
                                          : "a tensor has dtype, shape and data_offsets, "
                                            "nothing else");
        else if (seen == &e->shape)
            r = u64_list(s, t->dims, PS_SRC_DIMS, &t->ndim);
        else if (seen == &e->offsets && (r = u64_list(s, e->at, 2, &n)) >= 0 && n != 2)
            r = ps_jscan_fail(&s->c, "data_offsets needs two numbers");
        else if (seen == &e->dtype && (r = dtype(s, t, e)) < 0)
            return r;
        if (r < 0) return syntax(s);
        *seen = true;
    }
    return r < 0 ? syntax(s) : 0;
}

static int tensor(struct st *s, const char *name)
{
    struct ps_src_tensor *t;
    struct entry e = { 0 };
    int r = ps_src_add(s->src, &t, s->dt);
    if (r < 0) return r;
    t->name = name;
    t->file = s->file;
    if ((r = fields(s, t, &e)) < 0) return r;
    if (!e.dtype || !e.shape || !e.offsets)
        return ps_fail(s->dt, -PS_EFORMAT, "%s: tensor %.200s lacks dtype, shape or data_offsets",
                       s->f->path, name);
    uint64_t numel, bits;
    if (!ps_src_numel(t->dims, t->ndim, &numel) ||
        __builtin_mul_overflow(numel, (uint64_t) e.bits, &bits) || bits % 8)
        return ps_fail(s->dt, -PS_ESHAPE, "%s: tensor %.200s: its shape is too large", s->f->path,
                       name);
    if (e.at[1] < e.at[0] || e.at[1] - e.at[0] != bits / 8)
        return ps_fail(s->dt, -PS_EFORMAT,
                       "%s: tensor %.200s: data_offsets %llu to %llu, but its shape and dtype need "
                       "%llu bytes",
                       s->f->path, name, (unsigned long long) e.at[0], (unsigned long long) e.at[1],
                       (unsigned long long) (bits / 8));
    uint64_t room = s->f->size - s->f->data_off;
    if (e.at[1] > room)
        return ps_fail(s->dt, -PS_EFORMAT,
                       "%s: tensor %.200s ends at byte %llu, but the file has only %llu: it is cut "
                       "short (an interrupted download or copy?)",
                       s->f->path, name, (unsigned long long) (s->f->data_off + e.at[1]),
                       (unsigned long long) s->f->size);
    t->off = s->f->data_off + e.at[0];
    t->bytes = e.at[1] - e.at[0];
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct ps_src_tensor *x = *(const struct ps_src_tensor *const *) a;
    const struct ps_src_tensor *y = *(const struct ps_src_tensor *const *) b;
    if (x->off != y->off) return x->off < y->off ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

static int cover(struct st *s)
{
    size_t n = s->src->n_tensors - s->first;
    ps_auto_free const struct ps_src_tensor **order = ps_calloc(n, sizeof(*order));
    if (!order) return ps_fail(s->dt, -ENOMEM, "out of memory for %s", s->f->path);
    for (size_t i = 0; i < n; i++) order[i] = &s->src->tensors[s->first + i];
    qsort(order, n, sizeof(*order), by_offset);
    uint64_t at = s->f->data_off;
    for (size_t i = 0; i < n; i++) {
        if (order[i]->off < at)
            return ps_fail(s->dt, -PS_EFORMAT, "%s: tensors %.200s and %.200s overlap", s->f->path,
                           order[i - 1]->name, order[i]->name);
        if (order[i]->off > at)
            return ps_fail(
                s->dt, -PS_EFORMAT,
                "%s: a gap of %llu bytes between tensor %.200s and tensor %.200s: is the "
                "entry of a tensor missing?",
                s->f->path, (unsigned long long) (order[i]->off - at),
                i ? order[i - 1]->name : "(none)", order[i]->name);
        at += order[i]->bytes;
    }
    if (at != s->f->size)
        return ps_fail(s->dt, -PS_EFORMAT,
                       "%s: %llu bytes follow the last tensor; the header does not describe them",
                       s->f->path, (unsigned long long) (s->f->size - at));
    return 0;
}

static int header(struct st *s, uint64_t len)
{
    s->f->text = ps_calloc((size_t) len + 1, 1);
    if (!s->f->text)
        return ps_fail(s->dt, -ENOMEM, "out of memory for the header of %s (%llu bytes)",
                       s->f->path, (unsigned long long) len);
    int r = ps_src_pread(s->f, s->f->text, (size_t) len, 8, s->dt);
    if (r < 0) return r;
    s->f->hash = XXH3_64bits(s->f->text, (size_t) len);
    char *key;
    bool meta = false;
    ps_jscan_init(&s->c, s->f->text, (size_t) len);
    if (ps_jscan_open(&s->c, '{') < 0) return syntax(s);
    while ((r = ps_jscan_name(&s->c, &key)) > 0) {
        if (strcmp(key, "__metadata__") != 0) {
            s->name = key;
            r = tensor(s, key);
            s->name = NULL;
        } else if (meta) {
            (void) ps_jscan_fail(&s->c, "__metadata__ is there twice");
            r = syntax(s);
        } else {
            meta = true;
            r = metadata(s);
        }
        if (r < 0) return r;
    }
    if (r < 0 || ps_jscan_done(&s->c) < 0) return syntax(s);
    return cover(s);
}

int ps_safetensors_read(struct ps_src *src, uint32_t file, struct ps_detail *dt)
{
    struct st s = { .src = src, .f = &src->files[file], .file = file, .dt = dt };
    s.first = src->n_tensors;
    unsigned char le[8];
    uint64_t len = 0;
    if (s.f->size < 8)
        return ps_fail(dt, -PS_EFORMAT, "%s has only %llu bytes: not a safetensors file", s.f->path,
                       (unsigned long long) s.f->size);
    int r = ps_src_pread(s.f, le, sizeof le, 0, dt);
    if (r < 0) return r;
    for (int i = 0; i < 8; i++) len |= (uint64_t) le[i] << (8 * i);
    if (len > HEADER_BYTES_MAX)
        return ps_fail(dt, -PS_EFORMAT,
                       "%s: a header of %llu bytes; safetensors allows at most %u (is it another "
                       "kind of file?)",
                       s.f->path, (unsigned long long) len, HEADER_BYTES_MAX);
    if (len > s.f->size - 8)
        return ps_fail(dt, -PS_EFORMAT,
                       "%s: its header should have %llu bytes, but the file ends before (%llu "
                       "bytes): it is cut short",
                       s.f->path, (unsigned long long) len, (unsigned long long) s.f->size);
    s.f->data_off = 8 + len;
    return header(&s, len);
}
