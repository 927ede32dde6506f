/* SPDX-License-Identifier: Apache-2.0 */
/* A device that computes as the now device does, but when it likes: by a seed as late as somebody waits for it, as early as it may, or
 * anything between; within a queue in order, or, for half of the seeds, in any order that `after` allows. The kernels are spread over the
 * queues COMPUTE and HOST (linked with --wrap for ps_dev_run and ps_dev_wait), and their uses checked (uses_check.h). Who relies on an
 * order that no use of a buffer gives, or touches what it has not waited for, gets other bytes. One thread. */
#ifndef PS_LATE_DEV_H
#define PS_LATE_DEV_H
#include "offload/dev.h"

extern unsigned late_seed; /* of the devices opened next */
int late_dev_open(const struct ps_dev_cfg *cfg, struct ps_dev **ret);
#endif
