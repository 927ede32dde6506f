/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the kernel layer: what each op declares once (see ps_op_units() and its neighbours in kern.h).
 * One constant per op, in the file of its family; kern.c gathers them by name. */
#ifndef PS_OP_INFO_H
#define PS_OP_INFO_H
#include "kernels/kern.h"

struct ps_op_info {
    size_t args_size;
    uint64_t (*units)(const void *args);
    size_t (*scratch)(const void *args); /* NULL: none */
    struct ps_cost (*cost)(const void *args);
    /* What every span pays, however small, as a share of the whole op's time, when all units take the same time; NULL: nothing. */
    double (*span_share)(const void *args);
};

#define X(op) extern const struct ps_op_info ps_op_info_##op;
PS_OPS(X)
#undef X
#endif
