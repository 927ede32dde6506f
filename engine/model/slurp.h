/* SPDX-License-Identifier: Apache-2.0 */
/* Small files (config, index) are read whole, up to a bound. */
#ifndef PS_SLURP_H
#define PS_SLURP_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

/* The file's bytes and a NUL after them. -EFBIG beyond `max` bytes, -errno otherwise; the caller frees *ret. */
int ps_slurp(const char *path, size_t max, char **ret, size_t *ret_len,
             struct ps_detail *dt) ps_must_check;
#endif
