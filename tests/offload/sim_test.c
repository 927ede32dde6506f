/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated device beside pencil and paper. Kernels are calls that read 1e9 bytes a second: a call of s * 1e9 bytes takes s seconds. */
#include "offload/dev.h"
#include "offload/profile.h"
#include "ps_cmocka.h"
#include <math.h>

static const double G = 1e9;

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want)))) fail_msg("%.12g, wanted %.12g", got, want);
}

enum { SPANS = 64 };
struct rig {
    struct ps_profile profile;
    struct ps_sim_cfg cfg;
    struct ps_dev *dev;
    struct ps_detail outside;
    struct {
        enum ps_q q;
        double t0, t1;
    } span[SPANS];
    unsigned n_spans;
};

static void note(void *ud, enum ps_q q, const struct ps_task *t, uint64_t t0, uint64_t t1)
{
    struct rig *g = ud;
    if (g->n_spans == SPANS) return;
    g->span[g->n_spans].q = q;
    g->span[g->n_spans].t0 = (double) t0 * 1e-9;
    g->span[g->n_spans++].t1 = (double) t1 * 1e-9;
}

/* Everything that is not in the profile costs nothing; calls have 1 GB/s. */
static struct rig *rig_open(struct ps_profile profile, bool gpu)
{
    static struct rig g;
    g = (struct rig) { .profile = profile };
    g.profile.host.op[PS_OP_call] = g.profile.gpu.op[PS_OP_call] = G;
    g.cfg = (struct ps_sim_cfg) {
        .profile = &g.profile, .gpu = gpu, .trace = note, .trace_ud = &g, .outside = &g.outside
    };
    assert_ok(ps_dev_sim_open(&g.cfg, &g.dev));
    assert_true(ps_dev_is_sim(g.dev));
    return &g;
}

static double drained(struct rig *g)
{
    assert_ok(ps_dev_drain(g->dev));
    return ps_dev_sim_now_s(g->dev);
}

static struct ps_buf buf(enum ps_where where)
{
    return (struct ps_buf) { .where = where, .len_bytes = UINT64_MAX };
}

static void move(struct rig *g, struct ps_buf *dst, struct ps_buf *src, double bytes)
{
    const struct ps_rect r = { .row_bytes = (uint64_t) bytes, .rows = 1 };
    assert_ok(ps_dev_move(g->dev, dst, src, &r));
}

/* Between buffers that nobody else uses. */
static void move_alone(struct rig *g, enum ps_where to, enum ps_where from, enum ps_kind kind,
                       double bytes)
{
    struct ps_buf a = buf(to), b = buf(from);
    a.kind = b.kind = kind;
    move(g, &a, &b, bytes);
}

static int nothing(void *ud, uint64_t arg) { return 0; }

static void call(struct rig *g, enum ps_q q, double s, struct ps_buf *wrote, struct ps_buf *read)
{
    const struct ps_call c = { nothing, NULL, 0, (uint64_t) llround(s * G) };
    const struct ps_use uses[] = { { wrote, true }, { read, false } };
    assert_ok(ps_dev_run(g->dev, q, PS_OP_call, &c, uses, 2));
}

static struct ps_dev_stats stats(struct rig *g)
{
    struct ps_dev_stats st;
    ps_dev_stats_get(g->dev, &st);
    return st;
}

/* ---- queues */

static void one_link_only(void **state)
{
    struct rig *g =
        rig_open((struct ps_profile) { .disk_read.alone = 2 * G, .disk_s = 0.25 }, false);
    for (int i = 0; i < 5; i++) move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 3 * G);
    near(ps_dev_sim_now_s(g->dev), 0); /* nobody has waited yet */
    near(drained(g), 5 * (0.25 + 1.5));
    near(ps_dev_sim_busy_s(g->dev, PS_Q_READ), 5 * 1.75);
    const struct ps_dev_stats st = stats(g);
    assert_int_equal(st.tasks[PS_Q_READ], 5);
    assert_true(st.bytes[PS_Q_READ][PS_KIND_WEIGHTS] == UINT64_C(15000000000));
    assert_true(st.idle_ns == UINT64_C(8750000000));
    near(g->span[4].t0, 4 * 1.75);
    near(g->span[4].t1, 5 * 1.75);
    ps_dev_close(g->dev);
}

static void two_queues_overlap(void **state)
{
    struct rig *g = rig_open((struct ps_profile) { 0 }, false);
    for (int i = 0; i < 4; i++) call(g, PS_Q_COMPUTE, 3, NULL, NULL);
    for (int i = 0; i < 10; i++) call(g, PS_Q_HOST, 1, NULL, NULL);
    near(drained(g), 12);
    near((double) stats(g).op_ns[PS_OP_call] * 1e-9, 22);
    ps_dev_close(g->dev);
}

/* A layer's weights come from disk through a ring of `depth` slots and are used once: read r, compute c. */
static double stream(struct rig *g, unsigned layers, unsigned depth, double r, double c)
{
    struct ps_buf disk = buf(PS_DISK), x = buf(PS_HOST), ring[8];
    for (unsigned i = 0; i < depth; i++) ring[i] = buf(PS_HOST), ring[i].kind = PS_KIND_WEIGHTS;
    for (unsigned j = 0; j < layers; j++) {
        move(g, &ring[j % depth], &disk, r * G);
        call(g, PS_Q_COMPUTE, c, &x, &ring[j % depth]);
    }
    return drained(g);
}

static void a_ring(void **state)
{
    static const double work[][2] = { { 4, 1 }, { 1, 4 }, { 2, 2 }, { 0.5, 3 } };
    for (size_t i = 0; i < PS_ARRAY_LEN(work); i++)
        for (unsigned depth = 1; depth <= 3; depth++) {
            const double r = work[i][0], c = work[i][1];
            struct rig *g = rig_open((struct ps_profile) { .disk_read.alone = G }, false);
            const double got = stream(g, 10, depth, r, c),
                         want = depth == 1 ? 10 * (r + c) : r + 9 * fmax(r, c) + c;
            near(got, want);
            near(ps_dev_sim_busy_s(g->dev, PS_Q_READ), 10 * r);
            near(ps_dev_sim_busy_s(g->dev, PS_Q_COMPUTE), 10 * c);
            const struct ps_dev_stats st = stats(g);
            near((double) st.stall_ns[PS_KIND_WEIGHTS] * 1e-9, want - 10 * c);
            assert_true(st.idle_ns == 0);
            ps_dev_close(g->dev);
        }
}

/* What is submitted after a wait begins no earlier; the wait takes no longer than what it is for. */
static void waits_take_time(void **state)
{
    struct rig *g = rig_open((struct ps_profile) { .disk_read.alone = G }, false);
    struct ps_buf disk = buf(PS_DISK), a = buf(PS_HOST), b = buf(PS_HOST);
    move(g, &a, &disk, 1 * G);
    move(g, &b, &disk, 5 * G);
    assert_ok(ps_dev_wait(g->dev, &a, false));
    near(ps_dev_sim_now_s(g->dev), 1);
    call(g, PS_Q_COMPUTE, 2, NULL, NULL);
    near(drained(g), 6);
    for (unsigned i = 0; i < g->n_spans; i++)
        if (g->span[i].q == PS_Q_COMPUTE) near(g->span[i].t0, 1), near(g->span[i].t1, 3);
    assert_int_equal(g->n_spans, 3);
    ps_dev_close(g->dev);
}

/* However long ago a buffer was written, a reader waits for that task and not for later ones of its queue; a full queue makes the host
 * wait until a quarter of it is free. */
static void queues_are_bounded(void **state)
{
    struct rig *g = rig_open((struct ps_profile) { .disk_read.alone = G }, false);
    struct ps_buf disk = buf(PS_DISK), old = buf(PS_HOST), x = buf(PS_HOST), a = buf(PS_HOST);
    ps_dev_close(g->dev);
    g->cfg.queue_len = 8;
    assert_ok(ps_dev_sim_open(&g->cfg, &g->dev));
    move(g, &old, &disk, 1 * G);
    for (int i = 0; i < 7; i++) move(g, &a, &disk, 1 * G);
    near(ps_dev_sim_now_s(g->dev), 0);
    call(g, PS_Q_COMPUTE, 1, &x, &old);
    move(g, &a, &disk, 1 * G);
    near(ps_dev_sim_now_s(g->dev), 3); /* one, and two more */
    assert_ok(ps_dev_wait(g->dev, &x, false));
    near(ps_dev_sim_now_s(g->dev), 3);
    call(g, PS_Q_COMPUTE, 1, &x, &old);
    assert_ok(ps_dev_wait(g->dev, &x, false));
    near(ps_dev_sim_now_s(g->dev), 4);
    near(drained(g), 9);
    ps_dev_close(g->dev);
}

/* ---- what is shared */

static void both_ways_of_the_disk(void **state)
{
    struct rig *g = rig_open(
        (struct ps_profile) { .disk_read = { 4 * G, 3 * G }, .disk_write = { 2 * G, 1 * G } },
        false);
    move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 12 * G);
    move_alone(g, PS_DISK, PS_HOST, PS_KIND_KV, 2 * G);
    near(drained(g), 2 + 6.0 / 4); /* 2 s beside, the rest alone */
    ps_dev_close(g->dev);
}

static void both_ways_of_the_link(void **state)
{
    const struct ps_profile x = { .h2d = { 4 * G, 3 * G }, .d2h = { 4 * G, 2 * G } };
    struct rig *g = rig_open(x, true);
    move_alone(g, PS_GPU, PS_HOST, PS_KIND_KV, 12 * G);
    move_alone(g, PS_HOST, PS_GPU, PS_KIND_KV, 4 * G);
    near(drained(g), 2 + 6.0 / 4);
    ps_dev_close(g->dev);
    /* Weights and the rest are two queues on one way. */
    g = rig_open(x, true);
    move_alone(g, PS_GPU, PS_HOST, PS_KIND_WEIGHTS, 8 * G);
    move_alone(g, PS_GPU, PS_HOST, PS_KIND_KV, 2 * G);
    near(drained(g), 2.5);
    near(ps_dev_sim_busy_s(g->dev, PS_Q_UP), 1);
    near(ps_dev_sim_busy_s(g->dev, PS_Q_H2D), 2.5);
    ps_dev_close(g->dev);
}

/* The time that a copy takes whatever its size, nobody else misses. */
static void latency_shares_nothing(void **state)
{
    struct rig *g =
        rig_open((struct ps_profile) { .h2d.alone = G, .d2h.alone = G, .copy_s = 0.5 }, true);
    move_alone(g, PS_GPU, PS_HOST, PS_KIND_WEIGHTS, 0.5 * G);
    move_alone(g, PS_GPU, PS_HOST, PS_KIND_KV, 0.5 * G);
    near(drained(g), 1);
    ps_dev_close(g->dev);
}

static void memory_under_compute_and_disk(void **state)
{
    /* A call reads 1 GB/s of the 1.25 that there are; the disk writes 1 GB/s into them: both at 5/8. */
    struct rig *g =
        rig_open((struct ps_profile) { .host.mem = 1.25 * G, .disk_read.alone = 1 * G }, false);
    call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 2 * G);
    near(drained(g), 2 / 0.625 + 2);
    ps_dev_close(g->dev);
    /* Beside a GPU, COMPUTE uses none of it. */
    g = rig_open((struct ps_profile) { .host.mem = 1.25 * G, .disk_read.alone = 1 * G }, true);
    call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 2 * G);
    near(drained(g), 4);
    ps_dev_close(g->dev);
}

static void cores(void **state)
{
    /* Three threads on two cores: each has two thirds. */
    struct rig *g = rig_open((struct ps_profile) { .cores = 2, .threads = 2 }, false);
    call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    call(g, PS_Q_HOST, 2, NULL, NULL);
    near(drained(g), 3 + 2);
    ps_dev_close(g->dev);
    /* One core is left for it. */
    g = rig_open((struct ps_profile) { .cores = 3, .threads = 2 }, false);
    call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    call(g, PS_Q_HOST, 2, NULL, NULL);
    near(drained(g), 4);
    ps_dev_close(g->dev);
    /* Half a core is taken by transfers while there are some. */
    g = rig_open(
        (struct ps_profile) { .cores = 2, .threads = 2, .io_cores = 0.5, .disk_read.alone = G },
        false);
    call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 2 * G);
    near(drained(g), 2.5 + 2);
    ps_dev_close(g->dev);
    /* Beside a GPU all threads are behind HOST. */
    g = rig_open(
        (struct ps_profile) { .cores = 2, .threads = 2, .io_cores = 0.5, .disk_read.alone = G },
        true);
    call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    call(g, PS_Q_HOST, 4, NULL, NULL);
    move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 2 * G);
    near(drained(g), 2.5 + 2);
    ps_dev_close(g->dev);
}

/* Two ran out of memory; the third shares cores with one of them, and gets what that leaves. */
static void what_is_left_is_used(void **state)
{
    struct rig *g = rig_open((struct ps_profile) { .cores = 1,
                                                   .threads = 1,
                                                   .host.mem = 4 * G,
                                                   .disk_read.alone = 4 * G,
                                                   .disk_write.alone = 4 * G },
                             false);
    /* Reads and writes use all of memory, each: half speed. HOST uses a quarter of it and a core. */
    move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 8 * G);
    move_alone(g, PS_DISK, PS_HOST, PS_KIND_KV, 8 * G);
    call(g, PS_Q_HOST, 1, NULL, NULL);
    /* All at 1 / 2.25 until the call is done at 2.25 s, then two at 1/2. */
    near(drained(g), 2.25 + (2 - 1) * 2);
    ps_dev_close(g->dev);
    /* COMPUTE and HOST at half speed each, for the core; memory is then free for the disk. */
    g = rig_open(
        (struct ps_profile) {
            .cores = 1, .threads = 1, .host.mem = 2 * G, .disk_read.alone = 1 * G },
        false);
    call(g, PS_Q_COMPUTE, 1, NULL, NULL);
    call(g, PS_Q_HOST, 1, NULL, NULL);
    move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 2 * G);
    near(drained(g), 2);
    ps_dev_close(g->dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_link_only),
        cmocka_unit_test(two_queues_overlap),
        cmocka_unit_test(a_ring),
        cmocka_unit_test(waits_take_time),
        cmocka_unit_test(queues_are_bounded),
        cmocka_unit_test(both_ways_of_the_disk),
        cmocka_unit_test(both_ways_of_the_link),
        cmocka_unit_test(latency_shares_nothing),
        cmocka_unit_test(memory_under_compute_and_disk),
        cmocka_unit_test(cores),
        cmocka_unit_test(what_is_left_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
