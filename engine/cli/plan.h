/* SPDX-License-Identifier: Apache-2.0 */
/* penstock plan, in parts: what to plan for (plan_point.c), its figures in a table or as JSON (plan_figures.c, plan_text.c), and many
 * points at once (plan_sweep.c). */
#ifndef PS_CLI_PLAN_H
#define PS_CLI_PLAN_H
#include "engine/cli/engine_options.h"
#include "engine/job/request.h"
#include "engine/search/more.h"

/* What is planned for: a job on a machine under some options. Each of a sweep's points has one of its own. */
struct ps_point {
    struct ps_engine_args engine;
    struct ps_profile profile;
    bool to_probe; /* the profile is still to be made, by ps_point_probe() */
    /* Of a job that is described: */
    uint32_t prompt_len, gen_len;
    uint64_t requests;
    /* Of one that was read (n > 0), not owned: */
    struct ps_job_stats stats;
    struct ps_lengths lengths;
};
/* A profile's file, or "this": what was probed of this machine. *ret_to_probe: it was not; then *ret is as it was. */
int ps_plan_hardware(const char *hardware, struct ps_profile *ret, bool *ret_to_probe,
                     struct ps_detail *dt) ps_must_check;
/* The quick probe that stands for it, in 15 seconds. */
int ps_plan_probe(const struct ps_engine_args *e, struct ps_profile *ret,
                  struct ps_detail *dt) ps_must_check;
/* A sweep's value: -PS_EUSAGE if this machine was not probed. */
int ps_hardware_read(const char *name, struct ps_profile *ret, struct ps_detail *dt) ps_must_check;
/* What a plan needs of a model: a packed one, or, from a config (or a Hugging Face folder's), what it would be if it were packed, without a file
 * behind it. dtype: of its weights, or -1: the config's. */
int ps_model_outline(const char *model, int dtype, struct ps_packed **ret,
                     struct ps_detail *dt) ps_must_check;
/* A file of requests, as generate takes them. */
struct ps_job_file {
    const char *path;
    bool text;
    uint64_t limit;            /* requests at most */
    struct ps_params defaults; /* of lines that do not say */
};
/* How long its requests are; without tokenizer files beside MODEL only prompts of token ids count. What is in error is told and left out.
 * The caller releases *ret by ps_lengths_done(). */
int ps_job_file_read(const struct ps_job_file *f, const char *model, const struct ps_packed *m,
                     struct ps_job_stats *ret_stats, struct ps_lengths *ret,
                     struct ps_detail *dt) ps_must_check;
/* A job of n requests that are all alike. */
void ps_job_alike(uint64_t n, uint32_t prompt, uint32_t gen, struct ps_job_stats *ret_stats,
                  struct ps_lengths *ret);
/* Sets an option of plan or a field of the profile by its name: 0, -PS_EUSAGE with what was expected, -ENOENT if there is none of that name. */
int ps_point_set(struct ps_point *p, const char *name, char *value,
                 struct ps_detail *dt) ps_must_check;
/* How much there is of what such a name means, if more of it is better: memory, disk space, a rate; false: it is something else. */
bool ps_point_amount(const struct ps_point *p, const char *name, double *ret);
/* Whether the job fits the model, and what was asked for this machine if it is to be probed: sets lengths. */
int ps_point_check(struct ps_point *p, const struct ps_packed *m,
                   struct ps_detail *dt) ps_must_check;
/* Makes the profile if that is still to be done. */
int ps_point_probe(struct ps_point *p, struct ps_detail *dt) ps_must_check;
/* Defaults that follow from the rest, and whether it can be: afterwards engine.plan is complete, and lengths are set. */
int ps_point_complete(struct ps_point *p, const struct ps_packed *m,
                      struct ps_detail *dt) ps_must_check;

/* The figures of a plan: one table of them makes text, JSON and CSV. */
enum ps_figure_kind { PS_FIG_COUNT, PS_FIG_SECONDS, PS_FIG_RATE, PS_FIG_BYTES, PS_FIG_PERCENT };
struct ps_figure {
    const char *key, *label; /* label NULL: not for the table */
    enum ps_figure_kind kind;
};
enum { PS_FIGURES_MAX = 64 };
struct ps_figures {
    double v[PS_FIGURES_MAX]; /* NAN: not known, or there is none */
    const char *limit;        /* what is busiest */
    double limit_busy;        /* percent of the time */
};
const struct ps_figure *ps_figure_at(size_t i); /* NULL past the end */
/* All of them into a JSON object, null where one is not known. -1: no memory. */
int ps_figures_put(const struct ps_figures *f, json_t *to) ps_must_check;
void ps_figures_of(const struct ps_plan_req *q, const struct ps_profile *p,
                   const struct ps_planned *x, struct ps_figures *ret);

/* The options of shape and placement that ask for a plan, as one line; the caller frees it. NULL: no memory. With the same job, ceilings and other
 * options they bring that shape and placement; what no option says (rows at a time, an attention that is partly the host's) is chosen anew. */
char *ps_plan_options(const struct ps_plan *p) ps_must_check;

/* A column for each of n plans. */
void ps_figures_print(const struct ps_figures *f, unsigned n);
/* What a plan of total_s seconds that generates so many tokens would gain by a little more. */
void ps_more_print(const struct ps_more *more, double total_s, double tokens);

/* What plan prints; *more may be NULL. */
struct ps_plan_answer {
    const struct ps_packed *model;
    const struct ps_point *point;
    const struct ps_planned *plans;
    unsigned n;
    const struct ps_more *more;
};
int ps_plan_print(const struct ps_plan_answer *a) ps_must_check;
int ps_plan_print_json(const struct ps_plan_answer *a) ps_must_check;
#endif
