/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_cpu.h"
#include <stdatomic.h>

static _Atomic uint32_t cpu_mask = UINT32_MAX;

void ps_cpu_set_mask(uint32_t mask) { cpu_mask = mask; }

uint32_t ps_cpu_flags(void)
{
    uint32_t f = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
        f |= PS_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        (f & PS_CPU_AVX2))
        f |= PS_CPU_AVX512;
#endif
    return f & cpu_mask;
}
