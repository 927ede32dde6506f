/* SPDX-License-Identifier: Apache-2.0 */
/* New entries of slabs that are elsewhere.
 *
 * Writing each new entry of a slab on disk would be thousands of tiny writes, or the whole slab for one entry. Instead new entries are
 * logged in host memory, with the index where the kernel put them; after a read the log is replayed into the extent, so that the
 * kernels see the slab exactly as if it had stayed in memory, in the same order: the bits are the same wherever it lives. Every
 * log_steps steps a slab is written after its pass and its log starts anew; slots take turns, so that not all are written in one
 * sweep. The same record, a step long, brings the new entries of a slab that visits the GPU back to the host. */
#include "engine/sched/sched.h"
#include <string.h>

/* In groups of neighbours, whose slabs are written together. */
uint32_t ps_kv_turn(const struct ps_sched *s, uint32_t index)
{
    return index * s->d->log_steps / s->plan->slots;
}

bool ps_kv_merges(const struct ps_sched *s, const struct ps_slot *slot, uint32_t index)
{
    const uint32_t steps = s->d->log_steps;
    return (slot->fed + ps_kv_turn(s, index)) % steps == steps - 1;
}

static uint64_t entry_bytes(const struct ps_sched *s)
{
    return s->shape->head_dim * ps_dtype_bytes(s->d->kv_type);
}

static size_t log_at(struct ps_sched *s, uint32_t layer, uint32_t k, uint32_t index)
{
    size_t rank = ps_kv_home(s, layer, k)->rank;
    return (rank * s->plan->slots + index) * s->shape->kv_heads * s->d->log_steps;
}

static int run_replay(struct ps_sched *s, const struct ps_replay_seq *seqs, uint32_t n,
                      struct ps_buf *ctl, struct ps_buf *dst, struct ps_buf *log)
{
    struct ps_kv_replay args = { .seqs = seqs,
                                 .n_seqs = n,
                                 .kv_heads = s->shape->kv_heads,
                                 .d = s->shape->head_dim,
                                 .kv_type = s->d->kv_type };
    return ps_dev_run(s->dev, PS_Q_HOST, PS_OP_kv_replay, &args,
                      (struct ps_use[]) { { dst, true }, { log, false }, { ctl, false } }, 3);
}

int ps_kv_replay(struct ps_sched *s, uint32_t layer, uint32_t k, struct ps_buf *extent)
{
    const struct ps_mb *b = &s->mb[k];
    struct ps_ctl *ctl = NULL;
    struct ps_buf *ctl_buf = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct ps_slot *t = &b->slots[b->by_run[i]];
        if (!t->on_disk || !t->logged) continue;
        int r = ctl ? 0 : ps_sched_ctl(s, &ctl, &ctl_buf);
        if (r < 0) return r;
        struct ps_slab slab = ps_slab_of(s, t, extent->p, NULL, NULL);
        size_t at = log_at(s, layer, k, b->by_run[i]);
        ctl->replay[n++] = (struct ps_replay_seq) { .k = slab.k,
                                                    .v = slab.v,
                                                    .log_k = s->l.log_k + at * entry_bytes(s),
                                                    .log_v = s->l.log_v + at * entry_bytes(s),
                                                    .log_index = s->l.log_index + at,
                                                    .cap = t->cap,
                                                    .log_cap = s->d->log_steps,
                                                    .n = t->logged };
    }
    return n ? run_replay(s, ctl->replay, n, ctl_buf, extent, &ps_kv_home(s, layer, k)->log) : 0;
}

void ps_kv_log_args(struct ps_sched *s, const struct ps_pass *p, uint32_t index,
                    struct ps_decode_row *row)
{
    const struct ps_slot *t = &s->mb[p->mb].slots[index];
    if (ps_kv_merges(s, t, index)) return; /* the slab itself is written */
    size_t at = log_at(s, p->layer, p->mb, index);
    row->log_k = s->l.log_k + at * entry_bytes(s);
    row->log_v = s->l.log_v + at * entry_bytes(s);
    row->log_index = s->l.log_index + at;
    row->log_cap = s->d->log_steps;
    row->log_at = t->logged;
}

/* ---- from the GPU */

struct new_row {
    uint8_t *k, *v;
    int32_t *index;
};
static struct new_row new_row(const struct ps_sched *s, uint8_t *block, uint32_t i)
{
    uint8_t *at = block + i * ps_new_row_bytes(s->shape, s->d);
    uint64_t half = s->shape->kv_heads * entry_bytes(s);
    return (struct new_row) { at, at + half, (int32_t *) (void *) (at + 2 * half) };
}

void ps_kv_new_args(struct ps_sched *s, uint32_t i, struct ps_decode_row *row)
{
    struct new_row r = new_row(s, s->gpu_new_rows[s->new_pass % PS_NEW_BLOCKS].p, i);
    row->log_k = r.k;
    row->log_v = r.v;
    row->log_index = r.index;
    row->log_cap = 1;
    row->log_at = 0;
}

/* On the HOST queue: one row's entry into its slot's log. */
static void log_row(const struct ps_sched *s, const struct new_row *from,
                    const struct ps_replay_seq *to)
{
    const uint64_t e = entry_bytes(s);
    for (uint32_t h = 0; h < s->shape->kv_heads; h++) {
        uint64_t at = (uint64_t) h * to->log_cap + to->n;
        memcpy((uint8_t *) to->k + at * e, from->k + h * e, e);
        memcpy((uint8_t *) to->v + at * e, from->v + h * e, e);
        s->l.log_index[(size_t) (to->log_index - s->l.log_index) + at] = from->index[h];
    }
}

/* arg: the block of new rows, and the control block whose replay[] says where they go: k, v and log_index of the log, n the place in
 * it. A row that does not go to a log has no k. */
static int log_rows(void *ud, uint64_t arg)
{
    struct ps_sched *s = ud;
    const struct ps_ctl *ctl = &s->l.ctl[arg % PS_CTL_BLOCKS];
    uint8_t *block = s->new_rows[arg / PS_CTL_BLOCKS % PS_NEW_BLOCKS].p;
    const uint32_t n = (uint32_t) (arg / PS_CTL_BLOCKS / PS_NEW_BLOCKS);
    for (uint32_t i = 0; i < n; i++) {
        struct new_row r = new_row(s, block, i);
        if (ctl->replay[i].k) log_row(s, &r, &ctl->replay[i]);
    }
    return 0;
}

static int to_logs(struct ps_sched *s, const struct ps_pass *p, uint32_t from, uint32_t n,
                   uint64_t block)
{
    const struct ps_mb *b = &s->mb[p->mb];
    struct ps_ctl *ctl;
    struct ps_buf *ctl_buf;
    int r = ps_sched_ctl(s, &ctl, &ctl_buf);
    if (r < 0) return r;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t index = b->decode[from + i];
        struct ps_decode_row row = { 0 };
        ps_kv_log_args(s, p, index, &row);
        ctl->replay[i] = (struct ps_replay_seq) { .k = row.log_k,
                                                  .v = row.log_v,
                                                  .log_index = row.log_index,
                                                  .log_cap = row.log_cap,
                                                  .n = row.log_at };
    }
    uint64_t arg =
        (uint64_t) (ctl - s->l.ctl) + PS_CTL_BLOCKS * (block + PS_NEW_BLOCKS * (uint64_t) n);
    struct ps_call call = { log_rows, s, arg, n * ps_new_row_bytes(s->shape, s->d) };
    return ps_dev_run(s->dev, PS_Q_HOST, PS_OP_call, &call,
                      (struct ps_use[]) { { &s->new_rows[block], false },
                                          { &ps_kv_home(s, p->layer, p->mb)->log, true },
                                          { ctl_buf, false } },
                      3);
}

/* Into the slab on the host: all of them, or (on disk) those whose slabs are written after this pass. */
static int to_slabs(struct ps_sched *s, const struct ps_pass *p, uint32_t from, uint32_t n,
                    uint64_t block)
{
    const struct ps_mb *b = &s->mb[p->mb];
    const bool disk = ps_kv_home(s, p->layer, p->mb)->tier == PS_TIER_DISK;
    struct ps_ctl *ctl;
    struct ps_buf *ctl_buf;
    uint32_t n_seqs = 0;
    int r = ps_sched_ctl(s, &ctl, &ctl_buf);
    if (r < 0) return r;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t index = b->decode[from + i];
        const struct ps_slot *t = &b->slots[index];
        if (disk && !ps_kv_merges(s, t, index)) continue;
        struct ps_slab slab = ps_slab_of(s, t, p->far->p, NULL, NULL);
        struct new_row row = new_row(s, s->new_rows[block].p, i);
        ctl->replay[n_seqs++] = (struct ps_replay_seq) { .k = slab.k,
                                                         .v = slab.v,
                                                         .log_k = row.k,
                                                         .log_v = row.v,
                                                         .log_index = row.index,
                                                         .cap = t->cap,
                                                         .log_cap = 1,
                                                         .n = 1 };
    }
    return n_seqs ? run_replay(s, ctl->replay, n_seqs, ctl_buf, p->far, &s->new_rows[block]) : 0;
}

int ps_kv_new_home(struct ps_sched *s, const struct ps_pass *p, uint32_t from, uint32_t n)
{
    const uint64_t block = s->new_pass++ % PS_NEW_BLOCKS;
    int r = ps_dev_move(
        s->dev, &s->new_rows[block], &s->gpu_new_rows[block],
        &(struct ps_rect) { .row_bytes = n * ps_new_row_bytes(s->shape, s->d), .rows = 1 });
    if (!r && ps_kv_home(s, p->layer, p->mb)->tier == PS_TIER_DISK)
        r = to_logs(s, p, from, n, block);
    return r < 0 ? r : to_slabs(s, p, from, n, block);
}
