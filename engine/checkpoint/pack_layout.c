/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything goes in a packed file, and its header.
 *
 * Each tensor begins at a 4 KiB boundary. A group's vectors make one chunk together; a matrix is one chunk if it is short
 * enough, else blocks of equally many rows. Blocks end at 4 KiB boundaries and, where that allows it, at multiples of 64 rows, the
 * unit of a linear layer's work (or of half of it and so on, for very long rows). Rows whose length has few factors of two can
 * make blocks longer than PS_CHUNK_BYTES: such widths do not occur in published models. */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack_file.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES_LEAST = 256 << 10 };

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Rows of the blocks that a matrix is cut into (the last block may have fewer). */
static uint32_t block_rows(uint64_t rows, uint64_t row_bytes, uint64_t limit)
{
    if (rows * row_bytes <= limit) return (uint32_t) rows;
    uint64_t step = PS_PACK_ALIGN / gcd(PS_PACK_ALIGN, row_bytes);
    for (uint64_t unit = PS_LINEAR_UNIT; unit > 1; unit /= 2) {
        uint64_t both = step * (unit / gcd(step, unit));
        if (both * row_bytes > limit) continue;
        step = both;
        break;
    }
    uint64_t blocks = (rows * row_bytes + limit - 1) / limit;
    uint64_t n = (rows + blocks - 1) / blocks;
    n = (n + step - 1) / step * step;
    if (n * row_bytes > limit && n > step) n = limit / row_bytes / step * step;
    if (n < step) n = step;
    return (uint32_t) (n < rows ? n : rows);
}

/* The longest block: where layers are small, none of the token table's is longer than a layer's largest matrix, since the
 * slots that streamed chunks are read into are all as long as the longest chunk. */
static uint64_t chunk_limit(const struct ps_packed *p)
{
    uint64_t most = CHUNK_BYTES_LEAST;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].t.group && p->tensors[i].bytes > most) most = p->tensors[i].bytes;
    return most < PS_CHUNK_BYTES ? most : PS_CHUNK_BYTES;
}

/* Chunks of tensor i alone; with `out` NULL they are only counted. */
static uint32_t cut(const struct ps_packed *p, uint32_t i, struct ps_chunk *out)
{
    const struct ps_packed_tensor *t = &p->tensors[i];
    uint64_t rb = t->bytes / t->t.rows;
    uint32_t step = block_rows(t->t.rows, rb, chunk_limit(p)), n = 0;
    for (uint32_t row = 0; row < t->t.rows; row += step, n++) {
        uint32_t rows = t->t.rows - row < step ? t->t.rows - row : step;
        if (!out) continue;
        out[n] = (struct ps_chunk) {
            .off = t->off + row * rb,
            .len = (uint32_t) PS_ROUND_UP(rows * rb, (uint64_t) PS_PACK_ALIGN),
            .group = t->t.group,
            .first_tensor = i,
            .n_tensors = 1,
            .row0 = row,
            .rows = rows,
        };
    }
    return n;
}

/* All chunks, into `out` or only counted. */
static uint32_t chunk_all(struct ps_packed *p, struct ps_chunk *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_tensors;) {
        uint32_t run = 0;
        uint64_t bytes = 0;
        while (i + run < p->n_tensors) {
            const struct ps_packed_tensor *t = &p->tensors[i + run];
            uint64_t b = PS_ROUND_UP(t->bytes, (uint64_t) PS_PACK_ALIGN);
            if (!t->t.vector || t->t.group != p->tensors[i].t.group ||
                (run && bytes + b > PS_CHUNK_BYTES))
                break;
            bytes += b;
            run++;
        }
        uint32_t made = 1;
        if (run < 2) {
            made = cut(p, i, out ? out + n : NULL);
            p->tensors[i].first_chunk = n;
            p->tensors[i].n_chunks = made;
        } else if (out) {
            out[n] = (struct ps_chunk) { .off = p->tensors[i].off,
                                         .len = (uint32_t) bytes,
                                         .group = p->tensors[i].t.group,
                                         .first_tensor = i,
                                         .n_tensors = run };
        }
        for (uint32_t k = 0; run >= 2 && k < run; k++) {
            p->tensors[i + k].first_chunk = n;
            p->tensors[i + k].n_chunks = 1;
        }
        n += made;
        i += run < 2 ? 1 : run;
    }
    return n;
}

int ps_pack_layout(const struct ps_shape *s, enum ps_dtype dtype, struct ps_packed *p,
                   struct ps_detail *dt)
{
    ps_auto_free struct ps_tensor *list = NULL;
    size_t n, eb = ps_dtype_bytes(dtype);
    int r = ps_model_tensors(s, &list, &n, dt);
    if (r < 0) return r;
    p->shape = *s;
    p->dtype = dtype;
    p->tensors = ps_calloc(n, sizeof *p->tensors);
    if (!p->tensors) return ps_fail(dt, -ENOMEM, "out of memory for %zu tensors", n);
    p->n_tensors = (uint32_t) n;
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        struct ps_packed_tensor *t = &p->tensors[i];
        *t = (struct ps_packed_tensor) { .t = list[i],
                                         .dtype = dtype,
                                         .off = at,
                                         .bytes = (uint64_t) list[i].rows * list[i].cols * eb };
        uint64_t rb = t->bytes / t->t.rows, step = block_rows(t->t.rows, rb, PS_CHUNK_BYTES);
        if (step * rb > INT_MAX)
            return ps_fail(dt, -PS_EUNSUPPORTED,
                           "tensor %s: rows of %llu bytes cannot be cut at 4 KiB boundaries",
                           t->t.name, (unsigned long long) rb);
        p->weight_bytes += t->bytes;
        at += PS_ROUND_UP(t->bytes, (uint64_t) PS_PACK_ALIGN);
    }
    p->file_bytes = at; /* the head comes in front */
    p->n_chunks = chunk_all(p, NULL);
    p->chunks = ps_calloc(p->n_chunks, sizeof *p->chunks);
    if (!p->chunks) return ps_fail(dt, -ENOMEM, "out of memory for %u chunks", p->n_chunks);
    (void) chunk_all(p, p->chunks);
    for (uint32_t i = 0; i < p->n_chunks; i++)
        if (p->chunks[i].len > p->chunk_bytes) p->chunk_bytes = p->chunks[i].len;
    return 0;
}

/* Appends to a buffer that was sized beforehand; what does not fit is a bug in head_room(). */
struct out {
    char *text;
    size_t n, cap;
};
static void put(struct out *o, const char *fmt, ...) ps_printf_(2, 3);
static void put(struct out *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(o->text + o->n, o->cap - o->n, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t) n < o->cap - o->n) o->n += (size_t) n;
}

static size_t head_room(const struct ps_packed *p)
{
    return 4096 + (size_t) p->n_tensors * 384 + (size_t) p->n_chunks * 72;
}

static void put_tensors(struct out *o, const struct ps_packed *p)
{
    static const char *const names[PS_DTYPE__COUNT] = {
        [PS_F32] = "F32", [PS_F16] = "F16", [PS_BF16] = "BF16"
    };
    unsigned pads = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct ps_packed_tensor *t = &p->tensors[i];
        unsigned long long from = t->off, to = t->off + t->bytes;
        unsigned long long next = PS_ROUND_UP(to, (unsigned long long) PS_PACK_ALIGN);
        if (t->t.vector)
            put(o, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%u],\"data_offsets\":[%llu,%llu]}",
                t->t.name, names[t->dtype], t->t.cols, from, to);
        else
            put(o, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%u,%u],\"data_offsets\":[%llu,%llu]}",
                t->t.name, names[t->dtype], t->t.rows, t->t.cols, from, to);
        if (next != to)
            put(o, ",\"_pad.%u\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
                pads++, next - to, to, next);
    }
}

int ps_pack_head_make(const struct ps_packed *p, uint64_t source_hash, struct ps_pack_head *ret,
                      struct ps_detail *dt)
{
    struct ps_pack_head h = { 0 };
    size_t room = PS_ROUND_UP(head_room(p), (size_t) PS_PACK_ALIGN);
    h.text = ps_aligned(PS_PACK_ALIGN, room);
    h.sum_at = ps_calloc(p->n_chunks, sizeof *h.sum_at);
    if (!h.text || !h.sum_at) {
        ps_pack_head_done(&h);
        return ps_fail(dt, -ENOMEM, "out of memory for the packed file's header");
    }
    struct out o = { h.text, 8, room };
    char shape[PS_SHAPE_TEXT];
    ps_shape_text(&p->shape, shape);
    put(&o,
        "{\"__metadata__\":{\"format\":\"pt\",\"penstock\":\"{\\\"version\\\":%d,\\\"source\\\":"
        "\\\"%016llx\\\",\\\"shape\\\":\\\"%s\\\"}\",\"chunks\":\"[",
        PS_PACK_VERSION, (unsigned long long) source_hash, shape);
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        put(&o, "%s[%llu,%u,\\\"", i ? "," : "", (unsigned long long) p->chunks[i].off,
            p->chunks[i].len);
        h.sum_at[i] = o.n;
        put(&o, "%016llx\\\"]", 0ull);
    }
    put(&o, "]\"}");
    put_tensors(&o, p);
    put(&o, "}");
    h.len = PS_ROUND_UP(o.n, (size_t) PS_PACK_ALIGN);
    memset(h.text + o.n, ' ', h.len - o.n);
    for (int i = 0; i < 8; i++) h.text[i] = (char) ((uint64_t) (h.len - 8) >> (8 * i) & 255);
    *ret = h;
    return 0;
}

void ps_pack_put_sum(struct ps_pack_head *h, uint32_t chunk, uint64_t sum)
{
    char text[17];
    (void) snprintf(text, sizeof text, "%016llx", (unsigned long long) sum);
    memcpy(h->text + h->sum_at[chunk], text, 16);
}

void ps_pack_head_done(struct ps_pack_head *h)
{
    free(h->text);
    free(h->sum_at);
    *h = (struct ps_pack_head) { 0 };
}
