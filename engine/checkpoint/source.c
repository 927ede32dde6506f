/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a checkpoint, opens them and hands each to its format's reader. Nothing is written, and no weight is
 * read, before all of this has passed. */
#include "engine/checkpoint/source.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack_file.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { INDEX_BYTES_MAX = 64 << 20 };

bool ps_src_numel(const uint64_t *dims, uint32_t n, uint64_t *ret)
{
    uint64_t v = 1;
    for (uint32_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, dims[i], &v)) return false;
    *ret = v;
    return true;
}

const char *ps_src_dims(const struct ps_src_tensor *t, char *buf, size_t cap)
{
    size_t n = 0;
    for (uint32_t i = 0; i < t->ndim && n < cap; i++) {
        int w =
            snprintf(buf + n, cap - n, "%s%llu", i ? ", " : "[", (unsigned long long) t->dims[i]);
        n += w > 0 ? (size_t) w : 0;
    }
    if (n < cap) (void) snprintf(buf + n, cap - n, n ? "]" : "[]");
    return buf;
}

int ps_src_pread(const struct ps_src_file *f, void *buf, size_t n, uint64_t off,
                 struct ps_detail *dt)
{
    size_t got = 0;
    while (got < n) {
        ssize_t r = pread(f->fd, (char *) buf + got, n - got, (off_t) (off + got));
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) {
            int e = errno;
            return ps_fail(dt, -e, "%s: read at byte %llu: %s", f->path,
                           (unsigned long long) (off + got), strerror(e));
        }
        if (r == 0)
            return ps_fail(dt, -PS_EFORMAT, "%s ends at byte %llu, %zu bytes too early", f->path,
                           (unsigned long long) (off + got), n - got);
        got += (size_t) r;
    }
    return 0;
}

void ps_src_direct(struct ps_src *s)
{
    for (uint32_t i = 0; i < s->n_files; i++)
        if (s->files[i].fd_direct < 0)
            s->files[i].fd_direct = open(s->files[i].path, O_RDONLY | O_CLOEXEC | O_DIRECT);
}

int ps_src_read(const struct ps_src_file *f, void *room, size_t n, uint64_t off, const char **ret,
                struct ps_detail *dt)
{
    const uint64_t from = off & ~(uint64_t) 4095;
    const size_t skip = (size_t) (off - from), want = (skip + n + 4095) & ~(size_t) 4095;
    size_t got = 0;
    *ret = (const char *) room + skip;
    while (f->fd_direct >= 0 && got < skip + n) {
        ssize_t r = pread(f->fd_direct, (char *) room + got, want - got, (off_t) (from + got));
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0 || r % 4096) { /* the file's last bytes, or no direct I/O after all */
            got += r > 0 ? (size_t) r : 0;
            break;
        }
        got += (size_t) r;
    }
    if (got >= skip + n) return 0;
    int e = ps_src_pread(f, (char *) room + got, skip + n - got, from + got, dt);
    if (e >= 0) (void) posix_fadvise(f->fd, (off_t) from, (off_t) want, POSIX_FADV_DONTNEED);
    return e;
}

int ps_src_add(struct ps_src *s, struct ps_src_tensor **ret, struct ps_detail *dt)
{
    if (s->n_tensors == PS_SRC_TENSORS_MAX)
        return ps_fail(dt, -PS_EFORMAT, "%s: more than %d tensors in all",
                       s->files[s->n_files - 1].path, PS_SRC_TENSORS_MAX);
    if (ps_grow(&s->tensors, &s->cap_tensors, s->n_tensors, s->n_tensors + 1, sizeof **ret) < 0)
        return ps_fail(dt, -ENOMEM, "out of memory for the list of tensors");
    *ret = &s->tensors[s->n_tensors++];
    return 0;
}

/* Opens one more file; `path` becomes the source's, also on failure. */
static int add_file(struct ps_src *s, char *path, struct ps_detail *dt)
{
    ps_auto_free char *mine = path;
    if (!path) return ps_fail(dt, -ENOMEM, "out of memory for a path");
    ps_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        int e = errno;
        return ps_fail(dt, -e, "%s: %s", path, strerror(e));
    }
    if (!S_ISREG(st.st_mode)) return ps_fail(dt, -PS_EFORMAT, "%s is not a regular file", path);
    s->files[s->n_files++] = (struct ps_src_file) {
        .path = PS_TAKE(mine), .fd = PS_TAKE_FD(fd), .fd_direct = -1, .size = (uint64_t) st.st_size
    };
    return 0;
}

static int by_string(const void *a, const void *b)
{
    return strcmp(*(char *const *) a, *(char *const *) b);
}

/* The shard names in an index's weight_map: sorted, each once; they point into the index's text. */
static int index_shards(char *text, size_t len, const char *path, char **names, size_t cap,
                        size_t *ret_n, struct ps_detail *dt)
{
    struct ps_jscan c;
    char *key, *val;
    size_t n = 0;
    bool seen = false;
    int r, q = 0;
    ps_jscan_init(&c, text, len);
    if (ps_jscan_open(&c, '{') < 0) goto syntax;
    while ((r = ps_jscan_name(&c, &key)) > 0) {
        if (strcmp(key, "weight_map") != 0 || seen) {
            if (ps_jscan_skip(&c) < 0) goto syntax;
            continue;
        }
        seen = true;
        if (ps_jscan_open(&c, '{') < 0) goto syntax;
        while ((q = ps_jscan_name(&c, &key)) > 0) {
            if (ps_jscan_text(&c, &val) < 0) goto syntax;
            if (!*val || val[0] == '.' || strchr(val, '/'))
                return ps_fail(dt, -PS_EFORMAT, "%s: tensor %.200s: \"%.100s\" is no file name",
                               path, key, val);
            if (n && !strcmp(names[n - 1], val)) continue;
            if (n == cap)
                return ps_fail(dt, -PS_EFORMAT, "%s: more than %zu changes of shard", path, cap);
            names[n++] = val;
        }
        if (q < 0) goto syntax;
    }
    if (r < 0 || ps_jscan_done(&c) < 0) goto syntax;
    if (!n) return ps_fail(dt, -PS_EFORMAT, "%s: no weight_map, or an empty one", path);
    qsort(names, n, sizeof *names, by_string);
    size_t kept = 1;
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[kept - 1], names[i]) != 0) names[kept++] = names[i];
    *ret_n = kept;
    return 0;
syntax:
    return ps_fail(dt, -PS_EFORMAT, "%s: byte %zu: %s", path, ps_jscan_at(&c),
                   c.err ? c.err : "malformed");
}

static int open_shards(struct ps_src *s, const char *folder, const char *index,
                       struct ps_detail *dt)
{
    ps_auto_free char *path = ps_concat(folder, "/", index), *text = NULL;
    ps_auto_free char **names = ps_calloc(PS_SRC_TENSORS_MAX, sizeof(*names));
    size_t len, n = 0;
    if (!path || !names) return ps_fail(dt, -ENOMEM, "out of memory for %s", index);
    int r = ps_slurp(path, INDEX_BYTES_MAX, &text, &len, dt);
    if (r < 0) return r;
    if ((r = index_shards(text, len, path, names, PS_SRC_TENSORS_MAX, &n, dt)) < 0) return r;
    if (n > PS_SRC_FILES_MAX)
        return ps_fail(dt, -PS_EFORMAT, "%s names %zu shards; at most %d are read", path, n,
                       PS_SRC_FILES_MAX);
    s->files = ps_calloc(n, sizeof *s->files);
    if (!s->files) return ps_fail(dt, -ENOMEM, "out of memory for %zu shards", n);
    for (size_t i = 0; i < n; i++)
        if ((r = add_file(s, ps_concat(folder, "/", names[i]), dt)) < 0)
            return ps_fail_in(dt, r, "%s names a shard that cannot be opened", path);
    return 0;
}

static int open_single(struct ps_src *s, char *path, struct ps_detail *dt)
{
    s->files = ps_calloc(1, sizeof *s->files);
    if (!s->files) {
        free(path);
        return ps_fail(dt, -ENOMEM, "out of memory for a file");
    }
    return add_file(s, path, dt);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ps_src_tensor *) a)->name,
                  ((const struct ps_src_tensor *) b)->name);
}

/* Reads all files' tables of contents. */
static int read_all(struct ps_src *s, bool torch, struct ps_detail *dt)
{
    s->format = torch ? "PyTorch" : "safetensors";
    for (uint32_t i = 0; i < s->n_files; i++) {
        int r = torch ? ps_torch_read(s, i, dt) : ps_safetensors_read(s, i, dt);
        if (r < 0) return r;
        uint64_t words[2] = { s->files[i].size, s->files[i].hash };
        s->hash = XXH3_64bits_withSeed(words, sizeof words, s->hash);
    }
    if (s->n_tensors) qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_name);
    for (size_t i = 1; i < s->n_tensors; i++) {
        const struct ps_src_tensor *a = &s->tensors[i - 1], *b = &s->tensors[i];
        if (!strcmp(a->name, b->name))
            return ps_fail(dt, -PS_EFORMAT, "tensor %.200s is there twice (%s, %s)", a->name,
                           s->files[a->file].path, s->files[b->file].path);
    }
    return 0;
}

static const struct {
    const char *name;
    bool index, torch;
} kinds[] = {
    { "model.safetensors", false, false },
    { "model.safetensors.index.json", true, false },
    { PS_PACK_FILE, false, false },
    { "pytorch_model.bin", false, true },
    { "pytorch_model.bin.index.json", true, true },
};

static int no_weights(const char *folder, struct ps_detail *dt)
{
    struct stat st;
    for (size_t k = 0; k < PS_ARRAY_LEN(kinds); k++) {
        ps_auto_free char *path = ps_concat(folder, "/", kinds[k].name);
        if (path && lstat(path, &st) == 0)
            return ps_fail(dt, -ENOENT,
                           "%s is there, but is neither a regular file nor a link to one (a link "
                           "to a file that is missing: an interrupted download?)",
                           path);
    }
    return ps_fail(
        dt, -ENOENT,
        "%s: no weights: expected model.safetensors or pytorch_model.bin, or shards "
        "of one of them with model.safetensors.index.json or "
        "pytorch_model.bin.index.json; of a model that penstock convert made, " PS_PACK_FILE,
        folder);
}

int ps_src_open(const char *folder, struct ps_src **ret, struct ps_detail *dt)
{
    struct stat st;
    if (stat(folder, &st) < 0) {
        int e = errno;
        return ps_fail(dt, -e, "%s: %s", folder, strerror(e));
    }
    if (!S_ISDIR(st.st_mode))
        return ps_fail(dt, -ENOTDIR,
                       "%s is not a folder; of a configuration alone, penstock convert --dummy "
                       "makes a model with random weights",
                       folder);
    size_t k = 0;
    while (k < PS_ARRAY_LEN(kinds) && !ps_is_file(folder, kinds[k].name)) k++;
    if (k == PS_ARRAY_LEN(kinds)) return no_weights(folder, dt);
    ps_auto_src struct ps_src *s = ps_calloc(1, sizeof *s);
    if (!s) return ps_fail(dt, -ENOMEM, "out of memory");
    int r = kinds[k].index ? open_shards(s, folder, kinds[k].name, dt)
                           : open_single(s, ps_concat(folder, "/", kinds[k].name), dt);
    if (r < 0 || (r = read_all(s, kinds[k].torch, dt)) < 0) return r;
    *ret = PS_TAKE(s);
    return 0;
}

int ps_src_open_file(const char *path, struct ps_src **ret, struct ps_detail *dt)
{
    size_t n = strlen(path);
    bool torch = n >= 4 && (!strcmp(path + n - 4, ".bin") || !strcmp(path + n - 4, ".pth"));
    torch = torch || (n >= 3 && !strcmp(path + n - 3, ".pt"));
    ps_auto_src struct ps_src *s = ps_calloc(1, sizeof *s);
    if (!s) return ps_fail(dt, -ENOMEM, "out of memory");
    int r = open_single(s, ps_concat(path, "", ""), dt);
    if (r < 0) return r;
    char head[4];
    torch =
        torch || (pread(s->files[0].fd, head, sizeof head, 0) == 4 && !memcmp(head, "PK\3\4", 4));
    if ((r = read_all(s, torch, dt)) < 0) return r;
    *ret = PS_TAKE(s);
    return 0;
}

void ps_src_close(struct ps_src *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->n_files; i++) {
        free(s->files[i].path);
        free(s->files[i].text);
        (void) close(s->files[i].fd);
        if (s->files[i].fd_direct >= 0) (void) close(s->files[i].fd_direct);
    }
    free(s->files);
    free(s->tensors);
    free(s);
}

const struct ps_src_tensor *ps_src_find(const struct ps_src *s, const char *name)
{
    struct ps_src_tensor key = { .name = name };
    if (!s->n_tensors) return NULL;
    return bsearch(&key, s->tensors, s->n_tensors, sizeof key, by_name);
}
