/* SPDX-License-Identifier: Apache-2.0 */
/* A thread for each of COMPUTE (with a worker pool behind it), HOST, H2D and D2H, one I/O thread for both disk queues
 * (dev_cpu_io.c). A task starts when the counters that it names are reached. */
#include "offload/dev_cpu.h"
#include "engine/base/ps_mem.h"
#include <assert.h>

enum { QUEUE_LEN = 1024, SPIN_NS = 20000 };

int ps_cpu_unmet(const struct ps_cpu *c, const uint64_t after[PS_Q__COUNT])
{
    for (int q = 0; q < PS_Q__COUNT; q++)
        if (atomic_load(&c->count[DONE][q]) < after[q]) return q;
    return -1;
}

void ps_cpu_wake(struct ps_cpu *c, int i)
{
    if (i == SLEEP_IO) {
        if (c->cfg.store) ps_store_wake(c->cfg.store);
        return;
    }
    struct ps_sleeper *s = &c->sleeper[i];
    (void) pthread_mutex_lock(&s->lock);
    (void) pthread_cond_signal(&s->wake);
    (void) pthread_mutex_unlock(&s->lock);
}

void ps_cpu_bump(struct ps_cpu *c, int counter, enum ps_q q, uint64_t n)
{
    atomic_store(&c->count[counter][q], n);
    for (int i = 0; i < SLEEPERS; i++)
        if (n >= atomic_load(&c->sleeper[i].need[counter][q])) ps_cpu_wake(c, i);
}

void ps_cpu_need(struct ps_cpu *c, int sleeper, int counter, enum ps_q q, uint64_t n)
{
    atomic_store(&c->sleeper[sleeper].need[counter][q], n);
    if (counter == DONE && c->on_gpu[q]) ps_cpu_wake(c, SLEEP_REAP + (int) q);
}

bool ps_cpu_wait_count(struct ps_cpu *c, int sleeper, int counter, enum ps_q q, uint64_t n,
                       uint64_t spin_ns)
{
    const _Atomic uint64_t *count = &c->count[counter][q];
    if (atomic_load(count) >= n) return true;
    if (spin_ns)
        for (uint64_t until = ps_now_ns() + spin_ns; ps_now_ns() < until; ps_pause())
            if (atomic_load(count) >= n) return true;
    struct ps_sleeper *s = &c->sleeper[sleeper];
    (void) pthread_mutex_lock(&s->lock);
    ps_cpu_need(c, sleeper, counter, q, n);
    while (atomic_load(count) < n && !(counter == PUT && atomic_load(&c->stop)))
        (void) pthread_cond_wait(&s->wake, &s->lock);
    atomic_store(&s->need[counter][q], UINT64_MAX);
    (void) pthread_mutex_unlock(&s->lock);
    return atomic_load(count) >= n;
}

void ps_cpu_fail(struct ps_cpu *c, int err, const struct ps_detail *dt)
{
    (void) pthread_mutex_lock(&c->err_lock);
    if (!atomic_load(&c->err)) {
        c->detail = *dt;
        atomic_store(&c->err, err);
    }
    (void) pthread_mutex_unlock(&c->err_lock);
}

static int run_kernel(struct ps_cpu *c, enum ps_q q, const struct ps_task *t)
{
    assert(ps_op_scratch(t->kern->op, t->args) <= c->cfg.scratch_bytes);
    if (q == PS_Q_COMPUTE || c->on_gpu[PS_Q_COMPUTE])
        return ps_pool_run(c->pool, t->kern, t->args, &t->cost);
    uint8_t *scratch = c->cfg.scratch;
    if (scratch) scratch += c->cfg.threads * c->cfg.scratch_bytes;
    return ps_kern_run_all(t->kern, t->args, scratch);
}

static void exec(struct ps_cpu *c, enum ps_q q, const struct ps_task *t)
{
    if (!t->kern) {
        ps_task_copy(t);
        return;
    }
    int r = run_kernel(c, q, t);
    if (r >= 0) return;
    struct ps_detail dt;
    ps_task_failed(&dt, q, t, r);
    ps_cpu_fail(c, r, &dt);
}

void *ps_cpu_lane_main(void *arg)
{
    struct ps_lane *l = arg;
    struct ps_cpu *c = l->cpu;
    const uint64_t spin_ns = l->q == PS_Q_COMPUTE ? SPIN_NS : 0;
    uint64_t t0 = ps_now_ns();
    for (uint64_t k = 0;; k++) {
        uint64_t stall[PS_KIND__COUNT] = { 0 };
        bool some = ps_cpu_wait_count(c, (int) l->q, PUT, l->q, k + 1, spin_ns);
        uint64_t t1 = ps_now_ns(), t2 = t1;
        if (!some) break;
        const struct ps_slot *s = ps_cpu_slot(c, l->q, k);
        for (int p; (p = ps_cpu_unmet(c, s->after)) >= 0;) {
            uint64_t from = t2;
            (void) ps_cpu_wait_count(c, (int) l->q, DONE, (enum ps_q) p, s->after[p], spin_ns);
            t2 = ps_now_ns();
            stall[s->task.why[p]] += t2 - from;
        }
        t2 = ps_now_ns(); /* again: what it comes after may have ended since */
        if (!atomic_load(&c->err)) exec(c, l->q, &s->task);
        uint64_t t3 = ps_now_ns();
        (void) pthread_mutex_lock(&l->lock);
        l->stats.busy_ns[l->q] += t3 - t2;
        ps_stats_add(&l->stats, l->q, &s->task, t3 - t2);
        if (l->q == PS_Q_COMPUTE) {
            l->stats.idle_ns += t1 - t0;
            for (int i = 0; i < PS_KIND__COUNT; i++) l->stats.stall_ns[i] += stall[i];
        }
        (void) pthread_mutex_unlock(&l->lock);
        if (c->cfg.trace) c->cfg.trace(c->cfg.trace_ud, l->q, &s->task, t2, t3);
        ps_cpu_bump(c, DONE, l->q, k + 1); /* the slot is the submitter's again */
        t0 = t3;
    }
    return NULL;
}

int ps_cpu_start(struct ps_dev *d, enum ps_q q, const struct ps_task *t,
                 const uint64_t after[PS_Q__COUNT])
{
    struct ps_cpu *c = (struct ps_cpu *) d;
    if ((q == PS_Q_READ || q == PS_Q_WRITE) && !c->cfg.store) return -ENODEV;
    uint64_t k = d->submitted[q];
    const uint64_t len = c->cfg.queue_len;
    /* Full: waits until a quarter is free, or each task would cost a wake-up from here on. */
    if (k >= len && atomic_load(&c->count[DONE][q]) < k - len + 1)
        (void) ps_cpu_wait_count(c, SLEEP_MAIN, DONE, q, k - len + 1 + len / 4, 0);
    struct ps_slot *s = ps_cpu_slot(c, q, k);
    *s = (struct ps_slot) { .task = *t };
    for (int p = 0; p < PS_Q__COUNT; p++) s->after[p] = after[p];
    ps_cpu_bump(c, PUT, q, k + 1);
    return 0;
}

int ps_cpu_wait(struct ps_dev *d, const uint64_t n[PS_Q__COUNT])
{
    struct ps_cpu *c = (struct ps_cpu *) d;
    for (int q = 0; q < PS_Q__COUNT; q++)
        (void) ps_cpu_wait_count(c, SLEEP_MAIN, DONE, (enum ps_q) q, n[q], 0);
    return atomic_load(&c->err);
}

void ps_cpu_stats(struct ps_dev *d, struct ps_dev_stats *ret)
{
    struct ps_cpu *c = (struct ps_cpu *) d;
    *ret = (struct ps_dev_stats) { 0 };
    for (int i = 0; i < PS_Q__COUNT; i++) {
        struct ps_lane *l = &c->lane[i];
        (void) pthread_mutex_lock(&l->lock);
        const struct ps_dev_stats *s = &l->stats;
        for (int q = 0; q < PS_Q__COUNT; q++) {
            ret->tasks[q] += s->tasks[q];
            ret->busy_ns[q] += s->busy_ns[q];
            ret->flops[q] += s->flops[q];
            ret->mem_bytes[q] += s->mem_bytes[q];
            for (int k = 0; k < PS_KIND__COUNT; k++) ret->bytes[q][k] += s->bytes[q][k];
        }
        for (int o = 0; o < PS_OP__COUNT; o++) ret->op_ns[o] += s->op_ns[o];
        for (int k = 0; k < PS_KIND__COUNT; k++) ret->stall_ns[k] += s->stall_ns[k];
        ret->idle_ns += s->idle_ns;
        (void) pthread_mutex_unlock(&l->lock);
    }
}

const char *ps_cpu_error(const struct ps_dev *d)
{
    return ((const struct ps_cpu *) d)->detail.text;
}

void ps_cpu_stop(struct ps_cpu *c)
{
    (void) ps_cpu_wait(&c->base, c->base.submitted);
    atomic_store(&c->stop, true);
    for (int i = 0; i < SLEEPERS; i++) ps_cpu_wake(c, i);
    for (int q = 0; q < PS_Q__COUNT; q++)
        if (c->lane[q].started) (void) pthread_join(c->lane[q].thread, NULL);
}

void ps_cpu_done(struct ps_cpu *c)
{
    for (int i = 0; i < SLEEPERS; i++) {
        (void) pthread_cond_destroy(&c->sleeper[i].wake);
        (void) pthread_mutex_destroy(&c->sleeper[i].lock);
    }
    for (int q = 0; q < PS_Q__COUNT; q++) {
        (void) pthread_mutex_destroy(&c->lane[q].lock);
        free(c->ring[q]);
    }
    (void) pthread_mutex_destroy(&c->err_lock);
    free(c->ios);
    free(c->free_ios);
    free(c->pending);
}

static void cpu_close(struct ps_dev *d)
{
    struct ps_cpu *c = (struct ps_cpu *) d;
    ps_cpu_stop(c);
    ps_pool_close(c->pool);
    ps_cpu_done(c);
    free(c);
}

static const struct ps_dev_ops cpu_ops = {
    .name = "cpu",
    .start = ps_cpu_start,
    .wait = ps_cpu_wait,
    .stats = ps_cpu_stats,
    .error_text = ps_cpu_error,
    .close = cpu_close,
};

static void init(struct ps_cpu *c, const struct ps_dev_cfg *cfg)
{
    c->base.align = cfg->store ? cfg->store->info.align : 0;
    c->cfg = *cfg;
    if (!c->cfg.threads) c->cfg.threads = 1;
    if (!c->cfg.queue_len) c->cfg.queue_len = QUEUE_LEN;
    if (!c->cfg.io_bytes) c->cfg.io_bytes = PS_IO_BYTES;
    (void) pthread_mutex_init(&c->err_lock, NULL);
    for (int i = 0; i < SLEEPERS; i++) {
        struct ps_sleeper *s = &c->sleeper[i];
        (void) pthread_mutex_init(&s->lock, NULL);
        (void) pthread_cond_init(&s->wake, NULL);
        for (int k = 0; k < COUNTERS; k++)
            for (int q = 0; q < PS_Q__COUNT; q++) atomic_init(&s->need[k][q], UINT64_MAX);
    }
    for (int q = 0; q < PS_Q__COUNT; q++) {
        c->lane[q].cpu = c;
        c->lane[q].q = (enum ps_q) q;
        (void) pthread_mutex_init(&c->lane[q].lock, NULL);
    }
}

int ps_cpu_init(struct ps_cpu *c, const struct ps_dev_cfg *cfg)
{
    init(c, cfg);
    for (int q = 0; q < PS_Q__COUNT; q++) {
        c->ring[q] = ps_calloc(c->cfg.queue_len, sizeof *c->ring[q]);
        if (!c->ring[q]) return -ENOMEM;
    }
    if (!c->cfg.store) return 0;
    c->n_ios = c->cfg.store->info.depth;
    c->ios = ps_calloc(c->n_ios, sizeof *c->ios);
    c->free_ios = ps_calloc(c->n_ios, sizeof *c->free_ios);
    c->pending = ps_calloc(c->n_ios, sizeof *c->pending);
    return c->ios && c->free_ios && c->pending ? 0 : -ENOMEM;
}

int ps_cpu_thread(struct ps_cpu *c, enum ps_q q, void *(*main)(void *lane))
{
    const bool disk = q == PS_Q_READ || q == PS_Q_WRITE;
    if (q == PS_Q_WRITE || (disk && !c->cfg.store)) return 0; /* READ's thread does both */
    int r = pthread_create(&c->lane[q].thread, NULL, main, &c->lane[q]);
    c->lane[q].started = !r;
    return -r;
}

static int start_threads(struct ps_cpu *c)
{
    int r = ps_pool_open(c->cfg.threads, c->cfg.scratch, c->cfg.scratch_bytes, &c->pool);
    for (int q = 0; r >= 0 && q < PS_Q__COUNT; q++)
        r = ps_cpu_thread(c, (enum ps_q) q, q == PS_Q_READ ? ps_cpu_io_main : ps_cpu_lane_main);
    return r;
}

int ps_cpu_cfg_check(const struct ps_dev_cfg *cfg)
{
    if (cfg->queue_len > 1u << 20) return -EINVAL;
    return cfg->store && cfg->io_bytes & (cfg->store->info.align - 1) ? -EINVAL : 0;
}

int ps_dev_cpu_open(const struct ps_dev_cfg *cfg, struct ps_dev **ret)
{
    if (ps_cpu_cfg_check(cfg) < 0) return -EINVAL;
    struct ps_cpu *c = ps_calloc(1, sizeof *c);
    if (!c) return -ENOMEM;
    c->base.ops = &cpu_ops;
    int r = ps_cpu_init(c, cfg);
    if (r >= 0) r = start_threads(c);
    if (r < 0) {
        cpu_close(&c->base);
        return r;
    }
    *ret = &c->base;
    return 0;
}
