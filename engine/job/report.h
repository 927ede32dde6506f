/* SPDX-License-Identifier: Apache-2.0 */
/* The report: one JSON object about the whole job. What is not known is null. */
#ifndef PS_REPORT_H
#define PS_REPORT_H
#include "engine/job/job.h"
#include <math.h>

struct ps_report {
    const struct ps_job_cfg *cfg;
    const struct ps_job_result *result;
    const struct ps_plan *plan; /* NULL: nothing was planned */
    const struct ps_plan_req *req;
    const struct ps_simulated
        *predicted; /* by simulation, of the whole job; NULL: there was none */
};
static inline bool ps_report_on_gpu(const struct ps_report *r)
{
    return r->plan && r->plan->gpu_bytes;
}
/* Of what did the arithmetic; 0 = not known: the GPU was looked at, and the plan is one without it. */
static inline double ps_report_probed_flops(const struct ps_report *r)
{
    return ps_report_on_gpu(r) == (r->cfg->gpu != NULL) ? r->cfg->probed.flops : 0;
}
/* Something ran: a job that was complete before this run left no sums. */
static inline bool ps_report_timed(const struct ps_report *r)
{
    return r->result->sums[PS_SUM_TOTAL_S] > 0;
}
/* NAN where there is nothing to divide by. */
static inline double ps_ratio(double a, double b) { return b > 0 ? a / b : NAN; }
/* Written beside, renamed to `path`. */
int ps_report_write(const struct ps_report *r, const char *path,
                    struct ps_detail *dt) ps_must_check;
/* report_moved.c: links, waits, memory, GPU; and what was predicted of them. */
struct ps_jobj;
void ps_report_put_moved(struct ps_jobj *top, const struct ps_report *r);
void ps_report_put_predicted(struct ps_jobj *top, const struct ps_report *r);
/* limit.c: what limited the run, in words, into ret_text; empty when it cannot be told, or nothing took a tenth of the time. */
void ps_report_limit(const struct ps_report *r, char *ret_text, size_t n);
/* The process's greatest resident size so far; 0 = not known. */
uint64_t ps_peak_rss_bytes(void);
#endif
