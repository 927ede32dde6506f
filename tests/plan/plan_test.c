/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: shares as they were asked for, and memory as the layout measures it, for one GPU, host and disk. */
#include "engine/base/ps_mem.h"
#include "plan_model.h"
#include "ps_cmocka.h"

static const char *const policies[] = { "full", "local", "sink", "h2o" };
static const struct ps_shares everywhere = { { 30, 40, 30 } };

/* Within one item of the share. */
static void within(const uint64_t got[PS_TIER__COUNT], const struct ps_shares *s, uint64_t item)
{
    const double all = (double) (got[0] + got[1] + got[2]);
    for (int t = 0; t < PS_TIER__COUNT; t++) {
        const double off = (double) got[t] - s->pct[t] / 100 * all;
        if (!(off <= (double) item && off >= -(double) item))
            fail_msg("tier %d: %g of %g, %g %% were wanted", t, (double) got[t], all, s->pct[t]);
        if (s->pct[t] == 0) assert_int_equal(got[t], 0);
    }
}

static void shares_are_realised(void **state)
{
    struct ps_packed *m = pm_model("opt-1.3b");
    for (int a = 0; a <= 100; a += 20)
        for (int b = 0; a + b <= 100; b += 25)
            for (size_t i = 0; i < PS_ARRAY_LEN(policies); i++) {
                struct ps_plan_req q = pm_req(m, 64, 100, 28, 100 * GIB, 100 * GIB);
                struct ps_plan p;
                struct ps_detail dt = { "" };
                const struct ps_shares s = { { a, b, 100 - a - b } },
                                       back = { { 100 - a - b, a, b } },
                                       turn = { { b, 100 - a - b, a } };
                q.weights = s;
                q.kv = back;
                q.hidden = turn;
                q.gpu_batch_size = 3;
                q.num_gpu_batches = 4;
                q.kv_config.policy = policies[i];
                q.attention = (enum ps_attention_at)((a / 20 + b / 25) % 3);
                assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
                pm_check(&q, &p);
                within(p.weight_bytes, &s, m->chunk_bytes);
                within(p.kv_bytes, &back, ps_kv_extent_bytes(&m->shape, p.detail));
                within(p.hidden_bytes, &turn, ps_hidden_bytes(&m->shape, p.detail));
                const uint32_t far = 24 * 4 - (uint32_t) (p.kv_bytes[PS_TIER_GPU] /
                                                          ps_kv_extent_bytes(&m->shape, p.detail));
                if (q.attention == PS_ATTENTION_GPU) assert_int_equal(p.host_slabs, 0);
                if (q.attention == PS_ATTENTION_HOST) assert_int_equal(p.host_slabs, far);
                ps_plan_done(&p);
            }
    ps_pack_close(m);
}

/* The placements that FlexGen tests and benchmarks, in percent on the GPU and on the host (reference, 1.13). */
static void flexgens_placements(void **state)
{
    static const struct {
        const char *model;
        double w[2], kv[2], hidden[2];
        uint32_t slots, mbs;
        uint64_t gpu_mem, host_mem;
    } list[] = {
        { "opt-1.3b", { 100, 0 }, { 100, 0 }, { 100, 0 }, 4, 1, 16, 64 },
        { "opt-1.3b", { 0, 100 }, { 100, 0 }, { 100, 0 }, 4, 1, 16, 64 },
        { "opt-1.3b", { 100, 0 }, { 0, 100 }, { 100, 0 }, 4, 1, 16, 64 },
        { "opt-1.3b", { 0, 100 }, { 0, 100 }, { 100, 0 }, 4, 1, 16, 64 },
        { "opt-1.3b", { 0, 0 }, { 100, 0 }, { 100, 0 }, 4, 1, 16, 64 },
        { "opt-1.3b", { 100, 0 }, { 0, 0 }, { 100, 0 }, 4, 1, 16, 64 },
        { "opt-1.3b", { 50, 50 }, { 100, 0 }, { 100, 0 }, 4, 1, 16, 64 },
        { "opt-1.3b", { 100, 0 }, { 50, 50 }, { 100, 0 }, 4, 1, 16, 64 },
        { "opt-1.3b", { 100, 0 }, { 100, 0 }, { 100, 0 }, 4, 2, 16, 64 },
        { "opt-30b", { 20, 80 }, { 0, 100 }, { 0, 100 }, 48, 3, 20, 208 },
        { "opt-30b", { 4, 96 }, { 0, 100 }, { 0, 100 }, 20, 4, 16, 208 },
        { "opt-175b", { 0, 50 }, { 0, 0 }, { 0, 100 }, 32, 8, 24, 208 },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(list) * 2; i++) {
        const size_t k = i / 2;
        struct ps_packed *m = pm_model(list[k].model);
        struct ps_plan_req q =
            pm_req(m, 1000, 512, 32, list[k].host_mem * GIB, list[k].gpu_mem * GIB);
        const double *const shares[] = { list[k].w, list[k].kv, list[k].hidden };
        struct ps_shares *const want[] = { &q.weights, &q.kv, &q.hidden };
        struct ps_plan p;
        struct ps_detail dt = { "" };
        for (int j = 0; j < 3; j++)
            *want[j] = (struct ps_shares) { { shares[j][0], shares[j][1],
                                              100 - shares[j][0] - shares[j][1] } };
        q.gpu_batch_size = list[k].slots;
        q.num_gpu_batches = list[k].mbs;
        q.disk_space = 4000 * GIB;
        q.kv_config.policy = i % 2 ? "h2o" : "full";
        char *text = NULL;
        if (ps_plan_make(&q, &p, &text, &dt) < 0)
            fail_msg("%zu %s: %s\n%s", k, q.kv_config.policy, dt.text, text ? text : "");
        pm_check(&q, &p);
        within(p.weight_bytes, &q.weights, m->chunk_bytes);
        ps_plan_done(&p);
        ps_pack_close(m);
    }
}

/* Less pinned memory than the plan would have: the weights that stay on the host are left out of it, and pass through the ring. */
static void less_can_be_pinned(void **state)
{
    struct ps_packed *m = pm_model("opt-1.3b");
    struct ps_plan_req q = pm_req(m, 64, 100, 28, 64 * GIB, 8 * GIB);
    struct ps_plan all, less;
    struct ps_detail dt = { "" };
    q.weights = (struct ps_shares) { { 0, 100, 0 } };
    q.kv = q.hidden = everywhere;
    q.gpu_batch_size = q.num_gpu_batches = 2;
    assert_ok_dt(ps_plan_make(&q, &all, NULL, &dt), &dt);
    pm_check(&q, &all);
    assert_true(all.detail->weights_pinned && all.pinned_bytes > m->weight_bytes);
    q.pin_max = all.pinned_bytes - 1;
    assert_ok_dt(ps_plan_make(&q, &less, NULL, &dt), &dt);
    pm_check(&q, &less);
    assert_true(!less.detail->weights_pinned);
    assert_true(less.pinned_bytes < all.pinned_bytes - m->weight_bytes / 2);
    q.pin_max = MIB;
    ps_plan_done(&less);
    char *text = NULL;
    assert_err(ps_plan_make(&q, &less, &text, &dt), PS_EBUDGET);
    free(text);
    ps_plan_done(&all);
    ps_pack_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_realised),
        cmocka_unit_test(flexgens_placements),
        cmocka_unit_test(less_can_be_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
