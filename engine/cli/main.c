/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_cpu.h"
#include "engine/cli/cli.h"
#include "ps_config.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "convert", "pack a Hugging Face model folder for streaming", ps_cmd_convert },
    { "generate", "run a file of prompts through a model", ps_cmd_generate },
    { "plan", "how fast a job would run on a machine, and what limits it", ps_cmd_plan },
    { "bench", "how fast requests of given lengths run, ways to run them side by side",
      ps_cmd_bench },
    { "inspect", "what a model folder, or a results file, holds", ps_cmd_inspect },
    { "tokenize", "a text file to token ids, and back", ps_cmd_tokenize },
    { "doctor", "what this machine allows, and what to do about it", ps_cmd_doctor },
    { "probe", "measure this machine: a hardware profile for planning", ps_cmd_probe },
};

static void help(FILE *out)
{
    (void) fputs("Usage: penstock COMMAND [ARGUMENT...]\n\nGenerates text with models that do not "
                 "fit into memory, for very many prompts at once.\n\n"
                 "Commands:\n",
                 out);
    for (size_t i = 0; i < PS_ARRAY_LEN(commands); i++)
        (void) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    (void) fputs("\npenstock help COMMAND (or COMMAND --help) tells a command's options. Exit "
                 "status: 0 ok, 1 "
                 "failed, 2 wrong usage, 3 done but some requests "
                 "failed,\n4 refused because it does not fit, 130 stopped by a signal (what was "
                 "finished is kept).\n",
                 out);
}

/* Lowers the instruction sets in use, for tests: a mask of enum ps_cpu_flags. */
static void cpu_mask(void)
{
    const char *mask = getenv("PS_CPU_MASK");
    char *end;
    if (!mask || !*mask) return;
    unsigned long v = strtoul(mask, &end, 0);
    if (!*end) ps_cpu_set_mask((uint32_t) v);
}

/* Files that are opened later must not take the place of closed standard streams, or messages would be written into them. What
 * takes their place fails when it is used, as a closed one does. */
static void fill_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            _exit(PS_EXIT_FAILED);
}

/* At every exit, argp's own after --help too. */
static void check_stdout(int rc, void *unused)
{
    const int e = fflush(stdout) ? errno : 0;
    if (!e && !ferror(stdout)) return;
    /* Of what failed before there is no errno any more. */
    ps_say("writing to stdout failed%s%s", e ? ": " : "; is its disk full?",
           e ? ps_err_str(e) : "");
    _exit(rc ? rc : PS_EXIT_FAILED);
}

/* -1: there is no such command. */
static int run(const char *name, int argc, char **argv)
{
    static char title[64];
    for (size_t i = 0; i < PS_ARRAY_LEN(commands); i++) {
        if (strcmp(name, commands[i].name) != 0) continue;
        (void) snprintf(title, sizeof title, "penstock %s", commands[i].name);
        argv[0] = title;
        return commands[i].run(argc, argv);
    }
    return -1;
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(name, *names) != 0) names++;
    return *names != NULL;
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    if (on_exit(check_stdout, NULL)) return PS_EXIT_FAILED;
    argp_err_exit_status = PS_EXIT_USAGE;
    cpu_mask();
    static const char *const asks[] = { "help", "--help", "-h", "-?", NULL };
    const char *name = argc > 1 ? argv[1] : "";
    bool asked = is_one_of(name, asks);
    int rc = -1;
    if (asked && argc > 2) { /* help COMMAND */
        static char option[] = "--help";
        name = argv[2];
        rc = run(name, 2, (char *[]) { NULL, option, NULL });
        asked = is_one_of(name, asks);
    } else if (argc > 1) {
        rc = run(name, argc - 1, argv + 1);
    }
    if (rc >= 0) return rc;
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        (void) printf("penstock %s\n", PS_VERSION);
        return PS_EXIT_OK;
    }
    if (*name && !asked) ps_say("\"%s\" is no command", name);
    help(asked ? stdout : stderr);
    return asked ? PS_EXIT_OK : PS_EXIT_USAGE;
}
