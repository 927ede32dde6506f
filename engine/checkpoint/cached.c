/* SPDX-License-Identifier: Apache-2.0 */
/* Packed copies of models that were given unpacked, found again by a name that changes when the source does. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/convert.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

/* Size and time of a file, folded into h; a missing one counts as such. */
static uint64_t fold_stat(const char *path, uint64_t h)
{
    struct stat st;
    uint64_t w[3] = { 0 };
    if (stat(path, &st) == 0) {
        w[0] = (uint64_t) st.st_size;
        w[1] = (uint64_t) st.st_mtim.tv_sec;
        w[2] = (uint64_t) st.st_mtim.tv_nsec;
    }
    return XXH3_64bits_withSeed(w, sizeof w, h);
}

static int source_key(const char *src, int dtype, uint64_t *ret, struct ps_detail *dt)
{
    char real[PATH_MAX], path[PATH_MAX + 64];
    if (!realpath(src, real)) {
        int e = errno;
        return ps_fail(dt, -e, "%s: %s", src, strerror(e));
    }
    ps_auto_free char *json = NULL;
    ps_auto_src struct ps_src *s = NULL;
    struct ps_shape shape;
    size_t len;
    int r = ps_shape_load(real, &shape, &json, &len, dt);
    if (r < 0 || (r = ps_shape_runs(&shape, src, dt)) < 0) return r;
    if ((r = ps_src_open(real, &s, dt)) < 0) return r;
    uint64_t h = XXH3_64bits_withSeed(real, strlen(real), (uint64_t) PS_PACK_VERSION);
    h = XXH3_64bits_withSeed(json, len, h ^ s->hash ^ (uint64_t) (dtype + 1));
    for (uint32_t i = 0; i < s->n_files; i++) h = fold_stat(s->files[i].path, h);
    for (size_t i = 0; ps_side_files[i]; i++) {
        (void) snprintf(path, sizeof path, "%s/%s", real, ps_side_files[i]);
        h = fold_stat(path, h);
    }
    *ret = h;
    return 0;
}

int ps_pack_folder(const char *pack_dir, char **ret, struct ps_detail *dt)
{
    int r = 0;
    if (!pack_dir)
        r = ps_cache_path("packed", ret);
    else if (!*pack_dir)
        return ps_fail(dt, -EINVAL, "--pack-dir: not usable");
    else if (!(*ret = ps_concat(pack_dir, "", "")))
        r = -ENOMEM;
    if (r == -ENOENT)
        return ps_fail(dt, r,
                       "no cache folder: neither XDG_CACHE_HOME nor HOME is set; give --pack-dir");
    if (!r && strlen(*ret) >= PATH_MAX - 300)
        return ps_fail(dt, -ENAMETOOLONG, "--pack-dir: not usable");
    if (!r && (r = ps_make_folders(*ret)) < 0)
        r = ps_fail(dt, r,
                    "%s: the folder for packed models cannot be made: %s; --pack-dir names another",
                    *ret, strerror(-r));
    return r;
}

bool ps_pack_opens(const char *folder)
{
    ps_auto_pack struct ps_packed *p = NULL;
    return ps_pack_is(folder) && ps_pack_open(folder, &p, NULL) == 0;
}

int ps_pack_cached(const char *src, const char *pack_dir, const struct ps_convert_opt *opt,
                   char **ret, struct ps_detail *dt)
{
    struct ps_convert_opt mine = { .dtype = -1 };
    if (opt) mine = *opt;
    char real[PATH_MAX];
    ps_auto_free char *folder = NULL;
    ps_auto_free char *path = ps_calloc(PATH_MAX, 1);
    if (!path) return ps_fail(dt, -ENOMEM, "out of memory");
    if (ps_pack_is(src)) {
        int n = snprintf(path, PATH_MAX, "%s", src);
        if (n >= PATH_MAX) return ps_fail(dt, -ENAMETOOLONG, "%s: too long", src);
        *ret = PS_TAKE(path);
        return 0;
    }
    uint64_t key = 0;
    int r = source_key(src, mine.dtype, &key, dt);
    if (r < 0 || (r = ps_pack_folder(pack_dir, &folder, dt)) < 0) return r;
    if (!realpath(src, real)) return ps_fail(dt, -errno, "%s: it is gone", src);
    const char *base = strrchr(real, '/') + 1;
    (void) snprintf(path, PATH_MAX, "%s/%.80s-%016llx", folder, *base ? base : "model",
                    (unsigned long long) key);
    if (!ps_pack_opens(path)) {
        ps_outdir_sweep(folder, mine.warn, mine.ud);
        mine.overwrite = true; /* only a packed model that does not open is in the way */
        r = ps_pack_convert(src, path, &mine, dt);
        if (r < 0 && !(r == -EEXIST && ps_pack_opens(path)))
            return r; /* another process was faster */
    }
    *ret = PS_TAKE(path);
    return 0;
}
