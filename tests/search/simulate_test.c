/* SPDX-License-Identifier: Apache-2.0 */
/* A long job's time from some of its sweeps: compared with all of them on jobs that are short enough. */
#include "ps_cmocka.h"
#include "sim_rig.h"

static void whole_job(void **state)
{
    const struct ps_lengths l = { .n = 300, .each_prompt = 64, .each_gen = 8 };
    struct rig r;
    rig_open(&r, "opt-1.3b", 4, &rig_t4, &l, "full");
    rig_plan(&r);
    struct ps_simulated s = rig_run(&r, true, 0);
    assert_int_equal(s.run.generated_tokens, 300 * 8);
    assert_int_equal(s.run.prompt_tokens, 300 * 64);
    assert_true(s.total_s > 0);
    assert_int_equal(s.sweeps_run, s.run.sweeps);
    rig_close(&r);
}

static void cancelled(void **state)
{
    const struct ps_lengths l = { .n = 300, .each_prompt = 64, .each_gen = 8 };
    struct ps_detail dt = { "" };
    struct ps_simulated s;
    const volatile int stop = 1;
    struct rig r;
    rig_open(&r, "opt-1.3b", 4, &rig_cpu, &l, "h2o");
    rig_plan(&r);
    const struct ps_simulate_cfg cfg = { .model = r.model,
                                         .plan = &r.plan,
                                         .kv_config = &r.req.kv_config,
                                         .profile = &r.profile,
                                         .lengths = &l,
                                         .stop = &stop };
    assert_int_equal(ps_simulate(&cfg, &s, &dt), -ECANCELED);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(whole_job), cmocka_unit_test(cancelled) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
