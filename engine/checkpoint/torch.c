/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's .bin files: a zip archive NAME/ with data.pkl (the state dict), byteorder, and a data/KEY of raw elements for each
 * storage. A tensor is a storage, an offset, sizes and strides, so that tensors may share one. */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/crc32.h"
#include "engine/checkpoint/pickle.h"
#include "engine/checkpoint/source.h"
#include "engine/checkpoint/zip.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const struct {
    const char *storage, *name;
    unsigned bytes;
    int dtype;
} types[] = {
    { "HalfStorage", "F16", 2, PS_F16 },  { "BFloat16Storage", "BF16", 2, PS_BF16 },
    { "FloatStorage", "F32", 4, PS_F32 }, { "DoubleStorage", "F64", 8, -1 },
    { "LongStorage", "I64", 8, -1 },      { "IntStorage", "I32", 4, -1 },
    { "ShortStorage", "I16", 2, -1 },     { "CharStorage", "I8", 1, -1 },
    { "ByteStorage", "U8", 1, -1 },       { "BoolStorage", "BOOL", 1, -1 },
};

struct reader {
    struct ps_src *src;
    struct ps_src_file *f;
    uint32_t file;
    struct ps_zip zip;
    const char *prefix; /* "NAME/", of an entry's name */
    size_t prefix_len;
    size_t names, names_max; /* bytes of f->text in use, and all */
};

static int copy_name(struct reader *rd, const struct ps_pickle_text *n, const char **ret,
                     struct ps_detail *dt)
{
    char *w = rd->f->text + rd->names;
    for (uint32_t i = 0; i < n->len; i++)
        if ((unsigned char) n->s[i] < 0x20 || n->s[i] == 0x7f)
            return ps_fail(dt, -PS_EFORMAT, "%s: a tensor's name has control characters",
                           rd->f->path);
    /* A pickle may use one long string as the name of many tensors. */
    if (n->len >= rd->names_max - rd->names)
        return ps_fail(dt, -PS_EFORMAT, "%s: tensors share a name", rd->f->path);
    memcpy(w, n->s, n->len);
    w[n->len] = 0;
    rd->names += n->len + 1;
    *ret = w;
    return 0;
}

/* How many elements of the storage lie from the first to the last. False if one of them is outside it. */
static bool inside(const struct ps_pickle_tensor *p, uint64_t numel, uint64_t *ret_span)
{
    uint64_t last = p->offset, span;
    *ret_span = 0;
    if (!numel) return p->offset <= p->storage_elems;
    for (uint32_t i = 0; i < p->ndim; i++)
        if (__builtin_mul_overflow(p->dims[i] - 1, p->strides[i], &span) ||
            __builtin_add_overflow(last, span, &last))
            return false;
    *ret_span = last - p->offset + 1;
    return last < p->storage_elems;
}

static bool is_contiguous(const struct ps_pickle_tensor *p)
{
    uint64_t want = 1;
    for (uint32_t i = p->ndim; i-- > 0;) {
        if (p->dims[i] != 1 && p->strides[i] != want) return false;
        want *= p->dims[i];
    }
    return true;
}

static int find_storage(struct reader *rd, const struct ps_pickle_tensor *p, const char *name,
                        const struct ps_zip_entry **ret, struct ps_detail *dt)
{
    char entry[512];
    int n = snprintf(entry, sizeof entry, "%.*sdata/%.*s", (int) rd->prefix_len, rd->prefix,
                     (int) p->key.len, p->key.s);
    bool whole = n > 0 && (size_t) n < sizeof entry && !memchr(p->key.s, 0, p->key.len);
    *ret = whole ? ps_zip_find(&rd->zip, entry) : NULL;
    if (*ret) return 0;
    return ps_fail(dt, -PS_EFORMAT, "%s: tensor %.200s: its storage %.100s is not in the archive",
                   rd->f->path, name, n > 0 ? entry : "");
}

static int add(void *ud, const struct ps_pickle_tensor *p, struct ps_detail *dt)
{
    struct reader *rd = ud;
    struct ps_src_tensor *t;
    const struct ps_zip_entry *e;
    uint64_t numel, span, base, bytes;
    int r = ps_src_add(rd->src, &t, dt);
    if (r < 0 || (r = copy_name(rd, &p->name, &t->name, dt)) < 0) return r;
    if ((r = find_storage(rd, p, t->name, &e, dt)) < 0) return r;
    if ((r = ps_zip_place(&rd->zip, e, &base, dt)) < 0)
        return ps_fail_in(dt, r, "tensor %.200s", t->name);
    size_t k = 0;
    while (k < PS_ARRAY_LEN(types) && strcmp(types[k].storage, p->storage) != 0) k++;
    if (k == PS_ARRAY_LEN(types))
        return ps_fail(dt, -PS_EUNSUPPORTED, "%s: tensor %.200s: storage type %s", rd->f->path,
                       t->name, p->storage);
    if (__builtin_mul_overflow(p->storage_elems, (uint64_t) types[k].bytes, &bytes) ||
        bytes != e->bytes)
        return ps_fail(dt, -PS_EFORMAT,
                       "%s: tensor %.200s: its storage should have %llu elements of %s, but entry "
                       "%.100s has %llu bytes",
                       rd->f->path, t->name, (unsigned long long) p->storage_elems, types[k].name,
                       e->name, (unsigned long long) e->bytes);
    t->dtype = types[k].dtype;
    t->dtype_name = types[k].name;
    t->file = rd->file;
    t->ndim = p->ndim;
    memcpy(t->dims, p->dims, sizeof t->dims);
    if (!ps_src_numel(t->dims, t->ndim, &numel) || !inside(p, numel, &span))
        return ps_fail(dt, -PS_ESHAPE, "%s: tensor %.200s reaches out of its storage", rd->f->path,
                       t->name);
    memcpy(t->strides, p->strides, sizeof t->strides);
    t->strided = !is_contiguous(p);
    t->off = base + p->offset * types[k].bytes;
    t->bytes = span * types[k].bytes;
    t->sum.off = base;
    t->sum.bytes = e->bytes;
    t->sum.crc = e->crc;
    return 0;
}

/* Not a zip archive: says what it may be. */
static int not_zip(const struct ps_src_file *f, const unsigned char *head, struct ps_detail *dt)
{
    static const unsigned char magic[] = { 0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                           0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19 };
    static const char lfs[] = "version https:";
    if (!memcmp(head, magic, sizeof magic))
        return ps_fail(dt, -PS_EUNSUPPORTED,
                       "%s is in the format that PyTorch wrote before 1.6; with a newer PyTorch, "
                       "torch.save(torch.load(f, weights_only=True), f) makes it readable",
                       f->path);
    if (!memcmp(head, lfs, sizeof lfs - 1))
        return ps_fail(dt, -PS_EFORMAT,
                       "%s is a git-lfs pointer, not the weights: fetch them with git lfs pull",
                       f->path);
    return ps_fail(dt, -PS_EFORMAT, "%s is not a PyTorch checkpoint (no zip archive)", f->path);
}

static int check_byteorder(const struct reader *rd, struct ps_detail *dt)
{
    char name[512], text[8] = "";
    uint64_t off;
    int n = snprintf(name, sizeof name, "%.*sbyteorder", (int) rd->prefix_len, rd->prefix);
    const struct ps_zip_entry *e =
        n > 0 && (size_t) n < sizeof name ? ps_zip_find(&rd->zip, name) : NULL;
    if (!e) return 0;
    int r = ps_zip_place(&rd->zip, e, &off, dt);
    if (r < 0) return r;
    size_t len = e->bytes < sizeof text - 1 ? (size_t) e->bytes : sizeof text - 1;
    if ((r = ps_src_pread(rd->f, text, len, off, dt)) < 0) return r;
    if (!strcmp(text, "little")) return 0;
    return ps_fail(dt, -PS_EUNSUPPORTED, "%s was written on a machine of byte order \"%s\"",
                   rd->f->path, text);
}

/* The one entry NAME/data.pkl. */
static int find_pickle(struct reader *rd, const struct ps_zip_entry **ret, struct ps_detail *dt)
{
    static const char last[] = "/data.pkl";
    const size_t n = sizeof last - 1;
    *ret = NULL;
    for (uint32_t i = 0; i < rd->zip.n; i++) {
        const char *name = rd->zip.entries[i].name;
        size_t len = strlen(name);
        if (len <= n || strcmp(name + len - n, last) != 0 || strchr(name, '/') != name + len - n)
            continue;
        if (*ret)
            return ps_fail(dt, -PS_EFORMAT, "%s: the archive has several data.pkl", rd->f->path);
        *ret = &rd->zip.entries[i];
        rd->prefix = name;
        rd->prefix_len = len - n + 1;
    }
    if (!*ret)
        return ps_fail(dt, -PS_EFORMAT,
                       "%s is a zip archive, but not one that torch.save wrote (no data.pkl)",
                       rd->f->path);
    return 0;
}

static int read_pickle(struct reader *rd, struct ps_detail *dt)
{
    const struct ps_zip_entry *e;
    uint64_t off;
    int r = find_pickle(rd, &e, dt);
    if (r < 0 || (r = check_byteorder(rd, dt)) < 0 || (r = ps_zip_place(&rd->zip, e, &off, dt)) < 0)
        return r;
    if (e->bytes > PS_PICKLE_BYTES_MAX)
        return ps_fail(dt, -PS_EFORMAT, "%s: data.pkl has %llu bytes; at most %d are read",
                       rd->f->path, (unsigned long long) e->bytes, PS_PICKLE_BYTES_MAX);
    size_t len = (size_t) e->bytes;
    ps_auto_free char *pkl = ps_calloc(len, 1);
    rd->names_max = len + 1; /* each name is shorter than its entry */
    rd->f->text = ps_calloc(rd->names_max, 1);
    if (!pkl || !rd->f->text)
        return ps_fail(dt, -ENOMEM, "out of memory for the contents of %s", rd->f->path);
    if ((r = ps_src_pread(rd->f, pkl, len, off, dt)) < 0) return r;
    struct ps_crc32 crc;
    ps_crc32_init(&crc);
    rd->f->hash = XXH3_64bits(pkl, len);
    r = ps_pickle_read(pkl, len, rd->f->path, add, rd, dt);
    if (!e->crc || ps_crc32(&crc, pkl, len) == e->crc) return r;
    return ps_fail(dt, -PS_ECORRUPT,
                   "%s: data.pkl does not match its checksum: the file is damaged", rd->f->path);
}

int ps_torch_read(struct ps_src *s, uint32_t file, struct ps_detail *dt)
{
    struct reader rd = { .src = s, .f = &s->files[file], .file = file };
    unsigned char head[16] = { 0 };
    size_t n = rd.f->size < sizeof head ? (size_t) rd.f->size : sizeof head;
    int r = ps_src_pread(rd.f, head, n, 0, dt);
    if (r < 0) return r;
    if (memcmp(head, "PK", 2) != 0) return not_zip(rd.f, head, dt);
    if ((r = ps_zip_open(rd.f, &rd.zip, dt)) < 0) return r;
    r = read_pickle(&rd, dt);
    ps_zip_done(&rd.zip);
    return r;
}
