/* SPDX-License-Identifier: Apache-2.0 */
/* One table: each option's text for --help, and how its value is read into the arguments. */
#include "engine/base/ps_utf8.h"
#include "engine/cli/generate.h"
#include <float.h>
#include <stdio.h>
#include <string.h>

enum key {
    K_OUTPUT = 'o',
    K_MAX_TOKENS = 256,
    K_TEMPERATURE,
    K_TOP_P,
    K_TOP_K,
    K_SEED,
    K_STOP,
    K_TEXT,
    K_LIMIT,
    K_ORDER,
    K_NO_RESUME,
    K_OVERWRITE,
    K_REPORT,
    K_DUMP_KV,
    K_PROGRESS,
    K_TRACE,
    K_DRY_RUN,
};

static const struct argp_option options[] = {
    { NULL, 0, NULL, 0, "Input and output:", 1 },
    { "output", K_OUTPUT, "OUTPUT", 0, "results, one JSON line a request (needed)", 1 },
    { "text", K_TEXT, NULL, 0, "INPUT is plain text, one prompt a line", 1 },
    { "limit", K_LIMIT, "N", 0, "only the first N requests", 1 },
    { "order", K_ORDER, "input|completion", 0, "order of results (default input)", 1 },
    { "no-resume", K_NO_RESUME, NULL, 0, "start anew: results of an interrupted run are discarded",
      1 },
    { "overwrite", K_OVERWRITE, NULL, 0, "replace an OUTPUT that is another job's", 1 },
    { "report", K_REPORT, "FILE", 0, "write a report (JSON)", 1 },
    { "dump-kv", K_DUMP_KV, "FILE", 0, "write which KV entries each sequence kept (JSON lines)",
      1 },
    { "trace", K_TRACE, "FILE", 0, "write a timeline for Perfetto or chrome://tracing", 1 },
    { "progress", K_PROGRESS, "auto|plain|none", 0,
      "progress on stderr (default auto: one line on a terminal, else a line now and then)", 1 },
    { "dry-run", K_DRY_RUN, NULL, 0,
      "print the plan, its memory, and what it is predicted to take; load nothing", 1 },
    { NULL, 0, NULL, 0, "Generation, for lines that do not say:", 2 },
    { "max-tokens", K_MAX_TOKENS, "N", 0, "tokens to generate (default 16)", 2 },
    { "temperature", K_TEMPERATURE, "T", 0, "0 = greedy (default 0)", 2 },
    { "top-p", K_TOP_P, "P", 0, "0 < P <= 1 (default 1 = off)", 2 },
    { "top-k", K_TOP_K, "K", 0, "0 or -1 = off (default 0)", 2 },
    { "seed", K_SEED, "N", 0, "seed of sampling (default 0)", 2 },
    { "stop", K_STOP, "TEXT", 0, "stop string; up to four times", 2 },
    { 0 },
};

static void bad(struct argp_state *st, const char *option, const char *arg, const char *expected)
{
    argp_error(st, "--%s %s: %s was expected", option, arg, expected);
}

static const char *name_of(int key)
{
    for (const struct argp_option *o = options; o->name || o->doc; o++)
        if (o->name && o->key == key) return o->name;
    return "?";
}

static int choice(struct argp_state *st, int key, const char *arg, const char *const *words)
{
    char expected[128];
    int r = ps_opt_choice(arg, words, expected);
    if (r < 0) bad(st, name_of(key), arg, expected);
    return r;
}
#define CHOICE(...) choice(st, key, arg, (const char *const[]) { __VA_ARGS__, NULL })

static void generation_value(struct argp_state *st, int key, char *arg, struct ps_params *p)
{
    double d = 0;
    uint64_t u = 0;
    switch (key) {
    case K_MAX_TOKENS:
        if (!ps_opt_u32(arg, 0, &p->max_tokens))
            bad(st, name_of(key), arg, "a whole number from 0 to 4294967295");
        break;
    case K_TEMPERATURE:
        if (!ps_opt_double(arg, &d) || !(d >= 0 && d <= (double) FLT_MAX))
            bad(st, name_of(key), arg, "a number of 0 or more");
        p->temperature = (float) d;
        break;
    case K_TOP_P:
        if (!ps_opt_double(arg, &d) || !(d > 0 && d <= 1))
            bad(st, name_of(key), arg, "a number above 0, at most 1");
        p->top_p = (float) d > 0 ? (float) d : FLT_MIN;
        break;
    case K_TOP_K:
        if (strcmp(arg, "-1") != 0 && !ps_opt_u64(arg, UINT64_MAX, &u))
            bad(st, name_of(key), arg, "a whole number of 0 or more, or -1");
        p->top_k = u > UINT32_MAX ? 0 : (uint32_t) u;
        break;
    case K_SEED:
        if (!ps_opt_u64(arg, UINT64_MAX, &u)) {
            if (*arg != '-' || !ps_opt_u64(arg + 1, (uint64_t) 1 << 63, &u))
                bad(st, name_of(key), arg, "an integer");
            u = -u;
        }
        p->seed = u;
        break;
    case K_STOP:
        if (!*arg || strlen(arg) > PS_STOP_MAX || ps_utf8_valid(arg, strlen(arg)) < strlen(arg))
            bad(st, name_of(key), arg, "text of 1 to 1024 bytes");
        if (p->n_stop == PS_STOPS) argp_error(st, "--stop: at most four times");
        p->stop[p->n_stop++] = (struct ps_jstr) { arg, strlen(arg) };
        break;
    default: break;
    }
}

static void check(struct argp_state *st, const struct ps_job_cfg *j)
{
    const struct {
        const char *option, *file;
    } files[] = { { "-o", j->output },
                  { "--report", j->report },
                  { "--dump-kv", j->dump_kv },
                  { "--trace", j->trace } };
    if (!j->input) argp_error(st, "MODEL and INPUT are expected");
    if (!j->output || !*j->output) argp_error(st, "-o OUTPUT is expected");
    for (size_t i = 0; i < PS_ARRAY_LEN(files); i++)
        if (files[i].file && !strcmp(files[i].file, "-"))
            argp_error(st, "%s -: it is renamed into place, which needs a file's name",
                       files[i].option);
}

static error_t job_value(struct argp_state *st, int key, char *arg, struct ps_generate_args *a)
{
    struct ps_job_cfg *j = &a->job;
    switch (key) {
    case K_OUTPUT: j->output = arg; break;
    case K_TEXT: j->text = true; break;
    case K_LIMIT:
        if (!ps_opt_u64(arg, UINT64_MAX - 1, &j->limit))
            bad(st, name_of(key), arg, "a whole number of 0 or more");
        break;
    case K_ORDER: j->order_completion = CHOICE("input", "completion") == 1; break;
    case K_NO_RESUME: j->no_resume = true; break;
    case K_OVERWRITE: j->overwrite = true; break;
    case K_REPORT: j->report = arg; break;
    case K_DUMP_KV: j->dump_kv = arg; break;
    case K_TRACE: j->trace = arg; break;
    case K_PROGRESS: a->progress = (enum ps_progress_mode) CHOICE("auto", "plain", "none"); break;
    case K_DRY_RUN: j->dry_run = a->planning.wants_more = true; break;
    case ARGP_KEY_ARG: ps_opt_two(st, arg, "MODEL and INPUT", &a->model, &j->input); break;
    case ARGP_KEY_END: check(st, j); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct ps_generate_args *a = st->input;
    if (key == ARGP_KEY_INIT)
        st->child_inputs[0] = &a->engine;
    else if (key >= K_MAX_TOKENS && key <= K_STOP)
        generation_value(st, key, arg, &a->job.defaults);
    else
        return job_value(st, key, arg, a);
    return 0;
}

void ps_generate_parse(int argc, char **argv, struct ps_generate_args *ret)
{
    static const struct argp_child children[] = { { .argp = &ps_engine_argp }, { 0 } };
    static const struct argp argp = {
        options,
        parse,
        "MODEL INPUT -o OUTPUT",
        "Runs a file of requests through a model. MODEL is a packed folder (see penstock convert); "
        "a Hugging Face folder is packed first. "
        "INPUT is JSONL, in OpenAI's Batch form or bare completion requests (- = stdin). "
        "Interrupted, the same command goes on where it was."
        "\v ",
        children,
        ps_engine_help,
        NULL
    };
    struct ps_job_cfg *j = &ret->job;
    *ret = (struct ps_generate_args) { 0 };
    ps_engine_args_init(&ret->engine);
    j->limit = UINT64_MAX;
    j->defaults = (struct ps_params) { .max_tokens = 16, .top_p = 1, .logprobs = -1 };
    ps_engine_join(&argc, argv);
    ps_opt_parse(&argp, argc, argv, ret);
    j->plan = ret->engine.plan;
    j->run = ret->engine.run;
}
