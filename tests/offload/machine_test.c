/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of control groups from made-up trees, quick probes, and the doctor's findings. */
#include "engine/base/ps_mem.h"
#include "offload/doctor.h"
#include "offload/machine.h"
#include "offload/probe.h"
#include "offload/ps_numa.h"
#include "ps_cmocka.h"
#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)

static char root[64];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        (void) mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *w)
{
    return remove(path);
}

static int setup(void **state)
{
    snprintf(root, sizeof root, "ps-machine-XXXXXX");
    if (!mkdtemp(root)) return -1;
    put("/proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu avx2\n");
    return 0;
}
static int teardown(void **state) { return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

static void no_groups(void **state)
{
    struct ps_machine m;
    ps_machine_read(root, &m);
    assert_string_equal(m.cpu_model, "Some CPU @ 2 GHz");
    assert_true(m.mem_total == 16384 * MIB && m.mem_available == 8192 * MIB);
    assert_true(m.mem_limit == 0 && m.cgroup_version == 0 && m.cpu_quota == 0 && m.cpus >= 1);
}

/* Version 2: the tighter limit is the parent's; page cache that can go does not count as used. */
static void version_2(void **state)
{
    struct ps_machine m;
    put("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "0::/job/run\n");
    put("/sys/fs/cgroup/job/run/memory.max", "max\n");
    put("/sys/fs/cgroup/job/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/job/memory.current", "1073741824\n");
    put("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 536870912\nactive_file 0\n");
    put("/sys/fs/cgroup/job/run/cpu.max", "150000 100000\n");
    ps_machine_read(root, &m);
    assert_true(m.mem_limit == 2048 * MIB && m.mem_available == 1536 * MIB);
    assert_int_equal(m.cgroup_version, 2);
    assert_true(fabs(m.cpu_quota - 1.5) < 1e-9 && m.cpus <= 2);
    put("/sys/fs/cgroup/job/memory.stat",
        "anon 5\nfile_mapped 104857600\ninactive_file 268435456\nactive_file 268435456\n");
    ps_machine_read(root, &m);
    assert_true(m.mem_available == (1536 - 100) * MIB);
    put("/sys/fs/cgroup/job/memory.current", "9147483648\n"); /* nothing is left */
    ps_machine_read(root, &m);
    assert_true(m.mem_available == 0);
}

/* Version 1 inside a container: the mount shows the group itself as its root. */
static void version_1(void **state)
{
    struct ps_machine m;
    put("/proc/self/mountinfo",
        "31 1 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "32 1 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
    put("/proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "104857600\n");
    put("/sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\nactive_file 1\nmapped_file 1\ntotal_inactive_file 41943040\n"
        "total_active_file 20971520\ntotal_mapped_file 10485760\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    ps_machine_read(root, &m);
    assert_true(m.mem_limit == 1024 * MIB && m.mem_available == 974 * MIB);
    assert_int_equal(m.cgroup_version, 1);
    assert_true(m.cpu_quota == 0);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* "none" */
    ps_machine_read(root, &m);
    assert_true(m.mem_limit == 0 && m.mem_available == 8192 * MIB);
}

static void hostile_files(void **state)
{
    struct ps_machine m;
    put("/proc/self/mountinfo", "garbage\n - \n31 1 0:27 / - cgroup2\n1 2 3 / /x - cgroup2 a b\n");
    put("/proc/self/cgroup", "::::\n0\n0::/../../../etc\n");
    put("/proc/meminfo", "MemTotal:");
    ps_machine_read(root, &m);
    assert_true(m.mem_total == 0 && m.cpus >= 1);
}

static void this_machine(void **state)
{
    uint64_t left = 0;
    char fs[32];
    struct ps_detail dt = { { 0 } };
    assert_true(ps_machine_mem_available() > 0);
    assert_ok_dt(ps_machine_disk_free(".", &left, &dt), &dt);
    assert_ok_dt(ps_machine_fs_type(".", fs, &dt), &dt);
    assert_true(*fs);
    assert_err(ps_machine_disk_free("no/such/folder", &left, &dt), ENOENT);
    assert_says(&dt, "no/such/folder");
}

/* Rates are there and consistent; what they are is not asserted. */
static void check_rate(const struct ps_rate *r)
{
    assert_true(r->slices >= 1 && r->min > 0 && r->min <= r->median && r->median <= r->max);
    assert_true(r->total_work > 0 && r->total_s > 0);
}

static void probes(void **state)
{
    struct ps_rate r;
    struct ps_detail dt = { { 0 } };
    bool direct;
    assert_ok_dt(ps_probe_dram(2, 4 * MIB, 0.01, &r, &dt), &dt);
    check_rate(&r);
    assert_err(ps_probe_dram(0, 4 * MIB, 0.01, &r, &dt), EINVAL);
    struct ps_probe_disk how = {
        .io_bytes = 65536, .depth = 4, .max_bytes = 2 * MIB, .max_s = 0.2
    };
    assert_ok_dt(ps_probe_disk_write(root, &how, &r, &direct, &dt), &dt);
    check_rate(&r);
    char path[128];
    snprintf(path, sizeof path, "%s/data", root);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 40 * 65536 + 17; i++) fputc(i, f);
    fclose(f);
    assert_ok_dt(ps_probe_disk_read(path, &how, &r, &direct, &dt), &dt);
    check_rate(&r);
    assert_true(r.total_work <= (double) (2 * MIB));
    how.store = "pread";
    assert_ok_dt(ps_probe_disk_read(path, &how, &r, &direct, &dt), &dt);
    how.store = "tape";
    assert_err(ps_probe_disk_read(path, &how, &r, &direct, &dt), EINVAL);
    how = (struct ps_probe_disk) { .max_bytes = UINT64_MAX / 2 };
    assert_err(ps_probe_disk_write(root, &how, &r, &direct, &dt), ENOSPC);
    assert_true(ps_probe_disk_read("no-such-file", &how, &r, &direct, &dt) < 0);
    assert_says(&dt, "no-such-file");
    struct dirent **names; /* the written file is gone */
    int n = scandir(root, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        assert_null(strstr(names[i]->d_name, "penstock"));
        free(names[i]);
    }
    free(names);
}

static void doctor(void **state)
{
    static const char *const ids[] = { "cpus",       "isa",       "memory",      "huge_pages",
                                       "numa",       "io_uring",  "memlock",     "file_system",
                                       "disk_space", "direct_io", "cuda_module", "gpu" };
    struct ps_detail dt = { { 0 } };
    ps_auto_free struct ps_finding *f = NULL;
    size_t n = 0;
    assert_ok_dt(ps_doctor(root, &f, &n, &dt), &dt);
    assert_int_equal(n, PS_ARRAY_LEN(ids));
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(f[i].id, ids[i]);
        assert_true(*f[i].text && strlen(ps_health_name(f[i].health)) >= 2);
        if (f[i].health >= PS_HEALTH_WARN) assert_true(*f[i].advice);
        if (getenv("PS_SHOW"))
            print_message("%-12s %-5s %s %s\n", f[i].id, ps_health_name(f[i].health), f[i].text,
                          f[i].advice);
    }
    ps_auto_free struct ps_finding *g = NULL;
    assert_err(ps_doctor("no/such/folder", &g, &n, &dt), ENOENT);
    assert_null(g);
}

static void node_of_a_device(void **state)
{
    put("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
    put("/sys/bus/pci/devices/0000:3c:00.0/numa_node", "-1\n");
    put("/sys/bus/pci/devices/0000:3d:00.0/numa_node", "x\n");
    assert_int_equal(ps_numa_node_of(root, "0000:3b:00.0"), 1);
    assert_int_equal(ps_numa_node_of(root, "0000:3c:00.0"), -1);
    assert_int_equal(ps_numa_node_of(root, "0000:3d:00.0"), -1);
    assert_int_equal(ps_numa_node_of(root, "0000:3e:00.0"), -1);
    assert_int_equal(ps_numa_node_of(root, ""), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_groups),    cmocka_unit_test(version_2),
        cmocka_unit_test(version_1),    cmocka_unit_test(hostile_files),
        cmocka_unit_test(this_machine), cmocka_unit_test(probes),
        cmocka_unit_test(doctor),       cmocka_unit_test(node_of_a_device),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
