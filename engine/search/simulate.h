/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan would do on a described machine: the scheduler itself, on the `sim` device with the machine's profile. Long jobs are
 * not run sweep by sweep: all sweeps are laid out (who is admitted, who ends), some of each kind are run, the others take the time of those
 * that are like them. */
#ifndef PS_SIMULATE_H
#define PS_SIMULATE_H
#include "engine/sched/run.h"
#include "offload/profile.h"

/* The lengths of a job's requests, in the order in which they are admitted. */
struct ps_lengths {
    uint64_t n;
    const uint32_t *prompt, *gen; /* [n]; NULL: all have the same, below */
    uint32_t each_prompt, each_gen;
};

struct ps_simulate_cfg {
    const struct ps_packed *model;
    const struct ps_plan *plan;
    const struct ps_kv_config *kv_config;
    const struct ps_profile *profile;
    const struct ps_lengths *lengths;
    const struct ps_schedule *schedule; /* NULL: ours as it is */
    bool every_sweep;                   /* run all of them */
    uint32_t most_sweeps;               /* that are run, 6 at least; 0 = as many as it takes */
    bool
        coarse; /* a look at it, to compare plans: a long job of requests of many lengths by fewer of them */
    const volatile int *stop; /* may be NULL */
    ps_dev_trace *trace;      /* of the sweeps that are run; may be NULL */
    void *trace_ud;
};

struct ps_simulated {
    struct ps_run_stats
        run; /* of the whole job, in the machine's time: bytes and busy times per queue, sweeps, tokens */
    double total_s; /* prefill + decode; loading is run.load_s */
    uint64_t sweeps_run, tasks_run;
    /* A sequence's way from its admission to its first token (mean), and to its end (mean, and 19 of 20 take less). */
    double first_token_s, end_s, end_p95_s;
    bool outside; /* something was priced beyond what was probed */
    char outside_what[160];
};

int ps_simulate(const struct ps_simulate_cfg *cfg, struct ps_simulated *ret,
                struct ps_detail *dt) ps_must_check;
#endif
