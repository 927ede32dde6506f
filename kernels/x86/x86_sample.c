/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling: two passes over the logits (greatest, sum of exp), a third for the top ones if wanted. To draw, the
 * candidates are taken in descending order in batches: a histogram over distance from the greatest, linear in
 * log-probability, says which bins hold the next ones; a batch is collected and sorted only when it is needed. */
#include "kernels/attn_scratch.h"
#include "kernels/x86/vec.h"
#include "kernels/x86/x86_rows.h"
#include <errno.h>
#include <math.h>

enum {
    SUM_BLOCK = 64 * VL,
    BATCH = 64,
    NEAR_BINS = 160, /* 10 nats: as a rule the first batch, taken without a histogram */
    NEAR_MOST = 2048,
};
static const float bins_per_nat = 16;

/* false: one is NaN or +inf. */
static bool greatest(const float *x, uint32_t n, float *ret)
{
    vf m[4], inf = vf_set1(INFINITY);
    unsigned good = vm_bits(vm_first(VL));
    for (int k = 0; k < 4; k++) m[k] = vf_set1(-INFINITY);
    uint32_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL)
        for (int k = 0; k < 4; k++) {
            const vf v = vf_load(x + i + k * VL);
            good &= vm_bits(vf_lt(v, inf));
            m[k] = vf_max(m[k], v);
        }
    for (; i < n; i += VL) {
        const unsigned w = n - i < VL ? n - i : VL;
        const vf v = vf_pick(vm_first(w), vf_loadn(x + i, w), vf_set1(-INFINITY));
        good &= vm_bits(vf_lt(v, inf));
        m[0] = vf_max(m[0], v);
    }
    *ret = vf_greatest(vf_max(vf_max(m[0], m[1]), vf_max(m[2], m[3])));
    return good == vm_bits(vm_first(VL));
}

static int32_t first_equal(const float *x, uint32_t n, float value)
{
    for (uint32_t i = 0; i < n; i += VL) {
        const unsigned w = n - i < VL ? n - i : VL;
        const unsigned hit =
            vm_bits(vm_and(vf_eq(vf_loadn(x + i, w), vf_set1(value)), vm_first(w)));
        if (hit) return (int32_t) (i + (unsigned) __builtin_ctz(hit));
    }
    return -1;
}

/* sum of exp((x - max) * inv_t), block sums in f32, their sum in f64 */
static double sum_exp(const float *x, uint32_t n, float max, float inv_t)
{
    double sum = 0;
    const vf m = vf_set1(max), t = vf_set1(inv_t);
    for (uint32_t at = 0; at < n; at += SUM_BLOCK) {
        const uint32_t end = n - at < SUM_BLOCK ? n : at + SUM_BLOCK;
        vf acc[2] = { vf_zero(), vf_zero() };
        uint32_t i = at;
        for (; i + 2 * VL <= end; i += 2 * VL)
            for (int k = 0; k < 2; k++)
                acc[k] = vf_add(acc[k], vf_exp(vf_mul(vf_sub(vf_load(x + i + k * VL), m), t)));
        for (; i < end; i += VL) {
            const unsigned w = end - i < VL ? end - i : VL;
            const vf e = vf_exp(vf_mul(vf_sub(vf_loadn(x + i, w), m), t));
            acc[0] = vf_add(acc[0], vf_pick(vm_first(w), e, vf_zero()));
        }
        sum += (double) vf_sum(vf_add(acc[0], acc[1]));
    }
    return sum;
}

/* Into c[0..*n), at most `most` of them, best first; of equals the earlier comes first. */
static void insert(struct ps_cand *c, uint32_t *n, uint32_t most, float x, uint32_t id)
{
    uint32_t i = *n < most ? (*n)++ : most - 1;
    for (; i > 0 && c[i - 1].x < x; i--) c[i] = c[i - 1];
    c[i] = (struct ps_cand) { x, (int32_t) id };
}

static void top(const float *x, uint32_t n, double lse, struct ps_sample_out *out)
{
    struct ps_cand c[PS_TOP_MAX];
    const uint32_t most = out->n_top;
    uint32_t got = 0, i = 0;
    if (most == 0) return;
    for (; i < most; i++) insert(c, &got, most, x[i], i);
    for (; i < n; i += VL) {
        const unsigned w = n - i < VL ? n - i : VL;
        const vm more = vf_lt(vf_set1(c[most - 1].x), vf_loadn(x + i, w));
        for (unsigned hit = vm_bits(vm_and(more, vm_first(w))); hit; hit &= hit - 1) {
            const uint32_t at = i + (unsigned) __builtin_ctz(hit);
            if (x[at] > c[most - 1].x) insert(c, &got, most, x[at], at);
        }
    }
    for (i = 0; i < most; i++) {
        out->top_id[i] = c[i].id;
        out->top_logprob[i] = (float) ((double) c[i].x - lse);
    }
}

/* The candidates in order, as far as anybody asked. */
struct draw {
    const float *x;
    uint32_t vocab;
    float max, inv_t, per_bin;
    struct ps_cand *c;
    uint32_t n, batch,
        bin;        /* sorted so far; size of the next batch; first bin that is not in yet */
    uint32_t *hist; /* per bin, the nearest to the greatest first; NULL until it is needed */
    uint32_t *hist_room;
};

PS_INLINE vi bin_of(const struct draw *d, vf x)
{
    const vf far = vf_set1((float) (PS_SAMPLE_BINS - 1));
    return vf_trunc(vf_min(vf_mul(vf_sub(vf_set1(d->max), x), vf_set1(d->per_bin)), far));
}

static void histogram(struct draw *d)
{
    d->hist = d->hist_room;
    memset(d->hist, 0, PS_SAMPLE_BINS * sizeof *d->hist);
    for (uint32_t i = 0; i < d->vocab; i += VL) {
        const unsigned w = d->vocab - i < VL ? d->vocab - i : VL;
        int32_t bin[VL];
        vi_store(bin, bin_of(d, vf_loadn(d->x + i, w)));
        for (unsigned k = 0; k < w; k++) d->hist[bin[k]]++;
    }
}

static bool before(struct ps_cand a, struct ps_cand b)
{
    return a.x > b.x || (a.x == b.x && a.id < b.id);
}

static void heap_sort(struct ps_cand *c, uint32_t n)
{
    for (uint32_t start = n / 2, end = n; end > 1;) {
        struct ps_cand it;
        uint32_t hole = 0, kid;
        if (start > 0) {
            hole = --start;
            it = c[hole];
        } else {
            it = c[--end];
            c[end] = c[0];
        }
        while ((kid = 2 * hole + 1) < end) {
            if (kid + 1 < end && before(c[kid], c[kid + 1])) kid++;
            if (!before(it, c[kid])) break;
            c[hole] = c[kid];
            hole = kid;
        }
        c[hole] = it;
    }
}

/* Lanes of x that are in bins [lo, hi). */
PS_INLINE unsigned in_bins(const struct draw *d, uint32_t i, uint32_t lo, uint32_t hi)
{
    const unsigned w = d->vocab - i < VL ? d->vocab - i : VL;
    const vi bin = bin_of(d, vf_loadn(d->x + i, w));
    const vm out = vm_or(vi_gt(vi_set1((int32_t) lo), bin), vi_gt(bin, vi_set1((int32_t) hi - 1)));
    return vm_bits(vm_andnot(out, vm_first(w)));
}

/* Takes bins [lo, hi) in, which hold `count`. */
static void collect(struct draw *d, uint32_t lo, uint32_t hi, uint32_t count)
{
    const uint32_t old = d->n;
    for (uint32_t i = 0; i < d->vocab && d->n < old + count; i += VL)
        for (unsigned hit = in_bins(d, i, lo, hi); hit; hit &= hit - 1) {
            const uint32_t id = i + (unsigned) __builtin_ctz(hit);
            d->c[d->n++] = (struct ps_cand) { d->x[id], (int32_t) id };
        }
    heap_sort(d->c + old, d->n - old);
    d->bin = hi;
}

/* Takes the next bins in, until they hold a batch or are all. */
static void more(struct draw *d)
{
    uint32_t count = 0, hi = d->bin;
    if (hi == 0) {
        for (uint32_t i = 0; i < d->vocab; i += VL)
            count += (uint32_t) __builtin_popcount(in_bins(d, i, 0, NEAR_BINS));
        if (count <= NEAR_MOST) {
            collect(d, 0, NEAR_BINS, count);
            return;
        }
        count = 0;
    }
    if (!d->hist) histogram(d);
    while (hi < PS_SAMPLE_BINS && count < d->batch) count += d->hist[hi++];
    collect(d, d->bin, hi, count);
    d->batch *= 4;
}

/* Weight of the i-th best. */
static double weight(struct draw *d, uint32_t i)
{
    while (d->n <= i) more(d);
    return exp(((double) d->c[i].x - (double) d->max) * (double) d->inv_t);
}

static uint32_t count_finite(const float *x, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i += VL) {
        const unsigned w = n - i < VL ? n - i : VL;
        const vm m = vf_lt(vf_set1(-INFINITY), vf_loadn(x + i, w));
        count += (uint32_t) __builtin_popcount(vm_bits(vm_and(m, vm_first(w))));
    }
    return count;
}

static int32_t choose(const struct ps_sample_row *r, struct draw *d)
{
    uint32_t n = count_finite(d->x, d->vocab);
    double total = 0, kept = 0, run = 0;
    if (r->top_k > 0 && r->top_k < n) {
        n = r->top_k;
        if (d->batch < n && n <= d->vocab / 4) d->batch = n;
        for (uint32_t i = 0; i < n; i++) total += weight(d, i);
    } else {
        total = sum_exp(d->x, d->vocab, d->max, d->inv_t);
    }
    if (r->top_p < 1) {
        uint32_t m = 0;
        do kept += weight(d, m++);
        while (m < n && kept < (double) r->top_p * total);
        n = m;
    } else {
        kept = total;
    }
    const double want = ps_uniform(r->key, r->index) * kept;
    for (uint32_t i = 0; i < n; i++)
        if ((run += weight(d, i)) > want) return d->c[i].id;
    return d->c[n - 1].id;
}

static int32_t pick(const struct ps_sample_row *r, uint32_t vocab, float max, void *scratch)
{
    struct draw d = { .x = r->logits, .vocab = vocab, .max = max, .batch = BATCH };
    float *copy = scratch;
    d.c = (struct ps_cand *) (copy + ps_attn_pad(vocab));
    d.hist_room = (uint32_t *) (d.c + ps_attn_pad(vocab));
    if (r->n_banned > 0) {
        memcpy(copy, r->logits, vocab * sizeof *copy);
        for (uint32_t i = 0; i < r->n_banned; i++)
            if (r->banned[i] >= 0 && (uint32_t) r->banned[i] < vocab)
                copy[r->banned[i]] = -INFINITY;
        d.x = copy;
        (void) greatest(copy, vocab, &d.max);
        if (d.max == -INFINITY) return -1;
    }
    if (r->temperature == 0) return first_equal(d.x, vocab, d.max);
    d.inv_t =
        fminf(1 / r->temperature, 1e30f); /* finite, so that the greatest stays at distance 0 */
    d.per_bin = bins_per_nat * d.inv_t;
    return choose(r, &d);
}

static int sample_row(const struct ps_sample_row *r, uint32_t vocab, void *scratch)
{
    struct ps_sample_out *out = r->out;
    float max;
    if (r->forced >= 0 && (uint32_t) r->forced >= vocab) return -EINVAL;
    if (r->n_top > PS_TOP_MAX) return -EINVAL;
    *out = (struct ps_sample_out) { .token = -1 };
    if (!greatest(r->logits, vocab, &max) || max == -INFINITY) return 0;
    const double lse = (double) max + log(sum_exp(r->logits, vocab, max, 1));
    out->n_top = r->n_top < vocab ? r->n_top : vocab;
    top(r->logits, vocab, lse, out);
    out->token = r->forced >= 0 ? r->forced : pick(r, vocab, max, scratch);
    if (out->token >= 0) out->logprob = (float) ((double) r->logits[out->token] - lse);
    return 0;
}

int PS_ISA(ps_sample)(const void *args, const struct ps_span *span)
{
    const struct ps_sample *a = args;
    for (uint64_t r = span->begin; r < span->end; r++) {
        int rc = sample_row(&a->rows[r], a->vocab, span->scratch);
        if (rc < 0) return rc;
    }
    return 0;
}
