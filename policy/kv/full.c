/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/kv/rows.h"

static int resolve(const struct ps_kv_config *c, uint32_t length, struct ps_kv_split *ret,
                   struct ps_detail *dt)
{
    int r = ps_kv_refuse(c, false, false, false, dt);
    ret->keep = (struct ps_keep) { .heavy = PS_KEEP_ALL };
    return r;
}

const struct ps_kv_policy ps_kv_policy_full = { "full", "keeps everything", false, resolve };
