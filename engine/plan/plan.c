/* SPDX-License-Identifier: Apache-2.0 */
/* From a wish to a plan, or to the words for why there is none. */
#include "engine/base/ps_mem.h"
#include "engine/plan/shape_plan.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ps_plan_done(struct ps_plan *p)
{
    if (!p->detail) return;
    free(p->detail->chunk_tier);
    free(p->detail->slab_tier);
    free(p->detail->slab_host);
    free(p->detail->hidden_tier);
    free(p->detail->table);
    free(p->detail->gpu_table);
    free(p->detail);
    p->detail = NULL;
}

static bool is_auto(const struct ps_shares *s) { return s->pct[PS_TIER_GPU] < 0; }

static int check_shares(const struct ps_plan_req *q, const struct ps_shares *s, const char *option,
                        struct ps_detail *dt)
{
    if (is_auto(s)) return 0;
    double sum = s->pct[0] + s->pct[1] + s->pct[2];
    if (!(sum > 99.99 && sum < 100.01) || s->pct[1] < 0 || s->pct[2] < 0)
        return ps_fail(dt, -PS_EUSAGE, "%s: the shares add up to %g, 100 is wanted", option, sum);
    if (s->pct[PS_TIER_GPU] > 0 && !q->gpu.mem_bytes)
        return ps_fail(dt, -PS_EUSAGE,
                       "%s gpu:%g: there is no GPU to be used; give that share to host or disk",
                       option, s->pct[PS_TIER_GPU]);
    return 0;
}

static int check_req(const struct ps_plan_req *q, struct ps_detail *dt)
{
    int r = check_shares(q, &q->weights, "--weights", dt);
    if (!r) r = check_shares(q, &q->kv, "--kv", dt);
    if (!r) r = check_shares(q, &q->hidden, "--hidden", dt);
    if (r < 0) return r;
    if (q->gpu_batch_size > 65536 || q->num_gpu_batches > 65536 ||
        (uint64_t) q->gpu_batch_size * q->num_gpu_batches > 1 << 20)
        return ps_fail(dt, -PS_EUSAGE,
                       "--gpu-batch-size %u, --num-gpu-batches %u (0: automatic): at most 65536 of "
                       "each, and 1048576 slots together, were expected",
                       q->gpu_batch_size, q->num_gpu_batches);
    if (q->kv_config.positions_cache == 1 && q->model->shape.position_rows)
        return ps_fail(
            dt, -PS_EUSAGE,
            "--kv-positions cache needs rotary positions; %s has learned positions: use true",
            q->model->shape.name);
    return 0;
}

/* The sizes by which the candidate was chosen count a few chunks more than came to be: what is left goes to weights, too. */
static int use_the_rest(const struct ps_plan_req *q, struct ps_candidate *c, struct ps_plan *p,
                        struct ps_detail *dt)
{
    const double slack = 1.5 * q->model->chunk_bytes, all = (double) q->model->weight_bytes;
    double *pct = c->weights.pct,
           gpu = 100 * ((double) q->gpu.mem_bytes - (double) p->gpu_bytes - slack) / all,
           host = 100 * ((double) q->host_mem - (double) p->host_bytes - slack) / all;
    const double near = pct[q->gpu.mem_bytes ? PS_TIER_GPU : PS_TIER_HOST];
    struct ps_plan more;
    if (!is_auto(&q->weights) || near >= 100) return 0;
    if (gpu > 0) pct[PS_TIER_GPU] = pct[PS_TIER_GPU] + gpu < 100 ? pct[PS_TIER_GPU] + gpu : 100;
    if (host > 0) pct[PS_TIER_HOST] += host;
    if (pct[PS_TIER_HOST] > 100 - pct[PS_TIER_GPU]) pct[PS_TIER_HOST] = 100 - pct[PS_TIER_GPU];
    pct[PS_TIER_DISK] = 100 - pct[PS_TIER_GPU] - pct[PS_TIER_HOST];
    int r = ps_candidate_build(q, c, &more, dt);
    if (r < 0) return r;
    if (!ps_plan_fits(q, &more) || more.predicted_s > p->predicted_s) {
        ps_plan_done(&more);
        return 0;
    }
    ps_plan_done(p);
    *p = more;
    return 0;
}

/* As options take them, needed ones rounded up to MiB; what is allowed in MiB, or what is less in KiB or bytes. */
static void size_text(uint64_t bytes, bool needed, char *text, size_t n)
{
    const int shift = needed || bytes >= 1 << 20 || !bytes ? 20 : bytes >= 1 << 10 ? 10 : 0;
    const char *unit = shift == 20 ? "M" : shift == 10 ? "K" : "";
    if (needed) bytes += (UINT64_C(1) << 20) - 1;
    (void) snprintf(text, n, "%" PRIu64 "%s", bytes >> shift, unit);
}

/* "--host-mem 10M and --gpu-mem 2M": the ceilings that the plan exceeds, or what it needs of them. */
static void exceeded(const struct ps_plan_req *q, const struct ps_plan *p, bool needed, char *text,
                     size_t n)
{
    const struct {
        const char *what;
        uint64_t needs, allowed;
    } all[] = { { "--host-mem", p->host_bytes, q->host_mem },
                { "--gpu-mem", p->gpu_bytes, q->gpu.mem_bytes },
                { "--disk-space", p->disk_bytes, q->disk_space },
                { "the disk, of which no rates are known,", ps_plan_on_disk(p),
                  q->no_disk ? 0 : UINT64_MAX },
                { "pinned memory of", p->pinned_bytes,
                  q->pin_max > 1 ? q->pin_max
                  : q->pin_max   ? 0
                                 : UINT64_MAX } };
    size_t at = 0;
    *text = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++)
        if (all[i].needs > all[i].allowed && at < n) {
            char size[32];
            size_text(needed ? all[i].needs : all[i].allowed, needed, size, sizeof size);
            at += (size_t) snprintf(text + at, n - at, "%s%s %s", at ? " and " : "", all[i].what,
                                    size);
        }
}

static int refuse(const struct ps_plan_req *q, const struct ps_plan *least, char **ret_text,
                  struct ps_detail *dt)
{
    char allowed[200], needed[200];
    exceeded(q, least, false, allowed, sizeof allowed);
    exceeded(q, least, true, needed, sizeof needed);
    if (ret_text) *ret_text = ps_plan_refusal(q, least);
    const char *pins = ps_plan_pins_too_much(q, least)
                           ? "; with --gpu-mem 0, and no share on the GPU, none is pinned"
                           : "";
    if (q->disk_folder && least->disk_bytes > q->disk_free)
        return ps_fail(dt, -PS_EBUDGET,
                       "no plan fits %s; the smallest needs %s, and %s has %" PRIu64 " MiB free%s",
                       allowed, needed, q->disk_folder, q->disk_free >> 20, pins);
    return ps_fail(dt, -PS_EBUDGET, "no plan fits %s; the smallest needs %s%s", allowed, needed,
                   pins);
}

/* Where nothing fits by the sizes that candidates are chosen by: what comes nearest may fit as built. */
static int nearest(const struct ps_plan_req *q, const struct ps_candidate *least,
                   struct ps_plan *ret, char **ret_text, struct ps_detail *dt)
{
    int r = ps_candidate_build(q, least, ret, dt);
    if (r < 0 || ps_plan_fits(q, ret)) return r;
    r = refuse(q, ret, ret_text, dt);
    ps_plan_done(ret);
    return r;
}

static int build(const struct ps_plan_req *q, struct ps_candidate c, struct ps_plan *ret,
                 struct ps_detail *dt)
{
    int r = ps_candidate_build(q, &c, ret, dt);
    if (r < 0) return r;
    r = use_the_rest(q, &c, ret, dt);
    if (r < 0) ps_plan_done(ret);
    return r;
}

/* By their prices as built. There are few. */
static void sort(struct ps_plan *p, unsigned n)
{
    for (unsigned i = 1; i < n; i++)
        for (unsigned j = i; j > 0 && p[j].predicted_s < p[j - 1].predicted_s; j--) {
            const struct ps_plan x = p[j];
            p[j] = p[j - 1];
            p[j - 1] = x;
        }
}

int ps_plan_best(const struct ps_plan_req *req, unsigned n, struct ps_plan *ret, unsigned *ret_n,
                 char **ret_text, struct ps_detail *dt)
{
    struct ps_best best = { .most = n < PS_BEST_MAX ? n : PS_BEST_MAX };
    struct ps_candidate least;
    unsigned built = 0;
    int r = check_req(req, dt);
    if (!r) r = ps_plan_search(req, &best, &least, dt);
    if (!r && !best.n) {
        r = nearest(req, &least, ret, ret_text, dt);
        built = !r;
    }
    while (!r && built < best.n) {
        r = build(req, best.at[built].c, &ret[built], dt);
        built += !r;
    }
    if (r < 0) {
        while (built) ps_plan_done(&ret[--built]);
        return r;
    }
    sort(ret, built);
    *ret_n = built;
    return 0;
}

bool ps_plan_leave_gpu(struct ps_plan_req *req)
{
    if (!req->gpu.mem_bytes || req->gpu.asked) return false;
    req->gpu = (struct ps_plan_gpu) { 0 };
    return true;
}

int ps_plan_make(const struct ps_plan_req *req, struct ps_plan *ret, char **ret_text,
                 struct ps_detail *dt)
{
    unsigned n;
    return ps_plan_best(req, 1, ret, &n, ret_text, dt);
}
