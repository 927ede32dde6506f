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

struct cut {
    struct ps_arena *arena;
    struct ps_detail *dt;
    int err;
};

/* After the first failure the rest does nothing: one check at the end. */
static void *take(struct cut *c, const char *name, uint64_t n, uint64_t size, size_t align)
{
    void *p = NULL;
    if (!c->err && n) c->err = ps_arena_alloc(c->arena, name, n, size, align, &p, c->dt);
    return c->err ? NULL : p;
}

static unsigned count(const uint8_t *tier, size_t n, enum ps_tier t)
{
    unsigned k = 0;
    for (size_t i = 0; i < n; i++) k += tier[i] == t;
    return k;
}

static void take_kv(struct cut *c, const struct ps_shape *s, const struct ps_plan *p,
                    struct ps_layout *l)
{
    const struct ps_plan_detail *d = p->detail;
    size_t slabs = (size_t) s->layers * p->micro_batches;
    uint64_t extent = ps_kv_extent_bytes(s, d), entries = (uint64_t) d->pool * s->kv_heads;
    unsigned host = count(d->slab_tier, slabs, PS_TIER_HOST),
             disk = count(d->slab_tier, slabs, PS_TIER_DISK);
    l->kv_host = take(c, "KV slabs", host, extent, PAGE);
    l->kv_ring = take(c, "KV slabs on their way from and to the disk", d->kv_ring, extent, PAGE);
    l->pos = take(c, "KV positions and scores", slabs * entries, sizeof *l->pos, LINE);
    if (d->scores)
        l->score = take(c, "KV positions and scores", slabs * entries, sizeof *l->score, LINE);
    if (disk) {
        uint64_t log = (uint64_t) disk * p->slots * s->kv_heads * d->log_steps;
        size_t entry = s->head_dim * ps_dtype_bytes(d->kv_type);
        l->log_k = take(c, "new KV entries not yet merged into slabs on disk", log, entry, LINE);
        l->log_v = take(c, "new KV entries not yet merged into slabs on disk", log, entry, LINE);
        l->log_index = take(c, "new KV entries not yet merged into slabs on disk", log,
                            sizeof *l->log_index, LINE);
    }
}

static void take_activations(struct cut *c, const struct ps_shape *s, const struct ps_plan *p,
                             struct ps_layout *l)
{
    const struct ps_plan_detail *d = p->detail;
    uint64_t hidden = ps_hidden_bytes(s, d);
    unsigned host = count(d->hidden_tier, p->micro_batches, PS_TIER_HOST);
    l->hidden = take(c, "hidden states", host, hidden, PAGE);
    l->hidden_ring =
        take(c, "hidden states on their way from and to the disk", d->hidden_ring, hidden, PAGE);
    for (int a = PS_A_H; a < PS_A_LOGITS; a++) {
        if (a == PS_A_E && s->embed == s->hidden) continue;
        l->act[a] = take(c, "activations of a layer",
                         (uint64_t) p->chunk_rows * ps_actv_width(s, (enum ps_actv) a),
                         sizeof(float), LINE);
    }
    uint64_t row = (uint64_t) s->kv_heads * s->head_dim * ps_dtype_bytes(d->kv_type);
    l->prompt_k = take(c, "K, V and scores of the prompts of a layer", d->mb_prompt, row, LINE);
    l->prompt_v = take(c, "K, V and scores of the prompts of a layer", d->mb_prompt, row, LINE);
    if (d->scores)
        l->prompt_score = take(c, "K, V and scores of the prompts of a layer", d->mb_prompt,
                               s->kv_heads * sizeof(float), LINE);
    l->gather = take(c, "logits", (uint64_t) d->head_rows * s->hidden, sizeof(float), LINE);
    l->logits = take(c, "logits", (uint64_t) d->head_rows * s->vocab, sizeof(float), LINE);
}

static void take_control(struct cut *c, const struct ps_shape *s, const struct ps_plan *p,
                         unsigned threads, struct ps_layout *l)
{
    const struct ps_plan_detail *d = p->detail;
    const char *name = "control blocks and results";
    uint64_t rows = (uint64_t) p->micro_batches * d->mb_rows;
    l->ids = take(c, name, rows, sizeof *l->ids, LINE);
    l->ids_pos = take(c, name, rows, sizeof *l->ids_pos, LINE);
    l->gather_ids = take(c, name, rows, sizeof *l->gather_ids, LINE);
    l->sample_rows = take(c, name, rows, sizeof *l->sample_rows, LINE);
    l->outs = take(c, name, (uint64_t) p->micro_batches * p->slots, sizeof *l->outs, LINE);
    l->scored = take(c, name, d->head_rows, sizeof *l->scored, LINE);
    for (unsigned i = 0; i < d->ctl_blocks; i++) {
        struct ps_ctl *b = &l->ctl[i];
        b->decode = take(c, name, p->slots, sizeof *b->decode, LINE);
        b->prompt = take(c, name, p->slots, sizeof *b->prompt, LINE);
        b->compact = take(c, name, p->slots, sizeof *b->compact, LINE);
        b->replay = take(c, name, p->slots, sizeof *b->replay, LINE);
        b->at = take(c, name, (uint64_t) p->slots * s->kv_heads, sizeof *b->at, LINE);
    }
    uint64_t entries = (uint64_t) s->kv_heads * p->kv_cap;
    l->dump_pos = take(c, name, entries, sizeof *l->dump_pos, LINE);
    l->dump_score = take(c, name, entries, sizeof *l->dump_score, LINE);
    l->worker_scratch =
        take(c, "scratch of the worker threads", threads + 1, d->scratch_bytes, PAGE);
}

int ps_layout_make(struct ps_arena *a, const struct ps_packed *m, const struct ps_plan *p,
                   unsigned threads, struct ps_layout *ret, struct ps_detail *dt)
{
    const struct ps_plan_detail *d = p->detail;
    struct cut c = { a, dt, 0 };
    struct ps_layout l = { 0 };
    uint64_t resident = 0;
    for (uint32_t i = 0; i < m->n_chunks; i++)
        if (d->chunk_tier[i] == PS_TIER_HOST) resident += m->chunks[i].len;
    l.resident = take(&c, "weights that stay", resident, 1, PAGE);
    l.ring = take(&c, "weights on their way from the disk", d->ring_bytes, 1, PAGE);
    take_kv(&c, &m->shape, p, &l);
    take_activations(&c, &m->shape, p, &l);
    take_control(&c, &m->shape, p, threads, &l);
    if (!c.err) *ret = l;
    return c.err;
}
