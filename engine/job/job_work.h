/* SPDX-License-Identifier: Apache-2.0 */
/* What a job has in hand while it runs. Private to this folder: job.c, and job_open.c for all that comes before the plan. */
#ifndef PS_JOB_WORK_H
#define PS_JOB_WORK_H
#include "engine/job/feed.h"
#include "engine/job/input.h"
#include "engine/job/job.h"
#include <sys/stat.h>

struct ps_job_work {
    const struct ps_job_cfg *cfg;
    struct ps_job_result *ret;
    struct ps_detail *dt;
    double t0;
    int in_fd;
    struct stat in_stat;
    struct ps_ident ident;
    uint64_t job;
    bool journal_open, planned, resume; /* resume: the journal is this job's */
    struct ps_output output;
    struct ps_journal journal;
    struct ps_spool spool;
    struct ps_table table;
    struct ps_first first;
    struct ps_plan_req req;
    struct ps_plan plan;
    struct ps_simulated predicted; /* run.sweeps 0: not simulated */
    struct ps_feed feed;
    struct ps_trace *trace;
};

/* INPUT, and what identifies the job. */
int ps_job_open_input(struct ps_job_work *w) ps_must_check;
/* OUTPUT's lock and journal (of a dry run: what they would say). 1: the job is done, and nothing is left to do. */
int ps_job_open_output(struct ps_job_work *w) ps_must_check;
/* The first pass over INPUT. */
int ps_job_read_input(struct ps_job_work *w) ps_must_check;

/* Counts results that are there already. */
void ps_job_use_done(struct ps_job_work *w, const struct ps_done *d);
/* Tells the caller how far it is. */
void ps_job_phase(const struct ps_job_work *w, enum ps_job_phase ph, uint64_t done);
#endif
