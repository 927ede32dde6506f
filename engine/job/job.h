/* SPDX-License-Identifier: Apache-2.0 */
/* A batch job: from a file of prompts to a file of results, once, whatever happens in between. The job owns its files and its
 * requests; the plan and the run are somebody else's, reached through struct ps_job_engine so that tests can put a toy
 * in their place. One thread; only the trace is written from others. */
#ifndef PS_JOB_H
#define PS_JOB_H
#include "engine/job/request.h"
#include "engine/plan/plan.h"
#include "engine/sched/run.h"
#include "engine/search/simulate.h"
#include "engine/tokenizer/tokenizer.h"
#include <signal.h>

struct ps_job_engine {
    /* lengths: of the valid requests, or their mean if there are very many. ret_predicted: what a simulation of the plan says, zeros if
     * there was none. */
    int (*plan_make)(void *ud, const struct ps_plan_req *req, const struct ps_lengths *lengths,
                     struct ps_plan *ret, struct ps_simulated *ret_predicted, char **ret_text,
                     struct ps_detail *dt);
    char *(*plan_text)(const struct ps_plan_req *req, const struct ps_plan *plan);
    void (*plan_done)(struct ps_plan *p);
    int (*run)(const struct ps_run_cfg *cfg, const struct ps_run_io *io, struct ps_run_stats *ret,
               struct ps_detail *dt);
    void *ud; /* plan_make's */
};

enum ps_job_phase { PS_JOB_READING, PS_JOB_RUNNING, PS_JOB_ORDERING };
struct ps_job_progress {
    enum ps_job_phase phase;
    uint64_t done, total;     /* requests; total 0 = not known yet */
    uint64_t generated;       /* tokens, of this run */
    uint32_t active;          /* sequences under way */
    double elapsed_s, left_s; /* left_s < 0: not known */
};

/* Rates that a quick probe found, to compare with; 0 = not known. */
struct ps_job_probed {
    double disk_read, disk_write, dram, h2d, d2h, hbm, flops;
};

struct ps_job_cfg {
    const struct ps_packed *model;
    const struct ps_tok *tok; /* NULL: the model has none */
    const char *input;        /* "-" = stdin */
    const char *output;
    const char *report, *dump_kv, *trace; /* NULL = not wanted */
    bool text, order_completion, no_resume, overwrite, dry_run;
    uint64_t limit;   /* UINT64_MAX = all */
    uint64_t ids_mem; /* bytes that the first pass may take to find custom_ids that come twice */
    struct ps_params defaults;      /* of lines that do not say */
    struct ps_plan_req plan;        /* model and job are filled in */
    struct ps_run_cfg run;          /* model, plan, kv_config, trace and dump_kv are filled in */
    const struct ps_cuda_info *gpu; /* the GPU of plan.gpu, for the report; may be NULL */
    struct ps_job_engine engine;
    struct ps_job_probed probed;
    const volatile sig_atomic_t
        *stop; /* a signal came: finish the sweep and keep the state; may be NULL */
    void (*progress)(void *ud, const struct ps_job_progress *p);
    void (*warn)(void *ud, const char *text);
    void *ud;
    int64_t now; /* Unix time of the start; 0 = ask the clock (tests) */
};

/* Sums over all runs of a job, kept in its journal. */
enum ps_sum {
    PS_SUM_LOAD_S,
    PS_SUM_PREFILL_S,
    PS_SUM_DECODE_S,
    PS_SUM_TOTAL_S,
    PS_SUM_TOKENIZER_S,
    PS_SUM_OUTPUT_S,
    PS_SUM_SWEEPS,
    PS_SUM_EVICTIONS,
    PS_SUM_WAIT_WEIGHTS_S,
    PS_SUM_WAIT_KV_S,
    PS_SUM_COMPUTE_S,
    PS_SUM_FLOPS,
    PS_SUM_DRAM_BYTES, /* of kernels on the host */
    PS_SUM_HBM_BYTES,  /* of kernels on a GPU */
    PS_SUM_LAUNCHES,   /* what was asked of a GPU */
    PS_SUM_CALLS,
    PS_SUM_COPIES,
    PS_SUM_EVENTS,
    PS_SUM_STREAM_WAITS,
    PS_SUM_HOST_SYNCS,
    PS_SUM_DECODE_PASSES,
    PS_SUM_DECODE_LAUNCHES, /* for those: launches and calls */
    PS_SUM_DECODE_COPIES,
    PS_SUM_DECODE_EVENTS,
    PS_SUM_DECODE_WAITS,
    PS_SUM_Q_BYTES,                               /* and the other queues */
    PS_SUM_Q_S = PS_SUM_Q_BYTES + PS_Q__COUNT,    /* busy seconds of each */
    PS_SUM_LOAD_BYTES = PS_SUM_Q_S + PS_Q__COUNT, /* of each one's bytes, by loading */
    PS_SUM__COUNT = PS_SUM_LOAD_BYTES + PS_Q__COUNT
};

struct ps_job_result {
    uint64_t requests, done, failed, prompt_tokens, generated_tokens; /* of the whole job */
    uint64_t resumed; /* results that were there already */
    bool already_done, interrupted;
    char *plan_text; /* the table of a plan that does not fit, or of --dry-run; freed by done() */
    double sums[PS_SUM__COUNT];
    uint64_t pinned_bytes;                /* by the last run */
    uint64_t taken_bytes[PS_TIER__COUNT]; /* likewise; host 0: nothing was run */
    char limit[160];                      /* what limited the run, in words; "" = not known */
};

/* 0 (see ret->interrupted), or an error: -PS_EBUDGET with plan_text; -PS_ECONFLICT when files belong to another job, -EBUSY when
 * another process works on OUTPUT; anything else with a detail. Fill *ret with zeros before; call done() after. */
int ps_job_run(const struct ps_job_cfg *cfg, struct ps_job_result *ret,
               struct ps_detail *dt) ps_must_check;
void ps_job_result_done(struct ps_job_result *r);
#endif
