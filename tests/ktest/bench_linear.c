/* SPDX-License-Identifier: Apache-2.0 */
/* linear at the shapes of OPT-1.3B and OPT-6.7B. Up to 32 rows memory is the limit: enough matrices in turn that no
 * cache holds them. The peers multiply f32 weights, of their own, as large as they are. */
#include "bench_linear.h"
#include "kt_blas.h"

enum { SETS_MAX = 64 };
struct peer_ud {
    const struct kt_blas *blas;
    struct kt_sgemm g[SETS_MAX];
    unsigned n;
};
static void peer_run(void *ud, unsigned i)
{
    struct peer_ud *p = ud;
    kt_blas_sgemm(p->blas, &p->g[i % p->n]);
}

struct pool_of {
    char *w, *w32; /* weights: ours, and f32 for the peers */
    size_t w_bytes, w32_elems;
    float *x, *y;
};

/* What a layer asks of it beside the product: bias, and ReLU or the residual. */
struct extras {
    const void *bias, *bias_f32;
    const float *residual;
    enum ps_act act;
};

static void one(struct kt *kt, const struct pool_of *b, uint32_t m, uint32_t n, uint32_t k,
                enum ps_dtype t, struct extras e)
{
    const size_t each = (size_t) n * k * ps_dtype_bytes(t), fit = b->w_bytes / each;
    const bool rounds = kt_on_gpu(kt) && ps_linear_rounds(kt_sm(kt), m, t);
    unsigned sets = m > 32 ? 1 : fit < SETS_MAX ? (unsigned) fit : SETS_MAX;
    if (kt_sets(kt) && kt_sets(kt) < sets) sets = kt_sets(kt);
    struct ps_linear a[SETS_MAX];
    const void *args[SETS_MAX];
    static struct peer_ud ud[2];
    struct kt_peer peers[2];
    unsigned n_peers = 0;
    for (unsigned i = 0; i < sets; i++) {
        a[i] = (struct ps_linear) { .y = b->y,
                                    .x = rounds ? NULL : b->x,
                                    .rounded_x = rounds ? b->x : NULL,
                                    .w = b->w + i * each,
                                    .bias = e.bias && rounds ? e.bias_f32 : e.bias,
                                    .bias_f32 = rounds,
                                    .residual = e.residual,
                                    .act = e.act,
                                    .m = m,
                                    .n = n,
                                    .k = k,
                                    .ldx = k,
                                    .ldy = n,
                                    .ldr = n,
                                    .wtype = t };
        args[i] = &a[i];
    }
    const struct kt_blas *blas[2] = { kt_openblas(kt), kt_mkl(kt) };
    for (int p = 0; p < 2; p++) {
        if (!blas[p] || (m <= 32 && kt_slow_bench(kt))) continue; /* slow, and nothing to learn */
        ud[p] = (struct peer_ud) { .blas = blas[p] };
        while (ud[p].n < sets && ((size_t) ud[p].n + 1) * n * k <= b->w32_elems) {
            ud[p].g[ud[p].n] = (struct kt_sgemm) {
                b->y,    b->x,    (float *) (void *) b->w32 + (size_t) ud[p].n * n * k,
                (int) m, (int) n, (int) k
            };
            ud[p].n++;
        }
        peers[n_peers++] = (struct kt_peer) { kt_blas_name(blas[p]), peer_run, &ud[p] };
    }
    kt_bench(
        kt,
        &(struct kt_bench) {
            .op = PS_OP_linear, .args = args, .n_args = sets, .peers = peers, .n_peers = n_peers },
        "%ux%ux%u %s%s%s%s", m, n, k, ps_dtype_name(t), e.bias ? " bias" : "", e.act ? " relu" : "",
        e.residual ? " residual" : "");
}

/* On a GPU: the layers of OPT-6.7B and, with --full, OPT-30B as they are in a run. */
static void bench_gpu(struct kt *kt)
{
    static const uint32_t nk[][2] = { { 4096, 4096 }, { 16384, 4096 }, { 4096, 16384 },
                                      { 7168, 7168 }, { 28672, 7168 }, { 7168, 28672 } };
    static const uint32_t ms[] = { 1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096 };
    const bool full = kt_slow_bench(kt);
    const unsigned *d = kt_dims(kt);
    const size_t rows = d ? d[0] : 4096, wide = d ? (d[1] > d[2] ? d[1] : d[2]) : 28672;
    struct pool_of b = { .w_bytes = d ? (size_t) d[1] * d[2] * 4 : full ? 1u << 30 : 512u << 20 };
    b.w = kt_big(kt, b.w_bytes);
    b.x = kt_big(kt, rows * wide * 4);
    b.y = kt_big(kt, rows * wide * 4);
    float *r = kt_big(kt, rows * wide * 4);
    void *bias = kt_big(kt, wide * 2), *bias_f32 = kt_big(kt, wide * 4);
    kt_big_fill(kt, b.w, PS_F16, b.w_bytes / 2, -1, 1);
    kt_big_fill(kt, b.x, PS_F32, rows * wide, -1, 1);
    kt_big_fill(kt, r, PS_F32, rows * wide, -1, 1);
    kt_big_fill(kt, bias, PS_F16, wide, -1, 1);
    kt_big_fill(kt, bias_f32, PS_F32, wide, -1, 1);
    for (size_t s = 0; s < (d ? 1 : full ? 6 : 3); s++)
        for (size_t i = 0; i < (d ? 1 : sizeof ms / sizeof ms[0]); i++) {
            const uint32_t n = d ? d[1] : nk[s][0], k = d ? d[2] : nk[s][1];
            one(kt, &b, d ? d[0] : ms[i], n, k, PS_F16,
                n > k ? (struct extras) { bias, bias_f32, NULL, PS_ACT_RELU }
                      : (struct extras) { bias, bias_f32, r, PS_ACT_NONE });
        }
}

void kt_bench_linear(struct kt *kt)
{
    static const uint32_t nk[][2] = { { 2048, 2048 }, { 8192, 2048 },  { 2048, 8192 },
                                      { 4096, 4096 }, { 16384, 4096 }, { 4096, 16384 } };
    static const uint32_t ms[] = { 1, 4, 8, 16, 32, 64, 256, 2048 };
    if (kt_on_gpu(kt)) {
        bench_gpu(kt);
        return;
    }
    const bool full = kt_slow_bench(kt);
    struct pool_of b = { .w_bytes = full ? 1610612736u : 64u << 20,
                         .w32_elems = full ? 402653184u : 1u << 24 };
    const size_t n_shapes = full ? sizeof nk / sizeof nk[0] : 3;
    b.w = kt_big(kt, b.w_bytes);
    b.w32 = kt_big(kt, b.w32_elems * 4);
    b.x = kt_big(kt, 2048ull * 16384 * 4);
    b.y = kt_big(kt, 2048ull * 16384 * 4);
    kt_big_fill(kt, b.x, PS_F32, 2048ull * 16384, -1, 1);
    kt_big_fill(kt, b.w32, PS_F32, b.w32_elems, -1, 1);
    for (int t = PS_DTYPE__COUNT - 1; t >= 0; t--) {
        kt_big_fill(kt, b.w, (enum ps_dtype) t, b.w_bytes / ps_dtype_bytes((enum ps_dtype) t), -1,
                    1);
        const unsigned *d = kt_dims(kt);
        if (d) one(kt, &b, d[0], d[1], d[2], (enum ps_dtype) t, (struct extras) { 0 });
        for (size_t s = 0; s < n_shapes && !d; s++)
            if (!full || t == PS_F16 || s == 1)
                for (size_t i = 0; i < sizeof ms / sizeof ms[0]; i++)
                    one(kt, &b, ms[i], nk[s][0], nk[s][1], (enum ps_dtype) t,
                        (struct extras) { 0 });
    }
}
