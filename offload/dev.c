/* SPDX-License-Identifier: Apache-2.0 */
/* The only place that knows what has to wait for what. */
#include "offload/dev.h"
#include "engine/base/ps_cpu.h"
#include <string.h>

const char *ps_q_name(enum ps_q q)
{
    static const char *const names[PS_Q__COUNT] = {
        [PS_Q_COMPUTE] = "compute", [PS_Q_HOST] = "host", [PS_Q_H2D] = "h2d",     [PS_Q_UP] = "up",
        [PS_Q_D2H] = "d2h",         [PS_Q_READ] = "read", [PS_Q_WRITE] = "write",
    };
    return (unsigned) q < PS_Q__COUNT ? names[q] : "?";
}

static void need(const struct ps_buf *b, enum ps_q q, uint64_t n, uint64_t after[PS_Q__COUNT],
                 uint8_t why[PS_Q__COUNT])
{
    if (n <= after[q]) return;
    after[q] = n;
    why[q] = (uint8_t) b->kind;
}

/* A reader waits for the last writer; a writer also for everyone who has read since. */
static void buf_needs(const struct ps_buf *b, bool writes, uint64_t after[PS_Q__COUNT],
                      uint8_t why[PS_Q__COUNT])
{
    need(b, b->wrote_q, b->wrote, after, why);
    for (int q = 0; writes && q < PS_Q__COUNT; q++) need(b, (enum ps_q) q, b->read[q], after, why);
}

static void buf_touched(struct ps_buf *b, bool writes, enum ps_q q, uint64_t n)
{
    if (!writes) {
        b->read[q] = n;
        return;
    }
    b->wrote_q = q;
    b->wrote = n;
    memset(b->read, 0, sizeof b->read);
}

static void after_all(const struct ps_dev *d, uint64_t after[PS_Q__COUNT], uint8_t why[PS_Q__COUNT])
{
    for (int q = 0; q < PS_Q__COUNT; q++) {
        if (after[q] == d->submitted[q]) continue;
        after[q] = d->submitted[q];
        why[q] = d->last_kind[q];
    }
}

static int submit(struct ps_dev *d, enum ps_q q, struct ps_task *t, const struct ps_use *uses,
                  unsigned n_uses)
{
    uint64_t after[PS_Q__COUNT] = { 0 };
    for (unsigned i = 0; i < n_uses; i++)
        if (uses[i].buf) buf_needs(uses[i].buf, uses[i].writes, after, t->why);
    if (d->serial) after_all(d, after, t->why);
    t->tag = d->tag;
    t->counted = d->counted;
    int r = d->ops->start(d, q, t, after);
    if (r < 0) return r;
    d->submitted[q]++;
    d->last_kind[q] = (uint8_t) t->kind;
    /* Writes last: a task that names one buffer twice, as input and as output, has written it. */
    for (int pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < n_uses; i++)
            if (uses[i].buf && uses[i].writes == (pass == 1))
                buf_touched(uses[i].buf, uses[i].writes, q, d->submitted[q]);
    return 0;
}

static enum ps_place place_of(const struct ps_dev *d, enum ps_q q)
{
    return q == PS_Q_COMPUTE ? d->place : PS_PLACE_HOST;
}

int ps_dev_run_kern(struct ps_dev *d, enum ps_q q, const struct ps_kern *kern, const void *args,
                    const struct ps_use *uses, unsigned n_uses)
{
    if ((q != PS_Q_COMPUTE && q != PS_Q_HOST) || kern->place != place_of(d, q)) return -EINVAL;
    size_t size = ps_op_args_size(kern->op);
    struct ps_task t = { .kern = kern };
    if (size > sizeof t.args) return -EINVAL;
    memcpy(t.args, args, size);
    t.cost = ps_op_cost(kern->op, args);
    return submit(d, q, &t, uses, n_uses);
}

int ps_dev_run(struct ps_dev *d, enum ps_q q, enum ps_op op, const void *args,
               const struct ps_use *uses, unsigned n_uses)
{
    enum ps_place place = place_of(d, q);
    uint32_t flags = place == PS_PLACE_HOST ? ps_cpu_flags() : d->sm;
    const struct ps_kern *k = ps_dev_is_sim(d) ? ps_kern_ref(op) /* for its op's cost alone */
                                               : ps_kern_pick(op, place, flags, args);
    return k ? ps_dev_run_kern(d, q, k, args, uses, n_uses) : -PS_EUNSUPPORTED;
}

static int move_queue(enum ps_where to, enum ps_where from, enum ps_kind kind, enum ps_q *ret)
{
    if (from == PS_DISK && to == PS_HOST)
        *ret = PS_Q_READ;
    else if (from == PS_HOST && to == PS_DISK)
        *ret = PS_Q_WRITE;
    else if (from == PS_HOST && to == PS_GPU)
        *ret = kind == PS_KIND_WEIGHTS ? PS_Q_H2D : PS_Q_UP;
    else if (from == PS_GPU && to == PS_HOST)
        *ret = PS_Q_D2H;
    else if (from == to && to != PS_DISK)
        *ret = to == PS_GPU ? PS_Q_COMPUTE : PS_Q_HOST;
    else
        return -EINVAL; /* disk and GPU meet in a host buffer */
    return 0;
}

/* off + (rows - 1) * pitch + row_bytes stays inside the buffer, without wrapping on the way. */
static bool inside(const struct ps_buf *b, uint64_t off, uint64_t pitch, const struct ps_rect *r)
{
    uint64_t end;
    if (r->rows > 1 && pitch < r->row_bytes) return false;
    return !__builtin_mul_overflow(r->rows > 1 ? pitch : 0, r->rows - 1, &end) &&
           !__builtin_add_overflow(end, off, &end) &&
           !__builtin_add_overflow(end, r->row_bytes, &end) && end <= b->len_bytes;
}

static bool aligned(const struct ps_buf *b, uint64_t off, uint64_t pitch, const struct ps_rect *r,
                    uint32_t align)
{
    uint64_t bits = (b->where == PS_DISK ? b->off : (uintptr_t) b->p) | off | r->row_bytes;
    if (r->rows > 1) bits |= pitch;
    return !(bits & (align - 1));
}

int ps_dev_move(struct ps_dev *d, struct ps_buf *dst, struct ps_buf *src,
                const struct ps_rect *rect)
{
    enum ps_q q;
    int r = move_queue(dst->where, src->where, dst->kind, &q);
    if (r < 0) return r;
    if (!rect->rows || !rect->row_bytes) return -EINVAL;
    if (!inside(dst, rect->dst_off, rect->dst_pitch, rect) ||
        !inside(src, rect->src_off, rect->src_pitch, rect))
        return -ERANGE;
    bool disk = q == PS_Q_READ || q == PS_Q_WRITE;
    if (disk && d->align &&
        !(aligned(dst, rect->dst_off, rect->dst_pitch, rect, d->align) &&
          aligned(src, rect->src_off, rect->src_pitch, rect, d->align)))
        return -EINVAL;
    const struct ps_buf *on_disk = q == PS_Q_READ ? src : dst;
    struct ps_task t = {
        .dst_where = dst->where,
        .src_where = src->where,
        .disk_file = disk ? on_disk->file : 0,
        .disk_off = disk ? on_disk->off : 0,
        .dst = dst->where == PS_DISK ? NULL : dst->p,
        .src = src->where == PS_DISK ? NULL : src->p,
        .rect = *rect,
        .cost.bytes = (double) rect->row_bytes * (double) rect->rows,
        .kind = disk ? on_disk->kind : dst->kind,
    };
    if (rect->rows == 1) t.rect.dst_pitch = t.rect.src_pitch = 0;
    return submit(d, q, &t, (struct ps_use[]) { { dst, true }, { src, false } }, 2);
}

int ps_dev_wait(struct ps_dev *d, const struct ps_buf *buf, bool writes)
{
    uint64_t n[PS_Q__COUNT] = { 0 };
    uint8_t why[PS_Q__COUNT];
    buf_needs(buf, writes, n, why);
    return d->ops->wait(d, n);
}

int ps_dev_drain(struct ps_dev *d) { return d->ops->wait(d, d->submitted); }
void ps_dev_stats_get(struct ps_dev *d, struct ps_dev_stats *ret) { d->ops->stats(d, ret); }
double ps_dev_moved(const struct ps_dev_stats *s, enum ps_q q)
{
    double sum = 0;
    for (int k = 0; k < PS_KIND__COUNT; k++) sum += (double) s->bytes[q][k];
    return sum;
}
const char *ps_dev_error_text(const struct ps_dev *d) { return d->ops->error_text(d); }

void ps_dev_close(struct ps_dev *d)
{
    if (d) d->ops->close(d);
}
