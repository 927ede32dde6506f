/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/kv/rows.h"
#include <string.h>

static const struct ps_kv_policy *const rows[] = { &ps_kv_policy_full, &ps_kv_policy_local,
                                                   &ps_kv_policy_sink, &ps_kv_policy_h2o };

const struct ps_kv_policy *ps_kv_policy_at(size_t i)
{
    return i < PS_ARRAY_LEN(rows) ? rows[i] : NULL;
}

const struct ps_kv_policy *ps_kv_policy_find(const char *name)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i]->name, name)) return rows[i];
    return NULL;
}

struct ps_kv_config ps_kv_config_default(void)
{
    return (struct ps_kv_config) { .policy = "full",
                                   .budget_share = -1,
                                   .budget = -1,
                                   .heavy_ratio = -1,
                                   .heavy = -1,
                                   .recent = -1,
                                   .sinks = -1,
                                   .type = PS_F16,
                                   .positions_cache = -1 };
}

int ps_kv_budget(const struct ps_kv_config *c, uint32_t length, uint32_t *ret, struct ps_detail *dt)
{
    if (c->budget >= 0) {
        if (c->budget == 0 || c->budget > INT32_MAX)
            return ps_fail(dt, -PS_EUSAGE,
                           "--kv-budget %lld: a number of entries from 1 to %d is wanted",
                           (long long) c->budget, INT32_MAX);
        *ret = (uint32_t) c->budget;
        return 0;
    }
    double share = c->budget_share < 0 ? 20 : c->budget_share;
    if (!(share > 0 && share <= 100))
        return ps_fail(dt, -PS_EUSAGE,
                       "--kv-budget %g%%: a share above 0%% and up to 100%% is wanted", share);
    /* Half up in exact arithmetic where the share is a decimal: 2.5 entries are 3, not 2.4999. */
    double b = share * length / 100;
    uint32_t n = (uint32_t) (b + 0.5 + 1e-9);
    *ret = n ? n : 1;
    return 0;
}

int ps_kv_explicit(const struct ps_kv_config *c, bool *ret, struct ps_detail *dt)
{
    bool split = c->heavy >= 0 || c->recent >= 0;
    if (split && (c->budget >= 0 || c->budget_share >= 0 || c->heavy_ratio >= 0))
        return ps_fail(
            dt, -PS_EUSAGE,
            "--kv-heavy and --kv-recent give the split in entries; leave out --kv-budget and "
            "--kv-heavy-ratio, or leave out these two");
    *ret = split;
    return 0;
}

static int refuse(const struct ps_kv_config *c, bool given, const char *option,
                  struct ps_detail *dt)
{
    if (!given) return 0;
    return ps_fail(dt, -PS_EUSAGE, "%s does not apply to --kv-policy %s; leave it out", option,
                   c->policy);
}

int ps_kv_refuse(const struct ps_kv_config *c, bool heavy, bool recent, bool sinks,
                 struct ps_detail *dt)
{
    int r = refuse(c, !heavy && c->heavy >= 0, "--kv-heavy", dt);
    if (!r) r = refuse(c, !heavy && c->heavy_ratio >= 0, "--kv-heavy-ratio", dt);
    if (!r) r = refuse(c, !recent && c->recent >= 0, "--kv-recent", dt);
    if (!r) r = refuse(c, !recent && (c->budget >= 0 || c->budget_share >= 0), "--kv-budget", dt);
    if (!r)
        r = refuse(c, !recent && c->budget_of != PS_BUDGET_OF_TOTAL, "--kv-budget-of prompt", dt);
    if (!r) r = refuse(c, !sinks && c->sinks >= 0, "--kv-sinks", dt);
    return r;
}

static int check_ranges(const struct ps_kv_config *c, struct ps_detail *dt)
{
    const struct {
        const char *name;
        int64_t v;
    } n[] = { { "--kv-heavy", c->heavy },
              { "--kv-recent", c->recent },
              { "--kv-sinks", c->sinks } };
    for (size_t i = 0; i < PS_ARRAY_LEN(n); i++)
        if (n[i].v > INT32_MAX / 4)
            return ps_fail(dt, -PS_EUSAGE, "%s %lld: at most %d entries", n[i].name,
                           (long long) n[i].v, INT32_MAX / 4);
    if (c->heavy_ratio > 1 || (c->heavy_ratio < 0 && c->heavy_ratio != -1))
        return ps_fail(dt, -PS_EUSAGE, "--kv-heavy-ratio %g: a number from 0 to 1 is wanted",
                       c->heavy_ratio);
    if (c->type != PS_F16 && c->type != PS_F32)
        return ps_fail(dt, -PS_EUSAGE, "--kv-dtype %s: f16 or f32 is wanted",
                       ps_dtype_name(c->type));
    return 0;
}

int ps_kv_resolve(const struct ps_kv_config *c, uint32_t longest, uint32_t prompt,
                  struct ps_kv_split *ret, struct ps_detail *dt)
{
    const struct ps_kv_policy *p = ps_kv_policy_find(c->policy);
    if (!p)
        return ps_fail(dt, -PS_EUSAGE,
                       "--kv-policy %s: unknown; full, local, sink and h2o are there", c->policy);
    int r = check_ranges(c, dt);
    if (r < 0) return r;
    struct ps_kv_split s = { .scores = p->scores };
    r = p->resolve(c, c->budget_of == PS_BUDGET_OF_PROMPT ? prompt : longest, &s, dt);
    if (r < 0) return r;
    if (c->budget_of == PS_BUDGET_OF_PROMPT && (c->budget >= 0 || c->heavy >= 0 || c->recent >= 0))
        return ps_fail(
            dt, -PS_EUSAGE,
            "--kv-budget-of prompt: only of a --kv-budget in percent, not of a number of "
            "entries; leave it out");
    *ret = s;
    return 0;
}

uint32_t ps_keep_cap(const struct ps_keep *k, uint32_t n)
{
    if (k->heavy == PS_KEEP_ALL) return n;
    uint64_t b = (uint64_t) k->sinks + k->heavy + k->recent;
    return b < n ? (uint32_t) b : n;
}

uint64_t ps_slab_kv_bytes(uint32_t kv_heads, uint32_t d, enum ps_dtype type, uint32_t cap)
{
    return 2 * (uint64_t) kv_heads * cap * d * ps_dtype_bytes(type);
}

uint64_t ps_slab_meta_bytes(uint32_t kv_heads, bool scores, uint32_t cap)
{
    return (uint64_t) kv_heads * cap * (sizeof(int32_t) + (scores ? sizeof(float) : 0));
}
