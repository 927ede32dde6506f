/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_cpu.h"
#include <stdatomic.h>
#include <stdbool.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static _Atomic uint32_t cpu_mask = UINT32_MAX;

void ps_cpu_set_mask(uint32_t mask) { cpu_mask = mask; }

#if defined(__x86_64__)
/* clang 14's __builtin_cpu_supports() does not know this name. */
static bool has_f16c(void)
{
    /* 0: not yet. cpuid takes microseconds in a virtual machine, and every task asks. */
    static _Atomic int known;
    if (!known) {
        unsigned a, b, c, d;
        known = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? 1 : -1;
    }
    return known > 0;
}
#endif

uint32_t ps_cpu_flags(void)
{
    uint32_t f = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        f |= PS_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        (f & PS_CPU_AVX2))
        f |= PS_CPU_AVX512;
#endif
    return f & cpu_mask;
}
