/* SPDX-License-Identifier: Apache-2.0 */
/* pread/pwrite from a pool of threads: for kernels and containers that refuse io_uring. With O_DIRECT and large
 * transfers a drive is as busy with it; it costs a thread switch or two per transfer. */
#include "engine/base/ps_mem.h"
#include "offload/store_fault.h"
#include "offload/store_files.h"
#include "offload/store_sync.h"

enum { DEPTH = 64, THREADS = 16 };

struct pool {
    struct ps_store base;
    struct ps_files files;
    struct ps_faults faults;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct ps_io *head, **tail;
    bool stop;
    struct ps_done done;
    unsigned taken; /* not yet reaped; the driving thread's */
    pthread_t thread[THREADS];
    unsigned n_threads;
};

static void transfer(struct pool *s, struct ps_io *io)
{
    int64_t r;
    do {
        int fd = s->files.fd[io->file];
        off_t off = (off_t) ps_io_off(io);
        r = io->dir == PS_IO_READ ? pread(fd, ps_io_buf(io), ps_io_len(io), off)
                                  : pwrite(fd, ps_io_buf(io), ps_io_len(io), off);
        if (r < 0) r = -errno;
        r = ps_faults_result(&s->faults, r);
    } while (!ps_io_took(io, r, &s->files, s->base.info.align));
}

static void *worker(void *arg)
{
    struct pool *s = arg;
    (void) pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->head && !s->stop) (void) pthread_cond_wait(&s->some, &s->lock);
        if (s->stop) break;
        struct ps_io *io = s->head;
        s->head = io->next_;
        if (!s->head) s->tail = &s->head;
        (void) pthread_mutex_unlock(&s->lock);
        transfer(s, io);
        ps_done_put(&s->done, io);
        (void) pthread_mutex_lock(&s->lock);
    }
    (void) pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void pool_close(struct ps_store *t)
{
    struct pool *s = (struct pool *) t;
    (void) pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void) pthread_cond_broadcast(&s->some);
    (void) pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->n_threads; i++) (void) pthread_join(s->thread[i], NULL);
    (void) pthread_cond_destroy(&s->some);
    (void) pthread_mutex_destroy(&s->lock);
    ps_done_done(&s->done);
    ps_files_close(&s->files);
    free(s);
}

static int pool_open(const struct ps_store_cfg *cfg, struct ps_store **ret, struct ps_detail *dt)
{
    ps_auto_free struct pool *s = ps_calloc(1, sizeof *s);
    if (!s) return ps_fail(dt, -ENOMEM, "no memory for the pread store");
    int r = ps_faults_parse(cfg->fault, &s->faults, dt);
    if (r < 0) return r;
    s->base.ops = &ps_store_pread;
    s->base.info.depth = cfg->depth ? cfg->depth : DEPTH;
    r = ps_files_open(cfg, &s->files, &s->base.info, dt);
    if (r < 0) return r;
    (void) pthread_mutex_init(&s->lock, NULL);
    (void) pthread_cond_init(&s->some, NULL);
    s->tail = &s->head;
    ps_done_init(&s->done);
    struct pool *p = PS_TAKE(s);
    unsigned want = p->base.info.depth < THREADS ? p->base.info.depth : THREADS;
    for (; p->n_threads < want; p->n_threads++) {
        r = pthread_create(&p->thread[p->n_threads], NULL, worker, p);
        if (r && p->n_threads) break; /* fewer threads do as well */
        if (r) {
            pool_close(&p->base);
            return ps_fail(dt, -r, "starting an I/O thread: %s%s", ps_err_str(r), ps_err_limits(r));
        }
    }
    *ret = &p->base;
    return 0;
}

static int pool_submit(struct ps_store *t, struct ps_io *const *ios, unsigned n)
{
    struct pool *s = (struct pool *) t;
    unsigned room = t->info.depth - s->taken;
    if (n > room) n = room;
    (void) pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; i < n; i++) {
        ios[i]->done_ = ios[i]->tries_ = 0;
        ios[i]->next_ = NULL;
        *s->tail = ios[i];
        s->tail = &ios[i]->next_;
        (void) pthread_cond_signal(&s->some);
    }
    (void) pthread_mutex_unlock(&s->lock);
    s->taken += n;
    return (int) n;
}

static int pool_reap(struct ps_store *t, struct ps_io **done, unsigned max, int64_t timeout_ns)
{
    struct pool *s = (struct pool *) t;
    int n = ps_done_reap(&s->done, done, max, timeout_ns);
    if (n > 0) s->taken -= (unsigned) n;
    return n;
}

static void pool_wake(struct ps_store *t) { ps_done_wake(&((struct pool *) t)->done); }

const struct ps_store_ops ps_store_pread = {
    .name = "pread",
    .open = pool_open,
    .close = pool_close,
    .submit = pool_submit,
    .reap = pool_reap,
    .wake = pool_wake,
};
