/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_model.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack_file.h"
#include "offload/dev_cuda.h"
#include "ps_cmocka.h"

struct ps_packed *pm_model(const char *name)
{
    struct ps_detail dt = { "" };
    struct ps_shape shape;
    char path[512];
    const char *root = getenv("PS_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/configs/models/%s.json", root ? root : ".", name);
    assert_ok_dt(ps_shape_read(path, &shape, &dt), &dt);
    struct ps_packed *m = ps_calloc(1, sizeof *m);
    assert_non_null(m);
    assert_ok_dt(ps_pack_layout(&shape, PS_F16, m, &dt), &dt);
    return m;
}

struct ps_plan_req pm_req(const struct ps_packed *m, uint64_t n, uint32_t prompt, uint32_t gen,
                          uint64_t host_mem, uint64_t gpu_mem)
{
    const struct ps_shares automatic = { { -1, -1, -1 } };
    return (struct ps_plan_req) { .model = m,
                                  .job = { .requests = n,
                                           .prompt_tokens = n * prompt,
                                           .max_new_tokens = n * gen,
                                           .longest_prompt = prompt,
                                           .longest_total = prompt + gen },
                                  .host_mem = host_mem,
                                  .disk_space = 1000 * GIB,
                                  .gpu = { gpu_mem, 75 },
                                  .weights = automatic,
                                  .kv = automatic,
                                  .hidden = automatic,
                                  .kv_config = ps_kv_config_default(),
                                  .threads = 4 };
}

static void check_weights(const struct ps_plan_req *q, const struct ps_plan *p)
{
    const struct ps_packed *m = q->model;
    uint64_t sum[PS_TIER__COUNT] = { 0 }, group = 0, most = 0, first = 0, last = 0;
    for (uint32_t i = 0; i < m->n_chunks; i++) {
        const uint8_t t = p->detail->chunk_tier[i];
        assert_true(t < PS_TIER__COUNT);
        sum[t] += m->chunks[i].len;
        if (t != PS_TIER_GPU) group += m->chunks[i].len;
        if (i + 1 < m->n_chunks && m->chunks[i + 1].group == m->chunks[i].group) continue;
        if (!m->chunks[i].group) first = group;
        if (p->detail->passes == 1) last = 0;
        if (last + group > most) most = last + group;
        last = group;
        group = 0;
    }
    if (p->detail->passes > 1 && last + first > most) most = last + first;
    assert_memory_equal(sum, p->weight_bytes, sizeof sum);
    if (!p->detail->gpu) return;
    assert_true(p->detail->gpu_ring_bytes >= most);
    if (sum[PS_TIER_GPU] || sum[PS_TIER_DISK] || (sum[PS_TIER_HOST] && !p->detail->weights_pinned))
        assert_true(p->detail->ring_bytes >= 3 * (uint64_t) m->chunk_bytes);
    else
        assert_int_equal(p->detail->ring_bytes, 0);
}

static void check_slabs(const struct ps_plan_req *q, const struct ps_plan *p)
{
    const struct ps_plan_detail *d = p->detail;
    const struct ps_shape *s = &q->model->shape;
    uint64_t kv[PS_TIER__COUNT] = { 0 }, hidden[PS_TIER__COUNT] = { 0 };
    uint32_t hosts = 0;
    for (size_t i = 0; i < (size_t) s->layers * p->micro_batches; i++) {
        kv[d->slab_tier[i]] += ps_kv_extent_bytes(s, d);
        hosts += d->slab_host[i];
        assert_true(!d->slab_host[i] || (d->gpu && d->slab_tier[i] != PS_TIER_GPU));
    }
    for (uint32_t k = 0; k < p->micro_batches; k++)
        hidden[d->hidden_tier[k]] += ps_hidden_bytes(s, d);
    assert_memory_equal(kv, p->kv_bytes, sizeof kv);
    assert_memory_equal(hidden, p->hidden_bytes, sizeof hidden);
    assert_int_equal(hosts, p->host_slabs);
    assert_int_equal(d->passes, hosts && p->micro_batches > 1 ? 2 : 1);
    const uint32_t ring = 2 + d->passes;
    assert_int_equal(d->kv_ring, kv[PS_TIER_DISK] ? ring : 0);
    assert_int_equal(d->hidden_ring, hidden[PS_TIER_DISK] ? ring : 0);
    assert_int_equal(d->gpu_kv_ring, d->gpu && kv[PS_TIER_HOST] + kv[PS_TIER_DISK] ? ring : 0);
    assert_int_equal(d->gpu_hidden_ring,
                     d->gpu && hidden[PS_TIER_HOST] + hidden[PS_TIER_DISK] ? ring : 0);
}

static void check_bytes(const struct ps_plan_req *q, const struct ps_plan *p)
{
    ps_auto_arena struct ps_arena *host = NULL, *gpu = NULL;
    struct ps_detail dt = { "" };
    struct ps_layout l = { 0 };
    const struct ps_arena_cfg cfg = { .measure = true };
    assert_ok_dt(ps_arena_open(&cfg, &host, &dt), &dt);
    assert_ok_dt(ps_layout_host(host, q->model, p, q->threads, &l, &dt), &dt);
    if (p->detail->gpu) {
        assert_ok_dt(ps_arena_open(&cfg, &gpu, &dt), &dt);
        assert_ok_dt(ps_layout_gpu(gpu, q->model, p, &l, &dt), &dt);
    }
    assert_int_equal(ps_arena_used(host), p->host_bytes);
    assert_int_equal(l.pinned_bytes, p->pinned_bytes);
    assert_true(p->host_bytes <= q->host_mem && p->disk_bytes <= q->disk_space);
    assert_int_equal(p->disk_bytes, p->kv_bytes[PS_TIER_DISK] + p->hidden_bytes[PS_TIER_DISK]);
    assert_true(!q->pin_max || p->pinned_bytes <= q->pin_max);
    assert_int_equal(p->detail->gpu, q->gpu.mem_bytes > 0);
    if (!gpu) {
        assert_int_equal(p->gpu_bytes, 0);
        return;
    }
    assert_int_equal(ps_arena_used(gpu), p->detail->gpu_mem_bytes);
    assert_int_equal(
        ps_dev_cuda_bytes(&(const struct ps_dev_cuda_cfg) {
            .mem_bytes = p->detail->gpu_mem_bytes, .scratch_bytes = p->detail->gpu_scratch_bytes }),
        p->gpu_bytes);
    assert_true(p->gpu_bytes <= q->gpu.mem_bytes);
}

void pm_check(const struct ps_plan_req *q, const struct ps_plan *p)
{
    check_weights(q, p);
    check_slabs(q, p);
    check_bytes(q, p);
    assert_true(p->predicted_s > 0 && p->predicted_s < 1e12);
}
