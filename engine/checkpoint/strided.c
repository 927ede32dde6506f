/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that are transposed, sliced or expanded views of their storage. They are gathered in runs along the dimension whose elements
 * lie closer together, through the page cache: a chunk of rows of a transposed matrix is a short piece of each column. */
#include "engine/checkpoint/source.h"
#include <assert.h>
#include <string.h>

/* Runs that are gathered together where they end up side by side: what is written then are whole cache lines. */
enum { TOGETHER = 32 };

struct dim {
    uint64_t n, stride, pitch; /* pitch: from one to the next in row-major order */
};
/* Runs of n elements each, in the file and in memory. Distances are in elements. */
struct runs {
    uint64_t off;           /* of the first element in the file */
    uint64_t step, n;       /* from one element of a run to the next */
    uint64_t stride, count; /* from one run to the next */
    size_t bytes;           /* of an element */
    char *dst;              /* of the first */
    uint64_t pitch; /* from one element of a run to the next at dst; runs are side by side there */
};

/* Elements [done, done + k) of each run from the pieces, `piece_bytes` apart, that were read of them. */
static inline void spread(const struct runs *u, size_t bytes, uint64_t done, uint64_t k,
                          const char *pieces, size_t piece_bytes)
{
    for (uint64_t i = 0; i < k; i++) {
        char *to = u->dst + (done + i) * u->pitch * bytes;
        const char *from = pieces + i * u->step * bytes;
        for (uint64_t c = 0; c < u->count; c++, to += bytes, from += piece_bytes)
            memcpy(to, from, bytes);
    }
}

static int copy_runs(const struct ps_src_file *f, const struct runs *u, char *pieces,
                     struct ps_detail *dt)
{
    const size_t room = PS_SRC_ROOM / TOGETHER;
    const uint64_t most = u->step ? (room / u->bytes - 1) / u->step + 1 : u->n;
    for (uint64_t done = 0, k; done < u->n; done += k) {
        k = u->n - done < most ? u->n - done : most;
        size_t span = (size_t) ((k - 1) * u->step + 1) * u->bytes;
        for (uint64_t c = 0; c < u->count; c++) {
            uint64_t off = u->off + (c * u->stride + done * u->step) * u->bytes;
            int r = ps_src_pread(f, pieces + c * room, span, off, dt);
            if (r < 0) return r;
        }
        if (u->bytes == 2) /* a known size is one move */
            spread(u, 2, done, k, pieces, room);
        else
            spread(u, u->bytes, done, k, pieces, room);
    }
    return 0;
}

static uint64_t steps_to(uint64_t from, uint64_t to, uint64_t step)
{
    return to > from ? (to - from + step - 1) / step : 0;
}

/* Of outer index o, the inner indexes [*from, *to) whose elements are among elem0 .. elem0 + n - 1. */
static void part_of(const struct dim *outer, const struct dim *inner, uint64_t o, uint64_t elem0,
                    uint64_t n, uint64_t *from, uint64_t *to)
{
    *from = steps_to(o * outer->pitch, elem0, inner->pitch);
    *to = steps_to(o * outer->pitch, elem0 + n, inner->pitch);
    if (*to > inner->n) *to = inner->n;
}

int ps_src_elems(const struct ps_src *s, const struct ps_src_tensor *t, void *room, uint64_t elem0,
                 size_t n, const char **ret, struct ps_detail *dt)
{
    const struct ps_src_file *f = &s->files[t->file];
    const size_t bytes = ps_dtype_bytes((enum ps_dtype) t->dtype);
    if (!t->strided) return ps_src_read(f, room, n * bytes, t->off + elem0 * bytes, ret, dt);
    assert(t->ndim == 1 || t->ndim == 2);
    struct dim inner = { t->dims[t->ndim - 1], t->strides[t->ndim - 1], 1 };
    struct dim outer = { 1, inner.stride, inner.n };
    if (t->ndim == 2) outer = (struct dim) { t->dims[0], t->strides[0], inner.n };
    if (outer.stride < inner.stride) {
        struct dim was = inner;
        inner = outer;
        outer = was;
    }
    *ret = room;
    for (uint64_t o = 0, count; o < outer.n; o += count) {
        uint64_t from, to;
        part_of(&outer, &inner, o, elem0, n, &from, &to);
        count = 1;
        if (from >= to) continue;
        while (outer.pitch == 1 && count < TOGETHER && o + count < outer.n) {
            uint64_t a, b;
            part_of(&outer, &inner, o + count, elem0, n, &a, &b);
            if (a != from || b != to) break;
            count++;
        }
        struct runs u = { .step = inner.stride,
                          .n = to - from,
                          .stride = outer.stride,
                          .count = count,
                          .bytes = bytes,
                          .pitch = inner.pitch };
        u.off = t->off + (o * outer.stride + from * inner.stride) * bytes;
        u.dst = (char *) room + (o * outer.pitch + from * inner.pitch - elem0) * bytes;
        int r = copy_runs(f, &u, (char *) room + n * bytes, dt);
        if (r < 0) return r;
    }
    return 0;
}
