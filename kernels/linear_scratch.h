/* SPDX-License-Identifier: Apache-2.0 */
/* The x86 rows of `linear`: how they cut the work, and so a worker's scratch. op_dense.c sizes it, linear_dot.h and
 * linear_panel.h carve it. A row with its own packing (tiles) adds its need to ps_linear_scratch(). */
#ifndef PS_LINEAR_SCRATCH_H
#define PS_LINEAR_SCRATCH_H
#include "kernels/kern.h"

enum {
    PS_LIN_KB = 2048, /* inputs k per block: part of the order of additions, the same for every M */
    PS_LIN_MC = 512,  /* rows of x packed at a time */
    PS_LIN_NC = 2048, /* columns whose sums wait in scratch while K has several blocks */
    PS_LIN_MR_MAX = 16,  /* of all rows: register tiles of at most this many rows of x */
    PS_LIN_NT_MAX = 32,  /* and columns */
    PS_LIN_DOT_MAX = 48, /* up to this many rows: lanes along k, w is not packed */
    PS_LIN_GROUP =
        48, /* columns whose lane sums are reduced together: a multiple of all tile widths and VL */
    PS_LIN_PAD = 32, /* floats between the classes of a panel: keeps them off one cache set */
};

struct ps_lin_scratch { /* offsets in floats */
    size_t x, panel, sums, end;
};

/* For M rows, N outputs and K inputs. */
static inline struct ps_lin_scratch ps_lin_carve(uint32_t m, uint32_t n, uint32_t k)
{
    struct ps_lin_scratch s = { 0 };
    if (m <= PS_LIN_DOT_MAX) { /* x, lane sums, sums */
        s.panel = m * (((size_t) k + 15) & ~(size_t) 15);
        s.sums = s.panel + (size_t) m * PS_LIN_GROUP * 16;
        s.end = s.sums + (size_t) m * PS_LIN_GROUP;
        return s;
    }
    const size_t kb = ((k < PS_LIN_KB ? k : PS_LIN_KB) + 15) & ~(size_t) 15;
    const size_t rows = (m < PS_LIN_MC ? m : PS_LIN_MC) + PS_LIN_MR_MAX;
    const size_t cols =
        ((n < PS_LIN_NC ? n : PS_LIN_NC) + PS_LIN_NT_MAX - 1) & ~(size_t) (PS_LIN_NT_MAX - 1);
    s.panel = rows * (kb + 16 * 2) + 64;
    s.sums = s.panel + PS_LIN_NT_MAX * kb + 16 * PS_LIN_PAD;
    s.end = s.sums + rows * cols;
    return s;
}

/* For up to M rows: fewer, cut the other way, may need more. */
static inline size_t ps_linear_scratch(const void *args)
{
    const struct ps_linear *a = args;
    const size_t all = ps_lin_carve(a->m, a->n, a->k).end;
    const size_t few = ps_lin_carve(PS_LIN_DOT_MAX, a->n, a->k).end;
    const size_t most = a->m > PS_LIN_DOT_MAX && few > all ? few : all;
    return (most * sizeof(float) + 63) & ~(size_t) 63;
}
#endif
