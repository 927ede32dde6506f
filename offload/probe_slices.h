/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of slices of a measurement, in the order in which they were taken, and what they come to. Private to this folder. */
#ifndef PS_PROBE_SLICES_H
#define PS_PROBE_SLICES_H
#include "offload/probe.h"

enum { PS_SLICES = 64 };
struct ps_slices { /* zero at first */
    double rate[PS_SLICES];
    struct ps_rate sum;
};
void ps_slices_add(struct ps_slices *s, double work, double sec);
void ps_slices_sum(const struct ps_slices *s, struct ps_rate *ret);
double ps_probe_since_s(uint64_t ns); /* of the monotonic clock */
#endif
