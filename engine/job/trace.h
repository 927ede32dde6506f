/* SPDX-License-Identifier: Apache-2.0 */
/* --trace: a timeline in the Chrome trace format, which Perfetto and chrome://tracing open. Written as it comes, through a
 * buffer, up to a bounded number of events, to PATH.tmp, which is renamed at the end; the queues' threads call in. */
#ifndef PS_TRACE_H
#define PS_TRACE_H
#include "engine/base/ps_err.h"
#include "offload/dev.h"

struct ps_trace;
int ps_trace_open(const char *path, struct ps_trace **ret, struct ps_detail *dt) ps_must_check;
void ps_trace_task(void *trace, enum ps_q q, const struct ps_task *t, uint64_t t0_ns,
                   uint64_t t1_ns);
/* Ends the file: 0, or the first error of writing, and PATH is as it was. Takes NULL. */
int ps_trace_close(struct ps_trace *t, struct ps_detail *dt);
#endif
