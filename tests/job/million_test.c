/* SPDX-License-Identifier: Apache-2.0 */
/* A million lines: what they take in memory is the set that finds custom_ids that come twice, while the input is read; then next to nothing. */
#include "ps_cmocka.h"
#include "try_job.h"
#include <unistd.h>

enum { LINES = 1000000, GROWTH_BYTES = 28 << 20 };

/* The process's greatest resident size, counted anew from a reset on; 0 where that cannot be told. */
static size_t peak_bytes(bool reset)
{
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (reset && f) (void) fputs("5", f);
    if (f) (void) fclose(f);
    f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) (void) sscanf(line, "VmHWM: %zu", &kib);
    if (f) (void) fclose(f);
    return kib << 10;
}

static void memory_stays_bounded(void **state)
{
    struct tj t;
    tj_on_disk = true;
    tj_begin(&t);
    fake.slots = 100;
    fake.micro_batches = 4;
    FILE *f = fopen(t.in, "w");
    for (unsigned i = 0; i < LINES; i++)
        (void) fprintf(f,
                       "{\"custom_id\": \"request %u\", \"body\": {\"prompt\": [5, %u], "
                       "\"max_tokens\": %u}}\n",
                       i, i % 50 == 9 ? 999 : 7, 1 + i % 3);
    (void) fclose(f);
    size_t before = peak_bytes(true);
    assert_ok_dt(tj_run(&t), &t.dt);
    size_t after = peak_bytes(false);
    assert_int_equal(t.res.requests, LINES);
    assert_int_equal(t.res.failed, LINES / 50);
    print_message("peak grew by %.1f MiB\n", (double) (after - before) / (1 << 20));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(after - before < GROWTH_BYTES);
#endif
    f = fopen(t.out, "r");
    char line[2048], want[64];
    for (unsigned i = 0; i < LINES; i++) {
        assert_non_null(fgets(line, sizeof line, f));
        (void) snprintf(want, sizeof want, "\"custom_id\": \"request %u\"", i);
        if (!strstr(line, want)) fail_msg("line %u is %s", i, line);
    }
    (void) fclose(f);
    tj_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(memory_stays_bounded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
