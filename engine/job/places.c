/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/places.h"
#include "engine/base/ps_file.h"
#include "engine/job/jout.h"
#include <fcntl.h>
#include <string.h>

/* A file as it is told apart from others: what is there, or where it would be made. */
struct place {
    const char *what;
    char *path;
    dev_t dev;
    ino_t ino;
    const char *name; /* NULL: dev and ino are the file's, else its folder's */
};

static int find(struct place *p, struct ps_detail *dt)
{
    struct stat st;
    ps_auto_free char *folder = NULL;
    if (stat(p->path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return ps_fail(dt, -PS_EUSAGE, "%s %s is there and no regular file; give another name",
                           p->what, p->path);
        p->dev = st.st_dev;
        p->ino = st.st_ino;
        return 0;
    }
    int r = ps_folder_of(p->path, &folder);
    if (r < 0) return r;
    if (stat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
        return ps_fail(dt, -ENOENT, "%s %s: its folder %s is not there", p->what, p->path, folder);
    if (access(folder, W_OK | X_OK) < 0)
        return ps_fail(dt, -errno, "%s %s: its folder %s cannot be written: %s", p->what, p->path,
                       folder, ps_err_str(errno));
    const char *slash = strrchr(p->path, '/');
    p->dev = st.st_dev;
    p->ino = st.st_ino;
    p->name = slash ? slash + 1 : p->path;
    return 0;
}

/* What lies under the name of a file that is written anew each time, and renamed in the end, is what a run that was killed left, or somebody
 * else's: then it stays. After a power cut it may be zeros. */
static int check_left(const struct place *p, const char *begin, struct ps_detail *dt)
{
    char head[32];
    static const char zeros[sizeof head];
    ps_auto_close int fd = open(p->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return 0; /* nothing is there, or who opens it to write tells what is wrong */
    const ssize_t n = pread(fd, head, strlen(begin), 0);
    if (n <= 0 || !memcmp(head, begin, (size_t) n) || !memcmp(head, zeros, (size_t) n)) return 0;
    return ps_fail(dt, -PS_EUSAGE,
                   "%s: %s would be written on the way, and is there and nothing that a run left; "
                   "move it away or give another name",
                   p->what, p->path);
}

static bool same(const struct place *a, const struct place *b)
{
    if (a->dev != b->dev || a->ino != b->ino || !a->name != !b->name) return false;
    return !a->name || !strcmp(a->name, b->name);
}

int ps_places_check(const struct ps_job_cfg *cfg, const struct stat *in, struct ps_detail *dt)
{
    const struct {
        const char *what, *path, *suffix;
        const char
            *begin; /* of those that a run may leave; NULL: whose it is is found out otherwise */
    } files[] = {
        { "OUTPUT", cfg->output, "", NULL },
        { "OUTPUT", cfg->output, ".part", NULL },
        { "OUTPUT", cfg->output, ".journal", NULL },
        { "OUTPUT", cfg->output, ".sorted", "{\"id\": \"batch_req_" },
        { "--report", cfg->report, "", NULL },
        { "--report", cfg->report, ".tmp", "{\"version\": \"" },
        { "--dump-kv", cfg->dump_kv, "", NULL },
        { "--dump-kv", cfg->dump_kv, ".part", "{\"custom_id\": " },
        { "--trace", cfg->trace, "", NULL },
        { "--trace", cfg->trace, ".tmp", "{\"traceEvents\": " },
    };
    struct place p[1 + PS_ARRAY_LEN(files)] = {
        { .what = "INPUT", .dev = in->st_dev, .ino = in->st_ino }
    };
    size_t n = 1;
    int r = 0;
    for (size_t i = 0; !r && i < PS_ARRAY_LEN(files); i++) {
        if (!files[i].path) continue;
        struct place *q = &p[n++];
        q->what = files[i].what;
        q->path = ps_concat(files[i].path, "", files[i].suffix);
        if (!q->path) {
            r = -ENOMEM;
            break;
        }
        r = find(q, dt);
        if (!r && files[i].begin) r = check_left(q, files[i].begin, dt);
        for (size_t k = 0; !r && k + 1 < n; k++)
            if (same(&p[k], q))
                r = ps_fail(dt, -PS_EUSAGE,
                            "%s %s and %s %s are the same file; give one of them another name",
                            p[k].what, k ? p[k].path : cfg->input, q->what, q->path);
    }
    for (size_t k = 1; k < n; k++) free(p[k].path);
    return r;
}

static int open_own(const char *path, int flags, int *ret_fd, struct ps_detail *dt)
{
    struct stat st;
    ps_auto_close int fd = open(path, O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0666);
    if (fd < 0 && errno != ELOOP && errno != EISDIR && errno != ENXIO)
        return ps_fail(dt, -errno, "%s: cannot open: %s", path, ps_err_str(errno));
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return ps_fail(
            dt, -PS_EUSAGE,
            "%s is there and no regular file, but this job keeps its results in a file of "
            "that name; remove it or give another name",
            path);
    *ret_fd = PS_TAKE_FD(fd);
    return 0;
}

int ps_places_open(const char *path, int flags, int *ret_fd, struct ps_detail *dt)
{
    return open_own(path, O_RDWR | O_CREAT | flags, ret_fd, dt);
}

int ps_places_look(const char *path, int *ret_fd, struct ps_detail *dt)
{
    struct stat st;
    *ret_fd = -1;
    if (lstat(path, &st) < 0 && errno == ENOENT) return 0;
    return open_own(path, O_RDWR, ret_fd, dt);
}
