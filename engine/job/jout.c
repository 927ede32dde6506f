/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/jout.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/base/ps_utf8.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

int ps_jout_init(struct ps_jout *o, int fd, uint64_t at, size_t buf_bytes)
{
    *o = (struct ps_jout) { .fd = fd, .at = at, .cap = buf_bytes };
    o->buf = ps_calloc(1, buf_bytes);
    return o->buf ? 0 : -ENOMEM;
}

void ps_jout_done(struct ps_jout *o)
{
    free(o->buf);
    *o = (struct ps_jout) { .fd = -1 };
}

int ps_jout_flush(struct ps_jout *o)
{
    if (o->err) return o->err;
    if (!o->n) return 0;
    o->err = ps_pwrite_all(o->fd, o->buf, o->n, o->at);
    if (o->err) return o->err;
    o->at += o->n;
    o->n = 0;
    o->flips++;
    return 0;
}

uint64_t ps_jout_tell(const struct ps_jout *o) { return o->at + o->n; }

int ps_jout_rewind(struct ps_jout *o, uint64_t to)
{
    o->err = 0;
    if (to >= o->at) {
        o->n = (size_t) (to - o->at);
        /* A write that failed may have left a part of the buffer in the file. */
        return ftruncate(o->fd, (off_t) o->at) < 0 ? -errno : 0;
    }
    o->n = 0;
    o->at = to;
    return ftruncate(o->fd, (off_t) to) < 0 ? -errno : 0;
}

void ps_jout_bytes(struct ps_jout *o, const void *p, size_t n)
{
    for (const char *s = p; n && !o->err;) {
        size_t m = o->cap - o->n < n ? o->cap - o->n : n;
        memcpy(o->buf + o->n, s, m);
        o->n += m;
        s += m;
        n -= m;
        if (o->n == o->cap) (void) ps_jout_flush(o);
    }
}

void ps_jout_text(struct ps_jout *o, const char *text) { ps_jout_bytes(o, text, strlen(text)); }

void ps_jout_u64(struct ps_jout *o, uint64_t v)
{
    char t[20];
    size_t n = sizeof t;
    do t[--n] = (char) ('0' + v % 10);
    while (v /= 10);
    ps_jout_bytes(o, t + n, sizeof t - n);
}

void ps_jout_i64(struct ps_jout *o, int64_t v)
{
    if (v < 0) ps_jout_bytes(o, "-", 1);
    ps_jout_u64(o, v < 0 ? -(uint64_t) v : (uint64_t) v);
}

void ps_jout_f32(struct ps_jout *o, float v)
{
    char t[40];
    if (!isfinite(v)) {
        ps_jout_text(o, "null");
        return;
    }
    for (int digits = 7; digits <= 9; digits++) {
        (void) snprintf(t, sizeof t, "%.*g", digits, (double) v);
        if (strtof(t, NULL) == v) break;
    }
    ps_jout_text(o, t);
}

void ps_jout_f64(struct ps_jout *o, double v)
{
    char t[40];
    if (!isfinite(v)) {
        ps_jout_text(o, "null");
        return;
    }
    for (int digits = 9; digits <= 17; digits += 4) {
        (void) snprintf(t, sizeof t, "%.*g", digits, v);
        if (strtod(t, NULL) == v) break;
    }
    ps_jout_text(o, t);
}

static void put_escape(struct ps_jout *o, uint8_t c)
{
    static const char hex[] = "0123456789abcdef";
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *f = c ? strchr(from, c) : NULL;
    if (f) {
        ps_jout_bytes(o, (char[]) { '\\', to[f - from] }, 2);
    } else {
        ps_jout_bytes(o, (char[]) { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] }, 6);
    }
}

void ps_jout_escaped(struct ps_jout *o, const char *s, size_t len)
{
    size_t valid = ps_utf8_valid(s, len);
    while (len) {
        size_t n = 0;
        while (n < valid && (uint8_t) s[n] >= 0x20 && s[n] != '"' && s[n] != '\\' && s[n] != 0x7f)
            n++;
        ps_jout_bytes(o, s, n);
        if (n == len) return;
        bool bad = n == valid;
        if (bad)
            ps_jout_bytes(o, "\xef\xbf\xbd", 3);
        else
            put_escape(o, (uint8_t) s[n]);
        s += n + 1;
        len -= n + 1;
        valid = bad ? ps_utf8_valid(s, len) : valid - n - 1;
    }
}

void ps_jout_string(struct ps_jout *o, const char *s, size_t len)
{
    ps_jout_bytes(o, "\"", 1);
    ps_jout_escaped(o, s, len);
    ps_jout_bytes(o, "\"", 1);
}

void ps_jout_key(struct ps_jout *o, bool *first, const char *key)
{
    if (!*first) ps_jout_bytes(o, ", ", 2);
    *first = false;
    ps_jout_string(o, key, strlen(key));
    ps_jout_bytes(o, ": ", 2);
}
