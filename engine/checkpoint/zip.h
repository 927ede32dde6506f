/* SPDX-License-Identifier: Apache-2.0 */
/* The table of contents of a zip archive (APPNOTE 6.3, with zip64), as far as torch.save writes it: entries that are stored, not
 * compressed or encrypted. Nothing is unpacked: an entry is a range of the file. */
#ifndef PS_ZIP_H
#define PS_ZIP_H
#include "engine/checkpoint/source.h"

struct ps_zip_entry {
    const char *name; /* terminated, points into the directory */
    uint64_t header;  /* of the local header */
    uint64_t bytes;
    uint32_t crc; /* CRC-32 of its bytes; PyTorch writes 0 if told to leave them out */
    uint16_t method, flags;
};
struct ps_zip {
    const struct ps_src_file *f;
    char *dir;
    struct ps_zip_entry *entries; /* sorted by name */
    uint32_t n;
    uint64_t dir_off;
};
int ps_zip_open(const struct ps_src_file *f, struct ps_zip *ret,
                struct ps_detail *dt) ps_must_check;
void ps_zip_done(struct ps_zip *z);
const struct ps_zip_entry *ps_zip_find(const struct ps_zip *z, const char *name);
/* Where its bytes are. Refuses compressed and encrypted entries, and those that reach out of the file. */
int ps_zip_place(const struct ps_zip *z, const struct ps_zip_entry *e, uint64_t *ret_off,
                 struct ps_detail *dt) ps_must_check;
#endif
