/* SPDX-License-Identifier: Apache-2.0 */
/* The lengths of a job's valid requests, as the first pass found them: what a plan is simulated for. */
#ifndef PS_LENGTHS_OF_H
#define PS_LENGTHS_OF_H
#include "engine/job/first_pass.h"
#include "engine/search/simulate.h"

/* In the order of the input; the arrays are the caller's to free, through ps_lengths_done(). */
int ps_lengths_of(const struct ps_spool *spool, const struct ps_table *table, uint64_t requests,
                  struct ps_lengths *ret) ps_must_check;
void ps_lengths_done(struct ps_lengths *l);
#endif
