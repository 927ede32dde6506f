/* SPDX-License-Identifier: Apache-2.0 */
/* How the x86 rows of `linear` cut a worker's scratch; op_dense.c sizes it, the rows carve it. */
#ifndef PS_LINEAR_SCRATCH_H
#define PS_LINEAR_SCRATCH_H
#include "kernels/kern.h"

static inline size_t ps_linear_scratch(const void *args) { return 0; }
#endif
