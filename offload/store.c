/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/store.h"
#include "engine/base/ps_mem.h"
#include "offload/store_fault.h"
#include "ps_config.h"
#include <assert.h>
#include <string.h>

static const struct ps_store_ops *const stores[] = {
#if HAVE_URING
    &ps_store_uring,
#endif
    &ps_store_pread,
    &ps_store_null,
    &ps_store_fault,
};

const struct ps_store_ops *ps_store_at(size_t i)
{
    return i < PS_ARRAY_LEN(stores) ? stores[i] : NULL;
}

const struct ps_store_ops *ps_store_find(const char *name)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(stores); i++)
        if (!strcmp(stores[i]->name, name)) return stores[i];
    return NULL;
}

/* A decorator has its lower store's files. */
static int remember_files(struct ps_store *t, const struct ps_store_cfg *cfg)
{
    const struct ps_store *low = cfg->lower;
    for (unsigned n = low ? low->n_files : cfg->n_files; t->n_files < n; t->n_files++) {
        const char *path = low ? low->path[t->n_files] : cfg->files[t->n_files].path;
        size_t len = strlen(path) + 1;
        char *copy = ps_calloc(1, len);
        if (!copy) return -ENOMEM;
        memcpy(copy, path, len);
        t->path[t->n_files] = copy;
        t->can_write[t->n_files] = low ? low->can_write[t->n_files] : cfg->files[t->n_files].write;
    }
    return 0;
}

static int open_bare(const struct ps_store_ops *ops, const struct ps_store_cfg *cfg,
                     struct ps_store **ret, struct ps_detail *dt)
{
    struct ps_store *t = NULL;
    int r = ops->open(cfg, &t, dt);
    if (r < 0) return r;
    assert(t->ops == ops && t->info.depth);
    assert(t->info.align && !(t->info.align & (t->info.align - 1)));
    if (remember_files(t, cfg) < 0) {
        ps_store_close(t);
        return ps_fail(dt, -ENOMEM, "no memory for the names of a store's files");
    }
    *ret = t;
    return 0;
}

int ps_store_open(const struct ps_store_ops *ops, const struct ps_store_cfg *cfg,
                  struct ps_store **ret, struct ps_detail *dt)
{
    if (cfg->n_files > PS_STORE_FILES || (!cfg->n_files && !cfg->lower))
        return ps_fail(dt, -EINVAL, "a store has 1 to %d files, not %u", PS_STORE_FILES,
                       cfg->n_files);
    if (cfg->depth > PS_STORE_DEPTH_MAX)
        return ps_fail(dt, -EINVAL, "a queue depth of %u is above %d", cfg->depth,
                       PS_STORE_DEPTH_MAX);
    for (unsigned i = 0; i < cfg->n_files; i++)
        if (!cfg->files[i].path) return ps_fail(dt, -EINVAL, "file %u of a store has no path", i);
    struct ps_store *t = NULL, *broken = NULL;
    int r = open_bare(ops, cfg, &t, dt);
    if (r < 0) return r;
    if (cfg->fault && *cfg->fault && ops != &ps_store_fault) {
        struct ps_store_cfg over = { .lower = t, .fault = cfg->fault };
        r = open_bare(&ps_store_fault, &over, &broken, dt);
        if (r < 0) {
            ps_store_close(t);
            return r;
        }
        broken->owned = t;
        t = broken;
    }
    *ret = t;
    return 0;
}

int ps_store_open_best(const struct ps_store_cfg *cfg, struct ps_store **ret,
                       struct ps_detail *ret_why, struct ps_detail *dt)
{
    if (ret_why) ret_why->text[0] = 0;
#if HAVE_URING
    struct ps_detail why = { { 0 } };
    int r = ps_store_open(&ps_store_uring, cfg, ret, &why);
    /* What concerns the files fails with pread too, and says it better. */
    if (r >= 0) return r;
    if (ret_why) *ret_why = why;
#else
    (void) ps_fail(ret_why, -PS_EUNSUPPORTED, "this build has no io_uring (liburing was missing)");
#endif
    return ps_store_open(&ps_store_pread, cfg, ret, dt);
}

struct ps_store *ps_store_close(struct ps_store *t)
{
    if (!t) return NULL;
    struct ps_store *owned = t->owned;
    for (unsigned i = 0; i < t->n_files; i++) free(t->path[i]);
    t->ops->close(t);
    return ps_store_close(owned); /* one level: the store below a fault store */
}

int ps_store_submit(struct ps_store *t, struct ps_io *const *ios, unsigned n)
{
    const uint64_t m = t->info.align - 1;
    for (unsigned i = 0; i < n; i++) {
        const struct ps_io *io = ios[i];
        if (!io->len || ((io->len | io->off | (uintptr_t) io->buf) & m)) return -EINVAL;
        if (io->file >= t->n_files || io->off > (uint64_t) INT64_MAX - io->len) return -EINVAL;
        if (io->dir != PS_IO_READ && !t->can_write[io->file]) return -EBADF;
    }
    return t->ops->submit(t, ios, n);
}

int ps_store_reap(struct ps_store *t, struct ps_io **done, unsigned max, int64_t timeout_ns)
{
    return t->ops->reap(t, done, max, timeout_ns);
}

void ps_store_wake(struct ps_store *t) { t->ops->wake(t); }

const char *ps_store_path(const struct ps_store *t, uint32_t file)
{
    return file < t->n_files ? t->path[file] : "?";
}

int ps_store_rw(struct ps_store *t, enum ps_io_dir dir, uint32_t file, uint64_t off, void *buf,
                uint32_t len)
{
    struct ps_io io = { .dir = dir, .file = file, .buf = buf, .off = off, .len = len };
    struct ps_io *p = &io, *d = NULL;
    int r = ps_store_submit(t, &p, 1);
    if (r < 0) return r;
    if (r == 0) return -EBUSY;
    do {
        r = ps_store_reap(t, &d, 1, -1);
    } while (r == 0); /* woken for something else */
    if (r < 0) return r;
    assert(d == &io);
    return io.res < 0 ? (int) io.res : 0;
}
