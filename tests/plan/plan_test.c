/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: shares as they were asked for, and memory as the layout measures it, for one GPU, host and disk. */
#include "engine/base/ps_mem.h"
#include "engine/plan/shape_plan.h"
#include "plan_model.h"
#include "ps_cmocka.h"
#include <math.h>

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
    q.pin_max = all.pinned_bytes - m->weight_bytes / 2;
    assert_ok_dt(ps_plan_make(&q, &less, NULL, &dt), &dt);
    pm_check(&q, &less);
    assert_true(!less.detail->weights_pinned);
    assert_true(less.pinned_bytes < all.pinned_bytes - m->weight_bytes / 2);
    q.pin_max = MIB;
    ps_plan_done(&less);
    char *text = NULL;
    assert_err(ps_plan_make(&q, &less, &text, &dt), PS_EBUDGET);
    assert_non_null(strstr(dt.text, "with --gpu-mem 0"));
    assert_non_null(strstr(text, "Without the GPU: --gpu-mem 0"));
    free(text);
    q.gpu.asked = true;
    assert_false(ps_plan_leave_gpu(&q));
    q.gpu.asked = false;
    assert_true(ps_plan_leave_gpu(&q));
    assert_false(ps_plan_leave_gpu(&q));
    q.kv = q.hidden = (struct ps_shares) { { 0, 100, 0 } };
    assert_ok_dt(ps_plan_make(&q, &less, NULL, &dt), &dt);
    assert_true(!less.gpu_bytes && !less.pinned_bytes);
    ps_plan_done(&less);
    ps_plan_done(&all);
    ps_pack_close(m);
}

/* ---- automatic plans */

struct machine {
    const char *model;
    double host, gpu; /* GiB */
};
static const struct machine machines[] = {
    { "opt-1.3b", 8, 0 },    { "opt-1.3b", 8, 4 },    { "opt-6.7b", 12, 0 },
    { "opt-6.7b", 60, 16 },  { "opt-6.7b", 12, 16 },  { "opt-30b", 64, 0 },
    { "opt-30b", 208, 16 },  { "opt-30b", 30, 16 },   { "opt-30b", 208, 80 },
    { "opt-175b", 208, 16 }, { "opt-175b", 400, 40 },
};

static uint64_t gib(double n) { return (uint64_t) (n * (double) GIB); }

static double planned(const struct ps_plan_req *q)
{
    struct ps_plan p;
    struct ps_detail dt = { "" };
    assert_ok_dt(ps_plan_make(q, &p, NULL, &dt), &dt);
    pm_check(q, &p);
    const double s = p.predicted_s;
    assert_true(s > 0 && s < 1e9);
    ps_plan_done(&p);
    return s;
}

/* What memory there is is used: a plan that leaves weights passing by leaves no room for a run of chunks that could stay. */
static void memory_is_used(void **state)
{
    for (size_t i = 0; i < 2 * PS_ARRAY_LEN(machines); i++) {
        const struct machine *h = &machines[i / 2];
        struct ps_packed *m = pm_model(h->model);
        struct ps_plan_req q = pm_req(m, 1000, 512, 32, gib(h->host), gib(h->gpu));
        struct ps_plan p;
        struct ps_detail dt = { "" };
        q.kv_config.policy = i % 2 ? "h2o" : "full";
        assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
        pm_check(&q, &p);
        if (h->gpu > 0 && p.weight_bytes[PS_TIER_HOST] + p.weight_bytes[PS_TIER_DISK])
            assert_true(p.gpu_bytes + 8 * (uint64_t) m->chunk_bytes > q.gpu.mem_bytes);
        if (p.weight_bytes[PS_TIER_DISK])
            assert_true(p.host_bytes + 8 * (uint64_t) m->chunk_bytes > q.host_mem);
        ps_auto_free char *text = ps_plan_text(&q, &p);
        assert_non_null(text);
        assert_true(!strstr(text, "GPU") == !(h->gpu > 0));
        ps_plan_done(&p);
        ps_pack_close(m);
    }
}

/* More memory of the GPU, or of the host, never makes the plan slower. */
static void more_memory_is_never_slower(void **state)
{
    static const char *const models[] = { "opt-1.3b", "opt-30b" };
    for (size_t i = 0; i < 4; i++) {
        struct ps_packed *m = pm_model(models[i / 2]);
        const uint64_t all = m->weight_bytes;
        struct ps_plan_req q = pm_req(m, 300, 300, 50, 2 * all, 0);
        q.kv_config.policy = i % 2 ? "h2o" : "full";
        double before = 1e30;
        for (uint64_t gpu = all / 5; gpu < 3 * all; gpu += all / 4) {
            q.gpu.mem_bytes = gpu;
            const double now = planned(&q);
            if (!(now < before * 1.002))
                fail_msg("%s: %g s after %g s", models[i / 2], now, before);
            before = now;
        }
        q.gpu.mem_bytes = all / 2;
        before = 1e30;
        for (uint64_t host = all / 3; host < 3 * all; host += all / 2) {
            q.host_mem = host;
            const double now = planned(&q);
            if (!(now < before * 1.002))
                fail_msg("%s: %g s after %g s", models[i / 2], now, before);
            before = now;
        }
        ps_pack_close(m);
    }
}

/* A job that only scores prompts has a price, by which a block of more than one is chosen. */
static void prompts_that_are_only_scored(void **state)
{
    struct ps_packed *m = pm_model("opt-6.7b");
    for (int gpu = 0; gpu < 2; gpu++) {
        struct ps_plan_req q = pm_req(m, 1000, 512, 0, 64 * GIB, gpu * 16 * GIB);
        struct ps_plan p;
        struct ps_detail dt = { "" };
        q.job.scores_prompts = true;
        assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
        pm_check(&q, &p);
        assert_true(p.slots * p.micro_batches > 1);
        ps_plan_done(&p);
    }
    ps_pack_close(m);
}

/* Biases in f32 are for linears that the library does: not of few rows, and of bf16 only where the GPU multiplies that. */
static void biases_in_f32(void **state)
{
    static const struct {
        enum ps_dtype dtype;
        uint32_t sm, rows;
        bool biases;
    } list[] = { { PS_F16, 75, 512, true },  { PS_F16, 75, 64, false }, { PS_BF16, 75, 512, false },
                 { PS_BF16, 80, 512, true }, { PS_BF16, 0, 512, true }, { PS_BF16, 80, 64, false },
                 { PS_F32, 80, 512, false } };
    struct ps_packed *m = pm_model("opt-1.3b");
    for (size_t i = 0; i < PS_ARRAY_LEN(list); i++) {
        struct ps_plan_req q = pm_req(m, 4, list[i].rows, 8, 8 * GIB, 16 * GIB);
        struct ps_plan p;
        struct ps_detail dt = { "" };
        m->dtype = list[i].dtype;
        q.gpu.sm = list[i].sm;
        q.gpu_batch_size = q.num_gpu_batches = 1;
        assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
        pm_check(&q, &p);
        assert_true(list[i].biases == (strstr(p.detail->gpu_table, "biases in f32") != NULL));
        ps_plan_done(&p);
    }
    ps_pack_close(m);
}

/* Layers read ahead: more than there are is as many as there are. */
static void all_layers_ahead(void **state)
{
    struct ps_packed *m = pm_model("opt-175b");
    for (int gpu = 0; gpu < 2; gpu++) {
        struct ps_plan_req q = pm_req(m, 100, 512, 32, 800 * GIB, gpu * 800 * GIB);
        uint64_t bytes = 0;
        q.weights = (struct ps_shares) { { 0, 0, 100 } };
        q.gpu_batch_size = 4;
        q.num_gpu_batches = 1;
        for (int i = 0; i < 2; i++) {
            struct ps_plan p;
            struct ps_detail dt = { "" };
            q.prefetch = i ? UINT32_MAX - 1 : m->shape.layers + 1;
            assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
            pm_check(&q, &p);
            assert_true(!i || p.host_bytes == bytes);
            bytes = p.host_bytes;
            ps_plan_done(&p);
        }
    }
    ps_pack_close(m);
}

/* Attention goes where it is cheap. */
static void attention_follows_the_rates(void **state)
{
    struct ps_packed *m = pm_model("opt-30b");
    struct ps_plan_req q = pm_req(m, 1000, 512, 32, 208 * GIB, 16 * GIB);
    struct ps_plan p;
    struct ps_detail dt = { "" };
    q.kv = (struct ps_shares) { { 0, 100, 0 } };
    for (int i = 0; i < 3; i++) { /* memory of the host as a share of what the bus brings */
        const double dram[] = { 1e9, 12e9, 500e9 };
        q.rates = (struct ps_rates) {
            .dram = dram[i], .h2d = 12e9, .d2h = 12e9, .hbm = 300e9, .gpu_gemm = 1e15
        };
        assert_ok_dt(ps_plan_make(&q, &p, NULL, &dt), &dt);
        pm_check(&q, &p);
        const uint32_t slabs = 48 * p.micro_batches;
        if (i == 0) assert_true(p.host_slabs <= slabs / 4);
        if (i == 1) assert_true(p.host_slabs && p.host_slabs < slabs);
        if (i == 2) assert_int_equal(p.host_slabs, slabs);
        ps_plan_done(&p);
    }
    ps_pack_close(m);
}

/* What a refusal says would fit does. */
static void obey(struct ps_plan_req *q, const char *text)
{
    static const char *const options[] = { "--host-mem ", "--gpu-mem ", "--disk-space " };
    uint64_t *const values[] = { &q->host_mem, &q->gpu.mem_bytes, &q->disk_space };
    const char *s = strstr(text, "It fits with ");
    assert_non_null(s);
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(s, options[i]);
        const uint64_t v = at ? strtoull(at + strlen(options[i]), NULL, 10) * MIB : 0;
        if (v > *values[i]) *values[i] = v;
    }
}

static void refusals_say_what_fits(void **state)
{
    for (size_t i = 0; i < 60; i++) {
        const struct machine *h = &machines[i % PS_ARRAY_LEN(machines)];
        struct ps_packed *m = pm_model(h->model);
        const double part = i % 3 ? 0.001 : 1, gpu_part = i % 3 == 1 ? 1 : 0.001;
        struct ps_plan_req q = pm_req(m, 100, 512, 32, gib(h->host * part), gib(h->gpu * gpu_part));
        struct ps_plan p;
        struct ps_detail dt = { "" };
        ps_auto_free char *text = NULL;
        if (i % 2) q.kv = (struct ps_shares) { { h->gpu > 0 ? 33 : 0, h->gpu > 0 ? 47 : 80, 20 } };
        if (i % 5 == 0) q.num_gpu_batches = 2;
        int r = ps_plan_make(&q, &p, &text, &dt);
        if (r < 0) {
            assert_err(r, PS_EBUDGET);
            assert_non_null(text);
            if (h->gpu > 0) assert_non_null(strstr(text, "on the GPU\n"));
            if (q.gpu.mem_bytes && gpu_part < 1 && h->gpu * gpu_part < 0.02)
                assert_says(&dt, "--gpu-mem");
            obey(&q, text);
            if (ps_plan_make(&q, &p, NULL, &dt) < 0) fail_msg("%zu: %s\n%s", i, dt.text, text);
        }
        pm_check(&q, &p);
        ps_plan_done(&p);
        ps_pack_close(m);
    }
}

/* Less and less memory, until a plan is refused: then it is said of what there is too little. */
static void refusals_say_why(void **state)
{
    struct ps_packed *m = pm_model("opt-1.3b");
    for (int i = 0; i < 4; i++) {
        struct ps_plan_req q = pm_req(m, 1000, 512, 32, 4 * GIB, 2 * GIB);
        struct ps_plan p;
        struct ps_detail dt = { "" };
        q.weights = (struct ps_shares) { { 20 + 0.37 * i, 70 - i, 10 + 0.63 * i } };
        q.kv = (struct ps_shares) { { 0, 100, 0 } };
        q.hidden = (struct ps_shares) { { 100, 0, 0 } };
        q.gpu_batch_size = 12;
        q.num_gpu_batches = 1;
        q.prefill_tokens = 512;
        q.prefetch = 1;
        for (int k = 0; k < 6; k++) {
            if (ps_plan_make(&q, &p, NULL, &dt) < 0) {
                assert_says(&dt, "no plan fits --");
                break;
            }
            pm_check(&q, &p);
            q.host_mem = p.host_bytes;
            q.gpu.mem_bytes = p.gpu_bytes;
            ps_plan_done(&p);
        }
    }
    ps_pack_close(m);
}

/* What the machine does not have is not offered. */
static void refusal_beyond_the_machine(void **state)
{
    struct ps_packed *m = pm_model("opt-1.3b");
    struct ps_plan_req q = pm_req(m, 100, 512, 32, 50 * MIB, 0);
    struct ps_plan p;
    struct ps_detail dt = { "" };
    for (int i = 0; i < 3; i++) {
        ps_auto_free char *text = NULL;
        q.host_most = (uint64_t[]) { 0, 60 * MIB, GIB }[i];
        assert_err(ps_plan_make(&q, &p, &text, &dt), PS_EBUDGET);
        assert_non_null(
            strstr(text, i == 1 ? "It would fit with --host-mem " : "It fits with --host-mem "));
        assert_int_equal(!!strstr(text, "(or its cgroup) has 60 MiB for it"), i == 1);
    }
    ps_pack_close(m);
}

static struct ps_shares random_shares(bool gpu, unsigned *seed)
{
    const int a = gpu && rand_r(seed) % 3 ? rand_r(seed) % 101 : 0,
              b = rand_r(seed) % 2 ? rand_r(seed) % (101 - a) : 100 - a;
    if (rand_r(seed) % 3 == 0) return (struct ps_shares) { { -1, -1, -1 } };
    return (struct ps_shares) { { a, b, 100 - a - b } };
}

static bool by(double a, double b, double factor) { return a >= b * factor || b >= a * factor; }

/* No neighbours of each other: in the block, prompt tokens, where KV lies or is attended to. */
static bool differ(const struct ps_plan *a, const struct ps_plan *b)
{
    const double kv_a = (double) (a->kv_bytes[0] + a->kv_bytes[1] + a->kv_bytes[2]),
                 kv_b = (double) (b->kv_bytes[0] + b->kv_bytes[1] + b->kv_bytes[2]);
    for (int t = 0; t < PS_TIER__COUNT; t++)
        if (fabs((double) a->kv_bytes[t] / kv_a - (double) b->kv_bytes[t] / kv_b) > 0.24)
            return true;
    return by(a->micro_batches, b->micro_batches, 2.01) ||
           by((double) a->slots * a->micro_batches, (double) b->slots * b->micro_batches, 1.59) ||
           by(a->prefill_tokens, b->prefill_tokens, 3.99) ||
           by((double) a->host_slabs / a->micro_batches, (double) b->host_slabs / b->micro_batches,
              1.2);
}

/* Several plans: in order, each fits, the first is as good as the one that ps_plan_make() makes, no two are alike. */
static void several(void **state)
{
    static const char *const models[] = { "opt-1.3b", "opt-6.7b", "opt-30b" };
    unsigned seed = 3, most = 0;
    for (int i = 0; i < 60; i++) {
        struct ps_packed *m = pm_model(models[i % 3]);
        const double scale = (double) m->weight_bytes * 3 / 1000;
        struct ps_plan_req q =
            pm_req(m, 1 + (unsigned) rand_r(&seed) % 3000, 1 + (unsigned) rand_r(&seed) % 900,
                   (unsigned) rand_r(&seed) % 900, (uint64_t) (scale * (1 + rand_r(&seed) % 1000)),
                   i % 4 ? (uint64_t) (scale * (1 + rand_r(&seed) % 1000)) : 0);
        struct ps_plan p[6], one;
        struct ps_detail dt = { "" };
        unsigned n = 0;
        q.kv_config.policy = policies[rand_r(&seed) % 4];
        int r = ps_plan_best(&q, 6, p, &n, NULL, &dt);
        if (r < 0) {
            assert_err(r, PS_EBUDGET);
            assert_err(ps_plan_make(&q, &one, NULL, &dt), PS_EBUDGET);
        } else {
            assert_ok_dt(ps_plan_make(&q, &one, NULL, &dt), &dt);
            /* The few chunks more that a plan gets when it is built may change the order. */
            if (by(one.predicted_s, p[0].predicted_s, 1.02))
                fail_msg("%d: %g s, of several %g s", i, one.predicted_s, p[0].predicted_s);
            ps_plan_done(&one);
            assert_true(n >= 1 && n <= 6);
            if (n > most) most = n;
        }
        for (unsigned a = 0; a < n; a++) {
            pm_check(&q, &p[a]);
            for (unsigned b = 0; b < a; b++) {
                assert_true(p[b].predicted_s <= p[a].predicted_s);
                if (!differ(&p[a], &p[b])) fail_msg("%d: %u is like %u", i, a, b);
            }
        }
        for (unsigned a = 0; a < n; a++) ps_plan_done(&p[a]);
        ps_pack_close(m);
    }
    assert_int_equal(most, 6);
}

/* Whatever is asked for: a plan that is what it says it is and fits, or a refusal. */
static void random_wishes(void **state)
{
    static const char *const models[] = { "opt-125m", "opt-350m", "opt-1.3b", "opt-6.7b",
                                          "opt-30b" };
    unsigned seed = 7, plans = 0;
    for (int i = 0; i < 400; i++) {
        struct ps_packed *m = pm_model(models[rand_r(&seed) % 5]);
        const bool gpu = rand_r(&seed) % 4;
        const double scale = (double) m->weight_bytes * 3 / 1000;
        struct ps_plan_req q =
            pm_req(m, 1 + (unsigned) rand_r(&seed) % 3000, 1 + (unsigned) rand_r(&seed) % 900,
                   (unsigned) rand_r(&seed) % 900, (uint64_t) (scale * (1 + rand_r(&seed) % 1000)),
                   gpu ? (uint64_t) (scale * (1 + rand_r(&seed) % 1000)) : 0);
        struct ps_plan p;
        struct ps_detail dt = { "" };
        q.weights = random_shares(gpu, &seed);
        q.kv = random_shares(gpu, &seed);
        q.hidden = random_shares(gpu, &seed);
        q.kv_config.policy = policies[rand_r(&seed) % 4];
        q.attention = (enum ps_attention_at)(gpu ? rand_r(&seed) % 3 : 0);
        if (rand_r(&seed) % 2) q.gpu_batch_size = 1 + (unsigned) rand_r(&seed) % 60;
        if (rand_r(&seed) % 2) q.num_gpu_batches = 1 + (unsigned) rand_r(&seed) % 9;
        if (rand_r(&seed) % 4 == 0) q.prefetch = 1 + (unsigned) rand_r(&seed) % 3;
        if (rand_r(&seed) % 4 == 0) q.prefill_tokens = 1 + (unsigned) rand_r(&seed) % 3000;
        if (gpu && rand_r(&seed) % 4 == 0) q.pin_max = q.host_mem / 3;
        q.job.scores_prompts = rand_r(&seed) % 2;
        ps_auto_free char *text = NULL;
        int r = ps_plan_make(&q, &p, &text, &dt);
        if (r < 0) {
            assert_err(r, PS_EBUDGET);
            assert_non_null(text);
        } else {
            plans++;
            pm_check(&q, &p);
            ps_plan_done(&p);
        }
        ps_pack_close(m);
    }
    assert_true(plans > 100);
}

/* Sizes from shares alone are no less than those of the arrays, and not much more. */
static void sizes_are_bounds(void **state)
{
    struct ps_packed *m = pm_model("opt-1.3b");
    const struct ps_passing all = ps_weights_passing(m);
    unsigned seed = 3;
    for (int i = 0; i < 300; i++) {
        struct ps_plan_req q = pm_req(m, 100, 100, 20, 64 * GIB, 64 * GIB * (i % 4 > 0));
        struct ps_candidate c = { .slots = 4,
                                  .micro_batches = 1 + (unsigned) rand_r(&seed) % 5,
                                  .prompt_tokens = 200,
                                  .chunk_rows = 64,
                                  .prefetch = (unsigned) rand_r(&seed) % 3,
                                  .log_steps = 4,
                                  .attention_host_pct = 25 * (rand_r(&seed) % 5),
                                  .weights_pinned = rand_r(&seed) % 2 };
        struct ps_shares *const shares[] = { &c.weights, &c.kv, &c.hidden };
        for (int k = 0; k < 3; k++) do
                *shares[k] = random_shares(i % 4 > 0, &seed);
            while (shares[k]->pct[0] < 0);
        ps_count_shares(&c.kv, (size_t) m->shape.layers * c.micro_batches, c.slabs);
        ps_count_shares(&c.hidden, c.micro_batches, c.mbs);
        struct ps_plan most, p;
        struct ps_plan_detail d;
        struct ps_detail dt = { "" };
        assert_ok_dt(ps_candidate_size(&q, &c, &all, &most, &d, &dt), &dt);
        assert_ok_dt(ps_candidate_build(&q, &c, &p, &dt), &dt);
        const uint64_t off = PS_SIZE_SLACK_CHUNKS * (uint64_t) m->chunk_bytes;
        assert_in_range(p.host_bytes, most.host_bytes > off ? most.host_bytes - off : 0,
                        most.host_bytes);
        assert_in_range(p.gpu_bytes, most.gpu_bytes > off ? most.gpu_bytes - off : 0,
                        most.gpu_bytes);
        assert_int_equal(p.disk_bytes, most.disk_bytes);
        assert_true(p.pinned_bytes <= most.pinned_bytes);
        ps_plan_done(&p);
    }
    ps_pack_close(m);
}

/* More layers than there are cannot be read ahead: no memory is taken for them. */
static void ahead_of_everything(void **state)
{
    struct ps_packed *m = pm_model("opt-125m");
    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct ps_plan_req q = pm_req(m, 64, 100, 28, 64 * GIB, gpu * 4 * GIB);
        struct ps_plan p[2];
        struct ps_detail dt = { "" };
        q.weights = (struct ps_shares) { { 0, 0, 100 } };
        for (unsigned i = 0; i < 2; i++) {
            q.prefetch = i ? UINT32_MAX - 1 : m->shape.layers;
            assert_ok_dt(ps_plan_make(&q, &p[i], NULL, &dt), &dt);
        }
        assert_int_equal(p[1].host_bytes, p[0].host_bytes);
        assert_int_equal(p[1].gpu_bytes, p[0].gpu_bytes);
        ps_plan_done(&p[0]);
        ps_plan_done(&p[1]);
    }
    ps_pack_close(m);
}

/* Every allocation in turn fails: -ENOMEM, or it was not needed. */
static void allocations(void **state)
{
    struct ps_packed *m = pm_model("opt-125m");
    struct ps_plan_req q = pm_req(m, 64, 100, 28, 64 * GIB, GIB / 4);
    q.kv = q.hidden = everywhere;
    q.gpu_batch_size = q.num_gpu_batches = q.prefetch = 2;
    q.prefill_tokens = 200;
    for (unsigned n = 1;; n++) {
        struct ps_plan p;
        struct ps_detail dt = { "" };
        ps_mem_fault_arm(n);
        int r = ps_plan_make(&q, &p, NULL, &dt);
        const bool hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (r < 0)
            assert_err(r, ENOMEM);
        else
            ps_plan_done(&p);
        assert_true(hit == (r < 0));
        if (!hit) break;
    }
    ps_pack_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_realised),
        cmocka_unit_test(flexgens_placements),
        cmocka_unit_test(less_can_be_pinned),
        cmocka_unit_test(memory_is_used),
        cmocka_unit_test(more_memory_is_never_slower),
        cmocka_unit_test(prompts_that_are_only_scored),
        cmocka_unit_test(biases_in_f32),
        cmocka_unit_test(all_layers_ahead),
        cmocka_unit_test(attention_follows_the_rates),
        cmocka_unit_test(refusals_say_what_fits),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(refusal_beyond_the_machine),
        cmocka_unit_test(several),
        cmocka_unit_test(random_wishes),
        cmocka_unit_test(sizes_are_bounds),
        cmocka_unit_test(ahead_of_everything),
        cmocka_unit_test(allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
