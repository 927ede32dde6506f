/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/cli/cli.h"
#include "engine/job/first_pass.h"
#include <stdio.h>
#include <string.h>

/* A progress line on a terminal, without its end. Under the lock of stderr: a ticker tells from its own thread. */
static bool line_open;

void ps_progress_end(void)
{
    flockfile(stderr);
    if (line_open) (void) fputs("\r\x1b[K", stderr);
    line_open = false;
    funlockfile(stderr);
}

void ps_progress_line(const char *text)
{
    flockfile(stderr);
    line_open = true;
    (void) fprintf(stderr, "\r\x1b[K%s", text);
    (void) fflush(stderr);
    funlockfile(stderr);
}

void ps_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    flockfile(stderr);
    ps_progress_end();
    (void) fputs("penstock: ", stderr);
    (void) vfprintf(stderr, fmt, ap);
    (void) fputc('\n', stderr);
    funlockfile(stderr);
    va_end(ap);
}

int ps_output_check(const char *option, const char *output, const char *const *inputs, size_t n,
                    struct ps_detail *dt)
{
    int r = strcmp(output, "-") != 0 ? ps_file_replaceable(output, dt)
                                     : ps_fail(dt, -PS_EUSAGE,
                                               "- is not stdout here: what is written is renamed "
                                               "into place, which needs a file's name");
    for (size_t i = 0; !r && i < n; i++)
        if (inputs[i] && ps_same_file(output, inputs[i]))
            r = ps_fail(dt, -PS_EUSAGE, "%s is read, too; give another name", output);
    return r < 0 ? ps_fail_in(dt, r, "%s", option) : 0;
}

int ps_print_json(json_t *report)
{
    int r = report && json_dumpf(report, stdout, JSON_INDENT(1)) == 0 ? 0 : -ENOMEM;
    if (r < 0 && report && ferror(stdout)) r = -EIO;
    if (!r && putchar('\n') == EOF) r = -EIO;
    json_decref(report);
    return r;
}

static error_t parse_h(int key, char *arg, struct argp_state *st)
{
    (void) arg;
    if (key != 'h') return ARGP_ERR_UNKNOWN;
    argp_state_help(st, st->out_stream, ARGP_HELP_STD_HELP);
    return 0;
}

void ps_opt_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    static const struct argp_option h[] = { { NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0 }, { 0 } };
    static const struct argp argp_h = { .options = h, .parser = parse_h };
    const struct argp_child both[] = { { .argp = argp }, { .argp = &argp_h }, { 0 } };
    const int e = argp_parse(&(struct argp) { .children = both }, argc, argv, 0, NULL, input);
    if (!e) return;
    ps_say("options: %s", ps_err_str(e));
    exit(PS_EXIT_FAILED);
}

void ps_opt_two(struct argp_state *st, char *arg, const char *names, const char **first,
                const char **second)
{
    if (st->arg_num > 1) argp_error(st, "%s: only %s are expected", arg, names);
    *(st->arg_num ? second : first) = arg;
}

void ps_say_warning(void *ud, const char *text) { ps_say("warning: %s", text); }

int ps_say_error(int err, const struct ps_detail *dt)
{
    if (err == -ECANCELED) {
        ps_say("stopped by a signal");
        return PS_EXIT_SIGNAL;
    }
    if (dt->text[0])
        ps_say("%s", dt->text);
    else
        ps_say("%s", ps_err_str(err));
    if (err == -PS_EUSAGE) return PS_EXIT_USAGE;
    return err == -PS_EBUDGET || err == -PS_EPIN ? PS_EXIT_DOES_NOT_FIT : PS_EXIT_FAILED;
}

static volatile sig_atomic_t signals;

static void on_signal(int sig)
{
    (void) sig;
    if (++signals > 1) _exit(PS_EXIT_SIGNAL);
}

void ps_signals_catch(void)
{
    struct sigaction sa = { .sa_handler =
                                on_signal }; /* no SA_RESTART: a read from a pipe ends too */
    (void) sigemptyset(&sa.sa_mask);
    (void) sigaction(SIGINT, &sa, NULL);
    (void) sigaction(SIGTERM, &sa, NULL);
    (void) signal(SIGPIPE, SIG_IGN);
    (void) signal(SIGXFSZ, SIG_IGN); /* a file-size limit is a write error like any other */
}
const volatile sig_atomic_t *ps_signals_count(void) { return &signals; }

static void on_bytes(void *ud, uint64_t done, uint64_t total)
{
    static double last;
    double now = ps_job_now_s();
    if (!isatty(STDERR_FILENO) || now - last < 0.2 || !total) return;
    last = now;
    char text[64];
    (void) snprintf(text, sizeof text, "packing: %.0f %% of %.2f GB",
                    100 * (double) done / (double) total, (double) total / 1e9);
    ps_progress_line(text);
}

void ps_convert_ui(struct ps_convert_opt *opt, bool quiet)
{
    if (!quiet) opt->progress = on_bytes;
    opt->warn = ps_say_warning;
    opt->stop = &signals;
}
