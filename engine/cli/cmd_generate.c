/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/cli/generate.h"
#include "offload/machine.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* What is opened for a job; closed in one place. */
struct model {
    char *packed_folder, *offload_dir;
    struct ps_packed *packed;
    struct ps_tok *tok;
};

static void close_model(struct model *m)
{
    ps_tok_close(m->tok);
    ps_pack_close(m->packed);
    free(m->packed_folder);
    free(m->offload_dir);
}

static int open_model(const struct ps_generate_args *a, struct model *m, struct ps_detail *dt)
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
    if (!r) r = ps_tok_open(folder, &m->tok, dt);
    if (r == -ENOENT && m->packed) r = 0; /* it takes token ids only */
    if (!r) dt->text[0] = 0;
    return r;
}

/* The folder of OUTPUT, or --offload-dir, which is made if need be. */
static int find_offload_dir(const struct ps_generate_args *a, struct model *m, struct ps_detail *dt)
{
    if (a->engine.offload_dir) {
        m->offload_dir = ps_concat(a->engine.offload_dir, "", "");
        if (!m->offload_dir) return -ENOMEM;
        if (mkdir(a->engine.offload_dir, 0777) == 0 || errno == EEXIST) return 0;
        return ps_fail(dt, -errno, "--offload-dir %s: cannot be made: %s", a->engine.offload_dir,
                       ps_err_str(errno));
    }
    struct stat st;
    int r = ps_folder_of(a->job.output, &m->offload_dir);
    if (r < 0) return r;
    if (stat(m->offload_dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return ps_fail(dt, -ENOENT, "OUTPUT %s: its folder %s is not there", a->job.output,
                       m->offload_dir);
    return 0;
}

/* A default, or a ceiling that the memory there is can bear: beyond it, the kernel would end the process. The rest of the process needs
 * some, too. What the first pass takes is released before the plan's memory is taken. */
static int find_host_mem(uint64_t available, uint64_t *host_mem, uint64_t *ids_mem,
                         struct ps_detail *dt)
{
    enum { IDS_BYTES = 32 << 20, IDS_LEAST = 1 << 20 }; /* of the 64 MiB beside --host-mem */
    uint64_t rest = available / 20 + (8 << 20), most = available > rest ? available - rest : 0;
    char text[200];
    if (!available && *host_mem == UINT64_MAX)
        return ps_fail(dt, -PS_EUSAGE,
                       "how much memory there is cannot be told here: --host-mem is needed");
    if (*host_mem == UINT64_MAX) {
        *host_mem = available / 10 * 8 < most ? available / 10 * 8 : most;
    } else if (available && *host_mem > most) {
        (void) snprintf(text, sizeof text,
                        "--host-mem is more than there is: of %" PRIu64
                        " MiB available (cgroup limits count), at most %" PRIu64 " MiB are used",
                        available >> 20, most >> 20);
        ps_say_warning(NULL, text);
        *host_mem = most;
    }
    *ids_mem = *host_mem > IDS_BYTES ? *host_mem : IDS_BYTES;
    if (available && *ids_mem > most) *ids_mem = most > IDS_LEAST ? most : IDS_LEAST;
    return 0;
}

static int fill_in(struct ps_generate_args *a, struct model *m, struct ps_detail *dt)
{
    struct ps_job_cfg *j = &a->job;
    struct ps_machine machine;
    int r = ps_generate_gpu(a, dt);
    if (r < 0) return r;
    ps_machine_read("", &machine); /* after that: the driver takes its share */
    r = find_host_mem(machine.mem_available, &j->plan.host_mem, &j->ids_mem, dt);
    if (r < 0) return r;
    if (!j->plan.threads) j->plan.threads = machine.cpus ? machine.cpus : 1;
    r = find_offload_dir(a, m, dt);
    if (!r && j->plan.disk_space == UINT64_MAX) {
        r = ps_machine_disk_free(m->offload_dir, &j->plan.disk_space, dt);
        j->plan.disk_space = j->plan.disk_space / 10 * 9;
    }
    j->run.threads = j->plan.threads;
    j->run.offload_dir = m->offload_dir;
    j->engine = (struct ps_job_engine) { ps_plan_make, ps_plan_text, ps_plan_done, ps_run };
    j->stop = ps_signals_count();
    return r;
}

static int exit_code(const struct ps_job_result *r)
{
    if (r->interrupted) return PS_EXIT_SIGNAL;
    return r->failed ? PS_EXIT_SOME_FAILED : PS_EXIT_OK;
}

static int run_job(struct ps_generate_args *a, struct ps_detail *dt)
{
    struct ps_job_result res = { 0 };
    ps_generate_ui(&a->job, a->progress);
    int r = ps_job_run(&a->job, &res, dt), rc;
    ps_progress_end();
    if (res.plan_text) (void) fputs(res.plan_text, r < 0 ? stderr : stdout);
    if (r < 0) {
        rc = ps_say_error(r, dt);
    } else if (a->job.dry_run) {
        rc = PS_EXIT_OK;
    } else {
        ps_generate_summary(&a->job, &res);
        rc = exit_code(&res);
    }
    ps_job_result_done(&res);
    return rc;
}

int ps_cmd_generate(int argc, char **argv)
{
    struct ps_generate_args a;
    struct model m = { 0 };
    struct ps_detail dt = { "" };
    ps_generate_parse(argc, argv, &a);
    ps_signals_catch();
    int r = fill_in(&a, &m, &dt), rc;
    if (!r) r = open_model(&a, &m, &dt);
    if (!r) {
        a.job.model = m.packed;
        a.job.tok = m.tok;
        ps_generate_probe(&a.job, m.offload_dir);
        rc = run_job(&a, &dt);
    } else {
        rc = ps_say_error(r, &dt);
    }
    if (rc == PS_EXIT_FAILED && m.packed_folder && strstr(dt.text, m.packed_folder))
        ps_say("%s is a copy that was packed from %s: remove it, and it is made anew",
               m.packed_folder, a.model);
    close_model(&m);
    return rc;
}
