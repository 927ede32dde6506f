/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_mem.h"
#include "offload/arena.h"
#include "offload/dev_exec.h"
#include "offload/machine.h"
#include "offload/probe_slices.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH = 64, MAX_THREADS = 256 };

void ps_slices_add(struct ps_slices *s, double work, double sec)
{
    s->sum.total_work += work;
    s->sum.total_s += sec;
    if (sec > 0 && s->sum.slices < PS_SLICES) s->rate[s->sum.slices++] = work / sec;
}

/* Of the slices in their order. */
static bool fell(const double *rate, unsigned n)
{
    double first = rate[0], last = 0;
    for (unsigned i = 0; i < n / 3; i++) {
        if (rate[i] < first) first = rate[i];
        if (rate[n - 1 - i] > last) last = rate[n - 1 - i];
    }
    return n >= 6 && last < first * (1 - PS_PROBE_NOISY);
}

void ps_slices_sum(const struct ps_slices *s, struct ps_rate *ret)
{
    const unsigned n = s->sum.slices;
    double rate[PS_SLICES];
    *ret = s->sum;
    if (!n) return;
    memcpy(rate, s->rate, n * sizeof rate[0]);
    qsort(rate, n, sizeof rate[0], ps_ascending);
    ret->median = n % 2 ? rate[n / 2] : (rate[n / 2 - 1] + rate[n / 2]) / 2;
    ret->min = rate[0];
    ret->max = rate[n - 1];
    ret->noisy = rate[n - 1 - n / 4] - rate[n / 4] > PS_PROBE_NOISY * ret->median;
    ret->throttled = fell(s->rate, n);
}

double ps_probe_since_s(uint64_t ns) { return (double) (ps_now_ns() - ns) * 1e-9; }

int ps_probe_repeat(int (*fn)(void *ud), void *ud, double work, double max_s, struct ps_rate *ret)
{
    struct ps_slices s = { 0 };
    int r = fn(ud);
    const uint64_t begin = ps_now_ns();
    for (unsigned i = 0; r >= 0 && i < PS_SLICES && (i < 3 || ps_probe_since_s(begin) < max_s);
         i++) {
        uint64_t t0 = ps_now_ns();
        r = fn(ud);
        ps_slices_add(&s, work, ps_probe_since_s(t0));
    }
    if (r < 0) return r;
    ps_slices_sum(&s, ret);
    return 0;
}

/* ---- DRAM */

typedef uint64_t lanes __attribute__((vector_size(32)));
struct reader {
    lanes *p;
    size_t n;
    uint64_t sum;
    pthread_t thread;
};
struct dram {
    struct reader *r;
    unsigned n;
    void *(*pass)(void *reader);
};

static void *read_all(void *arg)
{
    struct reader *r = arg;
    lanes a = { 0 }, b = a, c = a, d = a;
    for (size_t i = 0; i + 4 <= r->n; i += 4) {
        a += r->p[i];
        b += r->p[i + 1];
        c += r->p[i + 2];
        d += r->p[i + 3];
    }
    a += b + c + d;
    r->sum = a[0] + a[1] + a[2] + a[3];
    return NULL;
}

static void *copy_half(void *arg)
{
    struct reader *r = arg;
    memcpy(r->p + r->n / 2, r->p, r->n / 2 * sizeof *r->p);
    return NULL;
}

/* Threads are started anew for every pass: some 50 microseconds in some 20 milliseconds. */
static int dram_pass(void *ud)
{
    struct dram *d = ud;
    unsigned started = 1;
    int r = 0;
    for (; started < d->n && !r; started += !r)
        r = pthread_create(&d->r[started].thread, NULL, d->pass, &d->r[started]);
    (void) d->pass(&d->r[0]);
    for (unsigned i = 1; i < started; i++) (void) pthread_join(d->r[i].thread, NULL);
    return -r;
}

static int dram(unsigned threads, uint64_t bytes, double max_s, void *(*pass)(void *reader),
                struct ps_rate *ret, struct ps_detail *dt)
{
    if (!threads || threads > MAX_THREADS || bytes < 1 << 20)
        return ps_fail(dt, -EINVAL, "a DRAM probe takes 1 to %d threads and at least 1 MiB",
                       MAX_THREADS);
    ps_auto_arena struct ps_arena *a = NULL;
    struct ps_arena_cfg cfg = { .bytes = bytes, .populate = true };
    int r = ps_arena_open(&cfg, &a, dt);
    if (r < 0) return r;
    ps_auto_free struct reader *readers = ps_calloc(threads, sizeof *readers);
    if (!readers) return ps_fail(dt, -ENOMEM, "no memory for a DRAM probe");
    size_t part = bytes / threads / 4096 * 4096;
    memset(ps_arena_base(a), 1, bytes); /* not the shared zero page, whatever the kernel does */
    for (unsigned i = 0; i < threads; i++) {
        readers[i].p = (void *) ((uint8_t *) ps_arena_base(a) + i * part);
        readers[i].n = part / sizeof(lanes);
    }
    struct dram d = { readers, threads, pass };
    r = ps_probe_repeat(dram_pass, &d, (double) part * threads, max_s, ret);
    return r < 0 ? ps_fail(dt, r, "DRAM probe: %s", ps_err_str(r)) : 0;
}

int ps_probe_dram(unsigned threads, uint64_t bytes, double max_s, struct ps_rate *ret,
                  struct ps_detail *dt)
{
    return dram(threads, bytes, max_s, read_all, ret, dt);
}
int ps_probe_dram_copy(unsigned threads, uint64_t bytes, double max_s, struct ps_rate *ret,
                       struct ps_detail *dt)
{
    return dram(threads, bytes, max_s, copy_half, ret, dt);
}

/* ---- disk */

struct disk {
    struct ps_probe_disk how;
    enum ps_io_dir dir;
    const char *path, *open_as; /* open_as: see struct ps_store_file */
    struct ps_store *t;
    struct ps_arena *mem;
    struct ps_io *ios;
    uint64_t file_bytes;
};

static void disk_done(struct disk *d)
{
    d->t = ps_store_close(d->t);
    ps_arena_close(d->mem);
    free(d->ios);
}

static int disk_open(struct disk *d, struct ps_detail *dt)
{
    if (!d->how.io_bytes) d->how.io_bytes = PS_IO_BYTES;
    if (!d->how.depth) d->how.depth = DEPTH;
    if (!(d->how.max_s > 0)) d->how.max_s = 2;
    if (d->how.depth > 1024 || d->how.io_bytes > 64u << 20 || d->how.io_bytes % 4096)
        return ps_fail(dt, -EINVAL,
                       "a disk probe takes up to 1024 transfers of up to 64 MiB, in 4 KiB steps");
    struct ps_arena_cfg ac = { .bytes = (uint64_t) d->how.depth * d->how.io_bytes,
                               .populate = true };
    int r = ps_arena_open(&ac, &d->mem, dt);
    if (r < 0) return r;
    memset(ps_arena_base(d->mem), 0x5a, ac.bytes); /* some drives are quicker with zeros */
    d->ios = ps_calloc(d->how.depth, sizeof *d->ios);
    if (!d->ios) return ps_fail(dt, -ENOMEM, "no memory for a disk probe");
    struct ps_store_file f = { .path = d->path,
                               .open_as = d->open_as,
                               .write = d->dir == PS_IO_WRITE };
    struct ps_store_cfg sc = { .files = &f,
                               .n_files = 1,
                               .depth = d->how.depth,
                               .mem = ps_arena_base(d->mem),
                               .mem_bytes = ac.bytes };
    const struct ps_store_ops *ops = d->how.store ? ps_store_find(d->how.store) : NULL;
    if (d->how.store && !ops) return ps_fail(dt, -EINVAL, "no store is called %s", d->how.store);
    r = ops ? ps_store_open(ops, &sc, &d->t, dt) : ps_store_open_best(&sc, &d->t, NULL, dt);
    d->file_bytes = f.size;
    return r;
}

/* Streams the file's first bytes with the queue kept full. A slice is a sixteenth, but at least a queue: completions come
 * in bursts of up to that. */
static int disk_stream(struct disk *d, uint64_t bytes, struct ps_slices *s, struct ps_detail *dt)
{
    const uint32_t io = d->how.io_bytes;
    uint64_t n = bytes / io, sent = 0, back = 0, slice = n / 16, mark = 0;
    const uint64_t begin = ps_now_ns();
    uint64_t t0 = begin;
    if (slice < d->how.depth) slice = n < d->how.depth ? n : d->how.depth;
    for (uint64_t used = 0; back < n;) {
        struct ps_io *done[64], *p = NULL;
        bool late = ps_probe_since_s(begin) > d->how.max_s && back >= slice * 3;
        if (late) n = sent;
        for (; sent < n && used < d->how.depth; used++, sent++) {
            p = &d->ios[used];
            *p = (struct ps_io) { .dir = d->dir,
                                  .len = io,
                                  .off = sent * io,
                                  .buf = (uint8_t *) ps_arena_base(d->mem) + used * io };
            int r = ps_store_submit(d->t, &p, 1);
            if (r < 0) return ps_fail(dt, r, "probing %s: %s", d->path, ps_err_str(r));
        }
        if (back == n) break;
        int r = ps_store_reap(d->t, done, PS_ARRAY_LEN(done), -1);
        if (r < 0) return ps_fail(dt, r, "probing %s: %s", d->path, ps_err_str(r));
        for (int i = 0; i < r; i++) {
            if (done[i]->res < 0)
                return ps_fail(dt, (int) done[i]->res, "probing %s at offset %llu: %s", d->path,
                               (unsigned long long) done[i]->off, ps_err_str((int) done[i]->res));
            if (sent == n) continue;
            done[i]->off = sent++ * io;
            if (ps_store_submit(d->t, &done[i], 1) != 1) /* there was room: this one has left */
                return ps_fail(dt, -EIO, "probing %s: the store takes no transfer", d->path);
        }
        back += (uint64_t) r;
        if (back - mark < slice) continue;
        uint64_t now = ps_now_ns();
        ps_slices_add(s, (double) ((back - mark) * io), (double) (now - t0) * 1e-9);
        mark = back;
        t0 = now;
    }
    return 0;
}

int ps_probe_disk_file(const char *path, const char *open_as, enum ps_io_dir dir,
                       const struct ps_probe_disk *how, struct ps_rate *ret, bool *ret_direct,
                       struct ps_detail *dt)
{
    struct disk d = { .how = *how, .dir = dir, .path = path, .open_as = open_as };
    struct ps_slices s = { 0 };
    int r = disk_open(&d, dt);
    uint64_t most = how->max_bytes ? how->max_bytes : UINT64_C(1) << 30;
    if (r >= 0 && d.file_bytes < d.how.io_bytes) /* too small for one transfer of this size */
        r = ps_fail(dt, -ENODATA, "%s is too small to measure a disk with (%llu bytes)", path,
                    (unsigned long long) d.file_bytes);
    if (r >= 0) r = disk_stream(&d, d.file_bytes < most ? d.file_bytes : most, &s, dt);
    bool direct = r >= 0 && d.t->info.direct;
    disk_done(&d);
    if (r < 0) return r;
    ps_slices_sum(&s, ret);
    *ret_direct = direct;
    return 0;
}

int ps_probe_disk_read(const char *path, const struct ps_probe_disk *how, struct ps_rate *ret,
                       bool *ret_direct, struct ps_detail *dt)
{
    return ps_probe_disk_file(path, NULL, PS_IO_READ, how, ret, ret_direct, dt);
}

static int write_file(struct disk *d, int fd, uint64_t bytes, struct ps_slices *s, bool *ret_direct,
                      struct ps_detail *dt)
{
    int r = -posix_fallocate(fd, 0, (off_t) bytes);
    if (r < 0) return ps_fail(dt, r, "making room for %s: %s", d->path, ps_err_str(r));
    r = disk_open(d, dt);
    if (r >= 0) r = disk_stream(d, bytes, s, dt);
    if (r >= 0) *ret_direct = d->t->info.direct;
    uint64_t t0 = ps_now_ns();
    if (r >= 0 && fdatasync(fd) < 0)
        r = ps_fail(dt, -errno, "syncing %s: %s", d->path, ps_err_str(errno));
    s->sum.total_s += ps_probe_since_s(t0);
    return r;
}

int ps_probe_disk_write(const char *folder, const struct ps_probe_disk *how, struct ps_rate *ret,
                        bool *ret_direct, struct ps_detail *dt)
{
    uint64_t bytes = how->max_bytes ? how->max_bytes : UINT64_C(256) << 20, left;
    int r = ps_machine_disk_free(folder, &left, dt);
    if (r < 0) return r;
    if (left / 10 < bytes)
        return ps_fail(dt, -ENOSPC, "%s has %llu bytes free, too little to probe it with %llu",
                       folder, (unsigned long long) left, (unsigned long long) bytes);
    char open_as[32];
    ps_auto_close int fd = -1;
    if ((r = ps_store_unnamed(folder, &fd, open_as, dt)) < 0) return r;
    struct disk d = { .how = *how, .dir = PS_IO_WRITE, .path = folder, .open_as = open_as };
    struct ps_slices s = { 0 };
    bool direct = false;
    r = write_file(&d, fd, bytes, &s, &direct, dt);
    disk_done(&d);
    if (r < 0) return r;
    ps_slices_sum(&s, ret);
    *ret_direct = direct;
    return 0;
}
