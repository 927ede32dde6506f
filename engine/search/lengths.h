/* SPDX-License-Identifier: Apache-2.0 */
/* A job that is nothing but lengths, as the scheduler asks for it: struct ps_run_io's next() and end(). */
#ifndef PS_LENGTHS_H
#define PS_LENGTHS_H
#include "engine/search/simulate.h"

/* Of all requests. */
struct ps_length_sums {
    uint64_t prompt, gen, fed; /* tokens; generated ones that are fed in turn */
    bool alike;                /* all have the same lengths */
};

struct ps_length_feed {
    const struct ps_lengths *lengths;
    struct ps_length_sums all;
    uint64_t n;  /* that are handed out: all, or so many in equal steps through them */
    uint64_t at; /* of these */
    struct ps_seq *seqs, **unused; /* [room]: as many as can be asked for before one ends */
    uint32_t room, n_unused;
    int32_t *prompt; /* of all */
};

/* -PS_EUSAGE for lengths that no job has. ps_length_feed_done() either way. */
int ps_length_feed_init(struct ps_length_feed *f, const struct ps_lengths *lengths,
                        const struct ps_plan *plan, struct ps_detail *dt) ps_must_check;
void ps_length_feed_done(struct ps_length_feed *f);
void ps_length_feed_rewind(struct ps_length_feed *f);
int ps_length_feed_next(struct ps_length_feed *f, struct ps_seq **ret);
void ps_length_feed_end(struct ps_length_feed *f, struct ps_seq *s);
uint32_t ps_lengths_prompt(const struct ps_lengths *l, uint64_t i);
uint32_t ps_lengths_gen(const struct ps_lengths *l, uint64_t i);
#endif
