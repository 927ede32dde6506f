/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/input.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/job/jout.h"
#include "engine/job/lines.h"
#include "engine/job/places.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum { STAGE_BUF = 1 << 20, STAGE_LINE_MAX = 256 << 20 };

/* What may come through a pipe: 90 % of the room there is for it. Where that is not known, the disk says when it is full. */
static uint64_t stage_room(int fd)
{
    struct statvfs v;
    if (fstatvfs(fd, &v) < 0 || !v.f_blocks) return UINT64_MAX;
    return (uint64_t) v.f_bavail * v.f_frsize / 10 * 9;
}

static int stage(int in, const char *input, const char *output, const volatile sig_atomic_t *stop,
                 int *ret_fd, struct ps_detail *dt)
{
    ps_auto_close int fd = ps_temp_beside(output, dt);
    ps_auto_free char *buf = ps_calloc(1, STAGE_BUF);
    uint64_t at = 0, line_bytes = 0;
    if (fd < 0) return fd;
    if (!buf) return -ENOMEM;
    const uint64_t room = stage_room(fd);
    for (;;) {
        if (stop && *stop) return -ECANCELED;
        ssize_t n = read(in, buf, STAGE_BUF);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return ps_fail(dt, -errno, "%s: read failed at offset %" PRIu64 ": %s", input, at,
                           ps_err_str(errno));
        if (!n) break;
        const char *nl = memrchr(buf, '\n', (size_t) n);
        line_bytes = nl ? (uint64_t) (buf + n - (nl + 1)) : line_bytes + (uint64_t) n;
        if (line_bytes > STAGE_LINE_MAX)
            return ps_fail(dt, -PS_EFORMAT,
                           "INPUT %s: more than %d MiB without a line end, from byte %" PRIu64
                           " on; lines of requests were expected, of %d MiB at most",
                           input, STAGE_LINE_MAX >> 20, at + (uint64_t) n - line_bytes,
                           PS_LINE_MAX >> 20);
        if ((uint64_t) n > room - at)
            return ps_fail(dt, -ENOSPC,
                           "INPUT %s: it is no file, so it is staged beside %s, and more came than "
                           "%" PRIu64 " KiB, 90 %% of what was free there: make room, or give "
                           "a file",
                           input, output, room >> 10);
        int r = ps_pwrite_all(fd, buf, (size_t) n, at);
        if (r < 0)
            return ps_fail(dt, r,
                           "%s cannot be staged beside %s: write failed at offset %" PRIu64 ": %s",
                           input, output, at, ps_err_str(r));
        at += (uint64_t) n;
    }
    *ret_fd = PS_TAKE_FD(fd);
    return 0;
}

int ps_input_open(const struct ps_job_cfg *cfg, int *ret_fd, struct ps_detail *dt)
{
    const char *input = cfg->input;
    bool is_stdin = !strcmp(input, "-");
    if (is_stdin) input = "stdin";
    ps_auto_close int fd =
        is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(input, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 && errno == EINTR && cfg->stop && *cfg->stop) return -ECANCELED; /* a FIFO */
    if (fd < 0 || fstat(fd, &st) < 0)
        return ps_fail(dt, -errno, "INPUT %s: cannot open: %s", input, ps_err_str(errno));
    if (S_ISDIR(st.st_mode))
        return ps_fail(dt, -EISDIR, "INPUT %s is a folder; a file of requests was expected", input);
    int r = ps_places_check(cfg, &st, dt);
    if (r < 0) return r;
    /* A regular file on stdin may stand behind its start: what was read from it is not the job's. */
    if (!S_ISREG(st.st_mode) || is_stdin)
        return stage(fd, input, cfg->output, cfg->stop, ret_fd, dt);
    *ret_fd = PS_TAKE_FD(fd);
    return 0;
}
