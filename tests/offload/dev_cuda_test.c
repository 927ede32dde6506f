/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda device on the emulated GPU (tests/cudaemu): the same bytes whatever the GPU's order is, no access that nothing orders,
 * every failing call told, nothing left behind. */
#include "cuda_rig.h"
#include "cudaemu.h"
#include "engine/base/ps_mem.h"

/* TSan, which sees the host's side here, makes a page that is opened and closed dear. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifndef TSAN
#define TSAN 0
#endif
enum { SEEDS = TSAN ? 12 : 24, EACH = TSAN ? 4 : 24 };

static float want[GPUS + HOSTS][FLOATS], got[GPUS + HOSTS][FLOATS];

static void no_reports(void)
{
    for (unsigned i = 0; i < cudaemu_reports(); i++) print_error("%s\n", cudaemu_report(i));
    assert_int_equal(cudaemu_reports(), 0);
    assert_int_equal(cudaemu_live(), 0);
}

static void any_order_gives_the_same_bytes(void **state)
{
    struct ps_detail dt = { { 0 } };
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        cudaemu_reset(1); /* at once */
        assert_ok_dt(rig_whole_run(ps_cuda_module(), seed, true, want, &dt), &dt);
        no_reports();
        cudaemu_reset(seed);
        memset(got, 0, sizeof got);
        assert_ok_dt(rig_whole_run(ps_cuda_module(), seed, false, got, &dt), &dt);
        no_reports();
        assert_memory_equal(got, want, sizeof want);
    }
}

/* Nothing waits for the whole device but freeing its memory at the end. What was done is counted, and timed. */
static void only_the_end_waits_for_all(void **state)
{
    struct ps_detail dt = { { 0 } };
    struct rig *g = ps_calloc(1, sizeof *g);
    assert_non_null(g);
    cudaemu_reset(2);
    assert_ok_dt(rig_open(g, ps_cuda_module(), &dt), &dt);
    unsigned before = cudaemu_device_syncs();
    assert_ok(rig_run(g, 7, false, got));
    assert_int_equal(cudaemu_device_syncs(), before);
    struct ps_dev_cuda_counts n;
    ps_dev_cuda_counts(g->dev, &n);
    assert_true(n.all.launches > 0 && n.all.copies > 0 && n.all.waits > 0);
    struct ps_dev_stats st;
    ps_dev_stats_get(g->dev, &st);
    for (int q = 0; q < PS_Q__COUNT; q++) assert_true(st.tasks[q] > 0 && st.busy_ns[q] > 0);
    rig_close(g);
    free(g);
    no_reports();
}

/* Each call in turn fails, but those that give something back, whose failure leaves that behind: told in CUDA's words. */
static void every_call_fails_in_turn(void **state)
{
    static const char *const functions[] = {
        "cudaDeviceGetAttribute",    "cudaMalloc",      "cudaHostRegister",
        "cudaStreamCreateWithFlags", "cudaMemsetAsync", "cublasLtCreate",
        "cudaEventCreateWithFlags",  "cudaEventRecord", "cudaEventSynchronize",
        "cudaStreamWaitEvent",       "cudaMemcpyAsync", "launch"
    };
    enum { OUT_OF_MEMORY = 2 };
    struct ps_detail dt = { { 0 } };
    for (size_t f = 0; f < PS_ARRAY_LEN(functions); f++) {
        cudaemu_reset(1);
        assert_ok_dt(rig_whole_run(ps_cuda_module(), 3, false, want, &dt), &dt);
        const unsigned calls = cudaemu_calls(functions[f]);
        unsigned told = 0;
        if (!calls) fail_msg("%s is not called", functions[f]);
        for (unsigned n = 1; n <= calls; n += calls / EACH + 1) {
            cudaemu_reset(1);
            cudaemu_fail(functions[f], n, OUT_OF_MEMORY);
            dt.text[0] = 0;
            int r = rig_whole_run(ps_cuda_module(), 3, false, got, &dt);
            cudaemu_fail(NULL, 0, 0);
            assert_int_equal(cudaemu_live(), 0);
            told += r < 0;
            if (r < 0 && !strstr(dt.text, "cuda") && !strstr(dt.text, "cublas") &&
                !strstr(dt.text, "launch"))
                fail_msg("%s, call %u: %s", functions[f], n, dt.text);
            if (!r)
                assert_memory_equal(got, want,
                                    sizeof want); /* the last one, asked for at the end */
        }
        if (!told) fail_msg("%s fails, and nobody is told", functions[f]);
    }
}

int main(void)
{
    ps_kern_add(ps_cuda_module()->rows);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_bytes),
        cmocka_unit_test(only_the_end_waits_for_all),
        cmocka_unit_test(every_call_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
