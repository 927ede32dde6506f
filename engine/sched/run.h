/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a job: sweeps over the layers until the source of sequences is dry and all that were admitted have ended. The caller (a
 * job) is asked for sequences, told of tokens, and decides when a sequence ends. All callbacks come from the thread that called
 * ps_run(), between sweeps; nothing in here allocates between a sequence's admission and its end. */
#ifndef PS_RUN_H
#define PS_RUN_H
#include "engine/plan/plan.h"
#include "offload/dev_cuda.h"

/* A request as the scheduler sees it. The job owns it, from next() to end(). */
struct ps_seq {
    const int32_t *prompt;
    uint32_t n_prompt;   /* >= 1 */
    uint32_t max_tokens; /* 0: the prompt is only scored */
    uint32_t min_tokens; /* `banned` holds for the tokens with index < min_tokens */
    const int32_t *banned;
    uint32_t n_banned;
    uint64_t key;
    float temperature, top_p;
    uint32_t top_k, n_top;
    bool score_prompt; /* log-probabilities of prompt tokens 1.. are wanted (echo + logprobs) */
    void *ud;
};

/* What a sequence's KV holds in one layer when it ends, for --dump-kv. Arrays are [kv_heads][n], positions ascending. */
struct ps_kept {
    uint32_t layer, kv_heads, n, tokens_fed;
    const int32_t *pos;
    const float *score; /* NULL without scores */
};

struct ps_run_stats {
    uint64_t sweeps, prompt_tokens, generated_tokens; /* computed so far */
    double load_s, prefill_s, decode_s;               /* sweeps with both are split by rows */
    double host_s; /* in callbacks: COMPUTE had nothing meanwhile; 0 where times are virtual */
    uint64_t evictions;
    uint32_t active; /* sequences in slots */
    struct ps_dev_stats dev;
    /* Of a plan for a GPU: */
    struct ps_dev_cuda_counts gpu;
    uint64_t decode_passes; /* (layer, micro-batch)s with decode rows alone: gpu.counted's */
    uint64_t pinned_bytes;  /* of host memory; after -PS_EPIN: how much could be */
    uint64_t load_bytes
        [PS_Q__COUNT]; /* of dev.bytes: before the first sweep, weights to where they stay */
    /* Of each tier, by whoever took it: the arenas, what the device takes of a GPU beside them, the offload file. On sim that one is not made. */
    uint64_t taken_bytes[PS_TIER__COUNT];
};

/* A sweep whose rows are laid out: what its time depends on. Sums over its micro-batches. */
struct ps_sweep_shape {
    uint64_t sweep;         /* those before it */
    uint32_t micro_batches; /* that have rows */
    uint32_t lots; /* of at most the plan's chunk_rows rows that go through a layer together */
    uint32_t prompts;
    uint64_t decode_rows, prompt_rows, head_rows;
    const uint32_t *rows; /* [micro_batches]; valid until the next sweep is laid out */
    uint64_t entries;     /* that decode rows attend to, in one layer and KV head */
    double prompt_pairs;  /* of a query and a key of prompts, causality not counted in */
    bool last;            /* none can come after it */
    /* Of the sequences under way, their requests' lengths left out. If two sweeps have the same, and all requests are alike, then what follows
     * is alike, too, as long as there are requests. */
    uint64_t state;
    uint64_t bytes[PS_Q__COUNT][PS_KIND__COUNT]; /* that it moves */
};

enum ps_go { PS_GO_ON = 0, PS_GO_STOP = 1 };

struct ps_run_io {
    void *ud;
    /* The next request in line, or 0 when there is none: 1, 0 or an error. A sequence that does not fit now is kept and
     * tried again; next() is not called for another before it. */
    int (*next)(void *ud, struct ps_seq **ret);
    /* Log-probabilities of prompt tokens first .. first + n - 1 (>= 1), in order. */
    int (*scored)(void *ud, struct ps_seq *s, uint32_t first, const struct ps_sample_out *out,
                  uint32_t n);
    /* Generated token number `index`. Sets *ret_end when it is the last; the scheduler ends it itself at max_tokens. */
    int (*token)(void *ud, struct ps_seq *s, uint32_t index, const struct ps_sample_out *out,
                 bool *ret_end);
    /* NULL, but to measure what a later sweep takes without those before it: how many tokens more than `made` the sequence is to be taken to
     * have, without anything having been computed for them; their KV is what lies there. They are not counted as generated. */
    uint32_t (*jump)(void *ud, const struct ps_seq *s, uint32_t made);
    /* Before end(), layer by layer, if cfg.dump_kv. */
    int (*kept)(void *ud, struct ps_seq *s, const struct ps_kept *kept);
    int (*end)(void *ud, struct ps_seq *s);
    /* After each sweep, when its ended sequences were handed over: PS_GO_STOP ends the run (unfinished sequences are dropped). */
    int (*sweep)(void *ud, const struct ps_run_stats *stats);
    /* With cfg->sim; may be NULL. Before a sweep: 1 = it is left out. Then its sequences move on and what it moves is counted, but it takes no
     * time: nothing is submitted, and the next that runs begins as if the last that ran had been the one before it. 0, or an error.
     * sweep() comes later, and tells of the moment when the tokens of the sweep before were there. */
    int (*skip)(void *ud, const struct ps_sweep_shape *shape);
};

/* Other schedules than ours, to see what it brings (bench, and the papers' tables in simulation). */
struct ps_schedule {
    bool no_overlap; /* a task begins when the one before it is done */
    /* FlexGen's: each (layer, micro-batch) ends with all queues waited for. Meanwhile the next layer's weights come (all with the first
     * micro-batch), the next slab and hidden state, and what the last one left goes home; nothing deeper. Best with a prefetch of 1. */
    bool barrier;
    bool
        no_continuous; /* a block is filled anew only when all its sequences have ended, and ends with the longest */
};

struct ps_run_cfg {
    const struct ps_packed *model;
    const struct ps_plan *plan;
    const struct ps_kv_config *kv_config;
    const char *
        offload_dir; /* where the KV and hidden file goes; used only if the plan puts something on disk */
    const char *io;       /* "uring", "pread", NULL = best */
    uint32_t queue_depth; /* 0 = default */
    unsigned threads;
    const char *numa_nodes;
    bool verify_always, dump_kv;
    const struct ps_schedule *schedule; /* NULL: ours as it is */
    /* Not NULL: nothing is read or computed, times are virtual; every token is 0. Whether there is a GPU is the plan's to say; without
     * a trace of its own it has this one. */
    const struct ps_sim_cfg *sim;
    const struct ps_cuda_api *cuda; /* the GPU that a plan with gpu_bytes is run on */
    const char
        *near_pci; /* where it is: memory of its node is taken unless numa_nodes says other */
    /* Opens another device instead (tests); the GPU's memory is then memory of the host. */
    int (*device)(const struct ps_dev_cfg *cfg, struct ps_dev **ret);
    ps_dev_trace *trace;
    void *trace_ud;
    void (*warn)(void *ud, const char *text); /* may be NULL */
    void *warn_ud;
};
/* 0, PS_GO_STOP when sweep() asked for it, or an error. The offload file is gone when it returns. -PS_EPIN: less host memory can be
 * pinned than the plan wants; no callback was called yet, and *ret says how much can be, for another plan. */
int ps_run(const struct ps_run_cfg *cfg, const struct ps_run_io *io, struct ps_run_stats *ret,
           struct ps_detail *dt) ps_must_check;
#endif
