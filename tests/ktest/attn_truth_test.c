/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt and 30 decode steps under each policy, through kv_round, attn_prompt, kv_compact and attn_decode, against what
 * the oracle keeps, scores and attends to (attn_truth.h); at every level of instruction sets. Random numbers and
 * sampling against published and enumerated truths. */
#include "ps_cmocka.h"

#include "attn_truth.h"
#include "engine/base/ps_cpu.h"
#include "kernels/kern.h"
#include <math.h>

enum { HQ = KV_HEADS * GROUP, TOTAL = PROMPT + STEPS, CAP = TOTAL };

static void run(enum ps_op op, uint32_t mask, const void *args)
{
    _Alignas(64) static char scratch[1 << 20];
    const struct ps_kern *k = ps_kern_pick(op, PS_PLACE_HOST, ps_cpu_flags() & mask, args);
    assert_non_null(k);
    assert_true(ps_op_scratch(op, args) <= sizeof scratch);
    assert_ok(ps_kern_run_all(k, args, scratch));
}

static void random_floats(uint64_t *s, float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        *s = *s * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float) ((int32_t) (*s >> 43) - (1 << 20)) * 0x1p-20f * scale;
    }
}

struct state {
    float q[TOTAL * HQ * D], k[TOTAL * KV_HEADS * D], v[TOTAL * KV_HEADS * D], o[TOTAL * HQ * D];
    float src_score[KV_HEADS * CAP], score[KV_HEADS * CAP];
    char src_k[KV_HEADS * CAP * D * 4], src_v[KV_HEADS * CAP * D * 4];
    char slab_k[KV_HEADS * CAP * D * 4], slab_v[KV_HEADS * CAP * D * 4];
    int32_t pos[KV_HEADS * CAP], at[KV_HEADS];
    struct ps_slab src, slab;
    struct ps_keep keep;
    enum ps_dtype type;
    uint32_t len;
};

static void prompt(struct state *s, uint32_t mask)
{
    const struct ps_kv_round round = { .k = s->k,
                                       .v = s->v,
                                       .dst_k = s->src_k,
                                       .dst_v = s->src_v,
                                       .rows = PROMPT,
                                       .ldk = KV_HEADS * D,
                                       .ldv = KV_HEADS * D,
                                       .kv_heads = KV_HEADS,
                                       .d = D,
                                       .cap = CAP,
                                       .kv_type = s->type };
    const struct ps_prompt_seq seq = { .q = s->q,
                                       .o = s->o,
                                       .k = s->src_k,
                                       .v = s->src_v,
                                       .score = s->src.score,
                                       .rows = PROMPT,
                                       .cap = CAP,
                                       .total = PROMPT };
    const struct ps_attn_prompt attn = { .seqs = &seq,
                                         .n_seqs = 1,
                                         .q_heads = HQ,
                                         .kv_heads = KV_HEADS,
                                         .d = D,
                                         .ldq = HQ * D,
                                         .ldo = HQ * D,
                                         .longest = PROMPT,
                                         .scale = 1 / sqrtf(D),
                                         .kv_type = s->type };
    const struct ps_compact_seq cs = { s->src, s->slab, s->keep, PROMPT };
    const struct ps_kv_compact compact = { &cs, 1, KV_HEADS, D, PROMPT, s->type };
    run(PS_OP_kv_round, mask, &round);
    run(PS_OP_attn_prompt, mask, &attn);
    run(PS_OP_kv_compact, mask, &compact);
    const uint64_t budget = (uint64_t) s->keep.sinks + s->keep.heavy + s->keep.recent;
    s->len = budget < PROMPT ? (uint32_t) budget : PROMPT;
}

static void decode(struct state *s, uint32_t mask, uint32_t t)
{
    const struct ps_decode_row row = { .q = s->q + t * HQ * D,
                                       .k = s->k + t * KV_HEADS * D,
                                       .v = s->v + t * KV_HEADS * D,
                                       .o = s->o + t * HQ * D,
                                       .slab = s->slab,
                                       .keep = s->keep,
                                       .len = s->len,
                                       .now = (int32_t) t,
                                       .at = s->at };
    const struct ps_attn_decode attn = { .rows = &row,
                                         .n_rows = 1,
                                         .q_heads = HQ,
                                         .kv_heads = KV_HEADS,
                                         .d = D,
                                         .longest = s->len + 1,
                                         .scale = 1 / sqrtf(D),
                                         .kv_type = s->type };
    run(PS_OP_attn_decode, mask, &attn);
    const uint64_t budget = (uint64_t) s->keep.sinks + s->keep.heavy + s->keep.recent;
    if (s->len < budget) s->len++;
}

/* The entries of head h in ascending position. */
static void order(const struct state *s, uint32_t h, uint32_t *at)
{
    const int32_t *pos = s->pos + h * CAP;
    for (uint32_t i = 0; i < s->len; i++) {
        uint32_t j = i;
        for (; j > 0 && pos[at[j - 1]] > pos[i]; j--) at[j] = at[j - 1];
        at[j] = i;
    }
}

static const int16_t *check_kept(const struct state *s, const char *name, uint32_t t,
                                 const int16_t *want)
{
    for (uint32_t h = 0; h < KV_HEADS; h++) {
        uint32_t at[CAP];
        order(s, h, at);
        if ((uint32_t) *want++ != s->len) fail_msg("%s, token %u: %u entries", name, t, s->len);
        for (uint32_t i = 0; i < s->len; i++, want++)
            if (s->pos[h * CAP + at[i]] != *want)
                fail_msg("%s, token %u, head %u: kept %d, the oracle %d", name, t, h,
                         s->pos[h * CAP + at[i]], *want);
    }
    return want;
}

static void replay(size_t c, uint32_t mask)
{
    static struct state s;
    uint64_t rng = truths[c].seed;
    memset(&s, 0, sizeof s);
    random_floats(&rng, s.q, TOTAL * HQ * D, 4);
    random_floats(&rng, s.k, TOTAL * KV_HEADS * D, 2);
    random_floats(&rng, s.v, TOTAL * KV_HEADS * D, 1);
    s.keep = (struct ps_keep) { truths[c].keep[0], truths[c].keep[1], truths[c].keep[2] };
    s.type = truths[c].f16 ? PS_F16 : PS_F32;
    const bool scored = s.keep.heavy > 0 && s.keep.heavy != PS_KEEP_ALL;
    s.src = (struct ps_slab) { s.src_k, s.src_v, scored ? s.src_score : NULL, NULL, CAP };
    s.slab = (struct ps_slab) { s.slab_k, s.slab_v, scored ? s.score : NULL, s.pos, CAP };

    const int16_t *kept = truths[c].kept;
    prompt(&s, mask);
    kept = check_kept(&s, truths[c].name, PROMPT - 1, kept);
    for (uint32_t t = PROMPT; t < TOTAL; t++) {
        decode(&s, mask, t);
        kept = check_kept(&s, truths[c].name, t, kept);
    }
    for (uint32_t i = 0; i < TOTAL * HQ; i++)
        if (!(fabsf(s.o[i * D] - truths[c].o[i]) <= 3e-6f))
            fail_msg("%s: output %u is %g, the oracle's %g", truths[c].name, i, (double) s.o[i * D],
                     (double) truths[c].o[i]);
    const float *want = truths[c].score;
    for (uint32_t h = 0; scored && h < KV_HEADS; h++) {
        uint32_t at[CAP];
        order(&s, h, at);
        for (uint32_t i = 0; i < s.len; i++, want++)
            if (!(fabsf(s.score[h * CAP + at[i]] - *want) <= 2e-6f * fmaxf(1, *want)))
                fail_msg("%s: score %g, the oracle's %g", truths[c].name,
                         (double) s.score[h * CAP + at[i]], (double) *want);
    }
}

static const uint32_t levels[] = { 0, PS_CPU_AVX2, PS_CPU_AVX2 | PS_CPU_AVX512 };

static void test_oracle(void **state)
{
    for (size_t l = 0; l < PS_ARRAY_LEN(levels); l++)
        for (size_t c = 0; c < PS_ARRAY_LEN(truths); c++) replay(c, levels[l]);
}

/* Equal scores: the later position goes, wherever it lies in the slab; the new one may be the victim when recent is 0. */
static void test_ties(void **state)
{
    for (size_t l = 0; l < PS_ARRAY_LEN(levels); l++) {
        float src_score[] = { 1, 1, 1, 1, 1, 1 }, kv[6 * D] = { 0 }, score[6], o[D];
        float k[6 * D] = { 0 }, v[6 * D] = { 0 };
        int32_t pos[6], at;
        const struct ps_compact_seq cs = {
            { kv, kv, src_score, NULL, 6 }, { k, v, score, pos, 6 }, { 0, 3, 1 }, 6
        };
        const struct ps_kv_compact compact = { &cs, 1, 1, D, 6, PS_F32 };
        run(PS_OP_kv_compact, levels[l], &compact);
        assert_memory_equal(pos, ((int32_t[]) { 0, 1, 2, 5 }), 4 * sizeof *pos);

        memcpy(pos, (int32_t[]) { 2, 5, 0, 1 }, 4 * sizeof *pos);
        struct ps_decode_row row = { .q = kv,
                                     .k = kv,
                                     .v = kv,
                                     .o = o,
                                     .slab = { k, v, score, pos, 6 },
                                     .keep = { 0, 3, 1 },
                                     .len = 4,
                                     .now = 6,
                                     .at = &at };
        const struct ps_attn_decode attn = { &row, 1, 1, 1, D, 5, 1, PS_F32 };
        run(PS_OP_attn_decode, levels[l], &attn);
        assert_int_equal(at, 1);
        assert_memory_equal(pos, ((int32_t[]) { 2, 6, 0, 1 }), 4 * sizeof *pos);

        for (int i = 0; i < 4; i++) score[i] = 0; /* all, the new one too, get 1/5 */
        row.keep = (struct ps_keep) { 0, 4, 0 };
        row.now = 7;
        run(PS_OP_attn_decode, levels[l], &attn);
        assert_int_equal(at, -1);
        row.keep =
            (struct ps_keep) { 3, 0, 1 }; /* positions 0 to 2 are sinks: 6 is the only candidate */
        row.now = 8;
        run(PS_OP_attn_decode, levels[l], &attn);
        assert_int_equal(at, 1);
    }
}

/* Random123's known answer for philox4x32-10 with counter and key zero begins 6627e8d5 e169c58d. */
static void test_uniform(void **state)
{
    const double u = ps_uniform(0, 0);
    assert_true(u == (double) (0xe169c58d6627e8d5u >> 11) * 0x1p-53);
    double sum = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        const double x = ps_uniform(0x123456789abcdefu, i);
        assert_true(x >= 0 && x < 1);
        sum += x;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 0.015);
}

static struct ps_sample_out sample(uint32_t mask, struct ps_sample_row row, uint32_t vocab)
{
    struct ps_sample_out out;
    row.out = &out;
    const struct ps_sample a = { &row, 1, vocab };
    run(PS_OP_sample, mask, &a);
    return out;
}

/* Probabilities 1/2, 1/4, 1/8, 1/16, 1/16 at ids 3, 0, 4, 1, 2: what is drawn follows from u alone. */
static void test_sample(void **state)
{
    const float ln2 = 0.693147181f;
    const float x[] = { -2 * ln2, -4 * ln2, -4 * ln2, -ln2, -3 * ln2 };
    static const int32_t ids[] = { 3, 0, 4, 1, 2 };
    static const double cum[] = { 0.5, 0.75, 0.875, 0.9375, 1 };
    for (size_t l = 0; l < PS_ARRAY_LEN(levels); l++) {
        struct ps_sample_row r = { .logits = x, .forced = -1, .top_p = 1, .n_top = 5 };
        struct ps_sample_out o = sample(levels[l], r, 5);
        assert_int_equal(o.token, 3);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(o.top_id[i], ids[i]);
            assert_true(fabsf(o.top_logprob[i] - x[ids[i]]) < 1e-6f);
        }
        for (uint32_t i = 0; i < 300; i++) {
            const double u = ps_uniform(7, i);
            r.key = 7;
            r.index = i;
            r.temperature = 1;
            r.top_p = 1;
            r.top_k = 0;
            int n = 0;
            while (cum[n] < u) n++;
            assert_int_equal(sample(levels[l], r, 5).token, ids[n]);
            r.top_k = 2; /* 2/3, 1/3 */
            assert_int_equal(sample(levels[l], r, 5).token, u < 2.0 / 3 ? 3 : 0);
            r.top_p = 0.6f; /* the first of these two is enough */
            assert_int_equal(sample(levels[l], r, 5).token, 3);
            r.top_k = 0; /* now 1/2 is too little, 3/4 enough */
            assert_int_equal(sample(levels[l], r, 5).token, u < 2.0 / 3 ? 3 : 0);
        }
        const int32_t banned[] = { 3, 0 };
        r = (struct ps_sample_row) { .logits = x, .forced = -1, .top_p = 1, .banned = banned };
        r.n_banned = 2;
        o = sample(levels[l], r, 5);
        assert_int_equal(o.token, 4);
        assert_true(fabsf(o.logprob + 3 * ln2) < 1e-6f);
        r.forced = 1;
        o = sample(levels[l], r, 5);
        assert_int_equal(o.token, 1);
        assert_true(fabsf(o.logprob + 4 * ln2) < 1e-6f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
