/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler on a tiny model: the same bits for every placement and block shape,
 * times that pencil and paper give, and every fault met with an error or the right answer. */
#include "engine/base/ps_mem.h"
#include "engine/plan/layout.h"
#include "offload/profile.h"
#include "ps_cmocka.h"
#include "sched_job.h"

static const char *const policies[] = { "full", "local", "sink", "h2o" };

struct shape {
    double weights_disk, kv_disk, hidden_disk;
    uint32_t slots, mbs, prefill, prefetch, threads;
};

static const struct shape shapes[] = {
    { 50, 0, 0, 4, 1, 0, 1, 2 },      { 100, 0, 0, 1, 1, 0, 2, 1 },
    { 0, 100, 0, 4, 2, 0, 0, 2 },     { 0, 50, 0, 3, 5, 0, 0, 2 },
    { 0, 0, 100, 4, 1, 0, 0, 2 },     { 0, 0, 50, 2, 2, 64, 0, 1 },
    { 100, 100, 100, 2, 5, 0, 4, 2 }, { 33, 66, 50, 16, 2, 300, 3, 2 },
    { 100, 100, 0, 7, 1, 51, 0, 2 },
};

static void apply(struct ps_plan_req *q, const struct shape *h)
{
    q->weights = (struct ps_shares) { { 0, 100 - h->weights_disk, h->weights_disk } };
    q->kv = (struct ps_shares) { { 0, 100 - h->kv_disk, h->kv_disk } };
    q->hidden = (struct ps_shares) { { 0, 100 - h->hidden_disk, h->hidden_disk } };
    q->gpu_batch_size = h->slots;
    q->num_gpu_batches = h->mbs;
    q->prefill_tokens = h->prefill;
    q->prefetch = h->prefetch;
    q->threads = h->threads;
}

static void placements(bool norm_before)
{
    static struct sj want, got;
    struct ps_detail dt = { "" };
    sj_open(&want, norm_before);
    for (size_t p = 0; p < PS_ARRAY_LEN(policies); p++) {
        struct ps_plan_req q = sj_req(&want, policies[p]);
        assert_ok_dt(sj_run(&want, &q, NULL, &dt), &dt);
        for (size_t i = 0; i < PS_ARRAY_LEN(shapes); i++) {
            got = want;
            apply(&q, &shapes[i]);
            assert_ok_dt(sj_run(&got, &q, NULL, &dt), &dt);
            if (!sj_same(&want, &got)) fail_msg("%s: shape %zu gives other bits", policies[p], i);
        }
    }
    sj_close(&want);
}

static void placements_change_no_bit(void **state) { placements(true); }
static void placements_change_no_bit_post_norm(void **state) { placements(false); }

/* One link slow, everything else free: the run takes that link's bytes, or flops, and hardly more. */
static void sim_is_bound_by_its_slowest_link(void **state)
{
    static struct sj j;
    struct ps_detail dt = { "" };
    sj_open(&j, true);
    struct ps_plan_req q = sj_req(&j, "h2o");
    apply(&q, &shapes[1]);
    const struct ps_profile disk = { .disk_read.alone = 1e6 }, slow = { .host.flops = 1e6 };
    assert_ok_dt(sj_run(&j, &q, &(struct ps_sim_cfg) { .profile = &disk }, &dt), &dt);
    double all = j.run.load_s + j.run.prefill_s + j.run.decode_s;
    double want = (double) j.run.dev.bytes[PS_Q_READ][PS_KIND_WEIGHTS] / 1e6;
    assert_true(all <= want * 1.0001 &&
                all > want * 0.95); /* what was read ahead at the very end is not waited for */
    assert_ok_dt(sj_run(&j, &q, &(struct ps_sim_cfg) { .profile = &slow }, &dt), &dt);
    all = j.run.load_s + j.run.prefill_s + j.run.decode_s;
    want = (double) j.run.dev.busy_ns[PS_Q_COMPUTE] * 1e-9;
    assert_true(all <= want * 1.0001 && all >= want * 0.9999);
    sj_close(&j);
}

/* One run under a fault spec: an error that names the file, or the same bits as without. */
static void one_fault(const struct sj *want, struct ps_plan_req *q, const char *spec)
{
    static struct sj got;
    struct ps_detail dt = { "" };
    setenv("PS_FAULT", spec, 1);
    got = *want;
    int r = sj_run(&got, q, NULL, &dt);
    unsetenv("PS_FAULT");
    if (r < 0 && !strstr(dt.text, "packed") && !strstr(dt.text, "offload"))
        fail_msg("%s: \"%s\" names no file", spec, dt.text);
    if (r >= 0 && !sj_same(want, &got)) fail_msg("%s: no error, other bits", spec);
}

static void faults(void **state)
{
    static const char *const kinds[][2] = { { "read", ":EIO" },
                                            { "write", ":EIO" },
                                            { "write", ":ENOSPC" } };
    static struct sj want;
    char spec[64];
    sj_open(&want, true);
    want.n_seqs = 5;
    want.verify_always = true;
    struct ps_detail dt = { "" };
    struct ps_plan_req q = sj_req(&want, "h2o");
    assert_ok_dt(sj_run(&want, &q, NULL, &dt), &dt);
    apply(&q, &shapes[6]);
    for (size_t k = 0; k < PS_ARRAY_LEN(kinds); k++)
        for (unsigned n = 1; n < 400; n = n < 40 ? n + 1 : n * 5 / 4) {
            snprintf(spec, sizeof spec, "%s:%u%s", kinds[k][0], n, kinds[k][1]);
            one_fault(&want, &q, spec);
        }
    for (unsigned n = 2; n < 10; n++) {
        snprintf(spec, sizeof spec, "short:%u,intr:%u,delay:50,reorder,seed:%u", n, n + 1, n);
        one_fault(&want, &q, spec);
    }
    apply(&q, &shapes[1]); /* weights alone on disk: they have checksums */
    for (unsigned n = 1; n < 60; n++) {
        snprintf(spec, sizeof spec, "flip:%u", n);
        one_fault(&want, &q, spec);
    }
    sj_close(&want);
}

/* Every allocation in turn fails: -ENOMEM, or not needed. */
static void allocations(void **state)
{
    static struct sj want, got;
    struct ps_detail dt = { "" };
    sj_open(&want, true);
    want.n_seqs = 3;
    struct ps_plan_req q = sj_req(&want, "h2o");
    apply(&q, &shapes[6]);
    assert_ok_dt(sj_run(&want, &q, NULL, &dt), &dt);
    for (unsigned n = 1;; n++) {
        got = want;
        ps_mem_fault_arm(n);
        int r = sj_run(&got, &q, NULL, &dt);
        bool hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (r < 0)
            assert_err(r, ENOMEM);
        else
            assert_true(sj_same(&want, &got));
        if (!hit) break;
    }
    sj_close(&want);
}

static void stops_between_sweeps(void **state)
{
    static struct sj j;
    struct ps_detail dt = { "" };
    sj_open(&j, true);
    struct ps_plan_req q = sj_req(&j, "full");
    j.stop_after = 3;
    assert_int_equal(sj_run(&j, &q, NULL, &dt), PS_GO_STOP);
    assert_true(j.at < j.n_seqs);
    sj_close(&j);
}

/* ---- plans */

static void plans_fit_or_say_what_would(void **state)
{
    static struct sj j;
    sj_open(&j, true);
    uint64_t last = 0;
    for (uint64_t mem = 16 << 10; mem <= 64 << 20; mem += mem / 3) {
        struct ps_plan_req q = sj_req(&j, "full");
        struct ps_plan p;
        struct ps_detail dt = { "" };
        char *text = NULL;
        q.host_mem = mem;
        q.weights.pct[0] = q.kv.pct[0] = q.hidden.pct[0] = -1;
        q.gpu_batch_size = q.num_gpu_batches = 0;
        int r = ps_plan_make(&q, &p, &text, &dt);
        if (r < 0) {
            assert_err(r, PS_EBUDGET);
            assert_non_null(text);
            assert_non_null(strstr(text, "It fits with --host-mem"));
            unsigned long long mib =
                strtoull(strstr(text, "It fits with --host-mem") + 24, NULL, 10);
            q.host_mem = mib << 20;
            assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
            free(text);
        } else {
            assert_true(p.host_bytes <= mem && p.disk_bytes <= q.disk_space);
            assert_true(p.host_bytes >= last || p.host_bytes > mem / 8);
            last = p.host_bytes;
        }
        ps_plan_done(&p);
    }
    sj_close(&j);
}

static void plans_realise_shares(void **state)
{
    static struct sj j;
    struct ps_detail dt = { "" };
    struct ps_plan p;
    sj_open(&j, true);
    for (int pct = 0; pct <= 100; pct += 9) {
        struct ps_plan_req q = sj_req(&j, "h2o");
        q.weights = (struct ps_shares) { { 0, 100 - pct, pct } };
        assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
        double all = (double) (p.weight_bytes[1] + p.weight_bytes[2]);
        double off = (double) p.weight_bytes[2] - pct / 100.0 * all;
        assert_true(off <= j.model->chunk_bytes && off >= -(double) j.model->chunk_bytes);
        ps_plan_done(&p);
    }
    struct ps_plan_req q = sj_req(&j, "h2o");
    q.weights = (struct ps_shares) { { 20, 80, 0 } };
    assert_err(ps_plan_make(&q, &p, NULL, &dt), PS_EUSAGE);
    assert_says(&dt, "no GPU");
    q = sj_req(&j, "h2o"); /* a prompt is processed whole, so the cap gives way to the longest */
    q.prefill_tokens = 3;
    assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
    assert_int_equal(p.prefill_tokens, j.stats.longest_prompt);
    ps_plan_done(&p);
    sj_close(&j);
}

/* Sizes whose product passes 32 bits: refused for the memory that they would take, not planned small. */
static void plans_count_beyond_32_bits(void **state)
{
    enum { MANY = 65536 };
    static struct sj j;
    struct ps_plan p;
    sj_open(&j, true);
    j.stats = (struct ps_job_stats) { .requests = MANY,
                                      .prompt_tokens = (uint64_t) MANY * MANY,
                                      .max_new_tokens = MANY,
                                      .longest_prompt = MANY,
                                      .longest_total = MANY + 1 };
    for (size_t i = 0; i < 2 * PS_ARRAY_LEN(policies); i++) {
        struct ps_detail dt = { "" };
        struct ps_plan_req q = sj_req(&j, policies[i / 2]);
        if (i / 2) q.kv_config.budget_share = 100; /* policies[0] keeps everything anyway */
        q.gpu_batch_size = MANY;
        q.num_gpu_batches = 1 + i % 2;
        q.prefill_tokens = UINT32_MAX;
        q.host_mem = (uint64_t) 64 << 30;
        assert_err(ps_plan_make(&q, &p, NULL, &dt), PS_EBUDGET);
        q.host_mem = UINT64_MAX;
        assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
        assert_true(p.detail->pool > UINT32_MAX - 64 && p.detail->pool % p.detail->quantum == 0);
        assert_true(p.detail->mb_rows >= UINT32_MAX / q.num_gpu_batches);
        ps_plan_done(&p);
    }
    sj_close(&j);
}

/* Attention may be wider than anything else. */
static void plans_have_scratch_for_the_widest_linear(void **state)
{
    static struct sj j;
    struct ps_detail dt = { "" };
    struct ps_plan p;
    sj_open(&j, true);
    struct ps_packed m = *j.model;
    m.shape.q_heads = m.shape.kv_heads = 512;
    struct ps_plan_req q = sj_req(&j, "full");
    q.model = &m;
    assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
    struct ps_linear out = { .m = p.chunk_rows,
                             .n = m.shape.hidden,
                             .k = m.shape.q_heads * m.shape.head_dim,
                             .wtype = m.dtype };
    assert_true(p.detail->scratch_bytes >= ps_op_scratch(PS_OP_linear, &out));
    ps_plan_done(&p);
    sj_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placements_change_no_bit),
        cmocka_unit_test(placements_change_no_bit_post_norm),
        cmocka_unit_test(sim_is_bound_by_its_slowest_link),
        cmocka_unit_test(faults),
        cmocka_unit_test(allocations),
        cmocka_unit_test(stops_between_sweeps),
        cmocka_unit_test(plans_fit_or_say_what_would),
        cmocka_unit_test(plans_realise_shares),
        cmocka_unit_test(plans_count_beyond_32_bits),
        cmocka_unit_test(plans_have_scratch_for_the_widest_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
