/* SPDX-License-Identifier: Apache-2.0 */
/* StreamingLLM (arXiv 2309.17453): attention sinks and a window. */
#include "policy/kv/rows.h"

static int resolve(const struct ps_kv_config *c, uint32_t length, struct ps_kv_split *ret,
                   struct ps_detail *dt)
{
    bool given;
    uint32_t budget = 0;
    int r = ps_kv_refuse(c, false, true, true, dt);
    if (!r) r = ps_kv_explicit(c, &given, dt);
    if (!r && !given) r = ps_kv_budget(c, length, &budget, dt);
    if (r < 0) return r;
    struct ps_keep *k = &ret->keep;
    k->sinks = ps_kv_or(c->sinks, 4);
    if (given) {
        k->recent = ps_kv_or(c->recent, 0);
        if (!k->recent)
            return ps_fail(dt, -PS_EUSAGE, "--kv-recent 0: sink keeps at least 1 recent entry");
        return 0;
    }
    if (k->sinks > budget)
        k->sinks = budget; /* sinks first, also when a short text leaves nothing else */
    k->recent = budget - k->sinks;
    return 0;
}

const struct ps_kv_policy ps_kv_policy_sink = {
    "sink", "keeps the first tokens and the most recent (StreamingLLM)", false, resolve
};
