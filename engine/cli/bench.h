/* SPDX-License-Identifier: Apache-2.0 */
/* bench: rows, each a way to run a job of requests that are all alike, run in turn and told side by side.
 *
 *   bench_options.c  options to rows
 *   bench_suite.c    a suite's file to rows
 *   bench_model.c    the model: packed, of random weights, or (to simulate) its layout alone
 *   bench_run.c      plans a row and runs it
 *   bench_project.c  a long run from some of its sweeps
 *   bench_limit.c    what limited a run, and how close it came
 *   bench_table.c    for people; bench_write.c for programs
 */
#ifndef PS_BENCH_H
#define PS_BENCH_H
#include "engine/cli/generate.h"
#include "offload/machine.h"
#include "offload/profile.h"

enum { PS_BENCH_ROWS_MAX = 1000, PS_BENCH_REPEATS_MAX = 100 };

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
    uint32_t prompt, gen;
    uint64_t requests;  /* 0: enough to fill the block twice; set when planned */
    const json_t *spec; /* of a suite: its row */

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
    char *suite_model;
    struct ps_bench_row *rows;
    size_t n_rows;

    struct ps_packed *packed;
    char *packed_folder; /* NULL: the model was packed already */
    bool dummy;
    char *made;                 /* folder of random weights that were made, to be removed */
    struct ps_profile *profile; /* of `hardware` */
    struct ps_machine machine;  /* this one */
    char gpu[128];              /* the one that rows were run on; "" = none was */
    struct ps_bench_probed {
        bool is;
        struct ps_rates rates;
    } probed[2]; /* without a GPU, and beside one */
};

/* Ends the process with 2 (and a message) for what it cannot read. */
void ps_bench_parse(int argc, char **argv, struct ps_bench *ret);
/* A new row, a copy of *from. NULL: out of memory, or too many. */
struct ps_bench_row *ps_bench_add(struct ps_bench *b, const struct ps_bench_row *from);
/* Reads the suite: rows, each what `base` is but for what it says itself; refuses what is wrong with it by file and field. */
int ps_bench_suite(struct ps_bench *b, const struct ps_bench_row *base,
                   struct ps_detail *dt) ps_must_check;

int ps_bench_open_model(struct ps_bench *b, struct ps_detail *dt) ps_must_check;
void ps_bench_close_model(struct ps_bench *b);

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
/* The row that this one is compared with: the first of the same lengths. */
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
