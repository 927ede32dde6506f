/* SPDX-License-Identifier: Apache-2.0 */
/* Whether tasks name what they touch: any two kernels that touch the same bytes, one of them writing, must name a common buffer, those
 * that write as written; and what they read of the host's a buffer that the host waits for. A task that forgets one may still come in the
 * right order by luck, for another buffer of the same tasks puts it there; here it fails. Per piece of memory it keeps which buffers all
 * its users have named (the lockset of Eraser, Savage et al. 1997). */
#ifndef PS_USES_CHECK_H
#define PS_USES_CHECK_H
#include "offload/dev.h"

void uses_check_reset(void);
/* The host waits for buf. */
void uses_check_wait(const struct ps_buf *buf, bool writes);
/* Fails the test when this task and an earlier one share bytes, but no buffer. */
void uses_check(enum ps_op op, const void *args, const struct ps_use *uses, unsigned n_uses);
#endif
