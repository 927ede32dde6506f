/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_mem.h"
#include "offload/arena.h"
#include "offload/ps_numa.h"
#include "ps_cmocka.h"
#include <numaif.h>
#include <sys/mman.h>

struct want {
    const char *name;
    uint64_t n, size;
    size_t align;
};
static const struct want wants[] = { { "weights", 3, 1000, 4096 },
                                     { "kv", 7, 333, 64 },
                                     { "weights", 1, 5, 1 },
                                     { "hidden", 2, 100000, 2 << 20 },
                                     { "empty", 0, 8, 64 } };

static void fill(struct ps_arena *a, void *p[])
{
    struct ps_detail dt = { { 0 } };
    for (size_t i = 0; i < PS_ARRAY_LEN(wants); i++) {
        const struct want *w = &wants[i];
        assert_ok_dt(ps_arena_alloc(a, w->name, w->n, w->size, w->align, &p[i], &dt), &dt);
    }
}

/* A plan's arithmetic is the arena's, to the byte; the items add up to what is used. */
static void measured_equals_real(void **state)
{
    void *p[PS_ARRAY_LEN(wants)], *none[PS_ARRAY_LEN(wants)];
    for (int populate = 0; populate < 2; populate++) {
        ps_auto_arena struct ps_arena *m = NULL, *a = NULL;
        assert_ok(ps_arena_open(&(struct ps_arena_cfg) { .measure = true }, &m, NULL));
        fill(m, none);
        struct ps_arena_cfg cfg = { .bytes = ps_arena_used(m), .populate = populate };
        assert_ok(ps_arena_open(&cfg, &a, NULL));
        fill(a, p);
        assert_true(ps_arena_used(a) == ps_arena_used(m) && ps_arena_base(m) == NULL);
        uint64_t sum = 0;
        const struct ps_arena_item *it;
        for (size_t i = 0; (it = ps_arena_item(a, i)); i++) {
            sum += it->bytes;
            assert_string_equal(it->name, ps_arena_item(m, i)->name);
        }
        assert_true(sum == ps_arena_used(a));
        for (size_t i = 0; i < PS_ARRAY_LEN(wants); i++) {
            assert_null(none[i]);
            assert_int_equal((uintptr_t) p[i] % wants[i].align, 0);
            uint8_t *b = p[i];
            for (uint64_t k = 0; k < wants[i].n * wants[i].size; k++) {
                assert_int_equal(b[k], 0); /* zeroed, and nobody else's */
                b[k] = 0xff;
            }
        }
    }
}

static void what_does_not_fit_is_told(void **state)
{
    ps_auto_arena struct ps_arena *a = NULL;
    struct ps_detail dt = { { 0 } };
    void *p = (void *) 0x1;
    assert_ok(ps_arena_open(&(struct ps_arena_cfg) { .bytes = 10000 }, &a, NULL));
    assert_err(ps_arena_alloc(a, "kv slabs", 3, 4000, 64, &p, &dt), PS_EBUDGET);
    assert_says(&dt, "kv slabs");
    assert_says(&dt, "10000");
    assert_err(ps_arena_alloc(a, "x", UINT64_MAX / 2, 3, 64, &p, &dt), PS_EBUDGET);
    assert_true(p == (void *) 0x1 && ps_arena_used(a) == 0);
    assert_ok(ps_arena_alloc(a, "all", 1, 10000, 64, &p, &dt));
    assert_err(ps_arena_open(&(struct ps_arena_cfg) { .bytes = 0 }, &a, &dt), EINVAL);
    assert_err(ps_arena_open(&(struct ps_arena_cfg) { .bytes = UINT64_MAX }, &a, &dt), EINVAL);
}

/* Memory of somebody else is cut up and nothing else: here it cannot even be touched. */
static void over_memory_of_others(void **state)
{
    enum { BYTES = 64 << 10 };
    struct ps_detail dt = { { 0 } };
    struct ps_arena *a = NULL;
    void *p = NULL, *q = NULL,
         *none = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *base = (uint8_t *) none + 256;
    assert_true(none != MAP_FAILED);
    struct ps_arena_cfg cfg = { .bytes = BYTES - 256, .base = base, .populate = true };
    assert_ok_dt(ps_arena_open(&cfg, &a, &dt), &dt);
    assert_ok(ps_arena_alloc(a, "one", 1, 100, 64, &p, &dt));
    assert_ok(ps_arena_alloc(a, "two", 2, 4096, 4096, &q, &dt));
    assert_true(p == base && q == base + 4096 && ps_arena_base(a) == base);
    assert_err(ps_arena_alloc(a, "three", 1, BYTES, 1, &p, &dt), PS_EBUDGET);
    ps_arena_close(a);
    assert_int_equal(mprotect(none, BYTES, PROT_READ), 0); /* it is still there */
    assert_int_equal(munmap(none, BYTES), 0);
    cfg.bytes = 0;
    assert_err(ps_arena_open(&cfg, &a, &dt), EINVAL);
}

static void preferred_node(void **state)
{
    enum { BYTES = 8 << 20 };
    int mode = -1;
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_false(ps_numa_prefer(p, BYTES, -1) || ps_numa_prefer(p, BYTES, (int) ps_numa_nodes()));
    if (ps_numa_prefer(p, BYTES, 0)) {
        assert_int_equal(get_mempolicy(&mode, NULL, 0, p, MPOL_F_ADDR), 0);
        assert_int_equal(mode, MPOL_PREFERRED);
    } else {
        print_message("no NUMA here\n");
    }
    assert_int_equal(munmap(p, BYTES), 0);
    ps_auto_arena struct ps_arena *a = NULL; /* of a device that is not there: as without */
    assert_ok(ps_arena_open(&(struct ps_arena_cfg) { .bytes = BYTES, .near_pci = "ffff:ff:1f.0" },
                            &a, NULL));
}

static void numa_nodes(void **state)
{
    struct ps_arena *a = NULL;
    struct ps_detail dt = { { 0 } };
    static const char *const bad[] = { "no such node", "", "0-", "0,", "-1", "0x", "99999", "1-0" };
    struct ps_arena_cfg cfg = { .bytes = 1 << 20 };
    int r;
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        cfg.numa_nodes = bad[i];
        r = ps_arena_open(&cfg, &a, &dt);
        assert_true(r < 0 && a == NULL);
        assert_says(&dt, bad[i]);
    }
    cfg.numa_nodes = "0";
    r = ps_arena_open(&cfg, &a, &dt);
    assert_true(r == 0 || r == -PS_EUNSUPPORTED || r == -EPERM || r == -ENOSYS);
    ps_arena_close(a);
    ps_arena_close(NULL);
}

static void open_survives_oom(void **state)
{
    for (unsigned n = 1;; n++) {
        struct ps_arena *a = NULL;
        void *p;
        ps_mem_fault_arm(n);
        int r = ps_arena_open(&(struct ps_arena_cfg) { .bytes = 1 << 20 }, &a, NULL);
        if (r >= 0) r = ps_arena_alloc(a, "x", 1, 1, 1, &p, NULL);
        int hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        ps_arena_close(a);
        if (!hit) {
            assert_ok(r);
            break;
        }
        assert_err(r, ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_equals_real),
        cmocka_unit_test(what_does_not_fit_is_told),
        cmocka_unit_test(over_memory_of_others),
        cmocka_unit_test(preferred_node),
        cmocka_unit_test(numa_nodes),
        cmocka_unit_test(open_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
