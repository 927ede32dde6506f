/* SPDX-License-Identifier: Apache-2.0 */
/* Random tasks on a cuda device, for its tests on the emulated GPU and on a real one. */
#include "cuda_rig.h"
#include "engine/base/ps_mem.h"
#include <fcntl.h>

static int mix(void *ud, uint64_t arg)
{
    const struct mix *m = ud;
    for (unsigned i = 0; i < FLOATS; i++)
        m->y[i] = m->y[i] / 2 + m->x[(i * 7 + 1) % FLOATS] + m->add;
    return 0;
}

int rig_open(struct rig *g, const struct ps_cuda_api *api, struct ps_detail *dt)
{
    memset(g, 0, sizeof *g);
    g->api = api;
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

void rig_close(struct rig *g)
{
    ps_dev_close(g->dev);
    ps_store_close(g->store);
    if (g->mem) (void) g->api->unpin(g->mem);
    free(g->mem);
}

float *rig_floats(const struct rig *g, int host)
{
    return (float *) (void *) (g->mem + host * BYTES);
}

static const struct ps_rect whole = { .row_bytes = BYTES, .rows = 1 };

int rig_init(struct rig *g)
{
    uint8_t *gpu = ps_dev_cuda_mem(g->dev);
    int r = 0;
    for (int i = 0; i < BUFS; i++) {
        struct ps_buf *b = &g->b[i];
        *b = (struct ps_buf) { .len_bytes = BYTES, .kind = (enum ps_kind)(i % PS_KIND__COUNT) };
        b->where = i < DISKS ? PS_DISK : i < DISKS + HOSTS ? PS_HOST : PS_GPU;
        if (b->where == PS_DISK) b->off = (uint64_t) i * BYTES;
        if (b->where == PS_HOST) b->p = rig_floats(g, i - DISKS);
        if (b->where == PS_GPU) b->p = gpu + (i - DISKS - HOSTS) * BYTES;
    }
    for (int h = 0; h <= HOSTS; h++)
        for (int j = 0; j < FLOATS; j++) rig_floats(g, h)[j] = (float) (h * 100 + j % 97) / 64;
    for (int i = 0; i < DISKS && !r; i++)
        r = ps_dev_move(g->dev, &g->b[i], &g->b[DISKS + i], &whole);
    for (int i = 0; i < GPUS && !r; i++)
        r = ps_dev_move(g->dev, &g->b[DISKS + HOSTS + i], &g->b[DISKS + i], &whole);
    struct ps_buf from = { .where = PS_HOST, .p = rig_floats(g, HOSTS), .len_bytes = BYTES };
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

int rig_run(struct rig *g, unsigned seed, bool one_by_one, float ret[GPUS + HOSTS][FLOATS])
{
    int r = rig_init(g);
    for (unsigned k = 0; k < STEPS && !r; k++) {
        g->dev->tag = k << 16;
        r = step(g, k, &seed);
        if (!r && one_by_one) r = ps_dev_drain(g->dev);
    }
    if (!r) r = ps_dev_drain(g->dev);
    for (int i = 0; i < HOSTS && !r; i++) memcpy(ret[i], rig_floats(g, i), BYTES);
    for (int i = 0; i < GPUS && !r; i++) {
        struct ps_buf *to = &g->b[DISKS + i % HOSTS];
        r = ps_dev_move(g->dev, to, &g->b[DISKS + HOSTS + i], &whole);
        if (!r) r = ps_dev_wait(g->dev, to, false);
        if (!r) memcpy(ret[HOSTS + i], to->p, BYTES);
    }
    return r;
}

int rig_whole_run(const struct ps_cuda_api *api, unsigned seed, bool one_by_one,
                  float ret[GPUS + HOSTS][FLOATS], struct ps_detail *dt)
{
    struct rig *g = ps_calloc(1, sizeof *g);
    assert_non_null(g);
    int r = rig_open(g, api, dt);
    if (!r) {
        r = rig_run(g, seed, one_by_one, ret);
        if (r < 0) (void) ps_fail(dt, r, "%s", ps_dev_error_text(g->dev));
    }
    rig_close(g);
    free(g);
    return r;
}
