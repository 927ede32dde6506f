/* SPDX-License-Identifier: Apache-2.0 */
#include "kcuda.h"
#include "ps_cmocka.h"

enum { BLAS = 1 << 16 };
struct kcuda kcuda;

void *kcuda_gpu(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(kcuda.api->alloc(bytes, &p), 0);
    return p;
}

void kcuda_free(void *p) { assert_int_equal(kcuda.api->free(p), 0); }

void kcuda_copy(void *dst, const void *src, void *host, size_t bytes)
{
    assert_int_equal(kcuda.api->pin(host, bytes), 0);
    assert_int_equal(kcuda.api->copy(&kcuda.stream, dst, src, bytes), 0);
    assert_int_equal(kcuda.api->sync(&kcuda.stream), 0);
    assert_int_equal(kcuda.api->unpin(host), 0);
}

int kcuda_open(void **state)
{
    struct ps_cuda_stream *s = &kcuda.stream;
    kcuda.api = ps_cuda_module();
    ps_kern_add(kcuda.api->rows);
    s->blas_bytes = BLAS;
    s->blas_mem = kcuda_gpu(BLAS);
    s->counters = kcuda_gpu(PS_CUDA_COUNTERS * sizeof *s->counters);
    s->err = kcuda_gpu(PS_OP__COUNT * sizeof *s->err);
    return kcuda.api->open(s);
}

int kcuda_close(void **state)
{
    struct ps_cuda_stream *s = &kcuda.stream;
    const int r = kcuda.api->close(s);
    kcuda_free(s->blas_mem);
    kcuda_free(s->counters);
    kcuda_free(s->err);
    return r;
}
