/* SPDX-License-Identifier: Apache-2.0 */
/* A long job is not laid out whole: some of its sweeps stand for many more. Where all requests are alike, the scheduler comes back to a state in
 * which it was some sweeps ago; from there on it goes round and round, and one round counts as often as there are requests for it: to
 * the byte what laying out all of them would give. Where lengths differ, every so manyeth request is taken, in order, and of the job that they
 * make, what comes after the first blocks counts so often that there are as many rows as the whole job has. */
#ifndef PS_REPEAT_H
#define PS_REPEAT_H
#include "engine/search/lengths.h"

struct ps_repeat {
    struct ps_length_feed *feed;
    uint64_t block; /* requests that are under way together */
    bool off;       /* every sweep is wanted */
    /* What is repeated: sweeps [from, to), `times` more than once. */
    uint64_t from, to;
    double times;
    /* While sweeps are laid out: */
    struct mark {
        uint64_t sweep, state, asked, rows;
        bool known; /* `stats` are of before this sweep */
        struct ps_run_stats stats;
    } begin, end;
    uint64_t rows, next; /* rows so far; the sweep at which `begin` is set anew */
    bool found;          /* a round */
};

/* At most about `tokens` are laid out of a job whose requests differ, 0 = all; `every`: nothing is repeated. */
void ps_repeat_init(struct ps_repeat *r, struct ps_length_feed *feed, const struct ps_plan *plan,
                    uint64_t tokens, bool every);
/* A sweep is laid out; then, the counts of all before it. */
void ps_repeat_sweep(struct ps_repeat *r, const struct ps_sweep_shape *h);
void ps_repeat_stats(struct ps_repeat *r, const struct ps_run_stats *stats);
/* All are laid out. */
void ps_repeat_end(struct ps_repeat *r);
/* The job's counts, from those of what was laid out. */
void ps_repeat_count(const struct ps_repeat *r, struct ps_run_stats *stats);
#endif
