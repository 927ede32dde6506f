/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/report.h"
#include "engine/base/ps_cpu.h"
#include "engine/base/ps_file.h"
#include "engine/job/jout.h"
#include "engine/job/places.h"
#include "ps_config.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

uint64_t ps_peak_rss_bytes(void)
{
    char buf[4096];
    ps_auto_close int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
    if (n <= 0) return 0;
    buf[n] = 0;
    const char *p = strstr(buf, "VmHWM:");
    return p ? strtoull(p + 6, NULL, 10) << 10 : 0;
}

/* A JSON object under way. */
struct obj {
    struct ps_jout *o;
    bool first;
};

static struct obj open_obj(struct ps_jout *o)
{
    ps_jout_text(o, "{");
    return (struct obj) { o, true };
}
static void close_obj(struct obj *b) { ps_jout_text(b->o, "}"); }
static struct obj sub(struct obj *b, const char *key)
{
    ps_jout_key(b->o, &b->first, key);
    return open_obj(b->o);
}
static void num(struct obj *b, const char *key, double v)
{
    ps_jout_key(b->o, &b->first, key);
    ps_jout_f64(b->o, v);
}
static void u64(struct obj *b, const char *key, uint64_t v)
{
    ps_jout_key(b->o, &b->first, key);
    ps_jout_u64(b->o, v);
}
static void str(struct obj *b, const char *key, const char *v)
{
    ps_jout_key(b->o, &b->first, key);
    if (v)
        ps_jout_string(b->o, v, strlen(v));
    else
        ps_jout_text(b->o, "null");
}
static double ratio(double a, double b) { return b > 0 ? a / b : NAN; }

static void cpu_name(char *ret, size_t n)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    ret[0] = 0;
    while (f && fgets(line, sizeof line, f)) {
        char *v = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !v) continue;
        v[strcspn(v, "\n")] = 0;
        (void) snprintf(ret, n, "%s", v + 1 + strspn(v + 1, " "));
        break;
    }
    if (f) (void) fclose(f);
}

static void put_machine(struct obj *top, const struct ps_job_cfg *c)
{
    struct obj b = sub(top, "machine");
    struct utsname u;
    char cpu[128];
    uint32_t isa = ps_cpu_flags();
    cpu_name(cpu, sizeof cpu);
    str(&b, "cpu", cpu[0] ? cpu : NULL);
    u64(&b, "cores", (uint64_t) sysconf(_SC_NPROCESSORS_ONLN));
    str(&b, "isa", isa & PS_CPU_AVX512 ? "avx512" : isa & PS_CPU_AVX2 ? "avx2" : "baseline");
    u64(&b, "memory_bytes", (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE));
    str(&b, "kernel", uname(&u) ? NULL : u.release);
    str(&b, "gpu", c->gpu ? c->gpu->name : NULL);
    close_obj(&b);
}

static void put_model(struct obj *top, const struct ps_packed *m)
{
    struct obj b = sub(top, "model");
    char hash[20];
    (void) snprintf(hash, sizeof hash, "%016llx", (unsigned long long) m->hash);
    str(&b, "name", m->shape.name);
    u64(&b, "bytes", m->weight_bytes);
    str(&b, "dtype", ps_dtype_name(m->dtype));
    str(&b, "hash", hash);
    close_obj(&b);
}

static void put_job(struct obj *top, const struct ps_job_result *r)
{
    struct obj b = sub(top, "job");
    u64(&b, "requests", r->requests);
    u64(&b, "prompt_tokens", r->prompt_tokens);
    u64(&b, "generated_tokens", r->generated_tokens);
    u64(&b, "failed", r->failed);
    close_obj(&b);
}

static void put_tiers(struct obj *top, const char *key, const uint64_t bytes[PS_TIER__COUNT])
{
    struct obj b = sub(top, key);
    u64(&b, "gpu", bytes[PS_TIER_GPU]);
    u64(&b, "host", bytes[PS_TIER_HOST]);
    u64(&b, "disk", bytes[PS_TIER_DISK]);
    close_obj(&b);
}

static void put_wanted(struct obj *top, const char *key, const struct ps_shares *s)
{
    if (s->pct[0] < 0) {
        str(top, key, "auto");
        return;
    }
    struct obj b = sub(top, key);
    num(&b, "gpu", s->pct[PS_TIER_GPU]);
    num(&b, "host", s->pct[PS_TIER_HOST]);
    num(&b, "disk", s->pct[PS_TIER_DISK]);
    close_obj(&b);
}

static void put_keep(struct obj *top, const char *key, uint32_t v)
{
    if (v == PS_KEEP_ALL)
        str(top, key, "all");
    else
        u64(top, key, v);
}

/* Where decode attention over KV that is not on the GPU runs. */
static void put_attention(struct obj *top, const struct ps_report *r)
{
    static const char *const wanted[] = { "auto", "gpu", "host" };
    if (!ps_report_on_gpu(r)) {
        str(top, "attention", NULL);
        return;
    }
    struct obj b = sub(top, "attention");
    str(&b, "wanted", wanted[r->req->attention]);
    u64(&b, "host_slabs", r->plan->host_slabs);
    u64(&b, "slabs", (uint64_t) r->cfg->model->shape.layers * r->plan->micro_batches);
    close_obj(&b);
}

static void put_plan(struct obj *top, const struct ps_report *r)
{
    const struct ps_plan *p = r->plan;
    if (!p) {
        str(top, "plan", NULL);
        return;
    }
    struct obj b = sub(top, "plan"), w;
    u64(&b, "gpu_batch_size", p->slots);
    u64(&b, "num_gpu_batches", p->micro_batches);
    u64(&b, "prefill_tokens", p->prefill_tokens);
    u64(&b, "prefetch", p->prefetch);
    w = sub(&b, "wanted");
    put_wanted(&w, "weights", &r->req->weights);
    put_wanted(&w, "kv", &r->req->kv);
    put_wanted(&w, "hidden", &r->req->hidden);
    close_obj(&w);
    w = sub(&b, "realised");
    put_tiers(&w, "weights", p->weight_bytes);
    put_tiers(&w, "kv", p->kv_bytes);
    put_tiers(&w, "hidden", p->hidden_bytes);
    close_obj(&w);
    put_attention(&b, r);
    w = sub(&b, "kv");
    str(&w, "policy", r->req->kv_config.policy);
    str(&w, "dtype", ps_dtype_name(r->req->kv_config.type));
    u64(&w, "entries", p->kv_cap);
    u64(&w, "sinks", p->split.keep.sinks);
    put_keep(&w, "heavy", p->split.keep.heavy);
    u64(&w, "recent", p->split.keep.recent);
    close_obj(&w);
    close_obj(&b);
}

/* A job that was complete before this run left no sums. */
static bool timed(const struct ps_report *r) { return r->result->sums[PS_SUM_TOTAL_S] > 0; }

static void put_time(struct obj *top, const struct ps_report *r)
{
    const double *s = r->result->sums;
    const struct ps_job_result *j = r->result;
    double pre = s[PS_SUM_PREFILL_S], dec = s[PS_SUM_DECODE_S];
    bool known = timed(r);
    uint64_t sequences = j->done - j->failed; /* each one's first token comes of its prompt */
    struct obj b = sub(top, "time");
    num(&b, "load", known ? s[PS_SUM_LOAD_S] : NAN);
    num(&b, "prefill", known ? pre : NAN);
    num(&b, "decode", known ? dec : NAN);
    num(&b, "total", known ? s[PS_SUM_TOTAL_S] : NAN);
    close_obj(&b);
    b = sub(top, "throughput");
    num(&b, "prefill", ratio((double) j->prompt_tokens, pre));
    num(&b, "decode",
        j->generated_tokens > sequences ? ratio((double) (j->generated_tokens - sequences), dec)
                                        : NAN);
    num(&b, "total", ratio((double) j->generated_tokens, pre + dec));
    num(&b, "requests_per_s", ratio((double) sequences, pre + dec));
    close_obj(&b);
}

static void put_link(struct obj *top, const char *key, double bytes, double busy_s, double probed)
{
    struct obj b = sub(top, key);
    num(&b, "bytes", bytes);
    num(&b, "busy_s", busy_s);
    num(&b, "bytes_per_s", ratio(bytes, busy_s));
    num(&b, "share_of_probed", ratio(ratio(bytes, busy_s), probed));
    close_obj(&b);
}

static void put_links(struct obj *top, const struct ps_report *r)
{
    const struct ps_job_probed *p = &r->cfg->probed;
    double s[PS_SUM__COUNT];
    for (int i = 0; i < PS_SUM__COUNT; i++) s[i] = timed(r) ? r->result->sums[i] : NAN;
    struct obj b = sub(top, "links");
    const struct {
        const char *name;
        enum ps_q q;
        double probed;
    } links[] = { { "disk_read", PS_Q_READ, p->disk_read },
                  { "disk_write", PS_Q_WRITE, p->disk_write },
                  { "h2d", PS_Q_H2D, p->h2d },
                  { "d2h", PS_Q_D2H, p->d2h } };
    for (size_t i = 0; i < PS_ARRAY_LEN(links); i++)
        put_link(&b, links[i].name, s[PS_SUM_Q_BYTES + links[i].q], s[PS_SUM_Q_S + links[i].q],
                 links[i].probed);
    put_link(&b, "dram", s[PS_SUM_DRAM_BYTES],
             s[ps_report_on_gpu(r) ? PS_SUM_Q_S + PS_Q_HOST : PS_SUM_COMPUTE_S], p->dram);
    put_link(&b, "hbm", ps_report_on_gpu(r) ? s[PS_SUM_HBM_BYTES] : NAN,
             ps_report_on_gpu(r) ? s[PS_SUM_COMPUTE_S] : NAN, p->hbm);
    struct obj g = sub(&b, "gemm");
    num(&g, "flops", s[PS_SUM_FLOPS]);
    num(&g, "busy_s", s[PS_SUM_COMPUTE_S]);
    num(&g, "flops_per_s", ratio(s[PS_SUM_FLOPS], s[PS_SUM_COMPUTE_S]));
    num(&g, "share_of_probed", ratio(ratio(s[PS_SUM_FLOPS], s[PS_SUM_COMPUTE_S]), p->flops));
    close_obj(&g);
    close_obj(&b);
    b = sub(top, "wait_s");
    num(&b, "weights", s[PS_SUM_WAIT_WEIGHTS_S]);
    num(&b, "kv", s[PS_SUM_WAIT_KV_S]);
    num(&b, "compute", s[PS_SUM_COMPUTE_S]);
    num(&b, "tokenizer", s[PS_SUM_TOKENIZER_S]);
    num(&b, "output", s[PS_SUM_OUTPUT_S]);
    close_obj(&b);
}

/* What was asked of the GPU. */
static void put_gpu(struct obj *top, const struct ps_report *r)
{
    const double *s = r->result->sums;
    const struct ps_cuda_info *i = r->cfg->gpu;
    if (!ps_report_on_gpu(r) || !timed(r)) {
        str(top, "gpu", NULL);
        return;
    }
    struct obj b = sub(top, "gpu");
    str(&b, "name", i ? i->name : NULL);
    u64(&b, "sm", r->req->gpu.sm);
    num(&b, "launches", s[PS_SUM_LAUNCHES]);
    num(&b, "library_calls", s[PS_SUM_CALLS]);
    num(&b, "copies", s[PS_SUM_COPIES]);
    num(&b, "events", s[PS_SUM_EVENTS]);
    num(&b, "stream_waits", s[PS_SUM_STREAM_WAITS]);
    num(&b, "host_syncs", s[PS_SUM_HOST_SYNCS]);
    num(&b, "launches_per_decode_pass", ratio(s[PS_SUM_DECODE_LAUNCHES], s[PS_SUM_DECODE_PASSES]));
    close_obj(&b);
}

static void put_memory(struct obj *top, const struct ps_report *r)
{
    struct obj b = sub(top, "memory"), t = sub(&b, "peak");
    uint64_t rss = ps_peak_rss_bytes();
    num(&t, "gpu",
        ps_report_on_gpu(r) && timed(r) ? (double) r->plan->gpu_bytes : NAN); /* all at once */
    num(&t, "host", rss && timed(r) ? (double) rss : NAN);
    num(&t, "disk", r->plan ? (double) r->plan->disk_bytes : NAN);
    close_obj(&t);
    num(&b, "planned_host", r->plan ? (double) r->plan->host_bytes : NAN);
    num(&b, "pinned",
        ps_report_on_gpu(r) && r->result->pinned_bytes ? (double) r->result->pinned_bytes : NAN);
    t = sub(&b, "budget");
    num(&t, "gpu", r->cfg->plan.gpu.mem_bytes ? (double) r->cfg->plan.gpu.mem_bytes : NAN);
    u64(&t, "host", r->cfg->plan.host_mem);
    u64(&t, "disk", r->cfg->plan.disk_space);
    close_obj(&t);
    close_obj(&b);
}

static double sequence_bytes(const struct ps_report *r, uint32_t cap, bool scores)
{
    const struct ps_shape *s = &r->cfg->model->shape;
    enum ps_dtype type = r->req->kv_config.type;
    uint64_t one = ps_slab_kv_bytes(s->kv_heads, s->head_dim, type, cap) +
                   ps_slab_meta_bytes(s->kv_heads, scores, cap);
    return (double) one * s->layers;
}

static void put_kv(struct obj *top, const struct ps_report *r)
{
    struct obj b = sub(top, "kv");
    const struct ps_plan *p = r->plan;
    num(&b, "bytes_per_sequence", p ? sequence_bytes(r, p->kv_cap, p->split.scores) : NAN);
    num(&b, "full_bytes_per_sequence",
        p ? sequence_bytes(r, r->req->job.longest_total, false) : NAN);
    num(&b, "evictions", p ? r->result->sums[PS_SUM_EVICTIONS] : NAN);
    close_obj(&b);
}

static void put_actual(struct obj *top, const struct ps_report *r)
{
    const double *s = r->result->sums;
    struct obj b = sub(top, "predicted");
    num(&b, "total_s", r->plan && r->plan->predicted_s > 0 ? r->plan->predicted_s : NAN);
    close_obj(&b);
    b = sub(top, "actual");
    num(&b, "total_s", s[PS_SUM_TOTAL_S] > 0 ? s[PS_SUM_TOTAL_S] : NAN);
    num(&b, "prefill_s", r->plan ? s[PS_SUM_PREFILL_S] : NAN);
    num(&b, "decode_s", r->plan ? s[PS_SUM_DECODE_S] : NAN);
    num(&b, "sweeps", r->plan ? s[PS_SUM_SWEEPS] : NAN);
    close_obj(&b);
    ps_jout_key(top->o, &top->first, "projected");
    ps_jout_text(top->o, "false");
    str(top, "limited_by", r->result->limit[0] ? r->result->limit : NULL);
}

static void put_all(const struct ps_report *r, struct ps_jout *o)
{
    struct obj top = open_obj(o);
    str(&top, "version", PS_VERSION);
    put_machine(&top, r->cfg);
    put_model(&top, r->cfg->model);
    put_job(&top, r->result);
    put_plan(&top, r);
    put_time(&top, r);
    put_links(&top, r);
    put_memory(&top, r);
    put_gpu(&top, r);
    put_kv(&top, r);
    put_actual(&top, r);
    close_obj(&top);
    ps_jout_text(o, "\n");
}

int ps_report_write(const struct ps_report *r, const char *path, struct ps_detail *dt)
{
    struct ps_jout o;
    ps_auto_free char *tmp = ps_concat(path, "", ".tmp");
    if (!tmp) return -ENOMEM;
    ps_auto_close int fd = -1;
    int e = ps_places_open(tmp, O_TRUNC, &fd, dt);
    if (e < 0) return ps_fail_in(dt, e, "--report");
    e = ps_jout_init(&o, fd, 0, 16 << 10);
    if (!e) {
        put_all(r, &o);
        e = ps_jout_flush(&o);
        ps_jout_done(&o);
    }
    if (!e && fsync(fd) < 0) e = -errno;
    if (!e && rename(tmp, path) < 0) e = -errno;
    if (!e) e = ps_sync_beside(path);
    if (e < 0) {
        (void) unlink(tmp);
        return ps_fail(dt, e, "--report: %s: write failed: %s", path, ps_err_str(e));
    }
    return 0;
}
