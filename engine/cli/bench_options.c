/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/cli/bench.h"
#include <stdio.h>
#include <string.h>

enum key {
    K_OUTPUT = 'o',
    K_PROMPT = 256,
    K_GEN,
    K_REQUESTS,
    K_SUITE,
    K_REPEATS,
    K_PROJECT,
    K_SEED,
    K_HARDWARE,
    K_NO_OVERLAP,
    K_BARRIER,
    K_NO_CONTINUOUS,
    K_LOG,
    K_KEEP,
    K_JOB,
};

static const struct argp_option options[] = {
    { NULL, 0, NULL, 0, "What is run (several values with commas: a row for each):", 1 },
    { "prompt-len", K_PROMPT, "N|N-M,...", 0,
      "tokens of a prompt; 64-512: each request's own, drawn from that range (default 512)", 1 },
    { "gen-len", K_GEN, "N|N-M,...", 0, "tokens to generate, in the same way (default 32)", 1 },
    { "job", K_JOB, "FILE", 0,
      "as long as this file's requests are, which generate would take; --gen-len N for lines that "
      "do not say",
      1 },
    { "requests", K_REQUESTS, "N", 0,
      "requests (default: those of --job, else enough to fill the block twice)", 1 },
    { "suite", K_SUITE, "FILE", 0,
      "rows from a file (configs/bench/*.json) instead; options hold for what a row leaves open",
      1 },
    { "repeats", K_REPEATS, "N", 0, "rounds over all rows; medians are told (default 1)", 1 },
    { "project", K_PROJECT, "N", 0,
      "run the prompts and N sweeps early, midway and late, and say \"projected\"", 1 },
    { "seed", K_SEED, "N", 0, "seed of prompts and random weights (default 0)", 1 },
    { "hardware", K_HARDWARE, "FILE|this", 0,
      "simulate instead of running: on a described machine (configs/hardware/*.json), or on this "
      "one (what `penstock probe` found, else a quick probe)",
      1 },
    { NULL, 0, NULL, 0, "Schedules, to see what ours brings:", 2 },
    { "no-overlap", K_NO_OVERLAP, NULL, 0, "a task begins when the one before it is done", 2 },
    { "barrier", K_BARRIER, NULL, 0,
      "FlexGen's: wait for everything after each layer and micro-batch (and --prefetch 1)", 2 },
    { "no-continuous", K_NO_CONTINUOUS, NULL, 0,
      "fill a block anew only when all of its sequences have ended", 2 },
    { NULL, 0, NULL, 0, "Output:", 6 },
    { "output", K_OUTPUT, "FILE", 0, "all figures, as JSON", 6 },
    { "log", K_LOG, "FILE", 0, "FlexGen's five log lines of each row", 6 },
    { "keep", K_KEEP, NULL, 0, "keep random weights that were made (in --pack-dir), for next time",
      6 },
    { 0 },
};

/* Options that may have several values: all combinations are rows. */
static const char *const varied[] = {
    "kv-policy", "kv-budget", "kv-heavy",       "kv-recent",       "kv-sinks",       "kv-dtype",
    "host-mem",  "gpu-mem",   "gpu-batch-size", "num-gpu-batches", "prefill-tokens", "attention",
    "threads",   "io",        "queue-depth",    "prefetch",
};
enum { LIST_MAX = 64 };
struct list {
    const char *option;
    char *value[LIST_MAX];
    size_t n;
};
struct parsed {
    struct ps_bench *b;
    struct ps_bench_row base;
    struct list list[PS_ARRAY_LEN(varied)];
    size_t n_lists;
    struct ps_bench_len prompt[LIST_MAX], gen[LIST_MAX];
    size_t n_prompt, n_gen;
};

/* Splits in place. */
static bool split(char *text, struct list *l)
{
    char *save = NULL;
    const size_t len = strlen(text);
    if (!len || text[0] == ',' || text[len - 1] == ',' || strstr(text, ",,")) return false;
    for (char *t = strtok_r(text, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
        if (l->n == LIST_MAX) return false;
        l->value[l->n++] = t;
    }
    return true;
}

static void take_list(struct parsed *p, const char *option, char *value)
{
    ps_auto_free char *given = ps_concat(value, "", "");
    struct list l = { .option = option };
    size_t i = 0;
    while (i < p->n_lists && strcmp(p->list[i].option, option) != 0) i++;
    if (i == p->n_lists && split(value, &l)) {
        p->list[p->n_lists++] = l;
        return;
    }
    ps_say("--%s %s: %s", option, given ? given : "",
           i < p->n_lists ? "given twice"
                          : "up to 64 values with a comma between two were expected");
    exit(PS_EXIT_USAGE);
}

/* Whether that value of a varied option is the list's: those of several values, which argp's table does not know, and all that say how a
 * policy keeps, for not every policy takes them. */
static bool is_list(const char *option, const char *value)
{
    return value && (strchr(value, ',') || !strncmp(option, "kv-", 3));
}

/* The varied option that an argument is, or NULL; *ret_value: what stands behind `=`, else NULL. */
static const char *varied_option(char *arg, char **ret_value)
{
    for (size_t k = 0; k < PS_ARRAY_LEN(varied) && !strncmp(arg, "--", 2); k++) {
        const size_t len = strlen(varied[k]);
        if (strncmp(arg + 2, varied[k], len) != 0) continue;
        if (arg[2 + len] && arg[2 + len] != '=') continue;
        *ret_value = arg[2 + len] ? arg + 3 + len : NULL;
        return varied[k];
    }
    return NULL;
}

/* Takes `--option a,b` and `--option=a,b` out of the arguments. */
static void take_lists(struct parsed *p, int *argc, char **argv)
{
    int to = 1;
    bool options_end = false;
    for (int i = 1; i < *argc; i++) {
        char *value = NULL;
        options_end |= !strcmp(argv[i], "--");
        const char *option = options_end ? NULL : varied_option(argv[i], &value);
        if (option && is_list(option, value))
            take_list(p, option, value);
        else if (option && !value && is_list(option, argv[i + 1]))
            take_list(p, option, argv[++i]);
        else
            argv[to++] = argv[i];
    }
    *argc = to;
    argv[to] = NULL;
}

static void lengths(struct argp_state *st, const char *option, const char *arg,
                    struct ps_bench_len *ret, size_t *ret_n)
{
    struct list l = { 0 };
    ps_auto_free char *text = ps_concat(arg, "", "");
    bool ok = text && split(text, &l);
    for (size_t i = 0; ok && i < l.n; i++) ok = ps_bench_len_parse(l.value[i], &ret[i]);
    if (!ok)
        argp_error(st,
                   "--%s %s: whole numbers of 1 or more, as 32,512, or ranges of them, as 64-512, "
                   "were expected",
                   option, arg);
    *ret_n = l.n;
}

static uint64_t count(struct argp_state *st, const char *option, const char *arg, uint64_t most)
{
    uint64_t n = 0;
    if (!ps_opt_u64(arg, most, &n) || !n)
        argp_error(st, "--%s %s: a whole number from 1 to %llu was expected", option, arg,
                   (unsigned long long) most);
    return n;
}

static bool several(const struct parsed *p)
{
    for (size_t i = 0; i < p->n_lists; i++)
        if (p->list[i].n > 1) return true;
    return false;
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct parsed *p = st->input;
    struct ps_bench *b = p->b;
    struct ps_schedule *how = &p->base.how;
    switch (key) {
    case ARGP_KEY_INIT: st->child_inputs[0] = &p->base.engine; return 0;
    case K_OUTPUT: b->output = arg; return 0;
    case K_LOG: b->log = arg; return 0;
    case K_PROMPT: lengths(st, "prompt-len", arg, p->prompt, &p->n_prompt); return 0;
    case K_GEN: lengths(st, "gen-len", arg, p->gen, &p->n_gen); return 0;
    case K_JOB: p->base.job = arg; return 0;
    case K_REQUESTS: p->base.requests = count(st, "requests", arg, UINT32_MAX); return 0;
    case K_SUITE: b->suite_path = arg; return 0;
    case K_REPEATS:
        b->repeats = (unsigned) count(st, "repeats", arg, PS_BENCH_REPEATS_MAX);
        return 0;
    case K_PROJECT: b->project = (uint32_t) count(st, "project", arg, 1000); return 0;
    case K_SEED:
        if (!ps_opt_u64(arg, UINT64_MAX, &b->seed))
            argp_error(st, "--seed %s: a whole number of 0 or more was expected", arg);
        return 0;
    case K_HARDWARE: b->hardware = arg; return 0;
    case K_NO_OVERLAP: how->no_overlap = true; return 0;
    case K_BARRIER: how->barrier = true; return 0;
    case K_NO_CONTINUOUS: how->no_continuous = true; return 0;
    case K_KEEP: b->keep = true; return 0;
    case ARGP_KEY_ARG:
        if (b->model) argp_error(st, "%s: only one MODEL is expected", arg);
        b->model = arg;
        return 0;
    case ARGP_KEY_END:
        if (!b->model && !b->suite_path)
            argp_error(st, "a MODEL (a folder, or a configuration as configs/models/*.json) or "
                           "--suite is expected");
        if (b->suite_path && (p->n_prompt || p->n_gen || p->base.job || several(p)))
            argp_error(st, "--suite: its rows have their own lengths, and options with several "
                           "values are for benches without one");
        if (p->base.job && p->n_prompt)
            argp_error(st, "--prompt-len: --job says how long the prompts are");
        for (size_t i = 0; p->base.job && i < p->n_gen; i++)
            if (p->gen[i].least != p->gen[i].most)
                argp_error(st, "--gen-len: with --job, one number for lines that do not say");
        if (b->hardware && b->project)
            argp_error(st, "--project: a simulation (--hardware) is quick enough as a whole");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

struct ps_bench_row *ps_bench_add(struct ps_bench *b, const struct ps_bench_row *from)
{
    if (!b->rows) b->rows = ps_calloc(PS_BENCH_ROWS_MAX, sizeof *b->rows);
    if (!b->rows || b->n_rows == PS_BENCH_ROWS_MAX) return NULL;
    b->rows[b->n_rows] = *from;
    return &b->rows[b->n_rows++];
}

/* What keeps everything has no budget. */
static bool left_out(const struct ps_bench_row *row, const char *option)
{
    return !strcmp(row->engine.plan.kv_config.policy, "full") && !strncmp(option, "kv-", 3) &&
           strcmp(option, "kv-dtype") != 0 && strcmp(option, "kv-policy") != 0;
}

static void set_or_exit(struct ps_bench_row *row, const char *option, char *value)
{
    struct ps_detail dt = { "" };
    if (ps_engine_set(&row->engine, option, value, &dt) == 0) return;
    ps_say("%s", dt.text);
    exit(PS_EXIT_USAGE);
}

/* One combination, by its number; false if it is another one's twin. */
static bool combine(const struct parsed *p, size_t number, struct ps_bench_row *row)
{
    *row = p->base;
    for (size_t i = 0; i < p->n_lists; i++) {
        const struct list *l = &p->list[i];
        const size_t k = number % l->n;
        number /= l->n;
        if (left_out(row, l->option)) {
            if (k) return false;
            continue;
        }
        set_or_exit(row, l->option, l->value[k]);
        const size_t n = strlen(row->name);
        if (l->n > 1)
            (void) snprintf(row->name + n, sizeof row->name - n, "%s%s%s%s", n ? ", " : "",
                            strcmp(l->option, "kv-policy") ? l->option : "",
                            strcmp(l->option, "kv-policy") ? " " : "", l->value[k]);
    }
    if (!row->name[0])
        (void) snprintf(row->name, sizeof row->name, "%s", row->engine.plan.kv_config.policy);
    return true;
}

static void no_row(void)
{
    ps_say("%d rows are the most, and want some memory", PS_BENCH_ROWS_MAX);
    exit(PS_EXIT_USAGE);
}

static void rows_of(const struct parsed *p)
{
    enum { COMBINATIONS_MAX = 1 << 20 }; /* many of which may be twins */
    size_t combinations = 1;
    for (size_t i = 0; i < p->n_lists; i++)
        if ((combinations *= p->list[i].n) > COMBINATIONS_MAX) no_row();
    for (size_t k = 0; k < p->n_prompt * p->n_gen; k++)
        for (size_t c = 0; c < combinations; c++) {
            struct ps_bench_row row;
            if (!combine(p, c, &row)) continue;
            row.prompt = p->prompt[k / p->n_gen];
            row.gen = p->gen[k % p->n_gen];
            if (!ps_bench_add(p->b, &row)) no_row();
        }
}

/* It is what the options of others go by. */
static void policy_first(struct parsed *p)
{
    for (size_t i = 1; i < p->n_lists; i++)
        if (!strcmp(p->list[i].option, "kv-policy")) {
            struct list l = p->list[0];
            p->list[0] = p->list[i];
            p->list[i] = l;
        }
}

void ps_bench_parse(int argc, char **argv, struct ps_bench *ret)
{
    static const struct argp_child children[] = { { .argp = &ps_engine_argp }, { 0 } };
    static const struct argp argp = {
        options,
        parse,
        "MODEL\n--suite FILE [MODEL]",
        "Measures how fast requests of given lengths run, and tells ways to run them side by side. "
        "MODEL is a packed folder, a Hugging Face folder, or a "
        "configuration (configs/models/*.json), for which random weights are made. Prompts are "
        "random token ids; every answer has its full length.\v ",
        children,
        ps_engine_help,
        NULL
    };
    static struct parsed p;
    struct ps_detail dt = { "" };
    *ret = (struct ps_bench) { .repeats = 1 };
    p = (struct parsed) { .b = ret };
    ps_engine_args_init(&p.base.engine);
    ps_engine_join(&argc, argv);
    take_lists(&p, &argc, argv);
    ps_opt_parse(&argp, argc, argv, &p);
    ret->pack_dir = p.base.engine.pack_dir;
    if (ret->suite_path) {
        for (size_t i = 0; i < p.n_lists; i++)
            set_or_exit(&p.base, p.list[i].option, p.list[i].value[0]);
        int r = ps_bench_suite(ret, &p.base, &dt);
        if (r < 0) exit(ps_say_error(r, &dt));
        return;
    }
    if (!p.n_prompt) p.prompt[p.n_prompt++] = (struct ps_bench_len) { 512, 512 };
    if (!p.n_gen) p.gen[p.n_gen++] = (struct ps_bench_len) { 32, 32 };
    if (!(p.base.model = ps_bench_model(ret, ret->model))) no_row();
    policy_first(&p);
    rows_of(&p);
}
