/* SPDX-License-Identifier: Apache-2.0 */
/* probe: measures this machine. What it writes appears under its name when it is whole, or not at all. */
#include "engine/base/ps_file.h"
#include "engine/cli/generate.h"
#include "offload/probe.h"
#include "offload/probe_machine.h"
#include "offload/profile.h"
#include <stdio.h>
#include <string.h>

enum {
    OPT_QUICK = 256,
    OPT_DIR,
    OPT_THREADS,
    OPT_GPU_MEM,
    OPT_DISK_SPACE,
    OPT_IO,
    OPT_SECONDS,
    OPT_READS,
    OPT_HOST_MEM
};

static const struct argp_option options[] = {
    { "output", 'o', "FILE", 0,
      "where the profile goes (default: hardware.json in penstock's cache folder, where --hardware "
      "this looks for it; - for stdout)",
      0 },
    { "quick", OPT_QUICK, NULL, 0, "under 15 s instead of 90, fewer points", 0 },
    { "seconds", OPT_SECONDS, "N", 0, "take about so long (1 to 3600)", 0 },
    { "offload-dir", OPT_DIR, "DIR", 0, "on the disk to be measured (default: the current folder)",
      0 },
    { "reads", OPT_READS, "FILE", 0,
      "on that disk, and there for long: what it is read with counts, not what a fresh file is "
      "(packed weights, say)",
      0 },
    { "disk-space", OPT_DISK_SPACE, "SIZE", 0,
      "most that may be written there (default 2G; ten times as much must be free; 0: no disk)",
      0 },
    { "threads", OPT_THREADS, "N", 0,
      "worker threads, 256 at most (default: the CPUs this process may use)", 0 },
    { "host-mem", OPT_HOST_MEM, "SIZE", 0,
      "most memory it takes (default 1G or five times the caches, and at most half of what is "
      "available)",
      0 },
    { "gpu-mem", OPT_GPU_MEM, "SIZE", 0, "most of the GPU's memory (default: 2560M; 0: no GPU)",
      0 },
    { "io", OPT_IO, "uring|pread", 0, "how the disk is read (default: io_uring where allowed)", 0 },
    { 0 },
};

struct args {
    const char *output, *reads;
    bool quick;
    double seconds;
    struct ps_engine_args engine;
};

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct args *a = st->input;
    struct ps_detail dt = { "" };
    switch (key) {
    case 'o': a->output = arg; return 0;
    case OPT_READS: a->reads = arg; return 0;
    case OPT_QUICK: a->quick = true; return 0;
    case OPT_SECONDS:
        if (!ps_opt_double(arg, &a->seconds) || !(a->seconds >= 1 && a->seconds <= 3600))
            argp_error(st, "--seconds %s: a number from 1 to 3600 was expected", arg);
        return 0;
    case ARGP_KEY_ARG: argp_error(st, "%s: no argument is expected", arg); return 0;
    default: break;
    }
    for (const struct argp_option *o = options; o->name; o++)
        if (o->key == key) {
            if (ps_engine_set(&a->engine, o->name, arg, &dt) < 0) argp_error(st, "%s", dt.text);
            if (a->engine.plan.threads > PS_PROBE_THREADS_MAX)
                argp_error(st, "--threads %s: at most %d were expected", arg, PS_PROBE_THREADS_MAX);
            return 0;
        }
    return ARGP_ERR_UNKNOWN;
}

/* ---- the file */

/* Where it goes: NULL is stdout. The folder of the default is made. */
static int find_output(const struct args *a, char **ret, struct ps_detail *dt)
{
    ps_auto_free char *folder = NULL;
    int r;
    *ret = NULL;
    if (a->output) {
        if (!strcmp(a->output, "-")) return 0;
        *ret = ps_concat(a->output, "", "");
        return *ret ? 0 : -ENOMEM;
    }
    if ((r = ps_profile_default_path(ret, dt)) < 0 || (r = ps_folder_of(*ret, &folder)) < 0)
        return r;
    r = ps_make_folders(folder);
    return r < 0 ? ps_fail(dt, r, "%s cannot be made: %s", folder, ps_err_str(r)) : 0;
}

static int write_file(const char *path, const char *text, struct ps_detail *dt)
{
    ps_auto_free char *line = ps_concat(text, "\n", "");
    return line ? ps_file_replace(path, line, dt) : -ENOMEM;
}

/* ---- what is said */

static void on_progress(void *ud, const char *what, double done)
{
    static const char *last;
    char text[80];
    if (!isatty(STDERR_FILENO)) { /* a line for each part */
        if (what != last) ps_say("probing: %s", what);
        last = what;
        return;
    }
    (void) snprintf(text, sizeof text, "probing: %s, %.0f %%", what, 100 * done);
    ps_progress_line(text);
}

static void say_profile(const char *text)
{
    struct ps_profile p;
    if (ps_profile_parse(text, strlen(text), "profile", &p, NULL) < 0) return;
    ps_say("memory %.1f GB/s, linears %.0f GFLOP/s (%u thread%s)", p.host.mem / 1e9,
           p.host.flops / 1e9, p.threads, ps_plural(p.threads));
    if (p.disk_read.alone > 0)
        ps_say("disk: reads %.2f GB/s, writes %.2f GB/s", p.disk_read.alone / 1e9,
               p.disk_write.alone / 1e9);
    if (p.gpu_mem)
        ps_say("%s: memory %.0f GB/s, linears %.1f TFLOP/s, to it %.1f GB/s, from it %.1f GB/s",
               p.gpu_name, p.gpu.mem / 1e9, p.gpu.flops / 1e12, p.h2d.alone / 1e9,
               p.d2h.alone / 1e9);
}

/* ---- the command */

static void find_gpu(const struct args *a, struct ps_probe_machine *cfg)
{
    const uint64_t wanted = a->engine.gpu_mem, enough = UINT64_C(2560) << 20;
    struct ps_cuda_info info;
    struct ps_detail why = { "" };
    if (!wanted) return;
    cfg->gpu = ps_gpu_usable(&info, &why);
    if (cfg->gpu)
        cfg->gpu_mem = ps_gpu_ceiling(&info, wanted == UINT64_MAX ? enough : wanted);
    else if (wanted != UINT64_MAX)
        ps_say(
            "warning: --gpu-mem does nothing here: no GPU can be used (%.500s); doctor says more",
            why.text);
}

/* That it can be read is seen before a minute is spent. */
static int try_reads(const struct args *a, struct ps_detail *dt)
{
    const struct ps_probe_disk how = { .store = a->engine.run.io, .max_bytes = 1 << 20 };
    struct ps_rate r;
    bool direct;
    const int e = a->reads ? ps_probe_disk_read(a->reads, &how, &r, &direct, dt) : 0;
    return e < 0 ? ps_fail_in(dt, e, "--reads") : 0;
}

static int probe(const struct args *a, const char *path, struct ps_detail *dt)
{
    const struct ps_engine_args *e = &a->engine;
    ps_auto_free char *text = NULL;
    struct ps_machine m;
    struct ps_probe_machine cfg = { .threads = e->plan.threads,
                                    .quick = a->quick,
                                    .seconds = a->seconds,
                                    .folder = e->offload_dir ? e->offload_dir : ".",
                                    .io = e->run.io,
                                    .reads = a->reads,
                                    .disk_space = e->plan.disk_space,
                                    .progress = on_progress,
                                    .warn = ps_say_warning,
                                    .stop = ps_signals_count() };
    find_gpu(a, &cfg);
    ps_machine_read("", &m);
    cfg.host_mem = e->plan.host_mem < m.mem_available / 2 ? e->plan.host_mem : m.mem_available / 2;
    if (!cfg.threads) cfg.threads = ps_probe_threads(&m);
    int r = ps_probe_machine(&cfg, &text, dt);
    ps_progress_end();
    if (r < 0) return r;
    if (path)
        r = write_file(path, text, dt);
    else
        (void) puts(text); /* main() looks whether that was written */
    if (r < 0) return ps_fail_in(dt, r, a->output ? "-o" : "the profile");
    say_profile(text);
    if (path) ps_say("the profile is in %s", path);
    return 0;
}

int ps_cmd_probe(int argc, char **argv)
{
    static const struct argp argp = { options,
                                      parse,
                                      NULL,
                                      "Measures memory, kernels, disk and GPU as the engine uses "
                                      "them, and writes a hardware profile. Nothing else should "
                                      "run meanwhile.",
                                      NULL,
                                      NULL,
                                      NULL };
    struct args a = { 0 };
    struct ps_detail dt = { "" };
    ps_auto_free char *path = NULL;
    ps_engine_args_init(&a.engine);
    ps_opt_parse(&argp, argc, argv, &a);
    ps_signals_catch();
    int r = find_output(&a, &path, &dt);
    /* Before a minute is spent on what then cannot be written. */
    if (r < 0 && a.output) r = ps_fail_in(&dt, r, "-o");
    if (!r && path) r = ps_output_check(a.output ? "-o" : "the profile", path, &a.reads, 1, &dt);
    if (!r) r = try_reads(&a, &dt);
    if (!r) r = probe(&a, path, &dt);
    return r < 0 ? ps_say_error(r, &dt) : PS_EXIT_OK;
}
