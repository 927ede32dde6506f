/* SPDX-License-Identifier: Apache-2.0 */
/* A profile with another figure in it: what goes with the figure, what stays, and what is refused in which words. */
#include "offload/profile_set.h"
#include "ps_cmocka.h"
#include <stdio.h>
#include <string.h>

/* A machine of which everything is known. */
static void load(struct ps_profile *p)
{
    const char *root = getenv("PS_SOURCE_ROOT");
    char path[4096];
    struct ps_detail dt = { "" };
    if (!root) skip();
    (void) snprintf(path, sizeof path, "%s/tests/fuzz/corpus/profile/all.json", root);
    memset(p, 0, sizeof *p);
    assert_ok_dt(ps_profile_read(path, p, &dt), &dt);
}

static void set(struct ps_profile *p, const char *path, const char *value)
{
    struct ps_detail dt = { "" };
    int r = ps_profile_set(p, path, value, &dt);
    if (r < 0) fail_msg("%s=%s: %d, %s", path, value, r, dt.text);
}

/* Twice as fast, and back: nothing is forgotten, and nothing else has changed. */
static void rates_take_what_was_probed_along(void **state)
{
    struct ps_profile was, p;
    load(&was);
    for (int i = 0; i < PS_RATE__COUNT; i++) {
        const enum ps_rate_of what = (enum ps_rate_of) i;
        const bool flops = what == PS_RATE_GEMM || what == PS_RATE_GPU_GEMM;
        const double rate = ps_profile_rate(&was, what);
        char value[64];
        (void) snprintf(value, sizeof value, "%.17g%s", 2 * rate, flops ? "FLOP/s" : "B/s");
        p = was;
        set(&p, ps_rate_path(what), value);
        assert_true(ps_profile_rate(&p, what) == 2 * rate);
        ps_profile_scale(&p, what, 0.5);
        if (memcmp(&p, &was, sizeof p) != 0) fail_msg("%s: not as it was", ps_rate_path(what));
    }
}

static void what_goes_along(void **state)
{
    struct ps_profile was, p;
    load(&was);
    p = was;
    set(&p, "disk.read", "8GB/s");
    const double more = 8e9 / was.disk_read.alone;
    assert_true(p.disk_read.beside == was.disk_read.beside * more && p.n_disk_read);
    assert_true(p.disk_read_at[0].over_depth.y[0] == was.disk_read_at[0].over_depth.y[0] * more);
    assert_true(p.disk_write.alone == was.disk_write.alone && p.host.mem == was.host.mem);
    set(&p, "host.read", "1TB/s");
    const double memory = 1e12 / was.host.mem;
    assert_true(p.host.decode[0].over_n.y[0] == was.host.decode[0].over_n.y[0] * memory);
    assert_true(p.host.op[PS_OP_layernorm] == was.host.op[PS_OP_layernorm] * memory);
    assert_true(p.host.copy == was.host.copy * memory);
    assert_true(p.host.linear[0].over_m.y[0] == was.host.linear[0].over_m.y[0]);
    set(&p, "host.flops", "2TFLOP/s");
    const double work = 2e12 / was.host.flops;
    assert_true(p.host.linear[0].over_m.y[0] == was.host.linear[0].over_m.y[0] * work);
    assert_true(p.host.prompt[0].over_n.y[0] == was.host.prompt[0].over_n.y[0] * work);
    set(&p, "links.h2d", "30GB/s");
    assert_true(p.h2d.beside == was.h2d.beside * (30e9 / was.h2d.alone) &&
                p.d2h.alone == was.d2h.alone);
}

/* Two figures come to the same whichever is set first, unless one of them scales the other. */
static void in_any_order(void **state)
{
    static const struct {
        const char *path, *value;
    } all[] = {
        { "disk.read", "3GB/s" },
        { "disk.read_beside_write", "1GB/s" },
        { "disk.write", "2GB/s" },
        { "disk.write_beside_read", "1GB/s" },
        { "links.h2d", "20GB/s" },
        { "links.h2d_beside_d2h", "9GB/s" },
        { "links.d2h", "18GB/s" },
        { "links.d2h_beside_h2d", "8GB/s" },
        { "host.read", "90GB/s" },
        { "host.copy", "11GB/s" },
        { "host.gap", "2us" },
        { "host.residual", "7GB/s" },
        { "host.flops", "3TFLOP/s" },
        { "host.ops.sample", "5GB/s" },
        { "gpu.read", "900GB/s" },
        { "gpu.copy", "700GB/s" },
        { "gpu.flops", "90TFLOP/s" },
        { "gpu.ops.embed", "400GB/s" },
        { "disk.read_beside_kernels", "1GB/s" },
        { "host.mem", "9G" },
    };
    unsigned matter = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++)
        for (size_t j = 0; j < i; j++) {
            struct ps_profile a, b;
            load(&a);
            b = a;
            set(&a, all[i].path, all[i].value);
            set(&a, all[j].path, all[j].value);
            set(&b, all[j].path, all[j].value);
            set(&b, all[i].path, all[i].value);
            if (!memcmp(&a, &b, sizeof a)) continue;
            matter++;
            if (ps_profile_scales(all[i].path) == ps_profile_scales(all[j].path))
                fail_msg("%s and %s: which is first matters", all[i].path, all[j].path);
        }
    assert_int_equal(matter, 11);
    assert_false(ps_profile_scales("disk") || ps_profile_scales("disk.read_delay"));
}

static void figures_and_units(void **state)
{
    struct ps_profile p;
    load(&p);
    set(&p, "gpu.mem", "80G"); /* as in options */
    assert_true(p.gpu_mem == UINT64_C(80) << 30);
    set(&p, "gpu.mem", "80GB");
    assert_true(p.gpu_mem == 80000000000);
    set(&p, "host.mem", "1.5TiB");
    assert_true(p.host_mem == UINT64_C(3) << 39);
    set(&p, "disk.space", "512M");
    assert_true(p.disk_space == UINT64_C(512) << 20);
    set(&p, "host.cores", "64");
    assert_true(p.cores == 64);
    set(&p, "price", "1.25");
    assert_true(p.usd_per_hour == 1.25);
    set(&p, "host.task", "8us");
    assert_true(p.host.task_s > 7.99e-6 && p.host.task_s < 8.01e-6);
    set(&p, "gpu.ops.sample", "7GB/s");
    assert_true(p.gpu.op[PS_OP_sample] == 7e9 && p.host.op[PS_OP_sample] != 7e9);
    /* Where nothing was known there is nothing to scale. */
    p.disk_read.alone = 0;
    set(&p, "disk.read", "2GB/s");
    assert_true(p.disk_read.alone == 2e9);
}

static void refusals(void **state)
{
    static const struct {
        const char *path, *value;
    } wrong[] = {
        { "disk.read", "" },         { "disk.read", "2" },       { "disk.read", "2GB" },
        { "disk.read", "-2GB/s" },   { "disk.read", "GB/s" },    { "disk.read", "2G" },
        { "disk.read", "1e30GB/s" }, { "disk.read", "nanGB/s" }, { "disk.read", "0x2GB/s" },
        { "disk.read", "2 GB/s x" }, { "gpu.mem", "lots" },      { "gpu.mem", "1K" },
        { "host.cores", "1.5" },     { "host.cores", "0" },      { "host.cores", "9999" },
        { "price", "-1" },           { "host.task", "1h" },      { "host.flops", "2GB/s" },
    };
    static const char *const none[] = { "",           "disk",        "disk.",
                                        "disk.speed", "disk.read.x", "host.ops.x",
                                        "pricey",     "name",        "host.linear" };
    struct ps_profile was, p;
    load(&was);
    p = was;
    for (size_t i = 0; i < PS_ARRAY_LEN(wrong); i++) {
        struct ps_detail dt = { "" };
        assert_err(ps_profile_set(&p, wrong[i].path, wrong[i].value, &dt), PS_EUSAGE);
        if (strncmp(dt.text, wrong[i].path, strlen(wrong[i].path)) != 0 ||
            !strstr(dt.text, "was expected"))
            fail_msg("%s=%s: %s", wrong[i].path, wrong[i].value, dt.text);
    }
    for (size_t i = 0; i < PS_ARRAY_LEN(none); i++)
        assert_err(ps_profile_set(&p, none[i], "2GB/s", NULL), ENOENT);
    assert_memory_equal(&p, &was, sizeof p);
    p.gpu_mem = 0;
    struct ps_detail dt = { "" };
    assert_err(ps_profile_set(&p, "gpu.read", "2GB/s", &dt), PS_EUSAGE);
    assert_non_null(strstr(dt.text, "has no GPU"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_take_what_was_probed_along),
        cmocka_unit_test(what_goes_along),
        cmocka_unit_test(in_any_order),
        cmocka_unit_test(figures_and_units),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
