/* SPDX-License-Identifier: Apache-2.0 */
/* A device that computes as the now device does, but when it likes: by a seed as late as somebody waits for it, as early as it may, or
 * anything between; within a queue in order or in any order that `after` allows. Who relies on an order that no use of a buffer gives, or
 * touches what it has not waited for, gets other bytes. The first PS_OP__COUNT seeds hold one op's tasks back, in turn. One thread. */
#ifndef PS_LATE_DEV_H
#define PS_LATE_DEV_H
#include "offload/dev.h"

extern unsigned late_seed; /* of the devices opened next */
extern bool
    late_gpu; /* COMPUTE says that it works on a GPU: memory of the host stands for that one's */
extern bool late_rounds;        /* and that its linears of many rows want x rounded */
extern size_t late_gpu_scratch; /* of a worker, for its ops */
int late_dev_open(const struct ps_dev_cfg *cfg, struct ps_dev **ret);
/* COMPUTE or HOST, by the seed: where to put a task that may run on either. Another device's: q. */
enum ps_q late_dev_queue(struct ps_dev *d, enum ps_q q, enum ps_op op);
#endif
