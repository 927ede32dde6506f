/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding new K and V, and what stays after a prompt: the heavy ones by a radix selection that knows the tie rule. */
#include "engine/base/ps_err.h"
#include "kernels/attn_scratch.h"
#include "kernels/x86/vec.h"
#include "kernels/x86/x86_rows.h"
#include <math.h>

/* x[0..d) rounded into dst. Adds 0 * x to `bad`: NaN if one of them is not finite. */
PS_INLINE vf round_row(void *dst, const float *x, uint32_t d, bool half, vf bad)
{
    for (uint32_t c = 0; c < d; c += VL) {
        const unsigned n = d - c < VL ? d - c : VL;
        kv_storen(dst, half, c, n, vf_loadn(x + c, n));
        bad = vf_add(bad, vf_mul(kv_loadn(dst, half, c, n), vf_zero()));
    }
    return bad;
}

int PS_ISA(ps_kv_round)(const void *args, const struct ps_span *span)
{
    const struct ps_kv_round *a = args;
    const bool half = a->kv_type == PS_F16;
    vf bad = vf_zero();
    for (uint64_t r = span->begin; r < span->end; r++)
        for (uint32_t h = 0; h < a->kv_heads; h++) {
            const size_t to = ((size_t) h * a->cap + a->at + r) * a->d, from = (size_t) h * a->d;
            void *k = (char *) a->dst_k + to * ps_dtype_bytes(a->kv_type);
            void *v = (char *) a->dst_v + to * ps_dtype_bytes(a->kv_type);
            if (half) {
                bad = round_row(k, a->k + r * a->ldk + from, a->d, true, bad);
                bad = round_row(v, a->v + r * a->ldv + from, a->d, true, bad);
            } else {
                bad = round_row(k, a->k + r * a->ldk + from, a->d, false, bad);
                bad = round_row(v, a->v + r * a->ldv + from, a->d, false, bad);
            }
        }
    return isfinite(vf_sum(bad)) ? 0 : -PS_ENUMERIC;
}

/* An unsigned number with the order of the floats; the two zeros are one. */
static uint32_t sortable(float f)
{
    uint32_t u;
    f += 0.0f;
    memcpy(&u, &f, sizeof u);
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}

/* The `want`-th greatest of key[0..n) (1 <= want <= n) by digits of 11, 11 and 10 bits; ret_equal: how many of those
 * equal to it are among the `want` greatest. */
static uint32_t select_key(const uint32_t *key, uint32_t n, uint32_t want, uint32_t *hist,
                           uint32_t *ret_equal)
{
    static const struct {
        int shift, bits;
    } digits[] = { { 21, 11 }, { 10, 11 }, { 0, 10 } };
    uint32_t found = 0, known = 0; /* the digits found so far, and the mask of their bits */
    for (int i = 0; i < 3; i++) {
        const uint32_t bins = 1u << digits[i].bits;
        memset(hist, 0, bins * sizeof *hist);
        for (uint32_t j = 0; j < n; j++)
            if ((key[j] & known) == found) hist[key[j] >> digits[i].shift & (bins - 1)]++;
        uint32_t b = bins - 1;
        for (; hist[b] < want; b--) want -= hist[b];
        found |= b << digits[i].shift;
        known |= (bins - 1) << digits[i].shift;
    }
    *ret_equal = want;
    return found;
}

struct move {
    const struct ps_compact_seq *s;
    size_t from, to, row_bytes; /* first entries of the head */
    uint32_t n;                 /* entries written */
};

/* Entries [j, end) are the next to stay. */
static void move_run(struct move *m, uint32_t j, uint32_t end)
{
    const struct ps_slab *src = &m->s->src, *dst = &m->s->dst;
    const size_t at = m->to + m->n, from = m->from + j, len = end - j, w = m->row_bytes;
    memcpy((char *) dst->k + at * w, (const char *) src->k + from * w, len * w);
    memcpy((char *) dst->v + at * w, (const char *) src->v + from * w, len * w);
    for (size_t i = 0; i < len; i++) dst->pos[at + i] = (int32_t) (j + i);
    if (dst->score && src->score)
        memcpy(dst->score + at, src->score + from, len * sizeof *dst->score);
    else if (dst->score)
        memset(dst->score + at, 0, len * sizeof *dst->score);
    m->n += (uint32_t) len;
}

static int compact_unit(const struct ps_kv_compact *a, const struct ps_compact_seq *s, uint32_t h,
                        uint32_t *key)
{
    const struct ps_keep *keep = &s->keep;
    const uint32_t total = s->total;
    struct move m = { s, (size_t) h * s->src.cap, (size_t) h * s->dst.cap,
                      a->d * ps_dtype_bytes(a->kv_type), 0 };
    if (keep->heavy == PS_KEEP_ALL ||
        total <= (uint64_t) keep->sinks + keep->heavy + keep->recent) {
        move_run(&m, 0, total);
        return 0;
    }
    if (keep->heavy > 0 && !s->src.score) return -EINVAL;
    const uint32_t first = keep->sinks, end = total - keep->recent; /* the contested middle */
    uint32_t least = 0, equal = 0, run = 0;                         /* a run: [run, j) stays */
    if (keep->heavy > 0) {
        const float *score = s->src.score + m.from;
        for (uint32_t j = first; j < end; j++) key[j - first] = sortable(score[j]);
        least = select_key(key, end - first, keep->heavy, key + a->longest, &equal);
    }
    for (uint32_t j = first; j < end; j++) {
        const uint32_t k = keep->heavy > 0 ? key[j - first] : 0;
        const bool stays = keep->heavy > 0 && (k > least || (k == least && equal > 0));
        if (stays && k == least) equal--;
        if (stays) continue;
        if (run < j) move_run(&m, run, j);
        run = j + 1;
    }
    if (run < total) move_run(&m, run, total);
    return 0;
}

int PS_ISA(ps_kv_compact)(const void *args, const struct ps_span *span)
{
    const struct ps_kv_compact *a = args;
    for (uint64_t u = span->begin; u < span->end; u++) {
        int rc =
            compact_unit(a, &a->seqs[u / a->kv_heads], (uint32_t) (u % a->kv_heads), span->scratch);
        if (rc < 0) return rc;
    }
    return 0;
}
