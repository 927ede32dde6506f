/* SPDX-License-Identifier: Apache-2.0 */
/* Whole .bin files; an input that is no zip archive is read as the pickle in one. */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pickle.h"
#include "engine/checkpoint/source.h"
#include "fuzz_file.h"
#include <string.h>

static int add(void *ud, const struct ps_pickle_tensor *t, struct ps_detail *dt)
{
    uint64_t *sum = ud;
    for (uint32_t i = 0; i < t->name.len; i++) *sum += (unsigned char) t->name.s[i];
    for (uint32_t i = 0; i < t->key.len; i++) *sum += (unsigned char) t->key.s[i];
    for (uint32_t i = 0; i < t->ndim; i++) *sum += t->dims[i] + t->strides[i];
    return 0;
}

/* A view's elements, if they are few: whatever sizes and strides are, an error or elements of the file. */
static void read_view(const struct ps_src *s, const struct ps_src_tensor *t, struct ps_detail *dt)
{
    enum { ELEMS = 4096 };
    uint64_t n;
    if (t->dtype < 0 || !t->ndim || t->ndim > 2 || !ps_src_numel(t->dims, t->ndim, &n) || !n ||
        n > ELEMS)
        return;
    const uint64_t from = n / 3;
    const size_t bytes = (size_t) (n - from) * ps_dtype_bytes((enum ps_dtype) t->dtype);
    const char *got;
    ps_auto_free char *room = ps_aligned(4096, bytes + PS_SRC_ROOM);
    if (!room) return;
    memset(room, 0, bytes + PS_SRC_ROOM);
    if (ps_src_elems(s, t, room, from, (size_t) (n - from), &got, dt) < 0) return;
    if (got < room || got + bytes > room + bytes + PS_SRC_ROOM) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_detail dt;
    if (size < 2 || memcmp(data, "PK", 2) != 0) {
        uint64_t sum = 0;
        (void) !ps_pickle_read((const char *) data, size, "x", add, &sum, &dt);
        return 0;
    }
    char path[64];
    ps_auto_close int fd = fuzz_file(data, size, path, sizeof path);
    (void) fd;
    ps_auto_src struct ps_src *s = NULL;
    int r = ps_src_open_file(path, &s, &dt);
    for (size_t i = 0; r == 0 && i < s->n_tensors; i++) {
        if (s->tensors[i].off > size || s->tensors[i].bytes > size - s->tensors[i].off) abort();
        read_view(s, &s->tensors[i], &dt);
    }
    return 0;
}
