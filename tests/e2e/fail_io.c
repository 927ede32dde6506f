/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program, it makes one of its calls on files fail with EIO: FAIL_IO=N:FILE is the N-th from the start; FILE is
 * made when it is reached. What libc and io_uring do by themselves is not seen. */
#include "engine/base/ps_util.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_ulong count;
static unsigned long at;
static const char *reached;

__attribute__((constructor)) static void read_wish(void)
{
    const char *wish = getenv("FAIL_IO");
    char *end;
    if (!wish) return;
    at = strtoul(wish, &end, 10);
    reached = end + 1;
}

static bool fails(void)
{
    if (!at || atomic_fetch_add(&count, 1) + 1 != at) return false;
    (void) syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, reached, O_WRONLY | O_CREAT, 0666));
    errno = EIO;
    return true;
}

/* NAME(parameters), called with (values). Where offsets have 64 bits, the compiler gives a function its longer name. */
#define CALL(type, name, real_name, parameters, values)                     \
    EXPORT type name parameters                                             \
    {                                                                       \
        static type(*_Atomic real) parameters;                              \
        if (!real) real = (type(*) parameters) dlsym(RTLD_NEXT, real_name); \
        return fails() ? -1 : real values;                                  \
    }

CALL(ssize_t, read, "read", (int fd, void *p, size_t n), (fd, p, n))
CALL(ssize_t, write, "write", (int fd, const void *p, size_t n), (fd, p, n))
CALL(ssize_t, pread, "pread64", (int fd, void *p, size_t n, off_t off), (fd, p, n, off))
CALL(ssize_t, pwrite, "pwrite64", (int fd, const void *p, size_t n, off_t off), (fd, p, n, off))
CALL(int, fsync, "fsync", (int fd), (fd))
CALL(int, fdatasync, "fdatasync", (int fd), (fd))
CALL(int, ftruncate, "ftruncate64", (int fd, off_t n), (fd, n))
CALL(int, fallocate, "fallocate64", (int fd, int mode, off_t off, off_t n), (fd, mode, off, n))
CALL(int, rename, "rename", (const char *a, const char *b), (a, b))
CALL(int, mkdir, "mkdir", (const char *a, mode_t mode), (a, mode))

EXPORT int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fails() ? -1 : (int) syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
