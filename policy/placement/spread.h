/* SPDX-License-Identifier: Apache-2.0 */
/* Shares to things: assigns items (weight chunks, KV slabs, hidden states) to tiers so that each tier's bytes come within one
 * item of its wanted share, and so that tiers alternate evenly along the order of use: a streamed item is then always some way
 * off from the next. Pure arithmetic. */
#ifndef PS_SPREAD_H
#define PS_SPREAD_H
#include <stddef.h>
#include <stdint.h>

/* bytes[n] in order of use (NULL: 1 each); pct[tiers] adds up to 100. tier[i] (may be NULL) gets item i's tier, sum[t] each tier's bytes. */
void ps_spread(const uint64_t *bytes, size_t n, const double *pct, unsigned tiers,
               uint8_t *ret_tier, uint64_t *ret_sum);
/* The same, but items of a group (group[i]; a group's stand together) do not alternate: its first go to the first tier, its last to the last,
 * and each tier's bytes come within an item of its share at each group's end. So what lies side by side in one tier can be used in one piece. */
void ps_spread_groups(const uint64_t *bytes, const uint32_t *group, size_t n, const double *pct,
                      unsigned tiers, uint8_t *ret_tier, uint64_t *ret_sum);
#endif
