/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/lines.h"
#include "engine/base/ps_mem.h"
#include <string.h>

enum { FIRST_CAP = 256 << 10 };

int ps_lines_init(struct ps_lines *l, int fd)
{
    *l = (struct ps_lines) { .fd = fd, .cap = FIRST_CAP };
    l->buf = ps_calloc(1, l->cap + 1);
    return l->buf ? 0 : -ENOMEM;
}

void ps_lines_done(struct ps_lines *l)
{
    free(l->buf);
    *l = (struct ps_lines) { .fd = -1 };
}

/* Makes room behind what is unread. 1: there is none, and the limit is reached. */
static int make_room(struct ps_lines *l)
{
    if (l->from) {
        memmove(l->buf, l->buf + l->from, l->to - l->from);
        l->to -= l->from;
        l->from = 0;
    }
    if (l->to < l->cap) return 0;
    const size_t most = (size_t) PS_LINE_MAX + 4; /* and BOM or CR LF */
    if (l->cap >= most) return 1;
    size_t cap = l->cap * 2 < most ? l->cap * 2 : most;
    char *p = ps_calloc(1, cap + 1);
    if (!p) return -ENOMEM;
    memcpy(p, l->buf, l->to);
    free(l->buf);
    l->buf = p;
    l->cap = cap;
    return 0;
}

static int fill(struct ps_lines *l)
{
    ssize_t n;
    do n = pread(l->fd, l->buf + l->to, l->cap - l->to, (off_t) l->off);
    while (n < 0 && errno == EINTR);
    if (n < 0) return -errno;
    if (l->seen && n) l->seen(l->ud, l->buf + l->to, (size_t) n);
    l->to += (size_t) n;
    l->off += (uint64_t) n;
    l->eof = !n;
    return 0;
}

static int skip_bom(struct ps_lines *l)
{
    l->begun = true;
    while (!l->eof && l->to < 3) {
        int r = fill(l);
        if (r < 0) return r;
    }
    if (l->to >= 3 && !memcmp(l->buf, "\xef\xbb\xbf", 3)) l->from = 3;
    return 0;
}

/* Drops the rest of a line that is too long. */
static int drop_line(struct ps_lines *l)
{
    for (;;) {
        char *nl = memchr(l->buf + l->from, '\n', l->to - l->from);
        if (nl) {
            l->from = (size_t) (nl + 1 - l->buf);
            return PS_LINE_LONG;
        }
        l->from = l->to = 0;
        if (l->eof) return PS_LINE_LONG;
        int r = fill(l);
        if (r < 0) return r;
    }
}

int ps_lines_next(struct ps_lines *l, char **ret, size_t *ret_len)
{
    int r = l->begun ? 0 : skip_bom(l);
    if (r < 0) return r;
    size_t searched = 0;
    for (;;) {
        char *s = l->buf + l->from;
        size_t n = l->to - l->from;
        char *nl = memchr(s + searched, '\n', n - searched);
        if (nl || l->eof) {
            if (!nl && !n) return PS_LINE_END;
            size_t len = nl ? (size_t) (nl - s) : n;
            l->from += len + (nl != NULL);
            l->line++;
            if (len && s[len - 1] == '\r') len--;
            if (len > PS_LINE_MAX) return PS_LINE_LONG;
            *ret = s;
            *ret_len = len;
            return PS_LINE_OK;
        }
        searched = n;
        r = make_room(l);
        if (r < 0) return r;
        if (r) {
            l->line++;
            return drop_line(l);
        }
        r = fill(l);
        if (r < 0) return r;
    }
}
