/* SPDX-License-Identifier: Apache-2.0 */
/* A small job for tests of the scheduler: a dummy model in a temporary folder, prompts from a seed, and a record of all that came out. */
#ifndef PS_SCHED_JOB_H
#define PS_SCHED_JOB_H
#include "engine/sched/run.h"

enum { SJ_SEQS = 23, SJ_LEN = 96 };

struct sj_seq {
    struct ps_seq seq;
    int32_t prompt[SJ_LEN];
    struct ps_sample_out out[SJ_LEN];
    uint32_t n_out, n_scored, ends;
    float scored[SJ_LEN];
    uint64_t kept_sum; /* of layers, positions and score bits */
};

struct sj {
    char dir[64];
    struct ps_packed *model;
    struct sj_seq seq[SJ_SEQS];
    uint32_t n_seqs, at, stop_after; /* sweeps; 0 = never */
    uint32_t sweeps;
    bool verify_always, no_dump; /* nothing is told of what KV slabs hold at the end */
    int (*device)(const struct ps_dev_cfg *cfg, struct ps_dev **ret); /* NULL = the cpu's */
    int (*skip)(void *ud, const struct ps_sweep_shape *shape);
    void (*seen)(void); /* called in every callback; may be NULL */
    const struct ps_schedule *schedule;
    uint32_t jump_at, jump; /* of struct ps_run_io: once a sequence has so many tokens */
    ps_dev_trace *trace;    /* may be NULL */
    void *trace_ud;
    struct ps_job_stats stats;
    struct ps_run_stats run;
};

/* norm_before: OPT's usual form in 3 layers, else OPT-350M's in one. Fails the test when the model cannot be made. */
void sj_open(struct sj *j, bool norm_before);
/* A few sequences of a model whose FFN matrices are two chunks each. */
void sj_open_wide(struct sj *j);
void sj_close(struct sj *j);
/* A wish with everything on the host, one micro-batch of 4. */
struct ps_plan_req sj_req(const struct sj *j, const char *policy);
/* Plans and runs; the record is in j. */
int sj_run(struct sj *j, struct ps_plan_req *req, const struct ps_sim_cfg *sim,
           struct ps_detail *dt);
/* Whether two records of the same job hold the same bits. */
bool sj_same(const struct sj *a, const struct sj *b);
#endif
