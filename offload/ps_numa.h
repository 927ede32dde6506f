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
/* The node that a PCI device ("0000:3b:00.0") is on; -1 where the kernel does not know. `root` stands in front of /sys. */
int ps_numa_node_of(const char *root, const char *pci);
/* Such a mapping comes from that node as long as it has memory. A wish: says whether the kernel has taken it. */
bool ps_numa_prefer(void *p, size_t len_bytes, int node);
#endif
