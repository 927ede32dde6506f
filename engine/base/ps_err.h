/* SPDX-License-Identifier: Apache-2.0 */
/* Error convention: functions return 0 (or a count >= 0) on success and a negative error on failure:
 * a negated errno where one fits, else one of our own codes, which start at 1000 so that they can never
 * collide with errno. What failed is told in words in a struct ps_detail that the caller hands down:
 * file, line, tensor or option, what was expected, what to do. Libraries neither print nor exit. */
#ifndef PS_ERR_H
#define PS_ERR_H
#include <errno.h>
#include <stdarg.h>

#define PS_ERR_MAP(X)                                        \
    X(PS_ECORRUPT, 1000, "stored data failed its checksum")  \
    X(PS_EFORMAT, 1001, "file is not in a supported format") \
    X(PS_ESHAPE, 1002, "tensor shape does not match")        \
    X(PS_EDEVICE, 1003, "accelerator reported an error")     \
    X(PS_EBUDGET, 1004, "memory budget exceeded")            \
    X(PS_EUNSUPPORTED, 1005, "not supported")                \
    X(PS_EUSAGE, 1006, "wrong usage")                        \
    X(PS_ECONFLICT, 1007, "belongs to another job")          \
    X(PS_ENUMERIC, 1008, "a value is not a finite number")   \
    X(PS_EPIN, 1009, "so much memory cannot be pinned")

enum ps_errno {
#define X(name, val, str) name = val,
    PS_ERR_MAP(X)
#undef X
};

/* "ENOMEM"-style name and human text for a (negative or positive) code; never NULL. */
const char *ps_err_name(int err);
const char *ps_err_str(int err);
/* What may be in the way of threads and memory, for the end of a message; "" for any other error. */
const char *ps_err_limits(int err);

/* What failed, for the command to print. The innermost function that knows writes it; `text` is always
 * terminated, and empty when nobody had anything to add to the code. Functions take it as their last
 * input and accept NULL. */
struct ps_detail {
    char text[1024];
};

/* Writes the detail (cut at its size) and returns err, so that `return ps_fail(dt, -EINVAL, "...")` reads well. */
int ps_fail(struct ps_detail *dt, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, but an earlier, more precise text stays and the new one is put in front: "new: old". */
int ps_fail_in(struct ps_detail *dt, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#endif
