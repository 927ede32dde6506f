/* SPDX-License-Identifier: Apache-2.0 */
/* Values of command-line options. */
#include "engine/cli/cli.h"
#include "ps_cmocka.h"

static void sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        { "0", 0 },       { "4096", 4096 },     { "512M", 512ull << 20 }, { "8G", 8ull << 30 },
        { "1.5k", 1536 }, { "2T", 2ull << 40 }, { "3GiB", 3ull << 30 },   { "7MB", 7ull << 20 }
    };
    static const char *const wrong[] = { "",     "-1G", "12Q",  "G",    "1GG",
                                         "1e99", "nan", "0x10", "1e3G", "5 G" };
    uint64_t v = 77;
    for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++)
        if (ps_opt_size(wrong[i], &v)) fail_msg("%s is no size", wrong[i]);
    assert_int_equal(v, 77);
    for (size_t i = 0; i < PS_ARRAY_LEN(good); i++) {
        assert_true(ps_opt_size(good[i].text, &v));
        assert_int_equal(v, good[i].bytes);
    }
}

static void shares(void **state)
{
    struct ps_shares s, a, b, c;
    assert_true(ps_opt_shares("auto", &s));
    assert_true(s.pct[PS_TIER_GPU] < 0);
    assert_true(ps_opt_shares("gpu:20,host:50,disk:30", &s));
    assert_true(s.pct[PS_TIER_GPU] == 20 && s.pct[PS_TIER_HOST] == 50 && s.pct[PS_TIER_DISK] == 30);
    assert_true(ps_opt_shares("disk:33.5%,host:66.5%", &s));
    static const char *const wrong[] = {
        "",          "host:70",         "host:70,disk:60",  "tape:100",
        "host:100,", "host:50,host:50", "host:-1,disk:101", "host:nan,disk:1",
        "host"
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++)
        if (ps_opt_shares(wrong[i], &s)) fail_msg("%s are no shares", wrong[i]);
    assert_true(ps_opt_six("20 80 0 100 0 50", &a, &b, &c));
    assert_true(a.pct[PS_TIER_GPU] == 20 && a.pct[PS_TIER_HOST] == 80 && a.pct[PS_TIER_DISK] == 0);
    assert_true(c.pct[PS_TIER_HOST] == 50 && c.pct[PS_TIER_DISK] == 50);
    assert_false(ps_opt_six("20 80 0 100 0", &a, &b, &c));
    assert_false(ps_opt_six("20 81 0 100 0 0", &a, &b, &c));
    assert_false(ps_opt_six("20 80 0 100 0 0 0", &a, &b, &c));
}

static void numbers(void **state)
{
    double d;
    uint64_t u;
    uint32_t n;
    assert_true(ps_opt_percent("20%", &d) && d == 20);
    assert_false(ps_opt_percent("20", &d) || ps_opt_percent("101%", &d) ||
                 ps_opt_percent("-1%", &d) || ps_opt_percent("%", &d));
    assert_true(ps_opt_u64("18446744073709551615", UINT64_MAX, &u));
    assert_false(ps_opt_u64("18446744073709551616", UINT64_MAX, &u) ||
                 ps_opt_u64("-1", UINT64_MAX, &u) || ps_opt_u64("1x", UINT64_MAX, &u));
    assert_true(ps_opt_u32("1", 1, &n));
    assert_false(ps_opt_u32("0", 1, &n) || ps_opt_u32("4294967296", 1, &n));
    assert_true(ps_opt_double("0.5", &d));
    assert_false(ps_opt_double("nan", &d) || ps_opt_double("", &d) || ps_opt_double("1e999", &d));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sizes), cmocka_unit_test(shares),
                                        cmocka_unit_test(numbers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
