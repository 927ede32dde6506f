/* SPDX-License-Identifier: Apache-2.0 */
/* Discards what is written and reads zeros, at once: what a run costs without its disk. The files are not
 * opened, and any offset is good. */
#include "engine/base/ps_mem.h"
#include "offload/store_fault.h"
#include "offload/store_sync.h"
#include <string.h>

enum { DEPTH = 64 };

struct null {
    struct ps_store base;
    struct ps_done done;
    unsigned taken;
};

static void null_close(struct ps_store *t)
{
    ps_done_done(&((struct null *) t)->done);
    free(t);
}

static int null_open(const struct ps_store_cfg *cfg, struct ps_store **ret, struct ps_detail *dt)
{
    struct null *s = ps_calloc(1, sizeof *s);
    if (!s) return ps_fail(dt, -ENOMEM, "no memory for the null store");
    s->base.ops = &ps_store_null;
    s->base.info =
        (struct ps_store_info) { .align = 512, .depth = cfg->depth ? cfg->depth : DEPTH };
    ps_done_init(&s->done);
    *ret = &s->base;
    return 0;
}

static int null_submit(struct ps_store *t, struct ps_io *const *ios, unsigned n)
{
    struct null *s = (struct null *) t;
    unsigned i = 0;
    for (; i < n && s->taken < t->info.depth; i++, s->taken++) {
        if (ios[i]->dir == PS_IO_READ) memset(ios[i]->buf, 0, ios[i]->len);
        ios[i]->res = ios[i]->len;
        ps_done_put(&s->done, ios[i]);
    }
    return (int) i;
}

static int null_reap(struct ps_store *t, struct ps_io **done, unsigned max, int64_t timeout_ns)
{
    struct null *s = (struct null *) t;
    int n = ps_done_reap(&s->done, done, max, timeout_ns);
    s->taken -= (unsigned) n;
    return n;
}

static void null_wake(struct ps_store *t) { ps_done_wake(&((struct null *) t)->done); }

const struct ps_store_ops ps_store_null = {
    .name = "null",
    .open = null_open,
    .close = null_close,
    .submit = null_submit,
    .reap = null_reap,
    .wake = null_wake,
};
