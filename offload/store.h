/* SPDX-License-Identifier: Apache-2.0 */
/* A store moves bytes between memory and a few files (packed weights, KV on disk), asynchronously. One store
 * serves all files of a run, so that one queue orders all disk traffic.
 *
 * Contract, checked for every store by tests/offload/store_contract.c:
 *  - One thread drives a store (submit, reap); only wake() may come from another. A store may use threads inside.
 *  - submit() takes a prefix of ios[0..n): it returns how many it took (0 = full, call reap()),
 *    or a negative error and took none. A taken io belongs to the store until reap() returns it.
 *  - Every taken io is returned by reap() exactly once, with res = bytes moved or a negative
 *    error. Short transfers do not happen: what the kernel leaves is resubmitted, so res is len or an error
 *    (a read past the end of the file is -ENODATA, a full disk -ENOSPC).
 *  - close() accepts NULL; it completes or cancels what is in flight before it returns.
 *  - ret_ parameters are written on success and left alone on failure.
 */
#ifndef PS_STORE_H
#define PS_STORE_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include <stddef.h>
#include <stdint.h>

enum { PS_STORE_FILES = 8, PS_STORE_DEPTH_MAX = 4096 };

enum ps_io_dir { PS_IO_READ, PS_IO_WRITE };

struct ps_io {
    enum ps_io_dir dir;
    uint32_t file;       /* index into cfg.files */
    void *buf;           /* host memory, aligned to info.align */
    uint64_t off;        /* multiple of info.align */
    uint32_t len;        /* multiple of info.align, > 0 */
    int64_t res;         /* out */
    void *ud;            /* caller's */
    struct ps_io *next_; /* store's, while in flight */
    uint32_t done_;      /* store's: bytes moved so far */
    uint32_t tries_;     /* store's: in a row without progress */
};

struct ps_store_info {
    uint32_t
        align; /* of off, len and buf: the greatest that any of the files asks for; a power of two */
    uint32_t depth;  /* ios in flight at most */
    bool direct;     /* O_DIRECT on every file */
    bool fixed_bufs; /* buffers are registered with the kernel */
};

struct ps_store_file {
    const char *path;
    const char *open_as; /* opened instead of path, which then is for messages; NULL = path */
    bool write;          /* opened read-write (it must exist) */
    uint64_t size;       /* out: length at open */
};

struct ps_store_cfg {
    struct ps_store_file *files;
    unsigned n_files;
    uint32_t depth; /* 0 = the store's choice; at most 4096 */
    bool no_direct; /* buffered I/O even where O_DIRECT works */
    void *mem;      /* the arena that all bufs lie in, to be registered; NULL = none */
    uint64_t mem_bytes;
    struct ps_store *lower; /* decorators: not owned, driven through the decorator alone */
    const char *
        fault; /* see below; any store opened with it is wrapped in the fault store, which then owns it */
};

struct ps_store; /* first member of every implementation's struct */

struct ps_store_ops {
    const char *name; /* "uring", "pread", "null", "fault" */
    int (*open)(const struct ps_store_cfg *cfg, struct ps_store **ret, struct ps_detail *dt);
    void (*close)(struct ps_store *t);
    int (*submit)(struct ps_store *t, struct ps_io *const *ios, unsigned n);
    /* Waits until something is complete, for at most timeout_ns (< 0: for ever), or until wake(). Returns how
     * many are in done[], 0 after a time-out or a wake. With nothing in flight it waits for wake() or time. */
    int (*reap)(struct ps_store *t, struct ps_io **done, unsigned max, int64_t timeout_ns);
    void (*wake)(struct ps_store *t); /* from any thread; one wake ends one wait, now or the next */
};

struct ps_store {
    const struct ps_store_ops *ops;
    struct ps_store_info info;
    struct ps_store *owned; /* the front door's, as what follows */
    unsigned n_files;
    char *path[PS_STORE_FILES];
    bool can_write[PS_STORE_FILES];
};

const struct ps_store_ops *ps_store_find(const char *name);
const struct ps_store_ops *ps_store_at(size_t i); /* NULL past the end */

/* Checked front door: arguments are validated here, once, not in every store. The error's detail names the file. */
int ps_store_open(const struct ps_store_ops *ops, const struct ps_store_cfg *cfg,
                  struct ps_store **ret, struct ps_detail *dt) ps_must_check;
/* The io_uring store, or, where the kernel or the container refuses it, the pread store; `ret_why` (may be
 * NULL) gets the reason of a fallback or an empty text. */
int ps_store_open_best(const struct ps_store_cfg *cfg, struct ps_store **ret,
                       struct ps_detail *ret_why, struct ps_detail *dt) ps_must_check;
struct ps_store *ps_store_close(struct ps_store *t); /* returns NULL */
int ps_store_submit(struct ps_store *t, struct ps_io *const *ios, unsigned n) ps_must_check;
int ps_store_reap(struct ps_store *t, struct ps_io **done, unsigned max,
                  int64_t timeout_ns) ps_must_check;
void ps_store_wake(struct ps_store *t);
/* A file in a folder that has no name, so that nothing is left behind however the process ends: a descriptor of it, and what it can be
 * opened as while that is open. */
int ps_store_unnamed(const char *folder, int *ret_fd, char ret_open_as[static 32],
                     struct ps_detail *dt) ps_must_check;
/* The path that file was opened by, for messages; never NULL. */
const char *ps_store_path(const struct ps_store *t, uint32_t file);
/* One transfer, waited for; nothing else may be in flight. 0 or a negative error. */
int ps_store_rw(struct ps_store *t, enum ps_io_dir dir, uint32_t file, uint64_t off, void *buf,
                uint32_t len) ps_must_check;

static inline void ps_store_closep(struct ps_store **t) { *t = ps_store_close(*t); }
#define ps_auto_store ps_cleanup(ps_store_closep)
#endif
