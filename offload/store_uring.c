/* SPDX-License-Identifier: Apache-2.0 */
/* The io_uring store. The ring has one entry more than the depth: a read of an eventfd is always pending, so that
 * wake() from another thread ends a wait like a completion does. */
#include "engine/base/ps_mem.h"
#include "offload/store_fault.h"
#include "offload/store_files.h"
#include "offload/uring_probe.h"
#include <liburing.h>
#include <sys/eventfd.h>

enum { DEPTH = 64, MAX_PIECES = 1024 };
#define PIECE (UINT64_C(1) << 30) /* the kernel's limit on one registered buffer */

struct uring {
    struct ps_store base;
    struct ps_files files;
    struct ps_faults faults;
    struct io_uring ring;
    bool have_ring, woken, wake_armed;
    int wake_fd;
    uint64_t wake_count; /* what the pending read of wake_fd fills */
    uint8_t *mem;        /* registered, in pieces */
    uint64_t mem_bytes;
    unsigned taken; /* not yet reaped */
    struct ps_io *done, **done_tail;
};

static void ring_close(struct uring *s)
{
    if (s->have_ring) io_uring_queue_exit(&s->ring);
    if (s->wake_fd >= 0) (void) close(s->wake_fd);
    ps_files_close(&s->files);
    free(s);
}

/* Index of the registered piece that holds all of [p, p + len), or -1. */
static int piece_of(const struct uring *s, const void *p, uint32_t len)
{
    if (!s->base.info.fixed_bufs || (const uint8_t *) p < s->mem) return -1;
    uint64_t at = (uint64_t) ((const uint8_t *) p - s->mem);
    if (at >= s->mem_bytes || len > s->mem_bytes - at) return -1;
    uint64_t first = at / PIECE;
    return (at + len - 1) / PIECE == first ? (int) first : -1;
}

static bool queue_io(struct uring *s, struct ps_io *io)
{
    struct io_uring_sqe *e = io_uring_get_sqe(&s->ring);
    if (!e) return false;
    void *buf = ps_io_buf(io);
    uint32_t len = ps_io_len(io);
    uint64_t off = ps_io_off(io);
    int file = (int) io->file, piece = piece_of(s, buf, len);
    if (io->dir == PS_IO_READ && piece >= 0)
        io_uring_prep_read_fixed(e, file, buf, len, off, piece);
    else if (io->dir == PS_IO_READ)
        io_uring_prep_read(e, file, buf, len, off);
    else if (piece >= 0)
        io_uring_prep_write_fixed(e, file, buf, len, off, piece);
    else
        io_uring_prep_write(e, file, buf, len, off);
    io_uring_sqe_set_flags(e, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(e, io);
    return true;
}

static void arm_wake(struct uring *s)
{
    struct io_uring_sqe *e = s->wake_armed ? NULL : io_uring_get_sqe(&s->ring);
    if (!e) return;
    io_uring_prep_read(e, s->wake_fd, &s->wake_count, sizeof s->wake_count, 0);
    io_uring_sqe_set_data(e, NULL);
    s->wake_armed = true;
}

/* Optional: without it (memlock, memory) the kernel maps the pages at every transfer. */
static void register_mem(struct uring *s, const struct ps_store_cfg *cfg)
{
    uint64_t n = (cfg->mem_bytes + PIECE - 1) / PIECE;
    if (!cfg->mem || !n || n > MAX_PIECES) return;
    ps_auto_free struct iovec *v = ps_calloc(n, sizeof *v);
    if (!v) return;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t left = cfg->mem_bytes - i * PIECE;
        v[i] = (struct iovec) { (uint8_t *) cfg->mem + i * PIECE, left < PIECE ? left : PIECE };
    }
    if (io_uring_register_buffers(&s->ring, v, (unsigned) n) < 0) return;
    s->mem = cfg->mem;
    s->mem_bytes = cfg->mem_bytes;
    s->base.info.fixed_bufs = true;
}

static int ring_open(struct uring *s, const struct ps_store_cfg *cfg, struct ps_detail *dt)
{
    /* Completions are handled when this thread asks for them; older kernels do not know the flag. */
    struct io_uring_params p = { .flags = IORING_SETUP_COOP_TASKRUN };
    unsigned entries = s->base.info.depth + 1;
    int r = io_uring_queue_init_params(entries, &s->ring, &p);
    if (r == -EINVAL) {
        p = (struct io_uring_params) { 0 };
        r = io_uring_queue_init_params(entries, &s->ring, &p);
    }
    if (r < 0) return ps_uring_refused(dt, r);
    s->have_ring = true;
    r = io_uring_enter((unsigned) s->ring.ring_fd, 0, 0, 0, NULL); /* allowed? */
    if (r < 0) return ps_uring_refused(dt, r);
    if (!(p.features & IORING_FEAT_EXT_ARG))
        return ps_fail(dt, -PS_EUNSUPPORTED, "io_uring of this kernel is too old (before 5.11)");
    r = io_uring_register_files(&s->ring, s->files.fd, s->files.n);
    if (r < 0) return ps_uring_refused(dt, r);
    s->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (s->wake_fd < 0)
        return ps_fail(dt, -errno, "io_uring: making an eventfd: %s", ps_err_str(errno));
    register_mem(s, cfg);
    return 0;
}

static int uring_open(const struct ps_store_cfg *cfg, struct ps_store **ret, struct ps_detail *dt)
{
    struct uring *s = ps_calloc(1, sizeof *s);
    if (!s) return ps_fail(dt, -ENOMEM, "no memory for the io_uring store");
    s->wake_fd = -EBADF;
    s->done_tail = &s->done;
    s->base.ops = &ps_store_uring;
    s->base.info.depth = cfg->depth ? cfg->depth : DEPTH;
    int r = ps_faults_parse(cfg->fault, &s->faults, dt);
    if (r >= 0) r = ps_files_open(cfg, &s->files, &s->base.info, dt);
    if (r >= 0) r = ring_open(s, cfg, dt);
    if (r < 0) {
        ring_close(s);
        return r;
    }
    *ret = &s->base;
    return 0;
}

/* Entries that the kernel does not take now (EAGAIN, EBUSY) stay in the ring for the next call. */
static int uring_submit(struct ps_store *t, struct ps_io *const *ios, unsigned n)
{
    struct uring *s = (struct uring *) t;
    unsigned i = 0;
    for (; i < n && s->taken < t->info.depth; i++, s->taken++) {
        ios[i]->done_ = ios[i]->tries_ = 0;
        if (!queue_io(s, ios[i])) break;
    }
    if (i) (void) io_uring_submit(&s->ring);
    return (int) i;
}

static void took(struct uring *s, const struct io_uring_cqe *c)
{
    struct ps_io *io = io_uring_cqe_get_data(c);
    if (!io) {
        s->wake_armed = false;
        s->woken = s->woken || c->res > 0;
        return;
    }
    int64_t r = ps_faults_result(&s->faults, c->res);
    /* A rest goes back into the ring: there is room, since this one's entry has just become free. */
    while (!ps_io_took(io, r, &s->files, s->base.info.align)) {
        if (queue_io(s, io)) return;
        (void) io_uring_submit(&s->ring);
        r = -EAGAIN;
    }
    io->next_ = NULL;
    *s->done_tail = io;
    s->done_tail = &io->next_;
}

/* Everything that the ring has at hand goes to the done list. */
static void collect(struct uring *s)
{
    struct io_uring_cqe *c[64];
    unsigned n;
    while ((n = io_uring_peek_batch_cqe(&s->ring, c, PS_ARRAY_LEN(c)))) {
        for (unsigned i = 0; i < n; i++) took(s, c[i]);
        io_uring_cq_advance(&s->ring, n);
    }
    arm_wake(s);
}

static unsigned give(struct uring *s, struct ps_io **done, unsigned max)
{
    unsigned n = 0;
    for (; n < max && s->done; n++) {
        done[n] = s->done;
        s->done = s->done->next_;
    }
    if (!s->done) s->done_tail = &s->done;
    s->taken -= n;
    return n;
}

static int uring_reap(struct ps_store *t, struct ps_io **done, unsigned max, int64_t timeout_ns)
{
    struct uring *s = (struct uring *) t;
    struct __kernel_timespec ts, *wait = NULL;
    if (timeout_ns >= 0) {
        ts = (struct __kernel_timespec) { timeout_ns / 1000000000, timeout_ns % 1000000000 };
        wait = &ts;
    }
    collect(s);
    for (bool late = timeout_ns == 0;;) {
        unsigned n = give(s, done, max);
        if (n || !max) {
            if (io_uring_sq_ready(&s->ring)) (void) io_uring_submit(&s->ring);
            return (int) n;
        }
        if (s->woken || late) {
            s->woken = false;
            if (io_uring_sq_ready(&s->ring)) (void) io_uring_submit(&s->ring);
            return 0;
        }
        struct io_uring_cqe *c;
        int r = io_uring_submit_and_wait_timeout(&s->ring, &c, 1, wait, NULL);
        if (r < 0 && r != -ETIME && r != -EINTR && r != -EAGAIN && r != -EBUSY) return r;
        late = r == -ETIME;
        collect(s);
    }
}

static void uring_wake(struct ps_store *t)
{
    struct uring *s = (struct uring *) t;
    const uint64_t one = 1;
    while (write(s->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* The kernel may write into the caller's buffers until the last transfer is back. */
static void uring_close(struct ps_store *t)
{
    struct uring *s = (struct uring *) t;
    struct ps_io *done[16];
    while (s->taken)
        if (uring_reap(t, done, PS_ARRAY_LEN(done), -1) < 0) break;
    ring_close(s);
}

const struct ps_store_ops ps_store_uring = {
    .name = "uring",
    .open = uring_open,
    .close = uring_close,
    .submit = uring_submit,
    .reap = uring_reap,
    .wake = uring_wake,
};
