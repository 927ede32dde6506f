/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan is made for: options, machine and job put together. */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack_file.h"
#include "engine/cli/generate.h"
#include "engine/cli/plan.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int packed_outline(const char *model, int dtype, struct ps_packed **ret,
                          struct ps_detail *dt)
{
    ps_auto_pack struct ps_packed *m = NULL;
    int r = ps_pack_open(model, &m, dt);
    if (!r && dtype >= 0 && m->dtype != (enum ps_dtype) dtype)
        return ps_fail(
            dt, -PS_EUSAGE,
            "--dtype %s: %s is packed with weights of %s; a model that is not packed, or "
            "a config, was expected with it",
            ps_dtype_name((enum ps_dtype) dtype), model, ps_dtype_name(m->dtype));
    if (!r) *ret = PS_TAKE(m);
    return r;
}

int ps_model_outline(const char *model, int dtype, struct ps_packed **ret, struct ps_detail *dt)
{
    struct ps_shape shape;
    if (ps_pack_is(model)) return packed_outline(model, dtype, ret, dt);
    int r = ps_shape_read(model, &shape, dt);
    if (r < 0) return r;
    ps_auto_pack struct ps_packed *m = ps_calloc(1, sizeof *m);
    if (!m) return -ENOMEM;
    r = ps_pack_layout(&shape, dtype < 0 ? shape.dtype : (enum ps_dtype) dtype, m, dt);
    if (!r) *ret = PS_TAKE(m);
    return r;
}

static int count(const char *name, const char *value, uint64_t least, uint64_t most, uint64_t *ret,
                 struct ps_detail *dt)
{
    uint64_t v = 0;
    if (!ps_opt_u64(value, most, &v) || v < least)
        return ps_fail(dt, -PS_EUSAGE,
                       "--%s %s: a whole number from %" PRIu64 " to %" PRIu64 " was expected", name,
                       value, least, most);
    *ret = v;
    return 0;
}

static int job_value(struct ps_point *p, const char *name, const char *value, struct ps_detail *dt)
{
    uint64_t v = 0;
    int r = -ENOENT;
    if (!strcmp(name, "prompt-len")) {
        r = count(name, value, 1, 1 << 20, &v, dt);
        if (!r) p->prompt_len = (uint32_t) v;
    } else if (!strcmp(name, "gen-len")) {
        r = count(name, value, 0, 1 << 20, &v, dt);
        if (!r) p->gen_len = (uint32_t) v;
    } else if (!strcmp(name, "requests")) {
        r = count(name, value, 1, 1000000000, &v, dt);
        if (!r) p->requests = v;
    }
    return r;
}

/* Options of a run: whatever they are, the plan is the same. */
static bool changes_no_plan(const char *name)
{
    static const char *const names[] = { "offload-dir", "pack-dir",    "numa",
                                         "io",          "queue-depth", "verify" };
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

int ps_point_set(struct ps_point *p, const char *name, char *value, struct ps_detail *dt)
{
    int r = job_value(p, name, value, dt);
    if (!r && p->lengths.n)
        return ps_fail(dt, -PS_EUSAGE, "--%s: --job says how long the requests are", name);
    if (changes_no_plan(name)) return ps_fail(dt, -PS_EUSAGE, "no plan depends on it");
    if (r == -ENOENT) r = ps_engine_set(&p->engine, name, value, dt);
    if (r == -ENOENT && !strcmp(name, "hardware")) r = ps_hardware_read(value, &p->profile, dt);
    return r == -ENOENT ? ps_profile_set(&p->profile, name, value, dt) : r;
}

bool ps_point_amount(const struct ps_point *p, const char *name, double *ret)
{
    const struct ps_plan_req *q = &p->engine.plan;
    if (!strcmp(name, "host-mem"))
        *ret = (double) q->host_mem;
    else if (!strcmp(name, "gpu-mem"))
        *ret = (double) p->engine.gpu_mem;
    else if (!strcmp(name, "disk-space"))
        *ret = (double) q->disk_space;
    else
        return ps_profile_amount(&p->profile, name, ret);
    return true;
}

void ps_job_alike(uint64_t n, uint32_t prompt, uint32_t gen, struct ps_job_stats *ret_stats,
                  struct ps_lengths *ret)
{
    *ret_stats = (struct ps_job_stats) { .requests = n,
                                         .prompt_tokens = n * prompt,
                                         .max_new_tokens = n * gen,
                                         .longest_prompt = prompt,
                                         .longest_total = prompt + gen,
                                         .most_banned = 1 };
    *ret = (struct ps_lengths) { .n = n, .each_prompt = prompt, .each_gen = gen };
}

/* What generate would take by default on a machine of which nothing else is in use. */
static void default_memory(struct ps_point *p)
{
    struct ps_plan_req *q = &p->engine.plan;
    const struct ps_profile *f = &p->profile;
    if (q->host_mem == UINT64_MAX) q->host_mem = f->host_mem / 10 * 8;
    if (q->disk_space == UINT64_MAX) q->disk_space = f->disk_space / 10 * 9;
    q->gpu = (struct ps_plan_gpu) { p->engine.gpu_mem, f->sm };
    if (!f->gpu_mem)
        q->gpu.mem_bytes = 0;
    else if (p->engine.gpu_mem == UINT64_MAX)
        q->gpu.mem_bytes = f->gpu_mem - f->gpu_mem / 20;
    q->pin_max = f->pin_max;
}

static int no_gpu_for(const char *option, struct ps_detail *dt)
{
    if (!option) return 0;
    return ps_fail(dt, -PS_EUSAGE,
                   "%s, and there is no GPU (the profile has none, or --gpu-mem 0 forbids it)",
                   option);
}

int ps_point_check(struct ps_point *p, const struct ps_packed *m, struct ps_detail *dt)
{
    struct ps_cuda_info info;
    struct ps_detail why = { "" };
    if (!p->lengths.n) ps_job_alike(p->requests, p->prompt_len, p->gen_len, &p->stats, &p->lengths);
    if (p->stats.longest_total > m->shape.positions)
        return ps_fail(dt, -PS_EUSAGE,
                       "--prompt-len %u and --gen-len %u: %s has %u positions, so together at most "
                       "that many were expected",
                       p->prompt_len, p->gen_len, m->shape.name, m->shape.positions);
    if (!p->to_probe || (p->engine.gpu_mem && ps_gpu_usable(&info, &why))) return 0;
    return no_gpu_for(ps_engine_needs_gpu(&p->engine.plan), dt);
}

int ps_point_probe(struct ps_point *p, struct ps_detail *dt)
{
    if (!p->to_probe) return 0;
    int r = ps_plan_probe(&p->engine, &p->profile, dt);
    p->to_probe = r < 0;
    return r;
}

int ps_point_complete(struct ps_point *p, const struct ps_packed *m, struct ps_detail *dt)
{
    struct ps_plan_req *q = &p->engine.plan;
    int r = ps_point_check(p, m, dt);
    if (r < 0) return r;
    default_memory(p);
    if (!q->gpu.mem_bytes) r = no_gpu_for(ps_engine_needs_gpu(q), dt);
    if (r < 0) return r;
    if (!q->threads) q->threads = p->profile.threads ? p->profile.threads : p->profile.cores;
    if (!q->threads) q->threads = 1;
    ps_profile_threads(&p->profile, q->threads);
    q->model = m;
    q->job = p->stats;
    ps_search_rates(&p->profile, q);
    q->no_disk = !(q->rates.disk_read > 0 && q->rates.disk_write > 0);
    return 0;
}
