/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory on the emulated GPU, which refuses copies that lie in two registrations: chunks, limits, refusals, and copies
 * of the cuda device across boundaries. */
#include "cudaemu.h"
#include "engine/base/ps_mem.h"
#include "offload/dev_cuda.h"
#include "ps_cmocka.h"
#include <sys/mman.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
enum { PAGE = 4096, OUT_OF_MEMORY = 2, NOT_PERMITTED = 800, NOT_SUPPORTED = 801 };

static const struct ps_cuda_api *api;
static uint8_t *mem; /* [GIB], no memory behind most of it */

static struct ps_pinned *open_two(uint64_t a, uint64_t b, uint64_t most, struct ps_detail *why)
{
    const struct ps_pinned_range two[] = { { mem + 512 * MIB, a }, { mem, b } };
    struct ps_pinned *p = NULL;
    assert_ok(ps_pinned_open(api, two, 2, most, &p, why));
    return p;
}

static void all_given_back(struct ps_pinned *p)
{
    ps_pinned_close(p);
    for (unsigned i = 0; i < cudaemu_reports(); i++) print_error("%s\n", cudaemu_report(i));
    assert_int_equal(cudaemu_reports(), 0);
    assert_int_equal(cudaemu_live(), 0);
}

static void chunks(void **state)
{
    struct ps_detail why;
    cudaemu_reset(1);
    struct ps_pinned *p = open_two(300 * MIB, 10 * MIB + 1, UINT64_MAX, &why);
    assert_string_equal(why.text, "");
    assert_true(ps_pinned_bytes(p) == 310 * MIB + PAGE);
    assert_int_equal(cudaemu_calls("cudaHostRegister"), 3);
    const struct {
        uint64_t at, bytes, run;
    } runs[] = { { 0, 5, 5 },
                 { 0, 20 * MIB, 10 * MIB + PAGE },
                 { 10 * MIB + PAGE - 1, 9, 1 },
                 { 10 * MIB + PAGE, 9, 0 },
                 { 512 * MIB - 1, 9, 0 },
                 { 512 * MIB, GIB, 256 * MIB },
                 { 768 * MIB - 1, 3, 1 },
                 { 768 * MIB, 3, 3 },
                 { 811 * MIB, 2 * MIB, MIB },
                 { 812 * MIB, 1, 0 } };
    for (size_t i = 0; i < PS_ARRAY_LEN(runs); i++)
        assert_true(ps_pinned_run(p, mem + runs[i].at, runs[i].bytes) == runs[i].run);
    all_given_back(p);
    ps_pinned_close(NULL);
}

static void limits(void **state)
{
    static const struct {
        uint64_t most, pinned;
    } limit[] = { { 0, 0 },
                  { PAGE - 1, 0 },
                  { 100 * MIB + PAGE + 5, 100 * MIB + PAGE },
                  { 300 * MIB, 300 * MIB },
                  { 301 * MIB, 301 * MIB },
                  { 310 * MIB, 310 * MIB } };
    for (size_t i = 0; i < PS_ARRAY_LEN(limit); i++) {
        struct ps_detail why;
        cudaemu_reset(1);
        struct ps_pinned *p = open_two(300 * MIB, 10 * MIB, limit[i].most, &why);
        assert_true(ps_pinned_bytes(p) == limit[i].pinned);
        if (limit[i].pinned < 310 * MIB)
            assert_says(&why, "of 310.0 MiB");
        else
            assert_string_equal(why.text, "");
        all_given_back(p);
    }
}

static int launch(struct ps_cuda_stream *s, float *gpu)
{
    const struct ps_layernorm a = { .y = gpu,
                                    .x = gpu,
                                    .w = gpu,
                                    .b = gpu,
                                    .rows = 1,
                                    .cols = 4,
                                    .ldx = 4,
                                    .ldy = 4,
                                    .eps = 1,
                                    .dtype = PS_F32 };
    const struct ps_span all = { .end = 1, .stream = s };
    return ps_kern_pick(PS_OP_layernorm, PS_PLACE_CUDA, s->sm, &a)->run(&a, &all);
}

/* The system gives less: what was pinned by then stays and works, and so does what comes after on this thread. */
static void refused(void **state)
{
    static _Alignas(PAGE) uint8_t back[PAGE];
    struct ps_detail why;
    void *gpu;
    for (uint64_t most = 3 * PAGE; most < 310 * MIB; most = most * 3 + PAGE) {
        cudaemu_reset(1);
        cudaemu_limit(1 * MIB, most);
        struct ps_pinned *p = open_two(300 * MIB, 10 * MIB, UINT64_MAX, &why);
        assert_says(&why, "cudaErrorMemoryAllocation");
        assert_says(&why, "of 310.0 MiB");
        const uint64_t got = ps_pinned_bytes(p);
        assert_true(got <= most && most - got < PS_PINNED_LEAST);
        cudaemu_limit(1 * MIB, GIB);
        struct ps_cuda_stream s = { 0 };
        assert_ok(api->open(&s));
        assert_ok(api->alloc(PAGE, &gpu));
        assert_ok(launch(&s, gpu));
        assert_ok(api->pin(back, PAGE));
        if (got) {
            mem[512 * MIB] = 77;
            back[0] = 0;
            assert_ok(api->copy(&s, gpu, mem + 512 * MIB, 1));
            assert_ok(api->copy(&s, back, gpu, 1));
            assert_ok(api->sync(&s));
            assert_int_equal(back[0], 77);
        }
        assert_ok(api->unpin(back));
        assert_ok(api->free(gpu));
        assert_ok(api->close(&s));
        all_given_back(p);
    }
}

static void each_refusal_is_told(void **state)
{
    static const struct {
        int error;
        const char *name;
    } errors[] = { { OUT_OF_MEMORY, "cudaErrorMemoryAllocation" },
                   { NOT_PERMITTED, "cudaErrorNotPermitted" },
                   { NOT_SUPPORTED, "cudaErrorNotSupported" } };
    for (size_t i = 0; i < PS_ARRAY_LEN(errors); i++)
        for (unsigned nth = 1; nth <= 3; nth++) {
            struct ps_detail why;
            cudaemu_reset(1);
            cudaemu_fail("cudaHostRegister", nth, errors[i].error);
            struct ps_pinned *p = open_two(257 * MIB, MIB, UINT64_MAX, &why);
            /* The first is tried by halves; the others are too small for that. */
            assert_true(ps_pinned_bytes(p) == (nth == 1 ? 258 : nth == 2 ? 256 : 257) * MIB);
            if (nth > 1) assert_says(&why, errors[i].name);
            all_given_back(p);
        }
}

static void wrong_ranges_and_no_memory(void **state)
{
    struct ps_detail why;
    struct ps_pinned *p = NULL;
    const struct ps_pinned_range odd = { mem + 8, PAGE }, one = { mem, PAGE };
    cudaemu_reset(1);
    assert_err(ps_pinned_open(api, &odd, 1, GIB, &p, &why), EINVAL);
    assert_says(&why, "page");
    ps_mem_fault_arm(1);
    assert_err(ps_pinned_open(api, &one, 1, GIB, &p, &why), ENOMEM);
    ps_mem_fault_arm(0);
    assert_null(p);
    assert_int_equal(cudaemu_live(), 0);
}

/* ---- the device's copies */

static struct ps_dev *device(const struct ps_pinned *p)
{
    struct ps_detail dt;
    struct ps_dev *d = NULL;
    const struct ps_dev_cfg c = { .threads = 1, .queue_len = 8, .io_bytes = PAGE };
    const struct ps_dev_cuda_cfg cc = { .api = api, .mem_bytes = MIB, .pinned = p };
    assert_ok_dt(ps_dev_cuda_open(&c, &cc, &d, &dt), &dt);
    return d;
}

/* Rows of 48 bytes, 100 apart, to the GPU and back, around a boundary between two chunks. */
static void copies_cross_boundaries(void **state)
{
    enum { ROW = 48, PITCH = 100, ROWS = 9, ALL = ROWS * PITCH };
    for (int k = 0; k < ALL; k += 7) {
        struct ps_detail why;
        cudaemu_reset(3);
        struct ps_pinned *p = open_two(257 * MIB, MIB, UINT64_MAX, &why);
        struct ps_dev *d = device(p);
        uint8_t *from = mem + 768 * MIB - k, *to = mem;
        struct ps_buf host = { .where = PS_HOST, .p = from, .len_bytes = ALL },
                      back = { .where = PS_HOST, .p = to, .len_bytes = ALL },
                      gpu = { .where = PS_GPU, .p = ps_dev_cuda_mem(d), .len_bytes = ALL };
        for (int i = 0; i < ALL; i++) from[i] = (uint8_t) (i * 31 + k);
        memset(to, 0, ALL);
        const struct ps_rect rows = { .row_bytes = ROW,
                                      .rows = ROWS,
                                      .dst_pitch = PITCH,
                                      .src_pitch = PITCH },
                             line = { .row_bytes = ALL, .rows = 1 };
        assert_ok(ps_dev_move(d, &gpu, &host, &line));
        assert_ok(ps_dev_move(d, &back, &gpu, &rows));
        assert_ok(ps_dev_wait(d, &back, false));
        for (int i = 0; i < ALL; i++)
            assert_int_equal(to[i], i % PITCH < ROW ? (uint8_t) (i * 31 + k) : 0);
        assert_ok(ps_dev_move(d, &gpu, &back, &rows));
        assert_ok(ps_dev_wait(d, &back, true)); /* nothing reads it any more */
        assert_ok(ps_dev_move(d, &host, &gpu, &rows));
        assert_ok(ps_dev_drain(d));
        for (int i = 0; i < ALL; i++) assert_int_equal(from[i], (uint8_t) (i * 31 + k));
        ps_dev_close(d);
        all_given_back(p);
    }
}

static int setup(void **state)
{
    api = ps_cuda_module();
    ps_kern_add(api->rows);
    mem =
        mmap(NULL, GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mem == MAP_FAILED ? -1 : 0;
}
static int teardown(void **state) { return munmap(mem, GIB); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks),
        cmocka_unit_test(limits),
        cmocka_unit_test(refused),
        cmocka_unit_test(each_refusal_is_told),
        cmocka_unit_test(wrong_ranges_and_no_memory),
        cmocka_unit_test(copies_cross_boundaries),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
