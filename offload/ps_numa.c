/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/ps_numa.h"
#include "offload/machine.h"
#include <limits.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <string.h>

unsigned ps_numa_nodes(void)
{
    if (numa_available() < 0) return 1;
    int n = numa_num_configured_nodes();
    return n > 0 ? (unsigned) n : 1;
}

/* libnuma's own parser prints to stderr. */
static bool parse_nodes(const char *s, struct bitmask *m)
{
    const unsigned n = ps_numa_nodes();
    if (!strcmp(s, "all")) {
        for (unsigned i = 0; i < n; i++) (void) numa_bitmask_setbit(m, i);
        return true;
    }
    for (char *end;; s = end + 1) {
        if (*s < '0' || *s > '9') return false;
        unsigned long a = strtoul(s, &end, 10), b = a;
        if (*end == '-') {
            s = end + 1;
            if (*s < '0' || *s > '9') return false;
            b = strtoul(s, &end, 10);
        }
        if (a > b || b >= n || b >= m->size) return false;
        for (; a <= b; a++) (void) numa_bitmask_setbit(m, (unsigned) a);
        if (!*end) return true;
        if (*end != ',') return false;
    }
}

int ps_numa_bind(void *p, size_t len_bytes, const char *nodes, struct ps_detail *dt)
{
    if (numa_available() < 0)
        return ps_fail(
            dt, -PS_EUNSUPPORTED,
            "NUMA nodes \"%s\" were asked for, but this kernel has no NUMA support; leave "
            "the option out",
            nodes);
    struct bitmask *m = numa_allocate_nodemask();
    if (!m || !parse_nodes(nodes, m)) {
        if (m) numa_bitmask_free(m);
        return ps_fail(dt, m ? -PS_EUSAGE : -ENOMEM,
                       "--numa: \"%s\" names no memory nodes of this machine (it has %u); expected "
                       "something like \"0\", \"0-1\" or \"all\"",
                       nodes, ps_numa_nodes());
    }
    int mode = numa_bitmask_weight(m) > 1 ? MPOL_INTERLEAVE : MPOL_BIND;
    int r = mbind(p, len_bytes, mode, m->maskp, m->size + 1, 0) < 0 ? -errno : 0;
    numa_bitmask_free(m);
    if (r < 0)
        return ps_fail(dt, r, "binding %zu bytes to NUMA nodes \"%s\": %s", len_bytes, nodes,
                       ps_err_str(r));
    return 0;
}

int ps_numa_node_of(const char *root, const char *pci)
{
    char path[64], text[16], *end;
    if (snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", pci) >=
            (int) sizeof path ||
        ps_machine_text(root, path, text, sizeof text) < 0)
        return -1;
    const long n = strtol(text, &end, 10);
    return end == text || *end || n < 0 || n > INT_MAX ? -1 : (int) n;
}

bool ps_numa_prefer(void *p, size_t len_bytes, int node)
{
    if (node < 0 || (unsigned) node >= ps_numa_nodes() || numa_available() < 0) return false;
    struct bitmask *m = numa_allocate_nodemask();
    if (!m) return false;
    (void) numa_bitmask_setbit(m, (unsigned) node);
    const bool ok = mbind(p, len_bytes, MPOL_PREFERRED, m->maskp, m->size + 1, 0) == 0;
    numa_bitmask_free(m);
    return ok;
}
