/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's part of a profile: the ways to it, and the same gauges as the host's on its own memory. */
#include "engine/base/ps_mem.h"
#include "offload/dev_cuda.h"
#include "offload/probe_parts.h"
#include <string.h>

#define MIB (UINT64_C(1) << 20)
enum { COLD_MIB = 512, COLD_LEAST_MIB = 2, COPIES = 8, PAGE = 4096 };

struct gpu {
    struct ps_probing *p;
    const struct ps_cuda_api *api;
    struct ps_rig rig;
    struct ps_cuda_info info;
    struct ps_pinned *pinned;
    uint8_t *host; /* pinned: ctl, stage, COPIES chunks */
    uint64_t host_bytes;
    struct ps_buf copy_host[2],
        copy_gpu[2]; /* up, down: COPIES / 2 chunks each; on the GPU in `cold` */
    void *scratch;
};

static struct ps_buf buffer(enum ps_where where, void *p, uint64_t bytes)
{
    return (struct ps_buf) { .where = where, .p = p, .len_bytes = bytes };
}

/* Sizes, and the host's side. */
static int take_host(struct gpu *g)
{
    struct ps_rig *r = &g->rig;
    struct ps_detail why = { "" };
    uint64_t cold =
        g->p->cfg->gpu_mem / 4 < COLD_MIB * MIB ? g->p->cfg->gpu_mem / 4 : COLD_MIB * MIB;
    r->cold_bytes = cold / (2 * MIB) * (2 * MIB);
    r->chunk_bytes = r->cold_bytes / COPIES < PS_RIG_CHUNK ? r->cold_bytes / COPIES : PS_RIG_CHUNK;
    r->place = PS_PLACE_CUDA;
    r->sm = g->info.sm;
    r->stop = g->p->cfg->stop;
    if (r->cold_bytes < COLD_LEAST_MIB * MIB)
        return ps_fail(g->p->dt, -PS_EBUDGET, "--gpu-mem: a probe wants 8 MiB at least");
    const uint64_t meta = PS_RIG_META_BYTES(r->cold_bytes);
    g->host_bytes = PS_RIG_CTL_BYTES + meta + COPIES * r->chunk_bytes;
    g->host = ps_aligned(PAGE, g->host_bytes);
    if (!g->host) return ps_fail(g->p->dt, -ENOMEM, "probing the GPU: out of memory");
    memset(g->host, 0, g->host_bytes);
    const struct ps_pinned_range all = { g->host, g->host_bytes };
    int e = ps_pinned_open(g->api, &all, 1, UINT64_MAX, &g->pinned, &why);
    if (e < 0) return ps_fail(g->p->dt, e, "probing the GPU: %s", ps_err_str(e));
    if (ps_pinned_bytes(g->pinned) < g->host_bytes)
        return ps_fail(g->p->dt, -PS_EPIN, "%s", why.text);
    r->ctl = g->host;
    r->stage = g->host + PS_RIG_CTL_BYTES;
    return 0;
}

static void lay_out(struct gpu *g, uint8_t *mem)
{
    struct ps_rig *r = &g->rig;
    const uint64_t half = COPIES / 2 * r->chunk_bytes;
    uint8_t *copies = r->stage + PS_RIG_META_BYTES(r->cold_bytes);
    r->cold = mem;
    r->act = r->cold + r->cold_bytes;
    r->meta = r->act + PS_RIG_ACT_BYTES(r->cold_bytes);
    for (int i = 0; i < 2; i++) {
        g->copy_host[i] = buffer(PS_HOST, copies + i * half, half);
        g->copy_gpu[i] = buffer(PS_GPU, r->cold + i * half, half);
    }
}

static int open_device(struct gpu *g, struct ps_gauge_list *l)
{
    struct ps_rig *r = &g->rig;
    struct ps_dev_cuda_cfg cuda = { .api = g->api,
                                    .mem_bytes = r->cold_bytes + PS_RIG_ACT_BYTES(r->cold_bytes) +
                                                 PS_RIG_META_BYTES(r->cold_bytes),
                                    .pinned = g->pinned };
    lay_out(g, g->host); /* somewhere: only sizes count */
    cuda.scratch_bytes = ps_rig_scratch(r, l->at, l->n);
    g->scratch = ps_aligned(64, 2 * PAGE);
    if (!g->scratch) return ps_fail(g->p->dt, -ENOMEM, "probing the GPU: out of memory");
    const struct ps_dev_cfg cfg = { .threads = 1, .scratch = g->scratch, .scratch_bytes = PAGE };
    int e = ps_dev_cuda_open(&cfg, &cuda, &r->dev, g->p->dt);
    if (!e) lay_out(g, ps_dev_cuda_mem(r->dev));
    return e;
}

/* From the host's piece, over and over. */
static int fill(struct gpu *g, uint8_t *to, uint64_t bytes, bool f32)
{
    struct ps_buf *from = &g->copy_host[0];
    int e = 0;
    ps_rig_fill(from->p, from->len_bytes, f32);
    for (uint64_t at = 0; at < bytes && !e; at += from->len_bytes) {
        const uint64_t n = bytes - at < from->len_bytes ? bytes - at : from->len_bytes;
        struct ps_buf dst = buffer(PS_GPU, to + at, n);
        e = ps_dev_move(g->rig.dev, &dst, from, &(struct ps_rect) { .row_bytes = n, .rows = 1 });
    }
    return e ? e : ps_dev_drain(g->rig.dev);
}

/* ---- links */

/* `n` copies of so many bytes each way; rates of the queues' own time. */
static int copies(struct gpu *g, const bool on[2], unsigned n, uint64_t bytes,
                  struct ps_slices *s[2])
{
    static const enum ps_q q[2] = { PS_Q_UP, PS_Q_D2H };
    struct ps_dev_stats was, st;
    const uint64_t room = g->copy_host[0].len_bytes / bytes;
    int e = 0;
    ps_dev_stats_get(g->rig.dev, &was);
    for (unsigned i = 0; i < n && !e; i++)
        for (int w = 0; w < 2 && !e; w++) {
            const uint64_t at = i % room * bytes;
            const struct ps_rect one = { at, at, bytes, 1, 0, 0 };
            if (on[w])
                e = ps_dev_move(g->rig.dev, w ? &g->copy_host[1] : &g->copy_gpu[0],
                                w ? &g->copy_gpu[1] : &g->copy_host[0], &one);
        }
    if (!e) e = ps_dev_drain(g->rig.dev);
    ps_dev_stats_get(g->rig.dev, &st);
    for (int w = 0; w < 2 && !e; w++)
        if (on[w] && s[w])
            ps_slices_add(s[w], (double) n * (double) bytes,
                          (double) (st.busy_ns[q[w]] - was.busy_ns[q[w]]) * 1e-9);
    return e;
}

static int links(struct gpu *g, json_t *links, double max_s)
{
    enum { ROUNDS = 6, WAYS = 4 };
    static const bool on[3][2] = { { true, false }, { false, true }, { true, true } };
    static const char *const keys[WAYS] = { "h2d", "d2h", "h2d_beside_d2h", "d2h_beside_h2d" };
    struct ps_slices s[WAYS] = { { { 0 } } }, tiny = { { 0 } };
    struct ps_rate r[WAYS], t;
    const uint64_t chunk = g->rig.chunk_bytes;
    const uint64_t t0 = ps_now_ns();
    int e = copies(g, on[2], COPIES, chunk, (struct ps_slices *[2]) { NULL, NULL });
    const double once = ps_probe_since_s(t0), fit = max_s / ROUNDS / 3 / once * COPIES;
    const unsigned n = fit > 1024 ? 1024 : fit < COPIES ? COPIES : (unsigned) fit;
    for (int i = 0; i < ROUNDS && !e; i++) {
        if (g->rig.stop && *g->rig.stop) return -ECANCELED;
        e = copies(g, on[0], n, chunk, (struct ps_slices *[2]) { &s[0], NULL });
        if (!e) e = copies(g, on[1], n, chunk, (struct ps_slices *[2]) { NULL, &s[1] });
        if (!e) e = copies(g, on[2], n, chunk, (struct ps_slices *[2]) { &s[2], &s[3] });
        if (!e) e = copies(g, on[0], 8 * COPIES, PAGE, (struct ps_slices *[2]) { &tiny, NULL });
    }
    for (int i = 0; i < WAYS && !e; i++) {
        ps_slices_sum(&s[i], &r[i]);
        ps_out_rate(&g->p->out, links, keys[i], &r[i], "GB/s");
    }
    if (e < 0) return e;
    ps_slices_sum(&tiny, &t);
    const double copy_s = PAGE / t.median - PAGE / r[0].median;
    if (t.median > 0) ps_out_value(&g->p->out, links, "copy", copy_s > 0 ? copy_s : 0, "us");
    return 0;
}

/* ---- the part */

/* Memory's rate is that of one row of a linear, which does nothing but read weights. */
static void reading(struct gpu *g, json_t *gpu, const struct ps_gauge_list *l)
{
    struct ps_rate best = { 0 }, r;
    for (unsigned i = 0; i < l->n; i++) {
        const struct ps_gauge *a = &l->at[i];
        if (a->op != PS_OP_linear || a->m != 1 || a->n || a->left_out) continue;
        ps_slices_sum(&a->s, &r);
        const double bytes = (double) ps_dtype_bytes(a->type) / 2; /* a weight is two flops */
        r.median *= bytes, r.min *= bytes, r.max *= bytes;
        if (r.median > best.median) best = r;
    }
    ps_out_rate(&g->p->out, gpu, "read", &best, "GB/s");
}

static int measure(struct gpu *g, struct ps_gauge_list *l, double max_s)
{
    struct ps_profile_out *o = &g->p->out;
    struct ps_rig *r = &g->rig;
    json_t *gpu = ps_out_object(o, o->root, "gpu"), *ways = ps_out_object(o, o->root, "links");
    char name[96];
    (void) snprintf(name, sizeof name, "%.95s", g->info.name);
    ps_out_set(o, gpu, "name", json_string(name));
    ps_out_value(o, gpu, "sm", g->info.sm, "sm");
    ps_out_value(o, gpu, "mem", (double) g->info.total_bytes, "GiB");
    int e = links(g, ways, max_s / 5); /* into what is filled only then */
    if (!e) e = fill(g, r->cold, r->cold_bytes, false);
    if (!e) e = fill(g, r->meta, PS_RIG_META_BYTES(r->cold_bytes), false);
    if (!e) e = fill(g, r->act, PS_RIG_ACT_BYTES(r->cold_bytes), true);
    ps_probing_now(g->p, "GPU kernels", 0.85, 0.15);
    if (!e)
        e = ps_rig_measure(r, l->at, l->n, g->p->cfg->quick ? 2 : 3, max_s * 0.8, ps_probing_share,
                           g->p, g->p->dt);
    if (e < 0) return e;
    ps_gauges_out(o, gpu, l);
    reading(g, gpu, l);
    return 0;
}

int ps_probe_gpu_part(struct ps_probing *p, double max_s)
{
    struct gpu g = { .p = p, .api = p->cfg->gpu };
    ps_auto_free struct ps_gauge_list *l = ps_calloc(1, sizeof *l);
    if (!l) return ps_fail(p->dt, -ENOMEM, "probing the GPU: out of memory");
    ps_gauges_gpu(l, p->cfg->quick);
    ps_probing_now(p, "GPU links", 0.82, 0.03);
    int e = g.api->info(&g.info);
    if (e < 0) e = ps_fail(p->dt, e, "probing the GPU: %s", g.api->error());
    if (!e) e = take_host(&g);
    if (!e) e = open_device(&g, l);
    if (!e) e = measure(&g, l, max_s);
    if (e < 0 && e != -ECANCELED && !p->dt->text[0])
        (void) ps_fail(p->dt, e, "probing the GPU: %s", ps_dev_error_text(g.rig.dev));
    ps_dev_close(g.rig.dev);
    ps_pinned_close(g.pinned);
    free(g.host);
    free(g.scratch);
    return e;
}
