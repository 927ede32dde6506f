/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/report.h"
#include "engine/base/ps_cpu.h"
#include "engine/base/ps_file.h"
#include "engine/job/jobj.h"
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

static void put_machine(struct ps_jobj *top, const struct ps_job_cfg *c)
{
    struct ps_jobj b = ps_jobj_sub(top, "machine");
    struct utsname u;
    char cpu[128];
    uint32_t isa = ps_cpu_flags();
    cpu_name(cpu, sizeof cpu);
    ps_jobj_str(&b, "cpu", cpu[0] ? cpu : NULL);
    ps_jobj_u64(&b, "cores", (uint64_t) sysconf(_SC_NPROCESSORS_ONLN));
    ps_jobj_str(&b, "isa",
                isa & PS_CPU_AVX512 ? "avx512"
                : isa & PS_CPU_AVX2 ? "avx2"
                                    : "baseline");
    ps_jobj_u64(&b, "memory_bytes",
                (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE));
    ps_jobj_str(&b, "kernel", uname(&u) ? NULL : u.release);
    ps_jobj_str(&b, "gpu", c->gpu ? c->gpu->name : NULL);
    ps_jobj_close(&b);
}

static void put_model(struct ps_jobj *top, const struct ps_packed *m)
{
    struct ps_jobj b = ps_jobj_sub(top, "model");
    char hash[20];
    (void) snprintf(hash, sizeof hash, "%016llx", (unsigned long long) m->hash);
    ps_jobj_str(&b, "name", m->shape.name);
    ps_jobj_u64(&b, "bytes", m->weight_bytes);
    ps_jobj_str(&b, "dtype", ps_dtype_name(m->dtype));
    ps_jobj_str(&b, "hash", hash);
    ps_jobj_close(&b);
}

static void put_job(struct ps_jobj *top, const struct ps_report *rep)
{
    const struct ps_job_result *r = rep->result;
    struct ps_jobj b = ps_jobj_sub(top, "job");
    ps_jobj_u64(&b, "requests", r->requests);
    ps_jobj_u64(&b, "prompt_tokens", r->prompt_tokens);
    ps_jobj_num(&b, "generated_tokens", rep->cfg->dry_run ? NAN : (double) r->generated_tokens);
    ps_jobj_u64(&b, "failed", r->failed);
    ps_jobj_close(&b);
}

static void put_tiers(struct ps_jobj *top, const char *key, const uint64_t bytes[PS_TIER__COUNT])
{
    struct ps_jobj b = ps_jobj_sub(top, key);
    ps_jobj_u64(&b, "gpu", bytes[PS_TIER_GPU]);
    ps_jobj_u64(&b, "host", bytes[PS_TIER_HOST]);
    ps_jobj_u64(&b, "disk", bytes[PS_TIER_DISK]);
    ps_jobj_close(&b);
}

static void put_wanted(struct ps_jobj *top, const char *key, const struct ps_shares *s)
{
    if (s->pct[0] < 0) {
        ps_jobj_str(top, key, "auto");
        return;
    }
    struct ps_jobj b = ps_jobj_sub(top, key);
    ps_jobj_num(&b, "gpu", s->pct[PS_TIER_GPU]);
    ps_jobj_num(&b, "host", s->pct[PS_TIER_HOST]);
    ps_jobj_num(&b, "disk", s->pct[PS_TIER_DISK]);
    ps_jobj_close(&b);
}

static void put_keep(struct ps_jobj *top, const char *key, uint32_t v)
{
    if (v == PS_KEEP_ALL)
        ps_jobj_str(top, key, "all");
    else
        ps_jobj_u64(top, key, v);
}

/* Where decode attention over KV that is not on the GPU runs. */
static void put_attention(struct ps_jobj *top, const struct ps_report *r)
{
    static const char *const wanted[] = { "auto", "gpu", "host" };
    if (!ps_report_on_gpu(r)) {
        ps_jobj_str(top, "attention", NULL);
        return;
    }
    struct ps_jobj b = ps_jobj_sub(top, "attention");
    ps_jobj_str(&b, "wanted", wanted[r->req->attention]);
    ps_jobj_u64(&b, "host_slabs", r->plan->host_slabs);
    ps_jobj_u64(&b, "slabs", (uint64_t) r->cfg->model->shape.layers * r->plan->micro_batches);
    ps_jobj_close(&b);
}

static void put_plan(struct ps_jobj *top, const struct ps_report *r)
{
    const struct ps_plan *p = r->plan;
    if (!p) {
        ps_jobj_str(top, "plan", NULL);
        return;
    }
    struct ps_jobj b = ps_jobj_sub(top, "plan"), w;
    ps_jobj_u64(&b, "gpu_batch_size", p->slots);
    ps_jobj_u64(&b, "num_gpu_batches", p->micro_batches);
    ps_jobj_u64(&b, "prefill_tokens", p->prefill_tokens);
    ps_jobj_u64(&b, "prefetch", p->prefetch);
    w = ps_jobj_sub(&b, "wanted");
    put_wanted(&w, "weights", &r->req->weights);
    put_wanted(&w, "kv", &r->req->kv);
    put_wanted(&w, "hidden", &r->req->hidden);
    ps_jobj_close(&w);
    w = ps_jobj_sub(&b, "realised");
    put_tiers(&w, "weights", p->weight_bytes);
    put_tiers(&w, "kv", p->kv_bytes);
    put_tiers(&w, "hidden", p->hidden_bytes);
    ps_jobj_close(&w);
    put_attention(&b, r);
    w = ps_jobj_sub(&b, "kv");
    ps_jobj_str(&w, "policy", r->req->kv_config.policy);
    ps_jobj_str(&w, "dtype", ps_dtype_name(r->req->kv_config.type));
    ps_jobj_u64(&w, "entries", p->kv_cap);
    ps_jobj_u64(&w, "sinks", p->split.keep.sinks);
    put_keep(&w, "heavy", p->split.keep.heavy);
    ps_jobj_u64(&w, "recent", p->split.keep.recent);
    ps_jobj_close(&w);
    ps_jobj_close(&b);
}

static void put_time(struct ps_jobj *top, const struct ps_report *r)
{
    const double *s = r->result->sums;
    const struct ps_job_result *j = r->result;
    double pre = s[PS_SUM_PREFILL_S], dec = s[PS_SUM_DECODE_S];
    bool known = ps_report_timed(r);
    uint64_t sequences = j->done - j->failed; /* each one's first token comes of its prompt */
    struct ps_jobj b = ps_jobj_sub(top, "time");
    ps_jobj_num(&b, "load", known ? s[PS_SUM_LOAD_S] : NAN);
    ps_jobj_num(&b, "prefill", known ? pre : NAN);
    ps_jobj_num(&b, "decode", known ? dec : NAN);
    ps_jobj_num(&b, "total", known ? s[PS_SUM_TOTAL_S] : NAN);
    ps_jobj_close(&b);
    b = ps_jobj_sub(top, "throughput");
    ps_jobj_num(&b, "prefill", ps_ratio((double) j->prompt_tokens, pre));
    ps_jobj_num(&b, "decode",
                j->generated_tokens > sequences
                    ? ps_ratio((double) (j->generated_tokens - sequences), dec)
                    : NAN);
    ps_jobj_num(&b, "total", ps_ratio((double) j->generated_tokens, pre + dec));
    ps_jobj_num(&b, "requests_per_s", ps_ratio((double) sequences, pre + dec));
    ps_jobj_close(&b);
}

static double sequence_bytes(const struct ps_report *r, uint32_t cap, bool scores)
{
    const struct ps_shape *s = &r->cfg->model->shape;
    enum ps_dtype type = r->req->kv_config.type;
    uint64_t one = ps_slab_kv_bytes(s->kv_heads, s->head_dim, type, cap) +
                   ps_slab_meta_bytes(s->kv_heads, scores, cap);
    return (double) one * s->layers;
}

static void put_kv(struct ps_jobj *top, const struct ps_report *r)
{
    struct ps_jobj b = ps_jobj_sub(top, "kv");
    const struct ps_plan *p = r->plan;
    ps_jobj_num(&b, "bytes_per_sequence", p ? sequence_bytes(r, p->kv_cap, p->split.scores) : NAN);
    ps_jobj_num(&b, "full_bytes_per_sequence",
                p ? sequence_bytes(r, r->req->job.longest_total, false) : NAN);
    ps_jobj_num(&b, "evictions", p && ps_report_timed(r) ? r->result->sums[PS_SUM_EVICTIONS] : NAN);
    ps_jobj_close(&b);
}

static void put_actual(struct ps_jobj *top, const struct ps_report *r)
{
    const double *s = r->result->sums;
    const bool known = ps_report_timed(r);
    struct ps_jobj b = ps_jobj_sub(top, "actual");
    ps_jobj_num(&b, "total_s", known ? s[PS_SUM_TOTAL_S] : NAN);
    ps_jobj_num(&b, "prefill_s", known && r->plan ? s[PS_SUM_PREFILL_S] : NAN);
    ps_jobj_num(&b, "decode_s", known && r->plan ? s[PS_SUM_DECODE_S] : NAN);
    ps_jobj_num(&b, "sweeps", known && r->plan ? s[PS_SUM_SWEEPS] : NAN);
    ps_jobj_close(&b);
    ps_jout_key(top->o, &top->first, "projected");
    ps_jout_text(top->o, "false");
    ps_jobj_str(top, "limited_by", r->result->limit[0] ? r->result->limit : NULL);
}

static void put_all(const struct ps_report *r, struct ps_jout *o)
{
    struct ps_jobj top = ps_jobj_open(o);
    ps_jobj_str(&top, "version", PS_VERSION);
    put_machine(&top, r->cfg);
    put_model(&top, r->cfg->model);
    put_job(&top, r);
    put_plan(&top, r);
    put_time(&top, r);
    ps_report_put_moved(&top, r);
    put_kv(&top, r);
    ps_report_put_predicted(&top, r);
    put_actual(&top, r);
    ps_jobj_close(&top);
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
