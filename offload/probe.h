/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements, bounded in time and bytes. Each uses what the engine itself uses: the same stores, transfer sizes and depths. A quick look is what
 * the report sets a run's rates beside; all of them together make a machine's profile (probe_machine.h). */
#ifndef PS_PROBE_H
#define PS_PROBE_H
#include "offload/store.h"

/* Work per second over repeated slices of a measurement. */
struct ps_rate {
    double median, min, max; /* of the slices */
    double total_work, total_s;
    unsigned slices;
    bool
        noisy; /* the middle half of the slices spreads over more than PS_PROBE_NOISY of the median */
    bool
        throttled; /* all of the last third are below all of the first by that much: it fell as time went by */
};
#define PS_PROBE_NOISY 0.15

/* Repeats fn, which does `work` (bytes, flops), for about max_s seconds, at least three times: a warm-up comes first and is
 * not counted. Returns fn's error. Ops that this folder does not know are measured through it. */
int ps_probe_repeat(int (*fn)(void *ud), void *ud, double work, double max_s,
                    struct ps_rate *ret) ps_must_check;

/* Reads `bytes` of memory (taken and given back; well above the last-level cache) with `threads` threads. */
int ps_probe_dram(unsigned threads, uint64_t bytes, double max_s, struct ps_rate *ret,
                  struct ps_detail *dt) ps_must_check;
/* Copies half of `bytes` into the other half; what is read and what is written count. */
int ps_probe_dram_copy(unsigned threads, uint64_t bytes, double max_s, struct ps_rate *ret,
                       struct ps_detail *dt) ps_must_check;

struct ps_probe_disk {
    const char *store;  /* "uring", "pread"; NULL = best */
    uint32_t io_bytes;  /* 0 = the device's */
    uint32_t depth;     /* 0 = the store's */
    uint64_t max_bytes; /* 0 = 1 GiB read, 256 MiB written */
    double max_s;       /* 0 = 2 */
};
/* Reads an existing file from its start, past the page cache where O_DIRECT works (*ret_direct). */
int ps_probe_disk_read(const char *path, const struct ps_probe_disk *how, struct ps_rate *ret,
                       bool *ret_direct, struct ps_detail *dt) ps_must_check;
/* The same of a file that is open for both, under a name that it can be opened as (ps_store_unnamed): its first bytes are read, or written. */
int ps_probe_disk_file(const char *path, const char *open_as, enum ps_io_dir dir,
                       const struct ps_probe_disk *how, struct ps_rate *ret, bool *ret_direct,
                       struct ps_detail *dt) ps_must_check;
/* Writes a file in `folder`, synced, and removes it. -ENOSPC unless the folder has ten times the bytes free. */
int ps_probe_disk_write(const char *folder, const struct ps_probe_disk *how, struct ps_rate *ret,
                        bool *ret_direct, struct ps_detail *dt) ps_must_check;
#endif
