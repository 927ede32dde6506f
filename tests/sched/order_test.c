/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's order comes from the buffers that its tasks name, and from nothing else. */
#include "engine/plan/layout.h"
#include "late_dev.h"
#include "ps_cmocka.h"
#include "sched_job.h"
#include "uses_check.h"

static unsigned n_unpinned; /* plans in which the weights on the host are not pinned */

static const char *const policies[] = { "full", "local", "sink", "h2o" };

/* Less may be pinned than would be: where there is such a plan, weights pass through other memory. */
static void pin_less(struct ps_plan_req *q)
{
    struct ps_detail dt = { "" };
    struct ps_plan p;
    assert_ok_dt(ps_plan_make(q, &p, NULL, &dt), &dt);
    q->pin_max = p.pinned_bytes - 1;
    ps_plan_done(&p);
    int r = ps_plan_make(q, &p, NULL, &dt);
    if (r < 0) {
        assert_err(r, PS_EBUDGET);
        q->pin_max = 0;
        return;
    }
    n_unpinned += !p.detail->weights_pinned;
    ps_plan_done(&p);
}

static void random_req(struct ps_plan_req *q, unsigned *seed)
{
    static const double pct[][PS_TIER__COUNT] = {
        { 0, 100, 0 }, { 0, 50, 50 }, { 0, 0, 100 },  { 100, 0, 0 },
        { 50, 50, 0 }, { 50, 0, 50 }, { 30, 40, 30 },
    };
    struct ps_shares *const shares[] = { &q->weights, &q->kv, &q->hidden };
    for (size_t i = 0; i < PS_ARRAY_LEN(shares); i++)
        memcpy(shares[i]->pct, pct[rand_r(seed) % (late_gpu ? 7 : 3)], sizeof *pct);
    if (late_gpu) {
        q->gpu = (struct ps_plan_gpu) { .mem_bytes = UINT64_C(1) << 30, .sm = 75 };
        q->attention = (enum ps_attention_at)(rand_r(seed) % 3);
    }
    q->gpu_batch_size = 1 + (uint32_t) rand_r(seed) % 6;
    q->num_gpu_batches = 1 + (uint32_t) rand_r(seed) % 3;
    q->prefill_tokens = rand_r(seed) % 2 ? 0 : 64;
    q->prefetch = (uint32_t) rand_r(seed) % 4;
    if (late_gpu && rand_r(seed) % 3 == 0) pin_less(q);
}

/* Half of them ours as it is. */
static const struct ps_schedule *random_schedule(unsigned *seed)
{
    static const struct ps_schedule other[] = {
        { .no_overlap = true },
        { .barrier = true },
        { .no_continuous = true },
        { .no_overlap = true, .barrier = true, .no_continuous = true },
    };
    const size_t i = (size_t) rand_r(seed) % (2 * PS_ARRAY_LEN(other));
    return i < PS_ARRAY_LEN(other) ? &other[i] : NULL;
}

static void orders(void (*open)(struct sj *), bool gpu, unsigned seeds)
{
    static struct sj want[PS_ARRAY_LEN(policies)], got;
    struct ps_detail dt = { "" };
    open(&want[0]);
    for (uint32_t i = 1; i < want[0].n_seqs; i += 3) want[0].seq[i].seq.max_tokens = 1;
    for (size_t p = PS_ARRAY_LEN(policies); p-- > 0;) {
        want[p] = want[0];
        struct ps_plan_req q = sj_req(&want[p], policies[p]);
        uses_check_reset();
        assert_ok_dt(sj_run(&want[p], &q, NULL, &dt), &dt);
    }
    late_gpu = gpu;
    n_unpinned = 0;
    for (late_seed = 0; late_seed < seeds; late_seed++) {
        unsigned seed = late_seed;
        size_t p = (size_t) rand_r(&seed) % PS_ARRAY_LEN(policies);
        struct ps_plan_req q = sj_req(&want[p], policies[p]);
        random_req(&q, &seed);
        got = want[p];
        got.device = late_dev_open;
        got.schedule = random_schedule(&seed);
        uses_check_reset();
        assert_ok_dt(sj_run(&got, &q, NULL, &dt), &dt);
        if (!sj_same(&want[p], &got)) fail_msg("seed %u: other bits", late_seed);
    }
    sj_close(&want[0]);
    assert_true(!gpu || n_unpinned);
}

static void pre_norm(struct sj *j) { sj_open(j, true); }
static void post_norm(struct sj *j) { sj_open(j, false); }

static void any_order_gives_the_same_bits(void **state) { orders(pre_norm, false, 72); }
static void any_order_gives_the_same_bits_post_norm(void **state) { orders(post_norm, false, 24); }
/* The same kernels, as if on a GPU: everything goes there and back. */
static void any_order_gives_the_same_bits_gpu(void **state) { orders(pre_norm, true, 160); }
static void any_order_gives_the_same_bits_post_norm_gpu(void **state)
{
    orders(post_norm, true, 48);
}
/* Matrices of several chunks, which are one launch where they lie together. */
static void any_order_gives_the_same_bits_wide_gpu(void **state)
{
    late_gpu_scratch = 64 << 20;
    orders(sj_open_wide, true, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_bits),
        cmocka_unit_test(any_order_gives_the_same_bits_post_norm),
        cmocka_unit_test(any_order_gives_the_same_bits_gpu),
        cmocka_unit_test(any_order_gives_the_same_bits_post_norm_gpu),
        cmocka_unit_test(any_order_gives_the_same_bits_wide_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
