/* SPDX-License-Identifier: Apache-2.0 */
/* COMPUTE, H2D, UP and D2H are streams of a GPU; HOST and the disk queues are threads as on the cpu device (dev_cpu.h).
 *
 * A queue of the GPU has two threads. One takes tasks in order and puts each into the stream as soon as what it needs of the
 * host's queues is done and what it needs of the other streams is in them: from there on the GPU waits, by events, not we.
 * The other sleeps until somebody on the host needs to know that a task is complete, and waits for that task's event alone. In a
 * steady state nobody asks for most tasks, and nothing ever waits for the device as a whole. */
#include "offload/dev_cuda.h"
#include "engine/base/ps_mem.h"
#include "offload/dev_cpu.h"
#include "offload/dev_cuda_move.h"
#include <stdio.h>
#include <string.h>

enum { SPIN_NS = 20000, BLAS_BYTES = 32 << 20, ALIGN = 256 };

struct gpu_queue {
    struct ps_cuda_stream s;
    void **begin, **end;          /* events around each task of the ring */
    uint64_t waited[PS_Q__COUNT]; /* tasks of the other streams that this one comes after by now */
    struct ps_dev_cuda_asked asked; /* for the task that is being put into the stream */
    struct ps_dev_cuda_counts counts;
    pthread_t reaper;
    bool reaping;
};

struct cuda {
    struct ps_cpu cpu; /* first */
    const struct ps_cuda_api *api;
    const struct ps_pinned *pinned;
    struct gpu_queue queue[PS_Q__COUNT];
    uint8_t *gpu, *scratch, *mem; /* one allocation, and what lies in it */
    int32_t *found; /* [PS_OP__COUNT], pinned: what a kernel found wrong with its data */
    void *zero;     /* the event that times are counted from */
    uint64_t zero_ns;
};

static uint64_t part(uint64_t bytes) { return PS_ROUND_UP(bytes, (uint64_t) ALIGN); }

uint64_t ps_dev_cuda_bytes(const struct ps_dev_cuda_cfg *cfg)
{
    return part(BLAS_BYTES) + part(PS_CUDA_COUNTERS * sizeof(uint32_t)) + part(cfg->scratch_bytes) +
           part(cfg->mem_bytes);
}

static void failed(struct cuda *g, enum ps_q q, const struct ps_task *t, int r, const char *words)
{
    struct ps_detail dt, all;
    ps_task_failed(&dt, q, t, r);
    (void) snprintf(all.text, sizeof all.text, "%.600s%s%.400s", dt.text, *words ? ": " : "",
                    words);
    ps_cpu_fail(&g->cpu, r, &all);
}

/* ---- into the stream */

/* Until the host's queues have done what the task needs, and the other streams have been given what it needs of them. */
static void wait_for_needs(struct cuda *g, enum ps_q q, const struct ps_slot *t)
{
    for (int p = 0; p < PS_Q__COUNT; p++)
        if (p != (int) q || !g->cpu.on_gpu[p])
            (void) ps_cpu_wait_count(&g->cpu, (int) q, g->cpu.on_gpu[p] ? ISSUED : DONE,
                                     (enum ps_q) p, t->after[p], SPIN_NS);
}

/* The stream comes after the tasks of other streams that this one needs. An event may stand for a later task by now: that one
 * was put into its stream without needing this task, so waiting for it ends, too. */
static int order(struct cuda *g, enum ps_q q, const struct ps_slot *t)
{
    struct gpu_queue *s = &g->queue[q];
    for (int p = 0; p < PS_Q__COUNT; p++) {
        const uint64_t n = t->after[p];
        if (p == (int) q || !g->cpu.on_gpu[p] || n <= s->waited[p]) continue;
        int r = g->api->event_wait(&s->s, g->queue[p].end[(n - 1) % g->cpu.cfg.queue_len]);
        if (r < 0) return r;
        s->asked.waits++;
        s->waited[p] = n;
    }
    return 0;
}

static int work(struct cuda *g, enum ps_q q, const struct ps_task *t)
{
    struct gpu_queue *s = &g->queue[q];
    if (t->kern) {
        const struct ps_span all = { .end = ps_op_units(t->kern->op, t->args),
                                     .scratch = g->scratch,
                                     .stream = &s->s };
        return all.end ? t->kern->run(t->args, &all) : 0;
    }
    return ps_cuda_move(g->api, g->pinned, &s->s, t, &s->asked.copies);
}

static void add_asked(struct ps_dev_cuda_asked *a, const struct ps_dev_cuda_asked *b)
{
    a->launches += b->launches;
    a->calls += b->calls;
    a->copies += b->copies;
    a->events += b->events;
    a->waits += b->waits;
}

static int issue(struct cuda *g, enum ps_q q, const struct ps_slot *t, uint64_t k)
{
    struct gpu_queue *s = &g->queue[q];
    const uint64_t i = k % g->cpu.cfg.queue_len;
    const uint64_t launches = s->s.launches, calls = s->s.calls;
    s->asked = (struct ps_dev_cuda_asked) { .events = 2 };
    int r = order(g, q, t);
    if (!r) r = g->api->event_put(&s->s, s->begin[i]);
    if (!r) r = work(g, q, &t->task);
    if (!r) r = g->api->event_put(&s->s, s->end[i]);
    s->asked.launches = s->s.launches - launches;
    s->asked.calls = s->s.calls - calls;
    add_asked(&s->counts.all, &s->asked);
    if (t->task.counted) add_asked(&s->counts.counted, &s->asked);
    return r;
}

static void *issue_main(void *arg)
{
    struct ps_lane *l = arg;
    struct cuda *g = (struct cuda *) l->cpu;
    for (uint64_t k = 0; ps_cpu_wait_count(l->cpu, (int) l->q, PUT, l->q, k + 1, SPIN_NS); k++) {
        const struct ps_slot *t = ps_cpu_slot(l->cpu, l->q, k);
        wait_for_needs(g, l->q, t);
        int r = atomic_load(&l->cpu->err) ? 0 : issue(g, l->q, t, k);
        if (r < 0) failed(g, l->q, &t->task, r, g->api->error());
        ps_cpu_bump(l->cpu, ISSUED, l->q, k + 1);
    }
    return NULL;
}

/* ---- out of it */

/* The least count beyond what is known to be complete that somebody needs; 0: none. */
static uint64_t wanted(const struct ps_cpu *c, enum ps_q q)
{
    uint64_t done = atomic_load(&c->count[DONE][q]), least = UINT64_MAX;
    for (int i = 0; i < SLEEPERS; i++) {
        uint64_t n = atomic_load(&c->sleeper[i].need[DONE][q]);
        if (n > done && n < least) least = n;
    }
    return least == UINT64_MAX ? 0 : least;
}

/* Until a count that somebody needs is in the stream: the least, asked for again while waiting, for a task of a greater count may
 * depend on it. 0 at the end. */
static uint64_t next_wanted(struct ps_cpu *c, enum ps_q q)
{
    struct ps_sleeper *me = &c->sleeper[SLEEP_REAP + (int) q];
    uint64_t n;
    (void) pthread_mutex_lock(&me->lock);
    for (;;) {
        n = wanted(c, q);
        atomic_store(&me->need[ISSUED][q], n ? n : UINT64_MAX);
        if (n ? atomic_load(&c->count[ISSUED][q]) >= n : atomic_load(&c->stop)) break;
        (void) pthread_cond_wait(&me->wake, &me->lock);
    }
    atomic_store(&me->need[ISSUED][q], UINT64_MAX);
    (void) pthread_mutex_unlock(&me->lock);
    return n;
}

/* Between two events, 0 when CUDA does not know: times are for reports. */
static uint64_t between(const struct cuda *g, void *from, void *to)
{
    uint64_t ns = 0;
    return g->api->event_ns(from, to, &ns) < 0 ? 0 : ns;
}

static void count_task(struct cuda *g, struct ps_lane *l, uint64_t k)
{
    const struct gpu_queue *s = &g->queue[l->q];
    const uint64_t len = g->cpu.cfg.queue_len;
    const struct ps_slot *t = ps_cpu_slot(l->cpu, l->q, k);
    const uint64_t ns = between(g, s->begin[k % len], s->end[k % len]);
    const uint64_t gap = k ? between(g, s->end[(k - 1) % len], s->begin[k % len]) : 0;
    l->stats.busy_ns[l->q] += ns;
    ps_stats_add(&l->stats, l->q, &t->task, ns);
    if (l->q == PS_Q_COMPUTE) { /* what held it up: the first other queue that it names */
        int p = 0;
        while (p < PS_Q__COUNT && (p == (int) l->q || !t->after[p])) p++;
        if (p < PS_Q__COUNT)
            l->stats.stall_ns[t->task.why[p]] += gap;
        else
            l->stats.idle_ns += gap;
    }
    if (!g->cpu.cfg.trace) return;
    const uint64_t t0 = g->zero_ns + between(g, g->zero, s->begin[k % len]);
    g->cpu.cfg.trace(g->cpu.cfg.trace_ud, l->q, &t->task, t0, t0 + ns);
}

/* Waits for the first n tasks of a queue. */
static void reap(struct cuda *g, struct ps_lane *l, uint64_t n)
{
    struct ps_cpu *c = &g->cpu;
    const uint64_t done = atomic_load(&c->count[DONE][l->q]);
    const struct ps_slot *last = ps_cpu_slot(c, l->q, n - 1);
    bool broken = atomic_load(&c->err);
    int r = broken ? 0 : g->api->event_sync(g->queue[l->q].end[(n - 1) % c->cfg.queue_len]);
    g->queue[l->q].counts.syncs++; /* nobody else's */
    if (r < 0) failed(g, l->q, &last->task, r, g->api->error());
    for (int op = 0; l->q == PS_Q_COMPUTE && !r && op < PS_OP__COUNT; op++) {
        int e = __atomic_load_n(&g->found[op], __ATOMIC_RELAXED);
        if (e < 0) failed(g, l->q, &last->task, e, ps_op_name((enum ps_op) op));
    }
    (void) pthread_mutex_lock(&l->lock);
    for (uint64_t k = done; k < n && !broken && !r; k++) count_task(g, l, k);
    (void) pthread_mutex_unlock(&l->lock);
    ps_cpu_bump(c, DONE, l->q, n);
}

static void *reap_main(void *arg)
{
    struct ps_lane *l = arg;
    for (uint64_t n; (n = next_wanted(l->cpu, l->q));) reap((struct cuda *) l->cpu, l, n);
    return NULL;
}

/* ---- open and close */

static void cuda_close(struct ps_dev *d)
{
    struct cuda *g = (struct cuda *) d;
    const uint32_t len = g->cpu.cfg.queue_len;
    ps_cpu_stop(&g->cpu);
    for (int q = 0; q < PS_Q__COUNT; q++) {
        struct gpu_queue *s = &g->queue[q];
        if (s->reaping) (void) pthread_join(s->reaper, NULL);
        if (s->s.stream) {
            (void) g->api->sync(&s->s); /* after an error, too, nothing may run on */
            (void) g->api->close(&s->s);
        }
        for (uint32_t i = 0; i < len; i++) {
            if (s->begin && s->begin[i]) (void) g->api->event_free(s->begin[i]);
            if (s->end && s->end[i]) (void) g->api->event_free(s->end[i]);
        }
        free(s->begin);
        free(s->end);
    }
    if (g->zero) (void) g->api->event_free(g->zero);
    if (g->gpu) (void) g->api->free(g->gpu);
    if (g->found) (void) g->api->unpin(g->found);
    free(g->found);
    ps_pool_close(g->cpu.pool);
    ps_cpu_done(&g->cpu);
    free(g);
}

static const struct ps_dev_ops cuda_ops = {
    .name = "cuda",
    .start = ps_cpu_start,
    .wait = ps_cpu_wait,
    .stats = ps_cpu_stats,
    .error_text = ps_cpu_error,
    .close = cuda_close,
};

static int pin_found(struct cuda *g)
{
    enum { BYTES = PS_DEV_CUDA_PINS_BYTES };
    _Static_assert(PS_OP__COUNT * sizeof *g->found <= BYTES, "fits into a page");
    int32_t *p = ps_aligned(BYTES, BYTES);
    if (!p) return -ENOMEM;
    memset(p, 0, BYTES);
    if (g->api->pin(p, BYTES) < 0) {
        free(p);
        return -PS_EPIN;
    }
    g->found = p;
    return 0;
}

static int take_memory(struct cuda *g, const struct ps_dev_cuda_cfg *cfg)
{
    void *p = NULL;
    int r = g->api->alloc(ps_dev_cuda_bytes(cfg), &p);
    if (!r) r = pin_found(g);
    if (!p) return r;
    g->gpu = p;
    struct ps_cuda_stream *s = &g->queue[PS_Q_COMPUTE].s;
    s->blas_mem = g->gpu;
    s->blas_bytes = BLAS_BYTES;
    s->counters = (void *) (g->gpu + part(BLAS_BYTES));
    s->err = g->found;
    g->scratch = (uint8_t *) s->counters + part(PS_CUDA_COUNTERS * sizeof *s->counters);
    g->mem = g->scratch + part(cfg->scratch_bytes);
    return r;
}

static int open_queue(struct cuda *g, enum ps_q q)
{
    struct gpu_queue *s = &g->queue[q];
    const uint32_t len = g->cpu.cfg.queue_len;
    g->cpu.on_gpu[q] = true;
    s->begin = ps_calloc(len, sizeof *s->begin);
    s->end = ps_calloc(len, sizeof *s->end);
    if (!s->begin || !s->end) return -ENOMEM;
    int r = g->api->open(&s->s);
    for (uint32_t i = 0; i < len && !r; i++) {
        r = g->api->event_make(&s->begin[i]);
        if (!r) r = g->api->event_make(&s->end[i]);
    }
    return r;
}

static int open_queues(struct cuda *g)
{
    static const enum ps_q of_gpu[] = { PS_Q_COMPUTE, PS_Q_H2D, PS_Q_UP, PS_Q_D2H };
    int r = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(of_gpu) && !r; i++) r = open_queue(g, of_gpu[i]);
    struct ps_cuda_stream *s = &g->queue[PS_Q_COMPUTE].s;
    if (!r) r = g->api->event_make(&g->zero);
    if (!r) r = g->api->event_put(s, g->zero);
    if (!r) r = g->api->event_sync(g->zero);
    g->zero_ns = ps_now_ns();
    g->cpu.base.sm = s->sm;
    g->cpu.base.rounds = true;
    return r;
}

static int start_threads(struct cuda *g)
{
    struct ps_cpu *c = &g->cpu;
    int r = ps_pool_open(c->cfg.threads, c->cfg.scratch, c->cfg.scratch_bytes, &c->pool);
    for (int q = 0; q < PS_Q__COUNT && !r; q++) {
        r = ps_cpu_thread(c, (enum ps_q) q,
                          c->on_gpu[q]     ? issue_main
                          : q == PS_Q_READ ? ps_cpu_io_main
                                           : ps_cpu_lane_main);
        if (r || !c->on_gpu[q]) continue;
        r = -pthread_create(&g->queue[q].reaper, NULL, reap_main, &c->lane[q]);
        g->queue[q].reaping = !r;
    }
    return r;
}

int ps_dev_cuda_open(const struct ps_dev_cfg *cfg, const struct ps_dev_cuda_cfg *cuda,
                     struct ps_dev **ret, struct ps_detail *dt)
{
    if (ps_cpu_cfg_check(cfg) < 0) return ps_fail(dt, -EINVAL, "queue_len or io_bytes");
    struct cuda *g = ps_calloc(1, sizeof *g);
    if (!g) return ps_fail(dt, -ENOMEM, "out of memory");
    g->api = cuda->api;
    g->pinned = cuda->pinned;
    g->cpu.base.ops = &cuda_ops;
    g->cpu.base.place = PS_PLACE_CUDA;
    g->cpu.base.where = PS_GPU;
    int r = ps_cpu_init(&g->cpu, cfg);
    if (!r) r = take_memory(g, cuda);
    if (!r) r = open_queues(g);
    if (!r) r = start_threads(g);
    if (r < 0) {
        const char *words = g->api->error();
        (void) ps_fail(dt, r, "%s: %s",
                       r == -PS_EPIN ? "no page can be pinned for the GPU's errors"
                                     : "the GPU cannot be used",
                       *words ? words : ps_err_str(r));
        cuda_close(&g->cpu.base);
        return r;
    }
    *ret = &g->cpu.base;
    return 0;
}

void *ps_dev_cuda_mem(const struct ps_dev *d) { return ((const struct cuda *) d)->mem; }

void ps_dev_cuda_counts(struct ps_dev *d, struct ps_dev_cuda_counts *ret)
{
    const struct cuda *g = (const struct cuda *) d;
    *ret = (struct ps_dev_cuda_counts) { 0 };
    for (int q = 0; q < PS_Q__COUNT; q++) {
        const struct ps_dev_cuda_counts *n = &g->queue[q].counts;
        add_asked(&ret->all, &n->all);
        add_asked(&ret->counted, &n->counted);
        ret->syncs += n->syncs;
    }
}
