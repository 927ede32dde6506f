/* SPDX-License-Identifier: Apache-2.0 */
/* One table: each option's text for --help, and how its value is read into the arguments. */
#include "engine/base/ps_mem.h"
#include "engine/base/ps_utf8.h"
#include "engine/cli/generate.h"
#include "offload/dev.h"
#include "offload/store.h"
#include "policy/kv/policy.h"
#include <ctype.h>
#include <float.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum key {
    K_OUTPUT = 'o',
    K_FIRST = 256,
    K_HOST_MEM = K_FIRST,
    K_GPU_MEM,
    K_DISK_SPACE,
    K_OFFLOAD_DIR,
    K_PACK_DIR,
    K_VERIFY,
    K_WEIGHTS,
    K_KV,
    K_HIDDEN,
    K_PERCENT,
    K_BATCH,
    K_BATCHES,
    K_PREFILL,
    K_POLICY,
    K_BUDGET,
    K_RATIO,
    K_HEAVY,
    K_RECENT,
    K_SINKS,
    K_BUDGET_OF,
    K_BLOCK,
    K_SUMMARY,
    K_TOPK,
    K_KV_DTYPE,
    K_POSITIONS,
    K_ATTENTION,
    K_THREADS,
    K_NUMA,
    K_IO,
    K_DEPTH,
    K_PREFETCH,
    K_MAX_TOKENS,
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
    { "dry-run", K_DRY_RUN, NULL, 0, "print the plan and its memory table; load nothing", 1 },
    { NULL, 0, NULL, 0, "Generation, for lines that do not say:", 2 },
    { "max-tokens", K_MAX_TOKENS, "N", 0, "tokens to generate (default 16)", 2 },
    { "temperature", K_TEMPERATURE, "T", 0, "0 = greedy (default 0)", 2 },
    { "top-p", K_TOP_P, "P", 0, "0 < P <= 1 (default 1 = off)", 2 },
    { "top-k", K_TOP_K, "K", 0, "0 or -1 = off (default 0)", 2 },
    { "seed", K_SEED, "N", 0, "seed of sampling (default 0)", 2 },
    { "stop", K_STOP, "TEXT", 0, "stop string; up to four times", 2 },
    { NULL, 0, NULL, 0, "Memory and placement (sizes as 512M, 8G: powers of 1024):", 3 },
    { "host-mem", K_HOST_MEM, "SIZE", 0, "most host memory (default 80 % of what is available)",
      3 },
    { "gpu-mem", K_GPU_MEM, "SIZE", 0,
      "most GPU memory (default all that is free, less 5 %); 0 = no GPU is used", 3 },
    { "disk-space", K_DISK_SPACE, "SIZE", 0,
      "most disk space for KV and activations (default 90 % of what is free)", 3 },
    { "offload-dir", K_OFFLOAD_DIR, "DIR", 0,
      "where KV and activations on disk go (default beside OUTPUT); emptied at the end", 3 },
    { "pack-dir", K_PACK_DIR, "DIR", 0,
      "where a MODEL that is not packed is packed (default in the user's cache folder)", 3 },
    { "weights", K_WEIGHTS, "SHARES", 0,
      "where weights lie, in percent: gpu:20,host:50,disk:30 (default auto)", 3 },
    { "kv", K_KV, "SHARES", 0, "the same for KV, as --weights (default auto)", 3 },
    { "hidden", K_HIDDEN, "SHARES", 0, "the same for hidden states, as --weights (default auto)",
      3 },
    { "percent", K_PERCENT, "W W K K H H", 0,
      "six numbers: weights gpu host, KV gpu host, hidden gpu host; the rest on disk", 3 },
    { "gpu-batch-size", K_BATCH, "N", 0, "slots in a micro-batch (default auto)", 3 },
    { "num-gpu-batches", K_BATCHES, "N", 0, "micro-batches in a block (default auto)", 3 },
    { "prefill-tokens", K_PREFILL, "N", 0,
      "most prompt tokens admitted in one sweep (default auto)", 3 },
    { NULL, 0, NULL, 0, "KV cache:", 4 },
    { "kv-policy", K_POLICY, "NAME", 0,
      "what stays in the KV cache (default full); the names are listed below", 4 },
    { "kv-budget", K_BUDGET, "N|P%", 0,
      "entries kept per layer and KV head, or a share of the longest prompt + max_tokens (default "
      "20%)",
      4 },
    { "kv-heavy-ratio", K_RATIO, "R", 0,
      "share of the budget left after sinks that goes to heavy entries (default 0.5)", 4 },
    { "kv-heavy", K_HEAVY, "N", 0, "heavy entries, instead of a budget", 4 },
    { "kv-recent", K_RECENT, "N", 0, "recent entries, instead of a budget", 4 },
    { "kv-sinks", K_SINKS, "N", 0, "first entries that always stay (default 4 for sink, else 0)",
      4 },
    { "kv-budget-of", K_BUDGET_OF, "total|prompt", 0,
      "what a share is a share of: the job's longest (default) or each prompt's length", 4 },
    { "kv-block", K_BLOCK, "N", OPTION_HIDDEN, NULL, 4 },
    { "kv-summary", K_SUMMARY, "N", OPTION_HIDDEN, NULL, 4 },
    { "kv-topk", K_TOPK, "N", OPTION_HIDDEN, NULL, 4 },
    { "kv-dtype", K_KV_DTYPE, "f16|f32", 0, "type of stored KV (default f16; f32 is for checking)",
      4 },
    { "kv-positions", K_POSITIONS, "true|cache", 0,
      "positions in the text or in the cache (default true)", 4 },
    { NULL, 0, NULL, 0, "Machine:", 5 },
    { "attention", K_ATTENTION, "gpu|host|auto", 0,
      "where decode attention over KV that is not on the GPU runs (default auto: what is cheaper)",
      5 },
    { "threads", K_THREADS, "N", 0, "worker threads (default: the CPUs this process may use)", 5 },
    { "numa", K_NUMA, "NODES", 0,
      "NUMA nodes for memory, as 0 or 0-1 (default: the kernel's choice; beside a GPU, those near "
      "it first)",
      5 },
    { "io", K_IO, "uring|pread", 0, "how the disk is read (default: io_uring where it is allowed)",
      5 },
    { "queue-depth", K_DEPTH, "N", 0, "disk requests in flight (default auto)", 5 },
    { "prefetch", K_PREFETCH, "N", 0, "layers read ahead (default auto)", 5 },
    { "verify", K_VERIFY, "once|always", 0,
      "check weights when first read (default), or at every read", 5 },
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

static void size_value(struct argp_state *st, int key, const char *arg, uint64_t *ret)
{
    if (!ps_opt_size(arg, ret)) bad(st, name_of(key), arg, "a size as 512M or 8G");
}

static void count_value(struct argp_state *st, int key, const char *arg, uint32_t max,
                        uint32_t *ret)
{
    char expected[64];
    if (ps_opt_u32(arg, 1, ret) && *ret <= max) return;
    (void) snprintf(expected, sizeof expected, "a whole number from 1 to %" PRIu32, max);
    bad(st, name_of(key), arg, expected);
}

static void entries_value(struct argp_state *st, int key, const char *arg, int64_t *ret)
{
    uint64_t v = 0;
    if (!ps_opt_u64(arg, UINT32_MAX, &v)) bad(st, name_of(key), arg, "a whole number of entries");
    *ret = (int64_t) v;
}

static void shares_value(struct argp_state *st, int key, const char *arg, struct ps_shares *ret)
{
    if (!ps_opt_shares(arg, ret))
        bad(st, name_of(key), arg, "auto, or shares as gpu:20,host:50,disk:30 that add up to 100,");
}

/* Which of a|b|c, as a number. */
static int choice(struct argp_state *st, int key, const char *arg, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(arg, words[i])) return i;
    char text[128] = "";
    for (int i = 0; words[i]; i++) {
        size_t n = strlen(text);
        (void) snprintf(text + n, sizeof text - n, "%s%s", i ? " or " : "", words[i]);
    }
    bad(st, name_of(key), arg, text);
    return 0;
}
#define CHOICE(...) choice(st, key, arg, (const char *const[]) { __VA_ARGS__, NULL })

static void generation_value(struct argp_state *st, int key, char *arg, struct ps_params *p)
{
    double d = 0;
    uint64_t u = 0;
    switch (key) {
    case K_MAX_TOKENS:
        if (!ps_opt_u32(arg, 0, &p->max_tokens)) bad(st, name_of(key), arg, "a whole number");
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
            bad(st, name_of(key), arg, "a whole number, or -1");
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

static void kv_value(struct argp_state *st, int key, char *arg, struct ps_kv_config *kv)
{
    switch (key) {
    case K_POLICY:
        if (!ps_kv_policy_find(arg)) {
            char names[256] = "";
            for (size_t i = 0; ps_kv_policy_at(i); i++) {
                size_t n = strlen(names);
                (void) snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                                ps_kv_policy_at(i)->name);
            }
            argp_error(st, "--kv-policy %s: not supported; there are %s", arg, names);
        }
        kv->policy = arg;
        break;
    case K_BUDGET:
        kv->budget = -1;
        kv->budget_share = -1;
        if (strchr(arg, '%')) {
            if (!ps_opt_percent(arg, &kv->budget_share))
                bad(st, name_of(key), arg, "a share as 20% or a number of entries");
        } else {
            entries_value(st, key, arg, &kv->budget);
        }
        break;
    case K_RATIO:
        if (!ps_opt_double(arg, &kv->heavy_ratio) ||
            !(kv->heavy_ratio >= 0 && kv->heavy_ratio <= 1))
            bad(st, name_of(key), arg, "a number from 0 to 1");
        break;
    case K_HEAVY: entries_value(st, key, arg, &kv->heavy); break;
    case K_RECENT: entries_value(st, key, arg, &kv->recent); break;
    case K_SINKS: entries_value(st, key, arg, &kv->sinks); break;
    case K_BUDGET_OF:
        kv->budget_of = CHOICE("total", "prompt") ? PS_BUDGET_OF_PROMPT : PS_BUDGET_OF_TOTAL;
        break;
    case K_BLOCK:
    case K_SUMMARY:
    case K_TOPK:
        argp_error(st, "--%s: none of this version's KV policies has it", name_of(key));
        break;
    case K_KV_DTYPE: kv->type = CHOICE("f16", "f32") ? PS_F32 : PS_F16; break;
    case K_POSITIONS: kv->positions_cache = CHOICE("true", "cache"); break;
    default: break;
    }
}

static void machine_value(struct argp_state *st, int key, char *arg, struct ps_generate_args *a)
{
    struct ps_job_cfg *j = &a->job;
    static const char *const stores[] = { "uring", "pread" };
    switch (key) {
    case K_HOST_MEM: size_value(st, key, arg, &j->plan.host_mem); break;
    case K_GPU_MEM: size_value(st, key, arg, &a->gpu_mem); break;
    case K_DISK_SPACE: size_value(st, key, arg, &j->plan.disk_space); break;
    case K_OFFLOAD_DIR: a->offload_dir = arg; break;
    case K_PACK_DIR: a->pack_dir = arg; break;
    case K_WEIGHTS: shares_value(st, key, arg, &j->plan.weights); break;
    case K_KV: shares_value(st, key, arg, &j->plan.kv); break;
    case K_HIDDEN: shares_value(st, key, arg, &j->plan.hidden); break;
    case K_PERCENT:
        if (!ps_opt_six(arg, &j->plan.weights, &j->plan.kv, &j->plan.hidden))
            bad(st, name_of(key), arg,
                "six numbers from 0 to 100, each pair at most 100 together,");
        break;
    case K_BATCH: count_value(st, key, arg, UINT32_MAX, &j->plan.gpu_batch_size); break;
    case K_BATCHES: count_value(st, key, arg, UINT32_MAX, &j->plan.num_gpu_batches); break;
    case K_PREFILL: count_value(st, key, arg, UINT32_MAX, &j->plan.prefill_tokens); break;
    case K_ATTENTION:
        j->plan.attention = (enum ps_attention_at) CHOICE("auto", "gpu", "host");
        break;
    case K_THREADS: count_value(st, key, arg, PS_THREADS_MAX, &j->plan.threads); break;
    case K_NUMA: j->run.numa_nodes = arg; break;
    case K_IO: j->run.io = stores[CHOICE("uring", "pread")]; break;
    case K_DEPTH: count_value(st, key, arg, PS_STORE_DEPTH_MAX, &j->run.queue_depth); break;
    case K_PREFETCH: count_value(st, key, arg, UINT32_MAX, &j->plan.prefetch); break;
    case K_VERIFY: j->run.verify_always = CHOICE("once", "always") == 1; break;
    default: break;
    }
}

static error_t job_value(struct argp_state *st, int key, char *arg, struct ps_generate_args *a)
{
    struct ps_job_cfg *j = &a->job;
    switch (key) {
    case K_OUTPUT: j->output = arg; break;
    case K_TEXT: j->text = true; break;
    case K_LIMIT:
        if (!ps_opt_u64(arg, UINT64_MAX - 1, &j->limit))
            bad(st, name_of(key), arg, "a whole number");
        break;
    case K_ORDER: j->order_completion = CHOICE("input", "completion") == 1; break;
    case K_NO_RESUME: j->no_resume = true; break;
    case K_OVERWRITE: j->overwrite = true; break;
    case K_REPORT: j->report = arg; break;
    case K_DUMP_KV: j->dump_kv = arg; break;
    case K_TRACE: j->trace = arg; break;
    case K_PROGRESS: a->progress = (enum ps_progress_mode) CHOICE("auto", "plain", "none"); break;
    case K_DRY_RUN: j->dry_run = true; break;
    case ARGP_KEY_ARG: ps_opt_two(st, arg, "MODEL and INPUT", &a->model, &j->input); break;
    case ARGP_KEY_END:
        if (!j->input) argp_error(st, "MODEL and INPUT are expected");
        if (!j->output || !*j->output) argp_error(st, "-o OUTPUT is expected");
        if (!strcmp(j->output, "-"))
            argp_error(st, "-o -: results are renamed into place, which needs a file's name");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct ps_generate_args *a = st->input;
    if (key >= K_MAX_TOKENS && key <= K_STOP)
        generation_value(st, key, arg, &a->job.defaults);
    else if (key >= K_POLICY && key <= K_POSITIONS)
        kv_value(st, key, arg, &a->job.plan.kv_config);
    else if ((key >= K_FIRST && key < K_POLICY) || (key >= K_ATTENTION && key <= K_PREFETCH))
        machine_value(st, key, arg, a);
    else
        return job_value(st, key, arg, a);
    return 0;
}

static bool numeric(const char *s) { return s && (isdigit((unsigned char) *s) || *s == '.'); }

/* FlexGen's `--percent a b c d e f` is one option with six values: here they become one argument. */
static void join_percent(int *argc, char **argv)
{
    static char joined[256];
    for (int i = 1; i < *argc; i++) {
        int n = 0;
        if (!strcmp(argv[i], "--")) return;
        if (strcmp(argv[i], "--percent") != 0) continue;
        joined[0] = 0;
        for (; n < 6 && i + 1 + n < *argc && numeric(argv[i + 1 + n]); n++) {
            size_t at = strlen(joined);
            (void) snprintf(joined + at, sizeof joined - at, "%s%s", n ? " " : "", argv[i + 1 + n]);
        }
        if (n < 2) return;
        argv[i + 1] = joined;
        memmove(&argv[i + 2], &argv[i + 1 + n], (size_t) (*argc - i - n) * sizeof *argv);
        *argc -= n - 1;
        return;
    }
}

static char *help_filter(int key, const char *text, void *input)
{
    if (key != ARGP_KEY_HELP_POST_DOC) return (char *) (uintptr_t) text;
    char *p = ps_calloc(1, 2048);
    size_t n = 0, cap = 2048;
    if (!p) return NULL;
    n += (size_t) snprintf(p, cap, "KV policies:\n");
    for (size_t i = 0; ps_kv_policy_at(i) && n < cap; i++)
        n += (size_t) snprintf(p + n, cap - n, "  %-8s %s\n", ps_kv_policy_at(i)->name,
                               ps_kv_policy_at(i)->help);
    return p;
}

void ps_generate_parse(int argc, char **argv, struct ps_generate_args *ret)
{
    static const struct argp argp = {
        options,
        parse,
        "MODEL INPUT -o OUTPUT",
        "Runs a file of requests through a model. MODEL is a packed folder (see penstock convert); "
        "a Hugging Face folder is packed first. "
        "INPUT is JSONL, in OpenAI's Batch form or bare completion requests (- = stdin). "
        "Interrupted, the same command goes on where it was."
        "\v ",
        NULL,
        help_filter,
        NULL
    };
    struct ps_job_cfg *j = &ret->job;
    *ret = (struct ps_generate_args) { 0 };
    j->limit = j->plan.host_mem = j->plan.disk_space = ret->gpu_mem = UINT64_MAX;
    j->defaults = (struct ps_params) { .max_tokens = 16, .top_p = 1, .logprobs = -1 };
    j->plan.kv_config = ps_kv_config_default();
    for (int i = 0; i < PS_TIER__COUNT; i++)
        j->plan.weights.pct[i] = j->plan.kv.pct[i] = j->plan.hidden.pct[i] = -1;
    join_percent(&argc, argv);
    (void) argp_parse(&argp, argc, argv, 0, NULL, ret);
}
