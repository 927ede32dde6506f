/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for machines that are only described, run by the scheduler on `sim` with their rates: whatever limits the run must be busy
 * nearly all of it. The rates are round figures of the public data sheets, less what copies and GEMMs reach of them. */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack_file.h"
#include "offload/profile.h"
#include "ps_cmocka.h"
#include "sched_job.h"
#include <string.h>

struct machine {
    const char *name;
    uint64_t gpu, host, disk; /* bytes */
    double gemm, hbm, link, read, write, dram;
};
static const struct machine t4 = { .name = "T4",
                                   .gpu = 15ull << 30,
                                   .host = 200ull << 30,
                                   .disk = 1500ull << 30,
                                   .gemm = 40e12,
                                   .hbm = 250e9,
                                   .link = 12e9,
                                   .read = 2e9,
                                   .write = 1e9,
                                   .dram = 80e9 };
static const struct machine h200 = { .name = "H200",
                                     .gpu = 130ull << 30,
                                     .host = 120ull << 30,
                                     .disk = 60ull << 30,
                                     .gemm = 600e12,
                                     .hbm = 4e12,
                                     .link = 50e9,
                                     .read = 3e9,
                                     .write = 2e9,
                                     .dram = 200e9 };

struct job {
    struct ps_seq seq[4096];
    int32_t prompt[512];
    uint32_t n, at;
};

static int next(void *ud, struct ps_seq **ret)
{
    struct job *j = ud;
    if (j->at == j->n) return 0;
    *ret = &j->seq[j->at++];
    return 1;
}
static int token(void *ud, struct ps_seq *s, uint32_t index, const struct ps_sample_out *out,
                 bool *ret_end)
{
    return 0;
}
static int end(void *ud, struct ps_seq *s) { return 0; }

static struct ps_packed *model_of(const char *config)
{
    struct ps_packed *m = ps_calloc(1, sizeof *m);
    struct ps_shape shape;
    struct ps_detail dt = { "" };
    char path[256];
    snprintf(path, sizeof path, "%s/%s", getenv("PS_CONFIGS"), config);
    assert_non_null(m);
    assert_ok_dt(ps_shape_read(path, &shape, &dt), &dt);
    assert_ok_dt(ps_pack_layout(&shape, PS_F16, m, &dt), &dt);
    return m;
}

static struct ps_plan_req req_of(const struct machine *x, const struct ps_packed *m,
                                 const struct job *j, const char *policy)
{
    struct ps_plan_req q = {
        .model = m,
        .job = { .requests = j->n,
                 .prompt_tokens = j->n * (uint64_t) j->seq[0].n_prompt,
                 .max_new_tokens = j->n * (uint64_t) j->seq[0].max_tokens,
                 .longest_prompt = j->seq[0].n_prompt,
                 .longest_total = j->seq[0].n_prompt + j->seq[0].max_tokens,
                 .most_banned = 1 },
        .gpu = { .mem_bytes = x->gpu, .sm = 75 },
        .host_mem = x->host,
        .disk_space = x->disk,
        .weights = { { -1, -1, -1 } },
        .kv = { { -1, -1, -1 } },
        .hidden = { { -1, -1, -1 } },
        .kv_config = ps_kv_config_default(),
        .threads = 16,
        .rates = { .disk_read = x->read,
                   .disk_write = x->write,
                   .dram = x->dram,
                   .gemm = 1e12,
                   .h2d = x->link,
                   .d2h = x->link,
                   .hbm = x->hbm,
                   .gpu_gemm = x->gemm },
    };
    q.kv_config.policy = policy;
    return q;
}

static struct ps_profile profile_of(const struct machine *x)
{
    return (struct ps_profile) { .host = { .mem = x->dram, .flops = 1e12, .task_s = 5e-6 },
                                 .gpu = { .mem = x->hbm, .flops = x->gemm, .task_s = 5e-6 },
                                 .disk_read.alone = x->read,
                                 .disk_write.alone = x->write,
                                 .h2d.alone = x->link,
                                 .d2h.alone = x->link,
                                 .disk_s = 5e-6,
                                 .copy_s = 5e-6 };
}

static void busy(const struct machine *x, const char *model, const char *policy, uint32_t n)
{
    static struct job j;
    struct ps_detail dt = { "" };
    struct ps_packed *m = model_of(model);
    j.n = n;
    j.at = 0;
    for (uint32_t i = 0; i < n; i++)
        j.seq[i] = (struct ps_seq) {
            .prompt = j.prompt, .n_prompt = 512, .max_tokens = 32, .key = i, .top_p = 1
        };
    struct ps_plan_req q = req_of(x, m, &j, policy);
    struct ps_plan plan;
    assert_ok_dt(ps_plan_make(&q, &plan, NULL, &dt), &dt);
    const struct ps_profile profile = profile_of(x);
    const struct ps_sim_cfg sim = { .profile = &profile };
    struct ps_run_cfg cfg = {
        .model = m, .plan = &plan, .kv_config = &q.kv_config, .threads = q.threads, .sim = &sim
    };
    struct ps_run_io io = { .ud = &j, .next = next, .token = token, .end = end };
    struct ps_run_stats st;
    assert_ok_dt(ps_run(&cfg, &io, &st, &dt), &dt);
    double all = st.prefill_s + st.decode_s, most = 0;
    assert_true(all > 0);
    assert_int_equal(st.generated_tokens, n * UINT64_C(32));
    int which = 0;
    for (int i = 0; i < PS_Q__COUNT; i++)
        if ((double) st.dev.busy_ns[i] * 1e-9 > most) {
            most = (double) st.dev.busy_ns[i] * 1e-9;
            which = i;
        }
    if (which == PS_Q_READ || which == PS_Q_H2D) most -= st.load_s; /* a little too much, then */
    print_message("%s, %s, %s: %s busy %.1f %% of %.0f s, %.1f tokens/s\n", x->name, model, policy,
                  ps_q_name((enum ps_q) which), 100 * most / all, all,
                  (double) st.generated_tokens / all);
    if (most < 0.9 * all) {
        char *text = ps_plan_text(&q, &plan);
        fail_msg("%s, %s, %s: the slowest queue (%s) is busy %.1f %%\n%s", x->name, model, policy,
                 ps_q_name((enum ps_q) which), 100 * most / all, text);
    }
    ps_plan_done(&plan);
    ps_pack_close(m);
}

static void t4_full(void **state) { busy(&t4, "opt-30b.json", "full", 2048); }
static void t4_h2o(void **state) { busy(&t4, "opt-30b.json", "h2o", 2048); }
static void h200_full(void **state) { busy(&h200, "opt-30b.json", "full", 2048); }
static void h200_h2o(void **state) { busy(&h200, "opt-30b.json", "h2o", 2048); }
/* Families that can be planned for only, under the same scheduler. */
static void t4_llama(void **state) { busy(&t4, "llama-2-70b.json", "full", 2048); }
static void t4_neox(void **state) { busy(&t4, "gpt-neox-20b.json", "h2o", 2048); }

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(t4_full),   cmocka_unit_test(t4_h2o),
                                        cmocka_unit_test(h200_full), cmocka_unit_test(h200_h2o),
                                        cmocka_unit_test(t4_llama),  cmocka_unit_test(t4_neox) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
