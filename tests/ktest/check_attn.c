/* SPDX-License-Identifier: Apache-2.0 */
/* attn_prompt and attn_decode. */
#include "bench_attn.h"
#include "engine/base/ps_err.h"
#include "ktest.h"
#include <errno.h>
#include <math.h>
#include <string.h>

static const enum ps_dtype kv_types[] = { PS_F16, PS_F32 };

/* ---- prompt */

/* The same prompts in chunks of some rows: each piece holds the next chunk of every sequence that has one. */
static struct ps_prompt_seq *chunk_seqs; /* room for a piece's */
static bool prompt_chunk(struct kt *kt, const void *args, unsigned i, void *ret_args)
{
    static uint32_t chunk;
    const struct ps_attn_prompt *whole = args;
    struct ps_attn_prompt a = *whole;
    struct ps_prompt_seq *seqs = chunk_seqs;
    a.seqs = seqs;
    a.n_seqs = a.longest = 0;
    if (i == 0) chunk = 1 + kt_below(kt, 70);
    for (uint32_t s = 0; s < whole->n_seqs; s++) {
        struct ps_prompt_seq q = whole->seqs[s];
        const uint32_t done = i * chunk;
        if (done >= q.rows) continue;
        q.q += (size_t) done * a.ldq;
        q.o = (char *) q.o + done * a.ldo * ps_dtype_bytes(a.o_type);
        q.first += done;
        q.rows = q.rows - done < chunk ? q.rows - done : chunk;
        if (q.first + q.rows > a.longest) a.longest = q.first + q.rows;
        seqs[a.n_seqs++] = q;
    }
    memcpy(ret_args, &a, sizeof a);
    return a.n_seqs > 0;
}

struct prompt_shape {
    uint32_t d, kv_heads, group, n_seqs, rows, first, slack;
    bool score;
};

static void prompt_case(struct kt *kt, const struct prompt_shape *sh, enum ps_dtype t, float sharp)
{
    struct ps_attn_prompt a = { .n_seqs = sh->n_seqs, .kv_heads = sh->kv_heads, .d = sh->d };
    struct ps_prompt_seq *seqs = kt_in_bytes(kt, sh->n_seqs * sizeof *seqs);
    chunk_seqs = kt_in_bytes(kt, sh->n_seqs * sizeof *chunk_seqs);
    a.q_heads = sh->kv_heads * sh->group;
    a.ldq = a.q_heads * a.d + kt_below(kt, 3);
    a.ldo = a.q_heads * a.d + kt_below(kt, 3);
    a.scale = 1 / sqrtf((float) a.d);
    a.kv_type = t;
    a.o_type = kt_below(kt, 3) ? PS_F32 : (enum ps_dtype) kt_below(kt, PS_DTYPE__COUNT);
    a.seqs = seqs;
    for (uint32_t s = 0; s < sh->n_seqs; s++) {
        struct ps_prompt_seq q = { .rows = s ? 1 + kt_below(kt, sh->rows) : sh->rows,
                                   .first = sh->first };
        q.total = q.first + q.rows + kt_below(kt, sh->slack + 1);
        q.cap = q.total + kt_below(kt, sh->slack + 1);
        const size_t kv = (size_t) a.kv_heads * q.cap * a.d;
        q.q = kt_in_f32(kt, (size_t) (q.rows - 1) * a.ldq + a.q_heads * a.d, -sharp, sharp);
        q.k = kt_in_dtype(kt, t, kv, -2, 2);
        q.v = kt_in_dtype(kt, t, kv, -1, 1);
        q.o = kt_out(kt, kt_type_of(a.o_type), (size_t) (q.rows - 1) * a.ldo + a.q_heads * a.d,
                     kt_rounded(a.o_type, sharp > 2 ? 3e-4f : 3e-5f)); /* logits near 100 */
        if (sh->score) {
            q.score = kt_inout(kt, KT_F32, (size_t) a.kv_heads * q.cap, sharp > 2 ? 3e-4f : 2e-5f);
            for (size_t i = 0; i < (size_t) a.kv_heads * q.cap; i++)
                q.score[i] = kt_uniform(kt, 0, 2);
        }
        if (q.first + q.rows > a.longest) a.longest = q.first + q.rows;
        seqs[s] = q;
    }
    kt_check(kt, &(struct kt_spec) { .op = PS_OP_attn_prompt, .args = &a, .piece = prompt_chunk },
             "d=%u heads=%ux%u seqs=%u rows=%u first=%u %s%s to %s", a.d, a.kv_heads, sh->group,
             a.n_seqs, sh->rows, sh->first, ps_dtype_name(t), sh->score ? " scores" : "",
             ps_dtype_name(a.o_type));
}

static void check_prompt(struct kt *kt)
{
    static const uint32_t ds[] = { 1, 7, 8, 9, 15, 16, 17, 24, 33, 40, 64, 80, 96, 127, 128, 131 };
    static const uint32_t rows[] = { 1, 2, 5, 6, 7, 16, 31, 47, 48, 49, 97, 151 };
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < sizeof ds / sizeof ds[0]; i++)
            prompt_case(kt,
                        &(struct prompt_shape) { ds[i], 1 + kt_below(kt, 2), i % 3 ? 1 : 4, 2,
                                                 10 + kt_below(kt, 60), 0, 3, i % 2 },
                        kv_types[t], 2);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            for (uint32_t group = 1; group <= 4; group += 3)
                prompt_case(kt,
                            &(struct prompt_shape) { 16, 2, group, 1 + kt_below(kt, 3), rows[i],
                                                     i % 4 == 3 ? 1 + kt_below(kt, 40) : 0,
                                                     kt_below(kt, 3), true },
                            kv_types[t], i % 2 ? 2 : 20);
        prompt_case(kt, &(struct prompt_shape) { 64, 1, 1, 1, 330, 0, 0, true }, kv_types[t], 2);
        prompt_case(kt, &(struct prompt_shape) { 8, 1, 53, 1, 5, 2, 0, true }, kv_types[t], 2);
    }
}
const struct kt_test kt_test_attn_prompt = { PS_OP_attn_prompt, check_prompt, bench_attn_prompt };

/* ---- decode */

static bool decode_row(struct kt *kt, const void *args, unsigned i, void *ret_args)
{
    const struct ps_attn_decode *whole = args;
    struct ps_attn_decode a = *whole;
    if (i >= a.n_rows) return false;
    a.rows += a.n_rows - 1 - i; /* the last row first, alone */
    a.n_rows = 1;
    a.longest = a.rows->len + 1;
    memcpy(ret_args, &a, sizeof a);
    return true;
}

enum scores { NO_SCORES, SCORES, TIES, TIE_OF_TWO };
struct decode_shape {
    uint32_t d, kv_heads, group, n_rows, len;
    struct ps_keep keep;
    enum scores scores;
    bool log;
    uint32_t apart; /* TIE_OF_TWO: how far from each other the two lie */
};

static void shuffle(struct kt *kt, int32_t *p, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = kt_below(kt, i);
        const int32_t t = p[i - 1];
        p[i - 1] = p[j];
        p[j] = t;
    }
}

/* Positions of `len` entries as a policy leaves them: sinks, some of the middle, the latest; in any order. -> now */
static int32_t place(struct kt *kt, int32_t *pos, uint32_t len, const struct ps_keep *keep)
{
    const uint32_t sinks = keep->sinks < len ? keep->sinks : len;
    uint32_t recent = keep->recent ? keep->recent - 1 : 0;
    int32_t at = (int32_t) sinks;
    if (recent > len - sinks) recent = len - sinks;
    for (uint32_t i = 0; i < len; i++) {
        if (i < sinks)
            pos[i] = (int32_t) i;
        else if (i < len - recent)
            pos[i] = at += (int32_t) kt_below(kt, 3), at++;
        else
            pos[i] = at++;
    }
    shuffle(kt, pos, len);
    return at;
}

/* Scores of one head: far enough apart that no rounding decides who goes, or all zero. */
static void fill_scores(struct kt *kt, float *score, uint32_t len, bool evicts, enum scores how)
{
    static int32_t rank[4096];
    for (uint32_t j = 0; j < len; j++) rank[j] = (int32_t) j;
    shuffle(kt, rank, len);
    for (uint32_t j = 0; j < len; j++)
        score[j] = how == TIES ? 0 : evicts ? 8.0f * (float) rank[j] : kt_uniform(kt, 0, 2);
}

/* The two smallest scores of a head become equal, `apart` entries from each other, either of them the later one. */
static void tie_two(struct kt *kt, float *score, int32_t *pos, uint32_t len, uint32_t apart)
{
    const uint32_t a = kt_below(kt, len - apart), b = a + apart, later = kt_below(kt, 2);
    for (uint32_t j = 0; j < len; j++) score[j] += 8;
    score[a] = score[b] = 0;
    if ((pos[a] < pos[b]) != later) {
        const int32_t t = pos[a];
        pos[a] = pos[b];
        pos[b] = t;
    }
}

static struct ps_decode_row make_row(struct kt *kt, const struct ps_attn_decode *a,
                                     const struct decode_shape *sh, uint32_t len)
{
    const bool evicts = sh->keep.heavy != PS_KEEP_ALL &&
                        len >= (uint64_t) sh->keep.sinks + sh->keep.heavy + sh->keep.recent;
    struct ps_decode_row r = { .keep = sh->keep, .len = len };
    const size_t d = a->d, slab = len + 1 + kt_below(kt, 3), n = a->kv_heads * slab * d;
    const enum kt_type t = kt_type_of(a->kv_type);
    r.slab.cap = (uint32_t) slab;
    r.q = kt_in_f32(kt, a->q_heads * d, -2, 2);
    float *k = kt_in_bytes(kt, a->kv_heads * d * sizeof *k);
    for (size_t i = 0; i < a->kv_heads * d; i++) k[i] = kt_uniform(kt, -2, 2);
    r.k = k;
    r.v = kt_in_f32(kt, a->kv_heads * d, -1, 1);
    r.o = kt_out(kt, kt_type_of(a->o_type), a->q_heads * d, kt_rounded(a->o_type, 3e-5f));
    r.slab.k = kt_inout(kt, t, n, 0);
    r.slab.v = kt_inout(kt, t, n, 0);
    r.slab.pos = kt_inout(kt, KT_I32, a->kv_heads * slab, 0);
    if (sh->scores != NO_SCORES) r.slab.score = kt_inout(kt, KT_F32, a->kv_heads * slab, 1e-5f);
    for (size_t i = 0; i < n; i++) {
        const float same = k[i / (slab * d) * d + i % d];
        ps_dtype_put(a->kv_type, r.slab.k, i, sh->scores >= TIES ? same : kt_uniform(kt, -2, 2));
        ps_dtype_put(a->kv_type, r.slab.v, i, kt_uniform(kt, -1, 1));
    }
    for (uint32_t h = 0; h < a->kv_heads; h++) {
        const int32_t now = place(kt, r.slab.pos + h * slab, len, &sh->keep);
        if (now > r.now) r.now = now;
        if (r.slab.score) fill_scores(kt, r.slab.score + h * slab, len, evicts, sh->scores);
        if (sh->scores == TIE_OF_TWO)
            tie_two(kt, r.slab.score + h * slab, r.slab.pos + h * slab, len, sh->apart);
    }
    if (sh->keep.recent > 1 && a->kv_heads > 1) /* one `now`: every head has the same recent ones */
        for (uint32_t h = 1; h < a->kv_heads; h++)
            memcpy(r.slab.pos + h * slab, r.slab.pos, len * sizeof *r.slab.pos);
    if (sh->keep.recent > 1 && a->kv_heads > 1) {
        int32_t last = -1;
        for (uint32_t j = 0; j < len; j++)
            if (r.slab.pos[j] > last) last = r.slab.pos[j];
        r.now = last + 1;
    }
    r.at = kt_out(kt, KT_I32, a->kv_heads, 0);
    if (sh->log) {
        r.log_cap = 1 + kt_below(kt, 3);
        r.log_at = kt_below(kt, r.log_cap);
        r.log_k = kt_out(kt, t, a->kv_heads * r.log_cap * d, 0);
        r.log_v = kt_out(kt, t, a->kv_heads * r.log_cap * d, 0);
        r.log_index = kt_out(kt, KT_I32, a->kv_heads * r.log_cap, 0);
    }
    return r;
}

static void decode_case(struct kt *kt, const struct decode_shape *sh, enum ps_dtype t)
{
    struct ps_attn_decode a = { .n_rows = sh->n_rows, .kv_heads = sh->kv_heads, .d = sh->d };
    struct ps_decode_row *rows = kt_in_bytes(kt, sh->n_rows * sizeof *rows);
    const uint64_t budget = (uint64_t) sh->keep.sinks + sh->keep.heavy + sh->keep.recent;
    a.q_heads = sh->kv_heads * sh->group;
    a.rows = rows;
    a.scale = 1 / sqrtf((float) a.d);
    a.kv_type = t;
    a.o_type = kt_below(kt, 3) ? PS_F32 : (enum ps_dtype) kt_below(kt, PS_DTYPE__COUNT);
    for (uint32_t r = 0; r < sh->n_rows;
         r++) { /* the others are shorter: not yet at their budget */
        uint32_t len = r ? kt_below(kt, sh->len + 1) : sh->len;
        if (len > budget) len = (uint32_t) budget;
        rows[r] = make_row(kt, &a, sh, len);
        if (len + 1 > a.longest) a.longest = len + 1;
    }
    kt_check(kt, &(struct kt_spec) { .op = PS_OP_attn_decode, .args = &a, .piece = decode_row },
             "d=%u heads=%ux%u rows=%u len=%u keep=%d/%d/%d %s scores=%d log=%d", a.d, a.kv_heads,
             sh->group, a.n_rows, sh->len, (int) sh->keep.sinks, (int) sh->keep.heavy,
             (int) sh->keep.recent, ps_dtype_name(t), sh->scores, sh->log);
}

/* A K beyond f16, a V and a query that are not numbers. */
static void decode_fault(struct kt *kt, int which)
{
    struct ps_attn_decode a = { .n_rows = 1, .q_heads = 1, .kv_heads = 1, .d = 9, .longest = 6 };
    struct ps_decode_row *rows = kt_in_bytes(kt, sizeof *rows);
    a.rows = rows;
    a.scale = 1;
    a.kv_type = which == 1 ? PS_F32 : PS_F16;
    const struct decode_shape sh = { 9, 1, 1, 1, 5, { 0, 3, 2 }, SCORES, false };
    rows[0] = make_row(kt, &a, &sh, 5);
    float *x = kt_in_f32(kt, 9, -1, 1);
    x[8] = which == 0 ? -65520 : NAN;
    *(which == 0 ? &rows[0].k : which == 1 ? &rows[0].v : &rows[0].q) = x;
    kt_check(kt, &(struct kt_spec) { .op = PS_OP_attn_decode, .args = &a, .want_rc = -PS_ENUMERIC },
             "fault %d", which);
}

/* Equal scores at every length: all of them, or two that lie in one lane of every vector (16 apart), of short ones alone (8)
 * or of none (1); the new entry among them (recent = 0) or not. */
static void decode_ties(struct kt *kt)
{
    static const uint32_t aparts[] = { 0, 1, 8, 16 };
    for (uint32_t len = 1; len <= 100; len++)
        for (size_t i = 0; i < sizeof aparts / sizeof aparts[0] && aparts[i] < len; i++)
            for (uint32_t recent = 0; recent < 2; recent++)
                decode_case(kt,
                            &(struct decode_shape) { .d = 16,
                                                     .kv_heads = 3,
                                                     .group = 1,
                                                     .n_rows = 1,
                                                     .len = len,
                                                     .keep = { 0, len - recent, recent },
                                                     .scores = aparts[i] ? TIE_OF_TWO : TIES,
                                                     .apart = aparts[i] },
                            kv_types[len % 2]);
}

static void check_decode(struct kt *kt)
{
    static const uint32_t ds[] = { 1,  7,  8,  9,  15,  16,  17,  24, 33,
                                   40, 64, 80, 96, 127, 128, 131, 256 };
    static const uint32_t lens[] = { 0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 97 };
    static const struct ps_keep keeps[] = { { 0, 2, 2 },  { 0, 3, 0 }, { 2, 0, 3 }, { 0, 0, 5 },
                                            { 1, 4, 1 },  { 3, 7, 9 }, { 2, 5, 0 }, { 0, 40, 25 },
                                            { 4, 0, 60 }, { 0, 1, 0 } };
    const struct ps_keep all = { 0, PS_KEEP_ALL, 0 };
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < sizeof ds / sizeof ds[0]; i++)
            for (uint32_t group = 1; group <= 5; group += 1 + i % 3)
                decode_case(kt,
                            &(struct decode_shape) { ds[i], 1 + kt_below(kt, 2), group, 2,
                                                     20 + kt_below(kt, 80), all, i % 2,
                                                     i % 4 == 0 },
                            kv_types[t]);
        for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
            decode_case(kt,
                        &(struct decode_shape) { 16, 2, i % 2 ? 4 : 1, 3, lens[i], all, 1, false },
                        kv_types[t]);
        for (size_t i = 0; i < sizeof keeps / sizeof keeps[0]; i++) {
            const uint32_t budget = keeps[i].sinks + keeps[i].heavy + keeps[i].recent;
            for (int how = keeps[i].heavy ? SCORES : NO_SCORES; how <= TIES; how++)
                for (uint32_t group = 1; group <= 4; group += 3)
                    decode_case(kt,
                                &(struct decode_shape) { i % 2 ? 24 : 64, 2, group, 3, budget,
                                                         keeps[i], how, i % 3 == 0 },
                                kv_types[t]);
        }
    }
    /* Beyond what a GPU's block takes at once. */
    static const uint32_t long_lens[] = { 255, 256, 511, 700 };
    for (size_t i = 0; i < sizeof long_lens / sizeof long_lens[0]; i++)
        for (int how = NO_SCORES; how <= TIE_OF_TWO; how++)
            decode_case(
                kt,
                &(struct decode_shape) { .d = i % 2 ? 8 : 16,
                                         .kv_heads = 2,
                                         .group = how == SCORES ? 5 : 1,
                                         .n_rows = how == TIE_OF_TWO ? 1 : 2,
                                         .len = long_lens[i],
                                         .keep = { 1, how == NO_SCORES ? 0 : long_lens[i] - 4,
                                                   how == NO_SCORES ? long_lens[i] - 1 : 3 },
                                         .scores = (enum scores) how,
                                         .apart = 200 },
                kv_types[i % 2]);
    decode_ties(kt);
    for (int which = 0; which < 3; which++) decode_fault(kt, which);
}
const struct kt_test kt_test_attn_decode = { PS_OP_attn_decode, check_decode, bench_attn_decode };
