/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/search/waits.h"
#include "engine/base/ps_mem.h"

enum { MOST = 4096 };

int ps_waits_init(struct ps_waits *w, uint64_t requests)
{
    *w = (struct ps_waits) { .each = requests / MOST + 1 };
    w->n = (uint32_t) ((requests + w->each - 1) / w->each);
    w->at = ps_calloc(w->n + 1, sizeof *w->at);
    return w->at ? 0 : -ENOMEM;
}

void ps_waits_repeat(struct ps_waits *w, uint64_t requests, uint64_t from, uint64_t to,
                     double times)
{
    const uint64_t n = (requests + w->each - 1) / w->each;
    if (n < w->n) w->n = (uint32_t) n;
    w->from = from;
    w->to = to;
    w->times = times;
}

void ps_waits_done(struct ps_waits *w) { free(w->at); }

static struct ps_wait *wait_of(struct ps_waits *w, uint64_t request)
{
    const uint64_t i = request / w->each;
    return request % w->each == 0 && i < w->n ? &w->at[i] : NULL;
}

void ps_waits_begin(struct ps_waits *w, uint64_t request, uint64_t sweep)
{
    struct ps_wait *x = wait_of(w, request);
    if (x) x->first = sweep;
}

void ps_waits_end(struct ps_waits *w, uint64_t request, uint64_t sweep)
{
    struct ps_wait *x = wait_of(w, request);
    if (x) x->last = sweep;
}

/* When sweep i begins; begins[] is that of the stretches. */
static double begin_s(const struct ps_laid *l, const double *begins, uint64_t i)
{
    const uint64_t k = i / l->each;
    if (i == l->sweeps) return begins[l->n];
    return begins[k] + l->at[k].time_s * (double) (i % l->each) / l->at[k].n;
}

struct took {
    double s, counts;
};

static int by_time(const void *a, const void *b)
{
    const double x = ((const struct took *) a)->s, y = ((const struct took *) b)->s;
    return (x > y) - (x < y);
}

/* Which so much of all do not exceed. */
static double share_of(struct took *t, uint32_t n, double share)
{
    double all = 0, sum = 0;
    uint32_t i = 0;
    qsort(t, n, sizeof *t, by_time);
    for (uint32_t k = 0; k < n; k++) all += t[k].counts;
    while (i + 1 < n && (sum += t[i].counts) < share * all) i++;
    return t[i].s;
}

int ps_waits_find(const struct ps_waits *w, const struct ps_laid *l, struct ps_simulated *ret)
{
    ps_auto_free double *begins = ps_calloc(l->n + 1, sizeof *begins);
    ps_auto_free struct took *took = ps_calloc(w->n + 1, sizeof *took);
    double all = 0;
    if (!begins || !took) return -ENOMEM;
    if (!w->n) return 0;
    for (uint32_t i = 0; i < l->n; i++) begins[i + 1] = begins[i] + l->at[i].time_s;
    for (uint32_t i = 0; i < w->n; i++) {
        const uint64_t request = i * w->each;
        const double from = begin_s(l, begins, w->at[i].first),
                     counts = request >= w->from && request < w->to ? 1 + w->times : 1;
        took[i] = (struct took) { begin_s(l, begins, w->at[i].last + 1) - from, counts };
        ret->first_token_s += counts * (begin_s(l, begins, w->at[i].first + 1) - from);
        ret->end_s += counts * took[i].s;
        all += counts;
    }
    ret->first_token_s /= all;
    ret->end_s /= all;
    ret->end_p95_s = share_of(took, w->n, 0.95);
    return 0;
}
