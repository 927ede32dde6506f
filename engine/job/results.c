/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/results.h"
#include "engine/base/ps_mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF = 1 << 20 };

int ps_results_open(int fd, struct ps_results *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->fd = fd;
    ret->buf = ps_calloc(1, BUF);
    return ret->buf ? 0 : -ENOMEM;
}

void ps_results_close(struct ps_results *r)
{
    free(r->buf);
    r->buf = NULL;
}

static void keep(struct ps_results *r, const char *p, size_t n)
{
    size_t m = sizeof r->head - 1 - r->n_head;
    if (m > n) m = n;
    memcpy(r->head + r->n_head, p, m);
    r->n_head += m;
    size_t most = sizeof r->tail - 1;
    if (n >= most) {
        memcpy(r->tail, p + n - most, most);
        r->n_tail = most;
        return;
    }
    size_t old = r->n_tail + n > most ? most - n : r->n_tail;
    memmove(r->tail, r->tail + r->n_tail - old, old);
    memcpy(r->tail + old, p, n);
    r->n_tail = old + n;
}

/* The last place where `what` stands in text. */
static const char *last_of(const char *text, const char *what)
{
    const char *found = NULL;
    for (const char *p = text; (p = strstr(p, what)); p++) found = p;
    return found;
}

static void look_at_head(const char *head, struct ps_result *ret)
{
    static const char key[] = "\"custom_id\": \"";
    const char *p = strstr(head, key);
    if (!p) return;
    ret->custom_id = p += sizeof key - 1;
    while (*p && *p != '"') p += *p == '\\' && p[1] ? 2 : 1;
    ret->custom_id_len = (size_t) (p - ret->custom_id);
    static const char created[] = "\"created\": ";
    p = strstr(p, created);
    if (p) ret->created = strtoll(p + sizeof created - 1, NULL, 10);
}

static void parse(struct ps_results *r, struct ps_result *ret)
{
    static const char begin[] = "{\"id\": \"batch_req_";
    r->head[r->n_head] = r->tail[r->n_tail] = 0;
    /* JSON text has no NUL, so that a stray one only shortens what is looked at */
    look_at_head(r->head, ret);
    if (strncmp(r->head, begin, sizeof begin - 1) != 0) return;
    char *end;
    ret->job = strtoull(r->head + sizeof begin - 1, &end, 16);
    if (end != r->head + sizeof begin - 1 + 16 || *end != '-') return;
    unsigned long line = strtoul(end + 1, &end, 10);
    if (*end != '"' || line > UINT32_MAX) return;
    ret->line = (uint32_t) line;
    const char *u = last_of(r->tail, "\"usage\": {\"prompt_tokens\": ");
    if (u) {
        ret->ok =
            sscanf(u, "\"usage\": {\"prompt_tokens\": %" SCNu64 ", \"completion_tokens\": %" SCNu64,
                   &ret->prompt_tokens, &ret->generated_tokens) == 2;
        ret->stopped = strstr(r->tail, "\"finish_reason\": \"stop\"}], \"usage\"") != NULL;
    } else {
        const char *l = last_of(r->tail, ", \"line\": ");
        ret->failed = l && strtoul(l + 10, &end, 10) == line && !strcmp(end, "}}");
        ret->ok = ret->failed;
    }
}

int ps_results_next(struct ps_results *r, struct ps_result *ret)
{
    *ret = (struct ps_result) { .off = r->off + r->from };
    r->n_head = r->n_tail = 0;
    for (;;) {
        char *s = r->buf + r->from, *nl = memchr(s, '\n', r->to - r->from);
        size_t n = nl ? (size_t) (nl - s) : r->to - r->from;
        bool foreign = n && !ret->len && *s != '{'; /* may go on for ever */
        keep(r, s, n);
        ret->len += n + (nl != NULL);
        r->from += n + (nl != NULL);
        if (foreign) return 1;
        if (nl) {
            parse(r, ret);
            return 1;
        }
        r->off += r->to;
        r->from = r->to = 0;
        ssize_t got;
        do got = pread(r->fd, r->buf, BUF, (off_t) r->off);
        while (got < 0 && errno == EINTR);
        if (got < 0) return -errno;
        if (!got) return 0;
        r->to = (size_t) got;
    }
}
