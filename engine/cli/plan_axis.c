/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a sweep's axis: ranges and lists. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/cli/plan_sweep.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

void ps_axis_done(struct ps_axis *a)
{
    for (size_t i = 0; i < a->n; i++) free(a->values[i]);
    free(a->values);
    free(a->name);
    free(a->order);
    *a = (struct ps_axis) { 0 };
}

static char *copy(const char *s, size_t n)
{
    char *t = ps_calloc(1, n + 1);
    if (t) memcpy(t, s, n);
    return t;
}

/* Takes v over. */
static int add(struct ps_axis *a, size_t *cap, char *v)
{
    int r = v ? ps_grow(&a->values, cap, a->n, a->n + 1, sizeof *a->values) : -ENOMEM;
    if (r < 0) {
        free(v);
        return r;
    }
    a->values[a->n++] = v;
    return 0;
}

/* "32G": the number, and what stands behind it. */
struct value {
    double v;
    const char *unit;
    size_t unit_len;
};

static bool number(const char *s, const char *end, struct value *ret)
{
    char *stop;
    if (!(*s >= '0' && *s <= '9')) return false;
    ret->v = strtod(s, &stop);
    if (stop > end || !isfinite(ret->v)) return false;
    ret->unit = stop;
    ret->unit_len = (size_t) (end - stop);
    return true;
}

static bool same_unit(const struct value *a, const struct value *b)
{
    return a->unit_len == b->unit_len && !memcmp(a->unit, b->unit, a->unit_len);
}

static int range_values(struct ps_axis *a, const struct value *from, const struct value *to,
                        double step, bool times)
{
    size_t cap = 0;
    double v = from->v;
    int r = 0;
    for (unsigned i = 0; !r && v <= to->v * (1 + 1e-9) && i <= PS_SWEEP_POINTS_MAX; i++) {
        char t[96];
        (void) snprintf(t, sizeof t, "%.12g%.*s", v, (int) from->unit_len, from->unit);
        r = add(a, &cap, copy(t, strlen(t)));
        v = times ? from->v * pow(step, i + 1) : from->v + step * (i + 1);
    }
    return r;
}

/* 1 if it was a range. */
static int range(struct ps_axis *a, const char *text, struct ps_detail *dt)
{
    const char *one = strchr(text, ':'), *two = one ? strchr(one + 1, ':') : NULL;
    struct value from, to, step;
    if (!two || strpbrk(text, ",;")) return 0;
    const bool times = two[1] == 'x';
    const bool ok = number(text, one, &from) && number(one + 1, two, &to) &&
                    (times || two[1] == '+') && number(two + 2, two + strlen(two), &step) &&
                    same_unit(&from, &to) &&
                    (step.unit_len == 0 || (!times && same_unit(&from, &step)));
    if (!ok || !(from.v <= to.v) || !(times ? step.v > 1 && from.v > 0 : step.v > 0) ||
        from.unit_len > 16)
        return ps_fail(dt, -PS_EUSAGE,
                       "--sweep %s=%s: a range as 32G:512G:x2 (factor above 1) or 10%%:100%%:+10 "
                       "(step above 0) was expected, both ends in one unit, the first not above "
                       "the second",
                       a->name, text);
    int r = range_values(a, &from, &to, step.v, times);
    return r < 0 ? r : 1;
}

static int list(struct ps_axis *a, const char *text, struct ps_detail *dt)
{
    const char *between = strchr(text, ';') ? ";" : ",";
    size_t cap = 0;
    for (const char *s = text;; s++) {
        const size_t n = strcspn(s, between);
        if (!n)
            return ps_fail(
                dt, -PS_EUSAGE,
                "--sweep %s=%s: a value is empty; a list as 10%%,20%% was expected (with ; "
                "between values that have commas)",
                a->name, text);
        int r = add(a, &cap, copy(s, n));
        if (r < 0) return r;
        s += n;
        if (!*s) return 0;
    }
}

int ps_axis_parse(const char *text, struct ps_axis *ret, struct ps_detail *dt)
{
    const char *eq = strchr(text, '=');
    *ret = (struct ps_axis) { 0 };
    if (!eq || eq == text || !eq[1])
        return ps_fail(dt, -PS_EUSAGE,
                       "--sweep %s: NAME=VALUES was expected, as host-mem=32G:512G:x2", text);
    while (*text == '-') text++;
    ret->name = copy(text, (size_t) (eq - text));
    if (!ret->name) return -ENOMEM;
    int r = range(ret, eq + 1, dt);
    if (!r) return list(ret, eq + 1, dt);
    return r < 0 ? r : 0;
}
