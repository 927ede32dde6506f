/* SPDX-License-Identifier: Apache-2.0 */
/* The weights file. Each thread takes the next chunk, has it filled, sums it and writes it at its place, so that reading,
 * converting and writing overlap without queues. The room on the disk is taken first. The header, which holds the sums, comes last:
 * until then the file begins with zeros and no reader accepts it. */
#include "engine/checkpoint/pack_write.h"
#include "engine/base/ps_mem.h"
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <xxhash.h>

enum { WORKERS_MAX = 8 };
#define WORK_BYTES_MAX (192ull << 20) /* of all workers' buffers */

struct run {
    struct ps_pack_job *job;
    const struct ps_convert_opt *opt;
    char path[PATH_MAX];
    int fd, fd_direct; /* fd_direct: -1 where the file system cannot */
    uint64_t base;     /* where tensors begin */
    _Atomic uint32_t next;
    _Atomic bool failed;
    pthread_mutex_t lock; /* what follows, the head and progress() */
    int err;
    uint32_t err_chunk;
    struct ps_detail err_text;
    uint64_t done;
};

struct worker {
    struct run *run;
    char *chunk, *scratch;
    uint64_t dirty_off; /* buffered writing: the chunk before */
    uint32_t dirty_len;
    pthread_t thread;
};

static int write_error(const struct run *run, int e, uint64_t off, struct ps_detail *dt)
{
    return ps_fail(dt, -e, "%s: write at byte %llu: %s", run->path, (unsigned long long) off,
                   strerror(e));
}

static int write_at(const struct run *run, const char *buf, size_t n, uint64_t off,
                    struct ps_detail *dt)
{
    for (size_t done = 0; done < n;) {
        int fd = run->fd_direct >= 0 && done % PS_PACK_ALIGN == 0 ? run->fd_direct : run->fd;
        ssize_t w = pwrite(fd, buf + done, n - done, (off_t) (off + done));
        if (w < 0 && errno == EINVAL && fd == run->fd_direct) /* no direct I/O after all */
            w = pwrite(run->fd, buf + done, n - done, (off_t) (off + done));
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return write_error(run, errno, off + done, dt);
        if (w == 0) return write_error(run, ENOSPC, off + done, dt);
        done += (size_t) w;
    }
    return 0;
}

/* Without O_DIRECT the page cache must not fill: start writing this chunk, wait for the one before and let it go. */
static void flush_behind(struct worker *w, uint64_t off, uint32_t len)
{
    int fd = w->run->fd;
    (void) sync_file_range(fd, (off64_t) off, len, SYNC_FILE_RANGE_WRITE);
    if (w->dirty_len) {
        (void) sync_file_range(fd, (off64_t) w->dirty_off, w->dirty_len,
                               SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                   SYNC_FILE_RANGE_WAIT_AFTER);
        (void) posix_fadvise(fd, (off_t) w->dirty_off, w->dirty_len, POSIX_FADV_DONTNEED);
    }
    w->dirty_off = off;
    w->dirty_len = len;
}

static int fill_chunk(const struct worker *w, const struct ps_chunk *c, struct ps_detail *dt)
{
    const struct ps_pack_job *job = w->run->job;
    char *at = w->chunk;
    for (uint32_t k = 0; k < c->n_tensors; k++) {
        const struct ps_packed_tensor *t = &job->p->tensors[c->first_tensor + k];
        uint64_t cols = t->t.cols, elem0 = 0, n = (uint64_t) t->t.rows * cols;
        if (c->n_tensors == 1) {
            elem0 = c->row0 * cols;
            n = c->rows * cols;
        }
        size_t bytes = n * ps_dtype_bytes(t->dtype);
        size_t whole = PS_ROUND_UP(bytes, (size_t) PS_PACK_ALIGN);
        int r = job->fill(job->ud, c->first_tensor + k, elem0, n, at, w->scratch, dt);
        if (r < 0) return r;
        memset(at + bytes, 0, whole - bytes);
        at += whole;
    }
    return 0;
}

static int one_chunk(struct worker *w, uint32_t i, struct ps_detail *dt)
{
    struct run *run = w->run;
    struct ps_chunk *c = &run->job->p->chunks[i];
    int r = ps_pack_stopped(run->opt, dt);
    if (r < 0 || (r = fill_chunk(w, c, dt)) < 0) return r;
    c->xxh3 = XXH3_64bits(w->chunk, c->len);
    if ((r = write_at(run, w->chunk, c->len, run->base + c->off, dt)) < 0) return r;
    if (run->fd_direct < 0) flush_behind(w, run->base + c->off, c->len);
    (void) pthread_mutex_lock(&run->lock);
    ps_pack_put_sum(run->job->head, i, c->xxh3);
    run->done += c->len;
    if (run->opt->progress) run->opt->progress(run->opt->ud, run->done, run->job->p->file_bytes);
    (void) pthread_mutex_unlock(&run->lock);
    return 0;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct run *run = w->run;
    for (;;) {
        struct ps_detail dt = { "" };
        uint32_t i = atomic_fetch_add(&run->next, 1);
        if (i >= run->job->p->n_chunks || atomic_load(&run->failed)) break;
        int r = one_chunk(w, i, &dt);
        if (r >= 0) continue;
        /* Of several failures the one that stands first in the file is told. */
        (void) pthread_mutex_lock(&run->lock);
        if (!run->err || i < run->err_chunk) {
            run->err = r;
            run->err_chunk = i;
            run->err_text = dt;
        }
        (void) pthread_mutex_unlock(&run->lock);
        atomic_store(&run->failed, true);
    }
    return NULL;
}

static unsigned count_workers(const struct run *run)
{
    uint64_t each = (uint64_t) run->job->p->chunk_bytes + run->job->scratch_bytes;
    uint64_t most = WORK_BYTES_MAX / (each ? each : 1);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    /* Twice the cores: half of them wait for the disk. */
    uint64_t n = run->opt->threads ? run->opt->threads : cores > 1 ? 2 * (uint64_t) cores : 2;
    if (n > most) n = most;
    if (n > WORKERS_MAX) n = WORKERS_MAX;
    if (n > run->job->p->n_chunks) n = run->job->p->n_chunks;
    return n ? (unsigned) n : 1;
}

/* Runs the workers; the caller's thread is the first of them. */
static int run_workers(struct run *run, struct ps_detail *dt)
{
    struct worker w[WORKERS_MAX] = { 0 };
    unsigned n = count_workers(run), started = 1;
    int r = 0;
    for (unsigned i = 0; i < n; i++) {
        w[i].run = run;
        w[i].chunk = ps_aligned(PS_PACK_ALIGN, run->job->p->chunk_bytes);
        w[i].scratch = ps_aligned(PS_PACK_ALIGN, run->job->scratch_bytes);
        if (!w[i].chunk || !w[i].scratch)
            r = ps_fail(dt, -ENOMEM, "out of memory for buffers of %u and %zu bytes",
                        run->job->p->chunk_bytes, run->job->scratch_bytes);
    }
    sigset_t all, old;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the caller's */
    while (r == 0 && started < n && !pthread_create(&w[started].thread, NULL, work, &w[started]))
        started++;
    (void) pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r == 0) (void) work(&w[0]);
    for (unsigned i = 1; i < started; i++) (void) pthread_join(w[i].thread, NULL);
    for (unsigned i = 0; i < n; i++) {
        free(w[i].chunk);
        free(w[i].scratch);
    }
    if (r == 0 && run->err) {
        if (dt) *dt = run->err_text;
        return run->err;
    }
    return r;
}

static int take_room(const struct run *run, uint64_t bytes, struct ps_detail *dt)
{
    struct statvfs vfs;
    if (fstatvfs(run->fd, &vfs) == 0 && vfs.f_blocks) {
        uint64_t room = (uint64_t) vfs.f_bavail * vfs.f_frsize;
        if (room < bytes)
            return ps_fail(dt, -ENOSPC,
                           "%s: no space left: %.1f MiB are needed, the disk has %.1f MiB free",
                           run->path, (double) bytes / 1048576, (double) room / 1048576);
    }
    int r;
    do r = fallocate(run->fd, 0, 0, (off_t) bytes);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
        int e = errno;
        return ps_fail(dt, -e, "%s: taking %.1f MiB of the disk: %s", run->path,
                       (double) bytes / 1048576, strerror(e));
    }
    if (r < 0 && ftruncate(run->fd, (off_t) bytes) < 0) return write_error(run, errno, 0, dt);
    return 0;
}

static int write_file(struct run *run, struct ps_detail *dt)
{
    int r = take_room(run, run->base + run->job->p->file_bytes, dt);
    if (r < 0 || (r = run_workers(run, dt)) < 0) return r;
    if ((r = ps_pack_stopped(run->opt, dt)) < 0) return r;
    if ((r = write_at(run, run->job->head->text, run->job->head->len, 0, dt)) < 0) return r;
    if (fsync(run->fd) < 0) {
        int e = errno;
        return ps_fail(dt, -e, "%s: fsync: %s", run->path, strerror(e));
    }
    return 0;
}

int ps_pack_write(const struct ps_outdir *d, struct ps_pack_job *job,
                  const struct ps_convert_opt *opt, struct ps_detail *dt)
{
    struct run run = { .job = job, .opt = opt, .base = job->head->len };
    int n = snprintf(run.path, sizeof run.path, "%s/" PS_PACK_FILE, d->tmp);
    if (n < 0 || (size_t) n >= sizeof run.path)
        return ps_fail(dt, -ENAMETOOLONG, "%s: too long", d->tmp);
    run.fd = open(run.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (run.fd < 0) {
        int e = errno;
        return ps_fail(dt, -e, "%s: cannot be made: %s", run.path, strerror(e));
    }
    run.fd_direct = open(run.path, O_WRONLY | O_CLOEXEC | O_DIRECT);
    (void) pthread_mutex_init(&run.lock, NULL);
    int r = write_file(&run, dt);
    (void) pthread_mutex_destroy(&run.lock);
    if (run.fd_direct >= 0) (void) close(run.fd_direct);
    if (close(run.fd) < 0 && r == 0) r = write_error(&run, errno, 0, dt);
    return r;
}
