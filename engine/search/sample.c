/* SPDX-License-Identifier: Apache-2.0 */
/* Groups are made by halving: the one whose sweeps differ most, weighed by how many they are, is cut at its mean of the load that they
 * differ most in. The first and the last sweep are groups of their own: caches are cold, and nothing comes after. */
#include "engine/search/sample.h"
#include "engine/base/ps_mem.h"
#include <math.h>

/* Fewer are never run: both ends, and one in between with the one before it. */
enum { LEAST = 6 };
/* Sweeps of a group may differ by that much of their mean time. */
#define ALIKE 0.001
struct group {
    uint32_t from, to; /* of `order` */
    double sweeps, mean[PS_LOAD__ALIKE];
    double differ; /* sum of squares of the load that differs most */
    int by;
};

struct groups {
    const struct ps_laid *l;
    uint32_t *order; /* stretches, by group */
    struct group *at;
    uint32_t n;
};

static double mean_of(const struct ps_stretch *s, int i) { return s->load[i] / s->counts; }

static void measure(struct groups *g, struct group *x)
{
    double sum[PS_LOAD__ALIKE] = { 0 }, squares[PS_LOAD__ALIKE] = { 0 };
    x->sweeps = x->differ = 0;
    for (uint32_t k = x->from; k < x->to; k++) {
        const struct ps_stretch *s = &g->l->at[g->order[k]];
        x->sweeps += s->counts;
        for (int i = 0; i < PS_LOAD__ALIKE; i++) sum[i] += s->load[i];
    }
    for (int i = 0; i < PS_LOAD__ALIKE; i++) x->mean[i] = sum[i] / x->sweeps;
    for (uint32_t k = x->from; k < x->to; k++) {
        const struct ps_stretch *s = &g->l->at[g->order[k]];
        for (int i = 0; i < PS_LOAD__ALIKE; i++) {
            const double d = mean_of(s, i) - x->mean[i];
            squares[i] += s->counts * d * d;
        }
    }
    for (int i = 0; i < PS_LOAD__ALIKE; i++) {
        /* What is hidden behind something slower matters less. */
        const double w = i >= PS_LOAD_ALL ? 1 : 0.1;
        if (w * squares[i] > x->differ) {
            x->differ = w * squares[i];
            x->by = i;
        }
    }
}

/* Stretches below the group's mean come first. */
static uint32_t part(struct groups *g, const struct group *x)
{
    uint32_t at = x->from;
    for (uint32_t k = x->from; k < x->to; k++) {
        const uint32_t s = g->order[k];
        if (mean_of(&g->l->at[s], x->by) >= x->mean[x->by]) continue;
        g->order[k] = g->order[at];
        g->order[at++] = s;
    }
    return at;
}

static bool cut(struct groups *g, double least)
{
    struct group *worst = NULL;
    for (uint32_t i = 0; i < g->n; i++)
        if (!worst || g->at[i].differ > worst->differ) worst = &g->at[i];
    if (!worst || worst->differ <= least) return false;
    const uint32_t at = part(g, worst);
    if (at == worst->from || at == worst->to) return false;
    struct group *other = &g->at[g->n++];
    *other = (struct group) { .from = at, .to = worst->to };
    worst->to = at;
    measure(g, worst);
    measure(g, other);
    return true;
}

static double distance(const struct group *x, const struct ps_stretch *s)
{
    double d = 0;
    for (int i = 0; i < PS_LOAD__ALIKE; i++) {
        const double e = mean_of(s, i) - x->mean[i];
        d += (i >= PS_LOAD_ALL ? 1 : 0.1) * e * e;
    }
    return d;
}

/* The stretch that is most like the group's mean; of equal ones, that which follows one of its own group. */
static uint32_t typical(const struct groups *g, const struct group *x)
{
    uint32_t best = g->order[x->from];
    double least = INFINITY;
    for (uint32_t k = x->from; k < x->to; k++) {
        const uint32_t i = g->order[k];
        const struct ps_stretch *s = &g->l->at[i];
        double d = distance(x, s);
        if (s->n == 1 && g->l->at[i - 1].group != s->group) d = d * 1.1 + 1e-12;
        if (d < least) {
            least = d;
            best = i;
        }
    }
    return best;
}

static struct ps_stretch *stretch_of(const struct ps_laid *l, uint64_t sweep)
{
    return &l->at[sweep / l->each];
}

static int by_sweep(const void *a, const void *b)
{
    const struct ps_pick *x = a, *y = b;
    return x->sweep < y->sweep ? -1 : x->sweep > y->sweep;
}

/* The sweep before one that counts is run, too, unless the last that ran was like it. */
static void warm_up(const struct ps_laid *l, struct ps_picks *s)
{
    const uint32_t counting = s->n;
    for (uint32_t i = 1; i < counting; i++) {
        const uint64_t before = s->at[i].sweep - 1, ran = s->at[i - 1].sweep;
        if (ran == before || stretch_of(l, ran)->group == stretch_of(l, before)->group) continue;
        s->at[s->n++] = (struct ps_pick) { .sweep = before };
    }
    qsort(s->at, s->n, sizeof *s->at, by_sweep);
}

/* Where a long job's last stretch is its last sweep alone, that was picked twice. */
static void drop_twin(struct ps_picks *s)
{
    struct ps_pick *last = &s->at[s->n - 1];
    if (last->sweep != last[-1].sweep) return;
    if (last->counts) last[-1] = *last;
    s->n--;
}

/* Of a job that is so long that its sweeps were put together, the first and the last count as all others do. */
static bool ends_apart(const struct ps_laid *l) { return l->each == 1; }

static void pick_groups(const struct ps_laid *l, const struct groups *g, struct ps_picks *s)
{
    for (uint32_t i = 0; i < g->n; i++)
        for (uint32_t k = g->at[i].from; k < g->at[i].to; k++) l->at[g->order[k]].group = i + 1;
    s->n = 0;
    s->at[s->n++] = (struct ps_pick) { .counts = ends_apart(l), .weight = 1 };
    s->at[s->n++] =
        (struct ps_pick) { .sweep = l->sweeps - 1, .counts = ends_apart(l), .weight = 1 };
    for (uint32_t i = 0; i < g->n; i++) {
        const struct ps_stretch *x = &l->at[typical(g, &g->at[i])];
        s->at[s->n++] = (struct ps_pick) { .sweep = x->first + x->n / 2,
                                           .counts = true,
                                           .group = g->at[i].sweeps };
    }
    qsort(s->at, s->n, sizeof *s->at, by_sweep);
    drop_twin(s);
    warm_up(l, s);
}

static void pick_all(const struct ps_laid *l, struct ps_picks *s)
{
    for (uint64_t i = 0; i < l->sweeps; i++)
        s->at[i] = (struct ps_pick) { .sweep = i,
                                      .counts = true,
                                      .weight = stretch_of(l, i)->counts / stretch_of(l, i)->n };
    s->n = (uint32_t) l->sweeps;
}

/* As many groups as may be, or as it takes for them to be alike inside. */
static void find_groups(const struct ps_laid *l, struct groups *g, uint32_t most,
                        struct ps_picks *s)
{
    struct group *all = &g->at[g->n++];
    *all = (struct group) { .to = ends_apart(l) ? l->n - 2 : l->n };
    for (uint32_t k = 0; k < all->to; k++) g->order[k] = k + ends_apart(l);
    measure(g, all);
    const double enough =
        ALIKE * ALIKE * all->sweeps * all->mean[PS_LOAD_ALL] * all->mean[PS_LOAD_ALL];
    pick_groups(l, g, s);
    while (g->n < most && cut(g, enough)) {
        if (2 * g->n + 3 <= most) continue; /* with all their warming up */
        pick_groups(l, g, s);
        if (s->n <= most) continue;
        /* One too many: it was cut from the one that ends where it begins. */
        const struct group *last = &g->at[--g->n];
        for (uint32_t i = 0; i < g->n; i++)
            if (g->at[i].to == last->from) {
                g->at[i].to = last->to;
                measure(g, &g->at[i]);
            }
        break;
    }
    pick_groups(l, g, s);
}

int ps_sample_pick(struct ps_laid *l, uint32_t most, struct ps_picks *s)
{
    if (most < LEAST) most = LEAST;
    const bool all = l->sweeps <= most;
    if (all) most = (uint32_t) l->sweeps;
    struct groups g = { .l = l };
    ps_auto_free struct group *at = ps_calloc(most + 1, sizeof *at);
    ps_auto_free uint32_t *order = ps_calloc(l->n + 1, sizeof *order);
    *s = (struct ps_picks) { .at = ps_calloc(2 * (size_t) most + 4, sizeof *s->at) };
    if (!at || !order || !s->at) return -ENOMEM;
    g.at = at;
    g.order = order;
    if (all)
        pick_all(l, s);
    else
        find_groups(l, &g, most, s);
    return 0;
}

/* ---- weights */

enum { TERMS = PS_LOAD__COUNT + 1, PICKS_PER_TERM = 3 };

/* Loads, and -1: one. What matters most comes first. */
static const int term[TERMS] = {
    PS_LOAD_ALL,         PS_LOAD_PREFILL,     -1,
    PS_LOAD_PROMPT_ROWS, PS_LOAD_DECODE_ROWS, PS_LOAD_COMPUTE,
    PS_LOAD_ENTRIES,     PS_LOAD_READ,        PS_LOAD_UP,
    PS_LOAD_LOTS,        PS_LOAD_PAIRS,       PS_LOAD_HOST,
    PS_LOAD_WRITE,       PS_LOAD_DOWN,        PS_LOAD_HEAD_ROWS,
};

/* In terms of the mean sweep's. */
static void terms(const double load[PS_LOAD__COUNT], double sweeps, const double mean[TERMS],
                  double ret[TERMS])
{
    for (int i = 0; i < TERMS; i++) {
        ret[i] = term[i] < 0 ? sweeps : load[term[i]];
        if (mean[i] > 0) ret[i] /= mean[i];
    }
}

/* a x = b by elimination; a is symmetric and positive. */
static void solve(double a[TERMS][TERMS], double b[TERMS], int n)
{
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            const double f = a[j][i] / a[i][i];
            for (int k = i; k < n; k++) a[j][k] -= f * a[i][k];
            b[j] -= f * b[i];
        }
    for (int i = n; i-- > 0;) {
        for (int k = i + 1; k < n; k++) b[i] -= a[i][k] * b[k];
        b[i] /= a[i][i];
    }
}

/* In proportion to the time that loads tell. */
static void weigh_groups(const struct ps_laid *l, struct ps_picks *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct ps_pick *p = &s->at[i];
        double all = 0;
        if (!(p->group > 0)) continue;
        const uint32_t group = stretch_of(l, p->sweep)->group;
        for (uint32_t k = 0; k < l->n; k++)
            if (l->at[k].group == group) all += l->at[k].load[PS_LOAD_ALL];
        p->weight = p->load[PS_LOAD_ALL] > 0 ? all / p->load[PS_LOAD_ALL] : p->group;
    }
}

struct sums {
    double mean[TERMS]; /* of a sweep */
    double a[TERMS][TERMS],
        b[TERMS]; /* picks' products; what the job has more than the picks stand for */
    int n;        /* terms that there are enough picks for */
};

static struct sums add_up(const struct ps_laid *l, const struct ps_picks *s)
{
    struct sums t = { .n = 0 };
    double x[TERMS];
    const double sweeps = ps_laid_sweeps(l);
    int picks = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        terms(l->at[i].load, l->at[i].counts, (double[TERMS]) { 0 }, x);
        for (int j = 0; j < TERMS; j++) t.mean[j] += x[j] / sweeps;
    }
    for (int j = 0; j < TERMS; j++) t.b[j] = t.mean[j] > 0 ? sweeps : 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct ps_pick *p = &s->at[i];
        if (!p->counts) continue;
        terms(p->load, 1, t.mean, x);
        for (int j = 0; j < TERMS; j++) t.b[j] -= p->weight * x[j];
        if (!(p->group > 0)) continue;
        picks++;
        for (int j = 0; j < TERMS; j++)
            for (int k = 0; k < TERMS; k++) t.a[j][k] += p->weight * x[j] * x[k];
    }
    t.n = picks / PICKS_PER_TERM < TERMS ? picks / PICKS_PER_TERM : TERMS;
    return t;
}

/* Changes weights so that the sums of loads come nearer to the job's, the nearer the smaller `stiff` is; not, if one would change by
 * more than a fifth. */
static bool bend(struct ps_picks *s, struct sums t, double stiff)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int j = 0; !pass && j < t.n; j++) t.a[j][j] += stiff;
        if (!pass) solve(t.a, t.b, t.n);
        for (uint32_t i = 0; i < s->n; i++) {
            double x[TERMS], more = 0;
            if (!(s->at[i].group > 0)) continue;
            terms(s->at[i].load, 1, t.mean, x);
            for (int j = 0; j < t.n; j++) more += t.b[j] * x[j];
            if (!pass && !(fabs(more) <= 0.2)) return false;
            if (pass) s->at[i].weight *= 1 + more;
        }
    }
    return true;
}

/* Then changed as little as may be, in proportion, so that the sums of loads are the job's: of as many loads as there are enough picks for
 * (calibrated weights: Deville and Sarndal, Calibration Estimators in Survey Sampling, 1992). */
void ps_sample_weigh(const struct ps_laid *l, struct ps_picks *s)
{
    weigh_groups(l, s);
    const struct sums t = add_up(l, s);
    const double sweeps = ps_laid_sweeps(l);
    for (double stiff = 1e-6; stiff < 10 && !bend(s, t, stiff * sweeps);) stiff *= 4;
}

void ps_sample_times(const struct ps_laid *l, const struct ps_picks *s, const double *took_s,
                     uint32_t apart)
{
    for (uint32_t i = 0; i < l->n; i++) l->at[i].time_s = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct ps_pick *p = &s->at[i];
        struct ps_stretch *x = stretch_of(l, p->sweep);
        if (!p->counts) continue;
        if (!(p->group > 0)) x->time_s += took_s[i * apart];
        for (uint32_t k = 0; p->group > 0 && k < l->n; k++)
            if (l->at[k].group == x->group)
                l->at[k].time_s = l->at[k].n * took_s[i * apart] * p->weight / p->group;
    }
}
