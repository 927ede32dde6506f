/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a prompt: K is transposed once per unit into panels of keys; then, for PS_PROMPT_ROWS query rows at a
 * time (a row is one query head of one token, tokens ascending, heads of the group within), all logits by tiles of
 * MR rows x NV vectors of keys, softmax, the score sums, and P V by tiles of MR rows x NV vectors of columns.
 *
 * A row's bits do not depend on which rows share its block or its tile, so that a prompt may come in any chunks:
 * every logit is one chain of additions along d, every output one chain along the keys, in which the keys after
 * the row's own add an exact zero; the scores take one row after the other. */
#include "kernels/attn_scratch.h"
#include "kernels/x86/vec.h"
#include "kernels/x86/x86_rows.h"
#include <math.h>

enum {
    MR = 6,
    NV = VL == 16 ? 4 : 2,
    PANEL = NV * VL,
    V_KEYS =
        128, /* keys per visit of P V: their V stays in the first cache for all rows of the block */
};
_Static_assert((int) PANEL <= (int) PS_PROMPT_PANEL, "attn_scratch.h");

struct block {
    const struct ps_attn_prompt *a;
    const struct ps_prompt_seq *seq;
    const void *v; /* of this unit's head */
    size_t ld, ldd;
    float *s, *o, *kt; /* [PS_PROMPT_ROWS, ld], [PS_PROMPT_ROWS, ldd], panels [d, PANEL] */
    uint32_t n;        /* rows */
    const float *q[PS_PROMPT_ROWS];
    float *out[PS_PROMPT_ROWS];
    uint32_t end[PS_PROMPT_ROWS]; /* keys that the row attends to; never descending */
    float inv[PS_PROMPT_ROWS];
};

/* Keys [0, n) of K into panels; lanes without a key are zero. */
PS_INLINE void pack_k(float *kt, const void *k, uint32_t n, uint32_t d, bool half)
{
    for (uint32_t j = 0; j < n; j += VL) {
        float *to = kt + (size_t) (j / PANEL) * PANEL * d + j % PANEL;
        for (uint32_t c = 0; c < d; c += VL) {
            const uint32_t cols = d - c < VL ? d - c : VL;
            vf m[VL];
            for (uint32_t i = 0; i < VL; i++)
                m[i] = j + i >= n   ? vf_zero()
                       : cols == VL ? kv_load(k, half, (size_t) (j + i) * d + c)
                                    : kv_loadn(k, half, (size_t) (j + i) * d + c, cols);
            vf_transpose(m);
            for (uint32_t i = 0; i < cols; i++) vf_store(to + (size_t) (c + i) * PANEL, m[i]);
        }
    }
}

/* s[i..i+mr)[0..nv vectors) = scale * q . panel */
PS_INLINE void qk_tile(const struct block *b, uint32_t i, float *s, const float *panel,
                       const unsigned mr, const unsigned nv)
{
    vf acc[MR][NV];
    for (unsigned r = 0; r < mr; r++)
        for (unsigned v = 0; v < nv; v++) acc[r][v] = vf_zero();
    const float *const *q = b->q + i;
    for (uint32_t c = 0, d = b->a->d; c < d; c++, panel += PANEL) {
        vf k[NV];
        for (unsigned v = 0; v < nv; v++) k[v] = vf_load(panel + v * VL);
        for (unsigned r = 0; r < mr; r++) {
            const vf x = vf_set1(q[r][c]);
            for (unsigned v = 0; v < nv; v++) acc[r][v] = vf_fma(x, k[v], acc[r][v]);
        }
    }
    const vf scale = vf_set1(b->a->scale);
    for (unsigned r = 0; r < mr; r++)
        for (unsigned v = 0; v < nv; v++)
            vf_store(s + r * b->ld + v * VL, vf_mul(acc[r][v], scale));
}

/* o[i..i+mr)[c..c + nv vectors) += p V over keys [j, end); part > 0: only so many columns (nv is 1 then) */
PS_INLINE void pv_tile(const struct block *b, uint32_t i, uint32_t c, uint32_t j, uint32_t end,
                       bool half, unsigned part, const unsigned mr, const unsigned nv)
{
    vf acc[MR][NV];
    const uint32_t d = b->a->d;
    const float *p = b->s + i * b->ld;
    float *o = b->o + i * b->ldd + c;
    for (unsigned r = 0; r < mr; r++)
        for (unsigned v = 0; v < nv; v++)
            acc[r][v] = j ? vf_load(o + r * b->ldd + v * VL) : vf_zero();
    for (; j < end; j++) {
        vf x[NV];
        for (unsigned v = 0; v < nv; v++)
            x[v] = part ? kv_loadn(b->v, half, (size_t) j * d + c, part)
                        : kv_load(b->v, half, (size_t) j * d + c + v * VL);
        for (unsigned r = 0; r < mr; r++) {
            const vf w = vf_set1(p[r * b->ld + j]);
            for (unsigned v = 0; v < nv; v++) acc[r][v] = vf_fma(w, x[v], acc[r][v]);
        }
    }
    for (unsigned r = 0; r < mr; r++)
        for (unsigned v = 0; v < nv; v++) vf_store(o + r * b->ldd + v * VL, acc[r][v]);
}

/* Calls f(..., mr, nv) with constants: a function of its own per shape of tile. */
#define ROWS_OF(nv, f, mr, ...)             \
    switch (mr) {                           \
    case 1: f(__VA_ARGS__, 1, nv); break;   \
    case 2: f(__VA_ARGS__, 2, nv); break;   \
    case 3: f(__VA_ARGS__, 3, nv); break;   \
    case 4: f(__VA_ARGS__, 4, nv); break;   \
    case 5: f(__VA_ARGS__, 5, nv); break;   \
    default: f(__VA_ARGS__, MR, nv); break; \
    }
#if defined __AVX512F__
#define TILE_OF(nv, ...)                   \
    switch (nv) {                          \
    case 1: ROWS_OF(1, __VA_ARGS__) break; \
    case 2: ROWS_OF(2, __VA_ARGS__) break; \
    case 3: ROWS_OF(3, __VA_ARGS__) break; \
    default: ROWS_OF(4, __VA_ARGS__)       \
    }
#else
#define TILE_OF(nv, ...)                   \
    switch (nv) {                          \
    case 1: ROWS_OF(1, __VA_ARGS__) break; \
    default: ROWS_OF(2, __VA_ARGS__)       \
    }
#endif

static void logits(const struct block *b)
{
    for (uint32_t i = 0; i < b->n; i += MR) {
        const uint32_t mr = b->n - i < MR ? b->n - i : MR, end = b->end[i + mr - 1];
        for (uint32_t j = 0; j < end; j += PANEL) {
            const uint32_t nv = end - j >= PANEL ? NV : (end - j + VL - 1) / VL;
            const float *panel = b->kt + (size_t) j * b->a->d;
            TILE_OF(nv, qk_tile, mr, b, i, b->s + i * b->ld + j, panel)
        }
    }
}

/* The row's logits become exp(s - max), with zeros from its own end to the block's. */
static void softmax(struct block *b, uint32_t i)
{
    const uint32_t n = b->end[i], all = b->end[b->n - 1];
    float *s = b->s + i * b->ld;
    uint32_t j = 0;
    vf m = vf_set1(-INFINITY), sum = vf_zero();
    for (; j + VL <= n; j += VL) m = vf_max(m, vf_load(s + j));
    if (j < n) m = vf_max(m, vf_pick(vm_first(n - j), vf_load(s + j), vf_set1(-INFINITY)));
    m = vf_set1(vf_greatest(m));
    for (j = 0; j + VL <= n; j += VL) {
        const vf p = vf_exp(vf_sub(vf_load(s + j), m));
        vf_store(s + j, p);
        sum = vf_add(sum, p);
    }
    if (j < n) {
        const vf p = vf_pick(vm_first(n - j), vf_exp(vf_sub(vf_load(s + j), m)), vf_zero());
        vf_store(s + j, p);
        sum = vf_add(sum, p);
        j += VL;
    }
    for (; j < all; j += VL) vf_store(s + j, vf_zero());
    b->inv[i] = 1.0f / vf_sum(sum);
}

/* score[j] += p(i, j), one row after the other. */
static void add_scores(const struct block *b, float *score)
{
    enum { AT_ONCE = 4 }; /* chains of additions */
    const uint32_t all = b->end[b->n - 1];
    uint32_t j = 0;
    for (; j + AT_ONCE * VL <= all; j += AT_ONCE * VL) {
        vf acc[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++) acc[k] = vf_load(score + j + k * VL);
        for (uint32_t i = 0; i < b->n; i++) {
            const vf inv = vf_set1(b->inv[i]);
            const float *p = b->s + i * b->ld + j;
            for (int k = 0; k < AT_ONCE; k++) acc[k] = vf_fma(vf_load(p + k * VL), inv, acc[k]);
        }
        for (int k = 0; k < AT_ONCE; k++) vf_store(score + j + k * VL, acc[k]);
    }
    for (; j < all; j += VL) {
        const unsigned n = all - j < VL ? all - j : VL;
        vf acc = vf_loadn(score + j, n);
        for (uint32_t i = 0; i < b->n; i++)
            acc = vf_fma(vf_load(b->s + i * b->ld + j), vf_set1(b->inv[i]), acc);
        vf_storen(score + j, n, acc);
    }
}

PS_INLINE void outputs(const struct block *b, bool half)
{
    const uint32_t d = b->a->d, all = b->end[b->n - 1], whole = d / VL;
    const uint32_t tiles = (whole + NV - 1) / NV, wide = tiles ? (whole + tiles - 1) / tiles : 0;
    for (uint32_t j = 0; j < all; j += V_KEYS)
        for (uint32_t i = 0; i < b->n; i += MR) {
            const uint32_t mr = b->n - i < MR ? b->n - i : MR;
            const uint32_t last = b->end[i + mr - 1], end = last < j + V_KEYS ? last : j + V_KEYS;
            if (j >= end) continue;
            for (uint32_t k = 0; k < whole; k += wide) {
                const uint32_t nv = whole - k < wide ? whole - k : wide;
                TILE_OF(nv, pv_tile, mr, b, i, k * VL, j, end, half, 0)
            }
            if (d % VL) ROWS_OF(1, pv_tile, mr, b, i, whole * VL, j, end, half, d % VL)
        }
}

static void put_out(const struct block *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const vf inv = vf_set1(b->inv[i]);
        for (uint32_t c = 0; c < b->a->d; c += VL) {
            const uint32_t n = b->a->d - c < VL ? b->a->d - c : VL;
            /* + 0: a sum that underflowed to -0 is the one that a later exact zero could change */
            const vf x = vf_add(vf_mul(vf_load(b->o + i * b->ldd + c), inv), vf_zero());
            vf_storen(b->out[i] + c, n, x);
        }
    }
}

static void prompt_unit(struct block *b, uint32_t h)
{
    const struct ps_attn_prompt *a = b->a;
    const struct ps_prompt_seq *s = b->seq;
    const uint32_t group = a->q_heads / a->kv_heads, d = a->d;
    const bool half = a->kv_type == PS_F16;
    const size_t base = (size_t) h * s->cap;
    const void *k = kv_at(s->k, half, base * d);
    float *score = s->score ? s->score + base : NULL;
    b->v = kv_at(s->v, half, base * d);
    if (score && s->first == 0) memset(score, 0, s->total * sizeof *score);
    if (half)
        pack_k(b->kt, k, s->first + s->rows, d, true);
    else
        pack_k(b->kt, k, s->first + s->rows, d, false);
    const uint64_t rows = (uint64_t) s->rows * group;
    for (uint64_t at = 0; at < rows; at += b->n) {
        b->n = rows - at < PS_PROMPT_ROWS ? (uint32_t) (rows - at) : PS_PROMPT_ROWS;
        for (uint32_t i = 0; i < b->n; i++) {
            const uint32_t r = (uint32_t) ((at + i) / group), g = (uint32_t) ((at + i) % group);
            b->q[i] = s->q + (size_t) r * a->ldq + ((size_t) h * group + g) * d;
            b->out[i] = (float *) s->o + (size_t) r * a->ldo + ((size_t) h * group + g) * d;
            b->end[i] = s->first + r + 1;
        }
        logits(b);
        for (uint32_t i = 0; i < b->n; i++) softmax(b, i);
        if (score) add_scores(b, score);
        if (half)
            outputs(b, true);
        else
            outputs(b, false);
        put_out(b);
    }
}

int PS_ISA(ps_attn_prompt)(const void *args, const struct ps_span *span)
{
    const struct ps_attn_prompt *a = args;
    struct block b = { .a = a, .ld = ps_prompt_ld(a), .ldd = ps_attn_pad(a->d) };
    b.s = span->scratch;
    b.o = b.s + PS_PROMPT_ROWS * b.ld;
    b.kt = b.o + PS_PROMPT_ROWS * b.ldd;
    for (uint64_t u = span->begin; u < span->end; u++) {
        b.seq = &a->seqs[u / a->kv_heads];
        prompt_unit(&b, (uint32_t) (u % a->kv_heads));
    }
    return 0;
}
