/* SPDX-License-Identifier: Apache-2.0 */
/* A reader for the one kind of pickle that torch.save makes of a state dict: a flat dict from names to tensors. It executes
 * nothing: a handful of opcodes build values in a table, three functions and the storage types are known by name, and anything
 * else is refused, named. Depth costs nothing (no recursion); size and number of values are bounded. */
#ifndef PS_PICKLE_H
#define PS_PICKLE_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

enum { PS_PICKLE_DIMS = 8, PS_PICKLE_BYTES_MAX = 64 << 20 };

struct ps_pickle_text {
    const char *s; /* in the pickle, not terminated */
    uint32_t len;
};
struct ps_pickle_tensor {
    struct ps_pickle_text name, key; /* key: of its storage */
    const char *storage;             /* "HalfStorage" */
    uint64_t storage_elems, offset;  /* in elements */
    uint32_t ndim;
    uint64_t dims[PS_PICKLE_DIMS], strides[PS_PICKLE_DIMS];
};

/* Calls `add` for each tensor, in the dict's order; a negative result ends it and is returned. `path` is for messages. */
int ps_pickle_read(const char *bytes, size_t len, const char *path,
                   int (*add)(void *ud, const struct ps_pickle_tensor *t, struct ps_detail *dt),
                   void *ud, struct ps_detail *dt) ps_must_check;
#endif
