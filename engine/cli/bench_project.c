/* SPDX-License-Identifier: Apache-2.0 */
/* A block of sequences of one length takes for each of its sweeps a little longer than for the one before, as KV grows. So some sweeps
 * early, midway and late, and straight lines between, tell of all of them. The prompts are run whole. */
#include "engine/cli/bench.h"

enum { EARLY, MIDWAY, LATE };

/* The block is full: from here on all sequences make a token a sweep, until the first has all of its. */
static void begin(struct ps_projection *p, const struct ps_run_stats *st)
{
    p->place = EARLY;
    p->full_at = p->leader;
    p->fill_s = st->decode_s;
    p->behind = (uint64_t) p->leader * p->requests - st->generated_tokens;
}

/* The sweep that is under way is still of this place; the token that comes of it is the last before the skip. */
static void leave(struct ps_projection *p)
{
    const uint32_t left = p->gen - p->leader - 1,
                   rest = p->place == EARLY ? 2 * p->sweeps : p->sweeps;
    if (p->n[p->place] == p->sweeps && left > rest + 1)
        p->skip = p->place == EARLY ? (left - rest) / 2 : left - rest;
}

bool ps_project_sweep(struct ps_projection *p, const struct ps_run_stats *st)
{
    const double s = st->decode_s - p->at_s;
    p->at_s = st->decode_s;
    if (p->place < 0) {
        if (st->active == p->requests) begin(p, st);
        return false;
    }
    p->sum_s[p->place] += s;
    p->sum_at[p->place] += p->leader;
    p->n[p->place]++;
    if (p->skip) { /* was taken */
        p->skip = 0;
        p->place++;
    } else if (p->place != LATE) {
        leave(p);
    }
    return p->place == LATE && st->active < p->requests;
}

void ps_project(const struct ps_projection *p, struct ps_bench_run *ret)
{
    double s[3], at[3], sum = 0;
    for (int i = EARLY; i <= LATE; i++) {
        s[i] = p->sum_s[i] / p->n[i];
        at[i] = p->sum_at[i] / p->n[i];
    }
    for (uint32_t i = p->full_at + 1; i <= p->gen; i++) {
        const int k = i < at[MIDWAY] ? EARLY : MIDWAY;
        sum += s[k] + (s[k + 1] - s[k]) * (i - at[k]) / (at[k + 1] - at[k]);
    }
    ret->projected = true;
    ret->requests = p->requests;
    ret->generated_tokens = (uint64_t) p->requests * p->gen;
    ret->decode_s = p->fill_s + sum + (double) p->behind * s[LATE] / p->requests;
}
