/* SPDX-License-Identifier: Apache-2.0 */
/* Decode attention over slabs: per (row, KV head) one pass over K, softmax over the logits in scratch, one pass over the
 * scores (which also finds the victim), one pass over V. DRAM's rate is the limit, so what hides its latency is here:
 * prefetches run a fixed distance ahead along K, then V, then the next unit's K, and the scores and positions come
 * in beside K. All sums run in an order that depends on d and on the number of entries alone. */
#include "engine/base/ps_err.h"
#include "kernels/attn_scratch.h"
#include "kernels/x86/vec.h"
#include "kernels/x86/x86_rows.h"
#include <math.h>

enum {
    HG = VL / 4,   /* query heads that share one read of K or V */
    V_CHUNK = 32,  /* entries per visit of a column tile, when one tile is not all */
    AHEAD = 16384, /* bytes */
    LEAD = 4,
};

struct unit {
    const struct ps_attn_decode *a;
    const struct ps_decode_row *r;
    const char *k, *v, *next; /* this unit's K and V, the next one's K */
    size_t row_bytes, all_bytes, fetched;
    uint32_t h, group, n;
    bool half;
    size_t ld, ldd; /* of s and of q, o */
    float *s, *q, *o, *inv, *new_k, *new_v;
    void *new_kt, *new_vt; /* in the KV type */
};

static size_t carve(struct unit *u, void *scratch)
{
    float *f = scratch;
    u->ld = ps_attn_pad(u->a->longest) + PS_ATTN_PAD;
    u->ldd = ps_attn_pad(u->a->d);
    u->s = f;
    u->q = u->s + u->group * u->ld;
    u->o = u->q + u->group * u->ldd;
    u->inv = u->o + u->group * u->ldd;
    u->new_k = u->inv + u->group * PS_ATTN_PAD;
    u->new_v = u->new_k + u->ldd;
    u->new_kt = u->new_v + u->ldd;
    u->new_vt = (float *) u->new_kt + u->ldd;
    return (size_t) ((float *) u->new_vt + u->ldd - f) * sizeof(float);
}

/* The new K and V rounded, as stored and as read back; the query beside them, zeros behind each. */
static int take_new(struct unit *u)
{
    const uint32_t d = u->a->d;
    const float *k = u->r->k + (size_t) u->h * d, *v = u->r->v + (size_t) u->h * d;
    vf bad = vf_zero();
    for (uint32_t c = 0; c < d; c += VL) {
        const unsigned n = d - c < VL ? d - c : VL;
        kv_storen(u->new_kt, u->half, c, n, vf_loadn(k + c, n));
        kv_storen(u->new_vt, u->half, c, n, vf_loadn(v + c, n));
        const vf x = kv_loadn(u->new_kt, u->half, c, n), y = kv_loadn(u->new_vt, u->half, c, n);
        vf_store(u->new_k + c, x);
        vf_store(u->new_v + c, y);
        bad = vf_add(bad, vf_add(vf_mul(x, vf_zero()), vf_mul(y, vf_zero()))); /* 0 * inf: NaN */
        for (uint32_t g = 0; g < u->group; g++)
            vf_store(u->q + g * u->ldd + c,
                     vf_loadn(u->r->q + ((size_t) u->h * u->group + g) * d + c, n));
    }
    return isfinite(vf_sum(bad)) ? 0 : -PS_ENUMERIC;
}

/* Fetches the stream K, V, next K up to AHEAD bytes behind `at`. While softmax and scores read nothing new, it goes on
 * by LEAD bytes an entry each, and pays that back over V: DRAM is never idle. */
PS_INLINE void fetch_ahead(struct unit *u, size_t at)
{
    for (at += AHEAD; u->fetched < at; u->fetched += 64) {
        const size_t all = u->all_bytes, f = u->fetched;
        _mm_prefetch(f < all       ? u->k + f
                     : f < 2 * all ? u->v + (f - all)
                                   : u->next + (f - 2 * all),
                     _MM_HINT_T1);
    }
}

/* Dot products of nh queries with VL / nh keys k[0], k[1]..; lane g * (VL / nh) + i is query g, key i. */
PS_INLINE vf dots(const void *const *k, bool half, const float *q, size_t ldd, uint32_t d,
                  const unsigned nh)
{
    vf acc[VL];
    uint32_t c = 0;
    for (unsigned i = 0; i < VL; i++) acc[i] = vf_zero();
    for (; c + VL <= d; c += VL) {
        for (unsigned i = 0; i < VL / nh; i++) {
            const vf x = kv_load(k[i], half, c);
            for (unsigned g = 0; g < nh; g++)
                acc[g * (VL / nh) + i] =
                    vf_fma(x, vf_load(q + g * ldd + c), acc[g * (VL / nh) + i]);
        }
    }
    if (c < d) {
        for (unsigned i = 0; i < VL / nh; i++) {
            const vf x = kv_loadn(k[i], half, c, d - c);
            for (unsigned g = 0; g < nh; g++)
                acc[g * (VL / nh) + i] =
                    vf_fma(x, vf_load(q + g * ldd + c), acc[g * (VL / nh) + i]);
        }
    }
    return vf_sum_each(acc);
}

PS_INLINE void put_dots(const struct unit *u, uint32_t g, uint32_t j, unsigned nh, vf x)
{
    x = vf_mul(x, vf_set1(u->a->scale));
    float *s = u->s + g * u->ld + j;
    if (nh == 1)
        vf_store(s, x);
    else
        for (unsigned i = 0; i < nh; i++) _mm_storeu_ps(s + i * u->ld, vf_quarter(x, (int) i));
}

/* Logits of heads [g, g + nh) for the entries [j, end); the vectors past the end hold rubbish afterwards. */
PS_INLINE void k_pass(const struct unit *u, uint32_t g, uint32_t j, uint32_t end, bool half,
                      const unsigned nh)
{
    const uint32_t step = VL / nh;
    const float *q = u->q + g * u->ldd;
    const void *k[VL];
    for (; j < end; j += step) {
        const uint32_t last = end - 1 - j;
        for (unsigned i = 0; i < step; i++)
            k[i] = u->k + (size_t) (j + (i < last ? i : last)) * u->row_bytes;
        put_dots(u, g, j, nh, dots(k, half, q, u->ldd, u->a->d, nh));
    }
}

PS_INLINE void all_k(struct unit *u, bool half)
{
    const size_t base = (size_t) u->h * u->r->slab.cap;
    const float *score = u->r->slab.score ? u->r->slab.score + base : NULL;
    const int32_t *pos = u->r->slab.pos + base;
    for (uint32_t j = 0; j < u->n; j += VL) {
        const uint32_t end = j + VL < u->n ? j + VL : u->n;
        uint32_t g = 0;
        fetch_ahead(u, (j + VL) * u->row_bytes);
        if (score) {
            _mm_prefetch((const char *) (score + j), _MM_HINT_T0);
            _mm_prefetch((const char *) (pos + j), _MM_HINT_T0);
        }
        for (; g + HG <= u->group; g += HG) k_pass(u, g, j, end, half, HG);
        for (; g < u->group; g++) k_pass(u, g, j, end, half, 1);
    }
    const void *k[VL]; /* the new one */
    for (unsigned i = 0; i < VL; i++) k[i] = u->new_k;
    for (uint32_t g = 0; g < u->group; g++)
        u->s[g * u->ld + u->n] =
            _mm_cvtss_f32(vf_quarter(dots(k, false, u->q + g * u->ldd, u->ldd, u->a->d, 1), 0)) *
            u->a->scale;
}

/* s becomes exp(s - max), zeros behind it; inv one over their sum. */
static void softmax(struct unit *u, uint32_t g)
{
    const uint32_t n = u->n + 1;
    float *s = u->s + g * u->ld;
    uint32_t j = 0;
    vf m = vf_set1(-INFINITY), sum = vf_zero();
    for (; j + VL <= n; j += VL) m = vf_max(m, vf_load(s + j));
    if (j < n) m = vf_max(m, vf_pick(vm_first(n - j), vf_load(s + j), vf_set1(-INFINITY)));
    m = vf_set1(vf_greatest(m));
    for (j = 0; j + VL <= n; j += VL) {
        const vf p = vf_exp(vf_sub(vf_load(s + j), m));
        if (g == 0) fetch_ahead(u, u->all_bytes + LEAD * (j + VL));
        vf_store(s + j, p);
        sum = vf_add(sum, p);
    }
    if (j < n) {
        const vf p = vf_pick(vm_first(n - j), vf_exp(vf_sub(vf_load(s + j), m)), vf_zero());
        vf_store(s + j, p);
        sum = vf_add(sum, p);
    }
    u->inv[g] = 1.0f / vf_sum(sum);
}

/* Where the new entry goes, -1 if nowhere. */
struct best {
    vf score;
    vi pos, at;
};
/* Lanes of `may` with a smaller score, or an equal one and a later position, replace what `b` holds. */
PS_INLINE void best_take(struct best *b, vm may, vf score, vi pos, vi at)
{
    const vm less = vf_lt(score, b->score);
    const vm tie = vm_and(vf_eq(score, b->score), vi_gt(pos, b->pos));
    const vm m = vm_and(may, vm_or(less, tie));
    b->score = vf_pick(m, score, b->score);
    b->pos = vi_pick(m, pos, b->pos);
    b->at = vi_pick(m, at, b->at);
}

/* Adds the probabilities to the scores and, if `evict`, finds the victim: its index, n for the new entry, -1 if none
 * may go. Without scores all are equal. Lanes begin with +inf and position -1, so that any candidate wins. */
PS_INLINE int64_t score_pass(struct unit *u, bool scored, bool evict, float *ret_new)
{
    const struct ps_decode_row *r = u->r;
    const size_t base = (size_t) u->h * r->slab.cap;
    float *score = scored ? r->slab.score + base : NULL;
    const int32_t *pos = r->slab.pos + base;
    const int64_t hi = (int64_t) r->now - (int64_t) r->keep.recent; /* pos <= hi may go */
    const int32_t lo = r->keep.sinks > INT32_MAX ? INT32_MAX : (int32_t) r->keep.sinks;
    const vi below = vi_set1(lo), above = vi_set1(hi < -1 ? -1 : (int32_t) hi);
    struct best b = { vf_set1(INFINITY), vi_set1(-1), vi_set1(-1) };
    vi at = vi_iota();
    float fresh = 0;
    for (uint32_t j = 0; j < u->n; j += VL, at = vi_add(at, vi_set1(VL))) {
        const unsigned n = u->n - j < VL ? u->n - j : VL;
        vf sc = vf_zero();
        if (scored) fetch_ahead(u, u->all_bytes + LEAD * (size_t) (u->n + j + VL));
        if (scored) {
            vf t = vf_mul(vf_load(u->s + j), vf_set1(u->inv[0]));
            for (uint32_t g = 1; g < u->group; g++)
                t = vf_fma(vf_load(u->s + g * u->ld + j), vf_set1(u->inv[g]), t);
            if (n == VL) {
                sc = vf_add(vf_load(score + j), t);
                vf_store(score + j, sc);
            } else {
                sc = vf_add(vf_loadn(score + j, n), t);
                vf_storen(score + j, n, sc);
            }
        }
        if (evict) {
            const vi p = n == VL ? vi_load(pos + j) : vi_loadn(pos + j, n);
            const vm kept = vm_or(vi_gt(below, p), vi_gt(p, above));
            best_take(&b, vm_andnot(kept, vm_first(n)), sc, p, at);
        }
    }
    for (uint32_t g = 0; g < u->group; g++) /* rounded as the others are: equal stays equal */
        fresh = g ? fmaf(u->s[g * u->ld + u->n], u->inv[g], fresh) : u->s[u->n] * u->inv[0];
    *ret_new = fresh;
    if (!evict) return u->n;

    float sc[VL];
    int32_t p[VL], i[VL];
    vf_store(sc, b.score);
    vi_store(p, b.pos);
    vi_store(i, b.at);
    int64_t win = -1, win_pos = -1;
    float win_sc = INFINITY;
    for (int l = 0; l < VL; l++)
        if (i[l] >= 0 && (sc[l] < win_sc || (sc[l] == win_sc && p[l] > win_pos)))
            win = i[l], win_pos = p[l], win_sc = sc[l];
    if (r->keep.recent == 0 && r->now >= lo) {
        const float mine = scored ? fresh : 0;
        if (win < 0 || mine < win_sc || (mine == win_sc && r->now > win_pos)) win = u->n;
    }
    return win;
}

/* o[g..][c..] += p V over the entries [j, end), for nh heads and nv vectors of columns. `part` > 0: only so many
 * columns (nv is 1 then). */
PS_INLINE void v_tile(struct unit *u, uint32_t g, uint32_t c, uint32_t j, uint32_t end, bool half,
                      const unsigned nh, const unsigned nv, unsigned part)
{
    vf acc[4][8];
    float *o = u->o + g * u->ldd + c;
    const float *p = u->s + g * u->ld;
    size_t at = u->all_bytes + (u->r->slab.score ? 2 : 1) * LEAD * (size_t) u->n;
    const size_t step = u->row_bytes - (u->r->slab.score ? 2 : 1) * LEAD;
    for (unsigned i = 0; i < nh; i++)
        for (unsigned k = 0; k < nv; k++) acc[i][k] = vf_load(o + i * u->ldd + k * VL);
    for (; j < end; j++) {
        const void *row = u->v + (size_t) j * u->row_bytes;
        if (g == 0 && c == 0) fetch_ahead(u, at + (j + 1) * step);
        vf x[8];
        for (unsigned k = 0; k < nv; k++)
            x[k] = part ? kv_loadn(row, half, c, part) : kv_load(row, half, c + k * VL);
        for (unsigned i = 0; i < nh; i++) {
            const vf w = vf_set1(p[i * u->ld + j]);
            for (unsigned k = 0; k < nv; k++) acc[i][k] = vf_fma(w, x[k], acc[i][k]);
        }
    }
    for (unsigned i = 0; i < nh; i++)
        for (unsigned k = 0; k < nv; k++) vf_store(o + i * u->ldd + k * VL, acc[i][k]);
}

/* All columns of heads [g, g + nh). */
PS_INLINE void v_columns(struct unit *u, uint32_t g, uint32_t j, uint32_t end, bool half,
                         const unsigned nh)
{
    const uint32_t d = u->a->d;
    uint32_t c = 0;
    if (nh == 1)
        for (; c + 8 * VL <= d; c += 8 * VL) v_tile(u, g, c, j, end, half, nh, 8, 0);
    for (; c + 4 * VL <= d; c += 4 * VL) v_tile(u, g, c, j, end, half, nh, 4, 0);
    for (; c + VL <= d; c += VL) v_tile(u, g, c, j, end, half, nh, 1, 0);
    if (c < d) v_tile(u, g, c, j, end, half, nh, 1, d - c);
}

PS_INLINE void all_v(struct unit *u, bool half)
{
    const uint32_t d = u->a->d, n = u->n;
    const bool one_tile = u->group == 1 && (d == 4 * VL || d == 8 * VL || d == VL);
    for (uint32_t j = 0; j < n;) {
        const uint32_t end = one_tile || n - j < V_CHUNK ? n : j + V_CHUNK;
        uint32_t g = 0;
        for (; g + HG <= u->group; g += HG) v_columns(u, g, j, end, half, HG);
        for (; g < u->group; g++) v_columns(u, g, j, end, half, 1);
        j = end;
    }
}

static void put_out(const struct unit *u)
{
    const uint32_t d = u->a->d;
    for (uint32_t g = 0; g < u->group; g++) {
        float *o = (float *) u->r->o + ((size_t) u->h * u->group + g) * d;
        const vf w = vf_set1(u->s[g * u->ld + u->n]), inv = vf_set1(u->inv[g]);
        for (uint32_t c = 0; c < d; c += VL) {
            const vf x = vf_fma(w, vf_load(u->new_v + c), vf_load(u->o + g * u->ldd + c));
            vf_storen(o + c, d - c < VL ? d - c : VL, vf_mul(x, inv));
        }
    }
}

static void put_entry(const struct unit *u, int64_t at, float new_score)
{
    const struct ps_decode_row *r = u->r;
    const size_t base = (size_t) u->h * r->slab.cap;
    r->at[u->h] = (int32_t) at;
    if (at >= 0) {
        const size_t e = base + (size_t) at;
        memcpy((char *) r->slab.k + e * u->row_bytes, u->new_kt, u->row_bytes);
        memcpy((char *) r->slab.v + e * u->row_bytes, u->new_vt, u->row_bytes);
        r->slab.pos[e] = r->now;
        if (r->slab.score) r->slab.score[e] = new_score;
    }
    if (r->log_k) {
        const size_t e = (size_t) u->h * r->log_cap + r->log_at;
        memcpy((char *) r->log_k + e * u->row_bytes, u->new_kt, u->row_bytes);
        memcpy((char *) r->log_v + e * u->row_bytes, u->new_vt, u->row_bytes);
        r->log_index[e] = (int32_t) at;
    }
}

static int decode_unit(struct unit *u)
{
    const struct ps_keep *keep = &u->r->keep;
    const bool evict =
        keep->heavy != PS_KEEP_ALL && u->n >= (uint64_t) keep->sinks + keep->heavy + keep->recent;
    const bool scored = u->r->slab.score != NULL;
    float new_score = 0;
    int64_t at;
    if (take_new(u) < 0) return -PS_ENUMERIC;
    if (u->half)
        all_k(u, true);
    else
        all_k(u, false);
    for (uint32_t g = 0; g < u->group; g++) softmax(u, g);
    if (scored)
        at = evict ? score_pass(u, true, true, &new_score) : score_pass(u, true, false, &new_score);
    else
        at = evict ? score_pass(u, false, true, &new_score) : u->n;
    if (isnan(new_score)) return -PS_ENUMERIC;
    if (at < 0) return -EINVAL;
    if (evict && at == u->n) at = -1;
    memset(u->o, 0, u->group * u->ldd * sizeof(float));
    if (u->half)
        all_v(u, true);
    else
        all_v(u, false);
    put_out(u);
    put_entry(u, at, new_score);
    return 0;
}

static const char *unit_k(const struct ps_attn_decode *a, uint64_t i)
{
    const struct ps_decode_row *r = &a->rows[i / a->kv_heads];
    return (const char *) r->slab.k +
           (i % a->kv_heads) * r->slab.cap * a->d * ps_dtype_bytes(a->kv_type);
}

int PS_ISA(ps_attn_decode)(const void *args, const struct ps_span *span)
{
    const struct ps_attn_decode *a = args;
    struct unit u = { .a = a, .group = a->q_heads / a->kv_heads, .half = a->kv_type == PS_F16 };
    u.row_bytes = a->d * ps_dtype_bytes(a->kv_type);
    carve(&u, span->scratch);
    for (uint64_t i = span->begin; i < span->end; i++) {
        u.r = &a->rows[i / a->kv_heads];
        u.h = (uint32_t) (i % a->kv_heads);
        u.n = u.r->len;
        u.k = unit_k(a, i);
        u.v = (const char *) u.r->slab.v + u.h * (size_t) u.r->slab.cap * u.row_bytes;
        u.next = unit_k(a, i + 1 < span->end ? i + 1 : i);
        u.fetched = u.fetched > 2 * u.all_bytes ? u.fetched - 2 * u.all_bytes : 0;
        u.all_bytes = u.n * u.row_bytes;
        int rc = decode_unit(&u);
        if (rc < 0) return rc;
    }
    return 0;
}
