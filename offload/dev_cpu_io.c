/* SPDX-License-Identifier: Apache-2.0 */
/* The I/O thread of the cpu device, behind READ and WRITE. Per queue, tasks [done, next) are under way; the last
 * of them may still have transfers to be cut off it. The two queues take free transfers in turn, so that a long run of
 * reads does not starve a write, and a head that must wait does not hold up the other queue. */
#include "offload/dev_cpu.h"
#include <time.h>

enum { N_DIRS = 2 };

struct dir {
    enum ps_q q;
    uint64_t next; /* tasks started */
    uint64_t done;
    uint64_t busy_from_ns;
};

struct io {
    struct ps_cpu *cpu;
    struct ps_lane *lane;
    struct dir dir[N_DIRS];
    unsigned turn, n_free, n_pending;
};

static struct ps_slot *slot_of(struct io *s, const struct dir *d, uint64_t i)
{
    return ps_cpu_slot(s->cpu, d->q, i);
}

/* Whether the next task of a queue is there and may start. */
static bool head_ready(struct io *s, const struct dir *d)
{
    if (atomic_load(&s->cpu->count[PUT][d->q]) <= d->next) return false;
    return ps_cpu_unmet(s->cpu, slot_of(s, d, d->next)->after) < 0;
}

/* Completes from the front, in order. */
static void retire(struct io *s, struct dir *d)
{
    while (d->done < d->next) {
        struct ps_slot *t = slot_of(s, d, d->done);
        if (!t->all_cut || t->ios) return;
        uint64_t now = ps_now_ns();
        (void) pthread_mutex_lock(&s->lane->lock);
        ps_stats_add(&s->lane->stats, d->q, &t->task, 0);
        s->lane->stats.busy_ns[d->q] += now - d->busy_from_ns; /* up to here, so far */
        (void) pthread_mutex_unlock(&s->lane->lock);
        d->busy_from_ns = now;
        if (s->cpu->cfg.trace)
            s->cpu->cfg.trace(s->cpu->cfg.trace_ud, d->q, &t->task, t->t0_ns, now);
        d->done++;
        ps_cpu_bump(s->cpu, DONE, d->q, d->done);
    }
}

/* Cuts the next transfer of a queue into *io; false when the queue has none to give now. */
static bool cut(struct io *s, struct dir *d, struct ps_io *io)
{
    for (;;) {
        struct ps_slot *t = d->next > d->done ? slot_of(s, d, d->next - 1) : NULL;
        if (t && !t->all_cut) {
            bool more = !atomic_load(&s->cpu->err) &&
                        ps_cut_next(&t->cut, &t->task, s->cpu->cfg.io_bytes, io);
            if (more) {
                io->ud = t;
                t->ios++;
                return true;
            }
            t->all_cut = true;
            retire(s, d);
        }
        if (!head_ready(s, d)) return false;
        t = slot_of(s, d, d->next);
        t->t0_ns = ps_now_ns();
        if (d->next == d->done) d->busy_from_ns = t->t0_ns;
        ps_cut_init(&t->cut, &t->task);
        d->next++;
    }
}

static void finish(struct io *s, struct ps_io *io)
{
    struct ps_slot *t = io->ud;
    if (io->res < 0) {
        struct ps_detail dt;
        ps_io_failed(&dt, s->cpu->cfg.store, &t->task, io, (int) io->res);
        ps_cpu_fail(s->cpu, (int) io->res, &dt);
    }
    if (t->ios) t->ios--; /* store_broke() gave up on it otherwise */
    s->cpu->free_ios[s->n_free++] = io;
}

/* Fills free transfers from both queues and hands them to the store. */
static void fill(struct io *s)
{
    struct ps_cpu *c = s->cpu;
    for (unsigned dry = 0; s->n_free && dry < N_DIRS; s->turn = (s->turn + 1) % N_DIRS) {
        struct ps_io *io = c->free_ios[s->n_free - 1];
        if (!cut(s, &s->dir[s->turn], io)) {
            dry++;
            continue;
        }
        dry = 0;
        s->n_free--;
        c->pending[s->n_pending++] = io;
    }
    if (!s->n_pending) return;
    int r = ps_store_submit(c->cfg.store, c->pending, s->n_pending);
    unsigned gone = r < 0 ? s->n_pending : (unsigned) r;
    for (unsigned i = 0; r < 0 && i < gone; i++) {
        c->pending[i]->res = r;
        finish(s, c->pending[i]);
    }
    s->n_pending -= gone;
    for (unsigned i = 0; i < s->n_pending; i++) c->pending[i] = c->pending[i + gone];
}

/* Says what would let a head start, as far as there are free transfers for it. True when one can start already. */
static bool publish(struct io *s)
{
    struct ps_sleeper *me = &s->cpu->sleeper[SLEEP_IO];
    bool ready = false;
    for (int i = 0; s->n_free && i < N_DIRS; i++) {
        struct dir *d = &s->dir[i];
        if (atomic_load(&s->cpu->count[PUT][d->q]) <= d->next) {
            atomic_store(&me->need[PUT][d->q], d->next + 1);
            if (atomic_load(&s->cpu->count[PUT][d->q]) <= d->next) continue;
        }
        const uint64_t *after = slot_of(s, d, d->next)->after;
        int p;
        while ((p = ps_cpu_unmet(s->cpu, after)) >= 0) {
            if (after[p] < atomic_load(&me->need[DONE][p]))
                ps_cpu_need(s->cpu, SLEEP_IO, DONE, (enum ps_q) p, after[p]);
            if (atomic_load(&s->cpu->count[DONE][p]) < after[p]) break;
        }
        if (p < 0) ready = true;
    }
    return ready;
}

static void unpublish(struct io *s)
{
    struct ps_sleeper *me = &s->cpu->sleeper[SLEEP_IO];
    for (int k = 0; k < COUNTERS; k++)
        for (int q = 0; q < PS_Q__COUNT; q++)
            if (atomic_load(&me->need[k][q]) != UINT64_MAX)
                atomic_store(&me->need[k][q], UINT64_MAX);
}

/* The store cannot even say what is complete. A hang would be worse than a wrong guess: every task ends with
 * the error, no transfer is started any more, and the store's close() waits for those in flight. */
static void store_broke(struct io *s, int err)
{
    struct ps_detail dt;
    (void) ps_fail(&dt, err, "waiting for the %s store: %s", s->cpu->cfg.store->ops->name,
                   ps_err_str(err));
    ps_cpu_fail(s->cpu, err, &dt);
    for (int i = 0; i < N_DIRS; i++)
        for (uint64_t k = s->dir[i].done; k < s->dir[i].next; k++)
            slot_of(s, &s->dir[i], k)->ios = 0;
    (void) nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
}

void *ps_cpu_io_main(void *arg)
{
    struct ps_lane *lane = arg;
    struct ps_cpu *c = lane->cpu;
    struct io s = { .cpu = c,
                    .lane = lane,
                    .dir = { { .q = PS_Q_READ }, { .q = PS_Q_WRITE } },
                    .n_free = c->n_ios };
    for (unsigned i = 0; i < c->n_ios; i++) c->free_ios[i] = &c->ios[i];
    for (;;) {
        fill(&s);
        for (int i = 0; i < N_DIRS; i++) retire(&s, &s.dir[i]);
        bool ready = publish(&s);
        bool all_done = true;
        for (int i = 0; i < N_DIRS; i++)
            all_done = all_done && s.dir[i].done == atomic_load(&c->count[PUT][s.dir[i].q]);
        if (atomic_load(&c->stop) && all_done) break;
        struct ps_io *done[64];
        int n = ps_store_reap(c->cfg.store, done, PS_ARRAY_LEN(done), ready ? 0 : -1);
        unpublish(&s);
        if (n < 0) {
            store_broke(&s, n);
            continue;
        }
        for (int i = 0; i < n; i++) finish(&s, done[i]);
    }
    unpublish(&s);
    return NULL;
}
