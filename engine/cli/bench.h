/* SPDX-License-Identifier: Apache-2.0 */
/* bench: rows, each a way to run a job of which only the lengths count, run in turn and told side by side.
 *
 *   bench_options.c  options to rows
 *   bench_suite.c    a suite's file to rows
 *   bench_model.c    models: packed, of random weights, or (to simulate) their layout alone
 *   bench_lengths.c  a row's requests
 *   bench_plan.c     plans a row; bench_run.c runs it
 *   bench_project.c  a long run from some of its sweeps
 *   bench_limit.c    what limited a run, and how close it came
 *   bench_table.c    for people; bench_write.c for programs
 */
#ifndef PS_BENCH_H
#define PS_BENCH_H
#include "engine/cli/generate.h"
#include "engine/cli/plan.h"
#include "offload/machine.h"
#include "offload/profile.h"

enum { PS_BENCH_ROWS_MAX = 1000, PS_BENCH_REPEATS_MAX = 100, PS_BENCH_MODELS_MAX = 16 };

/* A packed folder, a Hugging Face folder, or a configuration, of which random weights are made. */
struct ps_bench_model {
    char *path;
    struct ps_packed *packed;
    char *packed_folder; /* NULL: it was packed already */
    bool random;
    char name[96]; /* of random weights: the configuration's */
    char *made;    /* folder of random weights that were made, to be removed */
    struct ps_bench_probed {
        bool is;
        struct ps_planning planning;
    } probed[2]; /* this machine, without a GPU, and beside one */
};

/* Tokens: as many for each request, or drawn from a range. */
struct ps_bench_len {
    uint32_t least, most;
};

struct ps_bench_run {
    bool complete; /* else a signal came */
    bool
        projected; /* from some of its sweeps; the times here and the tokens are those of the whole */
    double prefill_s, decode_s;
    uint64_t prompt_tokens, generated_tokens, requests;
    struct ps_run_stats st; /* of what was run */
    uint64_t hash;          /* of all tokens, whatever the order of the requests */
    uint64_t peak_host;     /* bytes; 0 = not known */
    char outside[160];      /* simulated: what was priced beyond what was probed; "" = nothing */
};

struct ps_bench_row {
    char name[96];
    struct ps_engine_args engine;
    struct ps_schedule how;
    struct ps_bench_model *model;
    struct ps_bench_len prompt, gen; /* found out when planned where a job says it */
    const char *job;                 /* a file whose requests' lengths are run; or NULL */
    char *own_job;                   /* the same, if the row owns it */
    uint64_t requests;         /* 0: a job's, or enough to fill the block twice; set when planned */
    const json_t *spec;        /* of a suite: its row */
    struct ps_lengths of_job;  /* that was read */
    struct ps_lengths lengths; /* of all requests; set when planned */

    struct ps_generate_args args; /* the machine's defaults filled in */
    struct ps_generate_model where;
    bool planned;
    struct ps_plan_req req;
    struct ps_plan plan;
    int err; /* it does not work, and why */
    struct ps_detail dt;
    char *text; /* of a plan that does not fit; may be NULL */
    struct ps_bench_run *run;
    unsigned n_runs;
};

struct ps_bench {
    const char *model, *suite_path, *hardware, *output, *log;
    unsigned repeats;
    uint32_t project; /* sweeps at each of three places; 0: whole runs */
    uint64_t seed;
    bool keep;
    const char *pack_dir;
    json_t *suite; /* NULL: rows from options */
    struct ps_bench_model *models[PS_BENCH_MODELS_MAX];
    size_t n_models;
    struct ps_bench_row *rows;
    size_t n_rows;

    struct ps_profile *profile; /* of `hardware` */
    bool to_probe;              /* before the first row is planned */
    struct ps_machine machine;  /* this one */
    char gpu[128];              /* the one that rows were run on; "" = none was */
};

/* Ends the process with 2 (and a message) for what it cannot read. */
void ps_bench_parse(int argc, char **argv, struct ps_bench *ret);
/* A new row, a copy of *from. NULL: out of memory, or too many. */
struct ps_bench_row *ps_bench_add(struct ps_bench *b, const struct ps_bench_row *from);
/* Reads the suite: rows, each what `base` is but for what it says itself; refuses what is wrong with it by file and field. */
int ps_bench_suite(struct ps_bench *b, const struct ps_bench_row *base,
                   struct ps_detail *dt) ps_must_check;

/* The one of that path, which is there afterwards. NULL: out of memory, or too many. */
struct ps_bench_model *ps_bench_model(struct ps_bench *b, const char *path);
/* All of them; makes random weights. */
int ps_bench_open_models(struct ps_bench *b, struct ps_detail *dt) ps_must_check;
void ps_bench_close_models(struct ps_bench *b);

/* "512", or "64-512". */
bool ps_bench_len_parse(const char *text, struct ps_bench_len *ret);
/* The other way round, into `room`. */
enum { PS_BENCH_LEN_TEXT = 24 };
const char *ps_bench_len_text(struct ps_bench_len l, char room[static PS_BENCH_LEN_TEXT]);
bool ps_bench_mixed(const struct ps_bench_row *row); /* its requests are not all alike */
/* Sets row->lengths to those of n requests (0: a job's own number) and *ret_stats to what they come to. */
int ps_bench_lengths(struct ps_bench *b, struct ps_bench_row *row, uint64_t n,
                     struct ps_job_stats *ret_stats, struct ps_detail *dt) ps_must_check;

/* bench_plan.c. Whether a run is long enough to leave some of it out. */
bool ps_bench_projects(const struct ps_bench *b, const struct ps_bench_row *row);
/* Everything but row->run. -ECANCELED: a signal came. */
int ps_bench_plan(struct ps_bench *b, struct ps_bench_row *row, struct ps_detail *dt) ps_must_check;
/* Anew, with what row->req says by now. */
int ps_bench_replan(struct ps_bench *b, struct ps_bench_row *row,
                    struct ps_detail *dt) ps_must_check;

/* Plans (once) and runs; 1: a signal came. Errors stay in the row. */
int ps_bench_measure(struct ps_bench *b, struct ps_bench_row *row);
void ps_bench_row_done(struct ps_bench_row *row);

/* bench_project.c: a block is filled; then its sequences make some tokens, skip to the middle, make some, skip to the end. */
struct ps_projection {
    uint32_t sweeps, gen, requests; /* sweeps at each place */
    int place;                      /* -1: it is not full yet */
    uint32_t skip;                  /* at the next token */
    uint32_t leader,
        full_at;         /* most tokens that a sequence has; that one had when the block was full */
    double at_s, fill_s; /* of decode_s: so far, and until the block was full */
    double sum_s[3], sum_at[3]; /* at each place: seconds, and the leader's tokens, of n sweeps */
    uint32_t n[3];
    uint64_t behind; /* tokens that the others lacked then */
};
/* After each sweep. True when all is measured. */
bool ps_project_sweep(struct ps_projection *p, const struct ps_run_stats *st);
/* The whole block's, into *ret. */
void ps_project(const struct ps_projection *p, struct ps_bench_run *ret);

/* Seconds that the run took to compute. */
double ps_bench_seconds(const struct ps_bench_run *r);
/* tokens/s. */
struct ps_bench_rates {
    double prefill, decode, total;
};
struct ps_bench_rates ps_bench_rates(const struct ps_bench_run *r);
/* Of one of them, by its offset, over the complete runs; NAN without any. */
struct ps_bench_spread {
    double median, least, most;
};
struct ps_bench_spread ps_bench_spread(const struct ps_bench_row *row, size_t offset);
/* The run in the middle by its total; NULL without any. */
const struct ps_bench_run *ps_bench_middle(const struct ps_bench_row *row);
/* The row that this one is compared with: the first of the same model and lengths. */
const struct ps_bench_row *ps_bench_first(const struct ps_bench *b, const struct ps_bench_row *row);

/* The link, or kind of work, that the run cannot be quicker than; NULL if no rate of any is known. */
struct ps_bench_limit {
    const char *link;
    double floor_s;
};
struct ps_bench_limit ps_bench_limit(const struct ps_bench_row *row, const struct ps_bench_run *r);

/* Of the time that what was run took; NAN if it is not known. */
double ps_bench_share(struct ps_bench_limit limit, const struct ps_bench_run *r);

int ps_bench_table(const struct ps_bench *b) ps_must_check;
/* The files of -o and --log, each written beside and renamed. */
int ps_bench_write(const struct ps_bench *b, bool complete, struct ps_detail *dt) ps_must_check;
#endif
