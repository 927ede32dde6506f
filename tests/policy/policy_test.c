/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/kv/policy.h"
#include "policy/placement/spread.h"
#include "ps_cmocka.h"
#include <math.h>

static struct ps_kv_config config(const char *policy)
{
    struct ps_kv_config c = ps_kv_config_default();
    c.policy = policy;
    return c;
}

static void expect(const struct ps_kv_config *c, uint32_t longest, uint32_t prompt, uint32_t sinks,
                   uint32_t heavy, uint32_t recent)
{
    struct ps_detail dt = { "" };
    struct ps_kv_split s;
    assert_ok_dt(ps_kv_resolve(c, longest, prompt, &s, &dt), &dt);
    assert_int_equal(s.keep.sinks, sinks);
    assert_int_equal(s.keep.heavy, heavy);
    assert_int_equal(s.keep.recent, recent);
}

static void refuse(const struct ps_kv_config *c, const char *word)
{
    struct ps_detail dt = { "" };
    struct ps_kv_split s = { .keep.sinks = 77 };
    assert_err(ps_kv_resolve(c, 100, 50, &s, &dt), PS_EUSAGE);
    assert_says(&dt, word);
    assert_int_equal(s.keep.sinks, 77);
}

static void budgets_split(void **state)
{
    struct ps_kv_config c = config("h2o");
    expect(&c, 544, 512, 0, 54, 55); /* 20 % of 544 = 108.8 -> 109 */
    c.budget_share = 50;
    expect(&c, 5, 4, 0, 1, 2); /* 2.5 -> 3 */
    c.sinks = 2;
    expect(&c, 20, 4, 2, 4, 4);
    c.heavy_ratio = 0.25;
    expect(&c, 20, 4, 2, 2, 6);
    c.budget_of = PS_BUDGET_OF_PROMPT;
    expect(&c, 20, 8, 2, 0, 2);
    c = config("local");
    c.budget_share = 0.001;
    expect(&c, 100, 10, 0, 0, 1);
    c = config("sink");
    expect(&c, 100, 10, 4, 0, 16);
    expect(&c, 10, 5, 2, 0, 0); /* 2 entries: sinks first */
    c = config("h2o");
    c.sinks = 4;
    expect(&c, 16, 5, 3, 0, 0);
    c = config("full");
    expect(&c, 100, 10, 0, PS_KEEP_ALL, 0);
}

static void entries_split(void **state)
{
    struct ps_kv_config c = config("h2o");
    c.heavy = 16;
    c.recent = 0;
    expect(&c, 100, 10, 0, 16, 0);
    c.sinks = 4;
    expect(&c, 100, 10, 4, 16, 0);
    c = config("sink");
    c.sinks = 3;
    c.recent = 9;
    expect(&c, 100, 10, 3, 0, 9);
}

static void nothing_is_ignored_silently(void **state)
{
    struct ps_kv_config c = config("full");
    c.budget = 7;
    refuse(&c, "--kv-budget");
    c = config("full");
    c.budget_of = PS_BUDGET_OF_PROMPT;
    refuse(&c, "--kv-budget-of prompt");
    int64_t *const entries[] = { &c.budget, &c.heavy, &c.recent };
    for (size_t i = 0; i < PS_ARRAY_LEN(entries); i++) {
        c = config("h2o");
        c.budget_of = PS_BUDGET_OF_PROMPT;
        *entries[i] = 7;
        refuse(&c, "--kv-budget-of prompt: only of a --kv-budget in percent");
    }
    c = config("local");
    c.heavy = 7;
    refuse(&c, "--kv-heavy");
    c = config("local");
    c.sinks = 1;
    refuse(&c, "--kv-sinks");
    c = config("h2o");
    c.budget = 7;
    c.heavy = 3;
    refuse(&c, "--kv-budget");
    c = config("h2o");
    c.heavy = c.recent = 0;
    refuse(&c, "at least 1");
    c = config("h2o");
    c.budget_share = 101;
    refuse(&c, "100%");
    c = config("best");
    refuse(&c, "unknown");
}

static void caps(void **state)
{
    struct ps_keep all = { .heavy = PS_KEEP_ALL }, some = { 1, 2, 3 };
    assert_int_equal(ps_keep_cap(&all, 1000), 1000);
    assert_int_equal(ps_keep_cap(&some, 1000), 6);
    assert_int_equal(ps_keep_cap(&some, 5), 5);
    assert_int_equal(ps_slab_kv_bytes(32, 64, PS_F16, 10), 2 * 32 * 64 * 2 * 10);
}

/* Within half the largest item at each group's end, and in a group no tier comes back. */
static void shares_of_groups_stand_together(void **state)
{
    uint64_t bytes[300], sum[3];
    uint32_t group[300];
    uint8_t tier[300];
    unsigned seed = 5;
    for (unsigned round = 0; round < 200; round++) {
        double pct[3] = { rand_r(&seed) % 101, 0, 0 }, dealt = 0, got[3] = { 0 };
        if (round % 3) pct[1] = rand_r(&seed) % (int) (101 - pct[0]);
        pct[2] = 100 - pct[0] - pct[1];
        for (int i = 0; i < 300; i++) {
            bytes[i] = 1 + (uint64_t) rand_r(&seed) % 1000;
            group[i] = (uint32_t) i / 23;
        }
        ps_spread_groups(bytes, group, 300, pct, 3, tier, sum);
        for (int i = 0; i < 300; i++) {
            assert_true(pct[tier[i]] > 0);
            if (i && group[i] == group[i - 1]) assert_true(tier[i] >= tier[i - 1]);
            dealt += (double) bytes[i];
            got[tier[i]] += (double) bytes[i];
            for (int t = 0; t < 3 && (i == 299 || group[i + 1] != group[i]); t++)
                assert_true(fabs(got[t] - pct[t] / 100 * dealt) <= 1000);
        }
        for (int t = 0; t < 3; t++) assert_true(got[t] == (double) sum[t]);
    }
}

/* Shares come within one item, and a tier's items lie evenly. */
static void shares_are_spread(void **state)
{
    uint64_t bytes[300], sum[3], all = 0;
    uint8_t tier[300];
    unsigned seed = 5;
    for (int i = 0; i < 300; i++) all += bytes[i] = 1000 + (unsigned) rand_r(&seed) % 7000;
    for (int a = 0; a <= 100; a += 7)
        for (int b = 0; a + b <= 100; b += 13) {
            double pct[3] = { a, b, 100 - a - b };
            ps_spread(bytes, 300, pct, 3, tier, sum);
            for (int t = 0; t < 3; t++) {
                double off = (double) sum[t] - pct[t] / 100 * (double) all;
                assert_true(off < 8000 && off > -8000);
            }
        }
    ps_spread(bytes, 300, (double[]) { 0, 50, 50 }, 3, tier, sum);
    for (int i = 0; i + 8 <= 300; i++) {
        double window = 0, disk = 0;
        for (int j = i; j < i + 8; j++) {
            window += (double) bytes[j];
            disk += tier[j] == 2 ? (double) bytes[j] : 0;
        }
        assert_true(disk > window / 2 - 8000 && disk < window / 2 + 8000);
    }
    ps_spread(bytes, 300, (double[]) { 0, 100, 0 }, 3, tier, sum);
    assert_int_equal(sum[1], all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets_split),
        cmocka_unit_test(entries_split),
        cmocka_unit_test(nothing_is_ignored_silently),
        cmocka_unit_test(caps),
        cmocka_unit_test(shares_are_spread),
        cmocka_unit_test(shares_of_groups_stand_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
