/* SPDX-License-Identifier: Apache-2.0 */
/* KV policies: which entries of a layer's KV stay. A policy is a row of one table: its name, what it needs, how it keeps, and which
 * options it takes. The kernels do the keeping (struct ps_keep: sinks, heavy, recent); a row says how options become that triple.
 * Definition of each: tests/oracle/oracle.py; sources: H2O arXiv 2306.14048, StreamingLLM arXiv 2309.17453. Pure: no I/O, no clock. */
#ifndef PS_POLICY_H
#define PS_POLICY_H
#include "engine/base/ps_dtype.h"
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include "kernels/ops.h"

enum ps_budget_of { PS_BUDGET_OF_TOTAL, PS_BUDGET_OF_PROMPT };

/* What was asked for. Zero-initialise, set name; -1 means "not given". */
struct ps_kv_config {
    const char *policy;           /* "full", "local", "sink", "h2o" */
    double budget_share;          /* percent, or -1 */
    int64_t budget;               /* entries, or -1 */
    double heavy_ratio;           /* of what is left after sinks; -1 = 0.5 */
    int64_t heavy, recent, sinks; /* the split in entries instead; -1 each */
    enum ps_budget_of budget_of;
    enum ps_dtype type;  /* of stored K and V: PS_F16 or PS_F32 */
    int positions_cache; /* --kv-positions: 0 true, 1 cache, -1 default */
};

struct ps_kv_split {
    struct ps_keep keep;
    bool scores; /* the policy needs score sums */
};

struct ps_kv_policy {
    const char *name, *help; /* one line for --help */
    bool scores;
    /* Fills the split for a length (the job's longest total, or a prompt's own). */
    int (*resolve)(const struct ps_kv_config *c, uint32_t length, struct ps_kv_split *ret,
                   struct ps_detail *dt);
};

const struct ps_kv_policy *ps_kv_policy_find(const char *name); /* NULL if there is none */
const struct ps_kv_policy *ps_kv_policy_at(size_t i);           /* NULL past the end */

/* Defaults for every field of a config. */
struct ps_kv_config ps_kv_config_default(void);
/* The split for a sequence: `longest` is max(prompt + max_tokens) over the job, `prompt` its own prompt. A share is rounded half up,
 * at least 1 entry. Errors name the option. */
int ps_kv_resolve(const struct ps_kv_config *c, uint32_t longest, uint32_t prompt,
                  struct ps_kv_split *ret, struct ps_detail *dt) ps_must_check;
/* Entries that stay of n: min(n, sinks + heavy + recent). */
uint32_t ps_keep_cap(const struct ps_keep *k, uint32_t n);
/* Bytes of a slab of `cap` entries: K and V, and scores and positions. */
uint64_t ps_slab_kv_bytes(uint32_t kv_heads, uint32_t d, enum ps_dtype type, uint32_t cap);
uint64_t ps_slab_meta_bytes(uint32_t kv_heads, bool scores, uint32_t cap);
#endif
