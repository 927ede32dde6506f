/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/placement/spread.h"

/* Each item goes to the tier that is furthest behind its share of what has been dealt out so far. */
void ps_spread(const uint64_t *bytes, size_t n, const double *pct, unsigned tiers,
               uint8_t *ret_tier, uint64_t *ret_sum)
{
    double dealt = 0;
    for (unsigned t = 0; t < tiers; t++) ret_sum[t] = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t item = bytes ? bytes[i] : 1;
        dealt += (double) item;
        unsigned best = 0;
        double most = -1e300;
        for (unsigned t = 0; t < tiers; t++) {
            if (pct[t] <= 0) continue;
            double behind = pct[t] / 100 * dealt - (double) ret_sum[t];
            if (behind > most + 1e-6) {
                most = behind;
                best = t;
            }
        }
        if (ret_tier) ret_tier[i] = (uint8_t) best;
        ret_sum[best] += item;
    }
}

void ps_spread_groups(const uint64_t *bytes, const uint32_t *group, size_t n, const double *pct,
                      unsigned tiers, uint8_t *ret_tier, uint64_t *ret_sum)
{
    unsigned last = tiers - 1;
    while (last && pct[last] <= 0) last--;
    for (unsigned t = 0; t < tiers; t++) ret_sum[t] = 0;
    double dealt = 0;
    for (size_t i = 0, end = 0; i < n;) {
        for (; end < n && group[end] == group[i]; end++) dealt += (double) bytes[end];
        for (unsigned t = 0; t <= last; t++)
            for (; i < end; i++) {
                const double behind = pct[t] / 100 * dealt - (double) ret_sum[t];
                if (t < last && (pct[t] <= 0 || behind < (double) bytes[i] / 2)) break;
                ret_tier[i] = (uint8_t) t;
                ret_sum[t] += bytes[i];
            }
    }
}
