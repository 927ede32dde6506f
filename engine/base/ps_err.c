/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_err.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ps_err_name(int err)
{
    switch (abs(err)) {
#define X(name, val, str) \
    case val: return #name;
        PS_ERR_MAP(X)
#undef X
    default: {
        const char *n = strerrorname_np(abs(err));
        return n ? n : "EUNKNOWN";
    }
    }
}

const char *ps_err_str(int err)
{
    switch (abs(err)) {
#define X(name, val, str) \
    case val: return str;
        PS_ERR_MAP(X)
#undef X
    default: {
        const char *s = strerrordesc_np(abs(err));
        return s ? s : "unknown error";
    }
    }
}

const char *ps_err_limits(int err)
{
    if (abs(err) != EAGAIN && abs(err) != ENOMEM) return "";
    return "; a limit is too low: of processes (ulimit -u, the cgroup's pids.max), address space "
           "(ulimit -v) or memory";
}

int ps_fail(struct ps_detail *dt, int err, const char *fmt, ...)
{
    if (!dt) return err;
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(dt->text, sizeof dt->text, fmt, ap);
    va_end(ap);
    return err;
}

int ps_fail_in(struct ps_detail *dt, int err, const char *fmt, ...)
{
    if (!dt) return err;
    struct ps_detail front;
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(front.text, sizeof front.text, fmt, ap);
    va_end(ap);
    size_t n = strlen(front.text), old = strlen(dt->text);
    if (old && n + 2 < sizeof dt->text) { /* what is cut is the old text's end */
        size_t keep = sizeof dt->text - n - 3;
        if (old > keep) old = keep;
        memmove(dt->text + n + 2, dt->text, old);
        memcpy(dt->text + n, ": ", 2);
        dt->text[n + 2 + old] = 0;
        memcpy(dt->text, front.text, n);
    } else {
        *dt = front;
    }
    return err;
}
