/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of weights come to where COMPUTE works: some stay there, the others pass through the ring `near`. Without a GPU that one is filled
 * from the disk. Beside a GPU it is its memory, and filled from pinned memory of the host: from what lies there for good, or from a
 * second ring, `stage`, into which the disk is read and which holds a chunk only until its copy to the GPU was submitted. */
#include "engine/base/ps_mem.h"
#include "engine/sched/sched.h"
#include <assert.h>
#include <stdatomic.h>

static void map_roles(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    for (uint32_t i = 0; i < (s->shape->layers + 1) * PS_W__COUNT; i++) w->by_role[i] = -1;
    for (uint32_t i = 0; i < s->m->n_tensors; i++) {
        const struct ps_tensor *t = &s->m->tensors[i].t;
        w->by_role[t->group * PS_W__COUNT + t->role] = (int32_t) i;
    }
}

static enum ps_tier tier(const struct ps_sched *s, uint32_t c)
{
    return (enum ps_tier) s->d->chunk_tier[c];
}

/* It stays where COMPUTE works. */
static bool stays(const struct ps_sched *s, uint32_t c)
{
    return tier(s, c) == (s->d->gpu ? PS_TIER_GPU : PS_TIER_HOST);
}

/* On its way to a GPU it has to be brought into pinned memory first. */
static bool is_staged(const struct ps_sched *s, uint32_t c)
{
    return s->d->gpu &&
           (tier(s, c) == PS_TIER_DISK || (tier(s, c) == PS_TIER_HOST && !s->d->weights_pinned));
}

static void place_chunks(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    uint8_t *at[PS_TIER__COUNT] = {
        [PS_TIER_GPU] = s->l.gpu_resident, [PS_TIER_HOST] = s->l.resident
    };
    for (uint32_t i = 0; i < s->m->n_chunks; i++) {
        const enum ps_tier t = tier(s, i);
        if (t != PS_TIER_DISK) {
            w->resident[i] = (struct ps_buf) { .where = t == PS_TIER_GPU ? PS_GPU : PS_HOST,
                                               .kind = PS_KIND_WEIGHTS,
                                               .p = at[t],
                                               .len_bytes = s->m->chunks[i].len };
            at[t] += s->m->chunks[i].len;
        }
        if (!stays(s, i)) ps_ring_add(&w->near, i);
        if (is_staged(s, i)) ps_ring_add(&w->stage, i);
    }
}

int ps_weights_init(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    uint32_t n = s->m->n_chunks, groups = s->shape->layers + 1;
    w->resident = ps_calloc(n, sizeof *w->resident);
    w->by_role = ps_calloc((size_t) groups * PS_W__COUNT, sizeof *w->by_role);
    w->verified = ps_calloc(n, sizeof *w->verified);
    w->biases = ps_calloc(s->shape->layers, sizeof *w->biases);
    int r = s->d->gpu ? ps_ring_init(&w->near, s->m, s->l.gpu_ring, PS_GPU, s->d->gpu_ring_bytes)
                      : ps_ring_init(&w->near, s->m, s->l.ring, PS_HOST, s->d->ring_bytes);
    if (!r) r = ps_ring_init(&w->stage, s->m, s->l.ring, PS_HOST, s->d->ring_bytes);
    if (r < 0 || !w->resident || !w->by_role || !w->verified || !w->biases)
        return ps_fail(s->dt, -ENOMEM, "weights: out of memory");
    w->group = UINT32_MAX;
    w->near_last = w->stage_last = UINT64_MAX;
    w->file = (struct ps_buf) { .where = PS_DISK,
                                .kind = PS_KIND_WEIGHTS,
                                .file = PS_FILE_WEIGHTS,
                                .len_bytes = s->m->file_bytes };
    place_chunks(s);
    map_roles(s);
    return 0;
}

void ps_weights_done(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    ps_ring_done(&w->near);
    ps_ring_done(&w->stage);
    free(w->resident);
    free(w->by_role);
    free(w->verified);
    free(w->biases);
}

static struct ps_buf *chunk_place(struct ps_sched *s, uint32_t c)
{
    return stays(s, c) ? &s->w.resident[c] : &s->w.near.place[c].buf;
}

/* On the HOST queue: arg is the chunk and, unless it lies on the host for good, where in the ring there it is, in units of 4 KiB. */
static int verify(void *ud, uint64_t arg)
{
    struct ps_sched *s = ud;
    uint32_t c = (uint32_t) arg;
    const void *p =
        tier(s, c) == PS_TIER_HOST ? s->w.resident[c].p : s->l.ring + (arg >> 32) * PS_PACK_ALIGN;
    struct ps_detail dt;
    int r = ps_pack_verify(s->m, c, p, &dt);
    if (r < 0 && !atomic_exchange(&s->verify_failed, 1)) s->verify_detail = dt;
    return r;
}

/* Into memory of the host. */
static int read_chunk(struct ps_sched *s, uint32_t c, struct ps_buf *b)
{
    const struct ps_chunk *k = &s->m->chunks[c];
    s->dev->tag = k->group << 16;
    int r = ps_dev_move(s->dev, b, &s->w.file,
                        &(struct ps_rect) { .src_off = k->off, .row_bytes = k->len, .rows = 1 });
    if (r < 0 || (s->w.verified[c] && !s->cfg->verify_always)) return r;
    s->w.verified[c] = true;
    uint64_t at =
        tier(s, c) == PS_TIER_HOST ? 0 : (uint64_t) ((uint8_t *) b->p - s->l.ring) / PS_PACK_ALIGN;
    struct ps_call call = { verify, s, c | at << 32, k->len };
    return ps_dev_run(s->dev, PS_Q_HOST, PS_OP_call, &call, &(struct ps_use) { b, true }, 1);
}

static int copy_chunk(struct ps_sched *s, uint32_t c, struct ps_buf *dst, struct ps_buf *src)
{
    s->dev->tag = s->m->chunks[c].group << 16;
    return ps_dev_move(s->dev, dst, src,
                       &(struct ps_rect) { .row_bytes = s->m->chunks[c].len, .rows = 1 });
}

/* A chunk that stays on the GPU, by way of the memory that will be the ring's. */
static int load_gpu(struct ps_sched *s, uint32_t c, struct ps_buf *way)
{
    int r = read_chunk(s, c, way);
    return r < 0 ? r : copy_chunk(s, c, &s->w.resident[c], way);
}

int ps_weights_load(struct ps_sched *s)
{
    enum { WAYS = 16 };
    struct ps_buf way[WAYS];
    uint64_t ways = s->d->ring_bytes / s->m->chunk_bytes, next = 0;
    if (ways > WAYS) ways = WAYS;
    for (uint64_t i = 0; i < ways; i++)
        way[i] = (struct ps_buf) { .where = PS_HOST,
                                   .kind = PS_KIND_WEIGHTS,
                                   .p = s->l.ring + i * s->m->chunk_bytes,
                                   .len_bytes = s->m->chunk_bytes };
    for (uint32_t i = 0; i < s->m->n_chunks; i++) {
        int r = 0;
        if (tier(s, i) == PS_TIER_HOST)
            r = read_chunk(s, i, &s->w.resident[i]);
        else if (tier(s, i) == PS_TIER_GPU)
            r = load_gpu(s, i, &way[next++ % ways]);
        if (r < 0) return r;
    }
    return ps_dev_drain(s->dev);
}

/* ---- on their way */

static int stage_next(struct ps_sched *s)
{
    struct ps_ring *g = &s->w.stage;
    uint32_t c = ps_ring_at(g, g->put_pos);
    struct ps_buf *b = ps_ring_put(g);
    return tier(s, c) == PS_TIER_DISK ? read_chunk(s, c, b)
                                      : copy_chunk(s, c, b, &s->w.resident[c]);
}

static int near_next(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    uint32_t c = ps_ring_at(&w->near, w->near.put_pos);
    struct ps_buf *b = ps_ring_put(&w->near), *from = &w->resident[c];
    if (!s->d->gpu) return read_chunk(s, c, b);
    if (is_staged(s, c)) {
        /* Chunks are staged in this same order, so it is the first there, or the next to come into an empty ring. */
        int r = w->stage.put_pos == w->stage.free_pos ? stage_next(s) : 0;
        if (r < 0) return r;
        assert(ps_ring_at(&w->stage, w->stage.free_pos) == c);
        from = &w->stage.place[c].buf;
    }
    int r = copy_chunk(s, c, b, from);
    if (is_staged(s, c)) ps_ring_free(&w->stage, 1);
    return r;
}

/* Brings in what comes next as far as there is room, to position `target` at most, while less than `bytes` lie beyond position `from`. */
static int ahead(struct ps_sched *s, struct ps_ring *g, int (*next)(struct ps_sched *s),
                 uint64_t target, uint64_t from, uint64_t bytes)
{
    uint64_t got = ps_ring_ahead(g, from);
    while (g->n_stream && g->put_pos < target) {
        uint64_t len = s->m->chunks[ps_ring_at(g, g->put_pos)].len;
        if (got + len > bytes || !ps_ring_room(g)) return 0;
        got += len;
        int r = next(s);
        if (r < 0) return r;
    }
    return 0;
}

/* A layer's biases in f32, when it passes by for the first time. */
static int widen_biases(struct ps_sched *s, uint32_t layer)
{
    struct ps_buf *to = &s->w.biases[layer];
    const uint64_t all = ps_biases_before(s->shape, &s->layer, s->layer.n);
    int r = 0;
    if (!s->l.biases || !s->dev->rounds || to->p) return 0;
    *to = (struct ps_buf) { .where = PS_GPU,
                            .p = s->l.biases + layer * all,
                            .len_bytes = all * sizeof *s->l.biases };
    s->dev->tag = (layer + 1) << 16;
    for (unsigned i = 0; i < s->layer.n && !r; i++) {
        if (ps_biases_before(s->shape, &s->layer, i + 1) ==
            ps_biases_before(s->shape, &s->layer, i))
            continue;
        const struct ps_packed_tensor *t = ps_weights_tensor(s, layer + 1, s->layer.s[i].b);
        const struct ps_part from = ps_weights_part(s, t, t->first_chunk);
        const struct ps_convert args = {
            .y = (float *) to->p + ps_biases_before(s->shape, &s->layer, i),
            .x = from.p,
            .n = t->t.cols,
            .to = PS_F32,
            .from = t->dtype,
        };
        r = ps_dev_run(s->dev, PS_Q_COMPUTE, PS_OP_convert, &args,
                       (struct ps_use[]) { from.uses[0], { to, true } }, 2);
    }
    return r;
}

const float *ps_weights_bias(struct ps_sched *s, uint32_t layer, unsigned i,
                             struct ps_buf **ret_buf)
{
    *ret_buf = &s->w.biases[layer];
    return (float *) s->w.biases[layer].p + ps_biases_before(s->shape, &s->layer, i);
}

int ps_weights_begin(struct ps_sched *s, uint32_t group)
{
    struct ps_weights *w = &s->w;
    if (w->group != group) w->begun_end += w->near.in_group[group];
    w->group = group;
    int r = ahead(s, &w->near, near_next, w->begun_end, w->begun_end, UINT64_MAX);
    assert(r < 0 || w->near.put_pos >= w->begun_end); /* the plan's ring holds what is in use */
    return r < 0 || group == 0 ? r : widen_biases(s, group - 1);
}

/* The group after the one that was begun, as far as there is room: staged chunk by chunk. */
static int next_group(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    const uint32_t next = (w->group + 1) % (s->shape->layers + 1);
    const uint64_t end = w->begun_end + w->near.in_group[next];
    return ahead(s, &w->near, near_next, end < w->near_last ? end : w->near_last, w->begun_end,
                 UINT64_MAX);
}

int ps_weights_spread(struct ps_sched *s, uint32_t part, uint32_t parts)
{
    struct ps_weights *w = &s->w;
    if (s->how.barrier) return next_group(s);
    int r = ahead(s, &w->near, near_next, w->near_last, w->begun_end,
                  w->near.bytes * (part + 1) / parts);
    const uint64_t lap = w->stage_used + w->stage.n_stream;
    return r < 0 ? r
                 : ahead(s, &w->stage, stage_next, lap < w->stage_last ? lap : w->stage_last,
                         w->stage.free_pos, w->stage.bytes * (part + 1) / parts);
}

void ps_weights_end(struct ps_sched *s, uint32_t group)
{
    ps_ring_free(&s->w.near, s->w.near.in_group[group]);
    s->w.stage_used += s->w.stage.in_group[group];
}

void ps_weights_last(struct ps_sched *s)
{
    struct ps_weights *w = &s->w;
    w->near_last = w->near.free_pos + w->near.n_stream;
    w->stage_last = w->stage_used + w->stage.n_stream;
}

void ps_weights_bytes(const struct ps_sched *s, uint64_t bytes[PS_Q__COUNT][PS_KIND__COUNT])
{
    const struct ps_ring *near = &s->w.near;
    for (uint32_t i = 0; i < near->n_stream; i++) {
        const uint32_t c = near->stream[i];
        const uint64_t len = s->m->chunks[c].len;
        if (tier(s, c) == PS_TIER_DISK)
            bytes[PS_Q_READ][PS_KIND_WEIGHTS] += len;
        else if (is_staged(s, c))
            bytes[PS_Q_HOST][PS_KIND_WEIGHTS] += len;
        if (s->d->gpu) bytes[PS_Q_H2D][PS_KIND_WEIGHTS] += len;
    }
}

const struct ps_packed_tensor *ps_weights_tensor(const struct ps_sched *s, uint32_t group,
                                                 enum ps_role role)
{
    int32_t i = s->w.by_role[group * PS_W__COUNT + role];
    return i < 0 ? NULL : &s->m->tensors[i];
}

struct ps_part ps_weights_part(struct ps_sched *s, const struct ps_packed_tensor *t, uint32_t c)
{
    const struct ps_chunk *k = &s->m->chunks[c];
    struct ps_buf *b = chunk_place(s, c);
    struct ps_part part = { .chunks = 1, .rows = t->t.rows };
    part.uses[0] = (struct ps_use) { b, false };
    if (k->n_tensors > 1 || k->rows == 0) {
        part.p = (const uint8_t *) b->p + (t->off - k->off);
        return part;
    }
    part.p = b->p;
    part.row0 = k->row0;
    part.rows = k->rows;
    /* A launch costs more than waiting for what is on its way; on the host the first chunk is not to wait for the last. */
    const uint64_t row = t->bytes / t->t.rows;
    while (s->d->gpu && part.chunks < PS_PART_CHUNKS && ++c < t->first_chunk + t->n_chunks) {
        b = chunk_place(s, c);
        if (b->p != part.p + part.rows * row) break;
        part.uses[part.chunks++] = (struct ps_use) { b, false };
        part.rows += s->m->chunks[c].rows;
    }
    return part;
}
