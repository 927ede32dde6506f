/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/probe_gpu.h"
#include "engine/base/ps_mem.h"
#include "offload/dev_cuda.h"

enum { PAGE = 4096 };

struct probe {
    struct ps_dev *dev;
    struct ps_buf host, gpu[2], x, w, y;
    struct ps_linear linear;
};

static struct ps_buf buffer(enum ps_where where, void *p, uint64_t bytes)
{
    return (struct ps_buf) { .where = where, .p = p, .len_bytes = bytes };
}

static uint64_t lay_out(const struct ps_probe_gpu *how, uint32_t sm, uint8_t *mem, struct probe *p)
{
    const uint64_t copy = how->copy_bytes, x = (uint64_t) how->m * how->k * sizeof(float),
                   w = (uint64_t) how->n * how->k * ps_dtype_bytes(how->dtype),
                   y = (uint64_t) how->m * how->n * sizeof(float);
    uint64_t at = 0;
#define TAKE(bytes) \
    buffer(PS_GPU, mem ? mem + at : NULL, bytes), at += PS_ROUND_UP(bytes, (uint64_t) PAGE)
    p->gpu[0] = TAKE(copy);
    p->gpu[1] = TAKE(copy);
    p->x = TAKE(x);
    p->w = TAKE(w);
    p->y = TAKE(y);
#undef TAKE
    const bool rounded = ps_linear_rounds(sm, how->m, how->dtype);
    p->linear = (struct ps_linear) { .y = p->y.p,
                                     .x = rounded ? NULL : p->x.p,
                                     .rounded_x = rounded ? p->x.p : NULL,
                                     .w = p->w.p,
                                     .m = how->m,
                                     .n = how->n,
                                     .k = how->k,
                                     .ldx = how->k,
                                     .ldy = how->n,
                                     .wtype = how->dtype };
    return at;
}

static int copy(struct probe *p, struct ps_buf *dst, struct ps_buf *src)
{
    return ps_dev_move(p->dev, dst, src,
                       &(struct ps_rect) { .row_bytes = src->len_bytes, .rows = 1 });
}
static int down(struct probe *p) { return copy(p, &p->host, &p->gpu[0]); }
static int up(struct probe *p) { return copy(p, &p->gpu[0], &p->host); }
static int within(struct probe *p) { return copy(p, &p->gpu[1], &p->gpu[0]); }
static int linear(struct probe *p)
{
    return ps_dev_run(p->dev, PS_Q_COMPUTE, PS_OP_linear, &p->linear,
                      (struct ps_use[]) { { &p->x, false }, { &p->w, false }, { &p->y, true } }, 3);
}

/* Work per second of the queue's own time. */
static int rate(struct probe *p, int (*fn)(struct probe *p), enum ps_q q, double work,
                unsigned times, double *ret)
{
    struct ps_dev_stats before, after;
    int r = fn(p);
    if (!r) r = ps_dev_drain(p->dev);
    ps_dev_stats_get(p->dev, &before);
    for (unsigned i = 0; i < times && !r; i++) r = fn(p);
    if (!r) r = ps_dev_drain(p->dev);
    ps_dev_stats_get(p->dev, &after);
    const double s = (double) (after.busy_ns[q] - before.busy_ns[q]) * 1e-9;
    *ret = !r && s > 0 ? work * times / s : 0;
    return r;
}

static int measure(struct probe *p, const struct ps_probe_gpu *how, struct ps_gpu_rates *ret)
{
    const double bytes = (double) how->copy_bytes,
                 flops = 2.0 * how->m * (double) how->n * (double) how->k;
    int r = rate(p, up, PS_Q_UP, bytes, how->times, &ret->h2d);
    if (!r) r = rate(p, down, PS_Q_D2H, bytes, how->times, &ret->d2h);
    if (!r) r = rate(p, within, PS_Q_COMPUTE, 2 * bytes, how->times, &ret->hbm);
    return r ? r : rate(p, linear, PS_Q_COMPUTE, flops, how->times, &ret->flops);
}

int ps_probe_gpu(const struct ps_cuda_api *api, const struct ps_probe_gpu *how,
                 struct ps_gpu_rates *ret, struct ps_detail *dt)
{
    struct probe p = { 0 };
    ps_auto_free void *host = ps_aligned(PAGE, how->copy_bytes),
                      *scratch = ps_aligned(64, 2 * PAGE);
    struct ps_pinned *pinned = NULL;
    struct ps_detail why = { "" };
    p.host = buffer(PS_HOST, host, how->copy_bytes);
    if (!host || !scratch) return ps_fail(dt, -ENOMEM, "probing the GPU: out of memory");
    int r = ps_pinned_open(api, &(struct ps_pinned_range) { host, how->copy_bytes }, 1, UINT64_MAX,
                           &pinned, &why);
    if (r < 0) return ps_fail(dt, r, "probing the GPU: %s", ps_err_str(r));
    struct ps_cuda_info info = { 0 };
    r = ps_pinned_bytes(pinned) < how->copy_bytes ? ps_fail(dt, -PS_EPIN, "%s", why.text)
                                                  : api->info(&info);
    struct ps_dev_cuda_cfg cuda = { .api = api,
                                    .mem_bytes = lay_out(how, info.sm, NULL, &p),
                                    .pinned = pinned };
    const struct ps_kern *row =
        r < 0 ? NULL : ps_kern_pick(PS_OP_linear, PS_PLACE_CUDA, info.sm, &p.linear);
    if (!r && !row) r = ps_fail(dt, -PS_EUNSUPPORTED, "probing the GPU: it has no linear");
    if (!r) {
        cuda.scratch_bytes = ps_kern_scratch(row, &p.linear);
        const struct ps_dev_cfg cfg = { .threads = 1, .scratch = scratch, .scratch_bytes = PAGE };
        r = ps_dev_cuda_open(&cfg, &cuda, &p.dev, dt);
    }
    if (!r) {
        (void) lay_out(how, info.sm, ps_dev_cuda_mem(p.dev), &p);
        r = measure(&p, how, ret);
        if (r < 0) (void) ps_fail(dt, r, "probing the GPU: %s", ps_dev_error_text(p.dev));
    }
    ps_dev_close(p.dev);
    ps_pinned_close(pinned);
    return r;
}
