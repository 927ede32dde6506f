/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps that a simulation leaves out: sequences move on as in any other, and the bytes that such a sweep would move are added up, by the
 * arithmetic of those who move them (kv.c, hidden.c, weights.c). That is done once for a micro-batch, not in each layer: layers
 * differ only in where their slabs live. */
#include "engine/base/ps_mem.h"
#include "engine/sched/sched.h"
#include <string.h>

/* Ways to live that move something. */
enum home { HOST_VISITS, HOST_FAR, DISK_VISITS, DISK_FAR, HOMES };

struct ps_skip {
    uint32_t (*layers)[HOMES];                 /* [micro_batches] */
    uint32_t *rows;                            /* [micro_batches], of this sweep */
    struct ps_sweep_shape shape;               /* of this sweep */
    uint64_t lap[PS_Q__COUNT][PS_KIND__COUNT]; /* weights, in each sweep */
    uint64_t bytes[PS_Q__COUNT][PS_KIND__COUNT];
};

/* HOMES for a slab that never moves. */
static enum home home_of(const struct ps_sched *s, const struct ps_home *h)
{
    if (h->tier == PS_TIER_DISK) return s->d->gpu && !h->on_host ? DISK_VISITS : DISK_FAR;
    if (h->tier == PS_TIER_GPU || !s->d->gpu) return HOMES;
    return h->on_host ? HOST_FAR : HOST_VISITS;
}

int ps_skip_init(struct ps_sched *s)
{
    if (!s->io->skip) return 0;
    s->skip = ps_calloc(1, sizeof *s->skip);
    if (!s->skip) return ps_fail(s->dt, -ENOMEM, "simulation: out of memory");
    s->skip->layers = ps_calloc(s->plan->micro_batches, sizeof *s->skip->layers);
    s->skip->rows = ps_calloc(s->plan->micro_batches, sizeof *s->skip->rows);
    if (!s->skip->layers || !s->skip->rows)
        return ps_fail(s->dt, -ENOMEM, "simulation: out of memory");
    for (uint32_t j = 0; j < s->shape->layers; j++)
        for (uint32_t k = 0; k < s->plan->micro_batches; k++) {
            const enum home h = home_of(s, ps_kv_home(s, j, k));
            if (h != HOMES) s->skip->layers[k][h]++;
        }
    ps_weights_bytes(s, s->skip->lap);
    return 0;
}

void ps_skip_done(struct ps_sched *s)
{
    if (!s->skip) return;
    free(s->skip->layers);
    free(s->skip->rows);
    free(s->skip);
}

/* ---- what moves */

typedef uint64_t moved[PS_Q__COUNT][PS_KIND__COUNT];

/* A slab's way to attention. */
static void count_in(const struct ps_sched *s, uint32_t k, enum home h, uint64_t layers, moved to)
{
    const struct ps_mb *b = &s->mb[k];
    uint64_t read = 0, up = 0;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct ps_slot *t = &b->slots[b->by_run[i]];
        if (h >= DISK_VISITS && t->on_disk) read += ps_kv_slot_bytes(s, t, 0, t->on_disk, true);
        if ((h == HOST_VISITS || h == DISK_VISITS) && t->len)
            up += ps_kv_slot_bytes(s, t, 0, t->len, false);
    }
    to[PS_Q_READ][PS_KIND_KV] += layers * read;
    to[PS_Q_UP][PS_KIND_KV] += layers * up;
}

/* To the disk: what prompts left, and slabs with their logs. */
static void count_written(const struct ps_sched *s, uint32_t k, uint64_t layers, moved to)
{
    const struct ps_mb *b = &s->mb[k];
    for (uint32_t i = 0; i < b->n_runs; i++) {
        uint32_t a, z;
        if (ps_kv_written(s, k, b->by_run[i], &a, &z))
            to[PS_Q_WRITE][PS_KIND_KV] +=
                layers * ps_kv_slot_bytes(s, &b->slots[b->by_run[i]], a, z, true);
    }
}

/* What prompts left on the GPU; positions and scores, too, where attention is on the host. */
static void count_down(const struct ps_sched *s, uint32_t k, uint64_t layers, bool meta, moved to)
{
    const struct ps_mb *b = &s->mb[k];
    const uint64_t entry =
        s->shape->kv_heads * (sizeof(int32_t) + (s->d->scores ? sizeof(float) : 0));
    for (uint32_t i = 0; i < b->n_prompt; i++) {
        const struct ps_slot *t = &b->slots[b->prompt[i]];
        uint64_t kv = ps_kv_slot_bytes(s, t, 0, ps_keep_cap(&t->keep, t->seq->n_prompt), false);
        to[PS_Q_D2H][PS_KIND_KV] += layers * (kv + (meta ? t->cap * entry : 0));
    }
}

static uint64_t row_bytes(const struct ps_sched *s, enum ps_actv a)
{
    return ps_actv_width(s->shape, a) * sizeof(float);
}

/* Beside a GPU, for decode rows: their q, k, v and o where attention is on the host, else their new entries. */
static void count_rows(const struct ps_sched *s, uint32_t k, uint64_t layers, bool far, moved to)
{
    const uint64_t rows = layers * s->mb[k].n_decode;
    if (!far) {
        to[PS_Q_D2H][PS_KIND_KV] += rows * ps_new_row_bytes(s->shape, s->d);
        return;
    }
    to[PS_Q_D2H][PS_KIND_OTHER] +=
        rows * (row_bytes(s, PS_A_Q) + row_bytes(s, PS_A_K) + row_bytes(s, PS_A_V));
    to[PS_Q_UP][PS_KIND_OTHER] += rows * row_bytes(s, PS_A_O);
}

static void count_kv(const struct ps_sched *s, uint32_t k, moved to)
{
    for (enum home h = 0; h < HOMES; h++) {
        const uint64_t n = s->skip->layers[k][h];
        const bool far = h == HOST_FAR || h == DISK_FAR;
        if (!n) continue;
        count_in(s, k, h, n, to);
        if (h >= DISK_VISITS) count_written(s, k, n, to);
        if (!s->d->gpu) continue;
        count_down(s, k, n, far, to);
        count_rows(s, k, n, far, to);
    }
}

/* In and out of each layer; out of the embedding, into the head. */
static void count_hidden(const struct ps_sched *s, uint32_t k, moved to)
{
    const enum ps_where home = s->mb[k].hidden.where;
    const uint64_t n = s->shape->layers + 1, bytes = n * ps_hidden_rows_bytes(s, k, false),
                   disk = n * ps_hidden_rows_bytes(s, k, true);
    if (home == PS_DISK) {
        to[PS_Q_READ][PS_KIND_HIDDEN] += disk;
        to[PS_Q_WRITE][PS_KIND_HIDDEN] += disk;
    }
    if (s->d->gpu && home != PS_GPU) {
        to[PS_Q_UP][PS_KIND_HIDDEN] += bytes;
        to[PS_Q_D2H][PS_KIND_HIDDEN] += bytes;
    }
}

/* ---- a sweep */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* It does not matter which slot is which, but for when slabs on disk are written. */
static uint64_t slot_state(const struct ps_sched *s, uint32_t k, uint32_t index)
{
    const struct ps_slot *t = &s->mb[k].slots[index];
    const uint64_t turn = s->plan->kv_bytes[PS_TIER_DISK] ? ps_kv_turn(s, index) : 0;
    return mixed(mixed((uint64_t) t->fed << 32 | t->on_disk) +
                 ((uint64_t) k << 32 | t->logged << 8 | t->state) + (turn << 48));
}

static void add_state(const struct ps_sched *s, uint32_t k, struct ps_sweep_shape *to)
{
    const struct ps_mb *b = &s->mb[k];
    for (uint32_t i = 0; i < b->n_runs; i++) to->state += slot_state(s, k, b->by_run[i]);
}

static void add_rows(const struct ps_sched *s, uint32_t k, struct ps_sweep_shape *to)
{
    const struct ps_mb *b = &s->mb[k];
    s->skip->rows[to->micro_batches++] = b->n_rows;
    to->lots += (b->n_rows + s->plan->chunk_rows - 1) / s->plan->chunk_rows;
    to->prompts += b->n_prompt;
    to->decode_rows += b->n_decode;
    to->prompt_rows += b->n_rows - b->n_decode;
    to->head_rows += b->n_decode;
    for (uint32_t i = 0; i < b->n_decode; i++) to->entries += b->slots[b->decode[i]].len + 1;
    for (uint32_t i = 0; i < b->n_prompt; i++) {
        const struct ps_seq *q = b->slots[b->prompt[i]].seq;
        to->head_rows += (q->max_tokens > 0) + (q->score_prompt ? q->n_prompt - 1 : 0);
        to->prompt_pairs += (double) q->n_prompt * q->n_prompt;
    }
}

int ps_skip_ask(struct ps_sched *s)
{
    struct ps_sweep_shape *shape = &s->skip->shape;
    bool more;
    int r = ps_slots_more(s, &more);
    if (r < 0) return r;
    *shape =
        (struct ps_sweep_shape) { .sweep = s->stats.sweeps, .rows = s->skip->rows, .last = !more };
    memcpy(shape->bytes, s->skip->lap, sizeof shape->bytes);
    shape->state = s->pending != NULL;
    for (uint32_t k = 0; k < s->plan->micro_batches; k++) {
        add_state(s, k, shape);
        if (!s->mb[k].n_rows) continue;
        add_rows(s, k, shape);
        count_kv(s, k, shape->bytes);
        count_hidden(s, k, shape->bytes);
    }
    r = s->io->skip(s->io->ud, shape);
    s->skips = r > 0;
    return r < 0 ? r : 0;
}

static void add(moved to, const moved from, bool minus)
{
    for (int q = 0; q < PS_Q__COUNT; q++)
        for (int k = 0; k < PS_KIND__COUNT; k++) to[q][k] += minus ? -from[q][k] : from[q][k];
}

/* The first slab that a sweep needs is brought in at the end of the one before it, with what of it nobody will need. */
static void count_first(struct ps_sched *s, moved to)
{
    const enum home h = home_of(s, ps_kv_home(s, 0, 0));
    if (h != HOMES) count_in(s, 0, h, 1, to);
}

void ps_skip_sweep(struct ps_sched *s)
{
    struct ps_skip *x = s->skip;
    add(x->bytes, x->shape.bytes, false);
    if (s->mb[0].n_rows && s->kv_next.set) {
        moved first = { { 0 } };
        count_first(s, first);
        add(x->bytes, first, true);
    }
    s->kv_next.set = false;
    for (uint32_t k = 0; k < s->plan->micro_batches; k++) {
        const struct ps_mb *b = &s->mb[k];
        if (ps_mb_decodes(b)) s->stats.decode_passes += s->shape->layers;
        s->mb[k].has_outs = b->n_rows > 0;
        ps_slots_advance(s, k);
    }
    if (x->shape.last) return;
    count_first(s, x->bytes);
    ps_kv_pretend(s, 0, 0);
}

void ps_skip_bytes(const struct ps_sched *s, moved bytes)
{
    if (s->skip) add(bytes, s->skip->bytes, false);
}
