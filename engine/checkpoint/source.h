/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint as it came: one or several files, and in them named tensors at known offsets. Readers of the formats
 * (safetensors.c, torch.c) fill in the tensors; nothing here reads weights. */
#ifndef PS_SOURCE_H
#define PS_SOURCE_H
#include "engine/base/ps_dtype.h"
#include "engine/base/ps_jscan.h"

enum { PS_SRC_DIMS = 8, PS_SRC_TENSORS_MAX = 1 << 17, PS_SRC_FILES_MAX = 4096 };

struct ps_src_tensor {
    const char *name;       /* as in the file; the source owns it */
    const char *dtype_name; /* as in the file */
    int dtype;              /* enum ps_dtype, or -1: one that weights cannot have */
    uint32_t file, ndim;
    uint64_t dims[PS_SRC_DIMS];
    uint64_t off, bytes; /* in the file, from its first element to its last */
    bool strided; /* not row-major: elements are `strides` apart; ps_src_elems() gathers them */
    uint64_t strides[PS_SRC_DIMS]; /* in elements */
    struct {
        uint64_t off, bytes; /* of the file's bytes, among which the tensor's are */
        uint32_t crc;        /* CRC-32 of them; 0: not known */
    } sum;
};

struct ps_src_file {
    char *path;
    int fd;        /* buffered */
    int fd_direct; /* O_DIRECT, or -1 */
    uint64_t size;
    char *text; /* what names point into */
    struct ps_jstr meta_pack,
        meta_table;    /* safetensors: __metadata__'s "penstock" and "chunks"; s NULL if absent */
    uint64_t data_off; /* safetensors: where tensors begin */
    uint64_t hash;     /* of what describes the tensors */
};

struct ps_src {
    struct ps_src_file *files;
    uint32_t n_files;
    struct ps_src_tensor *tensors; /* sorted by name once open */
    size_t n_tensors, cap_tensors;
    const char *format; /* "safetensors" or "PyTorch" */
    uint64_t hash;      /* of all files' hashes and sizes */
};

/* A folder in Hugging Face layout (model.safetensors or pytorch_model.bin, or shards of either with their index), or a packed one. */
int ps_src_open(const char *folder, struct ps_src **ret, struct ps_detail *dt) ps_must_check;
/* One file of either format, told by its name (.bin, .pt, .pth) or its first bytes. */
int ps_src_open_file(const char *path, struct ps_src **ret, struct ps_detail *dt) ps_must_check;
void ps_src_close(struct ps_src *s); /* takes NULL */
static inline void ps_src_closep(struct ps_src **s) { ps_src_close(*s); }
#define ps_auto_src ps_cleanup(ps_src_closep)

/* NULL if there is none of that name. */
const struct ps_src_tensor *ps_src_find(const struct ps_src *s, const char *name);
/* "[2050, 256]" into buf. */
const char *ps_src_dims(const struct ps_src_tensor *t, char *buf, size_t cap);

/* For the readers: a zeroed tensor at the end of the list. */
int ps_src_add(struct ps_src *s, struct ps_src_tensor **ret, struct ps_detail *dt) ps_must_check;
/* Reads exactly n bytes of file f at off; a short file is an error that says so. */
int ps_src_pread(const struct ps_src_file *f, void *buf, size_t n, uint64_t off,
                 struct ps_detail *dt) ps_must_check;
/* Opens each file once more, past the page cache, where its file system can do that. */
void ps_src_direct(struct ps_src *s);
/* As ps_src_pread, past the page cache if possible: the bytes end up at *ret inside `room`, which is aligned to 4 KiB and has
 * n + 2 * 4 KiB bytes. Any thread. */
int ps_src_read(const struct ps_src_file *f, void *room, size_t n, uint64_t off, const char **ret,
                struct ps_detail *dt) ps_must_check;
/* Elements elem0 .. elem0 + n - 1 of a matrix or vector in row-major order, at *ret inside `room`, which is aligned to 4 KiB and has PS_SRC_ROOM bytes
 * more than they take. Any thread. */
enum { PS_SRC_ROOM = 256 << 10 };
int ps_src_elems(const struct ps_src *s, const struct ps_src_tensor *t, void *room, uint64_t elem0,
                 size_t n, const char **ret, struct ps_detail *dt) ps_must_check;
/* dims' product; false on overflow. */
bool ps_src_numel(const uint64_t *dims, uint32_t n, uint64_t *ret);

int ps_safetensors_read(struct ps_src *s, uint32_t file, struct ps_detail *dt) ps_must_check;
int ps_torch_read(struct ps_src *s, uint32_t file, struct ps_detail *dt) ps_must_check;
#endif
