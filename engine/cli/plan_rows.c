/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep's table, as CSV or JSON: the axes, the figures of the best plan, and why there is none where none fits. */
#include "engine/base/ps_json.h"
#include "engine/cli/plan_sweep.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

char *ps_sweep_value(const struct ps_sweep *s, unsigned axis, size_t row)
{
    for (unsigned i = s->n_axes; --i > axis;) row /= s->axis[i].n;
    return s->axis[axis].values[row % s->axis[axis].n];
}

/* A figure that is an axis stands there, as it was asked for. */
static bool is_axis(const struct ps_sweep *s, const char *key)
{
    for (unsigned a = 0; a < s->n_axes; a++)
        if (!strcmp(s->axis[a].name, key)) return true;
    return false;
}

/* As RFC 4180 has it. */
static void quoted(FILE *f, const char *t)
{
    if (!strpbrk(t, ",\"\n\r")) {
        (void) fputs(t, f);
        return;
    }
    (void) fputc('"', f);
    for (; *t; t++) {
        if (*t == '"') (void) fputc('"', f);
        (void) fputc(*t, f);
    }
    (void) fputc('"', f);
}

static void csv_row(FILE *f, const struct ps_sweep *s, size_t i)
{
    const struct ps_sweep_row *row = &s->rows[i];
    for (unsigned a = 0; a < s->n_axes; a++) {
        quoted(f, ps_sweep_value(s, a, i));
        (void) fputc(',', f);
    }
    for (size_t k = 0; ps_figure_at(k); k++) {
        if (is_axis(s, ps_figure_at(k)->key)) continue;
        if (row->planned && !isnan(row->figures.v[k])) (void) fprintf(f, "%.9g", row->figures.v[k]);
        (void) fputc(',', f);
    }
    if (row->planned)
        (void) fprintf(f, "%s,%.9g,", row->figures.limit, row->figures.limit_busy);
    else
        (void) fputs(",,", f);
    if (row->reason) quoted(f, row->reason);
    (void) fputc('\n', f);
}

static int csv(const struct ps_sweep *s, char **ret)
{
    size_t len;
    char *text = NULL;
    FILE *f = open_memstream(&text, &len);
    if (!f) return -ENOMEM;
    for (unsigned a = 0; a < s->n_axes; a++) (void) fprintf(f, "%s,", s->axis[a].name);
    for (size_t k = 0; ps_figure_at(k); k++)
        if (!is_axis(s, ps_figure_at(k)->key)) (void) fprintf(f, "%s,", ps_figure_at(k)->key);
    (void) fputs("limit,limit_busy,reason\n", f);
    for (size_t i = 0; i < s->n_rows; i++) csv_row(f, s, i);
    if (fclose(f)) {
        free(text);
        return -ENOMEM;
    }
    *ret = text;
    return 0;
}

static int put_axes(const struct ps_sweep *s, size_t i, json_t *j)
{
    int r = 0;
    for (unsigned a = 0; !r && a < s->n_axes; a++)
        r = json_object_set_new(j, s->axis[a].name, json_string(ps_sweep_value(s, a, i)));
    return r;
}

static json_t *json_row(const struct ps_sweep *s, size_t i)
{
    json_t *j = json_object();
    int r = j ? put_axes(s, i, j) : -1;
    if (!r && s->rows[i].planned) r = ps_figures_put(&s->rows[i].figures, j);
    if (!r) r = put_axes(s, i, j); /* in their place, if a figure had one's name */
    if (!r)
        r = json_object_set_new(j, "reason",
                                s->rows[i].reason ? json_string(s->rows[i].reason) : json_null());
    if (!r) return j;
    json_decref(j);
    return NULL;
}

static int json(const struct ps_sweep *s, const char *model, const char *command, char **ret)
{
    const uint64_t failed = ps_json_failures();
    json_t *points = json_array(), *top = NULL;
    int r = points ? 0 : -1;
    for (size_t i = 0; !r && i < s->n_rows; i++) r = json_array_append_new(points, json_row(s, i));
    if (!r)
        top = json_pack("{s:o, s:o, s:o}", "model", ps_json_text(model), "command",
                        ps_json_text(command), "points", points);
    else
        json_decref(points);
    char *text = top && ps_json_failures() == failed ? json_dumps(top, JSON_INDENT(1)) : NULL;
    json_decref(top);
    *ret = text;
    return text ? 0 : -ENOMEM;
}

int ps_sweep_text(const struct ps_sweep *s, bool as_json, const char *model, const char *command,
                  char **ret)
{
    return as_json ? json(s, model, command, ret) : csv(s, ret);
}
