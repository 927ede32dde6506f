/* SPDX-License-Identifier: Apache-2.0 */
/* The table of requests by itself: what the file holds comes back, from the buffer and from the disk; lines are found whatever lies between
 * them; the set of names keeps its budget. */
#include "engine/job/table.h"
#include "ps_cmocka.h"
#include <fcntl.h>

enum { N = 10000 }; /* more than its buffer holds */

static int all_differ(void *ud, uint32_t other) { return 0; }
static int same_as(void *ud, uint32_t other) { return other == *(const uint32_t *) ud; }

static void open_table(struct ps_table *t, uint64_t budget)
{
    struct ps_detail dt = { "" };
    assert_ok_dt(ps_table_open("/tmp/ps-table", budget, t, &dt), &dt);
}

static uint32_t line_of(uint32_t i) { return i < 100 ? i + 1 : 3 * i; }

static void entries_and_lines(void **state)
{
    struct ps_table t;
    uint64_t off;
    uint32_t at = 0;
    open_table(&t, 0);
    for (uint32_t i = 0; i < N; i++) {
        assert_ok(ps_table_add(&t, 1000ull * i, line_of(i)));
        assert_ok(ps_table_off(&t, i / 2, &off));
        assert_int_equal(off, 1000ull * (i / 2));
    }
    assert_ok(ps_table_complete(&t));
    for (uint32_t line = 0; line < 3 * N; line++) {
        uint32_t i = line < 101 ? line - 1 : line / 3;
        int r = ps_table_find_line(&t, line, &at);
        assert_int_equal(r, i < N && line_of(i) == line);
        if (r) assert_int_equal(at, i);
    }
    for (uint32_t i = N - 1; i < N; i -= 7) { /* in another order */
        assert_int_equal(ps_table_find_line(&t, line_of(i), &at), 1);
        assert_int_equal(at, i);
        assert_false(ps_table_is_done(&t, i));
        assert_ok(ps_table_set_done(&t, i, i));
    }
    for (uint32_t i = 0; i < N; i++) {
        bool done = (N - 1 - i) % 7 == 0;
        assert_int_equal(ps_table_is_done(&t, i), done);
        assert_ok(ps_table_off(&t, i, &off));
        assert_int_equal(off, done ? i : 1000ull * i);
        assert_int_equal(ps_table_find_line(&t, line_of(i), &at), 1);
    }
    ps_table_close(&t);
}

/* A file that can neither be read nor written: said, and nothing counts as done. */
static void failures_are_said(void **state)
{
    struct ps_table t;
    uint64_t off = 0;
    uint32_t at = 0;
    open_table(&t, 0);
    assert_ok(ps_table_add(&t, 7, 1));
    assert_ok(ps_table_complete(&t));
    ps_auto_close int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(dup2(none, t.out.fd), t.out.fd);
    assert_err(ps_table_set_done(&t, 0, 9), EBADF);
    assert_false(ps_table_is_done(&t, 0));
    assert_err(ps_table_off(&t, 0, &off), ENODATA);
    assert_err(ps_table_find_line(&t, 1, &at), ENODATA);
    assert_int_equal(off + at, 0);
    ps_table_close(&t);
}

static void names_within_a_budget(void **state)
{
    struct ps_table t;
    uint64_t hash = 1, last = 0;
    int r = 0;
    uint32_t n = 0;
    open_table(&t, 64 << 10);
    while (!r && n < N) {
        last = hash;
        r = ps_table_unique(&t, hash = hash * 6364136223846793005u + 1442695040888963407u, n++,
                            all_differ, NULL);
        assert_true(t.set_bytes <= 64 << 10);
    }
    assert_int_equal(r, -PS_EBUDGET);
    assert_true(n > 2000);
    n -= 2; /* the last that is in there */
    assert_int_equal(ps_table_unique(&t, last, N, same_as, &n), 1);
    ps_table_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(entries_and_lines),
                                        cmocka_unit_test(failures_are_said),
                                        cmocka_unit_test(names_within_a_budget) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
