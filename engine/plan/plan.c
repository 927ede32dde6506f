/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a plan. What the user fixed is fixed; the rest is searched over a small grid: each candidate is built with the arenas'
 * own arithmetic, what memory is left goes to resident weights, and the cheapest that fits wins. */
#include "engine/base/ps_mem.h"
#include "engine/plan/shape_plan.h"
#include <stdio.h>
#include <string.h>

static const uint32_t batch_grid[] = {
    1,  2,  3,  4,  5,  6,   7,   8,   9,   10,  12,  14,  16,  20,  24,  28,   32,   40,
    48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 512, 768, 1024, 1536, 2048
};
static const uint32_t mb_grid[] = { 1, 2, 4, 8, 16 };
static const uint32_t log_grid[] = { 4, 8, 16 };
static const uint32_t prompt_grid[] = { 0, 1024, 4096, 16384 }; /* 0: the longest prompt alone */
static const uint32_t rows_grid[] = { 512, 64 };
static const uint32_t prefetch_grid[] = { 2, 1, 0 };
static const double kv_disk_grid[] = { 0, 50, 100 };

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

struct search {
    const struct ps_plan_req *req;
    struct ps_plan best, least; /* cheapest that fits; smallest of all (in memory) */
    bool found, any, disk_short;
    struct ps_detail *dt;
};

static const struct ps_shares on_host = { { 0, 100, 0 } };
static struct ps_shares host_and_disk(double host_pct)
{
    return (struct ps_shares) { { 0, host_pct, 100 - host_pct } };
}
static bool on_disk(const struct ps_shares *s) { return s->pct[PS_TIER_DISK] > 0; }
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

static bool fits(const struct search *s, const struct ps_plan *p)
{
    const struct ps_plan_req *q = s->req;
    return p->host_bytes <= q->host_mem && p->disk_bytes <= q->disk_space &&
           p->gpu_bytes <= q->gpu.mem_bytes && (!q->pin_max || p->pinned_bytes <= q->pin_max);
}

/* Of two that are equally fast: nothing goes to the disk for nothing. */
static bool takes_less(const struct ps_plan *a, const struct ps_plan *b)
{
    return a->disk_bytes != b->disk_bytes ? a->disk_bytes < b->disk_bytes
                                          : a->host_bytes < b->host_bytes;
}

/* Takes p over as the best or the least, or releases it. */
static void consider(struct search *s, struct ps_plan *p)
{
    p->predicted_s = ps_candidate_price(s->req, p);
    if (p->host_bytes <= s->req->host_mem && p->disk_bytes > s->req->disk_space)
        s->disk_short = true;
    struct ps_plan *keep = NULL;
    if (fits(s, p)) {
        double gain = s->found ? s->best.predicted_s / p->predicted_s : 2;
        if (gain > 1.0001 || (gain > 0.9999 && takes_less(p, &s->best))) keep = &s->best;
        if (keep && s->found) ps_plan_done(&s->best);
        s->found = true;
    } else if (!s->found && (!s->any || p->host_bytes < s->least.host_bytes)) {
        if (s->any) ps_plan_done(&s->least);
        keep = &s->least;
        s->any = true;
    }
    if (keep)
        *keep = *p;
    else
        ps_plan_done(p);
}

/* Weights all on the host, or as they were asked for; beside a GPU whose copies cannot have so much pinned memory, with what stays on
 * the host left out of it. */
static int build(struct search *s, struct ps_candidate *c, struct ps_plan *ret)
{
    const struct ps_plan_req *q = s->req;
    c->weights_pinned = true;
    int r = ps_candidate_build(q, c, ret, s->dt);
    if (r < 0 || !q->pin_max || ret->pinned_bytes <= q->pin_max) return r;
    ps_plan_done(ret);
    c->weights_pinned = false;
    return ps_candidate_build(q, c, ret, s->dt);
}

/* One candidate; with automatic weights first without any resident, then with what room is left for them. */
static int try_one(struct search *s, struct ps_candidate c)
{
    const struct ps_shares *w = &s->req->weights;
    struct ps_plan p = { 0 };
    bool free_weights = is_auto(w);
    c.weights = free_weights ? on_host : *w;
    int r = build(s, &c, &p);
    if (r < 0) return r;
    if (!free_weights || p.host_bytes <= s->req->host_mem) {
        consider(s, &p);
        return 0;
    }
    ps_plan_done(&p);
    c.weights = host_and_disk(0);
    r = build(s, &c, &p);
    if (r < 0) return r;
    uint64_t left = s->req->host_mem > p.host_bytes ? s->req->host_mem - p.host_bytes : 0;
    uint64_t slack =
        s->req->model->chunk_bytes; /* the realised share may be one chunk above the wanted one */
    if (left > 2 * slack) {
        double pct = 100.0 * (double) (left - slack) / (double) s->req->model->weight_bytes;
        c.weights = host_and_disk(pct < 99 ? pct : 99);
        struct ps_plan q = { 0 };
        r = build(s, &c, &q);
        if (r < 0) {
            ps_plan_done(&p);
            return r;
        }
        consider(s, &q);
    }
    consider(s, &p);
    return 0;
}

/* The values to try: the one that was asked for, or a grid. */
struct grid {
    const uint32_t *v;
    size_t n;
};
static struct grid grid_of(const uint32_t *fixed, const uint32_t *v, size_t n)
{
    return *fixed ? (struct grid) { fixed, 1 } : (struct grid) { v, n };
}

static int search_prompts(struct search *s, struct ps_candidate c)
{
    const struct ps_plan_req *q = s->req;
    static const uint32_t no_log = 4;
    bool disk = on_disk(&c.kv) || on_disk(&c.hidden);
    struct grid prompt = grid_of(&q->prefill_tokens, prompt_grid, PS_ARRAY_LEN(prompt_grid));
    struct grid log =
        disk ? (struct grid) { log_grid, PS_ARRAY_LEN(log_grid) } : (struct grid) { &no_log, 1 };
    struct grid ahead = grid_of(&q->prefetch, prefetch_grid, PS_ARRAY_LEN(prefetch_grid));
    for (size_t i = 0; i < prompt.n; i++) {
        c.prompt_tokens = prompt.v[i] > q->job.longest_prompt ? prompt.v[i] : q->job.longest_prompt;
        for (size_t j = 0; j < log.n; j++)
            for (size_t k = 0; k < ahead.n; k++) {
                c.log_steps = log.v[j];
                c.prefetch = ahead.v[k];
                int r = try_one(s, c);
                if (r < 0) return r;
            }
    }
    return 0;
}

static int search_rows(struct search *s, struct ps_candidate c)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(rows_grid); i++) {
        c.chunk_rows = rows_grid[i];
        int r = search_prompts(s, c);
        if (r < 0) return r;
    }
    return 0;
}

/* Whether a block of grid value i is worth a try: no more slots than requests, and the last that was big enough is the last. */
static bool block_useful(const struct search *s, size_t i, uint32_t mbs)
{
    return batch_grid[i] >= mbs && batch_grid[i] % mbs == 0 &&
           (i == 0 || batch_grid[i - 1] < s->req->job.requests);
}

static int search_batches(struct search *s, struct ps_candidate c)
{
    const struct ps_plan_req *q = s->req;
    if (q->gpu_batch_size) {
        c.slots = q->gpu_batch_size;
        return search_rows(s, c);
    }
    for (size_t i = 0; i < PS_ARRAY_LEN(batch_grid); i++) {
        if (q->num_gpu_batches) {
            if (i && (uint64_t) batch_grid[i - 1] * c.micro_batches >= q->job.requests) break;
            c.slots = batch_grid[i];
        } else {
            if (!block_useful(s, i, c.micro_batches)) continue;
            c.slots = batch_grid[i] / c.micro_batches;
        }
        int r = search_rows(s, c);
        if (r < 0) return r;
    }
    return 0;
}

static int search_all(struct search *s)
{
    const struct ps_plan_req *q = s->req;
    struct ps_candidate c = { .hidden = is_auto(&q->hidden) ? on_host : q->hidden };
    for (size_t k = 0; k < (is_auto(&q->kv) ? PS_ARRAY_LEN(kv_disk_grid) : 1); k++) {
        c.kv = is_auto(&q->kv) ? host_and_disk(100 - kv_disk_grid[k]) : q->kv;
        c.attention_host_pct = q->attention == PS_ATTENTION_GPU ? 0 : 100;
        bool disk = on_disk(&c.kv) || on_disk(&c.hidden); /* several micro-batches hide transfers */
        struct grid mbs = grid_of(&q->num_gpu_batches, mb_grid,
                                  disk || q->gpu_batch_size ? PS_ARRAY_LEN(mb_grid) : 1);
        for (size_t i = 0; i < mbs.n; i++) {
            if (q->gpu_batch_size && i &&
                (uint64_t) q->gpu_batch_size * mbs.v[i - 1] >= q->job.requests)
                break;
            c.micro_batches = mbs.v[i];
            int r = search_batches(s, c);
            if (r < 0) return r;
        }
    }
    return 0;
}

static char *refusal(const struct search *s)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    const struct ps_plan *p = &s->least;
    fprintf(f,
            "The smallest plan for these options: %u slots in %u micro-batches, %u prompt tokens a "
            "sweep\n",
            p->slots, p->micro_batches, p->prefill_tokens);
    fputs(p->detail->table, f);
    fprintf(f, "  %12.1f MiB  --host-mem allows\n", (double) s->req->host_mem / (1 << 20));
    if (p->disk_bytes)
        fprintf(f, "  %12.1f MiB  on disk; --disk-space allows %.1f MiB\n",
                (double) p->disk_bytes / (1 << 20), (double) s->req->disk_space / (1 << 20));
    fprintf(f, "It fits with --host-mem %lluM",
            (unsigned long long) ((p->host_bytes + (1 << 20) - 1) >> 20));
    if (p->disk_bytes > s->req->disk_space)
        fprintf(f, " and --disk-space %lluM",
                (unsigned long long) ((p->disk_bytes + (1 << 20) - 1) >> 20));
    fputs(".\n", f);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
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
                       "--gpu-batch-size %u x --num-gpu-batches %u: at most 1048576 slots",
                       q->gpu_batch_size, q->num_gpu_batches);
    if (q->kv_config.positions_cache == 1)
        return ps_fail(
            dt, -PS_EUSAGE,
            "--kv-positions cache needs rotary positions; %s has learned positions: use true",
            q->model->shape.name);
    return 0;
}

int ps_plan_make(const struct ps_plan_req *req, struct ps_plan *ret, char **ret_text,
                 struct ps_detail *dt)
{
    struct search s = { .req = req, .dt = dt };
    int r = check_req(req, dt);
    if (r < 0) return r;
    r = search_all(&s);
    if (!r && !s.found) {
        if (ret_text) *ret_text = refusal(&s);
        r = ps_fail(dt, -PS_EBUDGET, "no plan fits %s %lluM; the smallest needs --host-mem %lluM",
                    s.disk_short ? "--disk-space or --host-mem" : "--host-mem",
                    (unsigned long long) (req->host_mem >> 20),
                    (unsigned long long) ((s.least.host_bytes + (1 << 20) - 1) >> 20));
    }
    if (s.any) ps_plan_done(&s.least);
    if (r < 0) {
        if (s.found) ps_plan_done(&s.best);
        return r;
    }
    *ret = s.best;
    return 0;
}

static void shares_line(FILE *f, const char *name, const uint64_t b[PS_TIER__COUNT])
{
    double all = (double) (b[0] + b[1] + b[2]);
    if (all <= 0) all = 1;
    fprintf(f, "%-8s host %.1f MiB (%.1f %%), disk %.1f MiB (%.1f %%)\n", name,
            (double) b[PS_TIER_HOST] / (1 << 20), 100 * (double) b[PS_TIER_HOST] / all,
            (double) b[PS_TIER_DISK] / (1 << 20), 100 * (double) b[PS_TIER_DISK] / all);
}

char *ps_plan_text(const struct ps_plan_req *req, const struct ps_plan *p)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    const struct ps_keep *k = &p->split.keep;
    fprintf(f,
            "block    %u slots x %u micro-batches, at most %u prompt tokens a sweep, %u rows at a "
            "time\n",
            p->slots, p->micro_batches, p->prefill_tokens, p->chunk_rows);
    if (k->heavy == PS_KEEP_ALL)
        fprintf(f, "KV       %s, %s, everything stays (longest %u entries)\n",
                req->kv_config.policy, ps_dtype_name(p->detail->kv_type), p->kv_cap);
    else
        fprintf(f, "KV       %s, %s, %u entries a layer and head: %u sinks, %u heavy, %u recent\n",
                req->kv_config.policy, ps_dtype_name(p->detail->kv_type),
                k->sinks + k->heavy + k->recent, k->sinks, k->heavy, k->recent);
    shares_line(f, "weights", p->weight_bytes);
    shares_line(f, "KV", p->kv_bytes);
    shares_line(f, "hidden", p->hidden_bytes);
    fprintf(f, "memory   on the host, of %.1f MiB allowed:\n%s", (double) req->host_mem / (1 << 20),
            p->detail->table);
    if (p->disk_bytes)
        fprintf(f, "disk     %.1f MiB for KV and hidden states, of %.1f MiB allowed\n",
                (double) p->disk_bytes / (1 << 20), (double) req->disk_space / (1 << 20));
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}
