/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PS_BENCH_ATTN_H
#define PS_BENCH_ATTN_H
#include "ktest.h"

void bench_attn_decode(struct kt *kt);
void bench_attn_prompt(struct kt *kt);
void bench_sample(struct kt *kt);
#endif
