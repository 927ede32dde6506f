/* SPDX-License-Identifier: Apache-2.0 */
/* A few of the best candidates: as different from each other as what a closed form gets wrong is, so that a closer look has a choice. */
#include "engine/plan/shape_plan.h"
#include <math.h>
#include <string.h>

static const double rest = 1.5; /* times the best: what is that much slower is no choice */

static bool near(double a, double b, double factor) { return a <= b * factor && b <= a * factor; }

/* At most a step apart on the search's grids, in everything that a user would call the plan's shape. */
static bool alike(const struct ps_candidate *a, const struct ps_candidate *b)
{
    const double step = 25.1;
    for (int t = 0; t < PS_TIER__COUNT; t++)
        if (fabs(a->kv.pct[t] - b->kv.pct[t]) > step) return false;
    return fabs(a->attention_host_pct - b->attention_host_pct) <= step &&
           near(a->micro_batches, b->micro_batches, 2) &&
           near((double) a->slots * a->micro_batches, (double) b->slots * b->micro_batches, 1.6) &&
           near(a->prompt_tokens, b->prompt_tokens, 4);
}

/* Of two that are equally fast: nothing goes to the disk for nothing. */
static bool better(const struct ps_found *a, const struct ps_found *b)
{
    if (a->predicted_s < b->predicted_s * 0.9999) return true;
    if (a->predicted_s > b->predicted_s * 1.0001) return false;
    return a->disk_bytes != b->disk_bytes ? a->disk_bytes < b->disk_bytes
                                          : a->host_bytes < b->host_bytes;
}

static void drop(struct ps_best *b, unsigned i)
{
    b->n--;
    memmove(&b->at[i], &b->at[i + 1], (b->n - i) * sizeof *b->at);
}

void ps_best_add(struct ps_best *b, const struct ps_candidate *c, const struct ps_plan *p)
{
    const struct ps_found x = { *c, p->predicted_s, p->host_bytes, p->disk_bytes };
    unsigned i = 0;
    for (i = 0; i < b->n; i++)
        if (alike(c, &b->at[i].c) && !better(&x, &b->at[i])) return;
    for (i = b->n; i-- > 0;)
        if (alike(c, &b->at[i].c)) drop(b, i);
    for (i = b->n; i > 0 && better(&x, &b->at[i - 1]);) i--;
    if (i == b->most) return;
    if (b->n == b->most) b->n--;
    memmove(&b->at[i + 1], &b->at[i], (b->n - i) * sizeof *b->at);
    b->at[i] = x;
    b->n++;
    while (b->at[b->n - 1].predicted_s > b->at[0].predicted_s * rest) b->n--;
}

double ps_best_limit(const struct ps_best *b)
{
    if (!b->n) return INFINITY;
    const double worst = b->at[b->n - 1].predicted_s * 1.0002, far = b->at[0].predicted_s * rest;
    return b->n == b->most && worst < far ? worst : far;
}
