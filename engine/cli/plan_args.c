/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cli/plan_args.h"
#include <stdio.h>
#include <string.h>

enum {
    K_OUTPUT = 'o',
    K_HARDWARE = 256,
    K_JOB,
    K_TEXT,
    K_LIMIT,
    K_MAX_TOKENS,
    K_PROMPT_LEN,
    K_GEN_LEN,
    K_REQUESTS,
    K_DTYPE,
    K_TOP,
    K_JSON,
    K_SWEEP,
    K_FORMAT
};

static const struct argp_option options[] = {
    { NULL, 0, NULL, 0, "What is planned for:", 1 },
    { "hardware", K_HARDWARE, "FILE|this", 0,
      "a hardware profile, or this machine (default this: what `penstock probe` found, else a "
      "quick probe)",
      1 },
    { "job", K_JOB, "FILE", 0,
      "requests as generate takes them; their lengths count (without tokenizer files: token ids)",
      1 },
    { "text", K_TEXT, NULL, 0, "--job is plain text, one prompt a line", 1 },
    { "limit", K_LIMIT, "N", 0, "only the first N requests of --job", 1 },
    { "max-tokens", K_MAX_TOKENS, "N", 0,
      "tokens to generate for lines of --job that do not say (default 16)", 1 },
    { "prompt-len", K_PROMPT_LEN, "N", 0, "tokens of each prompt, without --job (default 512)", 1 },
    { "gen-len", K_GEN_LEN, "N", 0, "tokens to generate for each, without --job (default 32)", 1 },
    { "requests", K_REQUESTS, "N", 0, "how many, without --job (default 1000)", 1 },
    { "dtype", K_DTYPE, "f16|bf16|f32", 0,
      "type of the weights of a MODEL that is not packed (default the config's)", 1 },
    { NULL, 0, NULL, 0, "What is told:", 2 },
    { "top", K_TOP, "N", 0, "so many plans, 1 to 8 (default 5)", 2 },
    { "json", K_JSON, NULL, 0, "as JSON", 2 },
    { "sweep", K_SWEEP, "NAME=VALUES", 0,
      "the best plan for each value of an option or a field of the profile (disk.read, gpu.mem): "
      "32G:512G:x2, 1:9:+2, or a list 10%,20%; several times: each with each",
      2 },
    { "output", K_OUTPUT, "FILE", 0, "where a sweep's table goes (default stdout)", 2 },
    { "format", K_FORMAT, "csv|json", 0, "of a sweep's table (default by FILE's name, else csv)",
      2 },
    { 0 },
};

static const char *name_of(int key)
{
    for (const struct argp_option *o = options; o->name || o->doc; o++)
        if (o->name && o->key == key) return o->name;
    return "?";
}

static void bad(struct argp_state *st, int key, const char *arg, const char *expected)
{
    argp_error(st, "--%s %s: %s was expected", name_of(key), arg, expected);
}

static int choice(struct argp_state *st, int key, const char *arg, const char *const *words)
{
    char expected[128];
    int r = ps_opt_choice(arg, words, expected);
    if (r < 0) bad(st, key, arg, expected);
    return r;
}
#define CHOICE(...) choice(st, key, arg, (const char *const[]) { __VA_ARGS__, NULL })

static void point_value(struct argp_state *st, int key, char *arg, struct ps_point *p)
{
    struct ps_detail dt = { "" };
    if (ps_point_set(p, name_of(key), arg, &dt) < 0) argp_error(st, "%s", dt.text);
}

static void job_value(struct argp_state *st, int key, char *arg, struct ps_plan_args *a)
{
    static const enum ps_dtype dtypes[] = { PS_F16, PS_BF16, PS_F32 };
    uint32_t u = 0;
    switch (key) {
    case K_HARDWARE: a->hardware = arg; break;
    case K_JOB: a->job.path = arg; break;
    case K_TEXT: a->job.text = true; break;
    case K_LIMIT:
        if (!ps_opt_u64(arg, UINT64_MAX - 1, &a->job.limit))
            bad(st, key, arg, "a whole number of 0 or more");
        break;
    case K_MAX_TOKENS:
        if (!ps_opt_u32(arg, 0, &a->job.defaults.max_tokens))
            bad(st, key, arg, "a whole number from 0 to 4294967295");
        break;
    case K_DTYPE: a->dtype = dtypes[CHOICE("f16", "bf16", "f32")]; break;
    default:
        if (!ps_opt_u32(arg, 1, &u) || u > PS_SEARCH_TOP)
            bad(st, key, arg, "a whole number from 1 to 8");
        a->top = u;
        break;
    }
}

static void check(struct argp_state *st, const struct ps_plan_args *a)
{
    if (!a->model) argp_error(st, "MODEL is expected");
    if (!a->job.path && a->of_job)
        argp_error(st, "--%s says how to read --job, which is not given", a->of_job);
    if (a->job.path && a->described)
        argp_error(st, "--%s: --job says how long the requests are", a->described);
    if (a->output && !a->n_sweep) argp_error(st, "-o: only a sweep's table goes to a file");
    if (a->format && !a->n_sweep) argp_error(st, "--format: only a sweep's table has one");
    if (a->json && a->n_sweep) argp_error(st, "--json: with --sweep, --format json is meant");
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct ps_plan_args *a = st->input;
    switch (key) {
    case ARGP_KEY_INIT: st->child_inputs[0] = &a->point.engine; break;
    case K_PROMPT_LEN:
    case K_GEN_LEN:
    case K_REQUESTS:
        a->described = name_of(key);
        point_value(st, key, arg, &a->point);
        break;
    case K_TEXT:
    case K_LIMIT:
    case K_MAX_TOKENS:
        a->of_job = name_of(key);
        job_value(st, key, arg, a);
        break;
    case K_HARDWARE:
    case K_JOB:
    case K_DTYPE:
    case K_TOP: job_value(st, key, arg, a); break;
    case K_JSON: a->json = true; break;
    case K_SWEEP:
        if (a->n_sweep == PS_SWEEPS_MAX) argp_error(st, "--sweep: at most 8 times");
        a->sweep[a->n_sweep++] = arg;
        break;
    case K_OUTPUT: a->output = arg; break;
    case K_FORMAT: a->format = CHOICE("csv", "json") ? "json" : "csv"; break;
    case ARGP_KEY_ARG:
        if (a->model) argp_error(st, "%s: only MODEL is expected", arg);
        a->model = arg;
        break;
    case ARGP_KEY_END: check(st, a); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* As it was typed, for whoever finds the table. */
static void join(int argc, char **argv, char *ret, size_t cap)
{
    size_t n = 0;
    for (int i = 0; i < argc && n < cap; i++)
        n += (size_t) snprintf(ret + n, cap - n, "%s%s", i ? " " : "", argv[i]);
}

bool ps_plan_sweeps(const struct ps_plan_args *a, const char *name)
{
    const size_t n = strlen(name);
    for (unsigned i = 0; i < a->n_sweep; i++) {
        const char *s = a->sweep[i] + strspn(a->sweep[i], "-");
        if (!strncmp(s, name, n) && s[n] == '=') return true;
    }
    return false;
}

void ps_plan_parse(int argc, char **argv, struct ps_plan_args *ret)
{
    static const struct argp_child children[] = { { .argp = &ps_engine_plan_argp }, { 0 } };
    static const struct argp argp = {
        options,
        parse,
        "MODEL",
        "How fast a job would run on a machine, and what would limit it. MODEL is a packed folder, "
        "a "
        "Hugging Face folder (of which only config.json and tokenizer files are read) or a config "
        "as those in configs/models."
        "\v ",
        children,
        ps_engine_help,
        NULL
    };
    *ret = (struct ps_plan_args) { .dtype = -1, .top = 5 };
    ret->job.limit = UINT64_MAX;
    ret->job.defaults = (struct ps_params) { .max_tokens = 16, .top_p = 1, .logprobs = -1 };
    ps_engine_args_init(&ret->point.engine);
    ret->point.prompt_len = 512;
    ret->point.gen_len = 32;
    ret->point.requests = 1000;
    join(argc, argv, ret->command, sizeof ret->command);
    ps_engine_join(&argc, argv);
    ps_opt_parse(&argp, argc, argv, ret);
}
