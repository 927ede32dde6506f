/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of hardware profiles: what it takes, what it refuses and in which words; the files under configs/hardware. */
#include "engine/base/ps_mem.h"
#include "offload/profile_set.h"
#include "ps_cmocka.h"
#include <dirent.h>
#include <math.h>

#define FIG(v, u) "{\"value\":" v ",\"unit\":\"" u "\",\"source\":\"measured\"}"
#define HOST_REST "\"read\":" FIG("20", "GB/s") ",\"flops\":" FIG("0.2", "TFLOP/s")
#define HOST      "\"host\":{\"mem\":" FIG("24", "GiB") "," HOST_REST "}"
#define DISK      "\"disk\":{\"read\":" FIG("2", "GB/s") ",\"write\":" FIG("1000", "MB/s") "}"
#define GPU \
    "\"gpu\":{\"name\":\"G\",\"mem\":" FIG("16", "GB") ",\"sm\":" FIG("75", "sm") "," HOST_REST "}"
#define LINKS "\"links\":{\"h2d\":" FIG("12", "GB/s") ",\"d2h\":" FIG("11", "GB/s") "}"

static int parse(const char *json, struct ps_profile *p, struct ps_detail *dt)
{
    dt->text[0] = 0;
    return ps_profile_parse(json, strlen(json), "x.json", p, dt);
}

static void least(void **state)
{
    struct ps_profile p;
    struct ps_detail dt;
    assert_ok_dt(parse("{\"name\":\"a\"," HOST "," DISK "}", &p, &dt), &dt);
    assert_string_equal(p.name, "a");
    assert_true(p.host_mem == UINT64_C(24) << 30 && !p.gpu_mem && !p.measured && !p.noisy);
    assert_true(p.host.mem == 20e9 && p.host.flops == 0.2e12 && p.host.copy == 0);
    assert_true(p.disk_read.alone == 2e9 && p.disk_write.alone == 1e9 && p.disk_read.beside == 0);
    assert_ok_dt(parse("{\"name\":\"a\"," HOST
                       ",\"disk\":{\"read\":null,\"write\":null},\"gpu\":null,"
                       "\"links\":null}",
                       &p, &dt),
                 &dt);
    assert_true(p.disk_read.alone == 0 && p.disk_space == 0);
}

#define CURVE(unit, x, y) \
    "{\"x\":[" x "],\"y\":[" y "],\"unit\":\"" unit "\",\"source\":\"measured\"}"

static void everything(void **state)
{
    const char *root = getenv("PS_SOURCE_ROOT");
    char path[4096];
    if (!root) skip();
    (void) snprintf(path, sizeof path, "%s/tests/fuzz/corpus/profile/all.json", root);
    struct ps_profile p;
    struct ps_detail dt;
    assert_ok_dt(ps_profile_read(path, &p, &dt), &dt);
    assert_true(p.measured && p.noisy && p.cores == 2 && p.threads == 2 && p.sm == 75);
    assert_true(p.pin_max == UINT64_C(8) << 30 && p.gpu_mem == 16000000000);
    assert_true(p.host.scores == 1.05 && fabs(p.host.task_s - 5e-6) < 1e-15);
    assert_true(p.host.n_linear == 1 && p.host.linear[0].wtype == PS_F16 &&
                p.host.linear[0].k == 2048);
    assert_true(p.host.linear[0].over_m.n == 2 && p.host.linear[0].over_m.y[1] == 180e9);
    assert_true(p.host.n_decode == 1 && p.host.decode[0].d == 64 && p.host.n_prompt == 1 &&
                p.host.prompt[0].d == 128);
    assert_true(p.host.op[PS_OP_layernorm] == 9e9 && p.host.op[PS_OP_call] == 8e9);
    assert_true(p.host.read_over.n == 2 && p.gpu.mem == 300e9 && p.gpu.n_linear == 0);
    assert_true(p.n_disk_read == 1 && p.disk_read_at[0].block == 1048576 &&
                p.disk_read_at[0].over_depth.y[0] == 900e6 && p.n_disk_write == 0);
    assert_true(p.disk_read.beside == 0.8e9 && p.io_cores == 0.3 && p.usd_per_hour == 2.5);
    assert_true(p.h2d.alone == 12e9 && p.d2h.alone == 11e9);
}

static void refusals(void **state)
{
#define WITH(host) "{\"name\":\"a\",\"host\":{" host "}," DISK "}"
#define READ(fig) \
    WITH("\"mem\":" FIG("24", "GiB") ",\"flops\":" FIG("1", "TFLOP/s") ",\"read\":" fig)
#define MORE(more)    WITH("\"mem\":" FIG("24", "GiB") "," HOST_REST "," more)
#define LINEAR(curve) MORE("\"linear\":[{\"weights\":\"f16\",\"k\":64,\"over_m\":" curve "}]")
    static const struct {
        const char *json, *says;
    } cases[] = {
        { "", "x.json:" },
        { "[1]", "expected a JSON object" },
        { "{", "not valid JSON" },
        { "{\"name\":\"a\"}", "host is missing; expected an object" },
        { "{\"name\":\"a\"," HOST "}", "disk is missing" },
        { "{" HOST "," DISK "}", "name is missing; expected a text" },
        { "{\"name\":\"\"," HOST "," DISK "}", "name is \"\"" },
        { "{\"name\":\"a\",\"nmae\":1," HOST "," DISK "}", "nmae is no field" },
        { "{\"name\":\"a\",\"measured\":true," HOST "," DISK "}", "measured is true" },
        { "{\"name\":\"a\",\"notes\":[1]," HOST "," DISK "}",
          "notes is 1; expected a list of texts" },
        { "{\"name\":\"a\",\"host\":3," DISK "}", "host is 3; expected an object" },
        { "{\"name\":\"a\",\"host\":null," DISK "}", "host is null" },
        { WITH(HOST_REST), "host.mem is missing; expected an object" },
        { WITH("\"mem\":24e9," HOST_REST), "host.mem is 2.4e+10; expected an object" },
        { READ("null"), "host.read is null" },
        { READ(FIG("-20", "GB/s")),
          "host.read.value is -20; expected a number from 1e-06 to 1000000" },
        { READ(FIG("0", "GB/s")), "host.read.value is 0" },
        { READ(FIG("2e9", "GB/s")), "host.read.value is 2000000000; expected a number from" },
        { READ(FIG("\"20\"", "GB/s")), "host.read.value is \"20\"" },
        { READ(FIG("NaN", "GB/s")), "not valid JSON" },
        { READ(FIG("1e999", "GB/s")), "not valid JSON" },
        { READ("{\"unit\":\"GB/s\",\"source\":\"m\"}"), "host.read.value is missing" },
        { READ(FIG("20", "TFLOP/s")), "host.read.unit is \"TFLOP/s\"; expected B/s, KB/s" },
        { READ(FIG("20", "GB")), "host.read.unit is \"GB\"" },
        { READ("{\"value\":20,\"source\":\"m\"}"), "host.read.unit is missing; expected B/s" },
        { READ("{\"value\":20,\"unit\":\"GB/s\"}"), "host.read.source is missing" },
        { READ("{\"value\":20,\"unit\":\"GB/s\",\"source\":\"\"}"), "host.read.source is \"\"" },
        { READ("{\"value\":20,\"unit\":\"GB/s\",\"source\":\"m\",\"sprad\":1}"),
          "host.read.sprad is no field" },
        { READ("{\"value\":20,\"unit\":\"GB/s\",\"source\":\"m\",\"spread\":[21,22]}"),
          "host.read.spread is a list; expected [least, greatest] around the value" },
        { READ("{\"value\":20,\"unit\":\"GB/s\",\"source\":\"m\",\"spread\":[19]}"),
          "host.read.spread" },
        { READ("{\"value\":20,\"unit\":\"GB/s\",\"source\":\"m\",\"noisy\":1}"),
          "host.read.noisy is 1; expected true or false" },
        { WITH("\"mem\":" FIG("24", "B") "," HOST_REST), "host.mem.value is 24" },
        { MORE("\"cores\":" FIG("2.5", "cores")), "host.cores.value is 2.5; expected an integer" },
        { MORE("\"cores\":" FIG("5000", "cores")), "host.cores.value is 5000" },
        { MORE("\"ops\":{\"softmax\":1}"), "host.ops.softmax is no field" },
        { MORE("\"ops\":[]"), "host.ops is a list; expected an object" },
        { MORE("\"linear\":{}"), "host.linear is an object; expected a list" },
        { MORE("\"linear\":[{\"weights\":\"f8\",\"k\":64}]"),
          "host.linear[0].weights is \"f8\"; expected f32, f16 or bf16" },
        { MORE("\"linear\":[{\"weights\":\"f16\",\"k\":0}]"), "host.linear[0].k is 0" },
        { MORE("\"linear\":[{\"weights\":\"f16\",\"k\":64}]"),
          "host.linear[0].over_m is missing; expected an object" },
        { LINEAR(CURVE("GFLOP/s", "1,4,4", "1,2,3")),
          "host.linear[0].over_m.x[2] is 4; expected more than the number before it" },
        { LINEAR(CURVE("GFLOP/s", "4,1", "1,2")), "host.linear[0].over_m.x[1] is 1" },
        { LINEAR(CURVE("GFLOP/s", "1,4", "1")),
          "host.linear[0].over_m.y is a list; expected a list of 2 numbers" },
        { LINEAR(CURVE("GFLOP/s", "", "")), "expected a list of 1 to 24 numbers" },
        { LINEAR(CURVE("GFLOP/s", "1,4", "1,-2")), "host.linear[0].over_m.y[1] is -2" },
        { LINEAR(CURVE("GFLOP/s", "0,4", "1,2")), "host.linear[0].over_m.x[0] is 0" },
        { LINEAR(CURVE("GB/s", "1,4", "1,2")), "host.linear[0].over_m.unit is \"GB/s\"" },
        { LINEAR(
              "{\"x\":[1],\"y\":[5],\"unit\":\"GFLOP/s\",\"source\":\"m\",\"spread\":[[6],[7]]}"),
          "host.linear[0].over_m.spread" },
        { MORE("\"decode\":[{\"kv\":\"f16\",\"d\":4096}]"), "host.decode[0].d is 4096" },
        { "{\"name\":\"a\"," HOST ",\"disk\":{\"read\":" FIG("2", "GB/s") "}}",
          "disk.write is missing" },
        { "{\"name\":\"a\"," HOST ",\"disk\":null}", "disk is null" },
        { "{\"name\":\"a\"," HOST ",\"disk\":{\"read\":null,\"write\":" FIG("2", "GB/s") "}}",
          "disk.read is null; expected a figure, as there is one" },
        { "{\"name\":\"a\"," HOST "," DISK "," GPU "}", "links.h2d is missing" },
        { "{\"name\":\"a\"," HOST "," DISK "," GPU ",\"links\":{\"h2d\":" FIG("9", "GB/s") "}}",
          "links.d2h is missing" },
        { "{\"name\":\"a\"," HOST "," DISK "," LINKS ",\"gpu\":{\"name\":\"G\"}}",
          "gpu.mem is missing" },
        { "{\"name\":\"a\"," HOST "," DISK ",\"price\":" FIG("-1", "USD/h") "}",
          "price.value is -1" },
        { "{\"name\":\"a\"," HOST "," DISK ",\"price\":" FIG("1", "EUR/h") "}",
          "price.unit is \"EUR/h\"; expected USD/h" },
    };
    struct ps_profile p = { .cores = 77 };
    struct ps_detail dt;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        int r = parse(cases[i].json, &p, &dt);
        if (r != -PS_EFORMAT) fail_msg("%s: %d (%s)", cases[i].json, r, dt.text);
        assert_says(&dt, cases[i].says);
        assert_says(&dt, "x.json");
        assert_int_equal(p.cores, 77);
    }
    assert_err(ps_profile_read("no such file", &p, &dt), ENOENT);
    assert_says(&dt, "no such file");
}

static void too_many(void **state)
{
    char json[8192];
    struct ps_profile p;
    struct ps_detail dt;
    int n =
        snprintf(json, sizeof json, "{\"name\":\"a\"," DISK ",\"host\":{\"mem\":%s,%s,\"decode\":[",
                 FIG("24", "GiB"), HOST_REST);
    for (int i = 1; i <= 17; i++)
        n += snprintf(json + n, sizeof json - (size_t) n,
                      "%s{\"kv\":\"f16\",\"d\":%d,\"over_entries\":%s}", i > 1 ? "," : "", i,
                      CURVE("GB/s", "1", "2"));
    (void) snprintf(json + n, sizeof json - (size_t) n, "]}}");
    assert_err(parse(json, &p, &dt), PS_EFORMAT);
    assert_says(&dt, "host.decode is a list; expected a list of at most 16");
}

static void curves(void **state)
{
    const struct ps_curve c = { 3, { 1, 4, 64 }, { 10, 40, 10 } };
    bool outside = false;
    assert_true(fabs(ps_curve_at(&c, 2, &outside) - 20) < 1e-9 && !outside);
    assert_true(fabs(ps_curve_at(&c, 16, &outside) - 20) < 1e-9 && !outside);
    assert_true(ps_curve_at(&c, 4, &outside) == 40 && ps_curve_at(&c, 1, &outside) == 10 &&
                !outside);
    assert_true(ps_curve_at(&c, 0.5, &outside) == 10 && outside);
    outside = false;
    assert_true(ps_curve_at(&c, 100, &outside) == 10 && outside);
    assert_true(ps_curve_at(&c, 100, NULL) == 10);
}

static void this_machine(void **state)
{
    struct ps_machine m = { .cpu_model = "C", .cpus = 2, .mem_total = 100000 };
    struct ps_profile p = { .cpu = "C", .cores = 2, .host_mem = 99000, .measured = true };
    assert_true(ps_profile_is_this(&p, &m, ""));
    assert_false(ps_profile_is_this(&p, &m, "T4"));
    p.host_mem = 90000;
    assert_false(ps_profile_is_this(&p, &m, ""));
    m.mem_limit = 90000;
    assert_true(ps_profile_is_this(&p, &m, ""));
    p.cores = 3;
    assert_false(ps_profile_is_this(&p, &m, ""));
    p.cores = 2;
    p.measured = false;
    assert_false(ps_profile_is_this(&p, &m, ""));
    p.measured = true;
    m.cpu_model[0] = 'D';
    assert_false(ps_profile_is_this(&p, &m, ""));
}

static void shipped(void **state)
{
    const char *root = getenv("PS_SOURCE_ROOT");
    if (!root) skip();
    char folder[4000], path[4400];
    (void) snprintf(folder, sizeof folder, "%s/configs/hardware", root);
    DIR *d = opendir(folder);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        struct ps_profile p;
        struct ps_detail dt;
        if (e->d_name[0] == '.') continue;
        (void) snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        assert_ok_dt(ps_profile_read(path, &p, &dt), &dt);
        assert_true(!p.measured && p.cpu[0] && p.cores &&
                    (p.disk_read.alone > 0) == (p.disk_space > 0));
        assert_true(!p.gpu_mem ||
                    (p.gpu_name[0] && p.gpu.mem > p.host.mem && p.gpu.flops > p.host.flops));
        n++;
    }
    (void) closedir(d);
    assert_true(n >= 7);
}

/* Fewer threads: what memory limits goes by its curve, the rest in proportion; more of them change nothing. */
static void fewer_threads(void **state)
{
    const struct ps_profile was = {
        .threads = 4,
        .cores = 8,
        .host = { .mem = 20e9,
                  .copy = 7e9,
                  .flops = 100e9,
                  .residual = 30e9,
                  .spread_s = 2e-6,
                  .gap_s = 1e-6,
                  .op = { [PS_OP_embed] = 10e9 },
                  .n_linear = 1,
                  .linear = { { PS_F16, 1024, { 2, { 1, 256 }, { 18e9, 80e9 } } } },
                  .n_decode = 1,
                  .decode = { { PS_F16, 64, { 1, { 100 }, { 16e9 } } } },
                  .n_prompt = 1,
                  .prompt = { { PS_F16, 64, { 1, { 100 }, { 40e9 } } } },
                  .read_over = { 3, { 1, 2, 4 }, { 10e9, 18e9, 20e9 } } }
    };
    struct ps_profile p = was;
    const struct ps_worker_rates *w = &p.host;
    ps_profile_threads(&p, 2);
    const double got[] = { w->mem,
                           w->copy,
                           w->flops,
                           w->residual,
                           w->spread_s * 1e15,
                           w->gap_s * 1e15,
                           w->op[PS_OP_embed],
                           w->linear[0].over_m.y[0],
                           w->linear[0].over_m.y[1],
                           w->decode[0].over_n.y[0],
                           w->prompt[0].over_n.y[0] },
                 want[] = { 18e9, 7e9, 50e9, 27e9, 2e9, 2e9, 9e9, 16.2e9, 40e9, 14.4e9, 20e9 };
    for (size_t i = 0; i < PS_ARRAY_LEN(want); i++)
        if (!(fabs(got[i] - want[i]) < 1)) fail_msg("%zu: %g, wanted %g", i, got[i], want[i]);
    assert_int_equal(p.threads, 2);
    p = was;
    ps_profile_threads(&p, 8);
    assert_memory_equal(&p.host, &was.host, sizeof p.host);
    assert_int_equal(p.threads, 8);
    p = was;
    p.host.read_over.n = p.threads = 0; /* one a core; what memory does with fewer is not known */
    ps_profile_threads(&p, 2);
    assert_true(w->mem == was.host.mem && w->flops == was.host.flops / 4);
    p = was;
    ps_profile_threads(&p, 1);
    assert_true(w->spread_s == 0);
}

static void every_allocation_fails(void **state)
{
    struct ps_profile p;
    struct ps_detail dt;
    int r = -1;
    for (uint64_t nth = 1; r < 0; nth++) {
        assert_true(nth < 1000);
        ps_mem_fault_arm(nth);
        r = parse("{\"name\":\"a\"," HOST "," DISK "," GPU "," LINKS "}", &p, &dt);
        int hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (r == 0 && hit) fail_msg("allocation %llu failed unnoticed", (unsigned long long) nth);
        if (r < 0 && r != -ENOMEM) fail_msg("%llu: %s", (unsigned long long) nth, dt.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least),
        cmocka_unit_test(everything),
        cmocka_unit_test(refusals),
        cmocka_unit_test(too_many),
        cmocka_unit_test(curves),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(shipped),
        cmocka_unit_test(fewer_threads),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
