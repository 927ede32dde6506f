/* SPDX-License-Identifier: Apache-2.0 */
/* A stream with all its memory, which tests of single kernels share. */
#ifndef PS_TEST_KCUDA_H
#define PS_TEST_KCUDA_H
#include "kernels/cuda/ps_cuda.h"

struct kcuda {
    const struct ps_cuda_api *api;
    struct ps_cuda_stream stream;
};
extern struct kcuda kcuda;

/* cmocka's, of a group. */
int kcuda_open(void **state);
int kcuda_close(void **state);

void *kcuda_gpu(size_t bytes); /* memory of the GPU */
void kcuda_free(void *p);
/* One side is `host`, which is pinned meanwhile; complete when it returns. */
void kcuda_copy(void *dst, const void *src, void *host, size_t bytes);
#endif
