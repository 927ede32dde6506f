/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a file, one after the other, in a buffer that grows up to the longest line allowed. A byte order mark at the start
 * and a CR before the LF are dropped. A longer line is reported as such, and passed over without being kept. */
#ifndef PS_LINES_H
#define PS_LINES_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

enum { PS_LINE_MAX = 16 << 20 };

struct ps_lines {
    int fd;
    uint64_t off;  /* of the next read */
    uint64_t line; /* number of the line last returned, from 1 */
    char *buf;
    size_t cap, from, to; /* unread bytes are buf[from, to) */
    bool eof, begun;
    void (*seen)(void *ud, const char *p, size_t n); /* every byte, once, in order; may be NULL */
    void *ud;
};

enum ps_line { PS_LINE_END, PS_LINE_OK, PS_LINE_LONG };

int ps_lines_init(struct ps_lines *l, int fd) ps_must_check;
void ps_lines_done(struct ps_lines *l);
/* enum ps_line, or an error. The text may be changed in place, and is valid until the next call; one writable byte stands
 * behind it. */
int ps_lines_next(struct ps_lines *l, char **ret, size_t *ret_len) ps_must_check;
#endif
