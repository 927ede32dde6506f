/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/pool.h"
#include "engine/base/ps_mem.h"
#include "offload/dev_exec.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum {
    CHUNKS_PER_THREAD = 8, /* so that a thread that lost its core holds up an eighth of its share */
    SPIN_NS = 30000,
};
/* Below this a hand-over costs more than it saves: microseconds of one core. */
#define SMALL_FLOPS 60e3
#define SMALL_BYTES 40e3

/* `open` counts the chunks that nobody has taken. What describes the job is read only after a chunk was
 * taken, and changes only when every taken chunk is done, so that it needs no lock. */
struct ps_pool {
    const struct ps_kern *kern;
    const void *args;
    uint64_t units, grain;
    uint32_t chunks;
    _Atomic int err;
    _Atomic uint32_t open, left; /* left: not yet complete; a futex */
    _Atomic uint32_t bell;       /* a futex */
    _Atomic uint32_t sleeping;   /* workers */
    _Atomic uint32_t waiting;    /* the caller */
    _Atomic bool stop;
    uint8_t *scratch;
    size_t scratch_bytes;
    unsigned n_workers;
    struct worker {
        struct ps_pool *pool;
        void *scratch;
        pthread_t thread;
    } worker[];
};

static void futex_wait(_Atomic uint32_t *p, uint32_t is)
{
    (void) syscall(SYS_futex, p, FUTEX_WAIT_PRIVATE, is, NULL, NULL, 0);
}
static void futex_wake(_Atomic uint32_t *p, int n)
{
    (void) syscall(SYS_futex, p, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static bool take_chunk(struct ps_pool *p, uint32_t *ret)
{
    uint32_t n = atomic_load(&p->open);
    while (n)
        if (atomic_compare_exchange_weak(&p->open, &n, n - 1)) {
            *ret = n;
            return true;
        }
    return false;
}

static void run_chunk(struct ps_pool *p, uint32_t taken, void *scratch)
{
    uint64_t begin = (p->chunks - taken) * p->grain, end = begin + p->grain;
    if (end > p->units) end = p->units;
    struct ps_span span = { .begin = begin, .end = end, .scratch = scratch };
    int r = p->kern->run(p->args, &span), ok = 0;
    if (r < 0) (void) atomic_compare_exchange_strong(&p->err, &ok, r);
    if (atomic_fetch_sub(&p->left, 1) == 1 && atomic_load(&p->waiting)) futex_wake(&p->left, 1);
}

/* True as soon as *p is (not) zero; false when the time for spinning is over. */
static bool spin(_Atomic uint32_t *p, bool for_zero)
{
    uint64_t until = 0;
    for (unsigned i = 0;; i++) {
        if ((atomic_load(p) == 0) == for_zero) return true;
        if (i % 32 == 31) {
            uint64_t now = ps_now_ns();
            if (!until) until = now + SPIN_NS;
            if (now >= until) return false;
        }
        ps_pause();
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct ps_pool *p = w->pool;
    uint32_t c;
    while (!atomic_load(&p->stop)) {
        if (take_chunk(p, &c)) {
            run_chunk(p, c, w->scratch);
            continue;
        }
        if (spin(&p->open, false)) continue;
        uint32_t rung = atomic_load(&p->bell);
        atomic_fetch_add(&p->sleeping, 1);
        if (!atomic_load(&p->open) && !atomic_load(&p->stop)) futex_wait(&p->bell, rung);
        atomic_fetch_sub(&p->sleeping, 1);
    }
    return NULL;
}

static void ring(struct ps_pool *p, int n)
{
    if (!atomic_load(&p->sleeping)) return;
    atomic_fetch_add(&p->bell, 1);
    futex_wake(&p->bell, n);
}

int ps_pool_run(struct ps_pool *p, const struct ps_kern *k, const void *args,
                const struct ps_cost *cost)
{
    uint64_t units = ps_op_units(k->op, args);
    if (!units) return 0;
    bool small = cost->flops < SMALL_FLOPS && cost->bytes < SMALL_BYTES;
    if (units == 1 || !p->n_workers || small) {
        struct ps_span all = { .end = units, .scratch = p->scratch };
        int r = k->run(args, &all);
        return r < 0 ? r : 0;
    }
    uint64_t want = (uint64_t) (p->n_workers + 1) * CHUNKS_PER_THREAD;
    p->kern = k;
    p->args = args;
    p->units = units;
    p->grain = (units + want - 1) / want;
    p->chunks = (uint32_t) ((units + p->grain - 1) / p->grain);
    atomic_store(&p->err, 0);
    atomic_store(&p->left, p->chunks);
    atomic_store(&p->open, p->chunks);
    ring(p, p->chunks - 1 < p->n_workers ? (int) p->chunks - 1 : (int) p->n_workers);
    for (uint32_t c; take_chunk(p, &c);) run_chunk(p, c, p->scratch);
    if (!spin(&p->left, true)) {
        atomic_store(&p->waiting, 1);
        for (uint32_t n; (n = atomic_load(&p->left));) futex_wait(&p->left, n);
        atomic_store(&p->waiting, 0);
    }
    return atomic_load(&p->err);
}

int ps_pool_open(unsigned threads, void *scratch, size_t scratch_bytes, struct ps_pool **ret)
{
    if (!threads || threads > PS_THREADS_MAX) return -EINVAL;
    struct ps_pool *p = ps_calloc(1, sizeof *p + (threads - 1) * sizeof(struct worker));
    if (!p) return -ENOMEM;
    p->scratch = scratch;
    p->scratch_bytes = scratch_bytes;
    for (; p->n_workers < threads - 1; p->n_workers++) {
        struct worker *w = &p->worker[p->n_workers];
        w->pool = p;
        w->scratch = scratch ? p->scratch + (p->n_workers + 1) * scratch_bytes : NULL;
        int r = pthread_create(&w->thread, NULL, worker_main, w);
        if (r) {
            ps_pool_close(p);
            return -r;
        }
    }
    *ret = p;
    return 0;
}

void ps_pool_close(struct ps_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->bell, 1);
    futex_wake(&p->bell, INT_MAX);
    for (unsigned i = 0; i < p->n_workers; i++) (void) pthread_join(p->worker[i].thread, NULL);
    free(p);
}
