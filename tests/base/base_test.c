/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_dtype.h"
#include "engine/base/ps_json.h"
#include "engine/base/ps_mem.h"
#include "ps_cmocka.h"
#include <math.h>
#include <string.h>

/* Longer than the lexer's first buffer. */
#define LONG "0123456789 0123456789 0123456789 0123456789 0123456789"

static void error_names(void **state)
{
    assert_string_equal(ps_err_name(-ENOMEM), "ENOMEM");
    assert_string_equal(ps_err_name(-PS_ECORRUPT), "PS_ECORRUPT");
    assert_string_equal(ps_err_name(-99999), "EUNKNOWN");
}

static void details_nest(void **state)
{
    struct ps_detail dt = { "" };
    assert_err(ps_fail(&dt, -EINVAL, "tensor %s", "a"), EINVAL);
    assert_err(ps_fail_in(&dt, -EIO, "file %d", 7), EIO);
    assert_string_equal(dt.text, "file 7: tensor a");
    assert_err(ps_fail(NULL, -EIO, "x"), EIO);
}

/* Every f16 goes to f32 and back; the midpoints between neighbours go to the even one. */
static void f16_rounds_to_nearest_even(void **state)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = ps_f16_to_f32((uint16_t) h);
        if (isnan(f)) {
            assert_true(isnan(ps_f16_to_f32(ps_f32_to_f16(f))));
            continue;
        }
        assert_int_equal(ps_f32_to_f16(f), h);
        if ((h & 0x7fff) >= 0x7bff) continue;
        float g = ps_f16_to_f32((uint16_t) (h + 1));
        float mid = (float) (((double) f + (double) g) / 2);
        assert_int_equal(ps_f32_to_f16(mid), h & 1 ? h + 1 : h);
        assert_int_equal(ps_f32_to_f16(nextafterf(mid, f)), h);
        assert_int_equal(ps_f32_to_f16(nextafterf(mid, g)), h + 1);
    }
    assert_int_equal(ps_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(ps_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(ps_f32_to_f16(-1e30f), 0xfc00);
}

/* Through f32 to f16 as if at once, also right beside the midpoints. */
static void odd_rounding_hides_no_tie(void **state)
{
    for (uint32_t h = 0x0400; h < 0x7bff; h += 7) {
        double a = (double) ps_f16_to_f32((uint16_t) h),
               b = (double) ps_f16_to_f32((uint16_t) (h + 1)), mid = (a + b) / 2;
        assert_int_equal(ps_f32_to_f16(ps_f64_to_f32_odd(mid * (1 + 1e-12))), h + 1);
        assert_int_equal(ps_f32_to_f16(ps_f64_to_f32_odd(mid * (1 - 1e-12))), h);
        assert_int_equal(ps_f32_to_f16(ps_f64_to_f32_odd(-mid * (1 + 1e-12))), 0x8000 | (h + 1));
        assert_true((double) ps_f64_to_f32_odd(a) == a);
    }
    assert_true(isnan(ps_f64_to_f32_odd(NAN)) && isinf(ps_f64_to_f32_odd(1e300)));
}

static void bf16_rounds_to_nearest_even(void **state)
{
    assert_int_equal(ps_f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(ps_f32_to_bf16(1.00390625f), 0x3f80); /* midpoint, even below */
    assert_int_equal(ps_f32_to_bf16(1.01171875f), 0x3f82); /* midpoint, even above */
    assert_true(isnan(ps_bf16_to_f32(ps_f32_to_bf16(NAN))));
}

static void dtype_names(void **state)
{
    enum ps_dtype t = PS_F32;
    assert_ok(ps_dtype_parse("BF16", &t));
    assert_int_equal(t, PS_BF16);
    assert_err(ps_dtype_parse("f64", &t), EINVAL);
    assert_int_equal(t, PS_BF16);
}

static int read_json(const char *s, struct ps_detail *dt)
{
    json_t *o = NULL;
    int r = ps_json_object(s, strlen(s), "f.json", &o, dt);
    if (!r) assert_string_equal(json_string_value(json_object_get(o, "a")), LONG);
    json_decref(o);
    return r;
}

static void json_is_an_object_of_bounded_depth(void **state)
{
    static const char *const bad[][2] = { { "[]", "f.json: expected a JSON object" },
                                          { "{\"a\": 1,\n\"a\": 2}", "f.json:2" },
                                          { "{\"a\": 1}x", "f.json:1" },
                                          { "", "f.json:1" },
                                          { "\n[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                            "f.json:2: nested" } };
    struct ps_detail dt;
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        assert_err(read_json(bad[i][0], &dt), PS_EFORMAT);
        assert_non_null(strstr(dt.text, bad[i][1]));
    }
    assert_ok(read_json(
        "{\"b\": \"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\", \"a\": \"" LONG "\"}", &dt));
}

/* jansson would give a shorter text when its buffer cannot grow. */
static void json_notices_every_allocation(void **state)
{
    struct ps_detail dt;
    for (uint64_t nth = 1;; nth++) {
        assert_true(nth < 1000);
        ps_mem_fault_arm(nth);
        int r = read_json("{\"a\": \"" LONG "\", \"" LONG "\": [1, 2.5, null]}", &dt);
        int hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (!hit) {
            assert_ok(r);
            assert_true(nth > 10);
            break;
        }
        assert_err(r, ENOMEM);
    }
}

static void arrays_grow(void **state)
{
    uint16_t *a = NULL;
    size_t cap = 0;
    for (uint16_t i = 0; i < 1000; i++) {
        assert_ok(ps_grow(&a, &cap, i, (size_t) i + 1, sizeof *a));
        assert_true(cap > i && a[i] == 0);
        a[i] = i;
    }
    assert_int_equal(cap, 1024);
    for (uint16_t i = 0; i < 1000; i++) assert_int_equal(a[i], i);
    uint16_t *was = a;
    ps_mem_fault_arm(1);
    assert_err(ps_grow(&a, &cap, 1000, 5000, sizeof *a), ENOMEM);
    assert_true(a == was && cap == 1024);
    ps_mem_fault_arm(0);
    assert_err(ps_grow(&a, &cap, 1000, SIZE_MAX / 2 + 2, sizeof *a), ENOMEM); /* bytes overflow */
    assert_ok(ps_grow(&a, &cap, 1000, 5000, sizeof *a));
    assert_true(cap == 5000 && a[999] == 999 && a[4999] == 0);
    free(a);
}

static void json_has_a_text_for_every_name(void **state)
{
    static const struct {
        const char *given, *text;
    } names[] = {
        { "opt-30b", "opt-30b" },
        { "mod\xc3\xa8le", "mod\xc3\xa8le" },
        { "\xff", "\xef\xbf\xbd" },
        { "a\xe8z", "a\xef\xbf\xbdz" },
        { "cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd" },
        { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* a surrogate */
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
        json_t *t = ps_json_text(names[i].given);
        assert_non_null(t);
        assert_string_equal(json_string_value(t), names[i].text);
        json_decref(t);
    }
    assert_true(json_is_null(ps_json_text("")) && json_is_null(ps_json_text(NULL)));
}

static void doubles_in_order(void **state)
{
    double v[] = { 3, -1, 2.5, 1e300, -1e300, 2.5, 0 };
    qsort(v, PS_ARRAY_LEN(v), sizeof *v, ps_ascending);
    for (size_t i = 1; i < PS_ARRAY_LEN(v); i++) assert_true(v[i - 1] <= v[i]);
    assert_true(v[0] == -1e300 && v[6] == 1e300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_grow),
        cmocka_unit_test(error_names),
        cmocka_unit_test(details_nest),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(odd_rounding_hides_no_tie),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(dtype_names),
        cmocka_unit_test(json_is_an_object_of_bounded_depth),
        cmocka_unit_test(json_notices_every_allocation),
        cmocka_unit_test(json_has_a_text_for_every_name),
        cmocka_unit_test(doubles_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
