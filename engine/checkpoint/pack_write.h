/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a packed model: the folder that appears only when it is complete, and in it the weights file, made chunk by chunk by a
 * few threads that each read, convert, sum and write. */
#ifndef PS_PACK_WRITE_H
#define PS_PACK_WRITE_H
#include "engine/checkpoint/pack_file.h"

/* The folder while it is being made: DST.partial.PID beside DST. */
struct ps_outdir {
    char *dst, *tmp;
    bool replace; /* DST exists and is to be exchanged */
    int lock;     /* on tmp, while this process lives; -1: there are no locks here */
};
/* Removes the folders in `folder` that killed runs left half made, whatever DST was; those whose maker may live stay. */
void ps_outdir_sweep(const char *folder, void (*warn)(void *ud, const char *text), void *ud);
/* Refuses a DST that exists, unless `overwrite` and it is a packed model (or an empty folder). */
int ps_outdir_begin(const char *dst, bool overwrite, struct ps_outdir *ret,
                    void (*warn)(void *ud, const char *text), void *ud,
                    struct ps_detail *dt) ps_must_check;
int ps_outdir_put(const struct ps_outdir *d, const char *name, const void *bytes, size_t n,
                  struct ps_detail *dt) ps_must_check;
/* A file of another folder; it is enough that it is not there. */
int ps_outdir_copy(const struct ps_outdir *d, const char *folder, const char *name,
                   struct ps_detail *dt) ps_must_check;
/* Syncs and gives it its name. Of a folder that is replaced, what convert writes is removed; everything else stays under that name. */
int ps_outdir_commit(struct ps_outdir *d, void (*warn)(void *ud, const char *text), void *ud,
                     struct ps_detail *dt) ps_must_check;
/* Removes the unfinished folder (if commit did not happen) and frees. What cannot be removed is named in front of dt's text. */
void ps_outdir_done(struct ps_outdir *d, struct ps_detail *dt);

struct ps_pack_job {
    struct ps_packed *p; /* as from ps_pack_layout(); offsets count from the first tensor */
    struct ps_pack_head *head;
    /* Makes elements elem0 .. elem0 + n - 1 of a tensor at dst. `scratch` is this thread's, aligned to 4 KiB. */
    int (*fill)(void *ud, uint32_t tensor, uint64_t elem0, uint64_t n, void *dst, void *scratch,
                struct ps_detail *dt);
    void *ud;
    size_t scratch_bytes;
};
int ps_pack_write(const struct ps_outdir *d, struct ps_pack_job *job,
                  const struct ps_convert_opt *opt, struct ps_detail *dt) ps_must_check;
/* 0, or -ECANCELED once *opt->stop is set. */
static inline int ps_pack_stopped(const struct ps_convert_opt *opt, struct ps_detail *dt)
{
    if (!opt->stop || !__atomic_load_n(opt->stop, __ATOMIC_RELAXED)) return 0;
    return ps_fail(dt, -ECANCELED, "interrupted");
}
#endif
