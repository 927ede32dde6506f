/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_mem.h"
#include "engine/tokenizer/tok_impl.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

const char *const tok_file_name[TOK__FILES] = {
    "tokenizer.json",          "vocab.json",       "merges.txt", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json"
};

/* Absent (-ENOENT) is not an error here. */
static int read_one(int dir, const char *folder, const char *name, struct tok_file *ret,
                    struct ps_detail *dt)
{
    ps_auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 && errno == ENOENT) return 0;
    if (fd < 0 || fstat(fd, &st) < 0) {
        int e = errno;
        return ps_fail(dt, -e, "%s/%s: cannot be opened: %s", folder, name, strerror(e));
    }
    if (!S_ISREG(st.st_mode))
        return ps_fail(dt, -PS_EFORMAT, "%s/%s: is not a regular file", folder, name);
    if (st.st_size > TOK_MAX_FILE)
        return ps_fail(dt, -EFBIG, "%s/%s: has %lld bytes, a tokenizer file may have at most %d",
                       folder, name, (long long) st.st_size, TOK_MAX_FILE);
    size_t size = (size_t) st.st_size, n = 0;
    ps_auto_free char *p = ps_calloc(1, size + 1);
    if (!p) return -ENOMEM;
    while (n < size) {
        ssize_t k = read(fd, p + n, size - n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) {
            int e = errno;
            return ps_fail(dt, -e, "%s/%s: cannot be read: %s", folder, name, strerror(e));
        }
        if (k == 0) break;
        n += (size_t) k;
    }
    ret->data = PS_TAKE(p);
    ret->len = n;
    return 0;
}

int tok_files_read(const char *folder, struct tok_files *ret, struct ps_detail *dt)
{
    struct tok_files fs = { .folder = folder };
    ps_auto_close int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        int e = errno;
        return ps_fail(dt, -e, "%s: cannot be opened as a folder: %s", folder, strerror(e));
    }
    int r = 0;
    for (int i = 0; i < TOK__FILES && r >= 0; i++) {
        /* tokenizer.json says it all: beside it the older pair is not looked at. */
        if (fs.f[TOK_FAST].data && (i == TOK_VOCAB || i == TOK_MERGES)) continue;
        r = read_one(dir, folder, tok_file_name[i], &fs.f[i], dt);
    }
    if (r < 0) {
        tok_files_done(&fs);
        return r;
    }
    *ret = fs;
    return 0;
}

void tok_files_done(struct tok_files *fs)
{
    for (int i = 0; i < TOK__FILES; i++) {
        free(fs->f[i].data);
        fs->f[i] = (struct tok_file) { 0 };
    }
}
