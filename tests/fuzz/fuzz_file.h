/* SPDX-License-Identifier: Apache-2.0 */
/* The input as a file, for readers that want a path: in memory, its name is /proc/self/fd/N. */
#ifndef PS_FUZZ_FILE_H
#define PS_FUZZ_FILE_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static inline int fuzz_file(const uint8_t *data, size_t n, char *path, size_t cap)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || (n && write(fd, data, n) != (ssize_t) n)) abort();
    (void) snprintf(path, cap, "/proc/self/fd/%d", fd);
    return fd;
}
#endif
