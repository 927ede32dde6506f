/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/doctor.h"
#include "engine/base/ps_cpu.h"
#include "engine/base/ps_mem.h"
#include "kernels/cuda/ps_cuda.h"
#include "offload/machine.h"
#include "offload/ps_numa.h"
#include "offload/store_files.h"
#include "offload/uring_probe.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { MAX_FINDINGS = 32 };
#define GIB 1073741824.0

struct report {
    struct ps_finding *f;
    size_t n;
    const char *folder;
    struct ps_machine m;
};

const char *ps_health_name(enum ps_health h)
{
    static const char *const names[PS_HEALTH__COUNT] = { "ok", "info", "warn", "fail" };
    return (unsigned) h < PS_HEALTH__COUNT ? names[h] : "?";
}

static struct ps_finding *add(struct report *r, const char *id, enum ps_health h)
{
    struct ps_finding *f = &r->f[r->n < MAX_FINDINGS - 1 ? r->n++ : r->n];
    *f = (struct ps_finding) { .id = id, .health = h };
    return f;
}
#define TEXT(f, ...)   ((void) snprintf((f)->text, sizeof(f)->text, __VA_ARGS__))
#define ADVICE(f, ...) ((void) snprintf((f)->advice, sizeof(f)->advice, __VA_ARGS__))

static void cpus(struct report *r)
{
    const struct ps_machine *m = &r->m;
    struct ps_finding *f = add(r, "cpus", PS_HEALTH_OK);
    TEXT(f, "%u of %u CPUs may be used (%s)", m->cpus, m->cpus_online,
         *m->cpu_model ? m->cpu_model : "unknown model");
    if (m->cpu_quota > 0) {
        f->health = m->cpu_quota + 0.01 < m->cpus_online ? PS_HEALTH_WARN : PS_HEALTH_OK;
        TEXT(f, "%u of %u CPUs may be used (%s); the control group's quota is %.2f CPUs", m->cpus,
             m->cpus_online, m->cpu_model, m->cpu_quota);
        if (f->health == PS_HEALTH_WARN)
            ADVICE(f,
                   "A quota stops all threads for a part of each period; raise it, or use "
                   "--threads %u.",
                   m->cpus);
    }
}

static bool cpu_has(const char *flags, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = flags; (p = strstr(p, name)); p += n)
        if (p > flags && p[-1] == ' ' && (p[n] == ' ' || p[n] == '\n' || !p[n])) return true;
    return false;
}

static void isa(struct report *r)
{
    static const char *const names[] = { "avx2",     "fma",         "f16c",        "avx512f",
                                         "avx512bw", "avx512_bf16", "avx512_fp16", "amx_tile",
                                         "amx_bf16", "asimd",       "sve" };
    const uint32_t have = ps_cpu_flags();
    struct ps_finding *f = add(r, "isa", PS_HEALTH_OK);
    char text[8192], list[256] = "";
    if (ps_machine_text("", "/proc/cpuinfo", text, sizeof text) >= 0) {
        char *flags = strstr(text, "\nflags"), *end = flags ? strchr(flags + 1, '\n') : NULL;
        if (end) *end = 0;
        for (size_t i = 0; flags && i < PS_ARRAY_LEN(names); i++)
            if (cpu_has(flags, names[i])) {
                size_t at = strlen(list);
                (void) snprintf(list + at, sizeof list - at, " %s", names[i]);
            }
    }
    TEXT(f, "kernels for %s are used; the processor has:%s",
         have & PS_CPU_AVX512 ? "AVX-512"
         : have & PS_CPU_AVX2 ? "AVX2"
                              : "any processor (scalar)",
         *list ? list : " none that is known here");
    if (have & (PS_CPU_AVX2 | PS_CPU_AVX512)) return;
    f->health = PS_HEALTH_WARN;
    ADVICE(f, "Without AVX2 everything is computed by the slow reference code.");
}

static void memory(struct report *r)
{
    const struct ps_machine *m = &r->m;
    struct ps_finding *f = add(r, "memory", PS_HEALTH_OK);
    TEXT(f, "%.1f GiB of %.1f GiB memory are available", (double) m->mem_available / GIB,
         (double) m->mem_total / GIB);
    if (m->mem_limit)
        TEXT(f,
             "%.1f GiB of memory are available: the control group's limit (version %d) is %.1f of "
             "the machine's %.1f GiB",
             (double) m->mem_available / GIB, m->cgroup_version, (double) m->mem_limit / GIB,
             (double) m->mem_total / GIB);
    if (m->mem_available >= GIB) return;
    f->health = PS_HEALTH_WARN;
    ADVICE(f, "Free memory or raise the limit; --host-mem decides what a run takes.");
}

/* io_uring itself, and whether it may pin buffers. */
static void io_uring(struct report *r)
{
    struct rlimit lim = { 0 };
    (void) getrlimit(RLIMIT_MEMLOCK, &lim);
    char text[64] = "unlimited";
    if (lim.rlim_cur != RLIM_INFINITY)
        (void) snprintf(text, sizeof text, "%.0f KiB", (double) lim.rlim_cur / 1024);
    struct ps_detail why = { { 0 } };
    bool fixed = false;
    int e = ps_uring_probe(&fixed, &why);
    struct ps_finding *f = add(r, "io_uring", e < 0 ? PS_HEALTH_WARN : PS_HEALTH_OK);
    TEXT(f, "%.390s", e < 0 ? why.text : "io_uring works");
    if (e < 0)
        ADVICE(f, "Reads go through a pool of threads instead (--io pread). To allow io_uring: %s.",
               e == -ENOMEM ? "a higher memlock limit"
                            : "sysctl kernel.io_uring_disabled=0, and a container profile that "
                              "permits it (--security-opt seccomp=...)");
    f = add(r, "memlock", PS_HEALTH_OK);
    TEXT(f, "the memlock limit is %s; %s", text,
         e == -ENOMEM ? "io_uring gets no memory"
         : e < 0      ? "it does not matter without io_uring"
         : fixed      ? "64 MiB of buffers could be registered with the kernel"
                      : "buffers cannot be registered with the kernel");
    if ((e < 0 && e != -ENOMEM) || fixed) return;
    f->health = PS_HEALTH_WARN;
    ADVICE(f, "Raise it to get a little more from a fast drive: ulimit -l unlimited, or "
              "LimitMEMLOCK=infinity, or --ulimit memlock=-1.");
}

static void huge_pages(struct report *r)
{
    char text[128];
    if (ps_machine_text("", "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) < 0) {
        TEXT(add(r, "huge_pages", PS_HEALTH_INFO), "the kernel has no transparent huge pages");
        return;
    }
    bool never = strstr(text, "[never]");
    struct ps_finding *f = add(r, "huge_pages", never ? PS_HEALTH_WARN : PS_HEALTH_OK);
    TEXT(f, "transparent huge pages: %s", text);
    if (never)
        ADVICE(f, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled makes memory a few "
                  "per cent faster.");
}

static void numa(struct report *r)
{
    unsigned n = ps_numa_nodes();
    struct ps_finding *f = add(r, "numa", n > 1 ? PS_HEALTH_INFO : PS_HEALTH_OK);
    TEXT(f, "%u memory node%s", n, ps_plural(n));
    if (n > 1)
        ADVICE(f, "--numa 0 keeps a run's memory on one node; run it there too: numactl "
                  "--cpunodebind=0.");
}

/* ---- the folder */

static bool is_network(const char *fs)
{
    static const char *const names[] = { "nfs", "cifs", "smb2", "9p", "fuse", "lustre", "gpfs" };
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        if (!strcmp(fs, names[i])) return true;
    return false;
}

static void file_system(struct report *r, const char *fs)
{
    struct ps_finding *f = add(r, "file_system", PS_HEALTH_OK);
    TEXT(f, "%s is on %s", r->folder, fs);
    if (!strcmp(fs, "tmpfs") || !strcmp(fs, "ramfs")) {
        f->health = PS_HEALTH_WARN;
        ADVICE(f, "That is memory, not disk: what is offloaded there still counts. Choose a folder "
                  "on a drive with --offload-dir.");
    } else if (is_network(fs)) {
        f->health = PS_HEALTH_WARN;
        ADVICE(f, "A network or user-space file system is seldom fast enough; choose a folder on a "
                  "local drive with --offload-dir.");
    }
}

static void disk_space(struct report *r, uint64_t left)
{
    struct ps_finding *f = add(r, "disk_space", left < GIB ? PS_HEALTH_WARN : PS_HEALTH_OK);
    TEXT(f, "%.1f GiB are free under %s", (double) left / GIB, r->folder);
    if (left < GIB)
        ADVICE(f, "Models, KV and hidden states on disk need room; choose another folder with "
                  "--offload-dir.");
}

/* One aligned block out and in, past the page cache. */
static int try_direct(const char *folder, uint32_t *ret_align, int *ret_write)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/.penstock-doctor-XXXXXX", folder) >= (int) sizeof path)
        return -ENAMETOOLONG;
    ps_auto_close int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        *ret_write = -errno;
        return -errno;
    }
    *ret_align = ps_dio_align(fd);
    ps_auto_close int d = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    int r = d < 0 ? -errno : 0;
    (void) unlink(path);
    size_t n = *ret_align > 4096 ? *ret_align : 4096;
    ps_auto_free void *p = ps_aligned(n, n);
    if (!p) return -ENOMEM;
    memset(p, 1, n);
    if (r >= 0 && pwrite(d, p, n, 0) != (ssize_t) n) r = errno ? -errno : -EIO;
    if (r >= 0 && pread(d, p, n, 0) != (ssize_t) n) r = errno ? -errno : -EIO;
    return *ret_align ? r : -EINVAL;
}

static void direct_io(struct report *r)
{
    uint32_t align = 0;
    int cannot_write = 0, e = try_direct(r->folder, &align, &cannot_write);
    struct ps_finding *f = add(r, "direct_io", PS_HEALTH_OK);
    if (cannot_write < 0) {
        f->health = PS_HEALTH_FAIL;
        TEXT(f, "no file can be made in %s: %s", r->folder, ps_err_str(cannot_write));
        ADVICE(f, "Choose a folder that you may write in with --offload-dir.");
    } else if (e < 0) {
        f->health = PS_HEALTH_WARN;
        TEXT(f, "O_DIRECT does not work under %s: %s", r->folder, ps_err_str(e));
        ADVICE(f, "Transfers go through the page cache, which costs CPU time and memory; ext4 and "
                  "xfs on a local drive do better.");
    } else {
        TEXT(f, "O_DIRECT works under %s, alignment %u bytes", r->folder, align);
    }
}

/* ---- the accelerator */

/* Why the driver did not answer, in terms of what can be seen from here. */
static void no_gpu(struct ps_finding *f, const char *error)
{
    const bool dev = !access("/dev/nvidiactl", F_OK) || !access("/dev/nvidia0", F_OK) ||
                     !access("/dev/dxg", F_OK);
    const bool lib = ps_cuda_driver();
    if (lib)
        TEXT(f, "no GPU can be used: %.300s%s", error,
             dev ? "" : "; there is no /dev/nvidia* device");
    else
        TEXT(f, "no GPU can be used: %slibcuda.so.1 (the driver's library) is not found",
             dev ? "" : "no /dev/nvidia* device, and ");
    if (dev && lib)
        ADVICE(f, "The driver must be as new as the CUDA of this build, and the GPU free.");
    else
        ADVICE(f, "Everything runs on the CPU. In a container a GPU needs --gpus all and the "
                  "NVIDIA container toolkit.");
}

static void gpu(struct report *r)
{
    const struct ps_cuda_api *cuda;
    struct ps_cuda_info i;
    struct ps_detail why = { { 0 } };
    struct ps_finding *f = add(r, "cuda_module", PS_HEALTH_INFO);
    int e = ps_cuda_load(NULL, &cuda, &why);
    if (e >= 0) {
        f->health = PS_HEALTH_OK;
        TEXT(f, "the CUDA module is there");
    } else {
        TEXT(f, "no CUDA: %.380s", why.text);
        if (e == -ENOENT)
            ADVICE(f, "Build with nvcc (the CUDA toolkit) found, or with -Dcuda=enabled to see why "
                      "it is not.");
        else
            ADVICE(f, "A CUDA library that it needs is missing (cuBLASLt, of the CUDA version that "
                      "built it), or its file is damaged.");
    }
    f = add(r, "gpu", PS_HEALTH_INFO);
    if (e < 0 || cuda->info(&i) < 0) {
        no_gpu(f, e < 0 ? "without the CUDA module nobody asks for one" : cuda->error());
        return;
    }
    char node[32] = "";
    const int n = ps_numa_node_of("", i.pci);
    if (n >= 0) (void) snprintf(node, sizeof node, " (memory node %d)", n);
    TEXT(f,
         "%.120s at %s%s, compute capability %u.%u, %.1f of %.1f GiB free, driver for CUDA %u.%u, "
         "module of CUDA %u.%u",
         i.name, i.pci, node, i.sm / 10, i.sm % 10, (double) i.free_bytes / GIB,
         (double) i.total_bytes / GIB, i.driver / 1000, i.driver % 1000 / 10, i.runtime / 1000,
         i.runtime % 1000 / 10);
    if (i.sm >= PS_CUDA_SM_MIN) return;
    f->health = PS_HEALTH_WARN;
    ADVICE(f, "The kernels need compute capability 7.5 (T4, RTX 20) or newer.");
}

int ps_doctor(const char *folder, struct ps_finding **ret, size_t *ret_n, struct ps_detail *dt)
{
    struct report r = { .folder = folder };
    char fs[32];
    uint64_t left;
    int e = ps_machine_fs_type(folder, fs, dt);
    if (e >= 0) e = ps_machine_disk_free(folder, &left, dt);
    if (e < 0) return e;
    r.f = ps_calloc(MAX_FINDINGS, sizeof *r.f);
    if (!r.f) return ps_fail(dt, -ENOMEM, "no memory for the findings");
    ps_machine_read("", &r.m);
    cpus(&r);
    isa(&r);
    memory(&r);
    huge_pages(&r);
    numa(&r);
    io_uring(&r);
    file_system(&r, fs);
    disk_space(&r, left);
    direct_io(&r);
    gpu(&r);
    *ret = r.f;
    *ret_n = r.n;
    return 0;
}
