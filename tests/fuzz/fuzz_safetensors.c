/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/checkpoint/source.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct ps_detail dt;
    ps_auto_close int fd = fuzz_file(data, size, path, sizeof path);
    (void) fd;
    ps_auto_src struct ps_src *s = NULL;
    if (ps_src_open_file(path, &s, &dt) < 0) return 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct ps_src_tensor *t = &s->tensors[i];
        if (t->off > size || t->bytes > size - t->off) abort();
        if (ps_src_find(s, t->name) != t) abort();
    }
    return 0;
}
