/* SPDX-License-Identifier: Apache-2.0 */
/* Hidden states between layers: of each micro-batch, where COMPUTE works, on the host or on disk, by way of rings. */
#include "engine/base/ps_mem.h"
#include "engine/sched/sched.h"
#include <assert.h>

static struct ps_buf hidden_buf(enum ps_where where, float *p, uint64_t len)
{
    return (struct ps_buf) { .where = where, .kind = PS_KIND_HIDDEN, .p = p, .len_bytes = len };
}

int ps_hidden_init(struct ps_sched *s)
{
    const uint64_t bytes = ps_hidden_bytes(s->shape, s->d), floats = bytes / sizeof(float);
    uint64_t n[PS_TIER__COUNT] = { 0 };
    s->hidden_ring = ps_calloc(s->d->hidden_ring, sizeof *s->hidden_ring);
    s->gpu_hidden_ring = ps_calloc(s->d->gpu_hidden_ring, sizeof *s->gpu_hidden_ring);
    if (!s->hidden_ring || !s->gpu_hidden_ring)
        return ps_fail(s->dt, -ENOMEM, "hidden states: out of memory");
    for (uint32_t k = 0; k < s->plan->micro_batches; k++) {
        const enum ps_tier t = (enum ps_tier) s->d->hidden_tier[k];
        const uint64_t rank = n[t]++;
        if (t == PS_TIER_DISK)
            s->mb[k].hidden =
                (struct ps_buf) { .where = PS_DISK,
                                  .kind = PS_KIND_HIDDEN,
                                  .file = PS_FILE_OFFLOAD,
                                  .off = s->plan->kv_bytes[PS_TIER_DISK] + rank * bytes,
                                  .len_bytes = bytes };
        else if (t == PS_TIER_GPU)
            s->mb[k].hidden = hidden_buf(PS_GPU, s->l.gpu_hidden + rank * floats, bytes);
        else
            s->mb[k].hidden = hidden_buf(PS_HOST, s->l.hidden + rank * floats, bytes);
    }
    for (uint32_t i = 0; i < s->d->hidden_ring; i++)
        s->hidden_ring[i] = hidden_buf(PS_HOST, s->l.hidden_ring + i * floats, bytes);
    for (uint32_t i = 0; i < s->d->gpu_hidden_ring; i++)
        s->gpu_hidden_ring[i] = hidden_buf(PS_GPU, s->l.gpu_hidden_ring + i * floats, bytes);
    return 0;
}

void ps_hidden_done(struct ps_sched *s)
{
    free(s->hidden_ring);
    free(s->gpu_hidden_ring);
}

uint64_t ps_hidden_rows_bytes(const struct ps_sched *s, uint32_t k, bool disk)
{
    const uint64_t bytes = (uint64_t) s->mb[k].n_rows * s->shape->hidden * sizeof(float);
    return disk ? PS_ROUND_UP(bytes, (uint64_t) PS_PACK_ALIGN) : bytes;
}

static int move_rows(struct ps_sched *s, uint32_t k, struct ps_buf *dst, struct ps_buf *src)
{
    const uint64_t bytes =
        ps_hidden_rows_bytes(s, k, dst->where == PS_DISK || src->where == PS_DISK);
    return ps_dev_move(s->dev, dst, src, &(struct ps_rect) { .row_bytes = bytes, .rows = 1 });
}

/* Room for it where COMPUTE works, and on the way there; filled unless it is about to be written. */
static int bring(struct ps_sched *s, uint32_t k, bool fresh, struct ps_hidden_way *w)
{
    struct ps_buf *home = &s->mb[k].hidden;
    const enum ps_where near = s->d->gpu ? PS_GPU : PS_HOST;
    int r = 0;
    *w = (struct ps_hidden_way) { .set = true, .k = k, .near = home, .far = home };
    if (home->where == near) return 0;
    if (home->where == PS_DISK) {
        w->far = &s->hidden_ring[s->hidden_pass++ % s->d->hidden_ring];
        if (!fresh) r = move_rows(s, k, w->far, home);
    }
    w->near =
        s->d->gpu ? &s->gpu_hidden_ring[s->gpu_hidden_pass++ % s->d->gpu_hidden_ring] : w->far;
    return r < 0 || fresh || w->near == w->far ? r : move_rows(s, k, w->near, w->far);
}

int ps_hidden_ahead(struct ps_sched *s, uint32_t k)
{
    if (s->hidden_next.set || !s->mb[k].n_rows) return 0;
    return bring(s, k, false, &s->hidden_next);
}

int ps_hidden_acquire(struct ps_sched *s, uint32_t k, bool fresh, struct ps_pass *p)
{
    struct ps_hidden_way w = s->hidden_next;
    int r = 0;
    if (w.set)
        assert(w.k == k && !fresh);
    else
        r = bring(s, k, fresh, &w);
    s->hidden_next.set = false;
    p->x_buf = w.near;
    p->x_far = w.far;
    p->x = w.near->p;
    return r;
}

int ps_hidden_release(struct ps_sched *s, const struct ps_pass *p)
{
    struct ps_buf *home = &s->mb[p->mb].hidden;
    int r = p->x_buf == p->x_far ? 0 : move_rows(s, p->mb, p->x_far, p->x_buf);
    return r < 0 || p->x_far == home ? r : move_rows(s, p->mb, home, p->x_far);
}
