/* SPDX-License-Identifier: Apache-2.0 */
/* A run of a CUDA row: every buffer has a twin in the GPU's memory that ends where the allocation ends (under tests/cudaemu at a page
 * that cannot be touched; on a GPU compute-sanitizer's memcheck knows). Words of the args and of the inputs that point into a buffer are made to point into its twin. */
#include "engine/base/ps_err.h"
#include "kt.h"
#ifdef KT_CUDAEMU
#include "cudaemu.h"
#endif
#include <stdlib.h>
#include <string.h>

enum { BLAS_BYTES = 32 << 20, GRAIN = 256, PAGE = 4096, BOUNCE = 1 << 20 };

static _Alignas(PAGE) uint8_t bounce[BOUNCE]; /* pinned: what every copy passes through */

static void must(const struct kt *kt, int rc, const char *what)
{
    if (rc >= 0) return;
    fprintf(stderr, "ktest: %s: %s (%s)\n", what, ps_err_name(rc), kt->cuda->error());
    exit(2);
}

static void *gpu_alloc(const struct kt *kt, size_t bytes)
{
    void *p = NULL;
    must(kt, kt->cuda->alloc(bytes, &p), "GPU memory");
    return p;
}

/* What the emulation has found so far: races, accesses out of bounds, ... */
static unsigned reports(void)
{
#ifdef KT_CUDAEMU
    return cudaemu_reports();
#else
    return 0;
#endif
}

/* Complete when it returns. One of the two is the GPU's. */
static void copy(struct kt *kt, void *dst, const void *src, size_t bytes, bool to_gpu)
{
    for (size_t i = 0, n; i < bytes; i += n) {
        n = bytes - i < BOUNCE ? bytes - i : BOUNCE;
        uint8_t *to = (uint8_t *) dst + i;
        const uint8_t *from = (const uint8_t *) src + i;
        if (to_gpu) memcpy(bounce, from, n);
        must(kt, kt->cuda->copy(&kt->stream, to_gpu ? to : bounce, to_gpu ? bounce : from, n),
             "copy");
        must(kt, kt->cuda->sync(&kt->stream), "copy");
        if (!to_gpu) memcpy(to, bounce, n);
    }
}

void kt_cuda_open(struct kt *kt)
{
    struct ps_cuda_stream *s = &kt->stream;
    must(kt, kt->cuda->pin(bounce, BOUNCE), "pinning memory");
    s->blas_bytes = BLAS_BYTES;
    s->blas_mem = gpu_alloc(kt, s->blas_bytes);
    s->counters = gpu_alloc(kt, PS_CUDA_COUNTERS * sizeof *s->counters);
    s->err = gpu_alloc(kt, PS_OP__COUNT * sizeof *s->err);
    must(kt, kt->cuda->open(s), "opening a stream");
}

void kt_cuda_close(struct kt *kt)
{
    struct ps_cuda_stream *s = &kt->stream;
    must(kt, kt->cuda->close(s), "closing a stream");
    must(kt, kt->cuda->unpin(bounce), "unpinning memory");
    must(kt, kt->cuda->free(s->blas_mem), "freeing");
    must(kt, kt->cuda->free(s->counters), "freeing");
    must(kt, kt->cuda->free(s->err), "freeing");
}

struct twin {
    uint8_t *base, *p; /* on the GPU */
    uint8_t *host;     /* what it holds before the run, then after */
};

/* Every aligned word of p that points into a buffer, or to its end, points into the twin afterwards. */
static void translate(const struct kt *kt, const struct twin *twins, void *p, size_t bytes)
{
    for (size_t i = 0; i + sizeof(uintptr_t) <= bytes; i += sizeof(uintptr_t)) {
        uintptr_t w;
        memcpy(&w, (uint8_t *) p + i, sizeof w);
        for (unsigned b = 0; b < kt->n_buf; b++) {
            const uintptr_t at = (uintptr_t) kt->buf[b].p;
            if (!w || w < at || w > at + kt->buf[b].bytes) continue;
            w = (uintptr_t) twins[b].p + (w - at);
            memcpy((uint8_t *) p + i, &w, sizeof w);
            break;
        }
    }
}

static void upload(struct kt *kt, struct twin *twins)
{
    for (unsigned b = 0; b < kt->n_buf; b++) {
        const size_t bytes = kt->buf[b].bytes, room = (bytes / GRAIN + 1) * GRAIN;
        twins[b].base = gpu_alloc(kt, room);
        twins[b].p = twins[b].base + (room - bytes);
    }
    for (unsigned b = 0; b < kt->n_buf; b++) {
        const struct kt_buf *k = &kt->buf[b];
        twins[b].host = malloc(k->bytes + 1);
        if (!twins[b].host) abort();
        memcpy(twins[b].host, k->p, k->bytes);
        if (k->role == KT_IN) translate(kt, twins, twins[b].host, k->bytes);
        copy(kt, twins[b].p, twins[b].host, k->bytes, true);
    }
}

/* Outputs come back, inputs must be as they were. */
static const char *download(struct kt *kt, struct twin *twins)
{
    const char *why = NULL;
    for (unsigned b = 0; b < kt->n_buf; b++) {
        const struct kt_buf *k = &kt->buf[b];
        uint8_t *got = malloc(k->bytes + 1);
        if (!got) abort();
        copy(kt, got, twins[b].p, k->bytes, false);
        if (k->role != KT_IN)
            memcpy(k->p, got, k->bytes);
        else if (memcmp(got, twins[b].host, k->bytes) != 0)
            why = "wrote to an input";
        free(got);
        free(twins[b].host);
        must(kt, kt->cuda->free(twins[b].base), "freeing");
    }
    return why;
}

/* The error that the kernel has left, which is taken away. */
static int take_error(struct kt *kt)
{
    int32_t err[PS_OP__COUNT], zero[PS_OP__COUNT] = { 0 };
    int rc = 0;
    copy(kt, err, kt->stream.err, sizeof err, false);
    for (int op = 0; op < PS_OP__COUNT && !rc; op++) rc = err[op];
    copy(kt, kt->stream.err, zero, sizeof zero, true);
    return rc;
}

int kt_cuda_run(struct kt *kt, const struct ps_kern *k, const void *args, struct kt_buf *scratch,
                const char **ret_why)
{
    static struct twin twins[KT_BUF_MAX];
    _Alignas(16) uint8_t mine[KT_ARGS_MAX];
    const size_t size = ps_op_args_size(k->op);
    const unsigned before = reports();
    upload(kt, twins);
    memcpy(mine, args, size);
    translate(kt, twins, mine, size);
    const struct ps_span span = { .end = ps_op_units(k->op, args),
                                  .scratch = twins[scratch - kt->buf].p,
                                  .stream = &kt->stream };
    int rc = k->run(mine, &span);
    if (rc >= 0) rc = kt->cuda->sync(&kt->stream);
    if (rc < 0) fprintf(stderr, "%s: %s\n", k->name, kt->cuda->error());
    if (rc >= 0) rc = take_error(kt);
    *ret_why = download(kt, twins);
    if (!*ret_why && reports() > before) *ret_why = "the emulation reports something";
    return rc;
}

/* ---- benchmarks: kt_big() memory is copied once, and stays */

void kt_cuda_forget(struct kt *kt, unsigned big)
{
    if (kt->big[big].gpu) must(kt, kt->cuda->free(kt->big[big].gpu), "freeing");
    kt->big[big].gpu = NULL;
}

/* As translate(). What only looks like a pointer into the heap (0x7f.. in the upper half) is no number in any of our types. */
static void translate_big(const struct kt *kt, void *p, size_t bytes)
{
    uintptr_t lo = UINTPTR_MAX, hi = 0, w;
    for (unsigned b = 1; b < kt->n_big; b++) {
        const uintptr_t at = (uintptr_t) kt->big[b].p, end = at + kt->big[b].bytes;
        if (at < lo) lo = at;
        if (end > hi) hi = end;
    }
    for (size_t i = 0; i + sizeof w <= bytes; i += sizeof w) {
        memcpy(&w, (uint8_t *) p + i, sizeof w);
        if (w < lo || w >= hi) continue;
        for (unsigned b = 1; b < kt->n_big; b++) {
            const uintptr_t at = (uintptr_t) kt->big[b].p;
            if (w < at || w >= at + kt->big[b].bytes) continue;
            w = (uintptr_t) kt->big[b].gpu + (w - at);
            memcpy((uint8_t *) p + i, &w, sizeof w);
            break;
        }
    }
}

static void mirror(struct kt *kt)
{
    bool old[KT_BIG_MAX];
    for (unsigned b = 1; b < kt->n_big; b++) {
        old[b] = kt->big[b].gpu != NULL;
        if (!old[b]) kt->big[b].gpu = gpu_alloc(kt, kt->big[b].bytes);
    }
    for (unsigned b = 1; b < kt->n_big; b++)
        for (size_t i = 0, n; i < kt->big[b].bytes && !old[b]; i += n) {
            n = kt->big[b].bytes - i < BOUNCE ? kt->big[b].bytes - i : BOUNCE;
            memcpy(bounce, (uint8_t *) kt->big[b].p + i, n);
            translate_big(kt, bounce, n);
            must(kt, kt->cuda->copy(&kt->stream, (uint8_t *) kt->big[b].gpu + i, bounce, n),
                 "copy");
            must(kt, kt->cuda->sync(&kt->stream), "copy");
        }
}

double kt_cuda_pass(struct kt *kt, const struct ps_kern *k, const void *const *args, unsigned n,
                    void *scratch)
{
    enum { SHORT_NS = 2000000, REPEATS = 100 };
    _Alignas(16) uint8_t mine[KT_ARGS_MAX];
    void *from = NULL, *to = NULL;
    uint64_t ns = 0;
    struct ps_span span = { .scratch = scratch, .stream = &kt->stream };
    mirror(kt);
    translate_big(kt, &span.scratch, sizeof span.scratch);
    must(kt, kt->cuda->event_make(&from), "an event");
    must(kt, kt->cuda->event_make(&to), "an event");
    /* A short pass says little about itself: as many as fill the time, launched behind each other. */
    for (unsigned repeats = 1;; repeats = (unsigned) (SHORT_NS / (ns + 1)) + 1) {
        if (repeats > REPEATS) repeats = REPEATS;
        must(kt, kt->cuda->event_put(&kt->stream, from), "an event");
        for (unsigned i = 0; i < n * repeats; i++) {
            memcpy(mine, args[i % n], ps_op_args_size(k->op));
            translate_big(kt, mine, ps_op_args_size(k->op));
            span.end = ps_op_units(k->op, args[i % n]);
            must(kt, k->run(mine, &span), k->name);
        }
        must(kt, kt->cuda->event_put(&kt->stream, to), "an event");
        must(kt, kt->cuda->event_sync(to), k->name);
        must(kt, kt->cuda->event_ns(from, to, &ns), "an event");
        ns /= repeats;
        if (repeats > 1 || ns >= SHORT_NS) break;
    }
    must(kt, take_error(kt), k->name);
    must(kt, kt->cuda->event_free(from), "an event");
    must(kt, kt->cuda->event_free(to), "an event");
    return (double) ns + 1;
}
