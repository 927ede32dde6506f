/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/dev_exec.h"
#include <string.h>

void ps_task_copy(const struct ps_task *t)
{
    const struct ps_rect *r = &t->rect;
    for (uint64_t i = 0; i < r->rows; i++)
        memmove(t->dst + r->dst_off + i * r->dst_pitch, t->src + r->src_off + i * r->src_pitch,
                r->row_bytes);
}

void ps_cut_init(struct ps_cut *c, const struct ps_task *t)
{
    const struct ps_rect *r = &t->rect;
    *c = (struct ps_cut) { .rows = r->rows, .row_bytes = r->row_bytes };
    if (r->rows > 1 && r->dst_pitch == r->row_bytes && r->src_pitch == r->row_bytes) {
        c->row_bytes = r->rows * r->row_bytes;
        c->rows = 1;
    }
}

bool ps_cut_next(struct ps_cut *c, const struct ps_task *t, uint32_t io_bytes, struct ps_io *ret)
{
    if (c->row == c->rows) return false;
    const struct ps_rect *r = &t->rect;
    bool read = t->src_where == PS_DISK;
    uint64_t left = c->row_bytes - c->at;
    uint64_t dst = r->dst_off + c->row * r->dst_pitch + c->at;
    uint64_t src = r->src_off + c->row * r->src_pitch + c->at;
    ret->dir = read ? PS_IO_READ : PS_IO_WRITE;
    ret->file = t->disk_file;
    ret->len = left < io_bytes ? (uint32_t) left : io_bytes;
    ret->buf = read ? t->dst + dst : t->src + src;
    ret->off = t->disk_off + (read ? src : dst);
    c->at += ret->len;
    if (c->at == c->row_bytes) {
        c->row++;
        c->at = 0;
    }
    return true;
}

void ps_stats_add(struct ps_dev_stats *st, enum ps_q q, const struct ps_task *t, uint64_t ns)
{
    st->tasks[q]++;
    if (t->kern) {
        st->op_ns[t->kern->op] += ns;
        st->flops[q] += t->cost.flops;
        st->mem_bytes[q] += t->cost.bytes;
    } else {
        st->bytes[q][t->kind] += t->rect.rows * t->rect.row_bytes;
    }
}

void ps_task_failed(struct ps_detail *dt, enum ps_q q, const struct ps_task *t, int err)
{
    (void) ps_fail(dt, err, "%s on queue %s (layer %u, micro-batch %u): %s (%s)",
                   t->kern ? ps_op_name(t->kern->op) : "a move", ps_q_name(q), t->tag >> 16,
                   t->tag & 0xffff, ps_err_str(err), ps_err_name(err));
}

void ps_io_failed(struct ps_detail *dt, const struct ps_store *store, const struct ps_task *t,
                  const struct ps_io *io, int err)
{
    (void) ps_fail(dt, err, "%s %s at offset %llu, %u bytes (layer %u, micro-batch %u): %s (%s)",
                   io->dir == PS_IO_READ ? "reading" : "writing", ps_store_path(store, io->file),
                   (unsigned long long) io->off, io->len, t->tag >> 16, t->tag & 0xffff,
                   err == -ENODATA ? "the file ends before that" : ps_err_str(err),
                   ps_err_name(err));
}
