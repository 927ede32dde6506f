/* SPDX-License-Identifier: Apache-2.0 */
/* Opens packed models. The shape comes from config.json, tensors from the header, chunks from the table in it; each is checked
 * against the other two, so that what stands in a ps_packed can be used as addresses. */
#include "engine/checkpoint/pack.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack_file.h"
#include "engine/checkpoint/source.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

bool ps_pack_is(const char *folder) { return ps_is_file(folder, PS_PACK_FILE); }

void ps_pack_close(struct ps_packed *p)
{
    if (!p) return;
    free(p->folder);
    free(p->path);
    free(p->tensors);
    free(p->chunks);
    free(p);
}

/* Where `text`, "NAME=VALUE ...", has that name ("NAME=", n bytes); NULL if it has not. */
static const char *find_item(const char *text, const char *name, size_t n)
{
    for (; *text; text += strcspn(text, " "), text += strspn(text, " "))
        if (!strncmp(text, name, n)) return text;
    return NULL;
}

/* Names that only one of them has were not known to the other's version. */
static int check_shape(const struct ps_src_file *f, struct ps_jstr packed,
                       const struct ps_shape *shape, const char *folder, struct ps_detail *dt)
{
    char was[PS_SHAPE_TEXT], is[PS_SHAPE_TEXT];
    if (packed.len >= sizeof was)
        return ps_fail(dt, -PS_EFORMAT, "%s: the shape that it says is too long: %zu bytes",
                       f->path, packed.len);
    (void) snprintf(was, sizeof was, "%.*s", (int) packed.len, packed.s ? packed.s : "");
    ps_shape_text(shape, is);
    for (const char *w = was; *w; w += strcspn(w, " "), w += strspn(w, " ")) {
        const size_t n = strcspn(w, " "), name = strcspn(w, "=");
        const char *i = name < n ? find_item(is, w, name + 1) : NULL;
        if (!i || (strcspn(i, " ") == n && !memcmp(i, w, n))) continue;
        return ps_fail(dt, -PS_ECONFLICT,
                       "%s/config.json says %.*s, but %s was packed with %.*s: put back the "
                       "config.json that it was packed with, or convert the model again",
                       folder, (int) strcspn(i, " "), i, f->path, (int) n, w);
    }
    return 0;
}

/* The header's version entry: {"version": 1, "source": "...", "shape": "..."}. */
int ps_pack_check_meta(const struct ps_src_file *f, const struct ps_shape *shape,
                       const char *folder, struct ps_detail *dt)
{
    if (!f->meta_pack.s || !f->meta_table.s)
        return ps_fail(dt, -PS_EFORMAT, "%s was not written by convert: no chunk table", f->path);
    struct ps_jscan c;
    struct ps_jstr key, packed = { 0 };
    uint64_t version = 0;
    int r;
    ps_jscan_init(&c, f->meta_pack.s, f->meta_pack.len);
    if (ps_jscan_open(&c, '{') < 0) goto bad;
    while ((r = ps_jscan_key(&c, &key)) > 0) {
        r = ps_jstr_is(key, "version") ? ps_jscan_u64(&c, &version)
            : ps_jstr_is(key, "shape") ? ps_jscan_str(&c, &packed)
                                       : ps_jscan_skip(&c);
        if (r < 0) goto bad;
    }
    if (r < 0) goto bad;
    if (version == PS_PACK_VERSION) return check_shape(f, packed, shape, folder, dt);
    return ps_fail(dt, -PS_EFORMAT,
                   "%s has format version %llu, this program reads %d: convert the model again",
                   f->path, (unsigned long long) version, PS_PACK_VERSION);
bad:
    return ps_fail(dt, -PS_EFORMAT, "%s: its \"penstock\" entry is malformed", f->path);
}

/* Each tensor of the model at its place in the file. */
static int match_tensors(struct ps_packed *p, const struct ps_src *src, struct ps_detail *dt)
{
    ps_auto_free struct ps_tensor *list = NULL;
    size_t n;
    int r = ps_model_tensors(&p->shape, &list, &n, dt);
    if (r < 0) return r;
    p->tensors = ps_calloc(n, sizeof *p->tensors);
    if (!p->tensors) return ps_fail(dt, -ENOMEM, "out of memory for %zu tensors", n);
    p->n_tensors = (uint32_t) n;
    uint64_t at = src->files[0].data_off;
    for (size_t i = 0; i < n; i++) {
        const struct ps_src_tensor *s = ps_src_find(src, list[i].name);
        char dims[128];
        if (!s) return ps_fail(dt, -PS_EFORMAT, "%s: tensor %s is missing", p->path, list[i].name);
        bool same = list[i].vector
                        ? s->ndim == 1 && s->dims[0] == list[i].cols
                        : s->ndim == 2 && s->dims[0] == list[i].rows && s->dims[1] == list[i].cols;
        if (!same)
            return ps_fail(dt, -PS_ESHAPE,
                           "%s: tensor %s has shape %s, config.json asks for [%u, %u]", p->path,
                           s->name, ps_src_dims(s, dims, sizeof dims), list[i].rows, list[i].cols);
        if (s->dtype < 0)
            return ps_fail(dt, -PS_EFORMAT, "%s: tensor %s has dtype %s", p->path, s->name,
                           s->dtype_name);
        if (i == 0) p->dtype = (enum ps_dtype) s->dtype;
        if (s->dtype != (int) p->dtype)
            return ps_fail(dt, -PS_EFORMAT, "%s: tensors of different dtypes (%s)", p->path,
                           s->name);
        if (s->off != at)
            return ps_fail(dt, -PS_EFORMAT, "%s: tensor %s stands at byte %llu, expected %llu",
                           p->path, s->name, (unsigned long long) s->off, (unsigned long long) at);
        p->tensors[i] = (struct ps_packed_tensor) {
            .t = list[i], .dtype = p->dtype, .off = s->off, .bytes = s->bytes
        };
        p->weight_bytes += s->bytes;
        at += PS_ROUND_UP(s->bytes, (uint64_t) PS_PACK_ALIGN);
    }
    if (at != p->file_bytes)
        return ps_fail(dt, -PS_EFORMAT, "%s has %llu bytes, expected %llu", p->path,
                       (unsigned long long) p->file_bytes, (unsigned long long) at);
    return 0;
}

/* Puts chunk number i, of which only off and len are known, over tensors from *at on (row *row of it). False if it is
 * neither whole tensors of one group nor rows of one. */
static bool place_chunk(struct ps_packed *p, uint32_t i, uint32_t *at, uint32_t *row)
{
    struct ps_chunk *c = &p->chunks[i];
    if (*at == p->n_tensors) return false;
    struct ps_packed_tensor *t = &p->tensors[*at];
    uint64_t rb = t->bytes / t->t.rows, begin = t->off + *row * rb;
    uint64_t left = PS_ROUND_UP(t->bytes - *row * rb, (uint64_t) PS_PACK_ALIGN);
    if (c->off != begin) return false;
    c->group = t->t.group;
    c->first_tensor = *at;
    c->n_tensors = 1;
    c->row0 = *row;
    if (!*row) t->first_chunk = i;
    t->n_chunks++;
    if (c->len < left) { /* a block of rows */
        if (c->len % rb) return false;
        c->rows = (uint32_t) (c->len / rb);
        *row += c->rows;
        return true;
    }
    c->rows = t->t.rows - *row;
    *row = 0;
    ++*at;
    uint64_t rest = c->len - left;
    for (; rest; c->n_tensors++, ++*at) {
        if (c->row0 || *at == p->n_tensors || p->tensors[*at].t.group != c->group) return false;
        uint64_t b = PS_ROUND_UP(p->tensors[*at].bytes, (uint64_t) PS_PACK_ALIGN);
        if (b > rest) return false;
        rest -= b;
        p->tensors[*at].first_chunk = i;
        p->tensors[*at].n_chunks = 1;
    }
    if (c->n_tensors > 1) c->rows = 0;
    return true;
}

static int parse_sum(const char *s, size_t len, uint64_t *ret)
{
    uint64_t v = 0;
    if (len != 16) return -PS_EFORMAT;
    for (size_t i = 0; i < len; i++) {
        char h = s[i];
        if (h >= '0' && h <= '9')
            v = v << 4 | (uint64_t) (h - '0');
        else if (h >= 'a' && h <= 'f')
            v = v << 4 | (uint64_t) (h - 'a' + 10);
        else
            return -PS_EFORMAT;
    }
    *ret = v;
    return 0;
}

/* [[offset, length, "checksum"], ...]; offsets count from the first tensor. */
static int read_chunk(struct ps_jscan *c, const struct ps_src_file *f, struct ps_chunk *ret)
{
    uint64_t off, len;
    struct ps_jstr sum;
    if (ps_jscan_open(c, '[') < 0 || ps_jscan_next(c) <= 0 || ps_jscan_u64(c, &off) < 0 ||
        ps_jscan_next(c) <= 0 || ps_jscan_u64(c, &len) < 0 || ps_jscan_next(c) <= 0 ||
        ps_jscan_str(c, &sum) < 0 || parse_sum(sum.s, sum.len, &ret->xxh3) < 0 ||
        ps_jscan_next(c) != 0)
        return -PS_EFORMAT;
    uint64_t room = f->size - f->data_off;
    if (off > room || !len || len > room - off || len > INT_MAX || off % PS_PACK_ALIGN ||
        len % PS_PACK_ALIGN)
        return -PS_EFORMAT;
    ret->off = f->data_off + off;
    ret->len = (uint32_t) len;
    return 0;
}

static int read_chunks(struct ps_packed *p, const struct ps_src_file *f, struct ps_detail *dt)
{
    struct ps_jscan c;
    uint32_t n = 0, cap = 0, at = 0, row = 0;
    int r;
    /* Each chunk takes four characters at least, one bracket pair of its own. */
    for (size_t i = 1; i < f->meta_table.len; i++) cap += f->meta_table.s[i] == '[';
    p->chunks = ps_calloc(cap, sizeof *p->chunks);
    if (!p->chunks) return ps_fail(dt, -ENOMEM, "out of memory for %u chunks", cap);
    ps_jscan_init(&c, f->meta_table.s, f->meta_table.len);
    if (ps_jscan_open(&c, '[') < 0) goto bad;
    while ((r = ps_jscan_next(&c)) > 0) {
        if (n == cap || read_chunk(&c, f, &p->chunks[n]) < 0) goto bad;
        if (!place_chunk(p, n, &at, &row)) goto bad;
        if (p->chunks[n].len > p->chunk_bytes) p->chunk_bytes = p->chunks[n].len;
        n++;
    }
    if (r < 0 || at != p->n_tensors || ps_jscan_done(&c) < 0) goto bad;
    p->n_chunks = n;
    return 0;
bad:
    return ps_fail(dt, -PS_EFORMAT,
                   "%s: entry %u of its chunk table does not fit its tensors: the file is damaged, "
                   "convert the model again",
                   f->path, n);
}

int ps_pack_open(const char *folder, struct ps_packed **ret, struct ps_detail *dt)
{
    ps_auto_pack struct ps_packed *p = ps_calloc(1, sizeof *p);
    if (!p || !(p->folder = ps_concat(folder, "", "")) ||
        !(p->path = ps_concat(folder, "/", PS_PACK_FILE)))
        return ps_fail(dt, -ENOMEM, "out of memory");
    ps_auto_free char *json = NULL;
    size_t len;
    int r = ps_shape_load(folder, &p->shape, &json, &len, dt);
    if (r < 0 || (r = ps_shape_runs(&p->shape, folder, dt)) < 0) return r;
    ps_auto_src struct ps_src *src = NULL;
    if ((r = ps_src_open_file(p->path, &src, dt)) < 0) return r;
    const struct ps_src_file *f = &src->files[0];
    p->file_bytes = f->size;
    p->hash = XXH3_64bits_withSeed(json, len, f->hash);
    if (f->data_off % PS_PACK_ALIGN)
        return ps_fail(dt, -PS_EFORMAT, "%s: its tensors do not begin at a 4 KiB boundary",
                       p->path);
    if ((r = ps_pack_check_meta(f, &p->shape, folder, dt)) < 0 ||
        (r = match_tensors(p, src, dt)) < 0 || (r = read_chunks(p, f, dt)) < 0)
        return r;
    *ret = PS_TAKE(p);
    return 0;
}

int ps_pack_verify(const struct ps_packed *p, uint32_t i, const void *bytes, struct ps_detail *dt)
{
    const struct ps_chunk *c = &p->chunks[i];
    if (XXH3_64bits(bytes, c->len) == c->xxh3) return 0;
    const char *first = p->tensors[c->first_tensor].t.name;
    char what[320];
    if (c->n_tensors > 1)
        (void) snprintf(what, sizeof what, "tensors %s to %s", first,
                        p->tensors[c->first_tensor + c->n_tensors - 1].t.name);
    else if (c->rows == p->tensors[c->first_tensor].t.rows)
        (void) snprintf(what, sizeof what, "tensor %s", first);
    else
        (void) snprintf(what, sizeof what, "tensor %s, rows %u to %u", first, c->row0,
                        c->row0 + c->rows - 1);
    return ps_fail(
        dt, -PS_ECORRUPT,
        "%s: %s (%u bytes at byte %llu) does not match its checksum: the file is damaged "
        "or was changed; convert the model again",
        p->path, what, c->len, (unsigned long long) c->off);
}
