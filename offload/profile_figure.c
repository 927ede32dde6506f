/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/profile_reader.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

size_t ps_reader_enter(struct ps_reader *r, const char *key)
{
    size_t was = r->len;
    int n = snprintf(r->path + was, sizeof r->path - was, "%s%.64s", was ? "." : "", key);
    r->len = was + (size_t) n < sizeof r->path ? was + (size_t) n : sizeof r->path - 1;
    return was;
}
size_t ps_reader_enter_item(struct ps_reader *r, size_t i)
{
    size_t was = r->len;
    int n = snprintf(r->path + was, sizeof r->path - was, "[%zu]", i);
    r->len = was + (size_t) n < sizeof r->path ? was + (size_t) n : sizeof r->path - 1;
    return was;
}
int ps_reader_leave(struct ps_reader *r, size_t was, int result)
{
    r->len = was;
    r->path[was] = 0;
    return result;
}

/* What a value holds, for a message; short. */
static const char *held(const json_t *v, char *buf, size_t cap)
{
    if (!v) return "missing";
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: (void) snprintf(buf, cap, "\"%.60s\"", json_string_value(v)); return buf;
    case JSON_INTEGER:
        (void) snprintf(buf, cap, "%lld", (long long) json_integer_value(v));
        return buf;
    case JSON_REAL: (void) snprintf(buf, cap, "%.10g", json_real_value(v)); return buf;
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    default: return "null";
    }
}

int ps_reader_refuse(const struct ps_reader *r, const json_t *v, const char *want)
{
    char buf[80];
    return ps_fail(r->dt, -PS_EFORMAT, "%s: %s is %s; expected %s", r->file,
                   r->len ? r->path : "the profile", held(v, buf, sizeof buf), want);
}

/* For a member of the object at hand. */
int ps_reader_refuse_at(struct ps_reader *r, const char *key, const json_t *v, const char *want)
{
    size_t was = ps_reader_enter(r, key);
    return ps_reader_leave(r, was, ps_reader_refuse(r, v, want));
}

static bool known(const char *key, const struct ps_field *f, const char *const *names)
{
    for (; f && f->key; f++)
        if (!strcmp(f->key, key)) return true;
    for (; *names; names++)
        if (!strcmp(*names, key)) return true;
    return false;
}

/* Refuses members of v that are in none of the three lists. */
int ps_reader_only(struct ps_reader *r, const json_t *v, const struct ps_field *a,
                   const struct ps_field *b, const char *const *names)
{
    const char *key;
    json_t *member;
    static const char *const none[] = { NULL };
    if (!json_is_object(v)) return ps_reader_refuse(r, v, "an object");
    json_object_foreach((json_t *) v, key, member)
    {
        if (known(key, a, names) || known(key, b, none)) continue;
        size_t was = ps_reader_enter(r, key);
        return ps_reader_leave(r, was,
                               ps_fail(r->dt, -PS_EFORMAT,
                                       "%s: %s is no field of a hardware profile", r->file,
                                       r->path));
    }
    return 0;
}

int ps_reader_text(struct ps_reader *r, const json_t *obj, const char *key, bool must, char *ret,
                   size_t cap)
{
    const json_t *v = json_object_get(obj, key);
    const char *s = json_string_value(v);
    if (!must && (!v || json_is_null(v))) return 0;
    char want[64];
    (void) snprintf(want, sizeof want, "a text of 1 to %zu bytes", cap - 1);
    if (!s || !*s || json_string_length(v) >= cap || strlen(s) != json_string_length(v))
        return ps_reader_refuse_at(r, key, v, want);
    if (ret) (void) snprintf(ret, cap, "%s", s);
    return 0;
}

/* ---- figures */

/* What figures and curves have beside their values: where it comes from, and how sure it is. */
static int provenance(struct ps_reader *r, const json_t *obj)
{
    static const char *const flags[] = { "noisy", "throttled" };
    for (size_t i = 0; i < PS_ARRAY_LEN(flags); i++) {
        const json_t *v = json_object_get(obj, flags[i]);
        if (v && !json_is_boolean(v)) return ps_reader_refuse_at(r, flags[i], v, "true or false");
        r->p->noisy |= json_is_true(v);
    }
    return ps_reader_text(r, obj, "source", true, NULL, 1024);
}

static int unit(struct ps_reader *r, const json_t *obj, enum ps_dim d, double *ret)
{
    const json_t *v = json_object_get(obj, "unit");
    *ret = json_is_string(v) ? ps_unit(d, json_string_value(v)) : 0;
    return *ret > 0 ? 0 : ps_reader_refuse_at(r, "unit", v, ps_units_text(d));
}

/* The reader stands on the number. */
static int number(const struct ps_reader *r, const json_t *v, double worth, double least,
                  double most, bool whole, double *ret)
{
    char want[96];
    (void) snprintf(want, sizeof want, "%s from %.10g to %.10g", whole ? "an integer" : "a number",
                    least / worth, most / worth);
    if (!json_is_number(v)) return ps_reader_refuse(r, v, want);
    const double x = json_number_value(v) * worth;
    if (!(x >= least && x <= most) || (whole && x != floor(x))) return ps_reader_refuse(r, v, want);
    *ret = x;
    return 0;
}

/* [least, greatest] of what was measured: both non-negative, `value` between them. */
static int spread(struct ps_reader *r, const json_t *obj, double value)
{
    const json_t *v = json_object_get(obj, "spread");
    if (!v) return 0;
    const json_t *lo = json_array_get(v, 0), *hi = json_array_get(v, 1);
    bool ok = json_array_size(v) == 2 && json_is_number(lo) && json_is_number(hi);
    if (!ok || !(json_number_value(lo) >= 0 && json_number_value(lo) <= value &&
                 json_number_value(hi) >= value))
        return ps_reader_refuse_at(r, "spread", v, "[least, greatest] around the value");
    return 0;
}

static int figure(struct ps_reader *r, const json_t *v, const struct ps_field *f, double *ret)
{
    static const char *const members[] = { "value", "unit",      "source", "spread",
                                           "noisy", "throttled", NULL };
    double worth = 1;
    int e = ps_reader_only(r, v, NULL, NULL, members);
    if (e || (e = unit(r, v, f->dim, &worth)) || (e = provenance(r, v))) return e;
    const json_t *value = json_object_get(v, "value");
    size_t was = ps_reader_enter(r, "value");
    e = number(r, value, worth, f->least, f->most, f->type == PS_FIELD_U32, ret);
    e = ps_reader_leave(r, was, e);
    return e ? e : spread(r, v, json_number_value(value));
}

/* All figures of a list that are members of obj. */
int ps_reader_figures(struct ps_reader *r, const json_t *obj, const struct ps_field *f, void *base)
{
    for (; f->key; f++) {
        const json_t *v = json_object_get(obj, f->key);
        double x = 0;
        if ((!v && f->need == PS_MAY_LACK) || (json_is_null(v) && f->need != PS_MUST_HAVE))
            continue;
        size_t was = ps_reader_enter(r, f->key);
        int e = ps_reader_leave(r, was, figure(r, v, f, &x));
        if (e) return e;
        ps_field_put(f, base, x);
    }
    return 0;
}

/* ---- curves */

/* A list of `n` numbers within bounds; ascending, if it is x. */
static int numbers(struct ps_reader *r, const json_t *obj, const char *key, size_t n, double worth,
                   double least, double most, bool ascending, double *ret)
{
    const json_t *v = json_object_get(obj, key);
    char want[64];
    (void) snprintf(want, sizeof want, "a list of %zu numbers", n);
    if (json_array_size(v) != n) return ps_reader_refuse_at(r, key, v, want);
    const size_t was = ps_reader_enter(r, key);
    int e = 0;
    for (size_t i = 0; i < n && !e; i++) {
        const size_t here = ps_reader_enter_item(r, i);
        const json_t *x = json_array_get(v, i);
        e = number(r, x, worth, least, most, false, &ret[i]);
        if (!e && ascending && i && ret[i] <= ret[i - 1])
            e = ps_reader_refuse(r, x, "more than the number before it");
        e = ps_reader_leave(r, here, e);
    }
    return ps_reader_leave(r, was, e);
}

/* [[least of each point], [greatest of each]] */
static int curve_spread(struct ps_reader *r, const json_t *obj, const struct ps_curve *c,
                        double worth)
{
    const json_t *v = json_object_get(obj, "spread");
    if (!v) return 0;
    bool ok = json_array_size(v) == 2;
    for (size_t i = 0; i < c->n && ok; i++) {
        const json_t *lo = json_array_get(json_array_get(v, 0), i),
                     *hi = json_array_get(json_array_get(v, 1), i);
        const double slack = 1e-9 * c->y[i];
        ok = json_is_number(lo) && json_is_number(hi) && json_number_value(lo) >= 0 &&
             json_number_value(lo) * worth <= c->y[i] + slack &&
             json_number_value(hi) * worth >= c->y[i] - slack;
    }
    return ok ? 0
              : ps_reader_refuse_at(r, "spread", v,
                                    "[[the least of each y], [the greatest of each y]]");
}

int ps_reader_curve(struct ps_reader *r, const json_t *obj, const char *key, enum ps_dim d,
                    struct ps_curve *ret)
{
    static const char *const members[] = { "x",      "y",     "unit",      "source",
                                           "spread", "noisy", "throttled", NULL };
    const json_t *v = json_object_get(obj, key), *x = json_object_get(v, "x");
    const bool flops = d == PS_DIM_FLOPS;
    const size_t was = ps_reader_enter(r, key), n = json_array_size(x);
    double worth = 1;
    int e = ps_reader_only(r, v, NULL, NULL, members);
    if (!e) e = unit(r, v, d, &worth);
    if (!e) e = provenance(r, v);
    if (!e && (!n || n > PS_CURVE_MAX))
        e = ps_reader_refuse_at(r, "x", x, "a list of 1 to 24 numbers");
    if (!e) e = numbers(r, v, "x", n, 1, 1, PS_PROFILE_X_MOST, true, ret->x);
    if (!e)
        e = numbers(r, v, "y", n, worth, flops ? PS_PROFILE_FLOPS_LEAST : PS_PROFILE_RATE_LEAST,
                    flops ? PS_PROFILE_FLOPS_MOST : PS_PROFILE_RATE_MOST, false, ret->y);
    ret->n = (uint32_t) n;
    if (!e) e = curve_spread(r, v, ret, worth);
    return ps_reader_leave(r, was, e);
}

int ps_reader_int(struct ps_reader *r, const json_t *obj, const char *key, double least,
                  double most, double *ret)
{
    const size_t was = ps_reader_enter(r, key);
    return ps_reader_leave(r, was, number(r, json_object_get(obj, key), 1, least, most, true, ret));
}
