/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated device beside pencil and paper: queues, waits, and what queues share. (Prices: sim_price_test.c) */
#include "engine/base/ps_mem.h"
#include "ps_cmocka.h"
#include "virtual_rig.h"
#include <math.h>

/* ---- queues */

static void one_link_only(void **state)
{
    struct rig *g =
        rig_open((struct ps_profile) { .disk_read.alone = 2 * G, .disk_s = 0.25 }, false);
    for (int i = 0; i < 5; i++) rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 3 * G);
    near(ps_dev_sim_now_s(g->dev), 0); /* nobody has waited yet */
    near(rig_drained(g), 5 * (0.25 + 1.5));
    near(ps_dev_sim_busy_s(g->dev, PS_Q_READ), 5 * 1.75);
    const struct ps_dev_stats st = rig_stats(g);
    assert_int_equal(st.tasks[PS_Q_READ], 5);
    assert_true(st.bytes[PS_Q_READ][PS_KIND_WEIGHTS] == UINT64_C(15000000000));
    assert_true(st.idle_ns == UINT64_C(8750000000));
    near(g->span[4].t0, 4 * 1.75);
    near(g->span[4].t1, 5 * 1.75);
}

static void two_queues_overlap(void **state)
{
    struct rig *g = rig_open((struct ps_profile) { 0 }, false);
    for (int i = 0; i < 4; i++) rig_call(g, PS_Q_COMPUTE, 3, NULL, NULL);
    for (int i = 0; i < 10; i++) rig_call(g, PS_Q_HOST, 1, NULL, NULL);
    near(rig_drained(g), 12);
    near((double) rig_stats(g).op_ns[PS_OP_call] * 1e-9, 22);
}

/* A layer's weights come from disk through a ring of `depth` slots and are used once: read r, compute c. */
static double stream(struct rig *g, unsigned layers, unsigned depth, double r, double c)
{
    struct ps_buf disk = rig_buf(PS_DISK), x = rig_buf(PS_HOST), ring[8];
    for (unsigned i = 0; i < depth; i++) ring[i] = rig_buf(PS_HOST), ring[i].kind = PS_KIND_WEIGHTS;
    for (unsigned j = 0; j < layers; j++) {
        rig_move(g, &ring[j % depth], &disk, r * G);
        rig_call(g, PS_Q_COMPUTE, c, &x, &ring[j % depth]);
    }
    return rig_drained(g);
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
            const struct ps_dev_stats st = rig_stats(g);
            near((double) st.stall_ns[PS_KIND_WEIGHTS] * 1e-9, want - 10 * c);
            assert_true(st.idle_ns == 0);
        }
}

/* What is submitted after a wait begins no earlier; the wait takes no longer than what it is for. */
static void waits_take_time(void **state)
{
    struct rig *g = rig_open((struct ps_profile) { .disk_read.alone = G }, false);
    struct ps_buf disk = rig_buf(PS_DISK), a = rig_buf(PS_HOST), b = rig_buf(PS_HOST);
    rig_move(g, &a, &disk, 1 * G);
    rig_move(g, &b, &disk, 5 * G);
    assert_ok(ps_dev_wait(g->dev, &a, false));
    near(ps_dev_sim_now_s(g->dev), 1);
    rig_call(g, PS_Q_COMPUTE, 2, NULL, NULL);
    near(rig_drained(g), 6);
    for (unsigned i = 0; i < g->n_spans; i++)
        if (g->span[i].q == PS_Q_COMPUTE) near(g->span[i].t0, 1), near(g->span[i].t1, 3);
    assert_int_equal(g->n_spans, 3);
}

/* However long ago a buffer was written, a reader waits for that task and not for later ones of its queue; a full queue makes the host
 * wait until a quarter of it is free. */
static void queues_are_bounded(void **state)
{
    struct rig *g = rig_open((struct ps_profile) { .disk_read.alone = G }, false);
    struct ps_buf disk = rig_buf(PS_DISK), old = rig_buf(PS_HOST), x = rig_buf(PS_HOST),
                  a = rig_buf(PS_HOST);
    g->cfg.queue_len = 8;
    rig_reopen(g);
    rig_move(g, &old, &disk, 1 * G);
    for (int i = 0; i < 7; i++) rig_move(g, &a, &disk, 1 * G);
    near(ps_dev_sim_now_s(g->dev), 0);
    rig_call(g, PS_Q_COMPUTE, 1, &x, &old);
    rig_move(g, &a, &disk, 1 * G);
    near(ps_dev_sim_now_s(g->dev), 3); /* one, and two more */
    assert_ok(ps_dev_wait(g->dev, &x, false));
    near(ps_dev_sim_now_s(g->dev), 3);
    rig_call(g, PS_Q_COMPUTE, 1, &x, &old);
    assert_ok(ps_dev_wait(g->dev, &x, false));
    near(ps_dev_sim_now_s(g->dev), 4);
    near(rig_drained(g), 9);
}

/* ---- what is shared */

static void both_ways_of_the_disk(void **state)
{
    struct rig *g = rig_open(
        (struct ps_profile) { .disk_read = { 4 * G, 3 * G }, .disk_write = { 2 * G, 1 * G } },
        false);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 12 * G);
    rig_move_alone(g, PS_DISK, PS_HOST, PS_KIND_KV, 2 * G);
    near(rig_drained(g), 2 + 6.0 / 4); /* 2 s beside, the rest alone */
}

static void both_ways_of_the_link(void **state)
{
    const struct ps_profile x = { .h2d = { 4 * G, 3 * G }, .d2h = { 4 * G, 2 * G } };
    struct rig *g = rig_open(x, true);
    rig_move_alone(g, PS_GPU, PS_HOST, PS_KIND_KV, 12 * G);
    rig_move_alone(g, PS_HOST, PS_GPU, PS_KIND_KV, 4 * G);
    near(rig_drained(g), 2 + 6.0 / 4);
    /* Weights and the rest are two queues on one way. */
    g = rig_open(x, true);
    rig_move_alone(g, PS_GPU, PS_HOST, PS_KIND_WEIGHTS, 8 * G);
    rig_move_alone(g, PS_GPU, PS_HOST, PS_KIND_KV, 2 * G);
    near(rig_drained(g), 2.5);
    near(ps_dev_sim_busy_s(g->dev, PS_Q_UP), 1);
    near(ps_dev_sim_busy_s(g->dev, PS_Q_H2D), 2.5);
}

/* The time that a copy takes whatever its size, nobody else misses. */
static void latency_shares_nothing(void **state)
{
    struct rig *g =
        rig_open((struct ps_profile) { .h2d.alone = G, .d2h.alone = G, .copy_s = 0.5 }, true);
    rig_move_alone(g, PS_GPU, PS_HOST, PS_KIND_WEIGHTS, 0.5 * G);
    rig_move_alone(g, PS_GPU, PS_HOST, PS_KIND_KV, 0.5 * G);
    near(rig_drained(g), 1);
}

static void memory_under_compute_and_disk(void **state)
{
    /* A call reads 1 GB/s of the 1.25 that there are, of which the disk takes 1 first. */
    struct rig *g =
        rig_open((struct ps_profile) { .host.mem = 1.25 * G, .disk_read.alone = 1 * G }, false);
    rig_call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 2 * G);
    near(rig_drained(g), 2 + 4 - 2 * 0.25);
    /* Beside a GPU, COMPUTE uses none of it. */
    g = rig_open((struct ps_profile) { .host.mem = 1.25 * G, .disk_read.alone = 1 * G }, true);
    rig_call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 2 * G);
    near(rig_drained(g), 4);
}

static void cores(void **state)
{
    /* Three threads on two cores: each has two thirds. */
    struct rig *g = rig_open((struct ps_profile) { .cores = 2, .threads = 2 }, false);
    rig_call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    rig_call(g, PS_Q_HOST, 2, NULL, NULL);
    near(rig_drained(g), 3 + 2);
    /* One core is left for it. */
    g = rig_open((struct ps_profile) { .cores = 3, .threads = 2 }, false);
    rig_call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    rig_call(g, PS_Q_HOST, 2, NULL, NULL);
    near(rig_drained(g), 4);
    /* Half a core is taken by transfers while there are some. */
    g = rig_open(
        (struct ps_profile) { .cores = 2, .threads = 2, .io_cores = 0.5, .disk_read.alone = G },
        false);
    rig_call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 2 * G);
    near(rig_drained(g), 2 + 4 - 2 * 0.75);
    /* Beside a GPU all threads are behind HOST. */
    g = rig_open(
        (struct ps_profile) { .cores = 2, .threads = 2, .io_cores = 0.5, .disk_read.alone = G },
        true);
    rig_call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    rig_call(g, PS_Q_HOST, 4, NULL, NULL);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 2 * G);
    near(rig_drained(g), 2.5 + 2);
}

/* A transfer that waits for the disk half of its time takes half of its share of the cores, on average. */
static void latency_takes_no_cores(void **state)
{
    struct rig *g = rig_open(
        (struct ps_profile) {
            .cores = 2, .threads = 2, .io_cores = 0.5, .disk_s = 2, .disk_read.alone = G },
        false);
    rig_call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_WEIGHTS, 2 * G);
    near(rig_drained(g), 4 + 4 - 4 * 0.875);
}

static void the_disk_comes_first(void **state)
{
    /* Of 3.5 GB/s, reads take 2 and writes 1, and a call that wants 1 has the rest: 2 s at half speed. */
    struct rig *g = rig_open((struct ps_profile) { .host.mem = 3.5 * G,
                                                   .disk_read.alone = 2 * G,
                                                   .disk_write.alone = 1 * G },
                             false);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 8 * G);
    rig_move_alone(g, PS_DISK, PS_HOST, PS_KIND_KV, 2 * G);
    rig_call(g, PS_Q_COMPUTE, 4, NULL, NULL);
    near(rig_drained(g), 5);
    /* Nothing is left. */
    g = rig_open((struct ps_profile) { .host.mem = 1 * G, .disk_read.alone = 1 * G }, false);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 2 * G);
    rig_call(g, PS_Q_COMPUTE, 1, NULL, NULL);
    rig_call(g, PS_Q_HOST, 1, NULL, NULL);
    near(rig_drained(g), 2 + 2);
}

static void what_is_left_is_used(void **state)
{
    /* COMPUTE and HOST at half speed each, for the core; memory is then free for the disk. */
    struct rig *g = rig_open(
        (struct ps_profile) {
            .cores = 1, .threads = 1, .host.mem = 2 * G, .disk_read.alone = 1 * G },
        false);
    rig_call(g, PS_Q_COMPUTE, 1, NULL, NULL);
    rig_call(g, PS_Q_HOST, 1, NULL, NULL);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 2 * G);
    near(rig_drained(g), 2);
    /* Two on one way at half speed leave 3/4 of what the way back wants of memory. */
    g = rig_open((struct ps_profile) { .host.mem = 1.75 * G, .h2d.alone = G, .d2h.alone = G },
                 true);
    rig_move_alone(g, PS_GPU, PS_HOST, PS_KIND_WEIGHTS, 1 * G);
    rig_move_alone(g, PS_GPU, PS_HOST, PS_KIND_KV, 1 * G);
    rig_move_alone(g, PS_HOST, PS_GPU, PS_KIND_KV, 2.25 * G);
    near(rig_drained(g), 2 + 0.75);
}

/* A transfer is known to be done later than its bytes have passed: who waits for it feels that, the next transfer does not. */
static void known_later(void **state)
{
    struct rig *g =
        rig_open((struct ps_profile) { .disk_read = { .alone = G, .delay_s = 0.5 } }, false);
    struct ps_buf slot = rig_buf(PS_HOST), file = rig_buf(PS_DISK);
    for (int i = 0; i < 2; i++) rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 1 * G);
    near(rig_drained(g), 2.5);
    near(g->span[0].t1, 1.5);
    near(ps_dev_sim_busy_s(g->dev, PS_Q_READ), 2.5);
    rig_reopen(g);
    for (int i = 0; i < 2; i++) rig_move(g, &slot, &file, 1 * G);
    near(rig_drained(g), 3);
}

/* A write that comes when two reads are under way is done after both of them, half of the way, or when it likes. */
static void behind_the_other_way(void **state)
{
    static const double done[] = { 1, 2, 4 }, mib = 1 << 20;
    for (int i = 0; i < 3; i++) {
        struct rig *g = rig_open((struct ps_profile) { .disk_read.alone = mib,
                                                       .disk_write.alone = mib,
                                                       .disk_write.behind = 0.5 * i },
                                 false);
        for (int k = 0; k < 2; k++) rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 2 * mib);
        rig_move_alone(g, PS_DISK, PS_HOST, PS_KIND_KV, 1 * mib);
        near(rig_drained(g), 4);
        for (unsigned k = 0; k < g->n_spans; k++)
            if (g->span[k].q == PS_Q_WRITE) near(g->span[k].t1, done[i]);
    }
    /* Of what is asked for at once no more than 64 transfers are in the disk. */
    struct rig *g = rig_open((struct ps_profile) { .disk_read.alone = mib,
                                                   .disk_write.alone = mib,
                                                   .disk_write.behind = 1 },
                             false);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 200 * mib);
    rig_move_alone(g, PS_DISK, PS_HOST, PS_KIND_KV, 1 * mib);
    (void) rig_drained(g);
    near(g->span[0].t1, 64);
}

static void reads_beside_kernels(void **state)
{
    struct rig *g =
        rig_open((struct ps_profile) { .disk_read = { .alone = 1 * G, .busy = 0.5 * G } }, false);
    rig_move_alone(g, PS_HOST, PS_DISK, PS_KIND_KV, 3 * G);
    rig_call(g, PS_Q_COMPUTE, 2, NULL, NULL);
    near(rig_drained(g), 2 + 2);
}

/* It takes a while until the thread that submits is awake: what it submits then begins so much later, and what it has submitted does not. */
static void waking_takes_time(void **state)
{
    struct rig *g = rig_open((struct ps_profile) { .host.wait_s = 0.25 }, false);
    struct ps_buf b = rig_buf(PS_HOST);
    rig_call(g, PS_Q_COMPUTE, 1, &b, NULL);
    rig_call(g, PS_Q_HOST, 3, NULL, NULL);
    for (int i = 0; i < 2; i++) assert_ok(ps_dev_wait(g->dev, &b, false));
    near(ps_dev_sim_now_s(g->dev), 1.25);
    rig_call(g, PS_Q_COMPUTE, 1, NULL, NULL);
    (void) rig_drained(g);
    near(g->span[1].t0, 1.25);
    near(g->span[2].t1, 3);
    near((double) rig_stats(g).idle_ns, 0.25e9 + 0.75e9 + 0.25e9);
}

static void open_survives_oom(void **state)
{
    const struct ps_profile x = { .disk_read.alone = G };
    for (unsigned n = 1;; n++) {
        struct ps_dev *d = (void *) 0x1;
        ps_mem_fault_arm(n);
        int r = ps_dev_sim_open(&(struct ps_sim_cfg) { .profile = &x }, &d),
            hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (!hit) {
            assert_ok(r);
            ps_dev_close(d);
            assert_true(n > 2);
            break;
        }
        assert_err(r, ENOMEM);
        assert_true(d == (void *) 0x1 && n < 100);
    }
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
        cmocka_unit_test(latency_takes_no_cores),
        cmocka_unit_test(the_disk_comes_first),
        cmocka_unit_test(what_is_left_is_used),
        cmocka_unit_test(known_later),
        cmocka_unit_test(behind_the_other_way),
        cmocka_unit_test(reads_beside_kernels),
        cmocka_unit_test(waking_takes_time),
        cmocka_unit_test(open_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
