/* SPDX-License-Identifier: Apache-2.0 */
/* Files and their names: whole reads and writes at an offset, small files in one piece, paths, and what makes a new name durable.
 * Any thread. */
#ifndef PS_FILE_H
#define PS_FILE_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

/* Reads exactly n bytes; -ENODATA at the end of the file, else -errno. */
int ps_pread_all(int fd, void *p, size_t n, uint64_t off) ps_must_check;
/* Writes all of it at off; -errno. */
int ps_pwrite_all(int fd, const void *p, size_t n, uint64_t off) ps_must_check;

/* A whole file and a NUL after it; the caller frees *ret. Refused: a folder (-EISDIR), what else is no regular file (-PS_EFORMAT, without
 * waiting for a FIFO's other end), more than `max` bytes (-EFBIG); else -errno. */
int ps_slurp(const char *path, size_t max, char **ret, size_t *ret_len,
             struct ps_detail *dt) ps_must_check;

/* The three in one text: a path from its parts, or a name with a suffix. NULL when out of memory; the caller frees. */
char *ps_concat(const char *a, const char *b, const char *c);
/* Whether it is a regular file, through links too; and folder/name. */
bool ps_is_regular(const char *path);
bool ps_is_file(const char *folder, const char *name);
/* Whether both are there and the same file, through links too. */
bool ps_same_file(const char *a, const char *b);
/* The folder that a path stands in ("." for a bare name); the caller frees. -ENOMEM. */
int ps_folder_of(const char *path, char **ret) ps_must_check;

/* penstock/NAME in the user's cache folder ($XDG_CACHE_HOME, else $HOME/.cache); the caller frees. -ENOENT where neither is set to an absolute
 * path, -ENOMEM. */
int ps_cache_path(const char *name, char **ret) ps_must_check;
/* Makes a folder and what it stands in, for this user alone; those that are there stay. -errno. */
int ps_make_folders(const char *path) ps_must_check;

/* Makes what was made, renamed or removed in this folder durable. */
int ps_sync_folder(const char *folder) ps_must_check;
/* The same for the folder that `path` stands in. */
int ps_sync_beside(const char *path) ps_must_check;
/* An unlinked temporary file in the folder that `path` stands in: a descriptor or an error. */
int ps_temp_beside(const char *path, struct ps_detail *dt) ps_must_check;

/* Makes `text` the file's content, whole or not at all: written to a new file beside it, PATH.tmp-NUMBER, synced, renamed. -errno, and PATH is as it was. */
int ps_file_replace(const char *path, const char *text, struct ps_detail *dt) ps_must_check;
/* Whether that can be, for those who only know much later what to write: -PS_EUSAGE if something is there that is no regular file, an
 * error if its folder takes no file. */
int ps_file_replaceable(const char *path, struct ps_detail *dt) ps_must_check;
#endif
