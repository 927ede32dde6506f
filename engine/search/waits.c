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

void ps_waits_done(struct ps_waits *w) { free(w->at); }

void ps_waits_begin(struct ps_waits *w, uint64_t request, uint64_t sweep)
{
    if (request % w->each == 0) w->at[request / w->each].first = sweep;
}

void ps_waits_end(struct ps_waits *w, uint64_t request, uint64_t sweep)
{
    if (request % w->each == 0) w->at[request / w->each].last = sweep;
}

/* When sweep i begins; begins[] is that of the stretches. */
static double begin_s(const struct ps_laid *l, const double *begins, uint64_t i)
{
    const uint64_t k = i / l->each;
    if (i == l->sweeps) return begins[l->n];
    return begins[k] + l->at[k].time_s * (double) (i % l->each) / l->at[k].n;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

int ps_waits_find(const struct ps_waits *w, const struct ps_laid *l, struct ps_simulated *ret)
{
    ps_auto_free double *begins = ps_calloc(l->n + 1, sizeof *begins);
    ps_auto_free double *took = ps_calloc(w->n + 1, sizeof *took);
    if (!begins || !took) return -ENOMEM;
    if (!w->n) return 0;
    for (uint32_t i = 0; i < l->n; i++) begins[i + 1] = begins[i] + l->at[i].time_s;
    for (uint32_t i = 0; i < w->n; i++) {
        const double from = begin_s(l, begins, w->at[i].first);
        took[i] = begin_s(l, begins, w->at[i].last + 1) - from;
        ret->first_token_s += (begin_s(l, begins, w->at[i].first + 1) - from) / w->n;
        ret->end_s += took[i] / w->n;
    }
    qsort(took, w->n, sizeof *took, by_value);
    ret->end_p95_s = took[(w->n - 1) * UINT64_C(95) / 100];
    return 0;
}
