/* SPDX-License-Identifier: Apache-2.0 */
/* Does every task at once: the reference for what the others must compute. */
#include "engine/base/ps_mem.h"
#include "offload/dev_exec.h"
#include <assert.h>

struct now {
    struct ps_dev base;
    struct ps_dev_cfg cfg;
    struct ps_dev_stats stats;
    struct ps_detail detail;
    int err;
};

static int now_disk(struct now *s, const struct ps_task *t)
{
    struct ps_cut c;
    struct ps_io io = { 0 };
    ps_cut_init(&c, t);
    while (ps_cut_next(&c, t, s->cfg.io_bytes, &io)) {
        int r = ps_store_rw(s->cfg.store, io.dir, io.file, io.off, io.buf, io.len);
        if (r < 0) {
            ps_io_failed(&s->detail, s->cfg.store, t, &io, r);
            return r;
        }
    }
    return 0;
}

static int now_exec(struct now *s, enum ps_q q, const struct ps_task *t)
{
    if (t->kern) {
        assert(ps_op_scratch(t->kern->op, t->args) <= s->cfg.scratch_bytes);
        int r = ps_kern_run_all(t->kern, t->args, s->cfg.scratch);
        if (r < 0) ps_task_failed(&s->detail, q, t, r);
        return r < 0 ? r : 0;
    }
    if (q == PS_Q_READ || q == PS_Q_WRITE) return now_disk(s, t);
    ps_task_copy(t);
    return 0;
}

static int now_start(struct ps_dev *d, enum ps_q q, const struct ps_task *t,
                     const uint64_t after[PS_Q__COUNT])
{
    struct now *s = (struct now *) d;
    if ((q == PS_Q_READ || q == PS_Q_WRITE) && !s->cfg.store) return -ENODEV;
    uint64_t t0 = ps_now_ns(), t1;
    if (!s->err) s->err = now_exec(s, q, t);
    t1 = ps_now_ns();
    s->stats.busy_ns[q] += t1 - t0;
    ps_stats_add(&s->stats, q, t, t1 - t0);
    if (s->cfg.trace) s->cfg.trace(s->cfg.trace_ud, q, t, t0, t1);
    return 0;
}
static int now_wait(struct ps_dev *d, const uint64_t n[PS_Q__COUNT])
{
    return ((struct now *) d)->err;
}
static void now_stats(struct ps_dev *d, struct ps_dev_stats *ret)
{
    *ret = ((struct now *) d)->stats;
}
static const char *now_error(const struct ps_dev *d)
{
    return ((const struct now *) d)->detail.text;
}
static void now_close(struct ps_dev *d) { free(d); }

static const struct ps_dev_ops now_ops = {
    .name = "now",
    .start = now_start,
    .wait = now_wait,
    .stats = now_stats,
    .error_text = now_error,
    .close = now_close,
};

int ps_dev_now_open(const struct ps_dev_cfg *cfg, struct ps_dev **ret)
{
    struct now *s = ps_calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    s->base.ops = &now_ops;
    s->base.align = cfg->store ? cfg->store->info.align : 0;
    s->cfg = *cfg;
    if (!s->cfg.io_bytes) s->cfg.io_bytes = PS_IO_BYTES;
    *ret = &s->base;
    return 0;
}
