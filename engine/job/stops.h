/* SPDX-License-Identifier: Apache-2.0 */
/* Finds stop strings in a text that arrives in pieces: one Knuth-Morris-Pratt automaton a string, so that a match may straddle any
 * number of tokens and the result does not depend on where they end. The match that is complete first counts; of those
 * complete at once, the longest. */
#ifndef PS_STOPS_H
#define PS_STOPS_H
#include "engine/job/request.h"

struct ps_stops {
    uint32_t n, len[PS_STOPS], state[PS_STOPS];
    const uint8_t *text[PS_STOPS];
    uint16_t *fail[PS_STOPS];
    uint64_t seen; /* bytes */
};

/* `bytes` holds the strings one after the other, `fail` has room for as many numbers; both stay the caller's. */
void ps_stops_begin(struct ps_stops *s, uint32_t n, const uint32_t *len, const void *bytes,
                    uint16_t *fail);
/* True when a string is complete within these bytes: *ret_cut is where it begins, counted from the text's start. With `deaf`
 * matches do not count. */
bool ps_stops_feed(struct ps_stops *s, const char *p, size_t n, bool deaf, uint64_t *ret_cut);
#endif
