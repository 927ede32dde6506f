/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int ps_pread_all(int fd, void *p, size_t n, uint64_t off)
{
    for (char *s = p; n;) {
        ssize_t r = pread(fd, s, n, (off_t) off);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return -errno;
        if (!r) return -ENODATA;
        s += r;
        off += (uint64_t) r;
        n -= (size_t) r;
    }
    return 0;
}

int ps_pwrite_all(int fd, const void *p, size_t n, uint64_t off)
{
    for (const char *s = p; n;) {
        ssize_t w = pwrite(fd, s, n, (off_t) off);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return -errno;
        if (!w) return -ENOSPC;
        s += w;
        off += (uint64_t) w;
        n -= (size_t) w;
    }
    return 0;
}

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

char *ps_concat(const char *a, const char *b, const char *c)
{
    size_t n = strlen(a) + strlen(b) + strlen(c) + 1;
    char *p = ps_calloc(n, 1);
    if (p) (void) snprintf(p, n, "%s%s%s", a, b, c);
    return p;
}

bool ps_is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool ps_is_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t) n < sizeof path && ps_is_regular(path);
}

bool ps_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int ps_folder_of(const char *path, char **ret)
{
    char *p = ps_concat(path, "", "/"); /* room for "." at least */
    if (!p) return -ENOMEM;
    p[strlen(path)] = 0;
    char *slash = strrchr(p, '/');
    if (!slash)
        memcpy(p, ".", 2);
    else
        slash[slash == p] = 0;
    *ret = p;
    return 0;
}

int ps_cache_path(const char *name, char **ret)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && *xdg == '/') /* relative ones are to be ignored (XDG base directories, 0.8) */
        *ret = ps_concat(xdg, "/penstock/", name);
    else if (home && *home == '/')
        *ret = ps_concat(home, "/.cache/penstock/", name);
    else
        return -ENOENT;
    return *ret ? 0 : -ENOMEM;
}

int ps_make_folders(const char *path)
{
    ps_auto_free char *folder = ps_concat(path, "", "");
    if (!folder) return -ENOMEM;
    for (char *p = folder + 1;; p++) {
        char c = *p;
        if (c && c != '/') continue;
        *p = 0;
        if (mkdir(folder, 0700) < 0 && errno != EEXIST) return -errno;
        *p = c;
        if (!c) return 0;
    }
}

int ps_sync_folder(const char *folder)
{
    ps_auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    /* Some file systems cannot sync a folder, and say EINVAL. */
    return fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP ? -errno : 0;
}

int ps_sync_beside(const char *path)
{
    ps_auto_free char *folder = NULL;
    int r = ps_folder_of(path, &folder);
    return r < 0 ? r : ps_sync_folder(folder);
}

int ps_temp_beside(const char *path, struct ps_detail *dt)
{
    ps_auto_free char *folder = NULL;
    int r = ps_folder_of(path, &folder);
    if (r < 0) return r;
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    ps_auto_free char *name = ps_concat(path, ".tmp-", "XXXXXX");
    if (!name) return -ENOMEM;
    fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) {
        r = -errno;
        return ps_fail(dt, r, "%s: no temporary file can be made beside it, in %s: %s", path,
                       folder, ps_err_str(r));
    }
    (void) unlink(name);
    return fd;
}

/* A new file PATH.tmp-NUMBER: its descriptor, or -errno. What is there under such a name is somebody else's. */
static int new_beside(const char *path, char **ret_name)
{
    enum { TRIES = 1000 };
    const unsigned first = (unsigned) getpid();
    for (unsigned i = 0; i < TRIES; i++) {
        char suffix[24];
        (void) snprintf(suffix, sizeof suffix, ".tmp-%u", first + i);
        ps_auto_free char *name = ps_concat(path, "", suffix);
        if (!name) return -ENOMEM;
        /* Not mkostemp(): the file keeps the rights that the umask gives it. */
        const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return -errno;
        *ret_name = name;
        name = NULL;
        return fd;
    }
    return -EEXIST;
}

int ps_file_replace(const char *path, const char *text, struct ps_detail *dt)
{
    ps_auto_free char *tmp = NULL;
    ps_auto_close int fd = new_beside(path, &tmp);
    int r = fd < 0 ? fd : ps_pwrite_all(fd, text, strlen(text), 0);
    if (!r && fsync(fd) < 0) r = -errno;
    if (!r && rename(tmp, path) < 0) r = -errno;
    if (r < 0 && fd >= 0) (void) unlink(tmp);
    if (!r) r = ps_sync_beside(path);
    return r < 0 ? ps_fail(dt, r, "%s: write failed: %s", path, ps_err_str(r)) : 0;
}

int ps_file_replaceable(const char *path, struct ps_detail *dt)
{
    struct stat st;
    if (!*path) return ps_fail(dt, -PS_EUSAGE, "the name of a file was expected, not nothing");
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return ps_fail(dt, -PS_EUSAGE, "%s is there and no regular file; give another name", path);
    const int fd = ps_temp_beside(path, dt);
    if (fd < 0) return fd;
    (void) close(fd);
    return 0;
}
