/* SPDX-License-Identifier: Apache-2.0 */
/* Which points of a sweep have no less of anything than others: memory, disk space, rates. */
#include "engine/base/ps_mem.h"
#include "engine/cli/plan_sweep.h"
#include <string.h>

/* A value, or a row, and what it is sorted by. */
struct place {
    size_t at;
    double by;
};

static int compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->by != y->by) return x->by < y->by ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

int ps_axis_order(struct ps_axis *a, const double *amounts)
{
    ps_auto_free struct place *v = ps_calloc(a->n, sizeof *v);
    a->order = ps_calloc(a->n, sizeof *a->order);
    if (!v || !a->order) return -ENOMEM;
    for (size_t i = 0; i < a->n; i++) v[i] = (struct place) { i, amounts[i] };
    qsort(v, a->n, sizeof *v, compare);
    struct ps_in_order now = { 0, SIZE_MAX };
    for (size_t i = 0; i < a->n; i++) {
        if (i && v[i].by > v[i - 1].by) now = (struct ps_in_order) { now.rank + 1, v[i - 1].at };
        a->order[v[i].at] = now;
    }
    return 0;
}

/* *ret_step: rows from a value of the axis to the next. */
static size_t value_at(const struct ps_sweep *s, unsigned axis, size_t row, size_t *ret_step)
{
    *ret_step = 1;
    for (unsigned i = s->n_axes; --i > axis;) *ret_step *= s->axis[i].n;
    return row / *ret_step % s->axis[axis].n;
}

size_t ps_sweep_less(const struct ps_sweep *s, unsigned axis, size_t row)
{
    const struct ps_axis *a = &s->axis[axis];
    size_t step;
    const size_t i = value_at(s, axis, row, &step), less = a->order ? a->order[i].less : SIZE_MAX;
    return less == SIZE_MAX ? SIZE_MAX : row - i * step + less * step;
}

size_t ps_sweep_rank(const struct ps_sweep *s, size_t row)
{
    size_t sum = 0, step;
    for (unsigned a = 0; a < s->n_axes; a++)
        if (s->axis[a].order) sum += s->axis[a].order[value_at(s, a, row, &step)].rank;
    return sum;
}

int ps_sweep_ranked(const struct ps_sweep *s, size_t **ret)
{
    ps_auto_free struct place *v = ps_calloc(s->n_rows, sizeof *v);
    size_t *rows = ps_calloc(s->n_rows, sizeof *rows);
    if (!v || !rows) {
        free(rows);
        return -ENOMEM;
    }
    for (size_t i = 0; i < s->n_rows; i++)
        v[i] = (struct place) { i, (double) ps_sweep_rank(s, i) };
    qsort(v, s->n_rows, sizeof *v, compare);
    for (size_t i = 0; i < s->n_rows; i++) rows[i] = v[i].at;
    *ret = rows;
    return 0;
}
