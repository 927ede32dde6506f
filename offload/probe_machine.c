/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/probe_machine.h"
#include "engine/base/ps_mem.h"
#include "offload/arena.h"
#include "offload/probe_parts.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)
enum { COLD_MIB = 512, COLD_LEAST_MIB = 32 };

/* ---- progress */

void ps_probing_share(void *probing, double share)
{
    const struct ps_probing *p = probing;
    if (p->cfg->progress) p->cfg->progress(p->cfg->ud, p->what, p->begin + share * p->share);
}

void ps_probing_now(struct ps_probing *p, const char *what, double begin, double share)
{
    p->what = what;
    p->begin = begin;
    p->share = share;
    ps_probing_share(p, 0);
}

void ps_probing_warn(struct ps_probing *p, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ps_out_note(&p->out, "%.290s", text);
    if (p->cfg->warn) p->cfg->warn(p->cfg->ud, text);
}

/* ---- memory by threads */

static int over_threads(struct ps_probing *p, json_t *host, bool copy, uint64_t bytes, double max_s,
                        struct ps_rate *ret_all)
{
    double x[PS_CURVE_MAX];
    struct ps_rate y[PS_CURVE_MAX];
    unsigned n = 0;
    int r = 0;
    for (unsigned t = 1;
         !r && n<PS_CURVE_MAX; t = 2 * t> p->cfg->threads ? p->cfg->threads : 2 * t) {
        if (p->cfg->stop && *p->cfg->stop) return -ECANCELED;
        x[n] = t;
        r = (copy ? ps_probe_dram_copy : ps_probe_dram)(t, bytes, max_s, &y[n++], p->dt);
        if (t == p->cfg->threads) break;
    }
    if (r < 0) return r;
    *ret_all = y[n - 1];
    ps_out_curve(&p->out, host, copy ? "copy_over_threads" : "read_over_threads", x, y, n, "GB/s");
    return 0;
}

static int memory(struct ps_probing *p, json_t *host, double max_s)
{
    struct ps_rate r;
    const uint64_t most = COLD_MIB * MIB,
                   bytes = p->rig.cold_bytes < most ? p->rig.cold_bytes : most;
    int e = over_threads(p, host, false, bytes, max_s / 8, &r);
    if (e) return e;
    ps_out_rate(&p->out, host, "read", &r, "GB/s");
    ps_probing_share(p, 0.6);
    return over_threads(p, host, true, bytes, max_s / 16, &r);
}

/* ---- the host's rig */

/* More than the caches hold, unless memory is short. What stands beside it in take_memory(), scratch and probes of memory by themselves take
 * half as much again. */
static int size_rig(struct ps_probing *p)
{
    const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const uint64_t beside = (uint64_t) 2 * PS_PROBE_RING_BYTES + 32 * MIB;
    const uint64_t has = p->cfg->host_mem > beside ? (p->cfg->host_mem - beside) / 3 * 2 : 0;
    struct ps_rig *r = &p->rig;
    uint64_t want = COLD_MIB * MIB;
    if (l3 > 0 && 3 * (uint64_t) l3 > want) want = 3 * (uint64_t) l3;
    r->cold_bytes = (has < want ? has : want) / (4 * MIB) * (4 * MIB);
    r->chunk_bytes = r->cold_bytes / 8 < PS_RIG_CHUNK ? r->cold_bytes / 8 : PS_RIG_CHUNK;
    r->stop = p->cfg->stop;
    if (r->cold_bytes < COLD_LEAST_MIB * MIB)
        return ps_fail(p->dt, -PS_EBUDGET,
                       "--host-mem: a probe wants 256 MiB at least, of %" PRIu64,
                       p->cfg->host_mem / MIB);
    if (has < want)
        ps_probing_warn(p,
                        "weights and KV are measured with %" PRIu64
                        " MiB, for want of memory, where %" PRIu64
                        " would be well above the caches",
                        r->cold_bytes / MIB, want / MIB);
    return 0;
}

static int take_memory(struct ps_probing *p, struct ps_arena **ret)
{
    struct ps_rig *r = &p->rig;
    const uint64_t ring = (uint64_t) 2 * PS_PROBE_RING_BYTES;
    void *at;
    const uint64_t act = PS_RIG_ACT_BYTES(r->cold_bytes), meta = PS_RIG_META_BYTES(r->cold_bytes);
    struct ps_arena_cfg cfg = {
        .bytes = r->cold_bytes + act + meta + PS_RIG_CTL_BYTES + ring + 16 * 4096, .populate = true
    };
    int e = ps_arena_open(&cfg, ret, p->dt);
    const struct {
        uint8_t **p;
        uint64_t bytes;
    } parts[] = {
        { &p->ring, ring }, { &r->cold, r->cold_bytes }, { &r->act, act }, { &r->meta, meta }
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(parts) && !e; i++) {
        e = ps_arena_alloc(*ret, "probe", parts[i].bytes, 1, 4096, &at, p->dt);
        if (!e) *parts[i].p = at;
    }
    if (!e) e = ps_arena_alloc(*ret, "probe", PS_RIG_CTL_BYTES, 1, 4096, &r->ctl, p->dt);
    if (e < 0) return e;
    ps_rig_fill(p->ring, ring, false);
    ps_rig_fill(r->cold, r->cold_bytes, false);
    ps_rig_fill(r->act, act, true);
    return 0;
}

static int open_device(struct ps_probing *p, const struct ps_gauge_list *l, void **ret_scratch)
{
    const size_t each = ps_rig_scratch(&p->rig, l->at, l->n);
    *ret_scratch = ps_aligned(64, each * (p->cfg->threads + 1));
    if (!*ret_scratch) return ps_fail(p->dt, -ENOMEM, "no memory for the probe's scratch");
    const struct ps_dev_cfg cfg = { .store = p->store,
                                    .threads = p->cfg->threads,
                                    .scratch_bytes = each,
                                    .scratch = *ret_scratch };
    const int r = ps_dev_cpu_open(&cfg, &p->rig.dev);
    return r < 0 ? ps_fail(p->dt, r, "opening the probe's device: %s", ps_err_str(r)) : 0;
}

/* ---- the whole */

/* What is planned to take so long; it all takes longer, since each thing is done a few times at least. */
static double planned(const struct ps_probe_machine *c)
{
    const double most = c->seconds > 0 ? c->seconds : c->quick ? 15 : 90;
    return most * (c->quick ? 0.62 : 0.85);
}

static struct times {
    double memory, kernels, disk, gpu;
} times(const struct ps_probe_machine *c)
{
    return c->gpu ? (struct times) { 0.07, 0.48, 0.25, 0.2 }
                  : (struct times) { 0.08, 0.6, 0.32, 0 };
}

static json_t *head(struct ps_probing *p, const struct ps_machine *m)
{
    struct ps_profile_out *o = &p->out;
    char when[64], name[96];
    const time_t now = time(NULL);
    struct tm tm;
    (void) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    (void) snprintf(name, sizeof name, "%.60s, %u CPUs",
                    *m->cpu_model ? m->cpu_model : "this machine", m->cpus);
    ps_out_set(o, o->root, "name", json_string(name));
    ps_out_set(o, o->root, "measured", json_string(when));
    ps_out_set(o, o->root, "notes", json_incref(o->notes));
    json_t *host = ps_out_object(o, o->root, "host");
    if (*m->cpu_model) {
        (void) snprintf(name, sizeof name, "%.95s", m->cpu_model);
        ps_out_set(o, host, "cpu", json_string(name));
    }
    ps_out_value(o, host, "mem", (double) ps_machine_mem(m), "GiB");
    ps_out_value(o, host, "cores", m->cpus, "cores");
    ps_out_value(o, host, "threads", p->cfg->threads, "threads");
    return host;
}

static int host_part(struct ps_probing *p, struct ps_gauge_list *l, struct ps_arena **arena,
                     void **scratch)
{
    const bool quick = p->cfg->quick;
    const struct times t = times(p->cfg);
    struct ps_machine m;
    json_t *root = p->out.root, *host, *disk;
    uint64_t left = 0;
    ps_gauges_host(l, quick);
    ps_machine_read("", &m);
    host = head(p, &m);
    ps_probing_now(p, "memory", 0, 0.07);
    int e = ps_machine_disk_free(p->cfg->folder, &left, p->dt);
    if (!e) e = size_rig(p);
    if (!e) e = memory(p, host, p->seconds * t.memory);
    if (!e) e = take_memory(p, arena);
    if (!e) e = ps_probe_disk_room(p);
    if (!e) e = open_device(p, l, scratch);
    if (e) return e;
    ps_probing_now(p, "kernels", 0.07, 0.55);
    e = ps_rig_measure(&p->rig, l->at, l->n, quick ? 2 : 3, p->seconds * t.kernels,
                       ps_probing_share, p, p->dt);
    if (e) return e;
    ps_gauges_out(&p->out, host, l);
    ps_probing_now(p, "disk", 0.62, p->cfg->gpu ? 0.2 : 0.38);
    disk = ps_out_object(&p->out, root, "disk");
    if (left >= MIB) ps_out_value(&p->out, disk, "space", (double) left, "GB");
    return ps_probe_disk_part(p, disk, p->seconds * t.disk);
}

static void said(struct ps_probing *p)
{
    const struct ps_profile_out *o = &p->out;
    if (o->noisy)
        ps_probing_warn(
            p,
            "%u of %u figures %s noisy: half of %s slices differ by more than 15 %%; was "
            "something else running?",
            o->noisy, o->figures, o->noisy == 1 ? "is" : "are", o->noisy == 1 ? "its" : "their");
    if (o->throttled)
        ps_probing_warn(p,
                        "%u of %u figures fell while measured: throttled, or a cache that ran full",
                        o->throttled, o->figures);
}

int ps_probe_machine(const struct ps_probe_machine *cfg, char **ret, struct ps_detail *dt)
{
    struct ps_probing p = { .cfg = cfg, .dt = dt, .fd = -1 };
    struct ps_arena *arena = NULL;
    void *scratch = NULL;
    struct ps_gauge_list *l = ps_calloc(1, sizeof *l);
    int e = l ? 0 : -ENOMEM;
    dt->text[0] = 0;
    if (!e && (!cfg->threads || cfg->threads > PS_PROBE_THREADS_MAX))
        e = ps_fail(dt, -EINVAL, "a probe with %u threads: 1 to %d were expected", cfg->threads,
                    PS_PROBE_THREADS_MAX);
    p.seconds = planned(cfg);
    if (!e) e = ps_out_open(&p.out);
    if (!e) e = host_part(&p, l, &arena, &scratch);
    ps_dev_close(p.rig.dev);
    (void) ps_store_close(p.store);
    if (p.fd >= 0) (void) close(p.fd);
    ps_arena_close(arena);
    free(scratch);
    free(l);
    if (!e && cfg->gpu) e = ps_probe_gpu_part(&p, p.seconds * times(cfg).gpu);
    if (!e) {
        said(&p);
        e = ps_out_text(&p.out, ret, dt);
    }
    ps_out_close(&p.out);
    return e;
}
