/* SPDX-License-Identifier: Apache-2.0 */
/* How threads cut an op: spans that repeat work leave a rest to even out only where it is worth a span. */
#include "ps_cmocka.h"

#include "kernels/kern.h"

/* Of a share of two, what is left after the first span. */
static uint64_t rest_of(uint32_t m, uint32_t n, uint64_t share)
{
    const struct ps_linear a = { .m = m, .n = n, .k = 4096 };
    assert_int_equal(ps_op_units(PS_OP_linear, &a), 2 * share);
    return share - ps_op_next_span(PS_OP_linear, ps_op_grain(PS_OP_linear, &a, 2), share);
}

static void a_narrow_linear_is_taken_whole(void **state)
{
    assert_int_equal(rest_of(2048, 2048, 16), 0);
    assert_int_equal(rest_of(2048, 4096, 32), 0);
}

static void a_wide_one_and_few_rows_leave_an_eighth(void **state)
{
    assert_int_equal(rest_of(2048, 16384, 128), 16);
    assert_int_equal(rest_of(8, 4096, 32), 4);
}

static void other_ops_go_by_grains(void **state)
{
    assert_int_equal(ps_op_next_span(PS_OP_embed, 5, 40), 5);
    assert_int_equal(ps_op_next_span(PS_OP_embed, 5, 3), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_narrow_linear_is_taken_whole),
                                        cmocka_unit_test(a_wide_one_and_few_rows_leave_an_eighth),
                                        cmocka_unit_test(other_ops_go_by_grains) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
