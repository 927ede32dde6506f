/* SPDX-License-Identifier: Apache-2.0 */
/* What the devices that really compute on the host share: copies, how a disk move is cut into
 * transfers, counting, and the words for what failed. Private to this folder. */
#ifndef PS_DEV_EXEC_H
#define PS_DEV_EXEC_H
#include "offload/dev.h"

enum { PS_IO_BYTES = 1 << 20 }; /* a transfer's size when the caller has no opinion */

/* Between two looks at a counter in a spinning loop. */
static inline void ps_pause(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#endif
}

/* A move between two host places. */
void ps_task_copy(const struct ps_task *t);

/* Walks a disk move as transfers of at most io_bytes; a rectangle whose rows touch on both sides is one row. */
struct ps_cut {
    uint64_t row, at; /* next transfer's start */
    uint64_t rows, row_bytes;
};
void ps_cut_init(struct ps_cut *c, const struct ps_task *t);
/* Fills dir, file, buf, off and len of the next transfer; false when there is none left. */
bool ps_cut_next(struct ps_cut *c, const struct ps_task *t, uint32_t io_bytes, struct ps_io *ret);

/* Adds a finished task to the counters; busy_ns is left to the caller. */
void ps_stats_add(struct ps_dev_stats *st, enum ps_q q, const struct ps_task *t, uint64_t ns);

void ps_task_failed(struct ps_detail *dt, enum ps_q q, const struct ps_task *t, int err);
void ps_io_failed(struct ps_detail *dt, const struct ps_store *store, const struct ps_task *t,
                  const struct ps_io *io, int err);
#endif
