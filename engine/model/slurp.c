/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/slurp.h"
#include "engine/base/ps_mem.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int ps_slurp(const char *path, size_t max, char **ret, size_t *ret_len, struct ps_detail *dt)
{
    /* O_NONBLOCK: a FIFO under this name must not hang us; it is refused below. */
    ps_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        int e = errno;
        return ps_fail(dt, -e, "%s: %s", path, strerror(e));
    }
    if (S_ISDIR(st.st_mode)) return ps_fail(dt, -EISDIR, "%s is a folder, not a file", path);
    if (!S_ISREG(st.st_mode)) return ps_fail(dt, -PS_EFORMAT, "%s is not a regular file", path);
    if ((uint64_t) st.st_size > max)
        return ps_fail(dt, -EFBIG,
                       "%s has %lld bytes; more than %zu is not plausible for this file", path,
                       (long long) st.st_size, max);
    size_t n = (size_t) st.st_size, got = 0;
    ps_auto_free char *buf = ps_calloc(n + 1, 1);
    if (!buf) return ps_fail(dt, -ENOMEM, "out of memory for %s (%zu bytes)", path, n);
    while (got < n) {
        ssize_t r = read(fd, buf + got, n - got);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) {
            int e = errno;
            return ps_fail(dt, -e, "%s: read at %zu: %s", path, got, strerror(e));
        }
        if (r == 0) break;
        got += (size_t) r;
    }
    buf[got] = 0;
    *ret = PS_TAKE(buf);
    *ret_len = got;
    return 0;
}
