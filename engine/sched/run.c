/* SPDX-License-Identifier: Apache-2.0 */
/* A run: memory, store and device opened, weights loaded, then sweeps. A sweep takes the tokens of the last one, admits, embeds, goes
 * over the layers with all micro-batches, and ends with the head. The stem (token table) passes by once per sweep: for the head of one
 * sweep and the embedding of the next. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/sched/sched.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* What a run opens, in the order in which it is closed backwards. */
struct run {
    struct ps_sched s;
    struct ps_arena *arena;
    struct ps_store *store;
    int offload_fd; /* -1: there is none */
    char offload_as[32], *offload_name;
};

/* The file for KV and hidden states: its room is taken now, so that a full disk shows before the first token. It has no name, so nothing
 * is left behind however the process ends. */
static int make_offload_file(struct run *x, struct ps_detail *dt)
{
    uint64_t bytes = x->s.plan->disk_bytes;
    const char *dir = x->s.cfg->offload_dir;
    if (!bytes) return 0;
    x->offload_name = ps_concat("the offload file in ", dir, "");
    if (!x->offload_name) return ps_fail(dt, -ENOMEM, "offload file: out of memory");
    int r = ps_store_unnamed(dir, &x->offload_fd, x->offload_as, dt);
    if (r < 0) return ps_fail_in(dt, r, "--offload-dir");
    r = posix_fallocate(x->offload_fd, 0, (off_t) bytes);
    if (r)
        return ps_fail(dt, -r, "--offload-dir %s: no room for %.1f MiB of KV and hidden states: %s",
                       dir, (double) bytes / (1 << 20), strerror(r));
    return 0;
}

static int open_store(struct run *x, struct ps_detail *dt)
{
    const struct ps_run_cfg *c = x->s.cfg;
    struct ps_store_file files[2] = {
        { .path = x->s.m->path },
        { .path = x->offload_name, .open_as = x->offload_as, .write = true }
    };
    struct ps_store_cfg cfg = { .files = files,
                                .n_files = x->offload_fd >= 0 ? 2 : 1,
                                .depth = c->queue_depth,
                                .mem = ps_arena_base(x->arena),
                                .mem_bytes = ps_arena_used(x->arena),
                                .fault = getenv("PS_FAULT") };
    struct ps_detail why = { "" };
    int r;
    if (c->io) {
        const struct ps_store_ops *ops = ps_store_find(c->io);
        if (!ops)
            return ps_fail(dt, -PS_EUSAGE,
                           "--io %s: unknown, or not built in; uring and pread are there", c->io);
        r = ps_store_open(ops, &cfg, &x->store, dt);
    } else {
        r = ps_store_open_best(&cfg, &x->store, &why, dt);
    }
    if (!r && why.text[0] && c->warn) c->warn(c->warn_ud, why.text);
    return r;
}

static int open_device(struct run *x, struct ps_detail *dt)
{
    const struct ps_run_cfg *c = x->s.cfg;
    struct ps_dev_cfg cfg = { .store = x->store,
                              .threads = c->threads,
                              .scratch_bytes = x->s.d->scratch_bytes,
                              .scratch = x->s.l.worker_scratch,
                              .trace = c->trace,
                              .trace_ud = c->trace_ud };
    int (*open)(const struct ps_dev_cfg *, struct ps_dev **) =
        c->device ? c->device : ps_dev_cpu_open;
    int r = c->sim ? ps_dev_sim_open(c->sim, &x->s.dev) : open(&cfg, &x->s.dev);
    return r < 0 ? ps_fail(dt, r, "the device, with %u threads: %s", c->threads, ps_err_str(r)) : 0;
}

static void init_bufs(struct ps_sched *s)
{
    const struct ps_buf host = { .where = PS_HOST, .len_bytes = UINT64_MAX },
                        near = { .where = s->dev->where, .len_bytes = UINT64_MAX };
    for (int a = 0; a < PS_A__COUNT; a++) s->act[a] = near;
    s->prompt_kv = s->gather = s->logits = near;
    s->scored = host;
    for (unsigned i = 0; i < PS_CTL_BLOCKS; i++) s->ctl[i] = host;
}

static int init_sched(struct ps_sched *s)
{
    ps_model_steps(s->shape, &s->embed, &s->layer, &s->head);
    init_bufs(s);
    int r = ps_weights_init(s);
    if (!r) r = ps_slots_init(s);
    if (!r) r = ps_kv_init(s);
    return r;
}

static int open_run(struct run *x, struct ps_detail *dt)
{
    struct ps_sched *s = &x->s;
    const struct ps_run_cfg *c = s->cfg;
    struct ps_arena_cfg mem = { .bytes = s->plan->host_bytes,
                                .populate = !c->sim, /* then nothing is read or computed */
                                .numa_nodes = c->numa_nodes };
    int r = ps_arena_open(&mem, &x->arena, dt);
    if (!r) r = ps_layout_make(x->arena, NULL, s->m, s->plan, c->threads, &s->l, dt);
    if (!r && !c->sim) r = make_offload_file(x, dt);
    if (!r && !c->sim) r = open_store(x, dt);
    if (!r) r = open_device(x, dt);
    if (!r) r = init_sched(s);
    return r;
}

static void close_run(struct run *x)
{
    ps_dev_close(x->s.dev); /* first: its tasks use all of the rest */
    ps_kv_done(&x->s);
    ps_slots_done(&x->s);
    ps_weights_done(&x->s);
    x->store = ps_store_close(x->store);
    if (x->offload_fd >= 0) (void) close(x->offload_fd);
    free(x->offload_name);
    ps_arena_close(x->arena);
}

/* ---- sweeps */

/* The device's own clock: of the wall, or virtual. */
static double clock_s(const struct ps_sched *s)
{
    return ps_dev_is_sim(s->dev) ? ps_dev_sim_now_s(s->dev) : (double) ps_now_ns() * 1e-9;
}

/* The last sweep's time, split by rows between prompts and decode. */
static void book_time(struct ps_sched *s, uint64_t prompt_rows, uint64_t decode_rows)
{
    double now = clock_s(s), t = now - s->mark_s, rows = (double) (prompt_rows + decode_rows);
    s->mark_s = now;
    if (rows <= 0) return;
    s->stats.prefill_s += t * (double) prompt_rows / rows;
    s->stats.decode_s += t * (double) decode_rows / rows;
}

static void count_rows(const struct ps_sched *s, uint64_t *prompt, uint64_t *decode)
{
    *prompt = *decode = 0;
    for (uint32_t k = 0; k < s->plan->micro_batches; k++) {
        *decode += s->mb[k].n_decode;
        *prompt += s->mb[k].n_rows - s->mb[k].n_decode;
    }
}

static int call_sweep(struct ps_sched *s)
{
    ps_dev_stats_get(s->dev, &s->stats.dev);
    s->stats.active = s->active;
    uint64_t t0 = ps_now_ns();
    int r = s->io->sweep ? s->io->sweep(s->io->ud, &s->stats) : 0;
    s->stats.host_s += (double) (ps_now_ns() - t0) * 1e-9;
    if (r == PS_GO_STOP) s->stop = true;
    return r < 0 ? r : 0;
}

/* Tokens of the last sweep out, new sequences in, rows laid out, embedded: micro-batch by micro-batch, so that the job's work on
 * the first overlaps the head of the others. */
static int turn(struct ps_sched *s)
{
    uint64_t prompt, decode;
    const uint32_t mbs = s->plan->micro_batches;
    count_rows(s, &prompt, &decode);
    s->prompt_budget = s->plan->prefill_tokens;
    for (uint32_t k = 0; k < mbs; k++) {
        int r = ps_slots_take_tokens(s, k);
        if (r < 0) return r;
        if (k == mbs - 1) book_time(s, prompt, decode);
        if (s->stop) continue;
        r = ps_slots_admit(s, k);
        if (!r) r = ps_slots_lay_rows(s, k);
        if (!r && s->mb[k].n_rows) r = ps_weights_begin(s, 0);
        if (!r && s->mb[k].n_rows) r = ps_weights_spread(s, 0, k, mbs);
        if (!r) r = ps_head_embed(s, k);
        if (r < 0) return r;
    }
    return 0;
}

/* Whether there can be a sweep after this one: if not, nothing more is read ahead. */
static bool more_to_come(const struct ps_sched *s)
{
    if (!s->dry || s->pending) return true;
    for (uint32_t k = 0; k < s->plan->micro_batches; k++)
        for (uint32_t i = 0; i < s->plan->slots; i++) {
            const struct ps_slot *t = &s->mb[k].slots[i];
            if (t->state != PS_SLOT_FREE && t->made + 1 < t->seq->max_tokens) return true;
        }
    return false;
}

static int layers(struct ps_sched *s)
{
    const uint32_t mbs = s->plan->micro_batches;
    for (uint32_t j = 0; j < s->shape->layers; j++) {
        for (uint32_t k = 0; k < mbs; k++) {
            int r = ps_weights_begin(s, j + 1);
            if (!r) r = ps_pass_layer(s, j, k);
            if (r < 0) return r;
        }
        ps_weights_end(s, j + 1);
        /* The job writes down what the last sweep brought while the device has work. */
        if (j == 0 && s->stats.sweeps) {
            int r = call_sweep(s);
            if (r < 0) return r;
        }
    }
    return 0;
}

static int sweep(struct ps_sched *s)
{
    const uint32_t mbs = s->plan->micro_batches;
    ps_weights_end(s, 0); /* embedding was its last use */
    int r = layers(s);
    bool more = more_to_come(s);
    for (uint32_t k = 0; !r && k < mbs; k++) {
        r = ps_weights_begin(s, 0);
        if (!r && more) r = ps_weights_spread(s, 0, k, mbs);
        if (!r) r = ps_head_run(s, k);
    }
    for (uint32_t k = 0; k < mbs; k++) ps_slots_advance(s, k);
    s->stats.sweeps++;
    if (!r && more) r = ps_kv_ahead(s, 0, 0);
    return r;
}

static int run_sweeps(struct ps_sched *s)
{
    s->mark_s = clock_s(s);
    for (;;) {
        int r = turn(s);
        if (r < 0) return r;
        if (s->stop || !s->active) break;
        r = sweep(s);
        if (r < 0) return r;
    }
    if (!s->stop && s->pending)
        return ps_fail(
            s->dt, -PS_EBUDGET,
            "a sequence of %u prompt tokens and max_tokens %u fits into no slot of this plan (%u "
            "entries a "
            "micro-batch, %u prompt tokens a sweep): the plan was made for other requests",
            s->pending->n_prompt, s->pending->max_tokens, s->d->pool, s->plan->prefill_tokens);
    bool stopped = s->stop;
    int r = ps_dev_drain(s->dev); /* what was read ahead counts, too */
    if (!r) r = call_sweep(s);
    return r < 0 ? r : stopped || s->stop ? PS_GO_STOP : 0;
}

/* A failed task says more than the code that a later call returned. */
static int explain(struct ps_sched *s, int r)
{
    if (r >= 0 || !s->dev) return r;
    int first = ps_dev_drain(s->dev);
    if (first >= 0) return r;
    if (s->verify_failed) return ps_fail(s->dt, first, "%s", s->verify_detail.text);
    return ps_fail(s->dt, first, "%s", ps_dev_error_text(s->dev));
}

int ps_run(const struct ps_run_cfg *cfg, const struct ps_run_io *io, struct ps_run_stats *ret,
           struct ps_detail *dt)
{
    ps_auto_free struct run *x = ps_calloc(1, sizeof *x);
    if (!x) return ps_fail(dt, -ENOMEM, "run: out of memory");
    struct ps_detail none;
    x->offload_fd = -1;
    x->s = (struct ps_sched) { .cfg = cfg,
                               .io = io,
                               .m = cfg->model,
                               .shape = &cfg->model->shape,
                               .plan = cfg->plan,
                               .d = cfg->plan->detail,
                               .dt = dt ? dt : &none };
    uint64_t t0 = ps_now_ns();
    int r = open_run(x, x->s.dt);
    if (r >= 0) r = ps_weights_load(&x->s);
    if (r >= 0) x->s.stats.load_s = cfg->sim ? clock_s(&x->s) : (double) (ps_now_ns() - t0) * 1e-9;
    if (r >= 0) r = run_sweeps(&x->s);
    r = explain(&x->s, r);
    if (x->s.dev) ps_dev_stats_get(x->s.dev, &x->s.stats.dev);
    *ret = x->s.stats;
    close_run(x);
    return r;
}
