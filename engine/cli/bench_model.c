/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack_file.h"
#include "engine/cli/bench.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

struct ps_bench_model *ps_bench_model(struct ps_bench *b, const char *path)
{
    size_t i = 0;
    while (i < b->n_models && strcmp(b->models[i]->path, path) != 0) i++;
    if (i < b->n_models) return b->models[i];
    struct ps_bench_model *m = i < PS_BENCH_MODELS_MAX ? ps_calloc(1, sizeof *b->models[i]) : NULL;
    if (!m) return NULL;
    m->path = ps_concat(path, "", "");
    if (!m->path) {
        free(m);
        return NULL;
    }
    b->models[b->n_models++] = m;
    return m;
}

/* ---- random weights */

/* How many digits a name ends with. */
static size_t digits_at_end(const char *s, size_t n)
{
    size_t digits = 0;
    while (digits < n && s[n - digits - 1] >= '0' && s[n - digits - 1] <= '9') digits++;
    return digits;
}

/* FOLDER/opt-30b-random-HASH: kept ones are found again; one of ours alone has our number behind it. */
static char *name_of(const struct ps_bench *b, const char *folder, const char *config, uint64_t key,
                     bool kept)
{
    const char *slash = strrchr(config, '/'), *base = slash ? slash + 1 : config;
    const char *dot = strrchr(base, '.');
    char name[160], own[32] = "";
    if (!kept && !b->keep) (void) snprintf(own, sizeof own, "-%ld", (long) getpid());
    (void) snprintf(name, sizeof name, "/%.*s-random-%016llx",
                    (int) (dot && dot - base < 100 ? dot - base : 80), base,
                    (unsigned long long) key);
    return ps_concat(folder, name, own);
}

/* Where they are or will be: packed_folder; *ret_bytes: what they will take, 0 if they are there. */
static int place_random(struct ps_bench *b, struct ps_bench_model *m, const char *folder,
                        uint64_t *ret_bytes, struct ps_detail *dt)
{
    ps_auto_free char *json = NULL, *kept = NULL;
    ps_auto_pack struct ps_packed *outline = NULL;
    struct ps_shape shape;
    size_t len;
    int r = ps_shape_load(m->path, &shape, &json, &len, dt);
    if (!r) r = ps_shape_runs(&shape, m->path, dt);
    if (!r) r = ps_model_outline(m->path, -1, &outline, dt);
    if (r < 0) return r;
    const uint64_t key = XXH3_64bits_withSeed(json, len, b->seed);
    kept = name_of(b, folder, m->path, key, true);
    if (!kept) return -ENOMEM;
    m->random = true;
    memcpy(m->name, shape.name, sizeof m->name);
    *ret_bytes = ps_pack_opens(kept) ? 0 : outline->weight_bytes;
    m->packed_folder =
        *ret_bytes ? name_of(b, folder, m->path, key, false) : ps_concat(kept, "", "");
    return m->packed_folder ? 0 : -ENOMEM;
}

/* A process that was killed leaves what it made: NAME-random-HASH-PID, or that with .partial.PID. */
static void tell_leftovers(const char *folder)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        const size_t n = strlen(e->d_name), digits = digits_at_end(e->d_name, n);
        const long pid =
            digits && digits < 10 && digits < n ? strtol(e->d_name + n - digits, NULL, 10) : 0;
        if (!strstr(e->d_name, "-random-") || pid <= 0 || !strchr(".-", e->d_name[n - digits - 1]))
            continue;
        if (kill((pid_t) pid, 0) < 0 && errno == ESRCH)
            ps_say("warning: %s/%s was left by a bench that was killed; it can be removed", folder,
                   e->d_name);
    }
    if (d) (void) closedir(d);
}

static int fits_on_disk(const char *folder, const char *what, uint64_t need, struct ps_detail *dt)
{
    enum { BESIDE = 64 << 20 };
    uint64_t free_bytes = 0;
    int r = need ? ps_machine_disk_free(folder, &free_bytes, dt) : 0;
    if (!need || r < 0 || need + BESIDE <= free_bytes) return r;
    return ps_fail(dt, -PS_EBUDGET,
                   "%s: random weights take %.2f GB, and %.2f GB are free in %s; --pack-dir says "
                   "where else",
                   what, (double) need / 1e9, (double) free_bytes / 1e9, folder);
}

/* Before any is made. */
static int place_all(struct ps_bench *b, uint64_t bytes[static PS_BENCH_MODELS_MAX],
                     struct ps_detail *dt)
{
    ps_auto_free char *folder = NULL;
    const char *first = NULL;
    uint64_t need = 0;
    bool several = false;
    int r = 0;
    for (size_t i = 0; !r && i < b->n_models; i++) {
        struct ps_bench_model *m = b->models[i];
        bytes[i] = 0;
        if (!ps_is_regular(m->path)) continue;
        if (!folder) {
            r = ps_pack_folder(b->pack_dir, &folder, dt);
            if (!r) tell_leftovers(folder);
        }
        if (!r) r = place_random(b, m, folder, &bytes[i], dt);
        /* Two paths to one configuration share what is made. */
        for (size_t k = 0; !r && k < i; k++)
            if (b->models[k]->random && !strcmp(b->models[k]->packed_folder, m->packed_folder))
                bytes[i] = 0;
        if (r < 0 || !bytes[i]) continue;
        several = first != NULL;
        first = m->path;
        need += bytes[i];
    }
    return r < 0 ? r : fits_on_disk(folder, several ? "all models together" : first, need, dt);
}

static int make_random(struct ps_bench *b, struct ps_bench_model *m, struct ps_detail *dt)
{
    struct ps_convert_opt opt = { .dtype = -1, .overwrite = b->keep };
    ps_convert_ui(&opt, false);
    int r = ps_pack_dummy(m->path, m->packed_folder, b->seed, &opt, dt);
    ps_progress_end();
    if (r < 0 || b->keep) return r;
    m->made = ps_concat(m->packed_folder, "", "");
    return m->made ? 0 : -ENOMEM;
}

static int open_random(struct ps_bench *b, struct ps_bench_model *m, bool there,
                       struct ps_detail *dt)
{
    int r = there ? 0 : make_random(b, m, dt);
    if (!r) r = ps_pack_open(m->packed_folder, &m->packed, dt);
    if (!r) memcpy(m->packed->shape.name, m->name, sizeof m->packed->shape.name);
    return r;
}

/* ---- all of them */

static int open_packed(struct ps_bench *b, struct ps_bench_model *m, struct ps_detail *dt)
{
    struct ps_generate_args a = { .model = m->path, .engine.pack_dir = b->pack_dir };
    struct ps_generate_model g = { 0 };
    int r = ps_generate_open(&a, &g, dt);
    m->packed = g.packed;
    m->packed_folder = g.packed_folder;
    return r;
}

/* Nothing of the weights is needed. */
static int open_to_simulate(struct ps_bench *b, struct ps_detail *dt)
{
    b->profile = ps_calloc(1, sizeof *b->profile);
    if (!b->profile) return -ENOMEM;
    int r = 0;
    for (size_t i = 0; !r && i < b->n_models; i++)
        r = ps_model_outline(b->models[i]->path, -1, &b->models[i]->packed, dt);
    if (r < 0) return r;
    (void) snprintf(b->profile->name, sizeof b->profile->name, "this machine");
    return ps_plan_hardware(b->hardware, b->profile, &b->to_probe, dt);
}

int ps_bench_open_models(struct ps_bench *b, struct ps_detail *dt)
{
    uint64_t bytes[PS_BENCH_MODELS_MAX];
    if (b->hardware) return open_to_simulate(b, dt);
    int r = place_all(b, bytes, dt);
    for (size_t i = 0; !r && i < b->n_models; i++) {
        struct ps_bench_model *m = b->models[i];
        r = m->random ? open_random(b, m, !bytes[i], dt) : open_packed(b, m, dt);
    }
    return r;
}

static void remove_made(const char *folder)
{
    static const char *const files[] = { "/" PS_PACK_FILE, "/config.json" };
    for (size_t i = 0; i < PS_ARRAY_LEN(files); i++) {
        ps_auto_free char *path = ps_concat(folder, files[i], "");
        if (path) (void) unlink(path);
    }
    if (rmdir(folder) < 0)
        ps_say_warning(NULL, "random weights could not be removed from --pack-dir");
}

void ps_bench_close_models(struct ps_bench *b)
{
    for (size_t i = 0; i < b->n_models; i++) {
        struct ps_bench_model *m = b->models[i];
        ps_pack_close(m->packed);
        if (m->made) remove_made(m->made);
        free(m->made);
        free(m->packed_folder);
        free(m->path);
        free(m);
    }
    free(b->profile);
}
