/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: same bytes as a sequential run on whatever store, first error stays. (`sim`: sim_test.c) */
#include "engine/base/ps_mem.h"
#include "late_dev.h"
#include "offload/dev.h"
#include "ps_cmocka.h"
#include <fcntl.h>
#include <pthread.h>

enum { BUFS = 14, WORDS = 2048, BYTES = WORDS * 8, ON_DISK = 4, THREADS = 3, SCRATCH = 1 << 20 };

struct mix {
    uint64_t *y;
    const uint64_t *x;
    int fail;
};
static int mix(void *ud, uint64_t arg)
{
    const struct mix *m = ud;
    if (m->fail) return -m->fail;
    for (uint32_t i = 0; i < WORDS; i++) m->y[i] = m->y[i] * 31 + m->x[(i * 7 + 1) % WORDS] + arg;
    return 0;
}

struct rig {
    char path[64];
    struct ps_store *store;
    struct ps_dev *dev;
    uint8_t *mem; /* BUFS buffers */
    uint8_t *scratch;
    struct ps_buf b[BUFS];
    struct mix jobs[4000];
};

static struct rig *rig_open(const char *dev, const char *store, const char *fault)
{
    struct rig *g = ps_aligned(4096, sizeof *g);
    assert_non_null(g);
    memset(g, 0, sizeof *g);
    snprintf(g->path, sizeof g->path, "ps-dev-XXXXXX");
    int fd = mkstemp(g->path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, ON_DISK * BYTES), 0);
    close(fd);
    g->mem = ps_aligned(4096, BUFS * BYTES);
    g->scratch = ps_aligned(64, (THREADS + 1) * (size_t) SCRATCH);
    assert_non_null(g->mem);
    assert_non_null(g->scratch);
    struct ps_store_file f = { .path = g->path, .write = true };
    struct ps_store_cfg sc = { .files = &f,
                               .n_files = 1,
                               .depth = 7,
                               .fault = fault,
                               .mem = g->mem,
                               .mem_bytes = BUFS * BYTES };
    struct ps_detail dt = { { 0 } };
    if (ps_store_find(store))
        assert_ok_dt(ps_store_open(ps_store_find(store), &sc, &g->store, &dt), &dt);
    else
        assert_ok_dt(ps_store_open_best(&sc, &g->store, NULL, &dt), &dt);
    (void) unlink(g->path); /* the store has it open; a test that dies leaves nothing */
    struct ps_dev_cfg c = { .store = g->store,
                            .threads = THREADS,
                            .queue_len = 64,
                            .io_bytes = 4096,
                            .scratch = g->scratch,
                            .scratch_bytes = SCRATCH };
    static const struct {
        const char *name;
        int (*open)(const struct ps_dev_cfg *cfg, struct ps_dev **ret);
    } devs[] = { { "now", ps_dev_now_open },
                 { "cpu", ps_dev_cpu_open },
                 { "late", late_dev_open } };
    for (size_t i = 0; i < PS_ARRAY_LEN(devs); i++)
        if (strcmp(dev, devs[i].name) == 0) assert_ok(devs[i].open(&c, &g->dev));
    assert_non_null(g->dev);
    return g;
}

static void rig_close(struct rig *g)
{
    ps_dev_close(g->dev);
    ps_store_close(g->store);
    free(g->mem);
    free(g->scratch);
    free(g);
}

static void init_bufs(struct rig *g)
{
    for (int i = 0; i < BUFS; i++) {
        static const enum ps_where at[] = { PS_HOST, PS_GPU };
        bool disk = i < ON_DISK;
        g->b[i] = (struct ps_buf) { .where = disk ? PS_DISK : at[i % 2],
                                    .kind = (enum ps_kind)(i % PS_KIND__COUNT),
                                    .off = disk ? (uint64_t) i * BYTES : 0,
                                    .p = disk ? NULL : g->mem + (size_t) i * BYTES,
                                    .len_bytes = BYTES };
        uint64_t *w = (void *) (g->mem + (size_t) i * BYTES);
        for (int j = 0; j < WORDS; j++) w[j] = (uint64_t) (i * 1000 + j);
    }
}

/* Whole buffers, or rectangles of 4 KiB tiles. */
static struct ps_rect random_rect(unsigned *seed)
{
    if (rand_r(seed) % 2) return (struct ps_rect) { .row_bytes = BYTES, .rows = 1 };
    uint64_t rows = 1 + rand_r(seed) % 2;
    return (struct ps_rect) { .dst_off = 4096 * (uint64_t) (rand_r(seed) % 2),
                              .src_off = 4096 * (uint64_t) (rand_r(seed) % 2),
                              .row_bytes = 4096,
                              .rows = rows,
                              .dst_pitch = 4096 * (uint64_t) (1 + rand_r(seed) % 2),
                              .src_pitch = 4096 * (uint64_t) (1 + rand_r(seed) % 2) };
}

/* Random kernels and moves over a few buffers, on all queues; fail_at makes one kernel fail. */
static int random_run(struct rig *g, unsigned seed, unsigned n, unsigned fail_at)
{
    struct ps_dev *d = g->dev;
    init_bufs(g);
    for (int i = 0; i < ON_DISK; i++) {
        struct ps_buf *from = &g->b[ON_DISK + 2 * i];
        assert_ok(
            ps_dev_move(d, &g->b[i], from, &(struct ps_rect) { .row_bytes = BYTES, .rows = 1 }));
    }
    for (unsigned k = 1; k <= n; k++) {
        int x = rand_r(&seed) % BUFS, y = rand_r(&seed) % BUFS;
        enum ps_q q = rand_r(&seed) % 2 ? PS_Q_COMPUTE : PS_Q_HOST;
        bool x_disk = x < ON_DISK, y_disk = y < ON_DISK;
        struct ps_rect rect = random_rect(&seed);
        if (x == y || (x_disk && g->b[y].where != PS_HOST) || (y_disk && g->b[x].where != PS_HOST))
            continue;
        d->tag = k << 16;
        if (x_disk || y_disk || rand_r(&seed) % 3 == 0) {
            assert_ok(ps_dev_move(d, &g->b[y], &g->b[x], &rect));
            continue;
        }
        g->jobs[k] = (struct mix) { g->b[y].p, g->b[x].p, fail_at && k >= fail_at ? EDOM : 0 };
        if (g->jobs[k].fail) fail_at = n + 1;
        struct ps_call call = { mix, &g->jobs[k], k };
        assert_ok(ps_dev_run(d, q, PS_OP_call, &call,
                             (struct ps_use[]) { { &g->b[y], true }, { &g->b[x], false } }, 2));
    }
    int r = ps_dev_drain(d);
    for (int i = 0; r >= 0 && i < ON_DISK; i++) { /* what the disk holds counts as well */
        struct ps_buf out = { .where = PS_HOST,
                              .p = g->mem + (size_t) i * BYTES,
                              .len_bytes = BYTES };
        assert_ok(
            ps_dev_move(d, &out, &g->b[i], &(struct ps_rect) { .row_bytes = BYTES, .rows = 1 }));
        r = ps_dev_wait(d, &out, false);
    }
    return r;
}

static void equals_now(const char *dev, const char *store, const char *fault, unsigned seeds)
{
    for (unsigned seed = 1; seed <= seeds; seed++) {
        late_seed = seed;
        struct rig *now = rig_open("now", "pread", NULL), *cpu = rig_open(dev, store, fault);
        assert_ok(random_run(now, seed, 1500, 0));
        assert_ok(random_run(cpu, seed, 1500, 0));
        assert_memory_equal(now->mem, cpu->mem, BUFS * BYTES);
        struct ps_dev_stats a, b;
        ps_dev_stats_get(now->dev, &a);
        ps_dev_stats_get(cpu->dev, &b);
        assert_memory_equal(a.tasks, b.tasks, sizeof a.tasks);
        assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
        assert_string_equal(ps_dev_error_text(cpu->dev), "");
        rig_close(now);
        rig_close(cpu);
    }
}

static void cpu_equals_now(void **state) { equals_now("cpu", "best", NULL, 6); }
static void cpu_equals_now_pread(void **state) { equals_now("cpu", "pread", NULL, 4); }
static void cpu_equals_now_out_of_order(void **state)
{
    equals_now("cpu", "pread", "delay:200,reorder", 2);
    equals_now("cpu", "best", "delay:200,reorder,seed:9", 2);
}
static void cpu_equals_now_short_transfers(void **state)
{
    equals_now("cpu", "best", "short:2,intr:3", 2);
    equals_now("cpu", "pread", "short:3,intr:2", 2);
}

/* What `after` says is enough, whatever else the order. */
static void late_equals_now(void **state) { equals_now("late", "pread", NULL, 24); }

static void first_error_stays(void **state)
{
    static const char *const devs[] = { "now", "cpu", "late" };
    for (size_t i = 0; i < PS_ARRAY_LEN(devs); i++) {
        struct rig *g = rig_open(devs[i], "best", NULL);
        int r = random_run(g, 3, 1500, 500);
        assert_err(r, EDOM);
        const char *text = ps_dev_error_text(g->dev);
        assert_non_null(strstr(text, "call"));
        assert_non_null(strstr(text, "EDOM"));
        /* Nothing is done any more, and every wait says why. */
        uint64_t before = *(uint64_t *) g->b[ON_DISK].p;
        g->jobs[0] = (struct mix) { g->b[ON_DISK].p, g->b[ON_DISK + 1].p, 0 };
        struct ps_call call = { mix, &g->jobs[0], 1 };
        struct ps_use use = { &g->b[ON_DISK], true };
        assert_ok(ps_dev_run(g->dev, PS_Q_COMPUTE, PS_OP_call, &call, &use, 1));
        assert_err(ps_dev_wait(g->dev, &g->b[ON_DISK], false), EDOM);
        assert_true(before == *(uint64_t *) g->b[ON_DISK].p);
        rig_close(g);
    }
}

static void io_error_names_file_and_place(void **state)
{
    static const char *const devs[] = { "now", "cpu", "late" };
    static const struct {
        const char *fault, *word;
        int err;
    } cases[] = { { "read:9:EIO", "reading", EIO }, { "write:21:ENOSPC", "writing", ENOSPC } };
    for (size_t i = 0; i < PS_ARRAY_LEN(devs); i++)
        for (size_t k = 0; k < PS_ARRAY_LEN(cases); k++) {
            struct rig *g = rig_open(devs[i], "best", cases[k].fault);
            assert_err(random_run(g, 5, 1500, 0), cases[k].err);
            const char *text = ps_dev_error_text(g->dev);
            assert_non_null(strstr(text, g->path));
            assert_non_null(strstr(text, cases[k].word));
            assert_non_null(strstr(text, "offset"));
            assert_non_null(strstr(text, ps_err_name(cases[k].err)));
            rig_close(g);
        }
}

/* The first, second, third ... transfer fails: an error that tells so, never a hang or a wrong byte. */
static void every_io_fails_in_turn(void **state)
{
    struct rig *now = rig_open("now", "pread", NULL);
    assert_ok(random_run(now, 11, 60, 0));
    for (int write = 0; write < 2; write++)
        for (unsigned n = 1;; n++) {
            char fault[64];
            snprintf(fault, sizeof fault, "%s:%u:EIO,reorder,seed:%u", write ? "write" : "read", n,
                     n);
            struct rig *g = rig_open("cpu", n % 2 ? "best" : "pread", fault);
            int r = random_run(g, 11, 60, 0);
            bool through = r >= 0;
            if (through)
                assert_memory_equal(now->mem, g->mem, BUFS * BYTES);
            else
                assert_non_null(strstr(ps_dev_error_text(g->dev), write ? "writing" : "reading"));
            assert_true(through || r == -EIO);
            rig_close(g);
            if (through) break;
            assert_true(n < 1000);
        }
    rig_close(now);
}

static void bad_moves_are_refused(void **state)
{
    struct rig *g = rig_open("cpu", "best", NULL);
    init_bufs(g);
    struct ps_buf *host = &g->b[ON_DISK], *host2 = &g->b[ON_DISK + 2], *gpu = &g->b[ON_DISK + 1];
    const struct ps_rect out[] = {
        { .row_bytes = BYTES + 1, .rows = 1 },
        { .row_bytes = BYTES, .rows = 1, .src_off = 1 },
        { .row_bytes = 8, .rows = 3, .dst_pitch = BYTES / 2, .src_pitch = 8 },
        { .row_bytes = 8, .rows = UINT64_MAX / 4, .dst_pitch = 8, .src_pitch = 8 },
        { .row_bytes = 8, .rows = 2, .dst_pitch = 4, .src_pitch = 8 },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(out); i++)
        assert_err(ps_dev_move(g->dev, host2, host, &out[i]), ERANGE);
    struct ps_rect one = { .row_bytes = 4096, .rows = 1 }, odd = { .row_bytes = 100, .rows = 1 };
    assert_err(ps_dev_move(g->dev, &g->b[0], gpu, &one), EINVAL);
    assert_err(ps_dev_move(g->dev, &g->b[0], &g->b[1], &one), EINVAL);
    assert_err(ps_dev_move(g->dev, host, &g->b[0], &odd), EINVAL);
    assert_err(ps_dev_move(g->dev, host, host2, &(struct ps_rect) { 0 }), EINVAL);
    struct ps_call call = { mix, NULL, 0 };
    assert_err(ps_dev_run(g->dev, PS_Q_READ, PS_OP_call, &call, NULL, 0), EINVAL);
    assert_ok(ps_dev_drain(g->dev));
    rig_close(g);
}

/* What a task has not is no use; what it has counts none the less. */
static void absent_uses_are_passed_over(void **state)
{
    struct rig *g = rig_open("cpu", "best", NULL);
    init_bufs(g);
    struct ps_buf *x = &g->b[ON_DISK], *y = &g->b[ON_DISK + 2];
    g->jobs[0] = (struct mix) { y->p, x->p, 0 };
    struct ps_call call = { mix, &g->jobs[0], 1 };
    struct ps_use uses[] = { { NULL, false }, { y, true }, { NULL, true }, { x, false } };
    assert_ok(ps_dev_run(g->dev, PS_Q_HOST, PS_OP_call, &call, uses, 4));
    assert_int_equal(y->wrote, 1);
    assert_int_equal(x->read[PS_Q_HOST], 1);
    rig_close(g);
}

/* COMPUTE's rows are those of the device's place, HOST's are the host's everywhere. */
static void rows_are_of_the_queues_place(void **state)
{
    struct rig *g = rig_open("now", "best", NULL);
    struct ps_call call = { NULL, NULL, 0 };
    assert_int_equal(g->dev->where, PS_HOST);
    g->dev->place = PS_PLACE_CUDA;
    const struct ps_kern *ref = ps_kern_ref(PS_OP_call);
    assert_err(ps_dev_run(g->dev, PS_Q_COMPUTE, PS_OP_call, &call, NULL, 0), PS_EUNSUPPORTED);
    assert_err(ps_dev_run_kern(g->dev, PS_Q_COMPUTE, ref, &call, NULL, 0), EINVAL);
    init_bufs(g);
    g->jobs[0] = (struct mix) { g->b[ON_DISK].p, g->b[ON_DISK + 2].p, 0 };
    call = (struct ps_call) { mix, &g->jobs[0], 1 };
    assert_ok(ps_dev_run(g->dev, PS_Q_HOST, PS_OP_call, &call, NULL, 0));
    rig_close(g);
}

/* From anywhere in memory to anywhere: the queue that it is for, and exactly the rectangle's bytes. What lies on the device is filled and
 * read back by moves. */
static void move_between(struct rig *g, enum ps_where to, enum ps_where from, enum ps_q q)
{
    static uint8_t want[BYTES];
    struct ps_buf *in = &g->b[ON_DISK], *out = &g->b[ON_DISK + 2], a = g->b[ON_DISK + 4],
                  b = g->b[ON_DISK + 5];
    const struct ps_rect all = { .row_bytes = BYTES, .rows = 1 }, rect = {
        .dst_off = 5, .src_off = 700, .row_bytes = 33, .rows = 9, .dst_pitch = 35, .src_pitch = 1001
    };
    a.where = from;
    b.where = to;
    a.kind = b.kind = q == PS_Q_H2D ? PS_KIND_WEIGHTS : PS_KIND_KV;
    memcpy(want, out->p, BYTES);
    for (uint64_t i = 0; i < rect.rows; i++)
        memcpy(want + rect.dst_off + i * rect.dst_pitch,
               (uint8_t *) in->p + rect.src_off + i * rect.src_pitch, rect.row_bytes);
    assert_ok(ps_dev_move(g->dev, &a, in, &all));
    assert_ok(ps_dev_move(g->dev, &b, out, &all));
    uint64_t tasks = g->dev->submitted[q];
    assert_ok(ps_dev_move(g->dev, &b, &a, &rect));
    assert_int_equal(g->dev->submitted[q], tasks + 1);
    assert_ok(ps_dev_move(g->dev, out, &b, &all));
    assert_ok(ps_dev_wait(g->dev, out, false));
    assert_memory_equal(out->p, want, BYTES);
}

static void moves_between_memories(void **state)
{
    static const char *const devs[] = { "now", "cpu", "late" };
    for (size_t i = 0; i < PS_ARRAY_LEN(devs); i++) {
        struct rig *g = rig_open(devs[i], "best", NULL);
        init_bufs(g);
        move_between(g, PS_GPU, PS_GPU, PS_Q_COMPUTE);
        move_between(g, PS_HOST, PS_HOST, PS_Q_HOST);
        move_between(g, PS_GPU, PS_HOST, PS_Q_H2D);
        move_between(g, PS_GPU, PS_HOST, PS_Q_UP);
        move_between(g, PS_HOST, PS_GPU, PS_Q_D2H);
        rig_close(g);
    }
}

/* A write that must wait does not hold up reads. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool open;
};
static int wait_gate(void *ud, uint64_t arg)
{
    struct gate *g = ud;
    pthread_mutex_lock(&g->lock);
    while (!g->open) pthread_cond_wait(&g->change, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return 0;
}
static void queues_do_not_block_each_other(void **state)
{
    struct gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };
    struct rig *g = rig_open("cpu", "best", NULL);
    init_bufs(g);
    struct ps_buf *host = &g->b[ON_DISK], *host2 = &g->b[ON_DISK + 2];
    struct ps_rect all = { .row_bytes = BYTES, .rows = 1 };
    struct ps_call call = { wait_gate, &gate, 0 };
    struct ps_use use = { host, true };
    assert_ok(ps_dev_run(g->dev, PS_Q_COMPUTE, PS_OP_call, &call, &use, 1));
    assert_ok(ps_dev_move(g->dev, &g->b[0], host, &all));
    for (int i = 0; i < 20; i++) {
        assert_ok(ps_dev_move(g->dev, host2, &g->b[1], &all));
        assert_ok(ps_dev_wait(g->dev, host2, false)); /* hangs if the write is in the way */
    }
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.change);
    pthread_mutex_unlock(&gate.lock);
    assert_ok(ps_dev_drain(g->dev));
    rig_close(g);
}

static struct ps_linear linear_args(float *y, const float *x, const float *w)
{
    return (struct ps_linear) {
        .y = y, .x = x, .w = w, .m = 5, .n = 1000, .k = 33, .ldx = 33, .ldy = 1000, .wtype = PS_F32
    };
}

/* One op over all workers gives what one thread gives, again and again. */
static void pool_equals_one_thread(void **state)
{
    struct rig *g = rig_open("cpu", "best", NULL);
    static float x[5 * 33], w[1000 * 33], want[5000], got[5000];
    for (int i = 0; i < 5 * 33; i++) x[i] = (float) (i % 17) - 8;
    for (int i = 0; i < 1000 * 33; i++) w[i] = (float) (i % 29) / 7;
    struct ps_linear a = linear_args(want, x, w);
    ps_auto_free void *scratch = ps_aligned(64, ps_op_scratch(PS_OP_linear, &a) + 64);
    assert_non_null(scratch);
    assert_ok(ps_kern_run_all(ps_kern_ref(PS_OP_linear), &a, scratch));
    a.y = got;
    assert_true(ps_op_scratch(PS_OP_linear, &a) <= SCRATCH);
    struct ps_buf out = { .where = PS_HOST, .p = got, .len_bytes = sizeof got };
    struct ps_use use = { &out, true };
    for (int i = 0; i < 300; i++) {
        memset(got, 0xff, sizeof got);
        assert_ok(ps_dev_run_kern(g->dev, PS_Q_COMPUTE, ps_kern_ref(PS_OP_linear), &a, &use, 1));
        assert_ok(ps_dev_wait(g->dev, &out, true));
        assert_memory_equal(want, got, sizeof want);
    }
    struct ps_dev_stats st;
    ps_dev_stats_get(g->dev, &st);
    assert_true(st.tasks[PS_Q_COMPUTE] == 300 && st.op_ns[PS_OP_linear] > 0);
    assert_true(st.flops[PS_Q_COMPUTE] > 0);
    rig_close(g);
}

static void open_survives_oom(void **state)
{
    for (unsigned n = 1;; n++) {
        struct ps_dev_cfg c = { .threads = 2 };
        struct ps_dev *d = (void *) 0x1;
        ps_mem_fault_arm(n);
        int r = ps_dev_cpu_open(&c, &d), hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (!hit) {
            assert_ok(r);
            ps_dev_close(d);
            break;
        }
        assert_err(r, ENOMEM);
        assert_true(d == (void *) 0x1 && n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_equals_now),
        cmocka_unit_test(cpu_equals_now_pread),
        cmocka_unit_test(cpu_equals_now_out_of_order),
        cmocka_unit_test(cpu_equals_now_short_transfers),
        cmocka_unit_test(late_equals_now),
        cmocka_unit_test(first_error_stays),
        cmocka_unit_test(io_error_names_file_and_place),
        cmocka_unit_test(every_io_fails_in_turn),
        cmocka_unit_test(bad_moves_are_refused),
        cmocka_unit_test(absent_uses_are_passed_over),
        cmocka_unit_test(rows_are_of_the_queues_place),
        cmocka_unit_test(moves_between_memories),
        cmocka_unit_test(queues_do_not_block_each_other),
        cmocka_unit_test(pool_equals_one_thread),
        cmocka_unit_test(open_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
