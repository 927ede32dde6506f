/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that appears under its name only when everything in it is on the disk. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/convert.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#ifndef RENAME_NOREPLACE
enum { RENAME_NOREPLACE = 1, RENAME_EXCHANGE = 2 };
#endif
#define COPY_BYTES_MAX (1ull << 30)

static int path_error(struct ps_detail *dt, int e, const char *what, const char *path)
{
    return ps_fail(dt, -e, "%s: %s: %s", path, what, strerror(e));
}

/* Whether convert makes a file of that name; anything else in a packed model's folder is its user's. */
static bool is_ours(const char *name)
{
    for (size_t i = 0; ps_side_files[i]; i++)
        if (!strcmp(name, ps_side_files[i])) return true;
    return !strcmp(name, PS_PACK_FILE) || !strcmp(name, "config.json");
}

/* Only what is ours. Returns 0 when the folder is gone. */
static int remove_ours(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return errno == ENOENT ? 0 : -errno;
    const struct dirent *e;
    while ((e = readdir(d)))
        if (is_ours(e->d_name)) (void) unlinkat(dirfd(d), e->d_name, 0);
    (void) closedir(d);
    return rmdir(path) < 0 ? -errno : 0;
}

struct holds {
    bool ours, theirs;
};
static int look_into(const char *path, struct holds *ret)
{
    DIR *d = opendir(path);
    if (!d) return -errno;
    *ret = (struct holds) { 0 };
    const struct dirent *e;
    while ((e = readdir(d)))
        if (is_ours(e->d_name))
            ret->ours = true;
        else if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            ret->theirs = true;
    (void) closedir(d);
    return 0;
}

static bool is_empty(const char *path)
{
    struct holds h;
    return look_into(path, &h) == 0 && !h.ours && !h.theirs;
}

/* What a run that was killed may leave beside DST, NAME and its process's number: a model that is not complete, or, between two renames,
 * the one that was to be replaced. */
static const char *leftover(const char *name)
{
    if (!strncmp(name, ".partial.", 9))
        return "left over from an interrupted conversion (or one that is running); if none is";
    if (!strncmp(name, ".old.", 5) && name[5] && strspn(name + 5, "0123456789") == strlen(name + 5))
        return "an earlier DST, put aside by an interrupted conversion (or one that is running); "
               "if none is, and DST is as it should be";
    return NULL;
}

/* Whether a lock that is free is free for certain: on these file systems locks are this machine's, whatever container takes them (but where it
 * is this machine that exports one: another's packing would fail there, at its last rename). */
static bool locks_are_local(int fd)
{
    static const uint32_t known[] = { 0xef53 /* ext */,
                                      0x58465342 /* XFS */,
                                      0x9123683e /* Btrfs */,
                                      0xf2f52010 /* F2FS */,
                                      0x2fc12fc1 /* ZFS */,
                                      0x01021994 /* tmpfs */,
                                      0x794c7630 /* overlayfs */ };
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0) return false;
    for (size_t i = 0; i < PS_ARRAY_LEN(known); i++)
        if ((uint32_t) fs.f_type == known[i]) return true;
    return false;
}

/* Removes a folder NAME.partial.PID, of which `suffix` is the last part, if its maker is gone (it would hold the lock) and nothing else is in it. */
static bool remove_abandoned(const char *path, const char *suffix)
{
    struct holds h;
    struct stat st, now;
    if (strncmp(suffix, ".partial.", 9) != 0) return false;
    suffix += 9;
    if (!*suffix || strspn(suffix, "0123456789.") != strlen(suffix)) return false;
    ps_auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || !locks_are_local(fd) ||
        flock(fd, LOCK_EX | LOCK_NB) < 0)
        return false;
    /* Renamed since it was opened, and another one made: that one is not what is locked. */
    if (lstat(path, &now) < 0 || now.st_dev != st.st_dev || now.st_ino != st.st_ino) return false;
    /* A model that is whole is nobody's rubbish. */
    return !ps_pack_opens(path) && look_into(path, &h) == 0 && !h.theirs && remove_ours(path) == 0;
}

static void tell_removed(const char *path, void (*warn)(void *ud, const char *text), void *ud)
{
    char text[PATH_MAX + 100];
    (void) snprintf(text, sizeof text, "%s was left over from an interrupted conversion: removed",
                    path);
    if (warn) warn(ud, text);
}

void ps_outdir_sweep(const char *folder, void (*warn)(void *ud, const char *text), void *ud)
{
    char path[PATH_MAX];
    DIR *d = opendir(folder);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        const char *suffix = strstr(e->d_name, ".partial.");
        int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (suffix && n > 0 && (size_t) n < sizeof path && remove_abandoned(path, suffix))
            tell_removed(path, warn, ud);
    }
    if (d) (void) closedir(d);
}

/* Removes folders that a killed run left beside dst, or tells of them. */
static void look_for_leftovers(const char *dst, void (*warn)(void *ud, const char *text), void *ud)
{
    char parent[PATH_MAX], text[PATH_MAX + 400];
    const char *slash = strrchr(dst, '/'), *base = slash ? slash + 1 : dst, *what;
    (void) snprintf(parent, sizeof parent, "%.*s", slash ? (int) (slash - dst + 1) : 1,
                    slash ? dst : ".");
    DIR *d = opendir(parent);
    const struct dirent *e;
    size_t n = strlen(base), n_text;
    while (d && (e = readdir(d)))
        if (!strncmp(e->d_name, base, n) && (what = leftover(e->d_name + n))) {
            struct holds h = { 0 };
            (void) snprintf(text, sizeof text, "%s%s", slash ? parent : "", e->d_name);
            if (remove_abandoned(text, e->d_name + n)) {
                tell_removed(text, warn, ud);
                continue;
            }
            (void) !look_into(text, &h);
            n_text = strlen(text);
            (void) snprintf(text + n_text, sizeof text - n_text, ": %s, %s", what,
                            h.theirs ? "it has files of an earlier DST that convert did not write: "
                                       "move them away, then remove it"
                                     : "remove it");
            if (warn) warn(ud, text);
        }
    if (d) (void) closedir(d);
}

static int check_dst(const char *dst, bool overwrite, bool *replace, struct ps_detail *dt)
{
    struct stat st;
    *replace = false;
    if (lstat(dst, &st) < 0)
        return errno == ENOENT ? 0 : path_error(dt, errno, "cannot be looked at", dst);
    if (!overwrite)
        return ps_fail(dt, -EEXIST,
                       "%s exists: give another name, or --overwrite to replace a packed model",
                       dst);
    if (!S_ISDIR(st.st_mode))
        return ps_fail(dt, -EEXIST, "%s is not a folder and is not replaced", dst);
    if (!ps_pack_is(dst) && !is_empty(dst))
        return ps_fail(dt, -EEXIST,
                       "%s is not a packed model: it is not replaced, even with --overwrite; "
                       "remove it yourself or give another name",
                       dst);
    *replace = true;
    return 0;
}

/* Makes it, and locks it, so that others know whether its maker lives: 1 if another name is needed. */
static int make_locked(const char *path, int *ret_fd)
{
    struct stat a, b;
    if (mkdir(path, 0777) < 0) return errno == EEXIST ? 1 : -errno;
    ps_auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        int e = errno;
        (void) rmdir(path);
        return e == ENOENT ? 1 : -e;
    }
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    /* Somebody took it for abandoned before it was locked. */
    if ((!locked && errno == EWOULDBLOCK) || fstat(fd, &a) < 0 || lstat(path, &b) < 0 ||
        a.st_dev != b.st_dev || a.st_ino != b.st_ino)
        return 1;
    *ret_fd = locked ? PS_TAKE_FD(fd) : -1;
    return 0;
}

int ps_outdir_begin(const char *dst, bool overwrite, struct ps_outdir *ret,
                    void (*warn)(void *ud, const char *text), void *ud, struct ps_detail *dt)
{
    size_t n = strlen(dst);
    while (n > 1 && dst[n - 1] == '/') n--;
    if (n == 0 || n > PATH_MAX - 256) return ps_fail(dt, -EINVAL, "DST: not a usable path");
    ps_auto_free char *name = ps_calloc(n + 1, 1), *tmp = ps_calloc(n + 64, 1);
    if (!name || !tmp) return ps_fail(dt, -ENOMEM, "out of memory");
    memcpy(name, dst, n);
    ps_auto_free char *parent = NULL;
    int r = ps_folder_of(name, &parent);
    if (r < 0) return ps_fail(dt, r, "out of memory");
    if ((r = check_dst(name, overwrite, &ret->replace, dt)) < 0) return r;
    look_for_leftovers(name, warn, ud);
    r = 1;
    for (int k = 0; r > 0 && k < 100; k++) {
        (void) snprintf(tmp, n + 64, k ? "%s.partial.%ld.%d" : "%s.partial.%ld", name,
                        (long) getpid(), k);
        r = make_locked(tmp, &ret->lock);
    }
    if (r > 0) return path_error(dt, EEXIST, "the folder cannot be made", tmp);
    if (r == -ENOENT)
        return ps_fail(dt, r, "%s cannot be made: its folder %s is not there; make that first",
                       name, parent);
    if (r < 0)
        return ps_fail(dt, r, "%s: a folder cannot be made in %s: %s", name, parent, strerror(-r));
    ret->dst = PS_TAKE(name);
    ret->tmp = PS_TAKE(tmp);
    return 0;
}

static int open_new(const struct ps_outdir *d, const char *name, char *path, size_t cap,
                    int *ret_fd, struct ps_detail *dt)
{
    int n = snprintf(path, cap, "%s/%s", d->tmp, name);
    if (n < 0 || (size_t) n >= cap) return ps_fail(dt, -ENAMETOOLONG, "%s: too long", d->tmp);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return path_error(dt, errno, "cannot be made", path);
    *ret_fd = fd;
    return 0;
}

int ps_outdir_put(const struct ps_outdir *d, const char *name, const void *bytes, size_t n,
                  struct ps_detail *dt)
{
    char path[PATH_MAX];
    ps_auto_close int fd = -EBADF;
    int r = open_new(d, name, path, sizeof path, &fd, dt);
    if (r < 0) return r;
    if ((r = ps_pwrite_all(fd, bytes, n, 0)) < 0) return path_error(dt, -r, "write", path);
    return fsync(fd) < 0 ? path_error(dt, errno, "fsync", path) : 0;
}

int ps_outdir_copy(const struct ps_outdir *d, const char *folder, const char *name,
                   struct ps_detail *dt)
{
    char from[PATH_MAX], path[PATH_MAX], buf[16384];
    struct stat st;
    int n = snprintf(from, sizeof from, "%s/%s", folder, name);
    if (n < 0 || (size_t) n >= sizeof from)
        return ps_fail(dt, -ENAMETOOLONG, "%s: too long", folder);
    ssize_t got = 0;
    ps_auto_close int in = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (in < 0) return errno == ENOENT ? 0 : path_error(dt, errno, "cannot be opened", from);
    if (fstat(in, &st) < 0) return path_error(dt, errno, "fstat", from);
    if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size > COPY_BYTES_MAX)
        return ps_fail(dt, -PS_EFORMAT, "%s is no regular file of a plausible size", from);
    ps_auto_close int fd = -EBADF;
    int r = open_new(d, name, path, sizeof path, &fd, dt);
    if (r < 0) return r;
    for (uint64_t at = 0;; at += (uint64_t) got) {
        got = read(in, buf, sizeof buf);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return path_error(dt, errno, "read", from);
        if (got == 0) break;
        if (at + (uint64_t) got > COPY_BYTES_MAX)
            return ps_fail(dt, -PS_EFORMAT, "%s grows while it is read", from);
        if ((r = ps_pwrite_all(fd, buf, (size_t) got, at)) < 0)
            return path_error(dt, -r, "write", path);
    }
    return fsync(fd) < 0 ? path_error(dt, errno, "fsync", path) : 0;
}

static int rename2(const char *from, const char *to, unsigned flags)
{
#ifdef SYS_renameat2
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags) == 0) return 0;
    return -errno;
#else
    return -ENOSYS;
#endif
}

/* Onto a name that is free. */
static int rename_new(const char *from, const char *to)
{
    struct stat st;
    int r = rename2(from, to, RENAME_NOREPLACE);
    if (r == -EINVAL || r == -ENOSYS) /* an older file system: a small race remains */
        r = lstat(to, &st) == 0 ? -EEXIST : rename(from, to) < 0 ? -errno : 0;
    return r;
}

/* What is not ours moves along into the new folder; what cannot stays where it is. */
static void move_theirs(const char *from, const char *to)
{
    char a[PATH_MAX], b[PATH_MAX];
    DIR *d = opendir(from);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        if (is_ours(e->d_name) || !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        int n = snprintf(a, sizeof a, "%s/%s", from, e->d_name);
        (void) snprintf(b, sizeof b, "%s/%s", to, e->d_name); /* shorter than a */
        if (n > 0 && (size_t) n < sizeof a) (void) !rename_new(a, b);
    }
    if (d) (void) closedir(d);
}

/* Two folders change names; where the file system cannot do that at once, the old one is put aside first and its new name
 * said if the second step fails, so that neither is ever lost. */
static int exchange(struct ps_outdir *d, struct ps_detail *dt)
{
    int r = rename2(d->tmp, d->dst, RENAME_EXCHANGE);
    if (r == 0) return 0;
    if (r != -EINVAL && r != -ENOSYS) return path_error(dt, -r, "rename", d->dst);
    char old[PATH_MAX];
    (void) snprintf(old, sizeof old, "%s.old.%ld", d->dst, (long) getpid());
    if (rename(d->dst, old) < 0) return path_error(dt, errno, "rename", d->dst);
    if (rename(d->tmp, d->dst) < 0) {
        int e = errno;
        if (rename(old, d->dst) < 0)
            return ps_fail(dt, -e, "%s: rename: %s; the earlier model is now %s", d->dst,
                           strerror(e), old);
        return path_error(dt, e, "rename", d->dst);
    }
    if (rename(old, d->tmp) < 0)
        return path_error(dt, errno, "the earlier model cannot be renamed", old);
    return 0;
}

int ps_outdir_commit(struct ps_outdir *d, void (*warn)(void *ud, const char *text), void *ud,
                     struct ps_detail *dt)
{
    ps_auto_free char *parent =
        NULL; /* found first: after the rename nothing may fail for want of memory */
    int r = ps_folder_of(d->dst, &parent);
    if (r < 0) return ps_fail(dt, r, "out of memory");
    r = ps_sync_folder(d->tmp);
    if (r < 0) return path_error(dt, -r, "fsync", d->tmp);
    if (d->replace) {
        if ((r = exchange(d, dt)) < 0) return r;
        move_theirs(d->tmp, d->dst);
        r = ps_sync_folder(d->dst);
        if (!r) r = remove_ours(d->tmp);
    } else {
        r = rename_new(d->tmp, d->dst);
        if (r < 0) return path_error(dt, -r, "rename", d->dst);
    }
    if (r < 0 && warn) {
        char text[PATH_MAX + 200];
        (void) snprintf(text, sizeof text,
                        "%s: what was in the earlier folder could not all be moved or removed: %s",
                        d->tmp, strerror(-r));
        warn(ud, text);
    }
    free(d->tmp);
    d->tmp = NULL;
    r = ps_sync_folder(parent);
    return r < 0 ? path_error(dt, -r, "fsync", parent) : 0;
}

void ps_outdir_done(struct ps_outdir *d, struct ps_detail *dt)
{
    int r = d->tmp ? remove_ours(d->tmp) : 0;
    if (r < 0) (void) ps_fail_in(dt, r, "%s is left behind (%s)", d->tmp, strerror(-r));
    if (d->dst && d->lock >= 0) (void) close(d->lock);
    free(d->tmp);
    free(d->dst);
    *d = (struct ps_outdir) { 0 };
}
