/* SPDX-License-Identifier: Apache-2.0 */
/* linear for many rows, part of linear_impl.h, where the order of additions is told.
 *
 * Lanes along n: a tile of 32 columns of w is widened and transposed into a panel that stays in L2, x is packed once per block
 * into tiles of MR rows; both with the classes apart, so that the inner loop runs over one class with MR x 2 vectors in registers
 * and one broadcast per row. Meanwhile the weights of the next tile of columns are fetched.
 */
#ifndef PS_LINEAR_PANEL_H
#define PS_LINEAR_PANEL_H
#include "kernels/x86/linear_finish.h"

enum { NTV = 2, NT = NTV * VL }; /* a panel tile's vectors and columns */

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
                prefetch_near((uintptr_t) x + ((h + i) * ldx + k) * sizeof *x + 8 * 64);
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
#endif
