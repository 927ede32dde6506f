/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack_file.h"
#include "engine/cli/bench.h"
#include "engine/cli/plan.h"
#include "offload/machine.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Nothing of the weights is needed. */
static int open_to_simulate(struct ps_bench *b, struct ps_detail *dt)
{
    b->profile = ps_calloc(1, sizeof *b->profile);
    if (!b->profile) return -ENOMEM;
    int r = ps_hardware_read(b->hardware, b->profile, dt);
    if (r < 0) return ps_fail_in(dt, r, "--hardware");
    return ps_model_outline(b->model, -1, &b->packed, dt);
}

/* ---- random weights */

static int fits_on_disk(const char *folder, const char *config, struct ps_detail *dt)
{
    enum { BESIDE = 64 << 20 };
    ps_auto_pack struct ps_packed *m = NULL;
    uint64_t free_bytes = 0;
    int r = ps_model_outline(config, -1, &m, dt);
    if (!r) r = ps_machine_disk_free(folder, &free_bytes, dt);
    if (r < 0 || m->weight_bytes + BESIDE <= free_bytes) return r;
    return ps_fail(dt, -PS_EBUDGET,
                   "%s: random weights take %.2f GB, and %.2f GB are free in %s; --pack-dir says "
                   "where else",
                   config, (double) m->weight_bytes / 1e9, (double) free_bytes / 1e9, folder);
}

/* FOLDER/opt-30b-random-HASH: kept ones are found again; one of ours alone has our number behind it. */
static char *name_of(const char *folder, const char *config, uint64_t key)
{
    const char *slash = strrchr(config, '/'), *base = slash ? slash + 1 : config;
    const char *dot = strrchr(base, '.');
    char name[160];
    (void) snprintf(name, sizeof name, "/%.*s-random-%016llx",
                    (int) (dot && dot - base < 100 ? dot - base : 80), base,
                    (unsigned long long) key);
    return ps_concat(folder, name, "");
}

static int make_random(struct ps_bench *b, const char *folder, const char *kept,
                       struct ps_detail *dt)
{
    char own[32] = "";
    struct ps_convert_opt opt = { .dtype = -1, .overwrite = b->keep };
    int r = fits_on_disk(folder, b->model, dt);
    if (r < 0) return r;
    if (!b->keep) (void) snprintf(own, sizeof own, "-%ld", (long) getpid());
    b->packed_folder = ps_concat(kept, own, "");
    if (!b->packed_folder) return -ENOMEM;
    ps_convert_ui(&opt, false);
    r = ps_pack_dummy(b->model, b->packed_folder, b->seed, &opt, dt);
    ps_progress_end();
    if (!r && !b->keep) b->made = ps_concat(b->packed_folder, "", "");
    return r;
}

static int open_random(struct ps_bench *b, struct ps_detail *dt)
{
    ps_auto_free char *json = NULL, *folder = NULL, *kept = NULL;
    struct ps_shape shape;
    size_t len;
    int r = ps_shape_load(b->model, &shape, &json, &len, dt);
    if (!r) r = ps_shape_runs(&shape, b->model, dt);
    if (!r) r = ps_pack_folder(b->pack_dir, &folder, dt);
    if (r < 0) return r;
    b->dummy = true;
    kept = name_of(folder, b->model, XXH3_64bits_withSeed(json, len, b->seed));
    if (!kept) return -ENOMEM;
    if (ps_pack_opens(kept))
        b->packed_folder = PS_TAKE(kept);
    else
        r = make_random(b, folder, kept, dt);
    if (!r) r = ps_pack_open(b->packed_folder, &b->packed, dt);
    if (!r) memcpy(b->packed->shape.name, shape.name, sizeof shape.name);
    return r;
}

int ps_bench_open_model(struct ps_bench *b, struct ps_detail *dt)
{
    struct ps_generate_args a = { .model = b->model, .engine.pack_dir = b->pack_dir };
    struct ps_generate_model m = { 0 };
    if (b->hardware) return open_to_simulate(b, dt);
    if (is_file(b->model)) return open_random(b, dt);
    int r = ps_generate_open(&a, &m, dt);
    b->packed = m.packed;
    b->packed_folder = m.packed_folder;
    return r;
}

void ps_bench_close_model(struct ps_bench *b)
{
    static const char *const files[] = { "/" PS_PACK_FILE, "/config.json" };
    ps_pack_close(b->packed);
    for (size_t i = 0; b->made && i < PS_ARRAY_LEN(files); i++) {
        ps_auto_free char *path = ps_concat(b->made, files[i], "");
        if (path) (void) unlink(path);
    }
    if (b->made && rmdir(b->made) < 0)
        ps_say_warning(NULL, "random weights could not be removed from --pack-dir");
    free(b->made);
    free(b->packed_folder);
    free(b->profile);
}
