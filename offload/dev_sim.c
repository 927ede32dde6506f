/* SPDX-License-Identifier: Apache-2.0 */
/* Computes nothing and keeps a virtual clock. Queues are in order and a task starts when its queue is
 * free and what it waits for is done, so its times are known when it is submitted:
 *
 *     done[q][n] = max(done[q][n-1], host, max over p of done[p][after[p]]) + price
 *
 * host is the time that the submitting thread has reached: the latest that it has waited for. No event loop.
 * The way to the GPU is one link for two queues: a transfer takes the first gap in its busy times that is long enough. What
 * other queues share (DRAM, the disk's two directions) is left out of this sketch of a machine. */
#include "engine/base/ps_mem.h"
#include "offload/dev_exec.h"
#include <math.h>
#include <string.h>

/* When the tasks of a queue are done: ascending. Only of tasks (past, submitted]; the others were done by `host`, and nothing starts
 * before that. So what is kept is what was submitted since the last wait and little more. */
struct times {
    double *at; /* [room], of task n at n % room */
    uint64_t past, room;
    double last; /* of the task submitted last */
};

/* When a link is busy: ascending, apart from each other. What ends before `host` is forgotten. */
struct busy {
    double from, to;
};
struct link {
    struct busy *at;
    size_t n, room;
};

struct sim {
    struct ps_dev base;
    struct link up;
    struct ps_sim_rates rates;
    double host, busy[PS_Q__COUNT];
    struct times done[PS_Q__COUNT];
    double stall[PS_KIND__COUNT], idle;
    double op_s[PS_OP__COUNT];
    struct ps_dev_stats stats;
};

static uint64_t ns(double s) { return (uint64_t) llround(s * 1e9); }

/* 0 for what was done by `host`. */
static double done_at(const struct sim *s, enum ps_q q, uint64_t n)
{
    const struct times *d = &s->done[q];
    if (n > s->base.submitted[q]) n = s->base.submitted[q];
    return n > d->past ? d->at[n % d->room] : 0;
}

static int remember(struct sim *s, enum ps_q q, uint64_t n, double t)
{
    struct times *d = &s->done[q];
    while (d->past + 1 < n && d->at[(d->past + 1) % d->room] <= s->host) d->past++;
    if (n - d->past > d->room) {
        uint64_t room = d->room ? 2 * d->room : 64;
        double *at = ps_calloc(room, sizeof *at);
        if (!at) return -ENOMEM;
        for (uint64_t i = d->past + 1; i < n; i++) at[i % room] = d->at[i % d->room];
        free(d->at);
        d->at = at;
        d->room = room;
    }
    d->at[n % d->room] = d->last = t;
    return 0;
}

/* The first time from `start` on at which the link is free for `len`; it is taken. */
static int take_link(struct link *l, double host, double len, double *start)
{
    size_t i = 0, old = 0;
    while (old < l->n && l->at[old].to < host) old++;
    l->n -= old;
    if (old) memmove(l->at, l->at + old, l->n * sizeof *l->at);
    for (i = l->n; i && l->at[i - 1].to > *start; i--) continue;
    for (; i < l->n && l->at[i].from < *start + len; i++)
        if (l->at[i].to > *start) *start = l->at[i].to;
    if (i && l->at[i - 1].to == *start) { /* most of the time: behind the one before */
        l->at[i - 1].to += len;
        return 0;
    }
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct busy *at = ps_calloc(room, sizeof *at);
        if (!at) return -ENOMEM;
        if (l->n) memcpy(at, l->at, l->n * sizeof *at);
        free(l->at);
        l->at = at;
        l->room = room;
    }
    memmove(l->at + i + 1, l->at + i, (l->n - i) * sizeof *l->at);
    l->at[i] = (struct busy) { *start, *start + len };
    l->n++;
    return 0;
}

static double price(const struct ps_sim_rates *r, enum ps_q q, const struct ps_task *t)
{
    double f = r->flops_per_s[q] > 0 ? t->cost.flops / r->flops_per_s[q] : 0;
    double b = r->bytes_per_s[q] > 0 ? t->cost.bytes / r->bytes_per_s[q] : 0;
    return r->lat_s + (f > b ? f : b);
}

static int sim_start(struct ps_dev *d, enum ps_q q, const struct ps_task *t,
                     const uint64_t after[PS_Q__COUNT])
{
    struct sim *s = (struct sim *) d;
    double own = s->done[q].last, start = own > s->host ? own : s->host;
    double from = start; /* it was there to be run from here on */
    int why = -1;
    for (int p = 0; p < PS_Q__COUNT; p++) {
        double x = done_at(s, (enum ps_q) p, after[p]);
        if (x <= start) continue;
        start = x;
        why = t->why[p];
    }
    const bool up = q == PS_Q_H2D || q == PS_Q_UP;
    double cost = price(&s->rates, up ? PS_Q_H2D : q, t);
    int r = up && cost > 0 ? take_link(&s->up, s->host, cost, &start) : 0;
    const double end = start + cost;
    if (!r) r = remember(s, q, d->submitted[q] + 1, end);
    if (r < 0) return r;
    s->busy[q] += cost;
    if (t->kern) s->op_s[t->kern->op] += cost;
    if (q == PS_Q_COMPUTE) {
        s->idle += from - own;
        if (why >= 0) s->stall[why] += start - from;
    }
    ps_stats_add(&s->stats, q, t, 0);
    if (s->rates.trace) s->rates.trace(s->rates.trace_ud, q, t, ns(start), ns(end));
    return 0;
}

static int sim_wait(struct ps_dev *d, const uint64_t n[PS_Q__COUNT])
{
    struct sim *s = (struct sim *) d;
    for (int q = 0; q < PS_Q__COUNT; q++) {
        double x = done_at(s, (enum ps_q) q, n[q]);
        if (x > s->host) s->host = x;
    }
    return 0;
}

static void sim_stats(struct ps_dev *d, struct ps_dev_stats *ret)
{
    struct sim *s = (struct sim *) d;
    *ret = s->stats;
    for (int q = 0; q < PS_Q__COUNT; q++) ret->busy_ns[q] = ns(s->busy[q]);
    for (int o = 0; o < PS_OP__COUNT; o++) ret->op_ns[o] = ns(s->op_s[o]);
    for (int k = 0; k < PS_KIND__COUNT; k++) ret->stall_ns[k] = ns(s->stall[k]);
    ret->idle_ns = ns(s->idle);
}
static const char *sim_error(const struct ps_dev *d) { return ""; }
static void sim_close(struct ps_dev *d)
{
    struct sim *s = (struct sim *) d;
    for (int q = 0; q < PS_Q__COUNT; q++) free(s->done[q].at);
    free(s->up.at);
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

int ps_dev_sim_open(const struct ps_sim_rates *rates, struct ps_dev **ret)
{
    for (int q = 0; q < PS_Q__COUNT; q++)
        if (!(rates->bytes_per_s[q] >= 0) || !(rates->flops_per_s[q] >= 0)) return -EINVAL;
    if (!(rates->lat_s >= 0)) return -EINVAL;
    struct sim *s = ps_calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    s->base.ops = &sim_ops;
    s->rates = *rates;
    s->base.where = rates->gpu ? PS_GPU : PS_HOST;
    *ret = &s->base;
    return 0;
}

double ps_dev_sim_now_s(const struct ps_dev *d)
{
    const struct sim *s = (const struct sim *) d;
    double t = s->host;
    for (int q = 0; q < PS_Q__COUNT; q++)
        if (s->done[q].last > t) t = s->done[q].last;
    return t;
}
double ps_dev_sim_busy_s(const struct ps_dev *d, enum ps_q q)
{
    return ((const struct sim *) d)->busy[q];
}
bool ps_dev_is_sim(const struct ps_dev *d) { return d->ops == &sim_ops; }
