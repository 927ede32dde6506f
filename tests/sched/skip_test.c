/* SPDX-License-Identifier: Apache-2.0 */
/* A simulation that leaves out sweeps comes to the same sequences and to the same bytes, whatever is left out and wherever things live. */
#include "engine/plan/layout.h"
#include "offload/profile.h"
#include "ps_cmocka.h"
#include "sched_job.h"
#include <string.h>

static const char *const policies[] = { "full", "local", "sink", "h2o" };
static unsigned asked, left_out, lasts, every;

static int note(const struct ps_sweep_shape *h)
{
    assert_int_equal(h->sweep, asked++);
    assert_int_equal(lasts, 0);
    lasts += h->last;
    assert_true(h->micro_batches > 0 && h->lots >= h->micro_batches);
    assert_true(h->decode_rows + h->prompt_rows > 0 && h->prompt_rows >= h->prompts);
    assert_true(h->entries >= h->decode_rows);
    return 0;
}
static int never(void *ud, const struct ps_sweep_shape *h) { return note(h); }
/* All but the first, the last, and one of `every`. */
static int some(void *ud, const struct ps_sweep_shape *h)
{
    int r = note(h);
    if (r < 0 || h->sweep == 0 || h->last || h->sweep % every == 0) return r;
    left_out++;
    return 1;
}

static int run(struct sj *j, struct ps_plan_req *q,
               int (*skip)(void *, const struct ps_sweep_shape *))
{
    static const struct ps_profile machine = { .disk_read.alone = 1e9,
                                               .disk_write.alone = 2e9,
                                               .h2d.alone = 3e9,
                                               .d2h.alone = 3e9,
                                               .host.flops = 1e9,
                                               .gpu.flops = 5e9 };
    struct ps_detail dt = { "" };
    asked = lasts = 0;
    j->skip = skip;
    int r = sj_run(j, q, &(struct ps_sim_cfg) { .profile = &machine }, &dt);
    if (r < 0) assert_err(r, PS_EBUDGET);
    return r;
}

static void random_req(struct ps_plan_req *q, unsigned *seed, bool gpu)
{
    static const double pct[][PS_TIER__COUNT] = {
        { 0, 100, 0 }, { 0, 50, 50 }, { 0, 0, 100 },  { 100, 0, 0 },
        { 50, 50, 0 }, { 50, 0, 50 }, { 30, 40, 30 },
    };
    struct ps_shares *const shares[] = { &q->weights, &q->kv, &q->hidden };
    for (size_t i = 0; i < PS_ARRAY_LEN(shares); i++)
        memcpy(shares[i]->pct, pct[rand_r(seed) % (gpu ? 7 : 3)], sizeof *pct);
    if (gpu) {
        q->gpu = (struct ps_plan_gpu) { .mem_bytes = UINT64_C(1) << 30, .sm = 75 };
        q->attention = (enum ps_attention_at)(rand_r(seed) % 3);
        if (rand_r(seed) % 3 == 0) q->pin_max = (512 << 10) + (uint64_t) rand_r(seed) % (1 << 20);
    }
    q->gpu_batch_size = 1 + (uint32_t) rand_r(seed) % 6;
    q->num_gpu_batches = 1 + (uint32_t) rand_r(seed) % 3;
    q->prefill_tokens = rand_r(seed) % 2 ? 0 : 64;
    q->prefetch = (uint32_t) rand_r(seed) % 4;
    if (rand_r(seed) % 4 == 0 && strcmp(q->kv_config.policy, "full") != 0)
        q->kv_config.budget_of = PS_BUDGET_OF_PROMPT;
}

static void same(const struct ps_run_stats *a, const struct ps_run_stats *b, unsigned seed)
{
    if (a->sweeps != b->sweeps || a->prompt_tokens != b->prompt_tokens ||
        a->generated_tokens != b->generated_tokens || a->evictions != b->evictions ||
        a->decode_passes != b->decode_passes)
        fail_msg("seed %u: other sequences", seed);
    for (int q = 0; q < PS_Q__COUNT; q++)
        for (int k = 0; k < PS_KIND__COUNT; k++)
            if (a->dev.bytes[q][k] != b->dev.bytes[q][k])
                fail_msg("seed %u: %s moves %llu bytes of kind %d, not %llu", seed,
                         ps_q_name((enum ps_q) q), (unsigned long long) b->dev.bytes[q][k], k,
                         (unsigned long long) a->dev.bytes[q][k]);
}

static void leaves_out(bool norm_before, bool gpu, unsigned seeds)
{
    static struct sj all, got;
    unsigned planned = 0;
    sj_open(&all, norm_before);
    for (unsigned i = 0; i < seeds; i++) {
        unsigned seed = i;
        struct ps_schedule how = { .barrier = rand_r(&seed) % 8 == 0,
                                   .no_continuous = rand_r(&seed) % 8 == 0 };
        struct ps_plan_req q = sj_req(&all, policies[rand_r(&seed) % PS_ARRAY_LEN(policies)]);
        random_req(&q, &seed, gpu);
        all.n_seqs = 1 + (uint32_t) rand_r(&seed) % SJ_SEQS;
        all.schedule = &how;
        if (run(&all, &q, NULL) < 0) continue; /* no such plan */
        planned++;
        got = all;
        assert_int_equal(run(&got, &q, never), 0);
        assert_memory_equal(&all.run, &got.run, sizeof all.run);
        assert_int_equal(asked, all.run.sweeps);
        assert_int_equal(lasts, 1);
        every = 2 + (unsigned) rand_r(&seed) % 30;
        assert_int_equal(run(&got, &q, some), 0);
        same(&all.run, &got.run, i);
    }
    assert_true(planned > seeds / 2 && left_out > 10 * planned);
    sj_close(&all);
}

static void on_the_host(void **state) { leaves_out(true, false, 100); }
static void beside_a_gpu(void **state) { leaves_out(true, true, 200); }
static void post_norm(void **state) { leaves_out(false, true, 100); }

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(on_the_host),
                                        cmocka_unit_test(beside_a_gpu),
                                        cmocka_unit_test(post_norm) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
