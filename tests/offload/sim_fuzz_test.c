/* SPDX-License-Identifier: Apache-2.0 */
/* Random tasks on random machines, on the simulated device: never sooner than any resource or chain of tasks allows, never later than one
 * task at a time, and where nothing is shared exactly as the longest chain says. */
#include "ps_cmocka.h"
#include "virtual_rig.h"
#include <math.h>

enum { TASKS = 200, BUFS = 9, GRAPHS = 1000 };

static double between(unsigned *seed, double a, double b)
{
    return a * pow(b / a, (double) rand_r(seed) / RAND_MAX);
}

static struct ps_way random_way(unsigned *seed)
{
    const double alone = between(seed, G / 4, 4 * G);
    return (struct ps_way) { alone, alone * between(seed, 0.5, 1) }; /* both: no less than one */
}

static struct ps_profile random_profile(unsigned *seed)
{
    return (struct ps_profile) { .cores = 1 + (unsigned) rand_r(seed) % 4,
                                 .threads = 1 + (unsigned) rand_r(seed) % 4,
                                 .host = { .mem = between(seed, G / 2, 8 * G),
                                           .copy = between(seed, G / 2, 8 * G),
                                           .task_s = between(seed, 1e-3, 1) },
                                 .gpu = { .mem = G, .copy = G, .task_s = 0.01 },
                                 .disk_read = random_way(seed),
                                 .disk_write = random_way(seed),
                                 .h2d = random_way(seed),
                                 .d2h = random_way(seed),
                                 .io_cores = between(seed, 0.01, 1),
                                 .disk_s = between(seed, 1e-3, 1),
                                 .copy_s = between(seed, 1e-3, 1) };
}

/* The same tasks and waits for the same seed. What the device does not share with the test: who waits for whom, by the ends of each
 * buffer's last write and reads. */
struct graph {
    struct rig *rig;
    struct ps_buf buf[BUFS];
    double wrote[BUFS], read[BUFS], queue[PS_Q__COUNT], host, last; /* ends, with solo times */
    const double *solo;                                             /* of each task, or NULL */
    unsigned n;
    double bytes[PS_Q__COUNT];
};

static double later(double a, double b) { return a > b ? a : b; }

static void chain(struct graph *x, enum ps_q q, int y, int from)
{
    double t = later(later(x->queue[q], x->host), later(x->wrote[y], x->read[y]));
    t = later(t, x->wrote[from]) + (x->solo ? x->solo[x->n] : 0);
    x->n++;
    x->queue[q] = x->wrote[y] = t;
    x->read[from] = later(x->read[from], t);
    x->read[y] = 0;
    x->last = later(x->last, t);
}

static void submit(struct graph *x, unsigned *seed)
{
    const int y = rand_r(seed) % BUFS, from = (y + 1 + rand_r(seed) % (BUFS - 1)) % BUFS;
    struct ps_buf *a = &x->buf[y], *b = &x->buf[from];
    const double size = between(seed, 0.01, 2);
    struct ps_dev *d = x->rig->dev;
    if ((a->where == PS_DISK && b->where != PS_HOST) ||
        (b->where == PS_DISK && a->where != PS_HOST))
        return;
    uint64_t before[PS_Q__COUNT];
    memcpy(before, d->submitted, sizeof before);
    if (a->where == b->where)
        rig_call(x->rig, rand_r(seed) % 2 ? PS_Q_COMPUTE : PS_Q_HOST, size, a, b);
    else
        rig_move(x->rig, a, b, size * G);
    for (int q = 0; q < PS_Q__COUNT; q++)
        if (d->submitted[q] > before[q]) {
            x->bytes[q] += size * G;
            chain(x, (enum ps_q) q, y, from);
        }
}

static void maybe_wait(struct graph *x, unsigned *seed)
{
    const int y = rand_r(seed) % BUFS;
    const bool writes = rand_r(seed) % 2;
    if (rand_r(seed) % 20) return;
    assert_ok(ps_dev_wait(x->rig->dev, &x->buf[y], writes));
    x->host = later(x->host, x->wrote[y]);
    if (writes) x->host = later(x->host, x->read[y]);
}

/* The time that all takes. */
static double run(struct graph *x, struct rig *g, unsigned seed, bool serial, const double *solo)
{
    *x = (struct graph) { .rig = g, .solo = solo };
    if (!g->cfg.queue_len) g->cfg.queue_len = TASKS;
    rig_reopen(g);
    g->dev->serial = serial;
    for (int i = 0; i < BUFS; i++) {
        static const enum ps_where at[] = { PS_HOST, PS_GPU, PS_DISK };
        x->buf[i] = rig_buf(at[i % 3]);
        x->buf[i].kind = g->cfg.gpu ? (enum ps_kind)(i % PS_KIND__COUNT) : PS_KIND_KV;
    }
    for (int i = 0; i < TASKS; i++) {
        submit(x, &seed);
        maybe_wait(x, &seed);
    }
    return rig_drained(g);
}

static void at_least(unsigned seed, const char *what, double got, double least)
{
    if (!(got >= least * (1 - 1e-6)))
        fail_msg("seed %u: %g s, %s takes %g", seed, got, what, least);
}

static double solo[TASKS];

/* Alone, one after the other. */
static double one_by_one(struct graph *x, struct rig *g, unsigned seed)
{
    const double sum = run(x, g, seed, true, NULL);
    assert_int_equal(g->n_spans, x->n);
    for (unsigned i = 0; i < x->n; i++) solo[i] = g->span[i].t1 - g->span[i].t0;
    return sum;
}

static void bounds_hold(void **state)
{
    for (unsigned s = 1; s <= GRAPHS; s++) {
        unsigned seed = s;
        struct graph x;
        struct rig *g = rig_open(random_profile(&seed), rand_r(&seed) % 2);
        const struct ps_profile *p = &g->profile;
        g->cfg.queue_len = rand_r(&seed) % 2 ? 5 : TASKS;
        const double sum = one_by_one(&x, g, s), t = run(&x, g, s, false, solo);
        at_least(s, "the longest chain", t, x.last);
        at_least(s, "reading", t, x.bytes[PS_Q_READ] / p->disk_read.alone);
        at_least(s, "writing", t, x.bytes[PS_Q_WRITE] / p->disk_write.alone);
        at_least(s, "the way up", t, (x.bytes[PS_Q_H2D] + x.bytes[PS_Q_UP]) / p->h2d.alone);
        at_least(s, "the way down", t, x.bytes[PS_Q_D2H] / p->d2h.alone);
        const double host = x.bytes[PS_Q_HOST] / G, compute = x.bytes[PS_Q_COMPUTE] / G,
                     cpu = g->cfg.gpu ? host * p->threads : host + compute * p->threads;
        at_least(s, "the host's cores", t, cpu / fmax(p->cores, p->threads));
        if (!(t <= sum * (1 + 1e-9))) fail_msg("seed %u: %g s, one by one %g", s, t, sum);
        double busy = 0;
        for (int q = 0; q < PS_Q__COUNT; q++) busy += ps_dev_sim_busy_s(g->dev, (enum ps_q) q);
        assert_true(busy >= sum * (1 - 1e-9));
        const struct ps_dev_stats st = rig_stats(g);
        double all = (double) (st.busy_ns[PS_Q_COMPUTE] + st.idle_ns);
        for (int k = 0; k < PS_KIND__COUNT; k++) all += (double) st.stall_ns[k];
        assert_float_equal(all * 1e-9, t, 1e-8 * (1 + t));
    }
}

/* Memory is short: as long as everybody's bytes take together, where nobody is slower than his bytes in memory would be. */
static void memory_is_a_bound(void **state)
{
    for (unsigned s = 1; s <= 100; s++) {
        struct graph x;
        struct rig *g = rig_open((struct ps_profile) { .host.mem = 1.1 * G,
                                                       .disk_read.alone = G,
                                                       .disk_write.alone = G,
                                                       .h2d.alone = G,
                                                       .d2h.alone = G },
                                 true);
        (void) one_by_one(&x, g, s);
        const double t = run(&x, g, s, false, solo);
        double bytes = 0;
        for (int q = 0; q < PS_Q__COUNT; q++) bytes += q == PS_Q_COMPUTE ? 0 : x.bytes[q];
        at_least(s, "the memory", t, bytes / (1.1 * G));
    }
}

static struct ps_profile nothing_shared(unsigned *seed)
{
    struct ps_profile x = random_profile(seed);
    x.cores = x.threads = 0;
    x.host.mem = 0;
    x.disk_read.beside = x.disk_write.beside = x.h2d.beside = x.d2h.beside = 0;
    return x;
}

static void without_sharing_it_is_the_longest_chain(void **state)
{
    for (unsigned s = 1; s <= GRAPHS / 4; s++) {
        unsigned seed = s;
        struct graph x;
        struct rig *g = rig_open(nothing_shared(&seed), false);
        (void) one_by_one(&x, g, s);
        const double t = run(&x, g, s, false, solo);
        assert_float_equal(t, x.last, 1e-6 * t);
    }
}

/* A faster machine is never slower, task by task. */
static void faster_is_not_slower(void **state)
{
    for (unsigned s = 1; s <= 100; s++) {
        unsigned seed = s;
        struct graph x;
        struct rig *g = rig_open(random_profile(&seed), rand_r(&seed) % 2);
        const double sum = one_by_one(&x, g, s);
        double *const rates[] = { &g->profile.disk_read.alone, &g->profile.disk_write.alone,
                                  &g->profile.h2d.alone,       &g->profile.d2h.alone,
                                  &g->profile.host.mem,        &g->profile.host.copy };
        for (size_t i = 0; i < PS_ARRAY_LEN(rates); i++) {
            const double was = *rates[i];
            *rates[i] *= 1.5;
            assert_true(one_by_one(&x, g, s) <= sum * (1 + 1e-12));
            *rates[i] = was;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(memory_is_a_bound),
        cmocka_unit_test(without_sharing_it_is_the_longest_chain),
        cmocka_unit_test(faster_is_not_slower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
