/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/tokenizer/tok_impl.h"
#include <string.h>
#include <sys/stat.h>

const char *const tok_file_name[TOK__FILES] = {
    "tokenizer.json",          "vocab.json",       "merges.txt", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json"
};

/* One that is not there is no error. */
static int read_one(const char *folder, const char *name, struct tok_file *ret,
                    struct ps_detail *dt)
{
    ps_auto_free char *path = ps_concat(folder, "/", name);
    struct ps_detail why = { "" };
    if (!path) return -ENOMEM;
    int r = ps_slurp(path, TOK_MAX_FILE, &ret->data, &ret->len, &why);
    if (r == -ENOENT) return 0;
    return r < 0 ? ps_fail(dt, r, "%s", why.text) : 0;
}

int tok_files_read(const char *folder, struct tok_files *ret, struct ps_detail *dt)
{
    struct tok_files fs = { .folder = folder };
    struct stat st;
    if (stat(folder, &st) < 0) {
        int e = errno;
        return ps_fail(dt, -e, "%s: %s", folder, strerror(e));
    }
    if (!S_ISDIR(st.st_mode)) return ps_fail(dt, -ENOTDIR, "%s is not a folder", folder);
    int r = 0;
    for (int i = 0; i < TOK__FILES && r >= 0; i++) {
        /* tokenizer.json says it all: beside it the older pair is not looked at. */
        if (fs.f[TOK_FAST].data && (i == TOK_VOCAB || i == TOK_MERGES)) continue;
        r = read_one(folder, tok_file_name[i], &fs.f[i], dt);
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
