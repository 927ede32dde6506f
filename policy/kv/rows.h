/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the policy layer: the rows, and what their resolve functions share. */
#ifndef PS_POLICY_ROWS_H
#define PS_POLICY_ROWS_H
#include "policy/kv/policy.h"

extern const struct ps_kv_policy ps_kv_policy_full, ps_kv_policy_local, ps_kv_policy_sink,
    ps_kv_policy_h2o;

/* The budget B for a length: entries as given, or the share rounded half up, at least 1. */
int ps_kv_budget(const struct ps_kv_config *c, uint32_t length, uint32_t *ret,
                 struct ps_detail *dt) ps_must_check;
/* Whether the split was given in entries; an error when it comes together with a budget. */
int ps_kv_explicit(const struct ps_kv_config *c, bool *ret, struct ps_detail *dt) ps_must_check;
/* An error if an option was given that this policy does not have. */
int ps_kv_refuse(const struct ps_kv_config *c, bool heavy, bool recent, bool sinks,
                 struct ps_detail *dt) ps_must_check;
static inline uint32_t ps_kv_or(int64_t given, uint32_t otherwise)
{
    return given < 0 ? otherwise : (uint32_t) given;
}
#endif
