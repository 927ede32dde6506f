/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda device on the emulated GPU (tests/cudaemu): the same bytes whatever the GPU's order is, no access that nothing orders,
 * every failing call told, nothing left behind. */
#include "cudaemu.h"
#include "engine/base/ps_mem.h"
#include "offload/dev_cuda.h"
#include "ps_cmocka.h"
#include <fcntl.h>

enum {
    DISKS = 2,
    HOSTS = 5,
    GPUS = 5,
    BUFS = DISKS + HOSTS + GPUS,
    ROWS = 2,
    COLS = 1024,
    FLOATS = ROWS * COLS,
    BYTES = FLOATS * 4,
    THREADS = 2,
    STEPS = 60
};

struct mix {
    float *y;
    const float *x;
    float add;
};
static int mix(void *ud, uint64_t arg)
{
    const struct mix *m = ud;
    for (unsigned i = 0; i < FLOATS; i++)
        m->y[i] = m->y[i] / 2 + m->x[(i * 7 + 1) % FLOATS] + m->add;
    return 0;
}

struct rig {
    const struct ps_cuda_api *api;
    char path[64];
    struct ps_store *store;
    struct ps_dev *dev;
    uint8_t *mem; /* pinned: the host's buffers, then norm weights and one page of reports */
    struct ps_buf b[BUFS], w;
    struct mix jobs[STEPS];
};
enum { MEM = (HOSTS + 1) * BYTES };

static int rig_open(struct rig *g, struct ps_detail *dt)
{
    memset(g, 0, sizeof *g);
    g->api = ps_cuda_module();
    ps_kern_add(g->api->rows);
    snprintf(g->path, sizeof g->path, "ps-cuda-XXXXXX");
    int fd = mkstemp(g->path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, DISKS * BYTES), 0);
    close(fd);
    g->mem = ps_aligned(4096, MEM);
    assert_non_null(g->mem);
    struct ps_store_file f = { .path = g->path, .write = true };
    struct ps_store_cfg sc = {
        .files = &f, .n_files = 1, .depth = 4, .mem = g->mem, .mem_bytes = MEM
    };
    assert_ok_dt(ps_store_open(ps_store_find("pread"), &sc, &g->store, dt), dt);
    (void) unlink(g->path);
    int r = g->api->pin(g->mem, MEM);
    if (r < 0) {
        free(g->mem);
        g->mem = NULL;
        return ps_fail(dt, r, "%s", g->api->error());
    }
    struct ps_dev_cfg c = {
        .store = g->store, .threads = THREADS, .queue_len = 16, .io_bytes = 4096
    };
    struct ps_dev_cuda_cfg cc = { .api = g->api, .mem_bytes = (GPUS + 1) * BYTES };
    return ps_dev_cuda_open(&c, &cc, &g->dev, dt);
}

static void rig_close(struct rig *g)
{
    ps_dev_close(g->dev);
    ps_store_close(g->store);
    if (g->mem) (void) g->api->unpin(g->mem);
    free(g->mem);
}

static float *floats(const struct rig *g, int host)
{
    return (float *) (void *) (g->mem + host * BYTES);
}

static const struct ps_rect whole = { .row_bytes = BYTES, .rows = 1 };

static int init_bufs(struct rig *g)
{
    uint8_t *gpu = ps_dev_cuda_mem(g->dev);
    int r = 0;
    for (int i = 0; i < BUFS; i++) {
        struct ps_buf *b = &g->b[i];
        *b = (struct ps_buf) { .len_bytes = BYTES, .kind = (enum ps_kind)(i % PS_KIND__COUNT) };
        b->where = i < DISKS ? PS_DISK : i < DISKS + HOSTS ? PS_HOST : PS_GPU;
        if (b->where == PS_DISK) b->off = (uint64_t) i * BYTES;
        if (b->where == PS_HOST) b->p = floats(g, i - DISKS);
        if (b->where == PS_GPU) b->p = gpu + (i - DISKS - HOSTS) * BYTES;
    }
    for (int h = 0; h <= HOSTS; h++)
        for (int j = 0; j < FLOATS; j++) floats(g, h)[j] = (float) (h * 100 + j % 97) / 64;
    for (int i = 0; i < DISKS && !r; i++)
        r = ps_dev_move(g->dev, &g->b[i], &g->b[DISKS + i], &whole);
    for (int i = 0; i < GPUS && !r; i++)
        r = ps_dev_move(g->dev, &g->b[DISKS + HOSTS + i], &g->b[DISKS + i], &whole);
    struct ps_buf from = { .where = PS_HOST, .p = floats(g, HOSTS), .len_bytes = BYTES };
    g->w = (struct ps_buf) { .where = PS_GPU, .p = gpu + GPUS * BYTES, .len_bytes = BYTES };
    return r ? r : ps_dev_move(g->dev, &g->w, &from, &whole);
}

static struct ps_rect some_rect(unsigned *seed)
{
    if (rand_r(seed) % 2) return whole;
    return (struct ps_rect) { .dst_off = 4096 * (uint64_t) (rand_r(seed) % 2),
                              .src_off = 4096 * (uint64_t) (rand_r(seed) % 2),
                              .row_bytes = 4096,
                              .rows = 1 };
}

static int step(struct rig *g, unsigned k, unsigned *seed)
{
    struct ps_buf *x = &g->b[rand_r(seed) % BUFS], *y = &g->b[rand_r(seed) % BUFS];
    const struct ps_rect rect = some_rect(seed);
    const bool move = rand_r(seed) % 3 == 0;
    if (x == y) return 0;
    const bool disk = x->where == PS_DISK || y->where == PS_DISK;
    if (disk && x->where != PS_HOST && y->where != PS_HOST) return 0;
    if (disk || move || x->where != y->where) return ps_dev_move(g->dev, y, x, &rect);
    const struct ps_use uses[] = { { y, true }, { x, false }, { &g->w, false } };
    if (x->where == PS_GPU)
        return ps_dev_run(g->dev, PS_Q_COMPUTE, PS_OP_layernorm,
                          &(struct ps_layernorm) { .y = y->p,
                                                   .x = x->p,
                                                   .w = g->w.p,
                                                   .b = (uint8_t *) g->w.p + COLS * 4,
                                                   .rows = ROWS,
                                                   .cols = COLS,
                                                   .ldx = COLS,
                                                   .ldy = COLS,
                                                   .eps = 1e-5f,
                                                   .dtype = PS_F32 },
                          uses, 3);
    g->jobs[k] = (struct mix) { y->p, x->p, (float) k };
    return ps_dev_run(g->dev, PS_Q_HOST, PS_OP_call, &(struct ps_call) { mix, &g->jobs[k], 0 },
                      uses, 2);
}

/* Random moves and kernels on all queues; at the end everything is in the host's buffers, in turn, and so in `ret`. */
static int run(struct rig *g, unsigned seed, bool one_by_one, float ret[GPUS + HOSTS][FLOATS])
{
    int r = init_bufs(g);
    for (unsigned k = 0; k < STEPS && !r; k++) {
        g->dev->tag = k << 16;
        r = step(g, k, &seed);
        if (!r && one_by_one) r = ps_dev_drain(g->dev);
    }
    if (!r) r = ps_dev_drain(g->dev);
    for (int i = 0; i < HOSTS && !r; i++) memcpy(ret[i], floats(g, i), BYTES);
    for (int i = 0; i < GPUS && !r; i++) {
        struct ps_buf *to = &g->b[DISKS + i % HOSTS];
        r = ps_dev_move(g->dev, to, &g->b[DISKS + HOSTS + i], &whole);
        if (!r) r = ps_dev_wait(g->dev, to, false);
        if (!r) memcpy(ret[HOSTS + i], to->p, BYTES);
    }
    return r;
}

static int whole_run(unsigned seed, bool one_by_one, float ret[GPUS + HOSTS][FLOATS],
                     struct ps_detail *dt)
{
    struct rig *g = ps_calloc(1, sizeof *g);
    assert_non_null(g);
    int r = rig_open(g, dt);
    if (!r) {
        r = run(g, seed, one_by_one, ret);
        if (r < 0) (void) ps_fail(dt, r, "%s", ps_dev_error_text(g->dev));
    }
    rig_close(g);
    free(g);
    return r;
}

static float want[GPUS + HOSTS][FLOATS], got[GPUS + HOSTS][FLOATS];

static void no_reports(void)
{
    for (unsigned i = 0; i < cudaemu_reports(); i++) print_error("%s\n", cudaemu_report(i));
    assert_int_equal(cudaemu_reports(), 0);
    assert_int_equal(cudaemu_live(), 0);
}

static void any_order_gives_the_same_bytes(void **state)
{
    struct ps_detail dt = { { 0 } };
    for (unsigned seed = 1; seed <= 24; seed++) {
        cudaemu_reset(1); /* at once */
        assert_ok_dt(whole_run(seed, true, want, &dt), &dt);
        no_reports();
        cudaemu_reset(seed);
        memset(got, 0, sizeof got);
        assert_ok_dt(whole_run(seed, false, got, &dt), &dt);
        no_reports();
        assert_memory_equal(got, want, sizeof want);
    }
}

/* Nothing waits for the whole device but freeing its memory at the end. */
static void only_the_end_waits_for_all(void **state)
{
    struct ps_detail dt = { { 0 } };
    struct rig *g = ps_calloc(1, sizeof *g);
    assert_non_null(g);
    cudaemu_reset(2);
    assert_ok_dt(rig_open(g, &dt), &dt);
    unsigned before = cudaemu_device_syncs();
    assert_ok(run(g, 7, false, got));
    assert_int_equal(cudaemu_device_syncs(), before);
    struct ps_dev_cuda_counts n;
    ps_dev_cuda_counts(g->dev, &n);
    assert_true(n.launches > 0 && n.copies > 0 && n.waits > 0);
    rig_close(g);
    free(g);
    no_reports();
}

/* Each call in turn fails, but those that give something back, whose failure leaves that behind: told in CUDA's words. */
static void every_call_fails_in_turn(void **state)
{
    static const char *const functions[] = {
        "cudaDeviceGetAttribute",   "cudaMalloc",
        "cudaHostRegister",         "cudaStreamCreateWithFlags",
        "cudaMemsetAsync",          "cublasCreate",
        "cublasSetStream",          "cublasSetWorkspace",
        "cudaEventCreateWithFlags", "cudaEventRecord",
        "cudaEventSynchronize",     "cudaStreamWaitEvent",
        "cudaMemcpyAsync",          "launch"
    };
    enum { OUT_OF_MEMORY = 2, EACH = 24 };
    struct ps_detail dt = { { 0 } };
    for (size_t f = 0; f < PS_ARRAY_LEN(functions); f++) {
        cudaemu_reset(1);
        assert_ok_dt(whole_run(3, false, want, &dt), &dt);
        const unsigned calls = cudaemu_calls(functions[f]);
        unsigned told = 0;
        if (!calls) fail_msg("%s is not called", functions[f]);
        for (unsigned n = 1; n <= calls; n += calls / EACH + 1) {
            cudaemu_reset(1);
            cudaemu_fail(functions[f], n, OUT_OF_MEMORY);
            dt.text[0] = 0;
            int r = whole_run(3, false, got, &dt);
            cudaemu_fail(NULL, 0, 0);
            assert_int_equal(cudaemu_live(), 0);
            told += r < 0;
            if (r < 0 && !strstr(dt.text, "cuda") && !strstr(dt.text, "cublas") &&
                !strstr(dt.text, "launch"))
                fail_msg("%s, call %u: %s", functions[f], n, dt.text);
            if (!r)
                assert_memory_equal(got, want,
                                    sizeof want); /* the last one, asked for at the end */
        }
        if (!told) fail_msg("%s fails, and nobody is told", functions[f]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_bytes),
        cmocka_unit_test(only_the_end_waits_for_all),
        cmocka_unit_test(every_call_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
