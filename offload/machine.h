/* SPDX-License-Identifier: Apache-2.0 */
/* What this process may use of the machine: memory, CPUs and disk, control groups counted in. For defaults, the
 * report and `doctor`. Values that cannot be learnt are 0. */
#ifndef PS_MACHINE_H
#define PS_MACHINE_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

struct ps_machine {
    char cpu_model[128], kernel[128];
    unsigned cpus_online, cpus; /* cpus: in this process's affinity mask and within its quota */
    double cpu_quota;           /* in CPUs; 0 = none */
    uint64_t mem_total;
    uint64_t mem_limit;     /* the tightest limit of its control groups; 0 = none */
    uint64_t mem_available; /* without swapping and within every limit */
    int cgroup_version;     /* whose memory limit was found: 2, 1, or 0 */
};
/* `root` stands in front of /proc and /sys: "" but in tests. */
void ps_machine_read(const char *root, struct ps_machine *ret);
uint64_t ps_machine_mem_available(void);
/* What there is of memory for this process, whoever uses it now: all, or its groups' limit. */
uint64_t ps_machine_mem(const struct ps_machine *m);

/* Bytes that this user can still write under a folder, and what file system that is ("ext4", "0x..."). */
int ps_machine_disk_free(const char *folder, uint64_t *ret_bytes,
                         struct ps_detail *dt) ps_must_check;
int ps_machine_fs_type(const char *folder, char ret[static 32], struct ps_detail *dt) ps_must_check;
/* A small text file of /proc or /sys, without its last newline: 0 or -errno. */
int ps_machine_text(const char *root, const char *path, char *ret, size_t cap) ps_must_check;
#endif
