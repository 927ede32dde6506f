/* SPDX-License-Identifier: Apache-2.0 */
/* H2O (arXiv 2306.14048): heavy hitters by accumulated attention, and the recent tokens. */
#include "policy/kv/rows.h"

static int resolve(const struct ps_kv_config *c, uint32_t length, struct ps_kv_split *ret,
                   struct ps_detail *dt)
{
    bool given;
    uint32_t budget = 0;
    int r = ps_kv_refuse(c, true, true, true, dt);
    if (!r) r = ps_kv_explicit(c, &given, dt);
    if (!r && !given) r = ps_kv_budget(c, length, &budget, dt);
    if (r < 0) return r;
    struct ps_keep *k = &ret->keep;
    k->sinks = ps_kv_or(c->sinks, 0);
    if (given) {
        k->heavy = ps_kv_or(c->heavy, 0);
        k->recent = ps_kv_or(c->recent, 0);
    } else {
        if (k->sinks > budget) k->sinks = budget; /* sinks first */
        uint32_t rest = budget - k->sinks;
        k->heavy = (uint32_t) ((c->heavy_ratio < 0 ? 0.5 : c->heavy_ratio) * rest + 1e-9);
        k->recent = rest - k->heavy;
    }
    if (!k->sinks && !k->heavy && !k->recent)
        return ps_fail(
            dt, -PS_EUSAGE,
            "--kv-heavy, --kv-recent and --kv-sinks are all 0: at least 1 entry must stay");
    return 0;
}

const struct ps_kv_policy ps_kv_policy_h2o = {
    "h2o", "keeps the heavy hitters by attention received, and the most recent (H2O)", true, resolve
};
