/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that is planned for: a file, or this one. */
#include "engine/cli/generate.h"
#include "engine/cli/plan.h"
#include "offload/probe_machine.h"
#include <string.h>

bool ps_profile_of_this(const char *gpu, struct ps_profile *ret)
{
    ps_auto_free char *path = NULL;
    struct ps_machine m;
    struct ps_profile p;
    struct ps_detail dt = { "" };
    if (ps_profile_default_path(&path, NULL) < 0) return false;
    int r = ps_profile_read(path, &p, &dt);
    if (r < 0) {
        if (r != -ENOENT) ps_say("warning: not used: %s (`penstock probe` makes it anew)", dt.text);
        return false;
    }
    ps_machine_read("", &m);
    if (!ps_profile_is_this(&p, &m, gpu)) {
        ps_say("warning: not used: %s is another machine's, or of other CPUs, memory or GPU "
               "(`penstock probe` makes it anew)",
               path);
        return false;
    }
    *ret = p;
    return true;
}

void ps_profile_guess_disk(struct ps_profile *p)
{
    if (!(p->disk_read.alone > 0)) p->disk_read.alone = 1.5e9;
    if (!(p->disk_write.alone > 0)) p->disk_write.alone = 1e9;
}

/* This machine's, as generate does. */
static void guess_disk(struct ps_profile *p)
{
    if (p->disk_read.alone > 0) return;
    ps_profile_guess_disk(p);
    ps_say("warning: the probe of this machine found no room on its disk: %g GB/s of reads and %g "
           "of writes are guesses",
           p->disk_read.alone / 1e9, p->disk_write.alone / 1e9);
}

/* As `penstock probe --quick`, kept nowhere. */
static int quick_probe(const struct ps_engine_args *e, const struct ps_cuda_api *gpu,
                       const struct ps_cuda_info *info, struct ps_profile *ret,
                       struct ps_detail *dt)
{
    ps_auto_free char *text = NULL;
    struct ps_machine m;
    ps_machine_read("", &m);
    const struct ps_probe_machine cfg = { .threads = ps_probe_threads(&m),
                                          .quick = true,
                                          .folder = e->offload_dir ? e->offload_dir : ".",
                                          .io = e->run.io,
                                          .host_mem = m.mem_available / 2,
                                          .disk_space = UINT64_MAX,
                                          .gpu = gpu,
                                          .gpu_mem = gpu ? ps_gpu_ceiling(info, UINT64_MAX) : 0,
                                          .warn = ps_say_warning,
                                          .stop = ps_signals_count() };
    ps_say("there is no profile of this machine that could be used: a quick one is made now, in "
           "15 seconds (`penstock probe` makes one that is kept)");
    int r = ps_probe_machine(&cfg, &text, dt);
    return r < 0 ? r : ps_profile_parse(text, strlen(text), "the quick probe", ret, dt);
}

int ps_hardware_read(const char *name, struct ps_profile *ret, struct ps_detail *dt)
{
    struct ps_cuda_info info;
    struct ps_detail why = { "" };
    if (strcmp(name, "this") != 0) return ps_profile_read(name, ret, dt);
    if (!ps_profile_of_this(ps_gpu_usable(&info, &why) ? info.name : "", ret))
        return ps_fail(dt, -PS_EUSAGE, "this machine was not probed; `penstock probe` does it");
    ps_profile_guess_disk(ret);
    return 0;
}

int ps_plan_hardware(const char *hardware, struct ps_profile *ret, bool *ret_to_probe,
                     struct ps_detail *dt)
{
    struct ps_cuda_info info;
    struct ps_detail why = { "" };
    if (strcmp(hardware, "this") != 0) {
        int r = ps_profile_read(hardware, ret, dt);
        return r < 0 ? ps_fail_in(dt, r, "--hardware") : 0;
    }
    *ret_to_probe = !ps_profile_of_this(ps_gpu_usable(&info, &why) ? info.name : "", ret);
    if (!*ret_to_probe) guess_disk(ret);
    return 0;
}

int ps_plan_probe(const struct ps_engine_args *e, struct ps_profile *ret, struct ps_detail *dt)
{
    struct ps_cuda_info info;
    struct ps_detail why = { "" };
    const struct ps_cuda_api *gpu = ps_gpu_usable(&info, &why);
    int r = quick_probe(e, gpu, &info, ret, dt);
    if (!r) guess_disk(ret);
    return r;
}
