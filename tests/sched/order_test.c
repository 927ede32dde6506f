/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's order comes from the buffers that its tasks name, and from nothing else. */
#include "engine/base/ps_cpu.h"
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

/* More rows in a pass than a GPU's own linear is for: what linears read is rounded, in one batch shape the same for whatever placement. By the
 * reference's kernels, which alone have rounded results here. */
static void many_rows(void (*open)(struct sj *), uint32_t slots, uint32_t prefill, unsigned seeds)
{
    static struct sj want, got;
    struct ps_detail dt = { "" };
    static const struct ps_schedule serial = { .no_overlap = true };
    late_gpu = late_rounds = true;
    ps_cpu_set_mask(0);
    open(&want);
    want.device = late_dev_open;
    for (unsigned i = 0; i <= seeds; i++) { /* the first: one task after the other, on the GPU */
        struct ps_plan_req q = sj_req(&want, "h2o");
        unsigned seed = late_seed = i + PS_OP__COUNT;
        random_req(&q, &seed);
        if (i == 0) {
            q.weights = q.kv = q.hidden = (struct ps_shares) { { 100, 0, 0 } };
            q.attention = PS_ATTENTION_GPU;
        }
        q.pin_max = 0; /* it was for another batch */
        q.gpu_batch_size = slots;
        q.num_gpu_batches = (SJ_SEQS + slots - 1) / slots;
        q.prefill_tokens = prefill;
        q.rates.gpu_gemm = 1e6; /* so slow that all rows go at once */
        if (i == 0) {
            want.schedule = &serial;
            uses_check_reset();
            assert_ok_dt(sj_run(&want, &q, NULL, &dt), &dt);
        }
        got = want;
        if (i) got.schedule = random_schedule(&seed);
        if (got.schedule && got.schedule->no_continuous) got.schedule = NULL; /* other rows */
        late_rounds = i > 0; /* the first time it shows that something was rounded */
        uses_check_reset();
        assert_ok_dt(sj_run(&got, &q, NULL, &dt), &dt);
        if (sj_same(&want, &got) != late_rounds)
            fail_msg("seed %u: %s bits", late_seed, i ? "other" : "the same");
    }
    sj_close(&want);
    late_rounds = false;
    ps_cpu_set_mask(UINT32_MAX);
}

static void any_order_gives_the_same_bits_many_rows(void **state)
{
    many_rows(pre_norm, SJ_SEQS, 300, 10);
    many_rows(pre_norm, (SJ_SEQS + 1) / 2, 600, 10);
}
static void any_order_gives_the_same_bits_many_rows_post_norm(void **state)
{
    many_rows(post_norm, SJ_SEQS, 300, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_bits),
        cmocka_unit_test(any_order_gives_the_same_bits_post_norm),
        cmocka_unit_test(any_order_gives_the_same_bits_gpu),
        cmocka_unit_test(any_order_gives_the_same_bits_post_norm_gpu),
        cmocka_unit_test(any_order_gives_the_same_bits_wide_gpu),
        cmocka_unit_test(any_order_gives_the_same_bits_many_rows),
        cmocka_unit_test(any_order_gives_the_same_bits_many_rows_post_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
