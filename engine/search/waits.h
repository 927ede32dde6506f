/* SPDX-License-Identifier: Apache-2.0 */
/* How long sequences take, in a simulation that does not run all sweeps: the sweeps in which some of them begin and end are noted, and what
 * they took is known later. */
#ifndef PS_WAITS_H
#define PS_WAITS_H
#include "engine/search/sample.h"

/* One request in `each`. */
struct ps_waits {
    uint64_t each;
    uint32_t n;
    /* Requests [from, to) count `times` more than once. */
    uint64_t from, to;
    double times;
    struct ps_wait {
        uint64_t first, last; /* sweeps */
    } * at;
};
int ps_waits_init(struct ps_waits *w, uint64_t requests) ps_must_check;
/* All that there are, and those that count more than once. */
void ps_waits_repeat(struct ps_waits *w, uint64_t requests, uint64_t from, uint64_t to,
                     double times);
void ps_waits_done(struct ps_waits *w);
void ps_waits_begin(struct ps_waits *w, uint64_t request, uint64_t sweep);
void ps_waits_end(struct ps_waits *w, uint64_t request, uint64_t sweep);
/* first_token_s, end_s, end_p95_s; after ps_sample_times(). */
int ps_waits_find(const struct ps_waits *w, const struct ps_laid *l,
                  struct ps_simulated *ret) ps_must_check;
#endif
