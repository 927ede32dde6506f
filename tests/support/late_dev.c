/* SPDX-License-Identifier: Apache-2.0 */
#include "late_dev.h"
#include "engine/base/ps_mem.h"
#include <string.h>

enum { ROOM = 1024 };

struct item {
    struct ps_task task;
    uint64_t after[PS_Q__COUNT];
    bool done;
};

struct late {
    struct ps_dev base;
    struct ps_dev *now;
    void *scratch;                                 /* of a GPU's ops */
    uint64_t put[PS_Q__COUNT], first[PS_Q__COUNT]; /* submitted; all before are done */
    unsigned rand, eager;                          /* of 8 tasks, how many are followed by others */
    bool any_order;
    uint32_t on_host; /* ops whose tasks go to HOST; 0: host_of_8 out of 8 tasks of any op */
    unsigned host_of_8;
    struct item item[PS_Q__COUNT][ROOM];
};

unsigned late_seed;
bool late_gpu, late_rounds;
size_t late_gpu_scratch = 8 << 20;

static unsigned draw(struct late *l, unsigned n) { return (unsigned) rand_r(&l->rand) % n; }
static struct item *item(struct late *l, int q, uint64_t i) { return &l->item[q][i % ROOM]; }

static bool may_run(const struct late *l, const struct item *t)
{
    for (int p = 0; p < PS_Q__COUNT; p++)
        if (l->first[p] < t->after[p]) return false;
    return true;
}

static void exec(struct late *l, int q, struct item *t)
{
    static const uint64_t none[PS_Q__COUNT];
    if (t->done) return;
    (void) l->now->ops->start(l->now, (enum ps_q) q, &t->task,
                              none); /* its errors come with wait() */
    t->done = true;
    while (l->first[q] < l->put[q] && item(l, q, l->first[q])->done) l->first[q]++;
}

/* Does the first n tasks of q, each after what it needs and nothing else. */
static void complete(struct late *l, int q, uint64_t n)
{
    while (l->first[q] < n) {
        uint64_t i = l->first[q];
        if (l->any_order) i += draw(l, (unsigned) (n - i));
        struct item *t = item(l, q, i);
        for (int p = 0; p < PS_Q__COUNT && !t->done; p++) complete(l, p, t->after[p]);
        exec(l, q, t);
    }
}

/* Tries a few tasks that nobody waits for. */
static void some(struct late *l)
{
    for (unsigned k = 0; k < 16; k++) {
        int q = (int) draw(l, PS_Q__COUNT);
        uint64_t i = l->first[q], n = l->put[q] - i;
        if (!n) continue;
        if (l->any_order) i += draw(l, (unsigned) n);
        if (may_run(l, item(l, q, i))) exec(l, q, item(l, q, i));
    }
}

static int late_start(struct ps_dev *d, enum ps_q q, const struct ps_task *t,
                      const uint64_t after[PS_Q__COUNT])
{
    struct late *l = (struct late *) d;
    if (l->put[q] - l->first[q] == ROOM) complete(l, (int) q, l->first[q] + ROOM / 4);
    struct item *new = item(l, (int) q, l->put[q]++);
    *new = (struct item) { .task = *t };
    memcpy(new->after, after, sizeof new->after);
    if (draw(l, 8) < l->eager) some(l);
    return 0;
}

static int late_wait(struct ps_dev *d, const uint64_t n[PS_Q__COUNT])
{
    struct late *l = (struct late *) d;
    int from = (int) draw(l, PS_Q__COUNT);
    for (int q = 0; q < PS_Q__COUNT; q++)
        complete(l, (q + from) % PS_Q__COUNT, n[(q + from) % PS_Q__COUNT]);
    return l->now->ops->wait(l->now, n);
}

static void late_stats(struct ps_dev *d, struct ps_dev_stats *ret)
{
    ps_dev_stats_get(((struct late *) d)->now, ret);
}
static const char *late_error(const struct ps_dev *d)
{
    return ps_dev_error_text(((const struct late *) d)->now);
}
static void late_close(struct ps_dev *d)
{
    struct late *l = (struct late *) d;
    if (l->now) (void) late_wait(d, l->put);
    ps_dev_close(l->now);
    free(l->scratch);
    free(l);
}

static const struct ps_dev_ops late_ops = {
    .name = "late",
    .start = late_start,
    .wait = late_wait,
    .stats = late_stats,
    .error_text = late_error,
    .close = late_close,
};

int late_dev_open(const struct ps_dev_cfg *cfg, struct ps_dev **ret)
{
    struct late *l = ps_calloc(1, sizeof *l);
    if (!l) return -ENOMEM;
    struct ps_dev_cfg c = *cfg;
    if (late_gpu) { /* the plan's is for what runs on the host */
        c.scratch_bytes = late_gpu_scratch;
        c.scratch = l->scratch = ps_aligned(64, (c.threads + 1) * late_gpu_scratch);
    }
    int r = late_gpu && !c.scratch ? -ENOMEM : ps_dev_now_open(&c, &l->now);
    if (r < 0) {
        free(l->scratch);
        free(l);
        return r;
    }
    l->base.ops = &late_ops;
    l->base.align = l->now->align;
    l->base.where = late_gpu ? PS_GPU : PS_HOST;
    l->base.rounds = late_rounds;
    l->rand = late_seed;
    if (late_seed < PS_OP__COUNT) { /* one op apart from the rest, all as late as may be */
        l->on_host = 1u << late_seed;
    } else {
        l->any_order = draw(l, 2);
        l->eager = draw(l, 3) * 4;
        l->on_host = draw(l, 2) ? (uint32_t) rand_r(&l->rand) : 0;
        l->host_of_8 = draw(l, 2) ? 4 : 1;
    }
    *ret = &l->base;
    return 0;
}

enum ps_q late_dev_queue(struct ps_dev *d, enum ps_q q, enum ps_op op)
{
    struct late *l = (struct late *) d;
    if (d->ops != &late_ops) return q;
    bool host = l->on_host ? l->on_host >> op & 1 : draw(l, 8) < l->host_of_8;
    return host ? PS_Q_HOST : PS_Q_COMPUTE;
}
