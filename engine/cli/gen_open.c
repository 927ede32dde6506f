/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/cli/generate.h"
#include "offload/machine.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void ps_generate_close(struct ps_generate_model *m)
{
    ps_tok_close(m->tok);
    ps_pack_close(m->packed);
    free(m->packed_folder);
    free(m->offload_dir);
}

int ps_generate_open(const struct ps_generate_args *a, struct ps_generate_model *m,
                     struct ps_detail *dt)
{
    const char *folder = a->model;
    int r = 0;
    if (!ps_pack_is(folder)) {
        struct ps_convert_opt opt = { .dtype = -1, .threads = a->job.plan.threads };
        ps_convert_ui(&opt, a->progress == PS_PROGRESS_NONE);
        r = ps_pack_cached(folder, a->engine.pack_dir, &opt, &m->packed_folder, dt);
        ps_progress_end();
        folder = m->packed_folder;
    }
    if (!r) r = ps_pack_open(folder, &m->packed, dt);
    /* In results a model goes by the user's name, not by that of its folder in the cache. */
    struct ps_shape source;
    if (!r && m->packed_folder) r = ps_shape_read(a->model, &source, dt);
    if (!r && m->packed_folder) memcpy(m->packed->shape.name, source.name, sizeof source.name);
    return r;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* A folder that is missing is made, but for a dry run, which finds the same disk in its parent. */
static int make_offload_dir(const char *dir, bool dry_run, char **ret, struct ps_detail *dt)
{
    struct stat st;
    ps_auto_free char *bare = ps_concat(dir, "", ""), *parent = NULL;
    if (!bare) return -ENOMEM;
    for (size_t n = strlen(bare); n > 1 && bare[n - 1] == '/';) bare[--n] = 0;
    if (!stat(bare, &st) && !S_ISDIR(st.st_mode))
        return ps_fail(dt, -ENOTDIR, "--offload-dir %s: it is no folder", dir);
    if (!is_folder(bare)) {
        int r = ps_folder_of(bare, &parent);
        if (r < 0) return r;
        if (!is_folder(parent))
            return ps_fail(dt, -ENOENT,
                           "--offload-dir %s: the folder %s is not there; only the last folder of "
                           "the path is made",
                           dir, parent);
        const int e = dry_run || !mkdir(bare, 0777) ? 0 : errno;
        if (e && !(e == EEXIST && is_folder(bare))) /* another process may make it, too */
            return ps_fail(dt, -e, "--offload-dir %s: cannot be made: %s", dir, ps_err_str(e));
    }
    char **found = dry_run && parent ? &parent : &bare;
    *ret = *found;
    *found = NULL;
    return 0;
}

/* --offload-dir, or the folder of `output`. */
static int find_offload_dir(const struct ps_generate_args *a, const char *output,
                            struct ps_generate_model *m, struct ps_detail *dt)
{
    if (a->engine.offload_dir)
        return make_offload_dir(a->engine.offload_dir, a->job.dry_run, &m->offload_dir, dt);
    int r = ps_folder_of(output, &m->offload_dir);
    if (r < 0 || is_folder(m->offload_dir)) return r;
    return ps_fail(dt, -ENOENT, "OUTPUT %s: its folder %s is not there", output, m->offload_dir);
}

/* A default, or a ceiling that the memory there is can bear: beyond it, the kernel would end the process. The rest of the process needs
 * some, too. What the first pass takes is released before the plan's memory is taken. */
static int find_host_mem(uint64_t available, struct ps_plan_req *plan, uint64_t *ids_mem,
                         struct ps_detail *dt)
{
    enum { IDS_BYTES = 32 << 20, IDS_LEAST = 1 << 20 }; /* of the 64 MiB beside --host-mem */
    uint64_t rest = available / 20 + (8 << 20), most = available > rest ? available - rest : 0;
    char text[200];
    plan->host_most = available && !most ? 1 : most;
    if (!available && plan->host_mem == UINT64_MAX)
        return ps_fail(dt, -PS_EUSAGE,
                       "how much memory there is cannot be told here: --host-mem is needed");
    if (plan->host_mem == UINT64_MAX) {
        plan->host_mem = available / 10 * 8 < most ? available / 10 * 8 : most;
    } else if (available && plan->host_mem > most) {
        (void) snprintf(text, sizeof text,
                        "--host-mem is more than there is: of %" PRIu64
                        " MiB available (cgroup limits count), at most %" PRIu64 " MiB are used",
                        available >> 20, most >> 20);
        ps_say_warning(NULL, text);
        plan->host_mem = most;
    }
    *ids_mem = plan->host_mem > IDS_BYTES ? plan->host_mem : IDS_BYTES;
    if (available && *ids_mem > most) *ids_mem = most > IDS_LEAST ? most : IDS_LEAST;
    return 0;
}

/* A default, or a ceiling that the disk there is can bear. */
static int find_disk_space(const char *folder, struct ps_plan_req *plan, struct ps_detail *dt)
{
    char text[200];
    int r = ps_machine_disk_free(folder, &plan->disk_free, dt);
    if (r < 0) return r;
    plan->disk_folder = folder;
    if (plan->disk_space == UINT64_MAX) {
        plan->disk_space = plan->disk_free / 10 * 9;
    } else if (plan->disk_space > plan->disk_free) {
        (void) snprintf(text, sizeof text,
                        "--disk-space is more than the %" PRIu64
                        " MiB that are free where KV and activations go; these are used",
                        plan->disk_free >> 20);
        ps_say_warning(NULL, text);
        plan->disk_space = plan->disk_free;
    }
    return 0;
}

int ps_generate_machine(struct ps_generate_args *a, const char *output, struct ps_generate_model *m,
                        struct ps_detail *dt)
{
    struct ps_job_cfg *j = &a->job;
    struct ps_machine machine;
    int r = ps_generate_gpu(a, dt);
    if (r < 0) return r;
    ps_machine_read("", &machine); /* after that: the driver takes its share */
    r = find_host_mem(machine.mem_available, &j->plan, &j->ids_mem, dt);
    if (r < 0) return r;
    if (!j->plan.threads) j->plan.threads = machine.cpus ? machine.cpus : 1;
    r = find_offload_dir(a, output, m, dt);
    if (!r) r = find_disk_space(m->offload_dir, &j->plan, dt);
    j->run.threads = j->plan.threads;
    j->run.offload_dir = m->offload_dir;
    j->engine = (struct ps_job_engine) { ps_generate_plan, ps_plan_text, ps_plan_done, ps_run,
                                         &a->planning };
    j->stop = a->planning.stop = ps_signals_count();
    return r;
}
