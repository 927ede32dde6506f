/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's order comes from the buffers that its tasks name, and from nothing else. */
#include "late_dev.h"
#include "ps_cmocka.h"
#include "sched_job.h"
#include "uses_check.h"

static const char *const policies[] = { "full", "local", "sink", "h2o" };

static void random_req(struct ps_plan_req *q, unsigned *seed)
{
    static const double disk[] = { 0, 50, 100 };
    struct ps_shares *const shares[] = { &q->weights, &q->kv, &q->hidden };
    for (size_t i = 0; i < PS_ARRAY_LEN(shares); i++) {
        double pct = disk[rand_r(seed) % 3];
        *shares[i] = (struct ps_shares) { { 0, 100 - pct, pct } };
    }
    q->gpu_batch_size = 1 + (uint32_t) rand_r(seed) % 6;
    q->num_gpu_batches = 1 + (uint32_t) rand_r(seed) % 3;
    q->prefill_tokens = rand_r(seed) % 2 ? 0 : 64;
    q->prefetch = (uint32_t) rand_r(seed) % 4;
}

static void orders(bool norm_before, unsigned seeds)
{
    static struct sj want[PS_ARRAY_LEN(policies)], got;
    struct ps_detail dt = { "" };
    sj_open(&want[0], norm_before);
    for (uint32_t i = 1; i < want[0].n_seqs; i += 3) want[0].seq[i].seq.max_tokens = 1;
    for (size_t p = PS_ARRAY_LEN(policies); p-- > 0;) {
        want[p] = want[0];
        struct ps_plan_req q = sj_req(&want[p], policies[p]);
        uses_check_reset();
        assert_ok_dt(sj_run(&want[p], &q, NULL, &dt), &dt);
    }
    for (late_seed = 0; late_seed < seeds; late_seed++) {
        unsigned seed = late_seed;
        size_t p = (size_t) rand_r(&seed) % PS_ARRAY_LEN(policies);
        struct ps_plan_req q = sj_req(&want[p], policies[p]);
        random_req(&q, &seed);
        got = want[p];
        got.device = late_dev_open;
        uses_check_reset();
        assert_ok_dt(sj_run(&got, &q, NULL, &dt), &dt);
        if (!sj_same(&want[p], &got)) fail_msg("seed %u: other bits", late_seed);
    }
    sj_close(&want[0]);
}

static void any_order_gives_the_same_bits(void **state) { orders(true, 72); }
static void any_order_gives_the_same_bits_post_norm(void **state) { orders(false, 24); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_bits),
        cmocka_unit_test(any_order_gives_the_same_bits_post_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
