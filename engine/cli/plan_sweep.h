/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep: the best plan at each point of a grid of options and fields of the profile. */
#ifndef PS_PLAN_SWEEP_H
#define PS_PLAN_SWEEP_H
#include "engine/cli/plan_args.h"
#include "engine/plan/layout.h"

enum { PS_SWEEP_POINTS_MAX = 100000 };

/* NAME=a:b:+s, NAME=a:b:xf, NAME=v,v,v, or NAME=v;v;v for values with commas in them. */
struct ps_axis {
    char *name;
    char **values;
    size_t n;
    /* [n] where more is better, else NULL: */
    struct ps_in_order {
        size_t rank; /* how many lesser values there are */
        size_t less; /* the next lesser one, or SIZE_MAX */
    } * order;
};
/* -PS_EUSAGE with what was expected. Released with ps_axis_done(), also after an error. */
int ps_axis_parse(const char *text, struct ps_axis *ret, struct ps_detail *dt) ps_must_check;
void ps_axis_done(struct ps_axis *a);
/* Its values come to so much of something of which more is better. */
int ps_axis_order(struct ps_axis *a, const double *amounts) ps_must_check;

/* A point that was planned: its figures, or why there are none. */
struct ps_sweep_row {
    bool planned;
    struct ps_figures figures;
    char *reason;
    bool gpu; /* it has one */
    /* Of its plan; infinite where none was found that fits, 0 where none can be asked for. */
    double total_s;
    struct ps_candidate from; /* of its plan */
};
struct ps_sweep {
    struct ps_axis axis[PS_SWEEPS_MAX];
    unsigned n_axes;
    size_t n_rows;
    struct ps_sweep_row *rows; /* [n_rows], the last axis running fastest */
};
/* The value of an axis at a row. */
char *ps_sweep_value(const struct ps_sweep *s, unsigned axis, size_t row);
/* The row with the next lesser value of an axis, and else the same; SIZE_MAX: there is none. */
size_t ps_sweep_less(const struct ps_sweep *s, unsigned axis, size_t row);
/* How many such steps lead to a row, of all axes together. */
size_t ps_sweep_rank(const struct ps_sweep *s, size_t row);
/* All rows, by their ranks; the caller frees *ret. */
int ps_sweep_ranked(const struct ps_sweep *s, size_t **ret) ps_must_check;
/* Once those with less are settled: the plan of the faster of them where a row's own is slower, or none was found. -PS_EBUDGET: it does not fit there,
 * so that what was said to be less is not. */
int ps_sweep_settle(const struct ps_point *base, const struct ps_packed *m, struct ps_sweep *s,
                    size_t row, struct ps_detail *dt) ps_must_check;
/* The table, as a text that the caller frees. */
int ps_sweep_text(const struct ps_sweep *s, bool json, const char *model, const char *command,
                  char **ret) ps_must_check;

/* --sweep: all of it. `p` is not complete yet. */
int ps_plan_sweep(const struct ps_plan_args *a, struct ps_point *p, const struct ps_packed *m,
                  struct ps_detail *dt) ps_must_check;
#endif
