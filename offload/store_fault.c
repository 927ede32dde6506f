/* SPDX-License-Identifier: Apache-2.0 */
/* Decorator: hands everything to a lower store and breaks what the spec says (offload/store_fault.h). A transfer
 * that is to fail never reaches the lower store. What is complete waits in `held` until its time and turn. */
#include "offload/store_fault.h"
#include "engine/base/ps_mem.h"
#include "offload/dev_exec.h"

struct held {
    struct ps_io *io;
    uint64_t due_ns;
};

struct fault {
    struct ps_store base;
    struct ps_store *lower;
    struct ps_faults spec;
    uint64_t count[2], draws;
    struct ps_io *flipping[PS_FAULT_RULES];
    unsigned taken, n_held;
    struct held held[]; /* info.depth */
};

static void fault_close(struct ps_store *t) { free(t); }

static int fault_open(const struct ps_store_cfg *cfg, struct ps_store **ret, struct ps_detail *dt)
{
    if (!cfg->lower) return ps_fail(dt, -EINVAL, "the fault store needs a store below it");
    size_t held = (size_t) cfg->lower->info.depth * sizeof(struct held);
    ps_auto_free struct fault *f = ps_calloc(1, sizeof *f + held);
    if (!f) return ps_fail(dt, -ENOMEM, "no memory for the fault store");
    int r = ps_faults_parse(cfg->fault, &f->spec, dt);
    if (r < 0) return r;
    f->lower = cfg->lower;
    f->base.ops = &ps_store_fault;
    f->base.info = cfg->lower->info;
    *ret = &PS_TAKE(f)->base;
    return 0;
}

static uint64_t draw(struct fault *f) { return ps_faults_hash(f->spec.seed, ++f->draws); }

static void hold(struct fault *f, struct ps_io *io)
{
    uint64_t wait_ns = f->spec.delay_us ? draw(f) % (f->spec.delay_us * 1000) : 0;
    f->held[f->n_held++] = (struct held) { io, wait_ns ? ps_now_ns() + wait_ns : 0 };
}

/* The rule that strikes this transfer: a negative error, or 0. */
static int strikes(struct fault *f, enum ps_io_dir dir, uint64_t n)
{
    for (unsigned i = 0; i < f->spec.n_fail[dir]; i++)
        if (f->spec.fail[dir][i].nth == n) return f->spec.fail[dir][i].err;
    return 0;
}

static int fault_submit(struct ps_store *t, struct ps_io *const *ios, unsigned n)
{
    struct fault *f = (struct fault *) t;
    for (unsigned i = 0; i < n; i++) {
        if (f->taken == t->info.depth) return (int) i;
        uint64_t nth = f->count[ios[i]->dir] + 1;
        int e = strikes(f, ios[i]->dir, nth);
        if (e) {
            ios[i]->res = e;
            hold(f, ios[i]);
        } else {
            int r = f->lower->ops->submit(f->lower, &ios[i], 1);
            if (r <= 0) return i ? (int) i : r;
            for (unsigned k = 0; k < f->spec.n_flip; k++)
                if (ios[i]->dir == PS_IO_READ && f->spec.flip[k] == nth) f->flipping[k] = ios[i];
        }
        f->count[ios[i]->dir] = nth;
        f->taken++;
    }
    return (int) n;
}

static void flip(struct fault *f, struct ps_io *io)
{
    for (unsigned k = 0; k < f->spec.n_flip; k++) {
        if (f->flipping[k] != io) continue;
        f->flipping[k] = NULL;
        if (io->res <= 0) continue;
        uint64_t bit = draw(f) % ((uint64_t) io->res * 8);
        ((uint8_t *) io->buf)[bit / 8] ^= (uint8_t) (1u << (bit % 8));
    }
}

/* Hands out what is due, in order of completion or in any. */
static unsigned give(struct fault *f, struct ps_io **done, unsigned max, uint64_t now)
{
    unsigned n = 0, due = 0;
    for (unsigned i = 0; i < f->n_held; i++) due += f->held[i].due_ns <= now;
    while (n < max && due) {
        unsigned skip = f->spec.reorder ? (unsigned) (draw(f) % due) : 0, i = 0;
        for (;; i++) {
            if (f->held[i].due_ns > now) continue;
            if (!skip--) break;
        }
        done[n++] = f->held[i].io;
        for (unsigned k = i + 1; k < f->n_held; k++) f->held[k - 1] = f->held[k];
        f->n_held--;
        due--;
    }
    f->taken -= n;
    return n;
}

static uint64_t first_due(const struct fault *f)
{
    uint64_t t = UINT64_MAX;
    for (unsigned i = 0; i < f->n_held; i++)
        if (f->held[i].due_ns < t) t = f->held[i].due_ns;
    return t;
}

/* Takes from the lower store until it has nothing at hand; the first call may wait. 1 when something came,
 * 0 after a time-out or a wake. */
static int gather(struct fault *f, int64_t timeout_ns)
{
    struct ps_io *d[32];
    int some = 0;
    for (;;) {
        int r = f->lower->ops->reap(f->lower, d, PS_ARRAY_LEN(d), some ? 0 : timeout_ns);
        if (r < 0) return r;
        for (int i = 0; i < r; i++) {
            flip(f, d[i]);
            hold(f, d[i]);
        }
        if (!r) return some;
        some = 1;
    }
}

static int fault_reap(struct ps_store *t, struct ps_io **done, unsigned max, int64_t timeout_ns)
{
    struct fault *f = (struct fault *) t;
    const uint64_t begin = ps_now_ns();
    for (;;) {
        uint64_t now = ps_now_ns(), due;
        unsigned n = give(f, done, max, now);
        if (n || !max) return (int) n;
        int64_t left = timeout_ns;
        if (timeout_ns > 0)
            left = now - begin >= (uint64_t) timeout_ns ? 0 : timeout_ns - (int64_t) (now - begin);
        due = first_due(f);
        int64_t until_due = due == UINT64_MAX ? -1 : (int64_t) (due - now);
        bool for_due = until_due >= 0 && (left < 0 || until_due < left);
        int r = gather(f, for_due ? until_due : left);
        if (r < 0) return r;
        if (r) continue;
        if (for_due && ps_now_ns() >= due) continue; /* the time was up, not a wake */
        return 0;
    }
}

static void fault_wake(struct ps_store *t)
{
    struct fault *f = (struct fault *) t;
    f->lower->ops->wake(f->lower);
}

const struct ps_store_ops ps_store_fault = {
    .name = "fault",
    .open = fault_open,
    .close = fault_close,
    .submit = fault_submit,
    .reap = fault_reap,
    .wake = fault_wake,
};
