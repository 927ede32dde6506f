/* SPDX-License-Identifier: Apache-2.0 */
/* Streams a file through the device as weights are streamed: tasks of some MiB into a ring of host buffers, each
 * buffer used (by nobody) before it is read into again. Prints one JSON line. bench/disk.py compares it with fio. */
#include "engine/base/ps_mem.h"
#include "offload/arena.h"
#include "offload/dev.h"
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct opts {
    const char *path, *store;
    uint64_t bytes, task_bytes, io_bytes, slots, depth;
};

static int nothing(void *ud, uint64_t arg) { return 0; }

static double now_s(void)
{
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double) ts.tv_sec + (double) ts.tv_nsec * 1e-9;
}

static int parse(int argc, char **argv, struct opts *o)
{
    static const struct option longs[] = {
        { "store", 1, NULL, 's' },
        { "bytes", 1, NULL, 'b' },
        { "task", 1, NULL, 't' },
        { "io", 1, NULL, 'i' },
        { "slots", 1, NULL, 'n' },
        { "depth", 1, NULL, 'd' },
        { 0 },
    };
    *o = (struct opts) { .task_bytes = 8 << 20, .slots = 8 };
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        uint64_t v = c == 's' ? 0 : strtoull(optarg, NULL, 10);
        switch (c) {
        case 's': o->store = optarg; break;
        case 'b': o->bytes = v; break;
        case 't': o->task_bytes = v; break;
        case 'i': o->io_bytes = v; break;
        case 'n': o->slots = v; break;
        case 'd': o->depth = v; break;
        default: return -EINVAL;
        }
    }
    if (optind + 1 != argc || !o->slots || o->slots > 64 || !o->task_bytes ||
        o->task_bytes > 1 << 30 || o->io_bytes > 1 << 30 || o->depth > 4096)
        return -EINVAL;
    o->path = argv[optind];
    return 0;
}

static int stream(struct ps_dev *d, const struct opts *o, struct ps_buf *disk, uint8_t *mem)
{
    struct ps_buf slot[64] = { 0 };
    for (unsigned i = 0; i < o->slots; i++)
        slot[i] = (struct ps_buf) { .where = PS_HOST,
                                    .kind = PS_KIND_WEIGHTS,
                                    .p = mem + i * o->task_bytes,
                                    .len_bytes = o->task_bytes };
    for (uint64_t at = 0, i = 0; at + o->task_bytes <= o->bytes; at += o->task_bytes, i++) {
        struct ps_buf *to = &slot[i % o->slots];
        struct ps_call call = { nothing, NULL, 0 };
        struct ps_use use = { to, false };
        struct ps_rect r = { .row_bytes = o->task_bytes, .rows = 1, .src_off = at };
        int e = ps_dev_move(d, to, disk, &r);
        if (e >= 0) e = ps_dev_run(d, PS_Q_COMPUTE, PS_OP_call, &call, &use, 1);
        if (e < 0) return e;
    }
    return ps_dev_drain(d);
}

static int measure(const struct opts *given, struct ps_detail *dt)
{
    struct opts o = *given;
    ps_auto_arena struct ps_arena *a = NULL;
    ps_auto_store struct ps_store *t = NULL;
    ps_auto_dev struct ps_dev *d = NULL;
    void *mem;
    struct ps_arena_cfg ac = { .bytes = o.slots * o.task_bytes, .populate = true };
    int r = ps_arena_open(&ac, &a, dt);
    if (r >= 0) r = ps_arena_alloc(a, "slots", o.slots, o.task_bytes, 4096, &mem, dt);
    if (r < 0) return r;
    struct ps_store_file f = { .path = o.path };
    struct ps_store_cfg sc = { .files = &f,
                               .n_files = 1,
                               .depth = (uint32_t) o.depth,
                               .mem = mem,
                               .mem_bytes = o.slots * o.task_bytes };
    const struct ps_store_ops *ops = o.store ? ps_store_find(o.store) : NULL;
    if (o.store && !ops) return ps_fail(dt, -EINVAL, "no store is called %s", o.store);
    r = ops ? ps_store_open(ops, &sc, &t, dt) : ps_store_open_best(&sc, &t, NULL, dt);
    if (r < 0) return r;
    if (!o.bytes || o.bytes > f.size) o.bytes = f.size;
    struct ps_dev_cfg dc = { .store = t, .threads = 1, .io_bytes = (uint32_t) o.io_bytes };
    r = ps_dev_cpu_open(&dc, &d);
    if (r < 0) return ps_fail(dt, r, "opening the device: %s", ps_err_str(r));
    struct ps_buf disk = { .where = PS_DISK, .kind = PS_KIND_WEIGHTS, .len_bytes = f.size };
    double t0 = now_s(), cpu0 = (double) clock() / CLOCKS_PER_SEC;
    r = stream(d, &o, &disk, mem);
    double s = now_s() - t0, cpu = (double) clock() / CLOCKS_PER_SEC - cpu0;
    if (r < 0) return ps_fail(dt, r, "%s", ps_dev_error_text(d));
    struct ps_dev_stats st;
    ps_dev_stats_get(d, &st);
    uint64_t bytes = st.bytes[PS_Q_READ][PS_KIND_WEIGHTS];
    (void) printf(
        "{\"store\": \"%s\", \"direct\": %s, \"fixed_bufs\": %s, \"bytes\": %llu, \"s\": %.6f, "
        "\"cpu_s\": %.6f, \"bytes_per_s\": %.0f}\n",
        t->ops->name, t->info.direct ? "true" : "false", t->info.fixed_bufs ? "true" : "false",
        (unsigned long long) bytes, s, cpu, (double) bytes / s);
    return 0;
}

int main(int argc, char **argv)
{
    struct opts o;
    struct ps_detail dt = { { 0 } };
    if (parse(argc, argv, &o) < 0) {
        (void) fprintf(stderr, "usage: disk_read FILE [--store uring|pread] [--bytes N] [--task N] "
                               "[--io N] [--slots N] [--depth N]\n");
        return 2;
    }
    int r = measure(&o, &dt);
    if (r < 0) (void) fprintf(stderr, "disk_read: %s (%s)\n", dt.text, ps_err_name(r));
    return r < 0;
}
