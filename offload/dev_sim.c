/* SPDX-License-Identifier: Apache-2.0 */
/* Computes nothing and keeps a virtual clock. What is submitted lies in its queue until the host waits for something: then time passes,
 * from one end of a task to the next. At most one task of each queue is under way, in order, as soon as what it must wait for is done.
 *
 * Tasks that are under way share the machine (sim_price.h says what they use of what): all go at full speed as long as there is enough of
 * everything. If not, all slow down alike until nothing is used more than there is; those that do not use what ran out then speed up
 * again, until something else runs out or they go at full speed. So nothing that is scarce ever lies idle, and what a task has done is
 * the time that passed times its speed. Disk transfers take their share first, and the others share the rest: they ask for little of the
 * cores and of memory, and who asks for less than the others is the last to go short.
 *
 * The clock is the submitting thread's, too: it stands still while that submits. What is submitted after a wait begins no earlier than what
 * was waited for was done, and `wait_s` later if that was not done yet: so long it takes to be woken and to wake. A queue is full when a real one is: then the host waits, as it does there. */
#include "engine/base/ps_mem.h"
#include "offload/dev_exec.h"
#include "offload/sim_price.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { QUEUE_LEN = 1024 };

struct item {
    struct ps_task task;
    uint64_t after[PS_Q__COUNT];
    struct ps_price price;
    double since, until; /* when it began, and when it is done at the earliest */
};

struct lane {
    struct item *item;          /* [queue_len], task n (from 0) at n % queue_len */
    uint64_t put, served, done; /* served: its bytes have passed, or its kernel has ended */
    double left, speed, busy;   /* of the task under way: solo seconds left */
};

struct sim {
    struct ps_dev base;
    struct ps_sim_cfg cfg;
    struct ps_pricer pricer;
    double now;
    unsigned running; /* queues with a task under way, a bit each */
    struct lane lane[PS_Q__COUNT];
    double stall[PS_KIND__COUNT], idle, op_s[PS_OP__COUNT];
    struct ps_dev_stats stats;
};

static uint64_t ns(double s) { return (uint64_t) llround(s * 1e9); }

static struct item *at(const struct sim *s, int q, uint64_t n)
{
    const struct lane *l = &s->lane[q];
    return l->put > n ? &l->item[n % s->cfg.queue_len] : NULL;
}
/* The one under way, or the next. */
static struct item *first(const struct sim *s, int q) { return at(s, q, s->lane[q].served); }

/* A queue that the task still waits for; -1: none. */
static int unmet(const struct sim *s, const struct item *t)
{
    for (int p = 0; p < PS_Q__COUNT; p++)
        if (s->lane[p].done < t->after[p]) return p;
    return -1;
}

/* What the disk has been asked for the other way and has not done yet, in seconds: as many transfers as it has at once. */
static double asked_before(const struct sim *s, int q)
{
    enum { DEPTH = 64 };
    const int other = q == PS_Q_READ ? PS_Q_WRITE : PS_Q_READ;
    const struct lane *l = &s->lane[other];
    double sum = 0, room = s->running >> other & 1 ? DEPTH : 0;
    const struct item *t;
    for (uint64_t n = l->served; room > 0 && (t = at(s, other, n)); n++) {
        if (n > l->served && unmet(s, t) >= 0) break;
        const double left = n > l->served ? t->price.solo_s : l->left,
                     ios = left > 0 ? t->price.ios * left / t->price.solo_s : 0;
        sum += ios > room ? left * room / ios : left;
        room -= ios;
    }
    return sum;
}

static void begin_ready(struct sim *s)
{
    for (int q = 0; q < PS_Q__COUNT; q++) {
        struct item *t = s->running >> q & 1 ? NULL : first(s, q);
        if (!t || unmet(s, t) >= 0) continue;
        s->running |= 1u << q;
        s->lane[q].left = t->price.solo_s;
        t->since = t->until = s->now;
        if (t->price.behind > 0) t->until += t->price.behind * asked_before(s, q);
    }
}

/* The most that is left to each of those in `open`, when what the others use is taken from `room`; *ret is what runs out first. */
static double level(const struct sim *s, unsigned open, const double room[PS_SHARED__COUNT],
                    int *ret)
{
    double least = 1, use[PS_SHARED__COUNT] = { 0 };
    *ret = -1;
    for (int q = 0; q < PS_Q__COUNT; q++)
        for (int i = 0; open >> q & 1 && i < PS_SHARED__COUNT; i++)
            use[i] += first(s, q)->price.use[i];
    for (int i = 0; i < PS_SHARED__COUNT; i++) {
        if (!(use[i] > 0) || use[i] * least <= room[i]) continue;
        least = room[i] / use[i];
        *ret = i;
    }
    return least;
}

static void share_among(struct sim *s, unsigned open, double room[PS_SHARED__COUNT])
{
    while (open) {
        int scarce;
        const double speed = level(s, open, room, &scarce);
        for (int q = 0; q < PS_Q__COUNT; q++) {
            if (!(open >> q & 1)) continue;
            const double *use = first(s, q)->price.use;
            if (scarce >= 0 && !(use[scarce] > 0)) continue;
            open &= ~(1u << q);
            s->lane[q].speed = speed;
            for (int i = 0; i < PS_SHARED__COUNT; i++) room[i] = fmax(room[i] - speed * use[i], 0);
        }
    }
}

static void share(struct sim *s)
{
    const unsigned disk = s->running & (1u << PS_Q_READ | 1u << PS_Q_WRITE);
    double room[PS_SHARED__COUNT];
    ps_price_room(&s->pricer, s->running, room);
    share_among(s, disk, room);
    share_among(s, s->running & ~disk, room);
}

static void pass_time(struct sim *s, double t)
{
    s->now += t;
    for (int q = 0; q < PS_Q__COUNT; q++)
        if (s->running >> q & 1) {
            s->lane[q].busy += t;
            s->lane[q].left -= t * s->lane[q].speed;
        } else if (s->lane[q].served > s->lane[q].done) {
            s->lane[q].busy += t;
        }
    if (s->running >> PS_Q_COMPUTE & 1) return;
    const struct item *next = first(s, PS_Q_COMPUTE);
    if (next)
        s->stall[next->task.why[unmet(s, next)]] += t;
    else
        s->idle += t;
}

/* Those at the front whose time has come. */
static void close_due(struct sim *s, int q)
{
    struct lane *l = &s->lane[q];
    for (; l->done < l->served; l->done++) {
        const struct item *i = at(s, q, l->done);
        const struct ps_task *t = &i->task;
        if (i->until > s->now * (1 + 1e-14)) return;
        if (t->kern) s->op_s[t->kern->op] += s->now - i->since;
        ps_stats_add(&s->stats, (enum ps_q) q, t, 0);
        if (s->cfg.trace) s->cfg.trace(s->cfg.trace_ud, (enum ps_q) q, t, ns(i->since), ns(s->now));
    }
}

static void end(struct sim *s, int q)
{
    struct item *t = first(s, q);
    const bool busy = s->running >> (s->cfg.gpu ? PS_Q_HOST : PS_Q_COMPUTE) & 1;
    t->until = fmax(t->until, s->now) + (busy ? t->price.busy_delay_s : t->price.delay_s);
    s->lane[q].served++;
    s->running &= ~(1u << q);
}

/* Until the next one at a queue's front is done that waits for nothing but that. */
static double next_close(const struct sim *s)
{
    double t = INFINITY;
    for (int q = 0; q < PS_Q__COUNT; q++)
        if (s->lane[q].done < s->lane[q].served)
            t = fmin(t, at(s, q, s->lane[q].done)->until - s->now);
    return t;
}

/* To the next end of a task, or for so long if that is less. */
static void step(struct sim *s, double most)
{
    double t, until[PS_Q__COUNT];
    begin_ready(s);
    t = fmin(most, next_close(s));
    /* What is waited for was submitted, and waits for what was submitted before it. */
    assert(s->running || isfinite(t));
    share(s);
    for (int q = 0; q < PS_Q__COUNT; q++) {
        if (!(s->running >> q & 1)) continue;
        until[q] = s->lane[q].left / s->lane[q].speed;
        t = fmin(t, until[q]);
    }
    t = fmax(t, 0);
    const unsigned running = s->running;
    pass_time(s, t);
    for (int q = 0; q < PS_Q__COUNT; q++)
        if (running >> q & 1 && until[q] <= t * (1 + 1e-14)) end(s, q);
    for (int q = 0; q < PS_Q__COUNT; q++) close_due(s, q);
}

static int sim_wait(struct ps_dev *d, const uint64_t n[PS_Q__COUNT])
{
    struct sim *s = (struct sim *) d;
    bool waited = false;
    for (int q = 0; q < PS_Q__COUNT; q++)
        for (; s->lane[q].done < n[q]; waited = true) step(s, INFINITY);
    const double on = s->now + (waited ? s->pricer.compute->wait_s : 0);
    while (s->now < on) step(s, on - s->now);
    return 0;
}

static int sim_start(struct ps_dev *d, enum ps_q q, const struct ps_task *t,
                     const uint64_t after[PS_Q__COUNT])
{
    struct sim *s = (struct sim *) d;
    struct lane *l = &s->lane[q];
    const uint64_t len = s->cfg.queue_len;
    if (l->put - l->done == len) /* until a quarter is free, as the cpu device */
        for (uint64_t n = l->done + 1 + len / 4; l->done < n;) step(s, INFINITY);
    struct item *i = &l->item[l->put++ % len];
    i->task = *t;
    memcpy(i->after, after, sizeof i->after);
    ps_price_task(&s->pricer, q, t, &i->price);
    return 0;
}

static void sim_stats(struct ps_dev *d, struct ps_dev_stats *ret)
{
    struct sim *s = (struct sim *) d;
    *ret = s->stats;
    for (int q = 0; q < PS_Q__COUNT; q++) ret->busy_ns[q] = ns(s->lane[q].busy);
    for (int o = 0; o < PS_OP__COUNT; o++) ret->op_ns[o] = ns(s->op_s[o]);
    for (int k = 0; k < PS_KIND__COUNT; k++) ret->stall_ns[k] = ns(s->stall[k]);
    ret->idle_ns = ns(s->idle);
}
static const char *sim_error(const struct ps_dev *d) { return ""; }
static void sim_close(struct ps_dev *d)
{
    struct sim *s = (struct sim *) d;
    for (int q = 0; q < PS_Q__COUNT; q++) free(s->lane[q].item);
    free(s);
}

static const struct ps_dev_ops sim_ops = {
    .name = "sim",
    .start = sim_start,
    .wait = sim_wait,
    .stats = sim_stats,
    .error_text = sim_error,
    .close = sim_close,
};

int ps_dev_sim_open(const struct ps_sim_cfg *cfg, struct ps_dev **ret)
{
    struct sim *s = ps_calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    s->base.ops = &sim_ops;
    s->base.where = cfg->gpu ? PS_GPU : PS_HOST;
    s->base.rounds = cfg->gpu;
    s->cfg = *cfg;
    if (!s->cfg.queue_len) s->cfg.queue_len = QUEUE_LEN;
    int r = ps_pricer_init(&s->pricer, cfg->profile, cfg->gpu, cfg->outside);
    for (int q = 0; !r && q < PS_Q__COUNT; q++) {
        s->lane[q].item = ps_calloc(s->cfg.queue_len, sizeof *s->lane[q].item);
        if (!s->lane[q].item) r = -ENOMEM;
    }
    if (r < 0) {
        sim_close(&s->base);
        return r;
    }
    *ret = &s->base;
    return 0;
}

double ps_dev_sim_now_s(const struct ps_dev *d) { return ((const struct sim *) d)->now; }
double ps_dev_sim_busy_s(const struct ps_dev *d, enum ps_q q)
{
    return ((const struct sim *) d)->lane[q].busy;
}
bool ps_dev_is_sim(const struct ps_dev *d) { return d->ops == &sim_ops; }
