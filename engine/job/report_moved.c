/* SPDX-License-Identifier: Apache-2.0 */
/* The report's account of links and memory: what was moved and taken, and what the plan said beforehand. */
#include "engine/job/jobj.h"
#include "engine/job/report.h"
#include <math.h>

/* Queues that are links. UP's bytes are H2D's, in sums (feed.c) as here. */
static const struct {
    const char *name;
    enum ps_q q;
} links[] = { { "disk_read", PS_Q_READ },
              { "disk_write", PS_Q_WRITE },
              { "h2d", PS_Q_H2D },
              { "d2h", PS_Q_D2H } };

struct link {
    double bytes, load_bytes, busy_s, probed;
};

static void put_link(struct ps_jobj *top, const char *key, const struct link *l)
{
    struct ps_jobj b = ps_jobj_sub(top, key);
    ps_jobj_num(&b, "bytes", l->bytes);
    ps_jobj_num(&b, "load_bytes", l->load_bytes);
    ps_jobj_num(&b, "busy_s", l->busy_s);
    ps_jobj_num(&b, "bytes_per_s", ps_ratio(l->bytes, l->busy_s));
    ps_jobj_num(&b, "share_of_probed", ps_ratio(ps_ratio(l->bytes, l->busy_s), l->probed));
    ps_jobj_close(&b);
}

/* What kernels moved, where they ran. */
static void put_memory_links(struct ps_jobj *b, const struct ps_report *r, const double *s)
{
    const struct ps_job_probed *p = &r->cfg->probed;
    const bool gpu = ps_report_on_gpu(r);
    put_link(b, "dram",
             &(struct link) { s[PS_SUM_DRAM_BYTES], NAN,
                              s[gpu ? PS_SUM_Q_S + PS_Q_HOST : PS_SUM_COMPUTE_S], p->dram });
    put_link(b, "hbm",
             &(struct link) { gpu ? s[PS_SUM_HBM_BYTES] : NAN, NAN, gpu ? s[PS_SUM_COMPUTE_S] : NAN,
                              p->hbm });
    struct ps_jobj g = ps_jobj_sub(b, "gemm");
    ps_jobj_num(&g, "flops", s[PS_SUM_FLOPS]);
    ps_jobj_num(&g, "busy_s", s[PS_SUM_COMPUTE_S]);
    ps_jobj_num(&g, "flops_per_s", ps_ratio(s[PS_SUM_FLOPS], s[PS_SUM_COMPUTE_S]));
    ps_jobj_num(
        &g, "share_of_probed",
        ps_ratio(ps_ratio(s[PS_SUM_FLOPS], s[PS_SUM_COMPUTE_S]), ps_report_probed_flops(r)));
    ps_jobj_close(&g);
}

static void put_links(struct ps_jobj *top, const struct ps_report *r)
{
    const struct ps_job_probed *p = &r->cfg->probed;
    const double probed[] = { p->disk_read, p->disk_write, p->h2d, p->d2h };
    double s[PS_SUM__COUNT];
    for (int i = 0; i < PS_SUM__COUNT; i++) s[i] = ps_report_timed(r) ? r->result->sums[i] : NAN;
    struct ps_jobj b = ps_jobj_sub(top, "links");
    for (size_t i = 0; i < PS_ARRAY_LEN(links); i++) {
        const enum ps_q q = links[i].q;
        put_link(&b, links[i].name,
                 &(struct link) { s[PS_SUM_Q_BYTES + q], s[PS_SUM_LOAD_BYTES + q],
                                  s[PS_SUM_Q_S + q], probed[i] });
    }
    put_memory_links(&b, r, s);
    ps_jobj_close(&b);
    b = ps_jobj_sub(top, "wait_s");
    ps_jobj_num(&b, "weights", s[PS_SUM_WAIT_WEIGHTS_S]);
    ps_jobj_num(&b, "kv", s[PS_SUM_WAIT_KV_S]);
    ps_jobj_num(&b, "compute", s[PS_SUM_COMPUTE_S]);
    ps_jobj_num(&b, "tokenizer", s[PS_SUM_TOKENIZER_S]);
    ps_jobj_num(&b, "output", s[PS_SUM_OUTPUT_S]);
    ps_jobj_close(&b);
}

/* What was asked of the GPU. */
static void put_gpu(struct ps_jobj *top, const struct ps_report *r)
{
    const double *s = r->result->sums;
    const struct ps_cuda_info *i = r->cfg->gpu;
    if (!ps_report_on_gpu(r) || !ps_report_timed(r)) {
        ps_jobj_str(top, "gpu", NULL);
        return;
    }
    struct ps_jobj b = ps_jobj_sub(top, "gpu");
    ps_jobj_str(&b, "name", i ? i->name : NULL);
    ps_jobj_u64(&b, "sm", r->req->gpu.sm);
    ps_jobj_num(&b, "launches", s[PS_SUM_LAUNCHES]);
    ps_jobj_num(&b, "library_calls", s[PS_SUM_CALLS]);
    ps_jobj_num(&b, "copies", s[PS_SUM_COPIES]);
    ps_jobj_num(&b, "events", s[PS_SUM_EVENTS]);
    ps_jobj_num(&b, "stream_waits", s[PS_SUM_STREAM_WAITS]);
    ps_jobj_num(&b, "host_syncs", s[PS_SUM_HOST_SYNCS]);
    const double passes = s[PS_SUM_DECODE_PASSES];
    ps_jobj_num(&b, "launches_per_decode_pass", ps_ratio(s[PS_SUM_DECODE_LAUNCHES], passes));
    ps_jobj_num(&b, "copies_per_decode_pass", ps_ratio(s[PS_SUM_DECODE_COPIES], passes));
    ps_jobj_num(&b, "events_per_decode_pass", ps_ratio(s[PS_SUM_DECODE_EVENTS], passes));
    ps_jobj_num(&b, "stream_waits_per_decode_pass", ps_ratio(s[PS_SUM_DECODE_WAITS], passes));
    ps_jobj_close(&b);
}

/* A GPU's memory and the file are taken all at once. */
static void put_memory(struct ps_jobj *top, const struct ps_report *r)
{
    struct ps_jobj b = ps_jobj_sub(top, "memory"), t = ps_jobj_sub(&b, "peak");
    const uint64_t *taken = r->result->taken_bytes, rss = ps_peak_rss_bytes();
    const bool ran = taken[PS_TIER_HOST] > 0, gpu = ps_report_on_gpu(r);
    const double on_gpu = ran && gpu ? (double) taken[PS_TIER_GPU] : NAN,
                 on_disk = ran ? (double) taken[PS_TIER_DISK] : NAN;
    ps_jobj_num(&t, "gpu", on_gpu);
    ps_jobj_num(&t, "host", rss && ps_report_timed(r) ? (double) rss : NAN);
    ps_jobj_num(&t, "disk", on_disk);
    ps_jobj_close(&t);
    t = ps_jobj_sub(&b, "taken");
    ps_jobj_num(&t, "gpu", on_gpu);
    ps_jobj_num(&t, "host", ran ? (double) taken[PS_TIER_HOST] : NAN);
    ps_jobj_num(&t, "disk", on_disk);
    ps_jobj_close(&t);
    ps_jobj_num(&b, "planned_host", r->plan ? (double) r->plan->host_bytes : NAN);
    ps_jobj_num(&b, "pinned",
                gpu && r->result->pinned_bytes ? (double) r->result->pinned_bytes : NAN);
    t = ps_jobj_sub(&b, "budget");
    ps_jobj_num(&t, "gpu", r->cfg->plan.gpu.mem_bytes ? (double) r->cfg->plan.gpu.mem_bytes : NAN);
    ps_jobj_u64(&t, "host", r->cfg->plan.host_mem);
    ps_jobj_u64(&t, "disk", r->cfg->plan.disk_space);
    ps_jobj_close(&t);
    ps_jobj_close(&b);
}

void ps_report_put_moved(struct ps_jobj *top, const struct ps_report *r)
{
    put_links(top, r);
    put_memory(top, r);
    put_gpu(top, r);
}

/* ---- the same, predicted */

static void put_predicted_links(struct ps_jobj *top, const struct ps_run_stats *s, bool gpu)
{
    const double *kernels = s->dev.mem_bytes;
    struct ps_jobj b = ps_jobj_sub(top, "links"), l;
    for (size_t i = 0; i < PS_ARRAY_LEN(links); i++) {
        const enum ps_q q = links[i].q;
        const double up = q == PS_Q_H2D ? ps_dev_moved(&s->dev, PS_Q_UP) : 0;
        l = ps_jobj_sub(&b, links[i].name);
        ps_jobj_num(&l, "bytes", ps_dev_moved(&s->dev, q) + up);
        ps_jobj_num(&l, "load_bytes", (double) s->load_bytes[q]);
        ps_jobj_close(&l);
    }
    l = ps_jobj_sub(&b, "dram");
    ps_jobj_num(&l, "bytes", kernels[PS_Q_HOST] + (gpu ? 0 : kernels[PS_Q_COMPUTE]));
    ps_jobj_close(&l);
    l = ps_jobj_sub(&b, "hbm");
    ps_jobj_num(&l, "bytes", gpu ? kernels[PS_Q_COMPUTE] : NAN);
    ps_jobj_close(&l);
    l = ps_jobj_sub(&b, "gemm");
    ps_jobj_num(&l, "flops", s->dev.flops[PS_Q_COMPUTE]);
    ps_jobj_close(&l);
    ps_jobj_close(&b);
}

static void put_predicted_memory(struct ps_jobj *top, const struct ps_plan *p)
{
    struct ps_jobj b = ps_jobj_sub(top, "memory");
    ps_jobj_num(&b, "gpu", p->gpu_bytes ? (double) p->gpu_bytes : NAN);
    ps_jobj_num(&b, "host", (double) p->host_bytes);
    ps_jobj_num(&b, "disk", (double) p->disk_bytes);
    ps_jobj_num(&b, "pinned", p->gpu_bytes ? (double) p->pinned_bytes : NAN);
    ps_jobj_close(&b);
}

void ps_report_put_predicted(struct ps_jobj *top, const struct ps_report *r)
{
    const struct ps_simulated *p = r->predicted;
    struct ps_jobj b = ps_jobj_sub(top, "predicted");
    ps_jobj_num(&b, "total_s", r->plan && r->plan->predicted_s > 0 ? r->plan->predicted_s : NAN);
    ps_jobj_num(&b, "load_s", p ? p->run.load_s : NAN);
    ps_jobj_num(&b, "prefill_s", p ? p->run.prefill_s : NAN);
    ps_jobj_num(&b, "decode_s", p ? p->run.decode_s : NAN);
    ps_jobj_num(&b, "sweeps", p ? (double) p->run.sweeps : NAN);
    ps_jobj_num(&b, "sweeps_run", p ? (double) p->sweeps_run : NAN);
    ps_jobj_num(&b, "generated_tokens", p ? (double) p->run.generated_tokens : NAN);
    if (p)
        put_predicted_links(&b, &p->run, ps_report_on_gpu(r));
    else
        ps_jobj_str(&b, "links", NULL);
    if (r->plan)
        put_predicted_memory(&b, r->plan);
    else
        ps_jobj_str(&b, "memory", NULL);
    ps_jobj_close(&b);
}
