/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch on the GPU: what is guessed where the CUDA rows are not at hand is no less than what they say, and not much more. */
#include "kernels/cuda/ps_cuda.h"
#include "plan_model.h"
#include "ps_cmocka.h"

enum { MODELS = 3, WAYS = 4 };

static void scratch_of(size_t ret[MODELS * WAYS])
{
    static const char *const models[MODELS] = { "opt-1.3b", "opt-30b", "opt-175b" };
    for (int i = 0; i < MODELS * WAYS; i++) {
        struct ps_packed *m = pm_model(models[i / WAYS]);
        struct ps_plan_req q = pm_req(m, 100, i % 2 ? 1500 : 100, 100, 2000 * GIB, 100 * GIB);
        struct ps_plan p;
        struct ps_detail dt = { "" };
        q.kv_config.policy = i % 2 ? "h2o" : "full";
        q.kv_config.type = i % 3 ? PS_F16 : PS_F32;
        q.gpu_batch_size = i % WAYS < 2 ? 3 : 90;
        q.weights = q.kv = (struct ps_shares) { { 0, 100, 0 } };
        assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
        ret[i] = p.detail->gpu_scratch_bytes;
        ps_plan_done(&p);
        ps_pack_close(m);
    }
}

static void a_guess_is_a_bound(void **state)
{
    size_t guess[MODELS * WAYS], rows[MODELS * WAYS];
    scratch_of(guess);
    ps_kern_add(ps_cuda_module()->rows);
    scratch_of(rows);
    for (int i = 0; i < MODELS * WAYS; i++)
        if (rows[i] > guess[i] || guess[i] > rows[i] + rows[i] / 4 + MIB)
            fail_msg("plan %d: %zu bytes are guessed, %zu needed", i, guess[i], rows[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_guess_is_a_bound) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
