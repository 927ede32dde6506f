/* SPDX-License-Identifier: Apache-2.0 */
/* sample. The outputs are structs: compared field by field, tokens exactly, log-probabilities within 1e-5. */
#include "bench_attn.h"
#include "ktest.h"
#include <math.h>

static bool same_prob(float a, float b)
{
    return a == b || fabsf(a - b) <= 1e-5f * fmaxf(1, fabsf(b));
}

static const char *compare(const void *args, const void *const *want, const void *const *got,
                           const size_t *n)
{
    const struct ps_sample *a = args;
    const struct ps_sample_out *w = want[0], *g = got[0];
    for (uint32_t r = 0; r < a->n_rows; r++) {
        if (g[r].token != w[r].token) return "another token";
        if (!same_prob(g[r].logprob, w[r].logprob)) return "another log-probability";
        if (g[r].n_top != w[r].n_top) return "another n_top";
        for (uint32_t i = 0; i < w[r].n_top; i++) {
            if (g[r].top_id[i] != w[r].top_id[i]) return "another top id";
            if (!same_prob(g[r].top_logprob[i], w[r].top_logprob[i])) return "another top value";
        }
    }
    return NULL;
}

enum fill { SPREAD, TIES, FLAT, SOME_OUT, ONE_LEFT, ALL_OUT, NOT_A_NUMBER, INFINITE, FILLS };

static void fill_logits(struct kt *kt, float *x, uint32_t n, enum fill how)
{
    const uint32_t odd = kt_below(kt, n);
    for (uint32_t i = 0; i < n; i++) {
        if (how == TIES) x[i] = (float) kt_below(kt, 5);
        if (how == FLAT) x[i] = -3;
        if (how == SOME_OUT && kt_below(kt, 2)) x[i] = -INFINITY;
        if ((how == ONE_LEFT && i != odd) || how == ALL_OUT) x[i] = -INFINITY;
    }
    if (how == NOT_A_NUMBER) x[odd] = NAN;
    if (how == INFINITE) x[odd] = INFINITY;
}

static void sample_case(struct kt *kt, uint32_t vocab, uint32_t n_rows, enum fill how)
{
    struct ps_sample a = { .n_rows = n_rows, .vocab = vocab };
    struct ps_sample_row *rows = kt_in_bytes(kt, n_rows * sizeof *rows);
    struct ps_sample_out *out = kt_out(kt, KT_U8, n_rows * sizeof *out, 0);
    a.rows = rows;
    for (uint32_t r = 0; r < n_rows; r++) {
        const float wide = kt_uniform(kt, 4, 30);
        float *x = kt_in_f32(kt, vocab, -wide, wide);
        fill_logits(kt, x, vocab, how);
        struct ps_sample_row row = { .logits = x, .out = &out[r], .forced = -1, .top_p = 1 };
        row.key = (uint64_t) kt_rnd(kt) << 32 | kt_rnd(kt);
        row.index = kt_below(kt, 1000);
        row.n_top = kt_below(kt, 3) ? 0 : kt_below(kt, PS_TOP_MAX + 1);
        if (kt_below(kt, 4)) row.temperature = kt_uniform(kt, 0.1f, 2);
        if (kt_below(kt, 2)) row.top_k = 1 + kt_below(kt, kt_below(kt, 2) ? 60 : vocab + 2);
        if (kt_below(kt, 2)) row.top_p = kt_uniform(kt, 0.01f, 1);
        if (kt_below(kt, 9) == 0) row.forced = (int32_t) kt_below(kt, vocab);
        if (kt_below(kt, 3) == 0) {
            row.n_banned = 1 + kt_below(kt, 3);
            row.banned = kt_in_i32(kt, row.n_banned, 0, (int32_t) vocab);
        }
        rows[r] = row;
    }
    kt_check(kt, &(struct kt_spec) { .op = PS_OP_sample, .args = &a, .compare = compare },
             "%ux%u fill=%d", n_rows, vocab, (int) how);
}

static void check(struct kt *kt)
{
    static const uint32_t vocab[] = { 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 127, 257, 512, 1021 };
    for (size_t i = 0; i < sizeof vocab / sizeof vocab[0]; i++)
        for (int how = 0; how < FILLS; how++)
            for (int again = 0; again < 6; again++)
                sample_case(kt, vocab[i], 1 + kt_below(kt, 12), (enum fill) how);
    sample_case(kt, 50272, 6, SPREAD);
    sample_case(kt, 50272, 3, TIES);
    sample_case(kt, 50272, 3, SOME_OUT);
}
const struct kt_test kt_test_sample = { PS_OP_sample, check, bench_sample };
