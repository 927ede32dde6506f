/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say how a job is to be run: of generate, and of the commands that plan for one. A value is read without argp, too, so
 * that a sweep can set it. */
#include "engine/cli/engine_options.h"
#include "engine/base/ps_mem.h"
#include "offload/dev.h"
#include "offload/store.h"
#include "policy/kv/policy.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum key {
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
};

static const struct argp_option options[] = {
    { NULL, 0, NULL, 0, "Memory and placement (sizes as 512M, 8G: powers of 1024):", 3 },
    { "host-mem", K_HOST_MEM, "SIZE", 0, "most host memory (default 80 % of what is available)",
      3 },
    { "gpu-mem", K_GPU_MEM, "SIZE", 0,
      "most GPU memory (default all that is free, less 5 %); 0 = no GPU is used", 3 },
    { "disk-space", K_DISK_SPACE, "SIZE", 0,
      "most disk space for KV and activations (default 90 % of what is free)", 3 },
    { "offload-dir", K_OFFLOAD_DIR, "DIR", 0,
      "where KV and activations on disk go (default beside OUTPUT); made if it is missing, emptied "
      "at the end",
      3 },
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
    { "prefetch", K_PREFETCH, "N", 0, "layers read ahead, 0 or more (default auto)", 5 },
    { "verify", K_VERIFY, "once|always", 0,
      "check weights when first read (default), or at every read", 5 },
    { 0 },
};

static const char *name_of(int key)
{
    for (const struct argp_option *o = options; o->name || o->doc; o++)
        if (o->name && o->key == key) return o->name;
    return NULL;
}

/* What is being set, and the words for what cannot be read. */
struct value {
    int key;
    char *arg;
    struct ps_detail *dt;
};

static int bad(const struct value *v, const char *expected)
{
    return ps_fail(v->dt, -PS_EUSAGE, "--%s %s: %s was expected", name_of(v->key), v->arg,
                   expected);
}

static int size_value(const struct value *v, uint64_t *ret)
{
    return ps_opt_size(v->arg, ret) ? 0 : bad(v, "a size as 512M or 8G");
}

static int count_value(const struct value *v, uint32_t max, uint32_t *ret)
{
    char expected[64];
    uint32_t n = 0;
    (void) snprintf(expected, sizeof expected, "a whole number from 1 to %" PRIu32, max);
    if (!ps_opt_u32(v->arg, 1, &n) || n > max) return bad(v, expected);
    *ret = n;
    return 0;
}

static int prefetch_value(const struct value *v, uint32_t *ret)
{
    const uint32_t most = PS_PREFETCH_NONE - 1;
    uint32_t n = 0;
    if (!ps_opt_u32(v->arg, 0, &n) || n > most)
        return ps_fail(v->dt, -PS_EUSAGE,
                       "--prefetch %s: a whole number from 0 to %" PRIu32 " was expected", v->arg,
                       most);
    *ret = n ? n : PS_PREFETCH_NONE;
    return 0;
}

static int entries_value(const struct value *v, int64_t *ret)
{
    uint64_t n = 0;
    if (!ps_opt_u64(v->arg, UINT32_MAX, &n)) return bad(v, "a whole number of entries");
    *ret = (int64_t) n;
    return 0;
}

static int shares_value(const struct value *v, struct ps_shares *ret)
{
    return ps_opt_shares(v->arg, ret)
               ? 0
               : bad(v, "auto, or shares as gpu:20,host:50,disk:30 that add up to 100,");
}

static int choice(const struct value *v, const char *const *words)
{
    char expected[128];
    int r = ps_opt_choice(v->arg, words, expected);
    return r < 0 ? bad(v, expected) : r;
}
#define CHOICE(...) choice(v, (const char *const[]) { __VA_ARGS__, NULL })

static int policy_value(const struct value *v, struct ps_kv_config *kv)
{
    char names[256] = "";
    if (ps_kv_policy_find(v->arg)) {
        kv->policy = v->arg;
        return 0;
    }
    for (size_t i = 0; ps_kv_policy_at(i); i++) {
        size_t n = strlen(names);
        (void) snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                        ps_kv_policy_at(i)->name);
    }
    return ps_fail(v->dt, -PS_EUSAGE, "--kv-policy %s: not supported; there are %s", v->arg, names);
}

static int budget_value(const struct value *v, struct ps_kv_config *kv)
{
    kv->budget = -1;
    kv->budget_share = -1;
    if (!strchr(v->arg, '%')) return entries_value(v, &kv->budget);
    return ps_opt_percent(v->arg, &kv->budget_share)
               ? 0
               : bad(v, "a share as 20% or a number of entries");
}

static int kv_value(const struct value *v, struct ps_kv_config *kv)
{
    int r = 0;
    switch (v->key) {
    case K_POLICY: return policy_value(v, kv);
    case K_BUDGET: return budget_value(v, kv);
    case K_RATIO:
        if (ps_opt_double(v->arg, &kv->heavy_ratio) && kv->heavy_ratio >= 0 && kv->heavy_ratio <= 1)
            return 0;
        return bad(v, "a number from 0 to 1");
    case K_HEAVY: return entries_value(v, &kv->heavy);
    case K_RECENT: return entries_value(v, &kv->recent);
    case K_SINKS: return entries_value(v, &kv->sinks);
    case K_BUDGET_OF:
        r = CHOICE("total", "prompt");
        if (r >= 0) kv->budget_of = r ? PS_BUDGET_OF_PROMPT : PS_BUDGET_OF_TOTAL;
        break;
    case K_KV_DTYPE:
        r = CHOICE("f16", "f32");
        if (r >= 0) kv->type = r ? PS_F32 : PS_F16;
        break;
    case K_POSITIONS:
        r = CHOICE("true", "cache");
        if (r >= 0) kv->positions_cache = r;
        break;
    default:
        return ps_fail(v->dt, -PS_EUSAGE, "--%s: none of this version's KV policies has it",
                       name_of(v->key));
    }
    return r < 0 ? r : 0;
}

static int placement_value(const struct value *v, struct ps_engine_args *a)
{
    struct ps_plan_req *q = &a->plan;
    switch (v->key) {
    case K_WEIGHTS: return shares_value(v, &q->weights);
    case K_KV: return shares_value(v, &q->kv);
    case K_HIDDEN: return shares_value(v, &q->hidden);
    case K_PERCENT:
        return ps_opt_six(v->arg, &q->weights, &q->kv, &q->hidden)
                   ? 0
                   : bad(v, "six numbers from 0 to 100, each pair at most 100 together,");
    case K_BATCH: return count_value(v, UINT32_MAX, &q->gpu_batch_size);
    case K_BATCHES: return count_value(v, UINT32_MAX, &q->num_gpu_batches);
    default: return count_value(v, UINT32_MAX, &q->prefill_tokens);
    }
}

static int machine_value(const struct value *v, struct ps_engine_args *a)
{
    static const char *const stores[] = { "uring", "pread" };
    int r = 0;
    switch (v->key) {
    case K_HOST_MEM: return size_value(v, &a->plan.host_mem);
    case K_GPU_MEM: return size_value(v, &a->gpu_mem);
    case K_DISK_SPACE: return size_value(v, &a->plan.disk_space);
    case K_OFFLOAD_DIR: a->offload_dir = v->arg; break;
    case K_PACK_DIR: a->pack_dir = v->arg; break;
    case K_NUMA: a->run.numa_nodes = v->arg; break;
    case K_THREADS: return count_value(v, PS_THREADS_MAX, &a->plan.threads);
    case K_DEPTH: return count_value(v, PS_STORE_DEPTH_MAX, &a->run.queue_depth);
    case K_PREFETCH: return prefetch_value(v, &a->plan.prefetch);
    case K_ATTENTION:
        r = CHOICE("auto", "gpu", "host");
        if (r >= 0) a->plan.attention = (enum ps_attention_at) r;
        break;
    case K_IO:
        r = CHOICE("uring", "pread");
        if (r >= 0) a->run.io = stores[r];
        break;
    default:
        r = CHOICE("once", "always");
        if (r >= 0) a->run.verify_always = r == 1;
        break;
    }
    return r < 0 ? r : 0;
}

static int set(const struct value *v, struct ps_engine_args *a)
{
    if (v->key >= K_POLICY && v->key <= K_POSITIONS) return kv_value(v, &a->plan.kv_config);
    if (v->key >= K_WEIGHTS && v->key <= K_PREFILL) return placement_value(v, a);
    return machine_value(v, a);
}

int ps_engine_set(struct ps_engine_args *a, const char *name, char *arg, struct ps_detail *dt)
{
    for (const struct argp_option *o = options; o->name || o->doc; o++)
        if (o->name && !strcmp(o->name, name))
            return set(&(const struct value) { o->key, arg, dt }, a);
    return -ENOENT;
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct ps_engine_args *a = st->input;
    struct ps_detail dt = { "" };
    if (!name_of(key)) return ARGP_ERR_UNKNOWN;
    if (set(&(const struct value) { key, arg, &dt }, a) < 0) argp_error(st, "%s", dt.text);
    if (key == K_PERCENT) a->percent = true;
    if (key == K_WEIGHTS || key == K_KV || key == K_HIDDEN) a->shares = name_of(key);
    if (a->percent && a->shares)
        argp_error(st,
                   "--percent says all that --weights, --kv and --hidden do; leave out it or --%s",
                   a->shares);
    return 0;
}

const struct argp ps_engine_argp = { .options = options, .parser = parse };

static char *plan_help(int key, const char *text, void *input)
{
    static const struct {
        int key;
        const char *text;
    } here[] = {
        { K_HOST_MEM, "most host memory (default 80 % of what the hardware has)" },
        { K_GPU_MEM,
          "most GPU memory (default all of the hardware's, less 5 %); 0 = no GPU is used" },
        { K_DISK_SPACE,
          "most disk space for KV and activations (default 90 % of what the hardware has)" },
        { K_OFFLOAD_DIR, "where a quick probe measures the disk (default: the current folder)" },
        { K_IO, "how a quick probe reads the disk (default: io_uring where it is allowed)" },
        { K_THREADS, "worker threads (default: those that the hardware was probed with, or has)" },
        { K_PACK_DIR, "generate's; nothing is packed here" },
        { K_NUMA, "generate's; changes no plan" },
        { K_DEPTH, "generate's; changes no plan" },
        { K_VERIFY, "generate's; changes no plan" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(here); i++)
        if (here[i].key == key) return strdup(here[i].text);
    return (char *) (uintptr_t) text;
}

const struct argp ps_engine_plan_argp = { .options = options,
                                          .parser = parse,
                                          .help_filter = plan_help };

void ps_engine_args_init(struct ps_engine_args *ret)
{
    *ret = (struct ps_engine_args) { 0 };
    ret->plan.host_mem = ret->plan.disk_space = ret->gpu_mem = UINT64_MAX;
    ret->plan.kv_config = ps_kv_config_default();
    for (int i = 0; i < PS_TIER__COUNT; i++)
        ret->plan.weights.pct[i] = ret->plan.kv.pct[i] = ret->plan.hidden.pct[i] = -1;
}

static bool on_gpu(const struct ps_shares *s) { return s->pct[PS_TIER_GPU] > 0; }

const char *ps_engine_needs_gpu(const struct ps_plan_req *q)
{
    if (on_gpu(&q->weights) || on_gpu(&q->kv) || on_gpu(&q->hidden))
        return "--weights, --kv, --hidden, --percent: a share on a GPU";
    return q->attention == PS_ATTENTION_GPU ? "--attention gpu" : NULL;
}

static bool numeric(const char *s) { return s && (isdigit((unsigned char) *s) || *s == '.'); }

void ps_engine_join(int *argc, char **argv)
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

char *ps_engine_help(int key, const char *text, void *input)
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
