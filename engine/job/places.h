/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a job reads and writes, before it touches any. */
#ifndef PS_PLACES_H
#define PS_PLACES_H
#include "engine/job/job.h"
#include <sys/stat.h>

/* Refuses files that get in each other's way (INPUT, OUTPUT with its helpers, --report, --dump-kv, --trace: no two may be the same
 * file, through links neither), those that are there and no regular file (they are renamed into place or cut), what lies under a helper's
 * name and was not left by a run, and those whose folder is not there or cannot be written: better now than when the job is done. `in` is what INPUT's descriptor says. */
int ps_places_check(const struct ps_job_cfg *cfg, const struct stat *in,
                    struct ps_detail *dt) ps_must_check;
/* Opens (makes) a file of the job's own for reading and writing. A link, folder, pipe or device of that name is somebody else's: it is
 * refused, -PS_EUSAGE. */
int ps_places_open(const char *path, int flags, int *ret_fd, struct ps_detail *dt) ps_must_check;
/* The same without making it, to see what would be found there: -1 in *ret_fd if nothing is. */
int ps_places_look(const char *path, int *ret_fd, struct ps_detail *dt) ps_must_check;
#endif
