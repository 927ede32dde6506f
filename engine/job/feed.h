/* SPDX-License-Identifier: Apache-2.0 */
/* Between the scheduler and the job's files: hands out requests in the input's order, takes tokens, writes records when
 * sequences end. Errors of the job's own files are told in `dt`. */
#ifndef PS_FEED_H
#define PS_FEED_H
#include "engine/job/first_pass.h"
#include "engine/job/job.h"
#include "engine/job/journal.h"
#include "engine/job/output.h"
#include "engine/job/record.h"

struct ps_feed {
    const struct ps_job_cfg *cfg;
    struct ps_spool *spool;
    struct ps_table *table;
    struct ps_slots slots;
    struct ps_recorder rec;
    struct ps_output *output;
    struct ps_journal *journal;
    struct ps_job_result *result;
    struct ps_detail dt; /* of an error of a callback; empty if it was not ours */
    int32_t eos;
    uint32_t cursor;   /* the next request to look at */
    uint64_t expected; /* tokens of all requests at most */
    double ended;      /* those of the requests that are done; of earlier runs' an estimate */
    uint64_t before;   /* generated tokens of earlier runs */
    double t0, output_s, journal_at;
    bool gpu;                   /* the plan is for one */
    double base[PS_SUM__COUNT]; /* what is known of this run's sums before it begins: tokenising */
    struct ps_run_stats last;
};

/* Callbacks for ps_run(); `f` is set up by the job. */
struct ps_run_io ps_feed_io(struct ps_feed *f);
/* Writes the records of failed lines from the cursor on, as next() does, for a job without any other. */
int ps_feed_drain(struct ps_feed *f) ps_must_check;
/* This run's sums so far, from the scheduler's statistics. */
void ps_feed_sums(const struct ps_feed *f, const struct ps_run_stats *st,
                  double ret[PS_SUM__COUNT]);
#endif
