/* SPDX-License-Identifier: Apache-2.0 */
/* 32 registers: tiles of 14 x 2 vectors over panels, of 24 accumulators along k. */
#include "kernels/x86/vec_avx512.h"

#define MR             14
#define PANEL_TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define DOT_MR         8
#define DOT_BLOCKS(X)  X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define DOT_NR(mr)     ((mr) <= 3 ? 8u : (mr) == 4 ? 6u : (mr) <= 6 ? 4u : 3u)
#define DOT_NR_ONCE(t, mr) \
    ((mr) == 1 ? 1u : (mr) == 4 ? ((t) == PS_F32 ? 1u : 4u) : (mr) <= 6 || (t) == PS_F32 ? 2u : 3u)
#define DOT_KB(t, blocks) ((t) == PS_F32 || (blocks) == 1 ? 512u : 1024u)
#include "kernels/x86/linear_impl.h"
#include "kernels/x86/x86_rows.h"

int ps_linear_avx512(const void *args, const struct ps_span *span)
{
    return linear_run(args, span);
}
bool ps_linear_avx512_takes(const void *args) { return linear_takes(args); }
