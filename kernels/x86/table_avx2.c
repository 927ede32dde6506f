/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_cpu.h"
#include "kernels/x86/x86_rows.h"

const struct ps_kern ps_kern_table_avx2[] = {
    { 0 },
};
