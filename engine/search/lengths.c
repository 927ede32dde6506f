/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/search/lengths.h"
#include "engine/base/ps_mem.h"

uint32_t ps_lengths_prompt(const struct ps_lengths *l, uint64_t i)
{
    return l->prompt ? l->prompt[i] : l->each_prompt;
}

uint32_t ps_lengths_gen(const struct ps_lengths *l, uint64_t i)
{
    return l->gen ? l->gen[i] : l->each_gen;
}

static int sum_up(const struct ps_lengths *l, struct ps_length_sums *sums, uint32_t *ret_longest,
                  struct ps_detail *dt)
{
    const bool arrays = l->prompt || l->gen;
    const uint64_t n = arrays ? l->n : l->n > 0, each = arrays ? 1 : l->n;
    *sums = (struct ps_length_sums) { .alike = true };
    *ret_longest = 1;
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t p = ps_lengths_prompt(l, i), g = ps_lengths_gen(l, i);
        if (!p)
            return ps_fail(dt, -PS_EUSAGE, "request %llu has an empty prompt",
                           (unsigned long long) i + 1);
        if (p > *ret_longest) *ret_longest = p;
        sums->prompt += each * p;
        sums->gen += each * g;
        sums->fed += g ? each * (g - 1) : 0;
        sums->alike &= p == ps_lengths_prompt(l, 0) && g == ps_lengths_gen(l, 0);
    }
    return 0;
}

int ps_length_feed_init(struct ps_length_feed *f, const struct ps_lengths *lengths,
                        const struct ps_plan *plan, struct ps_detail *dt)
{
    uint32_t most;
    struct ps_length_sums all;
    int r = sum_up(lengths, &all, &most, dt);
    if (r < 0) return r;
    const uint64_t room = (uint64_t) plan->slots * plan->micro_batches + 1;
    *f = (struct ps_length_feed) {
        .lengths = lengths, .all = all, .n = lengths->n, .room = (uint32_t) room
    };
    f->seqs = ps_calloc(room, sizeof *f->seqs);
    f->unused = ps_calloc(room, sizeof *f->unused);
    f->prompt = ps_calloc(most, sizeof *f->prompt);
    if (!f->seqs || !f->unused || !f->prompt)
        return ps_fail(dt, -ENOMEM, "simulation: out of memory");
    ps_length_feed_rewind(f);
    return 0;
}

void ps_length_feed_done(struct ps_length_feed *f)
{
    free(f->seqs);
    free(f->unused);
    free(f->prompt);
}

void ps_length_feed_rewind(struct ps_length_feed *f)
{
    f->at = 0;
    f->n_unused = f->room;
    for (uint32_t i = 0; i < f->room; i++) f->unused[i] = &f->seqs[i];
}

int ps_length_feed_next(struct ps_length_feed *f, struct ps_seq **ret)
{
    if (f->at == f->n) return 0;
    const uint64_t key = f->at++,
                   i = f->n == f->lengths->n
                           ? key
                           : (uint64_t) ((double) key * (double) f->lengths->n / (double) f->n);
    struct ps_seq *s = f->unused[--f->n_unused];
    *s = (struct ps_seq) { .prompt = f->prompt,
                           .n_prompt = ps_lengths_prompt(f->lengths, i),
                           .max_tokens = ps_lengths_gen(f->lengths, i),
                           .key = key,
                           .top_p = 1 };
    s->score_prompt = !s->max_tokens;
    *ret = s;
    return 1;
}

void ps_length_feed_end(struct ps_length_feed *f, struct ps_seq *s)
{
    f->unused[f->n_unused++] = s;
}
