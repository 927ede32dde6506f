/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the scheduler's tasks name what they touch: any two kernels that touch the same bytes, one of them writing, must name a common
 * buffer, those that write as written; and what they read of the host's a buffer that the host waits for. A task that forgets one may
 * still come in the right order by luck, for another buffer of the same tasks puts it there; here the test fails. Per piece of memory it
 * is kept which buffers all its users have named (the lockset of Eraser, Savage et al. 1997).
 *
 * A test linked with --wrap for ps_dev_run and ps_dev_wait has all calls looked at, and its kernels spread over COMPUTE and HOST where
 * the device is late_dev.h's. One thread. */
#ifndef PS_USES_CHECK_H
#define PS_USES_CHECK_H

void uses_check_reset(void); /* before a run */
#endif
