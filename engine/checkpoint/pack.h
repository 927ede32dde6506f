/* SPDX-License-Identifier: Apache-2.0 */
/* The packed model: a folder with the source's config and tokenizer files and weights-00001-of-00001.safetensors,
 * which any safetensors reader opens. Tensors stand in ps_model_tensors() order, each at a 4 KiB boundary of the file
 * (padding tensors named "_pad.N" fill the gaps), the file's length too. The file's bytes are cut into chunks: a chunk is
 * either a run of whole small tensors or a block of rows of one tensor, at most PS_CHUNK_BYTES long (one row at least);
 * it begins and ends at 4 KiB boundaries. Chunks are what is read, checked (XXH3-64) and placed as a unit. `__metadata__` holds
 * "penstock" (format version, source hash, and the shape that the weights were packed for) and "chunks" (offset from the first tensor, length, checksum of each).
 */
#ifndef PS_PACK_H
#define PS_PACK_H
#include "engine/model/model.h"

enum { PS_CHUNK_BYTES = 8 << 20, PS_PACK_ALIGN = 4096 };

struct ps_packed_tensor {
    struct ps_tensor t;
    enum ps_dtype dtype;
    uint64_t off, bytes; /* in the file */
    uint32_t first_chunk, n_chunks;
};

struct ps_chunk {
    uint64_t off;
    uint32_t len; /* multiple of 4 KiB */
    uint32_t group;
    uint64_t xxh3;                    /* of all len bytes */
    uint32_t first_tensor, n_tensors; /* n_tensors > 1: whole tensors */
    uint32_t row0, rows;              /* n_tensors == 1: these rows of it */
};

struct ps_packed {
    struct ps_shape shape;
    enum ps_dtype dtype;
    char *folder, *path; /* of the weights file */
    uint64_t file_bytes, weight_bytes;
    uint64_t hash; /* of header and config: identifies the model in journals and reports */
    struct ps_packed_tensor *tensors;
    struct ps_chunk *chunks;
    uint32_t n_tensors, n_chunks;
    uint32_t chunk_bytes; /* longest chunk */
};

/* Opens and checks everything that can be checked without reading the weights: header, offsets, shapes against config.json,
 * chunk table, file length. */
int ps_pack_open(const char *folder, struct ps_packed **ret, struct ps_detail *dt) ps_must_check;
void ps_pack_close(struct ps_packed *p); /* takes NULL */
static inline void ps_pack_closep(struct ps_packed **p) { ps_pack_close(*p); }
#define ps_auto_pack ps_cleanup(ps_pack_closep)

/* True if folder looks like a packed model (has our weights file), false if it is something else or nothing. */
bool ps_pack_is(const char *folder);
/* Checks chunk i's bytes: 0 or -PS_ECORRUPT with a detail that names tensor, file and offset. Any thread. */
int ps_pack_verify(const struct ps_packed *p, uint32_t i, const void *bytes, struct ps_detail *dt);

struct ps_convert_opt {
    int dtype; /* enum ps_dtype, or -1: the source's */
    bool overwrite;
    unsigned threads; /* 0 = as many as there are cores */
    /* May be NULL. From any thread, one call at a time. */
    void (*progress)(void *ud, uint64_t done_bytes, uint64_t total_bytes);
    void (*warn)(void *ud, const char *text); /* may be NULL; from the caller's thread */
    void *ud;
    const volatile int *stop; /* set by a signal: -ECANCELED, nothing left behind; may be NULL */
};
int ps_pack_convert(const char *src, const char *dst, const struct ps_convert_opt *opt,
                    struct ps_detail *dt) ps_must_check;
/* Seeded random weights for a config.json-like file (configs/models); a pure function of seed and config. */
int ps_pack_dummy(const char *config, const char *dst, uint64_t seed,
                  const struct ps_convert_opt *opt, struct ps_detail *dt) ps_must_check;
/* For generate MODEL with an unpacked folder: packs into pack_dir (NULL: the user's cache folder) under a name made of
 * the source's path and a hash of its files' sizes, times and headers, unless that is already there; *ret is the packed
 * folder's path, which the caller frees. */
int ps_pack_cached(const char *src, const char *pack_dir, const struct ps_convert_opt *opt,
                   char **ret, struct ps_detail *dt) ps_must_check;
/* That folder (pack_dir, or the one in the cache), made; the caller frees *ret, whatever is returned. */
int ps_pack_folder(const char *pack_dir, char **ret, struct ps_detail *dt) ps_must_check;
/* Whether a whole packed model is there. */
bool ps_pack_opens(const char *folder);
#endif
