/* SPDX-License-Identifier: Apache-2.0 */
/* 32 registers: tiles of 14 x 2 vectors over panels, of 24 accumulators along k. */
#include "kernels/x86/vec_avx512.h"

#define MR              14
#define PANEL_TILES(X)  X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define DOT_NR(mr)      ((mr) <= 3 ? 8u : (mr) == 4 ? 6u : 4u)
#define DOT_NR_ONCE(mr) ((mr) == 1 ? 1u : 2u)
#define DOT_NEAR        2u
#include "kernels/x86/linear_impl.h"
#include "kernels/x86/x86_rows.h"

int ps_linear_avx512(const void *args, const struct ps_span *span)
{
    return linear_run(args, span);
}
bool ps_linear_avx512_takes(const void *args) { return linear_takes(args); }
