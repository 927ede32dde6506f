/* SPDX-License-Identifier: Apache-2.0 */
/* linear for any vector width: include after a vec_*.h, with MR and PANEL_TILES (rows of a register tile)
 * and DOT_* (the same along k: rows, columns, inputs at a time) defined.
 *
 * The order of additions is the same for every M and every way to cut the work. K is taken in blocks of
 * PS_LIN_KB; in a block, class c (0 .. VL-1) is the chain of fused multiply-adds over k = c, c+VL, c+2VL, ...;
 * y is the sum of the chains, classes ascending within blocks ascending. Two ways lead to these same bits:
 *
 *  - few rows (dot_*): lanes along k. A lane is a class, so w is used as it lies. Rows of x are interleaved first:
 *    a power of two apart they would share one cache set with each other and with w's rows. DOT_KB inputs (a divisor of
 *    PS_LIN_KB) of at most DOT_MR rows stay in L1 while a group of columns (at most PS_LIN_GROUP) passes. Its lane
 *    sums wait in scratch, are transposed and added class by class.
 *  - many rows (panel_*): lanes along n. A tile of 32 columns of w is widened and transposed into a panel that
 *    stays in L2, x is packed once per block into tiles of MR rows; both with the classes apart, so that the inner
 *    loop runs over one class with MR x 2 vectors in registers and one broadcast per row. Meanwhile the weights of the
 *    next tile of columns are fetched.
 */
#ifndef PS_LINEAR_IMPL_H
#define PS_LINEAR_IMPL_H
#include "kernels/linear_scratch.h"

enum { NTV = 2, NT = NTV * VL }; /* a panel tile's vectors and columns */

/* y[m, n .. n+cnt) from finished sums. */
PS_INLINE void finish(const struct ps_linear *a, enum ps_dtype t, uint32_t m, uint32_t n, vf v,
                      uint32_t cnt)
{
    float *y = a->y + (size_t) m * a->ldy + n;
    const float *res = a->residual ? a->residual + (size_t) m * a->ldr + n : NULL;
    const bool full = cnt >= VL;
    if (a->bias) v = vf_add(v, full ? vf_w(t, a->bias, n) : vf_w_part(t, a->bias, n, cnt));
    if (a->act == PS_ACT_RELU) v = vf_relu(v);
    if (res) v = vf_add(v, full ? vf_load(res) : vf_load_part(res, cnt));
    if (full)
        vf_store(y, v);
    else
        vf_store_part(y, v, cnt);
}

PS_INLINE void prefetch_far(uintptr_t at) /* may lie past the end: a prefetch never faults */
{
    _mm_prefetch((const char *) at, _MM_HINT_T1);
}

PS_INLINE void prefetch_near(uintptr_t at) { _mm_prefetch((const char *) at, _MM_HINT_T0); }

/* ---- few rows: lanes along k */

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
    /* Memory is the limit of up to four rows: w's next 64 to 128 KiB are on their way, and one row takes whole rows of w. */
    const uint32_t group = a->m > 4 ? PS_LIN_GROUP : a->k > PS_LIN_KB ? 8 : 16;
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

/* ---- many rows: lanes along n */

/* VL rows of a matrix, the first `rows` of them real, from k on: transposed, so that r[c] is class c. */
PS_INLINE void load_block(enum ps_dtype t, const char *p, size_t ld_bytes, uint32_t rows,
                          uint32_t k, uint32_t cnt, vf r[VL])
{
    if (rows == VL && cnt == VL)
        for (uint32_t i = 0; i < VL; i++) r[i] = vf_w(t, p + i * ld_bytes, k);
    else
        for (uint32_t i = 0; i < VL; i++)
            r[i] = i < rows ? vf_w_part(t, p + i * ld_bytes, k, cnt) : vf_zero();
    vf_transpose(r);
}

/* panel[c*stride + j*NT + n] = w[n0+n, k0 + j*VL + c], zero for columns from `cols` on. */
PS_INLINE void panel_fill(const struct ps_linear *a, enum ps_dtype t, uint32_t n0, uint32_t cols,
                          uint32_t k0, uint32_t kn, float *panel, size_t stride)
{
    const size_t sz = t == PS_F32 ? 4 : 2, ld = (size_t) a->k * sz;
    const char *w = (const char *) a->w + ((size_t) n0 * a->k + k0) * sz;
    for (uint32_t g = 0; g < NTV; g++, w += VL * ld) {
        const uint32_t rows = cols <= g * VL ? 0 : cols - g * VL < VL ? cols - g * VL : VL;
        float *p = panel + g * VL;
        for (uint32_t k = 0; k < kn; k += VL, p += NT) {
            const uint32_t cnt = kn - k < VL ? kn - k : VL;
            vf r[VL];
            load_block(t, w, ld, rows, k, cnt, r);
            if (k * sz % 64 == 0)
                for (uint32_t i = 0; i < VL; i++)
                    prefetch_near((uintptr_t) w + i * ld + k * sz + 2 * 64);
            if (cnt == VL)
                for (uint32_t c = 0; c < VL; c++) vf_store(p + c * stride, r[c]);
            else
                for (uint32_t c = 0; c < VL; c++)
                    if (c < cnt) vf_store(p + c * stride, r[c]);
        }
    }
}

/* The same for mr <= VL rows of x: xp[c*stride + j*mr + m]. A store spills into the next j, which follows, or into
 * the pad at the end of the class. */
PS_INLINE void pack_rows(const float *x, size_t ldx, uint32_t mr, uint32_t kn, float *xp,
                         size_t stride)
{
    for (uint32_t h = 0; h < mr; h += VL) {
        const uint32_t rows = mr - h < VL ? mr - h : VL;
        float *p = xp + h;
        for (uint32_t k = 0; k < kn; k += VL, p += mr) {
            const uint32_t cnt = kn - k < VL ? kn - k : VL;
            vf r[VL];
            for (uint32_t i = 0; i < VL; i++)
                prefetch_near((uintptr_t) (x + (h + i) * ldx + k) + 8 * 64);
            if (cnt == VL)
                for (uint32_t i = 0; i < VL; i++)
                    r[i] = i < rows ? vf_load(x + (h + i) * ldx + k) : vf_zero();
            else
                for (uint32_t i = 0; i < VL; i++)
                    r[i] = i < rows ? vf_load_part(x + (h + i) * ldx + k, cnt) : vf_zero();
            vf_transpose(r);
            for (uint32_t c = 0; c < VL; c++)
                if (c < cnt) vf_store(p + c * stride, r[c]);
        }
    }
}

/* One class: sums[m*NT + n] (+)= chain over j. */
PS_INLINE void panel_chain(int mr, const float *xp, const float *panel, uint32_t jn, float *sums,
                           bool first)
{
    vf acc[MR][NTV];
    for (int m = 0; m < mr; m++)
        for (int v = 0; v < NTV; v++) acc[m][v] = vf_zero();
    for (uint32_t j = 0; j < jn; j++, xp += mr, panel += NT) {
        vf b[NTV];
        for (int v = 0; v < NTV; v++) b[v] = vf_load(panel + v * VL);
        for (int m = 0; m < mr; m++) {
            const vf x = vf_set1(xp[m]);
            for (int v = 0; v < NTV; v++) acc[m][v] = vf_fma(x, b[v], acc[m][v]);
        }
    }
    for (int m = 0; m < mr; m++)
        for (int v = 0; v < NTV; v++) {
            float *s = sums + m * NT + v * VL;
            vf_store(s, vf_add(first ? vf_zero() : vf_load(s), acc[m][v]));
        }
}

/* A panel's weights that are fetched into L2 while tiles run over the panel before it: `share` lines for each class. */
struct panel_fetch {
    uintptr_t at; /* a row of w, of `lines` lines */
    size_t ld;
    uint32_t line, lines, rows, share;
};
PS_INLINE void panel_fetch_lines(struct panel_fetch *f)
{
    for (uint32_t i = 0; i < f->share && f->rows; i++) {
        prefetch_far(f->at + f->line * 64);
        if (++f->line < f->lines) continue;
        f->line = 0;
        f->at += f->ld;
        f->rows--;
    }
}

struct panel_tile {
    const float *xp, *panel;
    size_t xp_stride, panel_stride;
    uint32_t kn;
    float *sums;
    bool first;
    struct panel_fetch *fetch;
};
PS_INLINE void panel_tile_run(int mr, const struct panel_tile *p)
{
    for (uint32_t c = 0; c < VL; c++) {
        const uint32_t jn = p->kn > c ? (p->kn - c + VL - 1) / VL : 0;
        panel_fetch_lines(p->fetch);
        panel_chain(mr, p->xp + c * p->xp_stride, p->panel + c * p->panel_stride, jn, p->sums,
                    p->first && c == 0);
    }
}
#define PANEL_TILE(mr)                                                                \
    static __attribute__((noinline)) void panel_tile_##mr(const struct panel_tile *p) \
    {                                                                                 \
        panel_tile_run(mr, p);                                                        \
    }
PANEL_TILES(PANEL_TILE)
static void (*const panel_tiles[MR + 1])(const struct panel_tile *) = {
#define PANEL_TILE_ROW(mr) [mr] = panel_tile_##mr,
    PANEL_TILES(PANEL_TILE_ROW)
};

/* One chunk of rows of x, and how it is cut into tiles. */
struct chunk {
    uint32_t m0, rows, blocks;
    size_t jn; /* vectors k of the current block, rounded up */
    float *xp;
};
PS_INLINE uint32_t chunk_row(const struct chunk *c, uint32_t b)
{
    return (uint32_t) ((uint64_t) c->rows * b / c->blocks);
}
PS_INLINE float *chunk_xp(const struct chunk *c, uint32_t b) /* classes are jn*mr + VL apart */
{
    return c->xp + VL * (c->jn * chunk_row(c, b) + (size_t) b * VL);
}

PS_INLINE struct panel_fetch panel_next(const struct ps_linear *a, enum ps_dtype t,
                                        const struct chunk *ch, uint32_t n, uint32_t k)
{
    const size_t sz = t == PS_F32 ? 4 : 2, ld = (size_t) a->k * sz;
    const uint32_t kn = a->k - k < PS_LIN_KB ? a->k - k : PS_LIN_KB, classes = ch->blocks * VL;
    struct panel_fetch f = { .at = (uintptr_t) a->w + n * ld + k * sz, .ld = ld, .rows = NT };
    f.lines = (uint32_t) ((kn * sz + 63) / 64);
    f.share = (NT * f.lines + classes - 1) / classes;
    return f;
}

PS_INLINE void panel_block(const struct ps_linear *a, enum ps_dtype t, const struct chunk *ch,
                           uint32_t n, uint32_t n_end, uint32_t k, uint32_t kn, float *panel,
                           float *sums, bool keep, struct panel_fetch *next)
{
    const uint32_t cols = n_end - n < NT ? n_end - n : NT;
    struct panel_tile p = {
        .panel = panel,
        .panel_stride = ch->jn * NT + PS_LIN_PAD,
        .kn = kn,
        .first = k == 0,
        .fetch = next,
    };
    panel_fill(a, t, n, cols, k, kn, panel, p.panel_stride);
    for (uint32_t b = 0; b < ch->blocks; b++) {
        const uint32_t m = chunk_row(ch, b), mr = chunk_row(ch, b + 1) - m;
        p.xp = chunk_xp(ch, b);
        p.xp_stride = ch->jn * mr + VL;
        p.sums = keep ? sums + (size_t) m * NT : sums;
        panel_tiles[mr](&p);
        if (k + kn < a->k) continue;
        for (uint32_t i = 0; i < mr; i++)
            for (uint32_t v = 0; v * VL < cols; v++)
                finish(a, t, ch->m0 + m + i, n + v * VL, vf_load(p.sums + i * NT + v * VL),
                       cols - v * VL);
    }
}

PS_INLINE void panel_span(const struct ps_linear *a, enum ps_dtype t, uint32_t n_begin,
                          uint32_t n_end, float *scratch)
{
    const struct ps_lin_scratch at = ps_lin_carve(a->m, a->n, a->k);
    const uint32_t chunks = (a->m + PS_LIN_MC - 1) / PS_LIN_MC;
    const bool one_block = a->k <= PS_LIN_KB;
    const uint32_t step = one_block ? n_end - n_begin : PS_LIN_NC;
    for (uint32_t c = 0; c < chunks; c++)
        for (uint32_t n0 = n_begin; n0 < n_end; n0 += step) {
            const uint32_t n1 = n_end - n0 < step ? n_end : n0 + step;
            struct chunk ch = { .m0 = (uint32_t) ((uint64_t) a->m * c / chunks),
                                .xp = scratch + at.x };
            ch.rows = (uint32_t) ((uint64_t) a->m * (c + 1) / chunks) - ch.m0;
            ch.blocks = (ch.rows + MR - 1) / MR;
            for (uint32_t k = 0; k < a->k; k += PS_LIN_KB) {
                const uint32_t kn = a->k - k < PS_LIN_KB ? a->k - k : PS_LIN_KB;
                ch.jn = (kn + VL - 1) / VL;
                for (uint32_t b = 0; b < ch.blocks; b++) {
                    const uint32_t m = chunk_row(&ch, b), mr = chunk_row(&ch, b + 1) - m;
                    pack_rows(a->x + (size_t) (ch.m0 + m) * a->ldx + k, a->ldx, mr, kn,
                              chunk_xp(&ch, b), ch.jn * mr + VL);
                }
                const bool last_k = k + kn == a->k;
                const uint32_t then = !last_k ? n0 : n1 < n_end || c + 1 == chunks ? n1 : n_begin;
                for (uint32_t n = n0; n < n1; n += NT) {
                    struct panel_fetch next =
                        n + NT < n1 ? panel_next(a, t, &ch, n + NT, k)
                                    : panel_next(a, t, &ch, then, last_k ? 0 : k + kn);
                    panel_block(a, t, &ch, n, n1, k, kn, scratch + at.panel,
                                scratch + at.sums + (one_block ? 0 : (size_t) (n - n0) * ch.rows),
                                !one_block, &next);
                }
            }
        }
}

/* One function per type: the type is a constant in everything inlined into it. */
#define LINEAR_TYPE(t)                                                                           \
    static __attribute__((noinline)) void dot_span_##t(const struct ps_linear *a, uint32_t n0,   \
                                                       uint32_t n1, float *scratch)              \
    {                                                                                            \
        dot_span(a, t, n0, n1, scratch);                                                         \
    }                                                                                            \
    static __attribute__((noinline)) void panel_span_##t(const struct ps_linear *a, uint32_t n0, \
                                                         uint32_t n1, float *scratch)            \
    {                                                                                            \
        panel_span(a, t, n0, n1, scratch);                                                       \
    }
LINEAR_TYPE(PS_F32)
LINEAR_TYPE(PS_F16)
LINEAR_TYPE(PS_BF16)

static inline int linear_run(const struct ps_linear *a, const struct ps_span *span)
{
    typedef void span_fn(const struct ps_linear *, uint32_t, uint32_t, float *);
    static span_fn *const dot[] = {
        [PS_F32] = dot_span_PS_F32, [PS_F16] = dot_span_PS_F16, [PS_BF16] = dot_span_PS_BF16
    };
    static span_fn *const panel[] = {
        [PS_F32] = panel_span_PS_F32, [PS_F16] = panel_span_PS_F16, [PS_BF16] = panel_span_PS_BF16
    };
    const uint64_t end = span->end * PS_LINEAR_UNIT;
    const uint32_t n0 = (uint32_t) (span->begin * PS_LINEAR_UNIT),
                   n1 = end < a->n ? (uint32_t) end : a->n;
    if (n0 < n1) (a->m <= PS_LIN_DOT_MAX ? dot : panel)[a->wtype](a, n0, n1, span->scratch);
    return 0;
}

/* Rows with types that have no code here go to the next slower row. */
static inline bool linear_takes(const void *args)
{
    const struct ps_linear *a = args;
    return a->wtype == PS_F32 || a->wtype == PS_F16 || a->wtype == PS_BF16;
}
#endif
