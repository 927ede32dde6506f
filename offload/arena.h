/* SPDX-License-Identifier: Apache-2.0 */
/* All big memory of a run is taken once, at start, from a budget. An arena is one anonymous mapping that is
 * cut up from the front and never gives anything back before it is closed; a sub-allocation is named, so that the
 * itemised memory table is the arena itself. The same arithmetic, without a mapping, sizes a plan: add the
 * same items to an arena opened with `measure` and read its total.
 *
 * Huge pages are asked for (madvise); memory is bound to `numa_nodes`, or its node preferred, before first touch. */
#ifndef PS_ARENA_H
#define PS_ARENA_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

struct ps_arena;

struct ps_arena_cfg {
    uint64_t bytes; /* capacity; 0 with measure: unbounded */
    bool measure;   /* no memory behind it: alloc gives NULL pointers and counts */
    /* Not NULL: cuts up this memory, which is somebody else's (a GPU's) and stays it, and never touches it. */
    void *base;
    /* Memory only up to here, 0 = all: what lies behind has addresses, which nobody may touch (a simulation's). */
    uint64_t front_bytes;
    bool
        populate; /* touch every page at open, from several threads, so that no fault comes later */
    const char *numa_nodes; /* libnuma's syntax ("0", "0-1"); NULL = the kernel's policy, or: */
    const char *near_pci;   /* memory of this device's node is preferred; may be NULL */
};

struct ps_arena_item {
    const char *name; /* static storage, the caller's */
    uint64_t bytes;   /* summed over allocations of that name */
};

int ps_arena_open(const struct ps_arena_cfg *cfg, struct ps_arena **ret,
                  struct ps_detail *dt) ps_must_check;
void ps_arena_close(struct ps_arena *a); /* takes NULL */
static inline void ps_arena_closep(struct ps_arena **a) { ps_arena_close(*a); }
#define ps_auto_arena ps_cleanup(ps_arena_closep)

/* n * size bytes at `align` (a power of two, <= 2 MiB), zeroed. Over `base` they hold what they held, and `align` is that of the
 * distance from base. -PS_EBUDGET when it does not fit (the detail gives name, wanted and left bytes). With measure *ret is NULL. */
int ps_arena_alloc(struct ps_arena *a, const char *name, uint64_t n, uint64_t size, size_t align,
                   void **ret, struct ps_detail *dt) ps_must_check;
uint64_t ps_arena_used(const struct ps_arena *a);
void *ps_arena_base(const struct ps_arena *a); /* for registering with a store; NULL with measure */
/* Items in order of first allocation; NULL past the end. */
const struct ps_arena_item *ps_arena_item(const struct ps_arena *a, size_t i);
#endif
