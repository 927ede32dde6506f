/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_rig.h"
#include "engine/base/ps_mem.h"
#include "engine/search/lengths.h"
#include "ps_cmocka.h"

#define FLAT(rate)                        \
    {                                     \
        .n = 1, .x = { 1 }, .y = { rate } \
    }
#define WORKER(mem_, flops_, task_)                                                                \
    {                                                                                              \
        .mem = mem_, .copy = mem_, .flops = flops_, .task_s = task_, .n_linear = 1, .n_decode = 1, \
        .n_prompt = 1,                                                                             \
        .linear = { { PS_F16,                                                                      \
                      4096,                                                                        \
                      { .n = 3, .x = { 1, 64, 512 }, .y = { mem_, flops_ / 3, flops_ } } } },      \
        .decode = { { PS_F16, 128, FLAT(mem_ * 0.8) } }, .prompt = {                               \
            { PS_F16, 128, FLAT(flops_ / 4) }                                                      \
        }                                                                                          \
    }

const struct ps_profile rig_t4 = { .name = "T4",
                                   .gpu_name = "T4",
                                   .cores = 16,
                                   .threads = 16,
                                   .sm = 75,
                                   .host_mem = 200ull << 30,
                                   .gpu_mem = 15ull << 30,
                                   .disk_space = 1500ull << 30,
                                   .host = WORKER(80e9, 1e12, 5e-6),
                                   .gpu = WORKER(250e9, 40e12, 5e-6),
                                   .disk_read = { 2e9, 1.5e9 },
                                   .disk_write = { 1e9, 0.7e9 },
                                   .h2d = { 12e9, 10e9 },
                                   .d2h = { 12e9, 10e9 },
                                   .disk_s = 50e-6,
                                   .copy_s = 10e-6 };
const struct ps_profile rig_cpu = { .name = "server",
                                    .cores = 32,
                                    .threads = 32,
                                    .host_mem = 400ull << 30,
                                    .disk_space = 3000ull << 30,
                                    .host = WORKER(200e9, 3e12, 5e-6),
                                    .disk_read = { 3e9, 2.5e9 },
                                    .disk_write = { 2e9, 1.5e9 },
                                    .disk_s = 50e-6,
                                    .copy_s = 10e-6 };

static struct ps_job_stats stats_of(const struct ps_lengths *l)
{
    struct ps_job_stats j = { .requests = l->n, .most_banned = 1 };
    for (uint64_t i = 0; i < l->n; i++) {
        uint32_t p = ps_lengths_prompt(l, i), g = ps_lengths_gen(l, i);
        j.prompt_tokens += p;
        j.max_new_tokens += g;
        if (p > j.longest_prompt) j.longest_prompt = p;
        if (p + g > j.longest_total) j.longest_total = p + g;
        j.scores_prompts |= !g;
    }
    return j;
}

void rig_open(struct rig *r, const char *config, uint32_t layers, const struct ps_profile *p,
              const struct ps_lengths *l, const char *policy)
{
    struct ps_shape shape;
    struct ps_detail dt = { "" };
    char path[256];
    *r = (struct rig) { .model = ps_calloc(1, sizeof *r->model), .profile = *p, .lengths = *l };
    assert_non_null(r->model);
    snprintf(path, sizeof path, "%s/%s.json", getenv("PS_CONFIGS"), config);
    assert_ok_dt(ps_shape_read(path, &shape, &dt), &dt);
    if (layers) shape.layers = layers;
    assert_ok_dt(ps_pack_layout(&shape, PS_F16, r->model, &dt), &dt);
    r->req = (struct ps_plan_req) {
        .model = r->model,
        .job = stats_of(l),
        .gpu = { .mem_bytes = p->gpu_mem, .sm = p->sm },
        .host_mem = p->host_mem,
        .disk_space = p->disk_space,
        .weights = { { -1, -1, -1 } },
        .kv = { { -1, -1, -1 } },
        .hidden = { { -1, -1, -1 } },
        .kv_config = ps_kv_config_default(),
        .threads = p->threads,
        .rates = { .disk_read = p->disk_read.alone,
                   .disk_write = p->disk_write.alone,
                   .dram = p->host.mem,
                   .gemm = p->host.flops,
                   .h2d = p->h2d.alone,
                   .d2h = p->d2h.alone,
                   .hbm = p->gpu.mem,
                   .gpu_gemm = p->gpu.flops },
    };
    r->req.kv_config.policy = policy;
}

void rig_plan(struct rig *r)
{
    struct ps_detail dt = { "" };
    assert_ok_dt(ps_plan_make(&r->req, &r->plan, NULL, &dt), &dt);
}

void rig_close(struct rig *r)
{
    ps_plan_done(&r->plan);
    ps_pack_close(r->model);
}

int rig_try(const struct rig *r, bool every_sweep, uint32_t most_sweeps, struct ps_simulated *ret)
{
    struct ps_detail dt = { "" };
    const struct ps_simulate_cfg cfg = { .model = r->model,
                                         .plan = &r->plan,
                                         .kv_config = &r->req.kv_config,
                                         .profile = &r->profile,
                                         .lengths = &r->lengths,
                                         .schedule = &r->schedule,
                                         .every_sweep = every_sweep,
                                         .most_sweeps = most_sweeps,
                                         .coarse = r->coarse,
                                         .stop = r->stop };
    int err = ps_simulate(&cfg, ret, &dt);
    if (err < 0 && err != -ECANCELED) assert_string_not_equal(dt.text, "");
    return err;
}

struct ps_simulated rig_run(const struct rig *r, bool every_sweep, uint32_t most_sweeps)
{
    struct ps_simulated s;
    assert_int_equal(rig_try(r, every_sweep, most_sweeps, &s), 0);
    return s;
}
