/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/base/ps_json.h"
#include "engine/cli/bench.h"
#include <stdio.h>
#include <string.h>

static int check_place(const struct ps_bench *b, const char *option, const char *path,
                       struct ps_detail *dt)
{
    const char *inputs[2 + PS_BENCH_MODELS_MAX + PS_BENCH_ROWS_MAX];
    size_t n = 0;
    if (!path) return 0;
    inputs[n++] = b->suite_path;
    inputs[n++] = b->hardware;
    for (size_t i = 0; i < b->n_models; i++) inputs[n++] = b->models[i]->path;
    for (size_t i = 0; i < b->n_rows; i++) inputs[n++] = b->rows[i].job;
    return ps_output_check(option, path, inputs, n, dt);
}

/* Better now than when all is measured. */
static int check_places(const struct ps_bench *b, struct ps_detail *dt)
{
    int r = check_place(b, "-o", b->output, dt);
    if (!r) r = check_place(b, "--log", b->log, dt);
    if (!r && b->output && b->log &&
        (!strcmp(b->output, b->log) || ps_same_file(b->output, b->log)))
        r = ps_fail(dt, -PS_EUSAGE, "-o and --log are the same file");
    return r;
}

/* What would be known only when models were made and rows run. */
static int check_rows(const struct ps_bench *b, struct ps_detail *dt)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        const struct ps_bench_row *row = &b->rows[i];
        if (b->project && ps_bench_mixed(row))
            return ps_fail(dt, -PS_EUSAGE, "--project: %s: its requests are not all alike",
                           row->name);
        if (row->job && !ps_is_regular(row->job))
            return ps_fail(dt, -ENOENT, "%s: job %s: a regular file of requests was expected",
                           row->name, row->job);
    }
    return 0;
}

static void tell(const struct ps_bench *b, const struct ps_bench_row *row, unsigned round)
{
    char prompt[PS_BENCH_LEN_TEXT], gen[PS_BENCH_LEN_TEXT];
    if (b->profile && !row->err) return;
    if (row->err)
        ps_say("%s: %s", row->name, row->dt.text);
    else if (row->run[row->n_runs - 1].complete)
        ps_say("%s, %s + %s tokens, round %u of %u: %.2f tokens/s", row->name,
               ps_bench_len_text(row->prompt, prompt), ps_bench_len_text(row->gen, gen), round + 1,
               b->repeats, ps_bench_rates(&row->run[row->n_runs - 1]).total);
}

/* In turn, so that a slow minute hits all alike. 1: a signal came. */
static int rounds(struct ps_bench *b)
{
    for (unsigned i = 0; i < b->repeats; i++)
        for (size_t k = 0; k < b->n_rows; k++) {
            struct ps_bench_row *row = &b->rows[k];
            if (row->err) continue;
            int r = *ps_signals_count() ? 1 : ps_bench_measure(b, row);
            if (r) return r;
            tell(b, row, i);
        }
    return 0;
}

/* One row's failure is the command's; of several, those that worked count. */
static int exit_code(const struct ps_bench *b)
{
    int first = 0;
    size_t failed = 0;
    for (size_t i = 0; i < b->n_rows; i++) {
        if (!b->rows[i].err) continue;
        failed++;
        if (!first) first = b->rows[i].err;
    }
    if (!failed) return PS_EXIT_OK;
    if (failed < b->n_rows) return PS_EXIT_SOME_FAILED;
    if (b->n_rows == 1 && b->rows[0].text) (void) fputs(b->rows[0].text, stderr);
    return first == -PS_EUSAGE                         ? PS_EXIT_USAGE
           : first == -PS_EBUDGET || first == -PS_EPIN ? PS_EXIT_DOES_NOT_FIT
                                                       : PS_EXIT_FAILED;
}

static bool any_run(const struct ps_bench *b)
{
    size_t i = 0;
    while (i < b->n_rows && !b->rows[i].n_runs) i++;
    return i < b->n_rows;
}

static int bench(struct ps_bench *b)
{
    struct ps_detail dt = { "" };
    int r = check_places(b, &dt);
    if (!r) r = check_rows(b, &dt);
    if (!r) r = ps_bench_open_models(b, &dt);
    if (r < 0) return ps_say_error(r, &dt);
    const bool stopped = rounds(b) > 0;
    if (stopped && !any_run(b)) return ps_say_error(-ECANCELED, &dt);
    r = ps_bench_table(b);
    if (!r) r = ps_bench_write(b, !stopped, &dt);
    if (r < 0) return ps_say_error(r, &dt);
    if (!stopped) return exit_code(b);
    ps_say("interrupted; the rows that were done are told, and marked in -o");
    return PS_EXIT_SIGNAL;
}

int ps_cmd_bench(int argc, char **argv)
{
    struct ps_bench b;
    (void) ps_json_failures(); /* puts its allocator in place */
    ps_bench_parse(argc, argv, &b);
    ps_signals_catch();
    ps_machine_read("", &b.machine);
    int rc = bench(&b);
    for (size_t i = 0; i < b.n_rows; i++) ps_bench_row_done(&b.rows[i]);
    free(b.rows);
    ps_bench_close_models(&b);
    json_decref(b.suite);
    return rc;
}
