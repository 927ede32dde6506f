/* SPDX-License-Identifier: Apache-2.0 */
/* What limited a run, from the sums of its queues' times and bytes. */
#include "engine/job/report.h"
#include <math.h>
#include <stdio.h>

static void rate_text(char *t, size_t n, double bytes, double s, double probed)
{
    const int k = snprintf(t, n, "%.2f GB/s", bytes / s / 1e9);
    if (!(probed > 0) || k < 0 || (size_t) k >= n) return;
    if (bytes / s > probed * 1.005) /* what the probe found was not the limit */
        (void) snprintf(t + k, n - (size_t) k, ", more than the %.2f that the probe found",
                        probed / 1e9);
    else
        (void) snprintf(t + k, n - (size_t) k, ", %.0f %% of what the probe found",
                        100 * bytes / s / probed);
}

static void disk_limit(const struct ps_report *r, char *text, size_t n)
{
    const double *s = r->result->sums;
    char rate[96] = "";
    rate_text(rate, sizeof rate, s[PS_SUM_Q_BYTES + PS_Q_READ], s[PS_SUM_Q_S + PS_Q_READ],
              r->cfg->probed.disk_read);
    (void) snprintf(text, n, "reading %s from disk (%s)",
                    s[PS_SUM_WAIT_WEIGHTS_S] >= s[PS_SUM_WAIT_KV_S] ? "weights" : "KV", rate);
}

static void compute_limit(const struct ps_report *r, char *text, size_t n)
{
    const double *s = r->result->sums, compute = s[PS_SUM_COMPUTE_S];
    const struct ps_job_probed *p = &r->cfg->probed;
    const double flops = ps_report_probed_flops(r);
    char rate[96] = "";
    double dram = p->dram > 0 ? s[PS_SUM_DRAM_BYTES] / compute / p->dram : 0;
    double gemm = flops > 0 ? s[PS_SUM_FLOPS] / compute / flops : 0;
    if (dram > gemm) {
        rate_text(rate, sizeof rate, s[PS_SUM_DRAM_BYTES], compute, p->dram);
        (void) snprintf(text, n, "memory bandwidth (%s)", rate);
    } else {
        (void) snprintf(text, n, "arithmetic (%.1f GFLOP/s%s)", s[PS_SUM_FLOPS] / compute / 1e9,
                        gemm > 0 ? ", the probe's GEMM is the measure" : "");
    }
}

/* Beside a GPU everything overlaps: what was busy longest. (What UP has done is in H2D's sums.) */
static void gpu_limit(const struct ps_report *r, char *text, size_t n)
{
    const double *s = r->result->sums, *busy = s + PS_SUM_Q_S;
    const struct ps_job_probed *p = &r->cfg->probed;
    const struct {
        const char *what;
        double bytes, probed;
    } of[PS_Q__COUNT] = {
        [PS_Q_HOST] = { "attention on the host", s[PS_SUM_DRAM_BYTES], p->dram },
        [PS_Q_H2D] = { "copies to the GPU", s[PS_SUM_Q_BYTES + PS_Q_H2D], p->h2d },
        [PS_Q_D2H] = { "copies from the GPU", s[PS_SUM_Q_BYTES + PS_Q_D2H], p->d2h },
        [PS_Q_WRITE] = { "writing KV to disk", s[PS_SUM_Q_BYTES + PS_Q_WRITE], p->disk_write },
    };
    char rate[96] = "";
    enum ps_q most = PS_Q_COMPUTE;
    for (int q = 0; q < PS_Q__COUNT; q++)
        if (busy[q] > busy[most]) most = (enum ps_q) q;
    if (most == PS_Q_READ) {
        disk_limit(r, text, n);
    } else if (of[most].what) {
        rate_text(rate, sizeof rate, of[most].bytes, busy[most], of[most].probed);
        (void) snprintf(text, n, "%s (%s)", of[most].what, rate);
    } else {
        (void) snprintf(text, n, "the GPU (%.0f GFLOP/s, %.1f GB/s of its memory)",
                        s[PS_SUM_FLOPS] / busy[most] / 1e9, s[PS_SUM_HBM_BYTES] / busy[most] / 1e9);
    }
}

void ps_report_limit(const struct ps_report *r, char *ret_text, size_t n)
{
    const double *s = r->result->sums;
    double compute = s[PS_SUM_COMPUTE_S], wait = s[PS_SUM_WAIT_WEIGHTS_S] + s[PS_SUM_WAIT_KV_S];
    double files = s[PS_SUM_OUTPUT_S] + s[PS_SUM_TOKENIZER_S];
    ret_text[0] = 0;
    double most = fmax(files, fmax(compute, wait));
    for (int q = 0; q < PS_Q__COUNT && ps_report_on_gpu(r); q++)
        most = fmax(most, s[PS_SUM_Q_S + q]);
    if (compute <= 0 || most < 0.1 * s[PS_SUM_TOTAL_S]) return; /* starting was most of it */
    if (files == most)
        (void) snprintf(ret_text, n, "tokenising and writing results (%.0f %% of the time)",
                        100 * files / s[PS_SUM_TOTAL_S]);
    else if (ps_report_on_gpu(r))
        gpu_limit(r, ret_text, n);
    else if (wait > 0.3 * compute && s[PS_SUM_Q_S + PS_Q_READ] > 0)
        disk_limit(r, ret_text, n);
    else
        compute_limit(r, ret_text, n);
}
