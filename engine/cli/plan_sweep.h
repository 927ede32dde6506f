/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep: the best plan at each point of a grid of options and fields of the profile. */
#ifndef PS_PLAN_SWEEP_H
#define PS_PLAN_SWEEP_H
#include "engine/cli/plan_args.h"

enum { PS_SWEEP_POINTS_MAX = 100000 };

/* NAME=a:b:+s, NAME=a:b:xf, NAME=v,v,v, or NAME=v;v;v for values with commas in them. */
struct ps_axis {
    char *name;
    char **values;
    size_t n;
};
/* -PS_EUSAGE with what was expected. Released with ps_axis_done(), also after an error. */
int ps_axis_parse(const char *text, struct ps_axis *ret, struct ps_detail *dt) ps_must_check;
void ps_axis_done(struct ps_axis *a);

/* A point that was planned: its figures, or why there are none. */
struct ps_sweep_row {
    bool planned;
    struct ps_figures figures;
    char *reason;
};
struct ps_sweep {
    struct ps_axis axis[PS_SWEEPS_MAX];
    unsigned n_axes;
    size_t n_rows;
    struct ps_sweep_row *rows; /* [n_rows], the last axis running fastest */
};
/* The value of an axis at a row. */
char *ps_sweep_value(const struct ps_sweep *s, unsigned axis, size_t row);
/* The table, as a text that the caller frees. */
int ps_sweep_text(const struct ps_sweep *s, bool json, const char *model, const char *command,
                  char **ret) ps_must_check;

/* --sweep: all of it. `p` is not complete yet. */
int ps_plan_sweep(const struct ps_plan_args *a, const struct ps_point *p, const struct ps_packed *m,
                  struct ps_detail *dt) ps_must_check;
#endif
