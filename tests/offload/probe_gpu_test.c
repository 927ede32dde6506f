/* SPDX-License-Identifier: Apache-2.0 */
/* The quick look at a GPU, on the emulated one: every rate is there, a call that fails is told, nothing stays behind. */
#include "cudaemu.h"
#include "offload/probe_gpu.h"
#include "ps_cmocka.h"

static const struct ps_probe_gpu small = {
    .copy_bytes = 1 << 20, .m = 272, .n = 64, .k = 32, .dtype = PS_F16, .times = 2
};
static const struct ps_cuda_api *api;

static void all_given_back(void)
{
    for (unsigned i = 0; i < cudaemu_reports(); i++) print_error("%s\n", cudaemu_report(i));
    assert_int_equal(cudaemu_reports(), 0);
    assert_int_equal(cudaemu_live(), 0);
}

static void rates_are_there(void **state)
{
    struct ps_detail dt = { "" };
    for (unsigned seed = 0; seed < 4; seed++) {
        struct ps_gpu_rates r = { 0 };
        cudaemu_reset(seed);
        assert_ok_dt(ps_probe_gpu(api, &small, &r, &dt), &dt);
        assert_true(r.h2d > 0 && r.d2h > 0 && r.hbm > 0 && r.flops > 0);
        all_given_back();
    }
}

static void failures_are_told(void **state)
{
    static const char *const functions[] = {
        "cudaMalloc",     "cudaHostRegister",     "cudaMemcpyAsync", "cudaEventRecord",
        "cublasLtMatmul", "cudaEventSynchronize", "cublasLtCreate",
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(functions); i++) {
        struct ps_detail dt = { "" };
        struct ps_gpu_rates r = { 0 };
        cudaemu_reset(1);
        cudaemu_fail(functions[i], 1, 2);
        const int err = ps_probe_gpu(api, &small, &r, &dt);
        if (err >= 0) fail_msg("%s failed, and the probe did not", functions[i]);
        if (!strstr(dt.text, functions[i])) fail_msg("%s is not in \"%s\"", functions[i], dt.text);
        all_given_back();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rates_are_there),
                                        cmocka_unit_test(failures_are_told) };
    api = ps_cuda_module();
    ps_kern_add(api->rows);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
