/* SPDX-License-Identifier: Apache-2.0 */
/* The packed file's layout, shared by its reader and its writer. */
#ifndef PS_PACK_FILE_H
#define PS_PACK_FILE_H
#include "engine/checkpoint/pack.h"

#define PS_PACK_FILE "weights-00001-of-00001.safetensors"
enum { PS_PACK_VERSION = 1 };

/* What a packed file's header says of its version and shape: refused if it is another version, or packed for another shape than `shape`,
 * that of `folder`'s config.json (packs of earlier versions do not say). Once per file that was opened. */
struct ps_src_file;
int ps_pack_check_meta(const struct ps_src_file *f, const struct ps_shape *shape,
                       const char *folder, struct ps_detail *dt) ps_must_check;

/* Tensors and chunks of a model in packing order, offsets counted from the start of the tensors' bytes, sizes, chunk_bytes.
 * `p` is zeroed; what it gets is freed by ps_pack_close()'s rules. */
int ps_pack_layout(const struct ps_shape *s, enum ps_dtype dtype, struct ps_packed *p,
                   struct ps_detail *dt) ps_must_check;

/* The file's head: length and JSON header, padded with spaces to a multiple of 4 KiB, so that its length is where tensors
 * begin. The checksums stand in it with a fixed width: text[sum_at[i]] is chunk i's, to be filled in by ps_pack_put_sum(). */
struct ps_pack_head {
    char *text;
    size_t len;
    size_t *sum_at;
};
int ps_pack_head_make(const struct ps_packed *p, uint64_t source_hash, struct ps_pack_head *ret,
                      struct ps_detail *dt) ps_must_check;
void ps_pack_put_sum(struct ps_pack_head *h, uint32_t chunk, uint64_t sum);
void ps_pack_head_done(struct ps_pack_head *h);
#endif
