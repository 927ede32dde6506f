/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan/layout.h"

enum { LINE = 64, PAGE = PS_PACK_ALIGN };

uint64_t ps_kv_extent_half(const struct ps_shape *s, const struct ps_plan_detail *d)
{
    uint64_t b = (uint64_t) d->pool * s->kv_heads * s->head_dim * ps_dtype_bytes(d->kv_type);
    return PS_ROUND_UP(b, PAGE);
}

uint64_t ps_kv_extent_bytes(const struct ps_shape *s, const struct ps_plan_detail *d)
{
    return 2 * ps_kv_extent_half(s, d);
}

uint64_t ps_hidden_bytes(const struct ps_shape *s, const struct ps_plan_detail *d)
{
    return PS_ROUND_UP((uint64_t) d->mb_rows * s->hidden * sizeof(float), PAGE);
}

uint32_t ps_slab_cap(const struct ps_plan_detail *d, const struct ps_keep *k, uint32_t n)
{
    uint32_t cap = ps_keep_cap(k, n);
    return (cap + d->quantum - 1) / d->quantum * d->quantum;
}

uint64_t ps_new_row_bytes(const struct ps_shape *s, const struct ps_plan_detail *d)
{
    uint64_t head = 2 * (uint64_t) s->head_dim * ps_dtype_bytes(d->kv_type) + sizeof(int32_t);
    return PS_ROUND_UP(head * s->kv_heads, 16);
}

uint64_t ps_biases_before(const struct ps_shape *s, const struct ps_steps *layer, unsigned i)
{
    uint64_t n = 0;
    for (const struct ps_step *t = layer->s; t < layer->s + i; t++)
        if (t->op == PS_STEP_LINEAR && t->b && !ps_actv_rounds(t->out))
            n += PS_ROUND_UP(ps_actv_width(s, t->out), LINE / sizeof(float));
    return n;
}

struct cut {
    struct ps_arena *host, *gpu, *near; /* near: where COMPUTE works */
    const struct ps_packed *m;
    const struct ps_shape *s;
    const struct ps_plan *p;
    const struct ps_plan_detail *d;
    struct ps_detail *dt;
    int err;
};

/* After the first failure the rest does nothing: one check at the end. */
static void *take(struct cut *c, struct ps_arena *from, const char *name, uint64_t n, uint64_t size,
                  size_t align)
{
    void *p = NULL;
    if (!c->err && n) c->err = ps_arena_alloc(from, name, n, size, align, &p, c->dt);
    return c->err ? NULL : p;
}

/* All sizes follow from the plan's sums: which chunk or slab lies where does not matter here. */
static uint64_t slabs_in(const struct cut *c, enum ps_tier t)
{
    return c->p->kv_bytes[t] / ps_kv_extent_bytes(c->s, c->d);
}

static uint64_t hidden_in(const struct cut *c, enum ps_tier t)
{
    return c->p->hidden_bytes[t] / ps_hidden_bytes(c->s, c->d);
}

static uint64_t slabs(const struct cut *c) { return (uint64_t) c->s->layers * c->p->micro_batches; }

/* Without a GPU COMPUTE visits all slabs, and on the host. */
static uint64_t host_slabs(const struct cut *c) { return c->d->gpu ? c->p->host_slabs : slabs(c); }

/* ---- what a GPU copies, reads or writes: at the front of the host's arena */

static void take_control(struct cut *c, struct ps_layout *l)
{
    const char *name = "control blocks and results";
    const uint32_t mbs = c->p->micro_batches, slots = c->p->slots;
    uint64_t rows = (uint64_t) mbs * c->d->mb_rows;
#define TAKE(n, p) ((p) = take(c, c->host, name, n, sizeof *(p), LINE))
    TAKE(rows, l->ids);
    TAKE(rows, l->ids_pos);
    TAKE(rows, l->gather_ids);
    TAKE(rows, l->sample_rows);
    TAKE((uint64_t) mbs * slots, l->outs);
    TAKE(c->d->head_rows, l->scored);
    if (c->d->gpu) TAKE((uint64_t) mbs * slots * c->d->most_banned, l->banned);
    for (unsigned i = 0; i < PS_CTL_BLOCKS; i++) {
        struct ps_ctl *b = &l->ctl[i];
        TAKE(slots, b->decode);
        TAKE(slots, b->prompt);
        TAKE(slots, b->compact);
        TAKE(slots, b->replay);
        TAKE((uint64_t) slots * c->s->kv_heads, b->at);
    }
    uint64_t entries = c->d->gpu ? (uint64_t) c->s->kv_heads * c->p->kv_cap : 0;
    TAKE(entries, l->from_gpu_pos);
    TAKE(entries, l->from_gpu_score);
#undef TAKE
    l->control_bytes = ps_arena_used(c->host);
}

static void take_far(struct cut *c, struct ps_layout *l)
{
    const uint64_t rows = (uint64_t) c->d->passes * c->p->slots;
    const uint64_t wide = (uint64_t) c->s->q_heads * c->s->head_dim,
                   kv_wide = (uint64_t) c->s->kv_heads * c->s->head_dim;
    const char *name = "queries and results of attention on the host";
    l->new_rows = take(c, c->host, "new KV entries from the GPU",
                       (uint64_t) PS_NEW_BLOCKS * c->p->slots, ps_new_row_bytes(c->s, c->d), PAGE);
    if (!host_slabs(c)) return;
    l->far_q = take(c, c->host, name, rows, wide * sizeof(float), LINE);
    l->far_k = take(c, c->host, name, rows, kv_wide * sizeof(float), LINE);
    l->far_v = take(c, c->host, name, rows, kv_wide * sizeof(float), LINE);
    l->far_o = take(c, c->host, name, rows, wide * sizeof(float), LINE);
}

static void take_host(struct cut *c, struct ps_layout *l)
{
    const struct ps_plan_detail *d = c->d;
    uint64_t extent = ps_kv_extent_bytes(c->s, d), entries = (uint64_t) d->pool * c->s->kv_heads,
             hidden = ps_hidden_bytes(c->s, d), host = host_slabs(c);
    take_control(c, l);
    if (d->gpu) take_far(c, l);
    l->ring = take(c, c->host, "weights on their way from the disk", d->ring_bytes, 1, PAGE);
    l->kv_ring =
        take(c, c->host, "KV slabs on their way from and to the disk", d->kv_ring, extent, PAGE);
    l->hidden_ring = take(c, c->host, "hidden states on their way from and to the disk",
                          d->hidden_ring, hidden, PAGE);
    l->hidden = take(c, c->host, "hidden states", hidden_in(c, PS_TIER_HOST), hidden, PAGE);
    l->pos = take(c, c->host, "KV positions and scores", host * entries, sizeof *l->pos, LINE);
    if (d->scores)
        l->score =
            take(c, c->host, "KV positions and scores", host * entries, sizeof *l->score, LINE);
    l->kv_host = take(c, c->host, "KV slabs", slabs_in(c, PS_TIER_HOST), extent, PAGE);
    if (d->gpu && !d->weights_pinned) l->pinned_bytes = ps_arena_used(c->host);
    l->resident = take(c, c->host, "weights that stay", c->p->weight_bytes[PS_TIER_HOST], 1, PAGE);
    if (d->gpu && d->weights_pinned) l->pinned_bytes = ps_arena_used(c->host);
}

/* What only the host's cores touch. */
static void take_rest(struct cut *c, unsigned threads, struct ps_layout *l)
{
    const struct ps_plan_detail *d = c->d;
    const char *log_name = "new KV entries not yet merged into slabs on disk";
    uint64_t log = slabs_in(c, PS_TIER_DISK) * c->p->slots * c->s->kv_heads * d->log_steps;
    size_t entry = c->s->head_dim * ps_dtype_bytes(d->kv_type);
    l->log_k = take(c, c->host, log_name, log, entry, LINE);
    l->log_v = take(c, c->host, log_name, log, entry, LINE);
    l->log_index = take(c, c->host, log_name, log, sizeof *l->log_index, LINE);
    uint64_t entries = (uint64_t) c->s->kv_heads * c->p->kv_cap;
    const char *name = "control blocks and results";
    l->dump_pos = take(c, c->host, name, entries, sizeof *l->dump_pos, LINE);
    l->dump_score = take(c, c->host, name, entries, sizeof *l->dump_score, LINE);
    l->worker_scratch =
        take(c, c->host, "scratch of the worker threads", threads + 1, d->scratch_bytes, PAGE);
}

/* ---- where COMPUTE works */

static void take_activations(struct cut *c, struct ps_layout *l)
{
    const struct ps_plan_detail *d = c->d;
    const struct ps_shape *s = c->s;
    for (int a = PS_A_H; a < PS_A_LOGITS; a++) {
        if (a == PS_A_E && s->embed == s->hidden) continue;
        if (a == PS_A_G && !s->gated) continue;
        l->act[a] = take(c, c->near, "activations of a layer",
                         (uint64_t) c->p->chunk_rows * ps_actv_width(s, (enum ps_actv) a),
                         sizeof(float), LINE);
    }
    if (d->passes > 1)
        l->o2 = take(c, c->near, "activations of a layer",
                     (uint64_t) c->p->chunk_rows * ps_actv_width(s, PS_A_O), sizeof(float), LINE);
    const char *prompts = "K, V and scores of the prompts of a layer";
    uint64_t row = (uint64_t) s->kv_heads * s->head_dim * ps_dtype_bytes(d->kv_type);
    l->prompt_k = take(c, c->near, prompts, d->mb_prompt, row, LINE);
    l->prompt_v = take(c, c->near, prompts, d->mb_prompt, row, LINE);
    if (d->scores)
        l->prompt_score =
            take(c, c->near, prompts, d->mb_prompt, s->kv_heads * sizeof(float), LINE);
    l->gather =
        take(c, c->near, "logits", (uint64_t) d->head_rows * s->hidden, sizeof(float), LINE);
    l->logits = take(c, c->near, "logits", (uint64_t) d->head_rows * s->vocab, sizeof(float), LINE);
}

static void take_gpu(struct cut *c, struct ps_layout *l)
{
    const struct ps_plan_detail *d = c->d;
    uint64_t extent = ps_kv_extent_bytes(c->s, d), entries = (uint64_t) d->pool * c->s->kv_heads,
             hidden = ps_hidden_bytes(c->s, d), near = slabs(c) - host_slabs(c);
    const char *meta = "KV positions and scores", *ring = "KV slabs that pass by",
               *hiddens = "hidden states that pass by";
    l->gpu_ring = take(c, c->gpu, "weights that pass by", d->gpu_ring_bytes, 1, PAGE);
    l->gpu_kv_ring = take(c, c->gpu, ring, d->gpu_kv_ring, extent, PAGE);
    if (host_slabs(c)) {
        l->gpu_ring_pos =
            take(c, c->gpu, ring, d->gpu_kv_ring * entries, sizeof *l->gpu_ring_pos, LINE);
        if (d->scores)
            l->gpu_ring_score =
                take(c, c->gpu, ring, d->gpu_kv_ring * entries, sizeof *l->gpu_ring_score, LINE);
    }
    l->gpu_new_rows = take(c, c->gpu, ring, (uint64_t) PS_NEW_BLOCKS * c->p->slots,
                           ps_new_row_bytes(c->s, d), PAGE);
    l->gpu_hidden_ring = take(c, c->gpu, hiddens, d->gpu_hidden_ring, hidden, PAGE);
    l->gpu_hidden = take(c, c->gpu, "hidden states", hidden_in(c, PS_TIER_GPU), hidden, PAGE);
    l->gpu_pos = take(c, c->gpu, meta, near * entries, sizeof *l->gpu_pos, LINE);
    if (d->scores) l->gpu_score = take(c, c->gpu, meta, near * entries, sizeof *l->gpu_score, LINE);
    l->gpu_kv = take(c, c->gpu, "KV slabs", slabs_in(c, PS_TIER_GPU), extent, PAGE);
    l->gpu_resident =
        take(c, c->gpu, "weights that stay", c->p->weight_bytes[PS_TIER_GPU], 1, PAGE);
    if (!ps_rows_rounded(d, c->m->dtype, c->p->chunk_rows)) return;
    struct ps_steps embed, layer, head;
    ps_model_steps(c->s, &embed, &layer, &head);
    l->biases =
        take(c, c->gpu, "biases in f32", c->s->layers * ps_biases_before(c->s, &layer, layer.n),
             sizeof *l->biases, LINE);
}

int ps_layout_host(struct ps_arena *host, const struct ps_packed *m, const struct ps_plan *p,
                   unsigned threads, struct ps_layout *l, struct ps_detail *dt)
{
    struct cut c = {
        .host = host, .near = host, .m = m, .s = &m->shape, .p = p, .d = p->detail, .dt = dt
    };
    take_host(&c, l);
    if (!p->detail->gpu) take_activations(&c, l);
    take_rest(&c, threads, l);
    return c.err;
}

int ps_layout_gpu(struct ps_arena *gpu, const struct ps_packed *m, const struct ps_plan *p,
                  struct ps_layout *l, struct ps_detail *dt)
{
    struct cut c = {
        .gpu = gpu, .near = gpu, .m = m, .s = &m->shape, .p = p, .d = p->detail, .dt = dt
    };
    take_gpu(&c, l);
    take_activations(&c, l);
    return c.err;
}
