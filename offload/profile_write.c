/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/profile_write.h"
#include "engine/base/ps_mem.h"
#include <stdio.h>
#include <string.h>

int ps_out_open(struct ps_profile_out *o)
{
    (void) ps_json_failures(); /* our allocator */
    *o = (struct ps_profile_out) { .root = json_object(), .notes = json_array() };
    if (o->root && o->notes) return 0;
    ps_out_close(o);
    return -ENOMEM;
}

void ps_out_close(struct ps_profile_out *o)
{
    json_decref(o->root);
    json_decref(o->notes);
    o->root = o->notes = NULL;
}

void ps_out_set(struct ps_profile_out *o, json_t *obj, const char *key, json_t *value)
{
    if (json_object_set_new(obj, key, value) < 0) o->err = -ENOMEM;
}

json_t *ps_out_object(struct ps_profile_out *o, json_t *obj, const char *key)
{
    ps_out_set(o, obj, key, json_object());
    return json_object_get(obj, key);
}

json_t *ps_out_list(struct ps_profile_out *o, json_t *obj, const char *key)
{
    ps_out_set(o, obj, key, json_array());
    return json_object_get(obj, key);
}

static void append(struct ps_profile_out *o, json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) < 0) o->err = -ENOMEM;
}

json_t *ps_out_item(struct ps_profile_out *o, json_t *list)
{
    append(o, list, json_object());
    return json_array_get(list, json_array_size(list) - 1);
}

void ps_out_note(struct ps_profile_out *o, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    append(o, o->notes, json_string(text));
}

/* Four digits: more would say what was not measured. */
static json_t *number(double x)
{
    char text[32];
    (void) snprintf(text, sizeof text, "%.4g", x);
    x = strtod(text, NULL);
    return x >= 1 && x < 1e15 && x == (double) (json_int_t) x ? json_integer((json_int_t) x)
                                                              : json_real(x);
}

static double worth(const char *unit)
{
    for (int d = 0; d < PS_DIM__COUNT; d++)
        if (ps_unit((enum ps_dim) d, unit) > 0) return ps_unit((enum ps_dim) d, unit);
    return 1;
}

/* Unit and source, after which the caller adds what is measured. */
static json_t *begin(struct ps_profile_out *o, json_t *obj, const char *key)
{
    o->figures++;
    return ps_out_object(o, obj, key);
}
static void end(struct ps_profile_out *o, json_t *f, const char *unit, bool noisy, bool throttled)
{
    ps_out_set(o, f, "unit", json_string(unit));
    ps_out_set(o, f, "source", json_string("measured"));
    if (noisy) ps_out_set(o, f, "noisy", json_true());
    if (throttled) ps_out_set(o, f, "throttled", json_true());
    o->noisy += noisy;
    o->throttled += throttled;
}

void ps_out_value(struct ps_profile_out *o, json_t *obj, const char *key, double value,
                  const char *unit)
{
    json_t *f = begin(o, obj, key);
    ps_out_set(o, f, "value", number(value / worth(unit)));
    end(o, f, unit, false, false);
}

void ps_out_rate(struct ps_profile_out *o, json_t *obj, const char *key, const struct ps_rate *r,
                 const char *unit)
{
    const double w = worth(unit);
    if (!(r->median > 0)) {
        ps_out_set(o, obj, key, json_null());
        return;
    }
    json_t *f = begin(o, obj, key), *spread;
    ps_out_set(o, f, "value", number(r->median / w));
    spread = ps_out_list(o, f, "spread");
    append(o, spread, number(r->min / w));
    append(o, spread, number(r->max / w));
    end(o, f, unit, r->noisy, r->throttled);
}

void ps_out_curve(struct ps_profile_out *o, json_t *obj, const char *key, const double *x,
                  const struct ps_rate *y, unsigned n, const char *unit)
{
    const double w = worth(unit);
    bool noisy = false, throttled = false;
    json_t *f = begin(o, obj, key), *xs = ps_out_list(o, f, "x"), *ys = ps_out_list(o, f, "y"),
           *spread = ps_out_list(o, f, "spread");
    append(o, spread, json_array());
    append(o, spread, json_array());
    for (unsigned i = 0; i < n; i++) {
        append(o, xs, number(x[i]));
        append(o, ys, number(y[i].median / w));
        append(o, json_array_get(spread, 0), number(y[i].min / w));
        append(o, json_array_get(spread, 1), number(y[i].max / w));
        noisy |= y[i].noisy;
        throttled |= y[i].throttled;
    }
    end(o, f, unit, noisy, throttled);
}

/* A line for each figure and curve: what has a unit, or holds nothing that has. */
static bool one_line(const json_t *v)
{
    const char *key;
    json_t *m;
    size_t i;
    if (json_object_get(v, "unit")) return true;
    json_object_foreach((json_t *) v, key,
                        m) if (json_is_object(m) || json_is_array(m)) return false;
    json_array_foreach(v, i, m) if (json_is_object(m) || json_is_string(m)) return false;
    return true;
}

static int put_text(FILE *f, const char *key, json_t *v, int depth)
{
    const char *k;
    json_t *m;
    size_t i;
    bool first = true;
    int r = 0;
    if (depth) (void) fprintf(f, "%*s", 2 * depth, "");
    if (key) (void) fprintf(f, "\"%s\": ", key);
    if (one_line(v)) return json_dumpf(v, f, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    (void) fputs(json_is_object(v) ? "{" : "[", f);
    json_object_foreach(v, k, m)
    {
        (void) fputs(first ? "\n" : ",\n", f);
        r |= put_text(f, k, m, depth + 1);
        first = false;
    }
    json_array_foreach(v, i, m)
    {
        (void) fputs(first ? "\n" : ",\n", f);
        r |= put_text(f, NULL, m, depth + 1);
        first = false;
    }
    (void) fprintf(f, "\n%*s%s", 2 * depth, "", json_is_object(v) ? "}" : "]");
    return r;
}

/* NULL: no memory. */
static char *layout(json_t *root)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f) return NULL;
    int r = put_text(f, NULL, root, 0);
    r |= ferror(f);
    if (fclose(f) == 0 && !r) return text;
    free(text);
    return NULL;
}

int ps_out_text(struct ps_profile_out *o, char **ret, struct ps_detail *dt)
{
    ps_auto_free struct ps_profile *p = ps_calloc(1, sizeof *p);
    const uint64_t before = ps_json_failures();
    char *text = p && !o->err ? layout(o->root) : NULL;
    if (ps_json_failures() != before) free(PS_TAKE(text));
    int r = text ? ps_profile_parse(text, strlen(text), "the measured profile", p, dt)
                 : ps_fail(dt, -ENOMEM, "out of memory for the profile");
    if (r < 0)
        free(text);
    else
        *ret = text;
    return r;
}
