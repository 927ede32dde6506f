/* SPDX-License-Identifier: Apache-2.0 */
/* 16 registers: tiles of 6 x 2 vectors over panels, of 12 accumulators along k. */
#include "kernels/x86/vec_avx2.h"

#define MR                 6
#define PANEL_TILES(X)     X(1) X(2) X(3) X(4) X(5) X(6)
#define DOT_MR             6
#define DOT_BLOCKS(X)      X(1) X(2) X(3) X(4) X(5) X(6)
#define DOT_NR(mr)         ((mr) <= 3 ? 4u : (mr) == 4 ? 3u : 2u)
#define DOT_NR_ONCE(t, mr) ((t) == PS_F32 || (mr) == 1 ? 2u : DOT_NR(mr))
#define DOT_KB(t, blocks)  1024u
#include "kernels/x86/linear_impl.h"
#include "kernels/x86/x86_rows.h"

int ps_linear_avx2(const void *args, const struct ps_span *span) { return linear_run(args, span); }
bool ps_linear_avx2_takes(const void *args) { return linear_takes(args); }
