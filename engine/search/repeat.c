/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/search/repeat.h"
#include <math.h>

/* Blocks that are laid out at least; those before the part that counts often. */
enum { BLOCKS = 12, FIRST_BLOCKS = 2 };

void ps_repeat_init(struct ps_repeat *r, struct ps_length_feed *feed, const struct ps_plan *plan,
                    uint64_t tokens, bool every)
{
    const struct ps_length_sums *all = &feed->all;
    *r = (struct ps_repeat) {
        .feed = feed, .block = (uint64_t) plan->slots * plan->micro_batches, .off = every, .next = 1
    };
    if (every || !tokens || all->alike || all->gen + feed->n <= tokens) return;
    uint64_t n = (uint64_t) ((double) feed->n * (double) tokens / (double) (all->gen + feed->n));
    if (n < BLOCKS * r->block) n = BLOCKS * r->block;
    if (n < feed->n / 2) feed->n = n;
}

/* The whole rounds that are left are not handed out. */
static void close_round(struct ps_repeat *r)
{
    const uint64_t asked = r->end.asked - r->begin.asked, left = r->feed->n - r->feed->at;
    if (!asked || left < asked) return;
    r->times = (double) (left / asked);
    r->feed->n -= left / asked * asked;
    r->found = true;
}

void ps_repeat_sweep(struct ps_repeat *r, const struct ps_sweep_shape *h)
{
    const uint64_t before = r->rows;
    const struct mark now = {
        .sweep = h->sweep, .state = h->state, .asked = r->feed->at, .rows = before
    };
    r->rows += h->decode_rows + h->prompt_rows;
    if (r->off || r->found || !h->sweep) return;
    if (r->feed->all.alike) {
        if (r->begin.known && h->state == r->begin.state) {
            r->end = now;
            close_round(r);
        } else if (h->sweep == r->next) {
            r->begin = now;
            r->next *= 2;
        }
    } else if (r->feed->n < r->feed->lengths->n) {
        if (!r->begin.known && now.asked > FIRST_BLOCKS * r->block) r->begin = now;
        if (now.asked < r->feed->n) r->end = now;
    }
}

void ps_repeat_stats(struct ps_repeat *r, const struct ps_run_stats *stats)
{
    struct mark *const marks[] = { &r->begin, &r->end };
    for (int i = 0; i < 2; i++)
        if (marks[i]->sweep && marks[i]->sweep == stats->sweeps && !marks[i]->known) {
            marks[i]->stats = *stats;
            marks[i]->known = true;
        }
}

void ps_repeat_end(struct ps_repeat *r)
{
    const struct ps_length_sums *all = &r->feed->all;
    const double rows = (double) (r->end.rows - r->begin.rows),
                 want = (double) all->prompt + (double) all->fed;
    if (!r->found && r->end.sweep > r->begin.sweep && r->begin.known && rows > 0 &&
        want > (double) r->rows)
        r->times = (want - (double) r->rows) / rows;
    if (!(r->times > 0)) return;
    r->from = r->begin.sweep;
    r->to = r->end.sweep;
}

static void add(uint64_t *to, uint64_t from, uint64_t until, double times)
{
    const uint64_t whole = (uint64_t) times, one = until - from;
    *to += one * whole + (uint64_t) llround((double) one * (times - (double) whole));
}

void ps_repeat_count(const struct ps_repeat *r, struct ps_run_stats *s)
{
    const struct ps_run_stats *a = &r->begin.stats, *z = &r->end.stats;
    if (!(r->times > 0)) return;
    add(&s->sweeps, a->sweeps, z->sweeps, r->times);
    add(&s->evictions, a->evictions, z->evictions, r->times);
    add(&s->decode_passes, a->decode_passes, z->decode_passes, r->times);
    for (int q = 0; q < PS_Q__COUNT; q++)
        for (int k = 0; k < PS_KIND__COUNT; k++)
            add(&s->dev.bytes[q][k], a->dev.bytes[q][k], z->dev.bytes[q][k], r->times);
    s->prompt_tokens = r->feed->all.prompt;
    s->generated_tokens = r->feed->all.gen;
}
