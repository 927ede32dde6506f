/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that knows libnuma. */
#ifndef PS_NUMA_H
#define PS_NUMA_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

/* Number of memory nodes; 1 where the kernel knows of none. */
unsigned ps_numa_nodes(void);
/* Spreads a mapping that nobody has touched yet over `nodes` ("0", "0-1,3", "all"). */
int ps_numa_bind(void *p, size_t len_bytes, const char *nodes, struct ps_detail *dt) ps_must_check;
#endif
