/* SPDX-License-Identifier: Apache-2.0 */
/* What the stores on real files share: opening with O_DIRECT where it works, and what to do with the kernel's
 * answer to a transfer. Private to this folder. */
#ifndef PS_STORE_FILES_H
#define PS_STORE_FILES_H
#include "offload/store.h"

struct ps_files {
    unsigned n;
    int fd[PS_STORE_FILES];
    bool direct[PS_STORE_FILES];
};

/* Opens cfg's files, fills their sizes, and align and direct of info. */
int ps_files_open(const struct ps_store_cfg *cfg, struct ps_files *ret, struct ps_store_info *info,
                  struct ps_detail *dt) ps_must_check;
void ps_files_close(struct ps_files *f);

/* The alignment that O_DIRECT asks for on an open file: 0 when the kernel says it has none, 4096 when it
 * does not say. */
uint32_t ps_dio_align(int fd);

/* What is left of io, as the next call to the kernel. */
static inline void *ps_io_buf(const struct ps_io *io) { return (uint8_t *) io->buf + io->done_; }
static inline uint64_t ps_io_off(const struct ps_io *io) { return io->off + io->done_; }
static inline uint32_t ps_io_len(const struct ps_io *io) { return io->len - io->done_; }

/* Takes the kernel's result (bytes or -errno) for the rest of io: true when io is over, with res set; false
 * when what ps_io_* now say must be asked for again. */
bool ps_io_took(struct ps_io *io, int64_t result, const struct ps_files *f, uint32_t align);
#endif
