/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/store_files.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* A transfer that makes no progress is asked for again, but not for ever. */
enum { ALIGN = 4096, ALIGN_BUFFERED = 512, TRIES = 64, TRIES_BUSY = 10000 };

uint32_t ps_dio_align(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx sx = { 0 };
    if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) && (sx.stx_mask & STATX_DIOALIGN)) {
        uint32_t a = sx.stx_dio_mem_align, b = sx.stx_dio_offset_align;
        if (!a || !b) return 0;
        a = a > b ? a : b;
        if (!(a & (a - 1)) && a <= 1u << 20) return a < 512 ? 512 : a;
    }
#endif
    return ALIGN;
}

/* Some file systems take the flag at open and refuse the first transfer; better to learn it here. */
static bool direct_works(int fd, uint32_t align, uint64_t size)
{
    if (size < align) return true; /* nothing to try it on */
    ps_auto_free void *p = ps_aligned(align, align);
    if (!p) return true;
    return pread(fd, p, align, 0) >= 0 || errno != EINVAL;
}

int ps_store_unnamed(const char *folder, int *ret_fd, char ret_open_as[static 32],
                     struct ps_detail *dt)
{
    ps_auto_free char *beside = ps_concat(folder, "/", "penstock");
    int fd = beside ? ps_temp_beside(beside, dt) : -ENOMEM;
    if (fd < 0) return fd;
    (void) snprintf(ret_open_as, 32, "/proc/self/fd/%d", fd);
    *ret_fd = fd;
    return 0;
}

static int open_one(const struct ps_store_cfg *cfg, struct ps_store_file *file, int *ret_fd,
                    bool *ret_direct, uint32_t *ret_align, struct ps_detail *dt)
{
    const int flags = (file->write ? O_RDWR : O_RDONLY) | O_CLOEXEC;
    const char *open_as = file->open_as ? file->open_as : file->path;
    struct stat st;
    /* Looked at before it is opened: opening a FIFO would wait for its other end. */
    bool odd = !stat(open_as, &st) && !S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode);
    if (odd) return ps_fail(dt, -EINVAL, "%s is not a regular file", file->path);
    ps_auto_close int fd = open(open_as, flags);
    if (fd < 0)
        return ps_fail(dt, -errno, "opening %s for %s: %s", file->path,
                       file->write ? "reading and writing" : "reading", ps_err_str(errno));
    off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0)
        return ps_fail(dt, -errno, "asking %s for its size: %s", file->path, ps_err_str(errno));
    *ret_direct = false;
    *ret_align = ALIGN_BUFFERED;
    uint32_t align = cfg->no_direct ? 0 : ps_dio_align(fd);
    if (align) {
        ps_auto_close int d = open(open_as, flags | O_DIRECT);
        if (d >= 0 && direct_works(d, align, (uint64_t) size)) {
            int buffered = fd;
            fd = d;
            d = buffered; /* closed on the way out */
            *ret_direct = true;
            *ret_align = align;
        }
    }
    file->size = (uint64_t) size;
    *ret_fd = PS_TAKE_FD(fd);
    return 0;
}

int ps_files_open(const struct ps_store_cfg *cfg, struct ps_files *ret, struct ps_store_info *info,
                  struct ps_detail *dt)
{
    struct ps_files f = { 0 };
    uint32_t most = ALIGN_BUFFERED;
    bool all = true;
    for (; f.n < cfg->n_files; f.n++) {
        uint32_t align = ALIGN_BUFFERED;
        int r = open_one(cfg, &cfg->files[f.n], &f.fd[f.n], &f.direct[f.n], &align, dt);
        if (r < 0) {
            ps_files_close(&f);
            return r;
        }
        if (align > most) most = align;
        all = all && f.direct[f.n];
    }
    info->align = most;
    info->direct = all;
    *ret = f;
    return 0;
}

void ps_files_close(struct ps_files *f)
{
    while (f->n) (void) close(f->fd[--f->n]);
}

static bool over(struct ps_io *io, int64_t res)
{
    io->res = res;
    return true;
}

bool ps_io_took(struct ps_io *io, int64_t result, const struct ps_files *f, uint32_t align)
{
    if (result == -EINTR || result == -EAGAIN)
        return ++io->tries_ > TRIES_BUSY ? over(io, result) : false;
    if (result < 0) return over(io, result);
    if (result == 0) return over(io, io->dir == PS_IO_READ ? -ENODATA : -EIO);
    uint32_t done = io->done_ + (uint32_t) result;
    if (done >= io->len) {
        io->done_ = io->len;
        return over(io, io->len);
    }
    if (f->direct[io->file]) done &= ~(align - 1); /* the next call has to start aligned */
    io->tries_ = done == io->done_ ? io->tries_ + 1 : 0;
    io->done_ = done;
    /* Short again and again at one place: the file's last, unaligned piece. */
    return io->tries_ > TRIES ? over(io, io->dir == PS_IO_READ ? -ENODATA : -EIO) : false;
}
