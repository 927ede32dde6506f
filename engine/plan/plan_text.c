/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in words. */
#include "engine/plan/shape_plan.h"
#include <stdio.h>

static double mib(uint64_t bytes) { return (double) bytes / (1 << 20); }
static unsigned long long whole_mib(uint64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }

/* The stream's text when it is complete; NULL when there was no memory for it. */
static char *text_of(FILE *f, char **text)
{
    if (!fclose(f)) return *text;
    free(*text);
    return NULL;
}

bool ps_plan_pins_too_much(const struct ps_plan_req *q, const struct ps_plan *p)
{
    return q->pin_max && p->pinned_bytes > q->pin_max;
}

char *ps_plan_refusal(const struct ps_plan_req *q, const struct ps_plan *p)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    fprintf(
        f,
        "The smallest plan for these options: %u slot%s in %u micro-batch%s, %u prompt token%s a "
        "sweep\n%s  %12.1f MiB  --host-mem allows\n",
        p->slots, ps_plural(p->slots), p->micro_batches, ps_plural_es(p->micro_batches),
        p->prefill_tokens, ps_plural(p->prefill_tokens), p->detail->table, mib(q->host_mem));
    if (p->gpu_bytes)
        fprintf(f, "on the GPU\n%s  %12.1f MiB  --gpu-mem allows\n", p->detail->gpu_table,
                mib(q->gpu.mem_bytes));
    if (ps_plan_pins_too_much(q, p))
        fprintf(f, "  %12.1f MiB  on the host pinned for the GPU; %.1f MiB can be\n",
                mib(p->pinned_bytes), mib(q->pin_max));
    if (p->disk_bytes)
        fprintf(f, "  %12.1f MiB  on disk; --disk-space allows %.1f MiB\n", mib(p->disk_bytes),
                mib(q->disk_space));
    const bool no_room = q->host_most && p->host_bytes > q->host_most;
    const bool no_disk = q->disk_folder && p->disk_bytes > q->disk_free;
    fprintf(f, "It %s with --host-mem %lluM", no_room || no_disk ? "would fit" : "fits",
            whole_mib(p->host_bytes));
    if (p->gpu_bytes > q->gpu.mem_bytes)
        fprintf(f, " and --gpu-mem %lluM", whole_mib(p->gpu_bytes));
    if (p->disk_bytes > q->disk_space)
        fprintf(f, " and --disk-space %lluM", whole_mib(p->disk_bytes));
    if (ps_plan_pins_too_much(q, p))
        fprintf(f, ", if %llu MiB can be pinned (ulimit -l)", whole_mib(p->pinned_bytes));
    if (no_room)
        fprintf(f,
                ", but this machine (or its cgroup) has %llu MiB for it: it takes more memory or "
                "a larger cgroup limit",
                (unsigned long long) q->host_most >> 20);
    if (no_disk)
        fprintf(f, "%s %s has %llu MiB free; --offload-dir says where else KV and hidden states go",
                no_room ? "; and" : ", but", q->disk_folder,
                (unsigned long long) q->disk_free >> 20);
    fputs(".\n", f);
    if (p->gpu_bytes > q->gpu.mem_bytes || ps_plan_pins_too_much(q, p))
        fputs("Without the GPU: --gpu-mem 0, and no shares on it.\n", f);
    return text_of(f, &text);
}

static void shares_line(FILE *f, const char *name, bool gpu, const uint64_t b[PS_TIER__COUNT])
{
    static const char *const tiers[PS_TIER__COUNT] = { "GPU", "host", "disk" };
    double all = (double) b[0] + (double) b[1] + (double) b[2];
    if (all <= 0) all = 1;
    fprintf(f, "%-8s ", name);
    for (int t = gpu ? PS_TIER_GPU : PS_TIER_HOST; t < PS_TIER__COUNT; t++)
        fprintf(f, "%s %.1f MiB (%.1f %%)%s", tiers[t], mib(b[t]), 100 * (double) b[t] / all,
                t + 1 < PS_TIER__COUNT ? ", " : "\n");
}

char *ps_plan_text(const struct ps_plan_req *req, const struct ps_plan *p)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    const struct ps_keep *k = &p->split.keep;
    const uint32_t kept = k->sinks + k->heavy + k->recent;
    fprintf(
        f,
        "block    %u slot%s x %u micro-batch%s, at most %u prompt token%s a sweep, %u row%s at a "
        "time\n",
        p->slots, ps_plural(p->slots), p->micro_batches, ps_plural_es(p->micro_batches),
        p->prefill_tokens, ps_plural(p->prefill_tokens), p->chunk_rows, ps_plural(p->chunk_rows));
    if (k->heavy == PS_KEEP_ALL)
        fprintf(f, "KV       %s, %s, everything stays (longest %u %s)\n", req->kv_config.policy,
                ps_dtype_name(p->detail->kv_type), p->kv_cap, p->kv_cap == 1 ? "entry" : "entries");
    else
        fprintf(f, "KV       %s, %s, %u %s a layer and head: %u sink%s, %u heavy, %u recent\n",
                req->kv_config.policy, ps_dtype_name(p->detail->kv_type), kept,
                kept == 1 ? "entry" : "entries", k->sinks, ps_plural(k->sinks), k->heavy,
                k->recent);
    shares_line(f, "weights", p->detail->gpu, p->weight_bytes);
    shares_line(f, "KV", p->detail->gpu, p->kv_bytes);
    shares_line(f, "hidden", p->detail->gpu, p->hidden_bytes);
    if (p->detail->gpu)
        fprintf(f,
                "attention of %u of %u KV slabs on the host\nmemory   on the GPU, %.1f of %.1f MiB "
                "allowed, the device's own included:\n%s",
                p->host_slabs, req->model->shape.layers * p->micro_batches, mib(p->gpu_bytes),
                mib(req->gpu.mem_bytes), p->detail->gpu_table);
    fprintf(f, "memory   on the host, of %.1f MiB allowed:\n%s", mib(req->host_mem),
            p->detail->table);
    if (p->detail->gpu) fprintf(f, "  %12.1f MiB  of it pinned\n", mib(p->pinned_bytes));
    if (p->disk_bytes)
        fprintf(f, "disk     %.1f MiB for KV and hidden states, of %.1f MiB allowed\n",
                mib(p->disk_bytes), mib(req->disk_space));
    return text_of(f, &text);
}
