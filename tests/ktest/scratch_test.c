/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's scratch is sized once, for the most rows: fewer must never need more. */
#include "ps_cmocka.h"

#include "kernels/kern.h"

static void fewer_rows_need_no_more(void **state)
{
    static const uint32_t ks[] = { 1, 768, 2048, 8192, 36864, 49152 };
    for (size_t i = 0; i < PS_ARRAY_LEN(ks); i++) {
        size_t before = 0;
        for (uint32_t m = 1; m <= 1100; m++) {
            const struct ps_linear a = { .m = m, .n = 50272, .k = ks[i] };
            const size_t now = ps_op_scratch(PS_OP_linear, &a);
            if (now < before)
                fail_msg("k %u: %zu bytes for %u rows, then %zu", ks[i], before, m - 1, now);
            before = now;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fewer_rows_need_no_more) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
