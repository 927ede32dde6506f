/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda device on whatever GPU a module finds: ps-dev-gpu MODULE. What only the emulation can see (accesses that nothing orders,
 * failing calls, what is left behind) is dev_cuda_test.c's. Without a GPU: says so, exit 77. */
#include "cuda_rig.h"

static const struct ps_cuda_api *api;

/* Open, its buffers as they are at first. */
static struct rig *begin(void)
{
    struct ps_detail dt = { { 0 } };
    struct rig *g = calloc(1, sizeof *g);
    assert_non_null(g);
    assert_ok_dt(rig_open(g, api, &dt), &dt);
    assert_ok(rig_init(g));
    assert_ok(ps_dev_drain(g->dev));
    return g;
}

/* Tasks one by one, and as they come: the same bytes. */
static void the_order_makes_no_difference(void **state)
{
    static float want[GPUS + HOSTS][FLOATS], got[GPUS + HOSTS][FLOATS];
    struct ps_detail dt = { { 0 } };
    for (unsigned seed = 1; seed <= 24; seed++) {
        assert_ok_dt(rig_whole_run(api, seed, true, want, &dt), &dt);
        memset(got, 0, sizeof got);
        assert_ok_dt(rig_whole_run(api, seed, false, got, &dt), &dt);
        assert_memory_equal(got, want, sizeof want);
    }
}

/* Exactly the rectangle's bytes, in each direction. */
static void moves_are_exact(void **state)
{
    const struct ps_rect rect = {
        .dst_off = 5, .src_off = 700, .row_bytes = 33, .rows = 5, .dst_pitch = 35, .src_pitch = 1001
    };
    const struct ps_rect all = { .row_bytes = BYTES, .rows = 1 };
    static uint8_t want[BYTES];
    struct rig *g = begin();
    struct ps_buf *host = &g->b[DISKS], *to = &g->b[DISKS + 1], *gpu = &g->b[DISKS + HOSTS],
                  *gpu2 = &g->b[DISKS + HOSTS + 1];
    struct ps_buf *const ways[][2] = { { host, gpu }, { gpu, to }, { gpu, gpu2 } };
    for (size_t i = 0; i < PS_ARRAY_LEN(ways); i++) {
        struct ps_buf *src = ways[i][0], *dst = ways[i][1];
        if (src != host) assert_ok(ps_dev_move(g->dev, src, host, &all));
        for (int b = 0; b < BYTES; b++) want[b] = (uint8_t) (b * 11 + 3);
        assert_ok(ps_dev_wait(g->dev, to, true));
        memcpy(to->p, want, BYTES);
        if (dst != to) assert_ok(ps_dev_move(g->dev, dst, to, &all));
        for (uint64_t r = 0; r < rect.rows; r++)
            memcpy(want + rect.dst_off + r * rect.dst_pitch,
                   (uint8_t *) host->p + rect.src_off + r * rect.src_pitch, rect.row_bytes);
        assert_ok(ps_dev_move(g->dev, dst, src, &rect));
        if (dst != to) assert_ok(ps_dev_move(g->dev, to, dst, &all));
        assert_ok(ps_dev_wait(g->dev, to, false));
        assert_memory_equal(to->p, want, BYTES);
    }
    rig_close(g);
    free(g);
}

/* What a kernel finds in its data ends the run: every wait says so, and nothing is done any more. */
static void an_error_in_a_kernel_stays(void **state)
{
    struct rig *g = begin();
    struct ps_buf *host = &g->b[DISKS], *x = &g->b[DISKS + HOSTS], *y = &g->b[DISKS + HOSTS + 1];
    const struct ps_rect all = { .row_bytes = BYTES, .rows = 1 };
    rig_floats(g, 0)[COLS / 2] = 1e9f; /* more than f16 holds */
    assert_ok(ps_dev_move(g->dev, x, host, &all));
    const struct ps_kv_round round = { .k = x->p,
                                       .v = x->p,
                                       .dst_k = y->p,
                                       .dst_v = (uint8_t *) y->p + BYTES / 2,
                                       .rows = 1,
                                       .ldk = COLS,
                                       .ldv = COLS,
                                       .kv_heads = COLS / 64,
                                       .d = 64,
                                       .cap = 1,
                                       .kv_type = PS_F16 };
    const struct ps_use uses[] = { { y, true }, { x, false } };
    assert_ok(ps_dev_run(g->dev, PS_Q_COMPUTE, PS_OP_kv_round, &round, uses, 2));
    assert_err(ps_dev_drain(g->dev), PS_ENUMERIC);
    if (!strstr(ps_dev_error_text(g->dev), "kv_round")) fail_msg("%s", ps_dev_error_text(g->dev));
    assert_err(ps_dev_wait(g->dev, y, false), PS_ENUMERIC);
    rig_close(g);
    free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_makes_no_difference),
        cmocka_unit_test(moves_are_exact),
        cmocka_unit_test(an_error_in_a_kernel_stays),
    };
    struct ps_cuda_info info;
    struct ps_detail dt = { { 0 } };
    if (argc != 2) {
        fputs("ps-dev-gpu MODULE\n", stderr);
        return 2;
    }
    if (ps_cuda_load(argv[1], &api, &dt) < 0) {
        fprintf(stderr, "ps-dev-gpu: %s\n", dt.text);
        return 2;
    }
    if (api->info(&info) < 0) {
        fprintf(stderr, "ps-dev-gpu: %s\n", api->error());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
