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
