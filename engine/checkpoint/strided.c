/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that are transposed, sliced or expanded views of their storage. They are gathered in runs along the dimension whose elements
 * lie closer together, through the page cache: a chunk of rows of a transposed matrix is a short piece of each column. */
#include "engine/checkpoint/source.h"
#include <assert.h>
#include <string.h>

enum { PIECE = 8192 }; /* what `room` has beyond the elements */

struct dim {
    uint64_t n, stride, pitch; /* pitch: from one to the next in row-major order */
};
struct run {
    uint64_t off;   /* of the first element in the file */
    uint64_t step;  /* from one to the next, in elements */
    uint64_t n;     /* elements */
    size_t bytes;   /* of an element */
    char *dst;      /* of the first */
    uint64_t pitch; /* from one to the next at dst, in elements */
};

static int copy_run(const struct ps_src_file *f, const struct run *u, char *piece,
                    struct ps_detail *dt)
{
    const uint64_t most = u->step ? (PIECE / u->bytes - 1) / u->step + 1 : u->n;
    for (uint64_t done = 0, k; done < u->n; done += k) {
        k = u->n - done < most ? u->n - done : most;
        size_t span = (size_t) ((k - 1) * u->step + 1) * u->bytes;
        int r = ps_src_pread(f, piece, span, u->off + done * u->step * u->bytes, dt);
        if (r < 0) return r;
        for (uint64_t i = 0; i < k; i++)
            memcpy(u->dst + (done + i) * u->pitch * u->bytes, piece + i * u->step * u->bytes,
                   u->bytes);
    }
    return 0;
}

static uint64_t steps_to(uint64_t from, uint64_t to, uint64_t step)
{
    return to > from ? (to - from + step - 1) / step : 0;
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
    for (uint64_t o = 0; o < outer.n; o++) {
        uint64_t from = steps_to(o * outer.pitch, elem0, inner.pitch);
        uint64_t to = steps_to(o * outer.pitch, elem0 + n, inner.pitch);
        if (to > inner.n) to = inner.n;
        if (from >= to) continue;
        struct run u = { .step = inner.stride, .n = to - from, .bytes = bytes };
        u.off = t->off + (o * outer.stride + from * inner.stride) * bytes;
        u.dst = (char *) room + (o * outer.pitch + from * inner.pitch - elem0) * bytes;
        u.pitch = inner.pitch;
        int r = copy_run(f, &u, (char *) room + n * bytes, dt);
        if (r < 0) return r;
    }
    return 0;
}
