/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/pool.h"
#include "engine/base/ps_mem.h"
#include "offload/dev_exec.h"
#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>

enum {
    SPIN_NS = 20000,   /* for the next task */
    YIELD_NS = 200000, /* still awake, but whoever else is runnable goes first */
};
/* Below this a hand-over costs more than it saves: microseconds of one core. */
#define SMALL_FLOPS 60e3
#define SMALL_BYTES 40e3

/* Each thread has a range of units, so that it reads what lies together; whoever is done takes from the ends of the others'
 * ranges. What describes the job is read only after some units were taken, and changes only when all that were taken are
 * done, so that it needs no lock; but for what says how many to take. */
struct ps_pool {
    const struct ps_kern *kern;
    const void *args;
    _Atomic uint32_t op, grain;
    _Atomic int err;
    _Atomic uint32_t open;     /* units that nobody has taken; behind the ranges for an instant */
    _Atomic uint32_t left;     /* not yet complete; a futex */
    _Atomic uint32_t bell;     /* a futex */
    _Atomic uint32_t sleeping; /* workers */
    _Atomic uint32_t waiting;  /* the caller */
    _Atomic bool stop;
    unsigned threads, started;
    struct worker { /* the first is the caller */
        struct ps_pool *pool;
        void *scratch;
        pthread_t thread;
        _Alignas(64) _Atomic uint64_t range; /* begin << 32 | end */
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

struct units {
    uint32_t begin, n;
};

static bool take_of(struct worker *w, bool own, struct units *ret)
{
    struct ps_pool *p = w->pool;
    uint64_t r = atomic_load(&w->range);
    for (uint32_t begin, end; (begin = (uint32_t) (r >> 32)) < (end = (uint32_t) r);) {
        const uint32_t left = end - begin, grain = atomic_load(&p->grain);
        uint32_t n = grain < left ? grain : left;
        if (own) n = (uint32_t) ps_op_next_span((enum ps_op) atomic_load(&p->op), grain, left);
        const uint64_t rest = own ? r + ((uint64_t) n << 32) : r - n;
        if (!atomic_compare_exchange_weak(&w->range, &r, rest)) continue;
        *ret = (struct units) { own ? begin : end - n, n };
        (void) atomic_fetch_sub(&p->open, n);
        return true;
    }
    return false;
}

static bool take(struct worker *w, struct units *ret)
{
    struct ps_pool *p = w->pool;
    if (take_of(w, true, ret)) return true;
    unsigned me = (unsigned) (w - p->worker);
    for (unsigned i = 1; i < p->threads; i++)
        if (take_of(&p->worker[(me + i) % p->threads], false, ret)) return true;
    return false;
}

static void run_units(struct worker *w, struct units u)
{
    struct ps_pool *p = w->pool;
    struct ps_span span = { .begin = u.begin,
                            .end = (uint64_t) u.begin + u.n,
                            .scratch = w->scratch };
    int r = p->kern->run(p->args, &span), ok = 0;
    if (r < 0) (void) atomic_compare_exchange_strong(&p->err, &ok, r);
    if (atomic_fetch_sub(&p->left, u.n) == u.n && atomic_load(&p->waiting)) futex_wake(&p->left, 1);
}

/* True as soon as *p is (not) zero; false when the time for waiting awake is over. */
static bool spin(_Atomic uint32_t *p, bool for_zero)
{
    uint64_t begin = 0;
    for (unsigned i = 0;; i++) {
        if ((atomic_load(p) == 0) == for_zero) return true;
        if (i % 32 == 31) {
            uint64_t now = ps_now_ns();
            if (!begin) begin = now;
            if (now - begin >= YIELD_NS) return false;
            if (now - begin >= SPIN_NS) (void) sched_yield();
        }
        ps_pause();
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct ps_pool *p = w->pool;
    struct units u;
    while (!atomic_load(&p->stop)) {
        if (take(w, &u)) {
            run_units(w, u);
            continue;
        }
        if (atomic_load(
                &p->open)) { /* its taker has not counted it yet, or the ranges are being set */
            (void) sched_yield();
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

bool ps_pool_alone(const struct ps_cost *cost)
{
    return cost->flops < SMALL_FLOPS && cost->bytes < SMALL_BYTES;
}

int ps_pool_run(struct ps_pool *p, const struct ps_kern *k, const void *args,
                const struct ps_cost *cost)
{
    uint64_t units = ps_op_units(k->op, args);
    if (!units) return 0;
    if (units == 1 || p->threads == 1 || ps_pool_alone(cost)) {
        struct ps_span all = { .end = units, .scratch = p->worker[0].scratch };
        int r = k->run(args, &all);
        return r < 0 ? r : 0;
    }
    p->kern = k;
    p->args = args;
    assert(units <= UINT32_MAX);
    const uint64_t grain = ps_op_grain(k->op, args, p->threads),
                   spans = (units + grain - 1) / grain;
    atomic_store(&p->op, (uint32_t) k->op);
    atomic_store(&p->grain, (uint32_t) grain);
    atomic_store(&p->err, 0);
    atomic_store(&p->left, (uint32_t) units);
    atomic_store(&p->open, (uint32_t) units); /* before the ranges: it never counts below zero */
    for (unsigned i = 0; i < p->threads; i++)
        atomic_store(&p->worker[i].range,
                     units * i / p->threads << 32 | units * (i + 1) / p->threads);
    ring(p, (int) (spans < p->threads ? spans : p->threads) - 1);
    for (struct units u; take(&p->worker[0], &u);) run_units(&p->worker[0], u);
    if (!spin(&p->left, true)) {
        atomic_store(&p->waiting, 1);
        for (uint32_t is; (is = atomic_load(&p->left));) futex_wait(&p->left, is);
        atomic_store(&p->waiting, 0);
    }
    return atomic_load(&p->err);
}

int ps_pool_open(unsigned threads, void *scratch, size_t scratch_bytes, struct ps_pool **ret)
{
    if (!threads || threads > PS_THREADS_MAX) return -EINVAL;
    const size_t bytes = sizeof(struct ps_pool) + threads * sizeof(struct worker);
    struct ps_pool *p = ps_aligned(64, bytes);
    if (!p) return -ENOMEM;
    memset(p, 0, bytes);
    p->threads = threads;
    for (unsigned i = 0; i < threads; i++)
        p->worker[i] = (struct worker) {
            .pool = p,
            .scratch = scratch ? (uint8_t *) scratch + i * scratch_bytes : NULL,
        };
    for (p->started = 1; p->started < threads; p->started++) {
        struct worker *w = &p->worker[p->started];
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
    for (unsigned i = 1; i < p->started; i++) (void) pthread_join(p->worker[i].thread, NULL);
    free(p);
}
