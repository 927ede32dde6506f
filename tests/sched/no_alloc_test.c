/* SPDX-License-Identifier: Apache-2.0 */
/* From a sequence's admission to its end nothing is allocated, by no thread: malloc is counted. Not built with sanitizers, which bring
 * a malloc of their own. */
#include "ps_cmocka.h"
#include "sched_job.h"
#include <stdatomic.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static _Atomic unsigned long calls;

void *malloc(size_t n)
{
    calls++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    calls++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    calls++;
    return __libc_realloc(p, n);
}

static unsigned long first, last;
static void seen(void)
{
    if (!first) first = calls;
    last = calls;
}

static void sweeps_do_not_allocate(void **state)
{
    static struct sj j;
    struct ps_detail dt = { "" };
    sj_open(&j, true);
    for (int disk = 0; disk <= 100; disk += 100) {
        struct ps_plan_req q = sj_req(&j, "h2o");
        q.weights = q.kv = q.hidden = (struct ps_shares) { { 0, 100 - disk, disk } };
        q.num_gpu_batches = 2;
        j.seen = seen;
        first = last = 0;
        assert_ok_dt(sj_run(&j, &q, NULL, &dt), &dt);
        assert_true(first > 0);
        assert_int_equal(last - first, 0);
    }
    sj_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sweeps_do_not_allocate) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
