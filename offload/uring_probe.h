/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PS_URING_PROBE_H
#define PS_URING_PROBE_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

/* Whether a ring can be opened and used here, and whether 64 MiB of buffers can be registered with it. */
int ps_uring_probe(bool *ret_fixed, struct ps_detail *dt) ps_must_check;
/* Opening a ring or using it failed with err: the reason, as far as it can be told. Returns err. */
int ps_uring_refused(struct ps_detail *dt, int err);
#endif
