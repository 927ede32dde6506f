/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/store_fault.h"
#include <stdio.h>
#include <string.h>

uint64_t ps_faults_hash(uint64_t seed, uint64_t n)
{
    uint64_t z = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + n * UINT64_C(0xd1342543de82ef95);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int64_t ps_faults_result(struct ps_faults *f, int64_t result)
{
    if (!f->short_every && !f->intr_every) return result;
    uint64_t n = atomic_fetch_add(&f->answers, 1) + 1, x = ps_faults_hash(f->seed, n);
    if (f->intr_every && (x >> 8) % f->intr_every == 0) return x & 1 ? -EINTR : -EAGAIN;
    /* Shorter by any number of bytes: with O_DIRECT the rest then starts at the aligned byte below. */
    if (f->short_every && (x >> 32) % f->short_every == 0 && result > 1)
        return 1 + (int64_t) (x % (uint64_t) (result - 1));
    return result;
}

static bool number(const char *s, uint64_t least, uint64_t *ret)
{
    char *end;
    if (*s < '0' || *s > '9') return false;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno || *end || v < least) return false;
    *ret = v;
    return true;
}

static int errno_of(const char *name)
{
    for (int e = 1; e < 134; e++) {
        const char *n = strerrorname_np(e);
        if (n && !strcmp(n, name)) return e;
    }
    return 0;
}

static bool fail_rule(char *value, enum ps_io_dir dir, struct ps_faults *f)
{
    char *colon = strchr(value, ':');
    unsigned i = f->n_fail[dir];
    if (!colon || i == PS_FAULT_RULES) return false;
    *colon = 0;
    int e = errno_of(colon + 1);
    f->fail[dir][i].err = -e;
    f->n_fail[dir]++;
    return e && number(value, 1, &f->fail[dir][i].nth);
}

static bool rule(char *s, struct ps_faults *f)
{
    char *value = strchr(s, ':');
    if (!value) {
        f->reorder = !strcmp(s, "reorder");
        return f->reorder;
    }
    *value++ = 0;
    if (!strcmp(s, "read")) return fail_rule(value, PS_IO_READ, f);
    if (!strcmp(s, "write")) return fail_rule(value, PS_IO_WRITE, f);
    if (!strcmp(s, "flip"))
        return f->n_flip < PS_FAULT_RULES && number(value, 1, &f->flip[f->n_flip++]);
    if (!strcmp(s, "delay")) return number(value, 1, &f->delay_us) && f->delay_us <= 10000000;
    if (!strcmp(s, "short")) return number(value, 2, &f->short_every);
    if (!strcmp(s, "intr")) return number(value, 2, &f->intr_every);
    if (!strcmp(s, "seed")) return number(value, 0, &f->seed);
    return false;
}

int ps_faults_parse(const char *spec, struct ps_faults *ret, struct ps_detail *dt)
{
    *ret = (struct ps_faults) { .seed = 1 };
    char copy[512];
    if (!spec) return 0;
    if (strlen(spec) >= sizeof copy)
        return ps_fail(dt, -EINVAL, "fault spec is longer than %zu characters", sizeof copy - 1);
    (void) snprintf(copy, sizeof copy, "%s", spec);
    char *rest = copy;
    for (char *s; (s = strsep(&rest, ","));) {
        char shown[64];
        (void) snprintf(shown, sizeof shown, "%s", s);
        if (*s && !rule(s, ret))
            return ps_fail(dt, -EINVAL,
                           "\"%s\" in fault spec \"%s\" is no rule; expected read:N:EIO, "
                           "write:N:ENOSPC, flip:N, delay:US, reorder, short:N, intr:N or seed:S",
                           shown, spec);
    }
    return 0;
}
