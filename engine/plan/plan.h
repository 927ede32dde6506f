/* SPDX-License-Identifier: Apache-2.0 */
/* From what is wanted and what there is, to a plan: batch shape, placement of every chunk, KV slab and hidden state, and the
 * memory it takes, itemised. The arithmetic is the arenas' own (an arena opened with `measure`), so a plan that is accepted fits. */
#ifndef PS_PLAN_H
#define PS_PLAN_H
#include "engine/checkpoint/pack.h"
#include "policy/kv/policy.h"

enum ps_tier { PS_TIER_GPU, PS_TIER_HOST, PS_TIER_DISK, PS_TIER__COUNT };

/* Wanted shares in percent; gpu < 0 = auto. They add up to 100. */
struct ps_shares {
    double pct[PS_TIER__COUNT];
};

/* What the first pass over the input found, over the valid lines. */
struct ps_job_stats {
    uint64_t requests;
    uint64_t prompt_tokens, max_new_tokens; /* sums */
    uint32_t longest_prompt, longest_total; /* prompt + max_tokens */
    uint32_t most_top;                      /* most logprobs asked for */
    uint32_t most_banned;                   /* most ids that a sequence must not end with yet */
    bool scores_prompts;                    /* some line wants echo + logprobs */
};

/* What the links do, in bytes/s and flop/s, for choosing among plans; 0 = a cautious guess. */
struct ps_rates {
    double disk_read, disk_write, dram, gemm; /* gemm: of the host's cores */
    double h2d, d2h, hbm, gpu_gemm;           /* of the GPU, if there is one */
};

/* The GPU to plan for. */
struct ps_plan_gpu {
    uint64_t mem_bytes; /* of it, that may be used; 0: there is none, or none is wanted */
    uint32_t sm;        /* 75, 90, ...: picks the kernels whose scratch is counted */
    bool asked;         /* by an option, so that a plan without it is no answer */
};

/* Where decode attention over KV that does not lie on the GPU runs. */
enum ps_attention_at { PS_ATTENTION_AUTO, PS_ATTENTION_GPU, PS_ATTENTION_HOST };

#define PS_PREFETCH_NONE UINT32_MAX

struct ps_plan_req {
    const struct ps_packed *model;
    struct ps_job_stats job;
    uint64_t host_mem, disk_space; /* bytes that may be used */
    uint64_t host_most; /* what host_mem could be at most on this machine; 0 = not known */
    /* The folder that disk_space is of and what is free there; NULL = not known. The path lives as long as the request. */
    const char *disk_folder;
    uint64_t disk_free;
    bool no_disk; /* nothing lies on disk, weights neither: it cannot be said how fast that is */
    struct ps_plan_gpu gpu;
    uint64_t
        pin_max; /* bytes of host memory that can be pinned for the GPU; 0 = all of it, 1 = none */
    enum ps_attention_at attention;
    struct ps_shares weights, kv, hidden;
    uint32_t gpu_batch_size, num_gpu_batches, prefill_tokens; /* 0 = auto */
    struct ps_kv_config kv_config;                            /* policy, budget, type */
    unsigned threads;
    uint32_t prefetch;   /* layers read ahead; 0 = auto, PS_PREFETCH_NONE = none */
    uint32_t chunk_rows; /* rows that go through a layer's steps together, at most; 0 = auto */
    struct ps_rates rates;
};

struct ps_plan {
    uint32_t slots, micro_batches; /* slots per micro-batch */
    uint32_t prefill_tokens;       /* most prompt tokens admitted in one sweep */
    uint32_t chunk_rows;           /* rows that go through a layer's steps together */
    uint32_t kv_cap;               /* entries of a slab (full: of the longest) */
    uint32_t prefetch;
    struct ps_kv_split split; /* resolved budget */
    /* realised placement */
    uint64_t weight_bytes[PS_TIER__COUNT], kv_bytes[PS_TIER__COUNT], hidden_bytes[PS_TIER__COUNT];
    uint64_t host_bytes, disk_bytes; /* all that is taken */
    uint64_t gpu_bytes;              /* what the device takes beside it included */
    uint64_t pinned_bytes;           /* of host_bytes */
    uint32_t host_slabs; /* KV slabs whose decode attention runs on the host beside a GPU */
    double predicted_s;  /* of the whole job, from the rates alone */
    struct ps_plan_detail *detail; /* the scheduler's: placement per chunk and slab */
};

/* The `n` best plans by the closed form (16 at most), best first, *ret_n of them (>= 1): they differ in shape, where KV lies and is attended to,
 * or prompt tokens, and take half as long again as the best at most. 0; -PS_EBUDGET when nothing fits (`*ret_text`, if not NULL, gets the
 * itemised table and the smallest budget or nearest plan that fits; the caller frees it); another error for wishes that cannot be (a GPU
 * share). Each is released with ps_plan_done(). */
int ps_plan_best(const struct ps_plan_req *req, unsigned n, struct ps_plan *ret, unsigned *ret_n,
                 char **ret_text, struct ps_detail *dt) ps_must_check;
/* The best one. */
int ps_plan_make(const struct ps_plan_req *req, struct ps_plan *ret, char **ret_text,
                 struct ps_detail *dt) ps_must_check;
/* For where so little can be pinned that no plan for the GPU fits: takes the GPU out of the request. False: there is none in it, or it is asked for. */
bool ps_plan_leave_gpu(struct ps_plan_req *req) ps_must_check;
/* The memory table and the shape, for --dry-run and logs; the caller frees it. NULL when out of memory. */
char *ps_plan_text(const struct ps_plan_req *req, const struct ps_plan *plan);
void ps_plan_done(struct ps_plan *p);
#endif
