/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share the units of one kernel at a time. The calling thread works too. A decode step is hundreds of
 * kernels of some 100 microseconds, so handing one over must cost a few: workers wait awake for the next one for a while before
 * they sleep, and each takes chunks that lie together first. Private to this folder. */
#ifndef PS_POOL_H
#define PS_POOL_H
#include "engine/base/ps_util.h"
#include "kernels/kern.h"

struct ps_pool;
/* `threads` in total, the caller's included. scratch: threads * scratch_bytes. */
int ps_pool_open(unsigned threads, void *scratch, size_t scratch_bytes,
                 struct ps_pool **ret) ps_must_check;
void ps_pool_close(struct ps_pool *p); /* takes NULL */
/* Whether a task of this cost is done by the caller alone, since handing it over would cost more than it saves. */
bool ps_pool_alone(const struct ps_cost *cost);
/* All units of an op: 0, or the error of one of its chunks. One caller at a time. */
int ps_pool_run(struct ps_pool *p, const struct ps_kern *k, const void *args,
                const struct ps_cost *cost) ps_must_check;
#endif
