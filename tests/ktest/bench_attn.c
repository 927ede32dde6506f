/* SPDX-License-Identifier: Apache-2.0 */
/* Benches of attn_decode, attn_prompt and sample. */
#include "bench_attn.h"
#include "kt.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- decode: 32 sequences x `len` entries x enough layers for 1.5 GB. The peer is the same row over the same slabs without
 * scores, victim and eviction: what H2O costs beside `full`. */

struct full_peer {
    struct kt *kt;
    const struct ps_kern *k;
    const struct ps_attn_decode *layers;
    char *scratch;
    size_t scratch_bytes;
    const struct ps_attn_decode *layer;
    _Atomic uint64_t next;
};

static void full_worker(void *ud, unsigned worker)
{
    struct full_peer *p = ud;
    const uint64_t units = ps_op_units(PS_OP_attn_decode, p->layer);
    const uint64_t grain = ps_op_grain(PS_OP_attn_decode, p->layer, kt_threads(p->kt));
    for (uint64_t b; (b = atomic_fetch_add(&p->next, grain)) < units;) {
        const struct ps_span s = { .begin = b,
                                   .end = b + grain < units ? b + grain : units,
                                   .scratch = p->scratch + worker * p->scratch_bytes };
        (void) p->k->run(p->layer, &s);
    }
}

static void full_run(void *ud, unsigned i)
{
    struct full_peer *p = ud;
    p->layer = &p->layers[i];
    atomic_store(&p->next, 0);
    kt_pool_run(p->kt->pool, full_worker, p);
}

struct decode_dims {
    uint32_t d, heads, rows, len, layers;
};

static struct ps_decode_row *decode_rows(struct kt *kt, const struct decode_dims *b)
{
    struct ps_decode_row *rows = kt_big(kt, b->rows * sizeof *rows);
    const size_t slab = (size_t) b->heads * (b->len + 1);
    uint16_t *kv = kt_big(kt, 2 * b->rows * slab * b->d * sizeof *kv);
    float *score = kt_big(kt, b->rows * slab * sizeof *score), *x, *o;
    int32_t *pos = kt_big(kt, b->rows * slab * sizeof *pos);
    int32_t *at = kt_big(kt, (size_t) b->rows * b->heads * sizeof *at);
    const size_t width = (size_t) b->heads * b->d;
    x = kt_big(kt, 3 * b->rows * width * sizeof *x);
    o = kt_big(kt, b->rows * width * sizeof *o);
    kt_big_fill(kt, kv, PS_F16, 2 * b->rows * slab * b->d, -1, 1);
    kt_big_fill(kt, score, PS_F32, b->rows * slab, 0, 3);
    kt_big_fill(kt, x, PS_F32, 3 * b->rows * width, -1, 1);
    for (size_t i = 0; i < b->rows * slab; i++) pos[i] = (int32_t) (i % (b->len + 1));
    for (uint32_t r = 0; r < b->rows; r++)
        rows[r] = (struct ps_decode_row) {
            .q = x + 3 * r * width,
            .k = x + (3 * r + 1) * width,
            .v = x + (3 * r + 2) * width,
            .o = o + r * width,
            .slab = { kv + 2 * r * slab * b->d, kv + (2 * r + 1) * slab * b->d, score + r * slab,
                      pos + r * slab, b->len + 1 },
            .keep = { 0, b->len / 2, b->len - b->len / 2 },
            .len = b->len,
            .now = (int32_t) b->len,
            .at = at + (size_t) r * b->heads,
        };
    return rows;
}

static void decode_bench(struct kt *kt, const struct decode_dims *b)
{
    char shape[64];
    snprintf(shape, sizeof shape, "h2o_d%u_%ux%u_f16", b->d, b->rows, b->len);
    if (!kt_wants_shape(kt, shape)) return;
    struct ps_attn_decode *h2o = kt_big(kt, b->layers * sizeof *h2o);
    struct ps_attn_decode *full = kt_big(kt, b->layers * sizeof *full);
    const void **args = kt_big(kt, b->layers * sizeof *args);
    const void **full_args = kt_big(kt, b->layers * sizeof *full_args);
    for (uint32_t l = 0; l < b->layers; l++) {
        struct ps_decode_row *rows = decode_rows(kt, b),
                             *plain = kt_big(kt, b->rows * sizeof *plain);
        h2o[l] = (struct ps_attn_decode) { .rows = rows,
                                           .n_rows = b->rows,
                                           .q_heads = b->heads,
                                           .kv_heads = b->heads,
                                           .d = b->d,
                                           .longest = b->len + 1,
                                           .scale = 1 / sqrtf((float) b->d),
                                           .kv_type = PS_F16 };
        memcpy(plain, rows, b->rows * sizeof *plain);
        for (uint32_t r = 0; r < b->rows; r++) {
            plain[r].slab.score = NULL;
            plain[r].keep = (struct ps_keep) { 0, PS_KEEP_ALL, 0 };
        }
        full[l] = h2o[l];
        full[l].rows = plain;
        args[l] = &h2o[l];
        full_args[l] = &full[l];
    }
    struct full_peer peer = { .kt = kt, .layers = full };
    peer.k = ps_kern_pick(PS_OP_attn_decode, PS_PLACE_HOST, kt->cpu, &full[0]);
    peer.scratch_bytes = (ps_op_scratch(PS_OP_attn_decode, &full[0]) + 4095) & ~(size_t) 4095;
    peer.scratch = kt_big(kt, peer.scratch_bytes * kt_threads(kt));
    const struct kt_peer peers[] = { { "full", full_run, &peer, full_args } };
    kt_bench(kt,
             &(struct kt_bench) { .op = PS_OP_attn_decode,
                                  .args = args,
                                  .n_args = b->layers,
                                  .peers = peers,
                                  .n_peers = 1 },
             "%s", shape);
}

void bench_attn_decode(struct kt *kt)
{
    const uint32_t scale = kt_slow_bench(kt) ? 1 : 3; /* 1.6 GB, or a third of it */
    const unsigned *d = kt_dims(kt);
    if (d) {
        decode_bench(kt, &(struct decode_dims) { d[2], 4, d[0], d[1], 1 });
        return;
    }
    if (kt_on_gpu(kt)) decode_bench(kt, &(struct decode_dims) { 128, 56, 64, 512, 1 }); /* 0.9 GB */
    decode_bench(kt, &(struct decode_dims) { 64, 16, 32, 1024, 12 / scale });
    decode_bench(kt, &(struct decode_dims) { 128, 16, 32, 1024, 6 / scale });
}

/* ---- prompt: a batch of prompts in one layer, with score sums */

static void prompt_bench(struct kt *kt, uint32_t d, uint32_t heads, uint32_t n_seqs, uint32_t len)
{
    char shape[64];
    snprintf(shape, sizeof shape, "d%u_%ux%u_f16", d, n_seqs, len);
    if (!kt_wants_shape(kt, shape)) return;
    struct ps_attn_prompt *a = kt_big(kt, sizeof *a);
    struct ps_prompt_seq *seqs = kt_big(kt, n_seqs * sizeof *seqs);
    const size_t width = (size_t) heads * d, slab = (size_t) heads * len;
    float *q = kt_big(kt, n_seqs * len * width * sizeof *q);
    float *o = kt_big(kt, n_seqs * len * width * sizeof *o);
    float *score = kt_big(kt, n_seqs * slab * sizeof *score);
    uint16_t *kv = kt_big(kt, 2 * n_seqs * slab * d * sizeof *kv);
    kt_big_fill(kt, q, PS_F32, n_seqs * len * width, -1, 1);
    kt_big_fill(kt, kv, PS_F16, 2 * n_seqs * slab * d, -1, 1);
    for (size_t s = 0; s < n_seqs; s++)
        seqs[s] = (struct ps_prompt_seq) { .q = q + s * len * width,
                                           .o = o + s * len * width,
                                           .k = kv + 2 * s * slab * d,
                                           .v = kv + (2 * s + 1) * slab * d,
                                           .score = score + s * slab,
                                           .rows = len,
                                           .cap = len,
                                           .total = len };
    *a = (struct ps_attn_prompt) { seqs,
                                   n_seqs,
                                   heads,
                                   heads,
                                   d,
                                   (uint32_t) width,
                                   (uint32_t) width,
                                   len,
                                   1 / sqrtf((float) d),
                                   PS_F16 };
    const void *args[] = { a };
    kt_bench(kt, &(struct kt_bench) { .op = PS_OP_attn_prompt, .args = args, .n_args = 1 }, "%s",
             shape);
}

void bench_attn_prompt(struct kt *kt)
{
    const unsigned *d = kt_dims(kt);
    if (d) {
        prompt_bench(kt, d[2], 4, d[0], d[1]);
        return;
    }
    if (kt_on_gpu(kt)) prompt_bench(kt, 128, 56, 8, 512);
    prompt_bench(kt, 64, 8, 2, 512);
    prompt_bench(kt, 64, 4, 1, 2048);
    prompt_bench(kt, 80, 8, 2, 512);
    prompt_bench(kt, 128, 8, 2, 512);
    prompt_bench(kt, 128, 4, 1, 2048);
}

/* ---- sample: rows enough that the logits come from DRAM */

static void sample_bench(struct kt *kt, const char *name, float temperature, float top_p,
                         uint32_t top_k, uint32_t n_top)
{
    enum { ROWS = 256, VOCAB = 50272 };
    char shape[64];
    snprintf(shape, sizeof shape, "%s_%dx%d", name, ROWS, VOCAB);
    if (!kt_wants_shape(kt, shape)) return;
    struct ps_sample *a = kt_big(kt, sizeof *a);
    struct ps_sample_row *rows = kt_big(kt, ROWS * sizeof *rows);
    struct ps_sample_out *out = kt_big(kt, ROWS * sizeof *out);
    float *x = kt_big(kt, (size_t) ROWS * VOCAB * sizeof *x);
    kt_big_fill(kt, x, PS_F32, (size_t) ROWS * VOCAB, -8, 4);
    for (int i = 0; i < 40 * ROWS; i++) /* a few likely ones, as a model has */
        x[(size_t) (i % ROWS) * VOCAB + kt_below(kt, VOCAB)] = kt_uniform(kt, 5, 18);
    for (uint32_t r = 0; r < ROWS; r++)
        rows[r] = (struct ps_sample_row) { .logits = x + (size_t) r * VOCAB,
                                           .out = &out[r],
                                           .key = r,
                                           .n_top = n_top,
                                           .top_k = top_k,
                                           .forced = -1,
                                           .temperature = temperature,
                                           .top_p = top_p };
    *a = (struct ps_sample) { rows, ROWS, VOCAB };
    const void *args[] = { a };
    kt_bench(kt, &(struct kt_bench) { .op = PS_OP_sample, .args = args, .n_args = 1 }, "%s", shape);
}

void bench_sample(struct kt *kt)
{
    sample_bench(kt, "greedy", 0, 1, 0, 0);
    sample_bench(kt, "greedy_top20", 0, 1, 0, 20);
    sample_bench(kt, "t1", 1, 1, 0, 0);
    sample_bench(kt, "t1_p0.9", 1, 0.9f, 0, 0);
    sample_bench(kt, "t1_k50", 1, 1, 50, 0);
}
