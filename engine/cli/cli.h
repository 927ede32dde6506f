/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share: exit codes, messages, values of options, signals. A command is a function of its own arguments (argv[0] is "penstock
 * NAME") that returns the exit code. This layer alone prints. */
#ifndef PS_CLI_H
#define PS_CLI_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include "engine/checkpoint/pack.h"
#include "engine/plan/plan.h"
#include <argp.h>
#include <jansson.h>
#include <signal.h>

enum ps_exit {
    PS_EXIT_OK = 0,
    PS_EXIT_FAILED = 1,
    PS_EXIT_USAGE = 2,
    PS_EXIT_SOME_FAILED = 3,
    PS_EXIT_DOES_NOT_FIT = 4,
    PS_EXIT_SIGNAL = 130,
};

int ps_cmd_bench(int argc, char **argv);
int ps_cmd_convert(int argc, char **argv);
int ps_cmd_generate(int argc, char **argv);
int ps_cmd_plan(int argc, char **argv);
int ps_cmd_inspect(int argc, char **argv);
int ps_cmd_tokenize(int argc, char **argv);
int ps_cmd_doctor(int argc, char **argv);
int ps_cmd_probe(int argc, char **argv);

/* "penstock: ..." on stderr. */
void ps_say(const char *fmt, ...) ps_printf_(1, 2);
void ps_say_warning(void *ud, const char *text);
/* Tells an error and gives its exit code. */
int ps_say_error(int err, const struct ps_detail *dt);

/* What a file is that is not what was expected, in words that follow "is"; NULL: no kind that is known. */
const char *ps_what_is(const char *path);
/* -PS_EUSAGE for a command's two arguments, a folder and a file, that were given in the other order. */
int ps_check_swapped(const char *folder_is, const char *folder, const char *file_is,
                     const char *file, struct ps_detail *dt) ps_must_check;

/* A file that is written in the end, looked at before the work: it can be, and is none of the `n` that are read (NULLs are none). */
int ps_output_check(const char *option, const char *output, const char *const *inputs, size_t n,
                    struct ps_detail *dt) ps_must_check;

/* Prints a report's tree (NULL: there was no memory for it) and a line end, and gives it up. */
int ps_print_json(json_t *report) ps_must_check;

/* argp_parse(), with -h as --help. As it ends the process on wrong usage, so does this where there is no memory for it. */
void ps_opt_parse(const struct argp *argp, int argc, char **argv, void *input);
/* The next of a command's two arguments; a third is wrong usage. `names`: "SRC and DST". */
void ps_opt_two(struct argp_state *st, char *arg, const char *names, const char **first,
                const char **second);
/* Values of options; each leaves *ret alone and returns false for what it cannot read. */
bool ps_opt_size(const char *s, uint64_t *ret); /* 512M, 8G, 1.5G, bytes */
bool ps_opt_u64(const char *s, uint64_t max, uint64_t *ret);
bool ps_opt_u32(const char *s, uint32_t min, uint32_t *ret);
bool ps_opt_double(const char *s, double *ret);
bool ps_opt_percent(const char *s, double *ret);          /* 20% */
bool ps_opt_shares(const char *s, struct ps_shares *ret); /* auto, gpu:20,host:50,disk:30 */
bool ps_opt_six(const char *s, struct ps_shares *w, struct ps_shares *kv, struct ps_shares *hidden);

/* Which of the words (up to NULL) it is; else an error, and "a or b or c" in expected, whose words are short enough. */
int ps_opt_choice(const char *s, const char *const *words, char expected[static 128]) ps_must_check;

/* SIGINT and SIGTERM set *ps_signals_count(); the second ends the process with 130 at once. */
void ps_signals_catch(void);
const volatile sig_atomic_t *ps_signals_count(void);

/* Progress of reading and writing bytes, for convert and packing. ps_convert_opt with its callbacks and stop flag. */
void ps_convert_ui(struct ps_convert_opt *opt, bool quiet);
/* Writes over the progress line on a terminal. */
void ps_progress_line(const char *text);
/* Ends a line that progress may have left open on a terminal. */
void ps_progress_end(void);
#endif
