/* SPDX-License-Identifier: Apache-2.0 */
/* linear for few rows, part of linear_impl.h, where the order of additions is told.
 *
 * Lanes along k: a lane is a class, so w is used as it lies. Rows of x are interleaved first: a power of two apart they would
 * share one cache set with each other and with w's rows. DOT_KB inputs (a divisor of PS_LIN_KB) of at most DOT_MR rows stay in
 * L1 while a group of columns (at most PS_LIN_GROUP) passes. Its lane sums wait in scratch, are transposed and added class by
 * class.
 */
#ifndef PS_LINEAR_DOT_H
#define PS_LINEAR_DOT_H
#include "kernels/x86/linear_finish.h"

/* What is fetched into L2 while a group of columns is worked on: the next group, in the order of addresses whatever the order
 * of work is, since memory serves one stream faster than several side by side. All blocks of rows pass over a group: each
 * fetches its share. */
struct dot_fetch {
    uintptr_t at;
    uint32_t share, credit; /* a line is fetched for each `share` lines of work */
};

/* A group of columns, a part of a block of k, a block of rows. */
struct dot_walk {
    const struct ps_linear *a;
    uint32_t n0, cols, k0, kn;
    const float *xp; /* [K / VL][mr][VL] */
    float *sums;     /* [mr][GROUP][VL] */
    bool first;      /* of the blocks of rows: fetches w into L1, dot_ahead() columns ahead */
    bool once;       /* no other rows: w is used once */
    struct dot_fetch *fetch;
};

/* The accumulators stay in registers only if their loops are unrolled before the compiler looks for them. */
#define DOT_UNROLL _Pragma("GCC unroll 8")

/* `steps` vectors of k (several only for mr == 1); x and w from there on. What is held in registers is the shorter side. */
PS_INLINE void dot_steps(enum ps_dtype t, int mr, int nr, int steps, const float *x, const char *w,
                         size_t ldw, vf acc[8][8])
{
    vf v[8];
    if (mr <= nr) {
        DOT_UNROLL
        for (int i = 0; i < mr * steps; i++) v[i] = vf_load(x + i * VL);
        DOT_UNROLL
        for (int j = 0; j < nr; j++) {
            DOT_UNROLL
            for (int s = 0; s < steps; s++) {
                const vf wj = vf_w(t, w + (size_t) j * ldw, (size_t) s * VL);
                DOT_UNROLL
                for (int i = 0; i < mr; i++) acc[i][j] = vf_fma(v[s * mr + i], wj, acc[i][j]);
            }
        }
        return;
    }
    DOT_UNROLL
    for (int j = 0; j < nr; j++) v[j] = vf_w(t, w + (size_t) j * ldw, 0);
    DOT_UNROLL
    for (int i = 0; i < mr; i++) {
        vf xi = vf_load(x + i * VL);
        VF_KEEP(xi);
        DOT_UNROLL
        for (int j = 0; j < nr; j++) acc[i][j] = vf_fma(xi, v[j], acc[i][j]);
    }
}

PS_INLINE void dot_fetch_lines(struct dot_fetch *f, int work)
{
    for (f->credit += (uint32_t) work; f->credit >= f->share; f->credit -= f->share, f->at += 64)
        prefetch_far(f->at);
}

PS_INLINE uint32_t dot_ahead(int nr) { return nr < 2 ? 2 : (uint32_t) nr; }

/* Where the columns lie that follow `ahead` after column n: in the group's next block of k after its last column. */
PS_INLINE const char *dot_near(const struct dot_walk *d, size_t sz, uint32_t n, uint32_t ahead,
                               const char *w)
{
    uintptr_t at = (uintptr_t) w + ahead * (size_t) d->a->k * sz; /* may lie past the end */
    if (n + ahead >= d->cols && d->k0 + d->kn < d->a->k)
        at += d->kn * sz - d->cols * (size_t) d->a->k * sz;
    return (const char *) at;
}

PS_INLINE float *dot_sum(float *sums, int i, int j)
{
    return sums + ((size_t) i * PS_LIN_GROUP + (size_t) j) * VL;
}

/* Adds mr rows and nr columns from n on, lane by lane, to sums[(i*GROUP + n+j)*VL]. */
PS_INLINE void dot_tile(const struct dot_walk *d, enum ps_dtype t, int mr, int nr, uint32_t n)
{
    const size_t sz = t == PS_F32 ? 4 : 2, ldw = d->a->k * sz;
    const uint32_t line = 64 / (uint32_t) sz;
    const float *x = d->xp + (size_t) d->k0 * (size_t) mr;
    const char *w = (const char *) d->a->w + ((size_t) (d->n0 + n) * d->a->k + d->k0) * sz;
    const char *near = dot_near(d, sz, n, dot_ahead(nr), w);
    float *sums = d->sums + (size_t) n * VL;
    const bool more = d->k0 % PS_LIN_KB; /* the chains go on */
    struct dot_fetch fetch = *d->fetch;
    vf acc[8][8];
    DOT_UNROLL
    for (int i = 0; i < mr; i++) {
        DOT_UNROLL
        for (int j = 0; j < nr; j++) acc[i][j] = more ? vf_load(dot_sum(sums, i, j)) : vf_zero();
    }
    uint32_t k = 0;
    for (; k + line <= d->kn; k += line) {
        for (int j = 0; j < nr && d->first; j++)
            prefetch_near((uintptr_t) near + (size_t) j * ldw + k * sz);
        dot_fetch_lines(&fetch, nr);
        if (mr == 1) {
            dot_steps(t, mr, nr, (int) line / VL, x + k, w + k * sz, ldw, acc);
            continue;
        }
        _Pragma("GCC unroll 1") /* gcc mixes steps until registers are short */
            for (uint32_t i = k; i < k + line; i += VL)
                dot_steps(t, mr, nr, 1, x + (size_t) i * (uint32_t) mr, w + i * sz, ldw, acc);
    }
    for (; k + VL <= d->kn; k += VL)
        dot_steps(t, mr, nr, 1, x + (size_t) k * (uint32_t) mr, w + k * sz, ldw, acc);
    *d->fetch = fetch;
    x += (size_t) k * (uint32_t) mr;
    const uint32_t rest = d->kn - k;
    if (rest) {
        DOT_UNROLL
        for (int j = 0; j < nr; j++) {
            const vf wj = vf_w_part(t, w + (size_t) j * ldw, k, rest);
            DOT_UNROLL
            for (int i = 0; i < mr; i++)
                acc[i][j] = vf_fma_part(vf_load(x + i * VL), wj, acc[i][j], rest);
        }
    }
    DOT_UNROLL
    for (int i = 0; i < mr; i++) {
        DOT_UNROLL
        for (int j = 0; j < nr; j++) vf_store(dot_sum(sums, i, j), acc[i][j]);
    }
}

/* Used once, w comes from memory: few columns side by side. From L2: as many as the registers hold. */
PS_INLINE void dot_cols(const struct dot_walk *d, enum ps_dtype t, int mr)
{
    uint32_t n = 0;
    if (d->once)
        for (; n + DOT_NR_ONCE(t, mr) <= d->cols; n += DOT_NR_ONCE(t, mr))
            dot_tile(d, t, mr, DOT_NR_ONCE(t, mr), n);
    else
        for (; n + DOT_NR(mr) <= d->cols; n += DOT_NR(mr)) dot_tile(d, t, mr, DOT_NR(mr), n);
    for (; n < d->cols; n++) dot_tile(d, t, mr, 1, n);
}

/* mr rows of x as [K / VL][mr][VL], the last vectors filled up with zeroes. */
PS_INLINE void dot_pack(const struct ps_linear *a, uint32_t m0, uint32_t mr, float *xp)
{
    const float *x = a->x + (size_t) m0 * a->ldx;
    uint32_t k = 0;
    for (; k + VL <= a->k; k += VL)
        for (uint32_t i = 0; i < mr; i++, xp += VL)
            vf_store(xp, vf_load(x + (size_t) i * a->ldx + k));
    for (uint32_t i = 0; i < mr && k < a->k; i++, xp += VL)
        vf_store(xp, vf_load_part(x + (size_t) i * a->ldx + k, a->k - k));
}

/* Adds the lanes of mr rows, class by class, to total[m*GROUP + n]; finishes after the last block. */
PS_INLINE void dot_reduce(const struct ps_linear *a, enum ps_dtype t, uint32_t mr, uint32_t m0,
                          uint32_t n0, uint32_t cols, bool first, bool last, const float *sums,
                          float *total)
{
    for (uint32_t m = 0; m < mr; m++)
        for (uint32_t n = 0; n < cols; n += VL) {
            vf r[VL], s = first ? vf_zero() : vf_load(total + m * PS_LIN_GROUP + n);
            for (uint32_t i = 0; i < VL; i++)
                r[i] = vf_load(sums + (size_t) (m * PS_LIN_GROUP + n + i) * VL);
            vf_transpose(r);
            for (uint32_t i = 0; i < VL; i++) s = vf_add(s, r[i]);
            if (last)
                finish(a, t, m0 + m, n0 + n, s, cols - n);
            else
                vf_store(total + m * PS_LIN_GROUP + n, s);
        }
}

PS_INLINE void dot_block(const struct dot_walk *d, enum ps_dtype t, uint32_t mr)
{
    switch (mr) {
#define DOT_CASE(mr) \
    case mr: dot_cols(d, t, mr); break;
        DOT_BLOCKS(DOT_CASE)
    }
}

PS_INLINE void dot_span(const struct ps_linear *a, enum ps_dtype t, uint32_t n_begin,
                        uint32_t n_end, float *scratch)
{
    const struct ps_lin_scratch at = ps_lin_carve(a->m, a->n, a->k);
    const uint32_t blocks = (a->m + DOT_MR - 1) / DOT_MR;
    /* Memory is the limit of up to four rows: little of w is on its way (a span's first group nothing fetches), and one row
     * takes whole rows of w. Four rows of a long x come from L2 for each group: it has more columns. */
    const bool narrow = a->k > PS_LIN_KB && (a->m < 4 || t == PS_F32);
    const uint32_t group = a->m > 4 ? PS_LIN_GROUP : narrow ? 8 : 16;
    const uint32_t kb = a->m == 1 ? PS_LIN_KB : DOT_KB(t, blocks);
    const size_t kpad = ((size_t) a->k + VL - 1) / VL * VL, ldw = a->k * (t == PS_F32 ? 4u : 2u);
    struct dot_fetch fetch = { .at = (uintptr_t) a->w + (n_begin + group) * ldw, .share = blocks };
    uint32_t row[PS_LIN_DOT_MAX / DOT_MR + 1];
    for (uint32_t b = 0; b <= blocks; b++) row[b] = a->m * b / blocks;
    for (uint32_t b = 0; b < blocks; b++)
        dot_pack(a, row[b], row[b + 1] - row[b], scratch + at.x + row[b] * kpad);
    for (uint32_t n = n_begin; n < n_end; n += group)
        for (uint32_t k = 0; k < a->k; k += kb) {
            struct dot_walk d = { .a = a, .n0 = n, .k0 = k, .once = blocks == 1, .fetch = &fetch };
            d.cols = n_end - n < group ? n_end - n : group;
            d.kn = a->k - k < kb ? a->k - k : kb;
            const bool last = k + d.kn == a->k, block_done = last || (k + d.kn) % PS_LIN_KB == 0;
            for (uint32_t b = 0; b < blocks; b++) {
                const uint32_t m = row[b], mr = row[b + 1] - m;
                d.first = b == 0;
                d.xp = scratch + at.x + m * kpad;
                d.sums = scratch + at.panel + (size_t) m * PS_LIN_GROUP * VL;
                dot_block(&d, t, mr);
                if (block_done)
                    dot_reduce(a, t, mr, m, n, d.cols, k < PS_LIN_KB, last, d.sums,
                               scratch + at.sums + (size_t) m * PS_LIN_GROUP);
            }
        }
}
#endif
