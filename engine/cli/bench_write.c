/* SPDX-License-Identifier: Apache-2.0 */
/* The file of -o, and that of --log, whose lines are those that FlexGen writes (flexgen/utils.py, write_benchmark_log), so that scripts which
 * read them go on working. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_json.h"
#include "engine/cli/bench.h"
#include "ps_config.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *num(double v) { return isfinite(v) ? json_real(v) : json_null(); }
static json_t *u64(uint64_t v) { return json_integer((json_int_t) v); }
static double known(double v) { return v > 0 ? v : NAN; }

static json_t *tiers(const uint64_t v[PS_TIER__COUNT])
{
    return json_pack("{s:o, s:o, s:o}", "gpu", u64(v[PS_TIER_GPU]), "host", u64(v[PS_TIER_HOST]),
                     "disk", u64(v[PS_TIER_DISK]));
}

static json_t *plan(const struct ps_bench_row *row)
{
    const struct ps_plan *p = &row->plan;
    if (!row->planned) return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "gpu_batch_size",
                     u64(p->slots), "num_gpu_batches", u64(p->micro_batches), "prefill_tokens",
                     u64(p->prefill_tokens), "prefetch", u64(p->prefetch), "kv_entries",
                     u64(p->kv_cap), "host_slabs", u64(p->host_slabs), "weights",
                     tiers(p->weight_bytes), "kv", tiers(p->kv_bytes), "hidden",
                     tiers(p->hidden_bytes), "predicted_s", num(known(p->predicted_s)));
}

static json_t *links(const struct ps_bench_run *r)
{
    json_t *o = json_object();
    for (int q = 0; o && q < PS_Q__COUNT; q++) {
        (void) json_object_set_new(
            o, ps_q_name((enum ps_q) q),
            json_pack("{s:o, s:o}", "bytes",
                      u64((uint64_t) ps_dev_moved(&r->st.dev, (enum ps_q) q)), "busy_s",
                      num((double) r->st.dev.busy_ns[q] * 1e-9)));
    }
    return o;
}

/* COMPUTE had a next task that waited for it; idle: it had none. */
static json_t *waits(const struct ps_dev_stats *d)
{
    const uint64_t *ns = d->stall_ns;
    return json_pack("{s:f, s:f, s:f, s:f}", "weights", 1e-9 * (double) ns[PS_KIND_WEIGHTS], "kv",
                     1e-9 * (double) ns[PS_KIND_KV], "other",
                     1e-9 * (double) (ns[PS_KIND_OTHER] + ns[PS_KIND_HIDDEN]), "idle",
                     1e-9 * (double) d->idle_ns);
}

static json_t *run(const struct ps_bench_row *row, const struct ps_bench_run *r, bool simulated)
{
    const struct ps_bench_rates v = ps_bench_rates(r);
    const struct ps_bench_limit limit = ps_bench_limit(row, r);
    char hash[20];
    (void) snprintf(hash, sizeof hash, "%016" PRIx64, r->hash);
    return json_pack(
        "{s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o}",
        "complete", r->complete, "projected", r->projected, "requests", u64(r->requests), "load_s",
        num(r->st.load_s), "prefill_s", num(r->prefill_s), "decode_s", num(r->decode_s), "total_s",
        num(ps_bench_seconds(r)), "prefill_per_s", num(v.prefill), "decode_per_s", num(v.decode),
        "tokens_per_s", num(v.total), "sweeps", u64(r->st.sweeps), "peak_host_bytes",
        r->peak_host ? u64(r->peak_host) : json_null(), "limited_by", ps_json_text(limit.link),
        "share_of_floor", num(ps_bench_share(limit, r)), "links", links(r), "wait_s",
        waits(&r->st.dev), "outputs", simulated || r->projected ? json_null() : json_string(hash),
        "outside_probe", ps_json_text(r->outside));
}

static json_t *runs(const struct ps_bench_row *row, bool simulated)
{
    json_t *list = json_array();
    for (unsigned i = 0; list && i < row->n_runs; i++)
        (void) json_array_append_new(list, run(row, &row->run[i], simulated));
    return list;
}

static json_t *schedule(const struct ps_schedule *how)
{
    json_t *list = json_array();
    if (how->no_overlap) (void) json_array_append_new(list, json_string("no-overlap"));
    if (how->barrier) (void) json_array_append_new(list, json_string("barrier"));
    if (how->no_continuous) (void) json_array_append_new(list, json_string("no-continuous"));
    return list;
}

static json_t *spread(const struct ps_bench_row *row, size_t offset)
{
    const struct ps_bench_spread s = ps_bench_spread(row, offset);
    return json_pack("{s:o, s:o, s:o}", "median", num(s.median), "least", num(s.least), "most",
                     num(s.most));
}

static json_t *model(const struct ps_bench_model *m)
{
    return json_pack("{s:o, s:o, s:s, s:b}", "name", ps_json_text(m->packed->shape.name), "bytes",
                     u64(m->packed->weight_bytes), "dtype", ps_dtype_name(m->packed->dtype),
                     "random_weights", m->random);
}

/* Tokens of each request; null where they differ. */
static json_t *each(const struct ps_bench_row *row, struct ps_bench_len l)
{
    return row->job || l.least != l.most ? json_null() : u64(l.most);
}

static json_t *range(struct ps_bench_len l)
{
    return json_pack("[o, o]", u64(l.least), u64(l.most));
}

/* Of requests that are not all alike. */
static json_t *mix(const struct ps_bench_row *row)
{
    const bool known = !row->job || row->planned;
    if (!ps_bench_mixed(row)) return json_null();
    return json_pack("{s:o, s:o, s:o}", "job", ps_json_text(row->job), "prompt_len",
                     known ? range(row->prompt) : json_null(), "gen_len",
                     known ? range(row->gen) : json_null());
}

static json_t *row_json(const struct ps_bench *b, const struct ps_bench_row *row)
{
    const size_t at = offsetof(struct ps_bench_rates, total);
    const double first = ps_bench_spread(ps_bench_first(b, row), at).median;
    json_t *published = json_object_get(row->spec, "published");
    bool complete = row->n_runs == b->repeats;
    for (unsigned i = 0; i < row->n_runs; i++) complete = complete && row->run[i].complete;
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, "
        "s:o}",
        "name", row->name, "model", ps_json_text(row->model->packed->shape.name), "prompt_len",
        each(row, row->prompt), "gen_len", each(row, row->gen), "lengths", mix(row), "requests",
        u64(row->requests), "kv_policy", row->engine.plan.kv_config.policy, "schedule",
        schedule(&row->how), "plan", plan(row), "prefill_per_s",
        spread(row, offsetof(struct ps_bench_rates, prefill)), "decode_per_s",
        spread(row, offsetof(struct ps_bench_rates, decode)), "tokens_per_s", spread(row, at),
        "of_first", num(ps_bench_spread(row, at).median / first), "memory",
        row->planned ? json_pack("{s:o, s:o, s:o}", "gpu",
                                 row->plan.gpu_bytes ? u64(row->plan.gpu_bytes) : json_null(),
                                 "planned_host", u64(row->plan.host_bytes), "disk",
                                 u64(row->plan.disk_bytes))
                     : json_null(),
        "runs", runs(row, b->profile), "complete", complete, "published",
        published ? json_incref(published) : json_null(), "error",
        row->err ? ps_json_text(row->dt.text) : json_null());
}

/* This one; null for a simulation. */
static json_t *machine(const struct ps_bench *b)
{
    const struct ps_machine *m = &b->machine;
    if (b->profile) return json_null();
    return json_pack("{s:o, s:o, s:o, s:o}", "cpu", ps_json_text(m->cpu_model), "cpus",
                     u64(m->cpus), "memory_bytes", u64(m->mem_total), "gpu", ps_json_text(b->gpu));
}

static json_t *all(const struct ps_bench *b, bool complete)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < b->n_rows; i++)
        (void) json_array_append_new(list, row_json(b, &b->rows[i]));
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:o}", "version", PS_VERSION, "machine",
        machine(b), "model", b->n_models == 1 ? model(b->models[0]) : json_null(), "suite",
        ps_json_text(b->suite_path), "source",
        ps_json_text(json_string_value(json_object_get(b->suite, "source"))), "hardware",
        ps_json_text(b->profile ? b->profile->name : NULL), "repeats", u64(b->repeats), "simulated",
        b->profile != NULL, "projected", b->project > 0, "complete", complete, "rows", list);
}

/* ---- FlexGen's lines */

static void log_row(FILE *f, const struct ps_bench *b, const struct ps_bench_row *row)
{
    const struct ps_bench_run *r = ps_bench_middle(row);
    const struct ps_packed *m = row->model->packed;
    const struct ps_shape *s = &m->shape;
    const double gb = 0x1p30, tokens = row->req.job.longest_total;
    double block = (double) row->plan.slots * row->plan.micro_batches;
    if (!r) return;
    if (block > (double) row->requests) block = (double) row->requests;
    const struct ps_bench_rates v = ps_bench_rates(r);
    const double cache =
        block * s->layers *
        (double) ps_slab_kv_bytes(s->kv_heads, s->head_dim, row->req.kv_config.type,
                                  row->req.job.longest_total);
    (void) fprintf(f,
                   "model size: %.3f GB\tcache size: %.3f GB\thidden size (p): %.3f GB\n"
                   "peak gpu mem: %.3f GB\tprojected: %s\n"
                   "prefill latency: %.3f s\tprefill throughput: %.3f token/s\n"
                   "decode latency: %.3f s\tdecode throughput: %.3f token/s\n"
                   "total latency: %.3f s\ttotal throughput: %.3f token/s\n",
                   (double) m->weight_bytes / gb, cache / gb, block * tokens * s->hidden * 2 / gb,
                   (double) row->plan.gpu_bytes / gb, r->projected || b->profile ? "True" : "False",
                   r->prefill_s, v.prefill, r->decode_s, isfinite(v.decode) ? v.decode : 0,
                   ps_bench_seconds(r), v.total);
}

/* ---- files */

static int write_file(const char *option, const char *path, const struct ps_bench *b,
                      const json_t *figures, struct ps_detail *dt)
{
    ps_auto_free char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f) return -ENOMEM;
    bool ok = true;
    if (figures) ok = json_dumpf(figures, f, JSON_INDENT(1)) == 0 && fputc('\n', f) != EOF;
    for (size_t i = 0; !figures && i < b->n_rows; i++) log_row(f, b, &b->rows[i]);
    ok = !ferror(f) && ok;
    if (fclose(f) || !ok) return ps_fail(dt, -ENOMEM, "%s %s: out of memory", option, path);
    int r = ps_file_replace(path, text, dt);
    return r < 0 ? ps_fail_in(dt, r, "%s", option) : 0;
}

int ps_bench_write(const struct ps_bench *b, bool complete, struct ps_detail *dt)
{
    int r = b->log ? write_file("--log", b->log, b, NULL, dt) : 0;
    if (r < 0 || !b->output) return r;
    const uint64_t before = ps_json_failures();
    json_t *figures = all(b, complete);
    if (!figures || ps_json_failures() != before)
        r = ps_fail(dt, -ENOMEM, "-o %s: out of memory", b->output);
    else
        r = write_file("-o", b->output, b, figures, dt);
    json_decref(figures);
    return r;
}
