/* SPDX-License-Identifier: Apache-2.0 */
/* A few threads that run one function at a time, for benchmarks. Waiting spins a while before it sleeps: an
 * op of a hundred microseconds must not pay for a wake-up. */
#include "kt.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SPINS = 20000 };

struct worker {
    struct kt_pool *pool;
    pthread_t thread;
    unsigned index;
};
struct kt_pool {
    unsigned n;
    struct worker *w;
    void (*fn)(void *ud, unsigned worker);
    void *ud;
    _Atomic unsigned turn, left;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t start;
};

/* On the index-th processor that this process may use: beside a spinning thread the kernel sometimes leaves two on one. */
static void pin(unsigned index)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all)) return;
    for (int cpu = 0, n = (int) (index % (unsigned) CPU_COUNT(&all)); cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && !n--) CPU_SET(cpu, &one);
    (void) pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct kt_pool *p = w->pool;
    pin(w->index);
    for (unsigned seen = 0;; seen++) {
        for (unsigned i = 0; i < SPINS && atomic_load(&p->turn) == seen; i++)
            __builtin_ia32_pause();
        pthread_mutex_lock(&p->lock);
        while (atomic_load(&p->turn) == seen) pthread_cond_wait(&p->start, &p->lock);
        pthread_mutex_unlock(&p->lock);
        if (atomic_load(&p->stop)) return NULL;
        p->fn(p->ud, w->index);
        atomic_fetch_sub(&p->left, 1);
    }
}

struct kt_pool *kt_pool_open(unsigned threads)
{
    struct kt_pool *p = calloc(1, sizeof *p);
    if (!p || !(p->w = calloc(threads, sizeof *p->w))) abort();
    p->n = threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    for (unsigned i = 1; i < threads; i++) {
        p->w[i] = (struct worker) { .pool = p, .index = i };
        if (pthread_create(&p->w[i].thread, NULL, work, &p->w[i])) abort();
    }
    return p;
}

static void next_turn(struct kt_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->turn, 1);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

void kt_pool_run(struct kt_pool *p, void (*fn)(void *ud, unsigned worker), void *ud)
{
    p->fn = fn;
    p->ud = ud;
    atomic_store(&p->left, p->n - 1);
    if (p->n > 1) next_turn(p);
    fn(ud, 0);
    for (unsigned i = 0; atomic_load(&p->left); i++)
        if (i > SPINS)
            sched_yield();
        else
            __builtin_ia32_pause();
}

void kt_pool_close(struct kt_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    next_turn(p);
    for (unsigned i = 1; i < p->n; i++) pthread_join(p->w[i].thread, NULL);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->lock);
    free(p->w);
    free(p);
}
