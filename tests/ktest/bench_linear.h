/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PS_BENCH_LINEAR_H
#define PS_BENCH_LINEAR_H
#include "ktest.h"
void kt_bench_linear(struct kt *kt);
#endif
