/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_jscan.h"
#include "engine/base/ps_utf8.h"
#include "ps_cmocka.h"
#include <string.h>

/* The text in a block of just its length, so that a sanitizer sees a step beyond it. */
struct text {
    char *p;
    struct ps_jscan c;
};
static struct text text_of(const char *s, size_t len)
{
    struct text t = { .p = malloc(len ? len : 1) };
    assert_non_null(t.p);
    memcpy(t.p, s, len);
    ps_jscan_init(&t.c, t.p, len);
    return t;
}
static struct text text(const char *s) { return text_of(s, strlen(s)); }

static int check(const char *s, struct ps_detail *dt)
{
    struct text t = text(s);
    int r = ps_jscan_check(t.p, strlen(s), dt);
    assert_memory_equal(t.p, s, strlen(s)); /* it changes nothing */
    free(t.p);
    return r;
}

static void checks_what_json_is(void **state)
{
    static const char *const good[] = {
        "0",
        " -0.5e+10 ",
        "1E2",
        "\"\"",
        "true",
        "[]",
        "{}",
        "[ ]",
        "[[], {}, [1, \"a\"], {\"k\": null}]\n",
        "{\"a\": {\"b\": [false, {\"c\": 1}]}, \"d\": []}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u0000\\ud83d\\ude00\"",
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"",
    };
    struct ps_detail dt = { "" };
    for (size_t i = 0; i < PS_ARRAY_LEN(good); i++) assert_ok_dt(check(good[i], &dt), &dt);
}

static void says_where_it_is_not(void **state)
{
    static const struct {
        const char *text, *told;
    } bad[] = {
        { "", "column 1: it ends" },
        { "[1, 2", "column 6: it ends" },
        { "[1,]", "column 4: a value" },
        { "[,1]", "column 2: a value" },
        { "{\"a\": 1,}", "column 9: a value" },
        { "[1 2]", "column 4: a comma" },
        { "[1}", "column 3: a comma" },
        { "{\"a\" 1}", "column 6: a colon" },
        { "{a: 1}", "column 2: a key" },
        { "{1: 1}", "column 2: a key" },
        { "tru", "column 1: a value" },
        { "nulll", "column 5: something follows" },
        { "[] []", "column 4: something follows" },
        { "01", "column 1: a number that begins" },
        { "-", "column 2: a number" },
        { "+1", "column 1: a value" },
        { "1.", "column 3: a digit" },
        { "1e+", "column 4: a digit" },
        { "[1.5.]", "column 5: a comma" },
        { "\"a", "column 3: a string without" },
        { "\"\\", "column 2: a broken escape" },
        { "\"\\x\"", "column 2: a broken escape" },
        { "\"\\u12g4\"", "column 2: a broken escape" },
        { "\"\\u123", "column 2: a broken escape" },
        { "[\"\n\"]", "column 3: a control" },
        { "\"\xff\"", "column 2: bytes" },
        { "\"ab\xc3\"", "column 4: bytes" },
        { "\"\xed\xa0\x80\"", "column 2: bytes" },
        { "\"\\ud800\"", "column 2: a lone" },
        { "\"\\ud800\\u0041\"", "column 2: a lone" },
        { "\"\\udc00\"", "column 2: a lone" },
    };
    struct ps_detail dt;
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        assert_err(check(bad[i].text, &dt), PS_EFORMAT);
        if (strncmp(dt.text, bad[i].told, strlen(bad[i].told)) != 0)
            fail_msg("%s: told \"%s\"", bad[i].text, dt.text);
    }
}

static void depth_is_bounded(void **state)
{
    char s[2 * PS_JSCAN_DEPTH + 3];
    struct ps_detail dt;
    for (int n = PS_JSCAN_DEPTH; n <= PS_JSCAN_DEPTH + 1; n++) {
        memset(s, '[', (size_t) n);
        memset(s + n, ']', (size_t) n);
        s[2 * n] = 0;
        if (n == PS_JSCAN_DEPTH) {
            assert_ok(check(s, &dt));
        } else {
            assert_err(check(s, &dt), PS_EFORMAT);
            assert_string_equal(dt.text, "column 129: nested too deep");
        }
    }
}

static void walks_and_decodes_in_place(void **state)
{
    struct text t = text("{\"na\\u006de\": \"a\\n\\u00e9\\ud83d\\ude00z\", \"n\": [3, -4, 1.5], "
                         "\"skip\": {\"x\": [{}]}, \"ok\": true}");
    struct ps_jstr s, key;
    struct ps_jint v;
    uint64_t u;
    double d;
    bool b = false;
    char *name;
    assert_int_equal(ps_jscan_type(&t.c), PS_J_OBJECT);
    assert_ok(ps_jscan_open(&t.c, '{'));
    assert_int_equal(ps_jscan_name(&t.c, &name), 1);
    assert_string_equal(name, "name");
    assert_ok(ps_jscan_str(&t.c, &s));
    assert_int_equal(s.len, strlen("a\n\xc3\xa9\xf0\x9f\x98\x80z"));
    assert_string_equal(s.s, "a\n\xc3\xa9\xf0\x9f\x98\x80z");
    assert_int_equal(ps_jscan_key(&t.c, &key), 1);
    assert_true(ps_jstr_is(key, "n") && !ps_jstr_is(key, "na"));
    assert_ok(ps_jscan_open(&t.c, '['));
    assert_int_equal(ps_jscan_next(&t.c), 1);
    assert_ok(ps_jscan_u64(&t.c, &u));
    assert_int_equal(ps_jscan_next(&t.c), 1);
    assert_err(ps_jscan_u64(&t.c, &u), PS_EFORMAT);
    assert_ok(ps_jscan_int(&t.c, &v));
    assert_true(u == 3 && v.mag == 4 && v.neg);
    assert_int_equal(ps_jscan_next(&t.c), 1);
    assert_err(ps_jscan_int(&t.c, &v), PS_EFORMAT);
    assert_ok(ps_jscan_double(&t.c, &d));
    assert_true(d == 1.5);
    assert_int_equal(ps_jscan_next(&t.c), 0);
    assert_int_equal(ps_jscan_key(&t.c, &key), 1);
    assert_ok(ps_jscan_skip(&t.c));
    assert_int_equal(ps_jscan_key(&t.c, &key), 1);
    assert_err(ps_jscan_open(&t.c, '['), PS_EFORMAT);
    assert_ok(ps_jscan_bool(&t.c, &b));
    assert_true(b);
    assert_int_equal(ps_jscan_key(&t.c, &key), 0);
    assert_ok(ps_jscan_done(&t.c));
    free(t.p);
}

/* A copy of the cursor is a place to come back to, also past keys that were decoded on the way. */
static void a_copy_comes_back(void **state)
{
    struct text t = text("{\"\\u0061\": [\"x\\ty\"], \"b\": 2}");
    struct ps_jscan back;
    struct ps_jstr key, s;
    uint64_t u;
    assert_ok(ps_jscan_open(&t.c, '{'));
    assert_int_equal(ps_jscan_key(&t.c, &key), 1);
    key = ps_jstr_decode(key);
    assert_true(ps_jstr_is(key, "a"));
    back = t.c;
    assert_ok(ps_jscan_skip(&t.c));
    assert_int_equal(ps_jscan_key(&t.c, &key), 1);
    assert_ok(ps_jscan_u64(&t.c, &u));
    assert_int_equal(u, 2);
    assert_ok(ps_jscan_open(&back, '['));
    assert_int_equal(ps_jscan_next(&back), 1);
    assert_ok(ps_jscan_str(&back, &s));
    assert_string_equal(s.s, "x\ty");
    assert_int_equal(ps_jscan_next(&back), 0);
    assert_int_equal(ps_jscan_key(&back, &key), 1);
    assert_true(ps_jstr_is(key, "b"));
    free(t.p);
}

static void nul_only_where_it_may(void **state)
{
    struct text t = text("\"a\\u0000b\"");
    struct ps_jscan again = t.c;
    struct ps_jstr s;
    char *p;
    assert_ok(ps_jscan_raw(&t.c, &s));
    assert_int_equal(s.len, 8);
    t.c = again;
    assert_err(ps_jscan_text(&t.c, &p), PS_EFORMAT);
    assert_string_equal(t.c.err, "NUL in a string");
    free(t.p);
    t = text("\"a\\u0000b\"");
    assert_ok(ps_jscan_str(&t.c, &s));
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.s, "a\0b", 4);
    free(t.p);
    t = text("{\"\\u0000\": 1}");
    assert_ok(ps_jscan_open(&t.c, '{'));
    assert_err(ps_jscan_name(&t.c, &p), PS_EFORMAT);
    free(t.p);
    t = text_of("[1\0]", 4); /* NUL is not the end of the text */
    assert_err(ps_jscan_skip(&t.c), PS_EFORMAT);
    assert_int_equal(ps_jscan_at(&t.c), 2);
    free(t.p);
}

static void integers_at_their_ends(void **state)
{
    static const struct {
        const char *text;
        int r;
        uint64_t mag;
        bool neg;
    } cases[] = {
        { "18446744073709551615", 0, UINT64_MAX, false },
        { "18446744073709551616", -ERANGE, UINT64_MAX, false },
        { "99999999999999999999999", -ERANGE, UINT64_MAX, false },
        { "-9223372036854775808", 0, (uint64_t) 1 << 63, true },
        { "-9223372036854775809", -ERANGE, (uint64_t) 1 << 63, true },
        { "-0", 0, 0, false },
        { "1.0", -PS_EFORMAT, 0, false },
        { "1e2", -PS_EFORMAT, 0, false },
        { "true", -PS_EFORMAT, 0, false },
        { "\"1\"", -PS_EFORMAT, 0, false },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        struct text t = text(cases[i].text);
        struct ps_jint v = { 0 };
        assert_int_equal(ps_jscan_int(&t.c, &v), cases[i].r);
        assert_true(v.mag == cases[i].mag && v.neg == cases[i].neg);
        if (cases[i].r < 0)
            assert_int_equal(ps_jscan_at(&t.c), 0);
        else
            assert_ok(ps_jscan_done(&t.c));
        free(t.p);
    }
    struct text t = text("-0");
    uint64_t u;
    assert_err(ps_jscan_u64(&t.c, &u), PS_EFORMAT);
    free(t.p);
}

static void doubles_are_finite_and_short(void **state)
{
    char many[600];
    double d = 0;
    struct text t = text("1e999");
    assert_err(ps_jscan_double(&t.c, &d), PS_EFORMAT);
    free(t.p);
    memset(many, '1', sizeof many);
    t = text_of(many, sizeof many);
    assert_err(ps_jscan_double(&t.c, &d), PS_EFORMAT);
    assert_ok(ps_jscan_skip(&t.c));
    free(t.p);
    t = text("-0.25]");
    assert_ok(ps_jscan_double(&t.c, &d));
    assert_true(d == -0.25);
    assert_int_equal(ps_jscan_at(&t.c), 5);
    free(t.p);
}

/* Every code point there and back; what lies around the valid ranges is refused. */
static void utf8_as_unicode_has_it(void **state)
{
    char s[4];
    for (uint32_t u = 0; u <= 0x10ffff; u++) {
        if (u == 0xd800) u = 0xe000;
        size_t n = ps_utf8_put(s, u);
        assert_int_equal(ps_utf8_char(s, n), n);
        assert_int_equal(ps_utf8_lead((uint8_t) s[0]), n);
        if (n > 1) assert_int_equal(ps_utf8_char(s, n - 1), 0);
    }
    static const char *const bad[] = {
        "\x80",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xff"
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++)
        assert_int_equal(ps_utf8_char(bad[i], strlen(bad[i])), 0);
    assert_int_equal(ps_utf8_valid("eight bytes and more \xc3\xa9 then \xff", 30), 29);
    assert_int_equal(ps_utf8_valid("12345678\xe2\x82", 10), 8);
    assert_int_equal(ps_utf8_points("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks_what_json_is),    cmocka_unit_test(says_where_it_is_not),
        cmocka_unit_test(depth_is_bounded),       cmocka_unit_test(walks_and_decodes_in_place),
        cmocka_unit_test(a_copy_comes_back),      cmocka_unit_test(nul_only_where_it_may),
        cmocka_unit_test(integers_at_their_ends), cmocka_unit_test(doubles_are_finite_and_short),
        cmocka_unit_test(utf8_as_unicode_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
