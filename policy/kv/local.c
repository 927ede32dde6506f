/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/kv/rows.h"

static int resolve(const struct ps_kv_config *c, uint32_t length, struct ps_kv_split *ret,
                   struct ps_detail *dt)
{
    bool given;
    uint32_t budget = 0;
    int r = ps_kv_refuse(c, false, true, false, dt);
    if (!r) r = ps_kv_explicit(c, &given, dt);
    if (!r && !given) r = ps_kv_budget(c, length, &budget, dt);
    if (r < 0) return r;
    ret->keep.recent = ps_kv_or(c->recent, budget);
    if (!ret->keep.recent)
        return ps_fail(dt, -PS_EUSAGE, "--kv-recent 0: local keeps at least 1 entry");
    return 0;
}

const struct ps_kv_policy ps_kv_policy_local = { "local", "keeps the most recent tokens", false,
                                                 resolve };
