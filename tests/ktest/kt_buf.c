/* SPDX-License-Identifier: Apache-2.0 */
/* Guarded buffers: [no access][canary][buffer][no access], the buffer's end at the second guard page. */
#include "kt.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CANARY = 0xa5 };

uint32_t kt_rnd(struct kt *kt) /* xorshift128 */
{
    uint32_t *s = kt->rng, t = s[0] ^ (s[0] << 11);
    s[0] = s[1];
    s[1] = s[2];
    s[2] = s[3];
    return s[3] = s[3] ^ (s[3] >> 19) ^ t ^ (t >> 8);
}
uint32_t kt_below(struct kt *kt, uint32_t n)
{
    return (uint32_t) ((uint64_t) kt_rnd(kt) * n >> 32);
}
float kt_uniform(struct kt *kt, float lo, float hi)
{
    return lo + (hi - lo) * (float) (kt_rnd(kt) >> 8) / 16777216.0f;
}

size_t kt_type_bytes(enum kt_type t)
{
    return t == KT_U8 ? 1 : t == KT_F16 || t == KT_BF16 ? 2 : 4;
}
enum kt_type kt_type_of(enum ps_dtype t)
{
    return t == PS_F32 ? KT_F32 : t == PS_F16 ? KT_F16 : KT_BF16;
}

float kt_rounded(enum ps_dtype t, float rel)
{
    return rel + (t == PS_F32 ? 0 : t == PS_F16 ? 0x1p-10f : 0x1p-7f);
}

struct kt_buf *kt_buf_new(struct kt *kt, size_t bytes, enum kt_role role, enum kt_type type,
                          float rel)
{
    const size_t pg = (size_t) sysconf(_SC_PAGESIZE), body = (bytes + pg - 1) / pg * pg;
    if (kt->n_buf == KT_BUF_MAX) abort();
    struct kt_buf *b = &kt->buf[kt->n_buf++];
    *b = (struct kt_buf) {
        .map_len = body + 2 * pg, .bytes = bytes, .role = role, .type = type, .rel = rel
    };
    b->map = mmap(NULL, b->map_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED || (body && mprotect(b->map + pg, body, PROT_READ | PROT_WRITE)))
        abort();
    b->pre = body - bytes;
    b->p = b->map + pg + b->pre;
    memset(b->map + pg, CANARY, b->pre);
    if (role != KT_IN) {
        b->first = malloc(bytes + 1);
        b->want = malloc(bytes + 1);
        b->one = malloc(bytes + 1);
        if (!b->first || !b->want || !b->one) abort();
    }
    return b;
}

void *kt_in_bytes(struct kt *kt, size_t bytes) { return kt_buf_new(kt, bytes, KT_IN, KT_U8, 0)->p; }

float *kt_in_f32(struct kt *kt, size_t n, float lo, float hi)
{
    return kt_in_dtype(kt, PS_F32, n, lo, hi);
}

void *kt_in_dtype(struct kt *kt, enum ps_dtype t, size_t n, float lo, float hi)
{
    void *p = kt_in_bytes(kt, n * ps_dtype_bytes(t));
    for (size_t i = 0; i < n; i++) ps_dtype_put(t, p, i, kt_uniform(kt, lo, hi));
    return p;
}

int32_t *kt_in_i32(struct kt *kt, size_t n, int32_t lo, int32_t hi)
{
    void *p = kt_in_bytes(kt, n * sizeof(int32_t));
    int32_t *v = p;
    for (size_t i = 0; i < n; i++) v[i] = lo + (int32_t) kt_below(kt, (uint32_t) (hi - lo));
    return v;
}

void *kt_out(struct kt *kt, enum kt_type t, size_t n, float rel)
{
    return kt_buf_new(kt, n * kt_type_bytes(t), KT_OUT, t, rel)->p;
}
void *kt_inout(struct kt *kt, enum kt_type t, size_t n, float rel)
{
    return kt_buf_new(kt, n * kt_type_bytes(t), KT_INOUT, t, rel)->p;
}

void kt_bufs_free(struct kt *kt)
{
    for (unsigned i = 0; i < kt->n_buf; i++) {
        struct kt_buf *b = &kt->buf[i];
        munmap(b->map, b->map_len);
        free(b->first);
        free(b->want);
        free(b->one);
    }
    kt->n_buf = 0;
}

void kt_bufs_protect(struct kt *kt, int prot)
{
    const size_t pg = (size_t) sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < kt->n_buf; i++)
        if (kt->buf[i].role == KT_IN && kt->buf[i].map_len > 2 * pg)
            if (mprotect(kt->buf[i].map + pg, kt->buf[i].map_len - 2 * pg, prot)) abort();
}

void kt_bufs_reset(struct kt *kt)
{
    for (unsigned i = 0; i < kt->n_buf; i++) {
        struct kt_buf *b = &kt->buf[i];
        if (b->role == KT_OUT) memset(b->p, 0xff, b->bytes);
        if (b->role == KT_INOUT) memcpy(b->p, b->first, b->bytes);
    }
}

bool kt_canaries_ok(const struct kt *kt)
{
    for (unsigned i = 0; i < kt->n_buf; i++) {
        const uint8_t *pre = kt->buf[i].p - kt->buf[i].pre;
        for (size_t j = 0; j < kt->buf[i].pre; j++)
            if (pre[j] != CANARY) return false;
    }
    return true;
}

void *kt_big(struct kt *kt, size_t bytes)
{
    const size_t len = (bytes + (2u << 20) - 1) >> 21 << 21;
    if (kt->n_big == KT_BIG_MAX) abort();
    void *p = NULL;
    if (posix_memalign(&p, 2u << 20, len)) abort();
    (void) madvise(p, len, MADV_HUGEPAGE);
    kt->big[kt->n_big].p = p;
    kt->big[kt->n_big++].bytes = len;
    return p;
}

void kt_big_pop(struct kt *kt)
{
    kt_cuda_forget(kt, --kt->n_big);
    free(kt->big[kt->n_big].p);
}

/* The first belongs to the floor's measurement. */
void kt_big_free(struct kt *kt)
{
    while (kt->n_big > 1) kt_big_pop(kt);
}

void kt_big_fill(struct kt *kt, void *p, enum ps_dtype t, size_t n, float lo, float hi)
{
    /* A random block of a prime length, repeated: filling gigabytes must not take minutes. */
    enum { BLOCK = 65521 };
    const size_t sz = ps_dtype_bytes(t);
    const size_t first = n < BLOCK ? n : BLOCK;
    for (unsigned b = 0; b < kt->n_big; b++)
        if (kt->big[b].p == p) kt_cuda_forget(kt, b);
    for (size_t i = 0; i < first; i++) ps_dtype_put(t, p, i, kt_uniform(kt, lo, hi));
    for (size_t done = first; done < n;) {
        const size_t step = n - done < done ? n - done : done;
        memcpy((char *) p + done * sz, p, step * sz);
        done += step;
    }
}
