/* SPDX-License-Identifier: Apache-2.0 */
/* Timing: rows, peers and the machine's own limits are sampled in turn, so that noise hits all alike. */
#include "engine/base/ps_util.h"
#include "kt.h"
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CAND_MAX = 16, SAMPLES_MIN = 5, SAMPLES_MAX = 25 };
#define READ_BYTES (512ull << 20)

unsigned kt_threads(const struct kt *kt) { return kt->bench.threads; }
const unsigned *kt_dims(const struct kt *kt) { return kt->bench.dims[0] ? kt->bench.dims : NULL; }
bool kt_on_gpu(const struct kt *kt) { return kt->cuda != NULL; }
uint32_t kt_sm(const struct kt *kt) { return kt->stream.sm; }
unsigned kt_sets(const struct kt *kt) { return kt->bench.sets; }
bool kt_slow_bench(const struct kt *kt) { return kt->bench.full; }
bool kt_wants_shape(const struct kt *kt, const char *shape)
{
    return fnmatch(kt->bench.shape_glob, shape, 0) == 0;
}

/* Processor time, on request, is for comparing variants on a machine with other work, with one thread. */
static clockid_t bench_clock = CLOCK_MONOTONIC;
uint64_t kt_now_ns(void)
{
    struct timespec ts;
    clock_gettime(bench_clock, &ts);
    return (uint64_t) ts.tv_sec * 1000000000u + (uint64_t) ts.tv_nsec;
}

struct work {
    const struct ps_kern *k;
    const void *args;
    uint64_t grain;
    size_t scratch_bytes;
    char *scratch;
    unsigned threads;
    /* Of each thread's share, that it works on first, as the product's pool does: begin << 32 | end. */
    _Atomic uint64_t range[KT_THREADS_MAX];
};

static bool take(struct work *w, unsigned of, bool own, struct ps_span *s)
{
    uint64_t r = atomic_load(&w->range[of]);
    for (uint64_t left; (left = (uint32_t) r - (r >> 32));) {
        const uint64_t n = own               ? ps_op_next_span(w->k->op, w->grain, left)
                           : w->grain < left ? w->grain
                                             : left;
        if (!atomic_compare_exchange_weak(&w->range[of], &r, own ? r + (n << 32) : r - n)) continue;
        s->begin = own ? r >> 32 : (uint32_t) r - n;
        s->end = s->begin + n;
        return true;
    }
    return false;
}

static void work_some(void *ud, unsigned worker)
{
    struct work *w = ud;
    struct ps_span s = { .scratch = w->scratch + worker * w->scratch_bytes };
    for (unsigned i = 0; i < w->threads; i++)
        while (take(w, (worker + i) % w->threads, i == 0, &s)) (void) w->k->run(w->args, &s);
}

struct cand {
    const char *name;
    const struct ps_kern *k; /* NULL for a peer that is another library's */
    const struct kt_peer *peer;
    const void *const *args;
    double s[SAMPLES_MAX];
    double med, mad, best;
};

static double pass(struct kt *kt, const struct kt_bench *b, const struct cand *c, char *scratch,
                   size_t scratch_bytes)
{
    if (kt->cuda) return kt_cuda_pass(kt, c->k, c->args, b->n_args, scratch) / b->n_args;
    const uint64_t t0 = kt_now_ns();
    for (unsigned i = 0; i < b->n_args; i++) {
        if (c->peer) {
            c->peer->run(c->peer->ud, i);
            continue;
        }
        struct work w = { .k = c->k, .args = b->args[i], .threads = kt->bench.threads };
        const uint64_t units = ps_op_units(b->op, b->args[i]);
        w.scratch = scratch;
        w.scratch_bytes = scratch_bytes;
        w.grain = w.threads == 1 ? units + !units : ps_op_grain(b->op, b->args[i], w.threads);
        for (unsigned t = 0; t < w.threads; t++)
            atomic_store(&w.range[t], units * t / w.threads << 32 | units * (t + 1) / w.threads);
        kt_pool_run(kt->pool, work_some, &w);
    }
    return (double) (kt_now_ns() - t0) / b->n_args;
}

/* The threads of some libraries spin for tens of milliseconds after a call, in the way of whoever comes next: let them
 * go to sleep, then run this candidate until its own threads are awake and each on a processor of its own. */
static void settle(struct kt *kt, const struct kt_bench *b, const struct cand *c, char *scratch,
                   size_t scratch_bytes)
{
    enum { SLEEP_MS = 60, WARM_MS = 40 };
    const struct timespec ts = { .tv_nsec = SLEEP_MS * 1000 * 1000 };
    if (kt->bench.cpu_time || kt->cuda) return;
    nanosleep(&ts, NULL);
    const uint64_t until = kt_now_ns() + WARM_MS * 1000000u;
    do {
        (void) pass(kt, b, c, scratch, scratch_bytes);
    } while (kt_now_ns() < until);
}

static void summarize(struct cand *c, unsigned n)
{
    double d[SAMPLES_MAX];
    qsort(c->s, n, sizeof c->s[0], ps_ascending);
    c->med = c->s[n / 2];
    c->best = c->s[0];
    for (unsigned i = 0; i < n; i++) d[i] = fabs(c->s[i] - c->med);
    qsort(d, n, sizeof d[0], ps_ascending);
    c->mad = d[n / 2];
}

/* One way to read memory; the best of all is the limit of the whole run. */
static double measure_read(struct kt *kt, unsigned way)
{
    const struct kt_read r = { kt->big[0].p, READ_BYTES, kt->bench.threads, way };
    const uint64_t t = kt_now_ns();
    kt_pool_run(kt->pool, kt_floor_read, (void *) &r);
    const double v = (double) READ_BYTES / (double) (kt_now_ns() - t);
    kt->floor_bytes = fmax(kt->floor_bytes, v);
    return v;
}
static void measure_fma(struct kt *kt)
{
    const uint64_t t = kt_now_ns();
    kt_pool_run(kt->pool, kt_floor_fma, kt);
    kt->floor_flops = fmax(kt->floor_flops, kt_floor_flops_of_one(kt) * kt->bench.threads /
                                                (double) (kt_now_ns() - t));
}

void kt_bench_open(struct kt *kt)
{
    if (kt->bench.cpu_time) bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    kt->pool = kt_pool_open(kt->bench.threads);
    const size_t bytes = kt->cuda ? 1 : READ_BYTES;
    memset(kt_big(kt, bytes), 1, bytes);
    for (int i = 0; i < 3 && !kt->cuda; i++) {
        measure_fma(kt);
        for (unsigned w = 0; w < KT_READ_WAYS; w++) (void) measure_read(kt, w);
    }
    printf("# floor: %.1f GFLOP/s, %.2f GB/s read, %u threads\n", kt->floor_flops, kt->floor_bytes,
           kt->bench.threads);
    if (kt->bench.json) fprintf(kt->bench.json, "[");
}
void kt_bench_close(struct kt *kt)
{
    kt_pool_close(kt->pool);
    printf("# floor at the end: %.1f GFLOP/s, %.2f GB/s read\n", kt->floor_flops, kt->floor_bytes);
    if (kt->bench.json) {
        fprintf(kt->bench.json,
                "%s\n{\"op\": \"limit\", \"row\": \"machine\", \"shape\": \"%u threads\", \"ns\": "
                "null, ",
                kt->bench.n_json ? "," : "", kt->bench.threads);
        fprintf(kt->bench.json,
                "\"gflops\": %.2f, \"gb_per_s\": %.3f, \"share_of_floor\": 1, \"peer\": null, "
                "\"peer_ns\": null}",
                kt->floor_flops, kt->floor_bytes);
        fprintf(kt->bench.json, "\n]\n");
        fclose(kt->bench.json);
    }
    while (kt->n_big) kt_big_pop(kt);
}

/* One record per peer, or one without. */
static void json(struct kt *kt, enum ps_op op, const char *shape, const struct cand *c,
                 const struct cand *peer, struct ps_cost cost, double share, double read_beside)
{
    FILE *f = kt->bench.json;
    fprintf(f, "%s\n{\"op\": \"%s\", \"row\": \"%s\", \"shape\": \"%s\", \"ns\": %.0f, ",
            kt->bench.n_json++ ? "," : "", ps_op_name(op), c->name, shape, c->med);
    fprintf(f, "\"gflops\": %.2f, \"gb_per_s\": %.3f, \"share_of_floor\": %.4f, ",
            cost.flops / c->med, cost.bytes / c->med, share);
    if (read_beside > 0)
        fprintf(f, "\"read_gb_per_s\": %.3f, ", read_beside); /* median beside the samples */
    if (peer)
        fprintf(f, "\"peer\": \"%s\", \"peer_ns\": %.0f}", peer->name, peer->med);
    else
        fprintf(f, "\"peer\": null, \"peer_ns\": null}");
}

static void report(struct kt *kt, const struct kt_bench *b, const char *shape, const struct cand *c,
                   unsigned n, double read_beside)
{
    const struct ps_cost cost = ps_op_cost(b->op, b->args[0]);
    const double floor_ns = fmax(cost.flops / kt->floor_flops, cost.bytes / kt->floor_bytes);
    for (unsigned i = 0; i < n; i++) {
        const double share = floor_ns / c[i].med;
        printf("  %-20s %-24s %12.0f ns +/- %4.1f%% (best %.0f) %8.1f GFLOP/s %7.2f GB/s %5.1f%% "
               "of floor",
               c[i].name, shape, c[i].med, 100 * c[i].mad / c[i].med, c[i].best,
               cost.flops / c[i].med, cost.bytes / c[i].med, 100 * share);
        for (unsigned j = 0; j < n && !c[i].peer; j++)
            if (c[j].peer) printf("  %.3f x %s", c[j].med / c[i].med, c[j].name);
        if (read_beside > 0)
            printf("  %.0f%% of reading beside it", 100 * cost.bytes / c[i].med / read_beside);
        printf("\n");
        if (!kt->bench.json || c[i].peer) continue;
        unsigned peers = 0;
        for (unsigned j = 0; j < n; j++)
            if (c[j].peer) peers++, json(kt, b->op, shape, &c[i], &c[j], cost, share, read_beside);
        if (!peers) json(kt, b->op, shape, &c[i], NULL, cost, share, read_beside);
    }
    fflush(stdout);
}

void kt_bench(struct kt *kt, const struct kt_bench *b, const char *shape_fmt, ...)
{
    char shape[96];
    struct cand c[CAND_MAX] = { 0 };
    unsigned n = 0, samples = 0;
    const enum ps_place place = kt->cuda ? PS_PLACE_CUDA : PS_PLACE_HOST;
    const uint32_t flags = kt->cuda ? kt->stream.sm : kt->cpu;
    const struct ps_kern *k, *best = ps_kern_pick(b->op, place, flags, b->args[0]);
    va_list ap;
    va_start(ap, shape_fmt);
    vsnprintf(shape, sizeof shape, shape_fmt, ap);
    va_end(ap);
    if (!kt_wants_shape(kt, shape)) return;

    for (size_t row = 0; (k = ps_kern_at(row)) && n < CAND_MAX; row++) {
        if (k->op != b->op || k->place != place || !kt_usable(kt, k) ||
            fnmatch(kt->var_glob, k->name, 0))
            continue;
        if (k->takes && !k->takes(b->args[0])) continue;
        if (!strcmp(kt->var_glob, "*") && k != best) continue; /* others on request: --variant= */
        c[n++] = (struct cand) { .name = k->name, .k = k, .args = b->args };
    }
    if (kt->cuda && !n) return; /* no row takes these args */
    for (unsigned i = 0; i < b->n_peers && n < CAND_MAX; i++)
        if (!kt->cuda || b->peers[i].args)
            c[n++] = (struct cand) {
                .name = b->peers[i].name, .k = best, .peer = &b->peers[i], .args = b->peers[i].args
            };
    size_t scratch_bytes = 0;
    for (unsigned i = 0; i < b->n_args; i++) {
        const size_t own =
            kt->cuda ? ps_kern_scratch(c[0].k, b->args[i]) : ps_op_scratch(b->op, b->args[i]);
        const size_t s = (own + 4095) & ~(size_t) 4095;
        if (s > scratch_bytes) scratch_bytes = s;
    }
    char *scratch = kt_big(kt, scratch_bytes * kt->bench.threads + 4096);
    for (unsigned i = 0; i < n; i++)
        c[i].s[0] = pass(kt, b, &c[i], scratch, scratch_bytes); /* warm */
    const struct ps_cost cost = ps_op_cost(b->op, b->args[0]);
    const bool memory_bound = !kt->cuda && 4 * cost.bytes / kt->floor_bytes >
                                               cost.flops / kt->floor_flops; /* or near it */
    struct cand read[KT_READ_WAYS] = { 0 }; /* medians per way; the best way counts */
    double read_beside = 0;
    const uint64_t t0 = kt_now_ns();
    while (samples < SAMPLES_MIN ||
           (samples < SAMPLES_MAX && (double) (kt_now_ns() - t0) < kt->bench.ms * 1e6)) {
        for (unsigned i = 0; i < n; i++) {
            if (b->n_peers) settle(kt, b, &c[i], scratch, scratch_bytes);
            c[i].s[samples] = pass(kt, b, &c[i], scratch, scratch_bytes);
        }
        for (unsigned w = 0; w < KT_READ_WAYS && memory_bound; w++)
            read[w].s[samples] = measure_read(kt, w);
        if (!kt->cuda) measure_fma(kt);
        samples++;
    }
    for (unsigned w = 0; w < KT_READ_WAYS; w++) {
        summarize(&read[w], samples);
        read_beside = fmax(read_beside, read[w].med);
    }
    for (unsigned i = 0; i < n; i++) summarize(&c[i], samples);
    report(kt, b, shape, c, n, read_beside);
    kt_big_pop(kt);
}
