/* SPDX-License-Identifier: Apache-2.0 */
/* The x86 rows. table_avx2.c and table_avx512.c list them. */
#ifndef PS_X86_ROWS_H
#define PS_X86_ROWS_H
#include "kernels/kern.h"

#define PS_X86_ROW(o, isa, flags)                                                    \
    {                                                                                \
        .op = PS_OP_##o, .name = #o "_" #isa, .place = PS_PLACE_HOST, .need = flags, \
        .run = ps_##o##_##isa                                                        \
    }
#endif
