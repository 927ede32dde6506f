/* SPDX-License-Identifier: Apache-2.0 */
/* Plans side by side, and what a little more would bring: for people, and as JSON. */
#include "engine/base/ps_json.h"
#include "engine/cli/plan.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void seconds_text(double s, char *t, size_t n)
{
    static const struct {
        double s;
        const char *name;
    } units[] = { { 1, "s" }, { 60, "min" }, { 3600, "h" }, { 86400, "days" } };
    size_t u = 0;
    while (u + 1 < PS_ARRAY_LEN(units) && s >= 2 * units[u + 1].s) u++;
    s /= units[u].s;
    (void) snprintf(t, n, "%.*f %s", s < 1 ? 3 : s < 10 ? 2 : s < 100 ? 1 : 0, s, units[u].name);
}

static void bytes_text(double b, char *t, size_t n)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t u = 0;
    for (; b >= 1000 && u + 1 < PS_ARRAY_LEN(units); u++) b /= 1024;
    (void) snprintf(t, n, "%.*f %s", b < 10 && u ? 2 : b < 100 && u ? 1 : 0, b, units[u]);
}

static void rate_text(double v, char *t, size_t n)
{
    (void) snprintf(t, n, "%.*f", v < 1 ? 4 : v < 100 ? 2 : 0, v);
}

static void value_text(enum ps_figure_kind kind, double v, char *t, size_t n)
{
    if (isnan(v))
        (void) snprintf(t, n, "-");
    else if (kind == PS_FIG_SECONDS)
        seconds_text(v, t, n);
    else if (kind == PS_FIG_BYTES)
        bytes_text(v, t, n);
    else if (kind == PS_FIG_RATE)
        rate_text(v, t, n);
    else
        (void) snprintf(t, n, kind == PS_FIG_PERCENT ? "%.1f %%" : "%.0f", v);
}

enum { LABEL = 24, COLUMN = 14 };

/* What is none in all of them is left out. */
static bool worth_a_row(const struct ps_figures *f, unsigned n, size_t i)
{
    if (!ps_figure_at(i)->label) return false;
    for (unsigned k = 0; k < n; k++)
        if (!isnan(f[k].v[i]) && f[k].v[i] != 0) return true;
    return false;
}

void ps_figures_print(const struct ps_figures *f, unsigned n)
{
    char t[64];
    if (n > 1) (void) printf("%-*s", LABEL, "");
    for (unsigned k = 0; n > 1 && k < n; k++) (void) printf("%*u", COLUMN, k + 1);
    if (n > 1) (void) putchar('\n');
    for (size_t i = 0; ps_figure_at(i); i++) {
        if (!worth_a_row(f, n, i)) continue;
        (void) printf("%-*s", LABEL, ps_figure_at(i)->label);
        for (unsigned k = 0; k < n; k++) {
            value_text(ps_figure_at(i)->kind, f[k].v[i], t, sizeof t);
            (void) printf("%*s", COLUMN, t);
        }
        (void) putchar('\n');
    }
    (void) printf("%-*s", LABEL, "limited by");
    for (unsigned k = 0; k < n; k++) (void) printf("%*s", COLUMN, f[k].limit);
    (void) printf("\n%-*s", LABEL, "which is busy");
    for (unsigned k = 0; k < n; k++) {
        value_text(PS_FIG_PERCENT, f[k].limit_busy, t, sizeof t);
        (void) printf("%*s", COLUMN, t);
    }
    (void) putchar('\n');
}

static void head(const struct ps_plan_answer *a)
{
    const struct ps_point *p = a->point;
    const struct ps_plan_req *q = &p->engine.plan;
    const struct ps_kv_config *kv = &q->kv_config;
    char size[32], host[32], gpu[32], disk[32];
    bytes_text((double) a->model->weight_bytes, size, sizeof size);
    bytes_text((double) q->host_mem, host, sizeof host);
    bytes_text((double) q->gpu.mem_bytes, gpu, sizeof gpu);
    bytes_text((double) q->disk_space, disk, sizeof disk);
    (void) printf("%s (%s of %s) on %s\n", a->model->shape.name, size,
                  ps_dtype_name(a->model->dtype), p->profile.name);
    (void) printf("%" PRIu64 " request%s, %" PRIu64 " prompt token%s, %" PRIu64
                  " to generate; KV policy %s, %s\n",
                  p->stats.requests, ps_plural(p->stats.requests), p->stats.prompt_tokens,
                  ps_plural(p->stats.prompt_tokens), p->stats.max_new_tokens, kv->policy,
                  ps_dtype_name(kv->type));
    (void) printf("allowed: %s of host memory, %s of the GPU's, %s of disk; %u thread%s\n\n", host,
                  q->gpu.mem_bytes ? gpu : "none", disk, q->threads, ps_plural(q->threads));
}

static const char *more_name(int i)
{
    if (i == PS_MORE_GPU_MEM) return "1 GiB of GPU memory";
    if (i == PS_MORE_HOST_MEM) return "1 GiB of host memory";
    return ps_rate_text((enum ps_rate_of)(i - PS_MORE_RATE));
}

void ps_more_print(const struct ps_more *more, double total_s, double tokens)
{
    (void) puts("\nWith a little more (memory: planned anew; rates: the first plan as it is):");
    for (int i = 0; i < PS_MORE__COUNT; i++) {
        char what[64], time[32];
        const double s = fmin(more->total_s[i], total_s); /* nothing is gained, then */
        if (s <= 0) continue;
        (void) snprintf(what, sizeof what, "%s%s",
                        i < PS_MORE_RATE ? "" : "10 % faster: ", more_name(i));
        seconds_text(s, time, sizeof time);
        (void) printf("  %-36s %9s %+6.1f %%", what, time, 100 * (total_s / s - 1));
        if (tokens > 0) (void) printf(" %10.2f tokens/s", tokens / s);
        (void) putchar('\n');
    }
}

static const char *outside(const struct ps_plan_answer *a)
{
    for (unsigned k = 0; k < a->n; k++)
        if (a->plans[k].sim.outside) return a->plans[k].sim.outside_what;
    return NULL;
}

/* What is not planned for though it could be; or NULL. */
static const char *note(const struct ps_plan_answer *a)
{
    const struct ps_plan_req *q = &a->point->engine.plan;
    return !q->no_disk && !q->disk_space && !a->point->profile.disk_space
               ? "The profile does not say how much room its disk has (disk.space): no KV and no "
                 "hidden states are planned for it; --disk-space gives them some."
               : NULL;
}

int ps_plan_print(const struct ps_plan_answer *a)
{
    struct ps_figures f[16];
    ps_auto_free char *options = ps_plan_options(&a->plans[0].plan);
    if (!options) return -ENOMEM;
    for (unsigned k = 0; k < a->n; k++)
        ps_figures_of(&a->point->engine.plan, &a->point->profile, &a->plans[k], &f[k]);
    head(a);
    ps_figures_print(f, a->n);
    if (a->more)
        ps_more_print(a->more, a->plans[0].sim.total_s, (double) a->point->stats.max_new_tokens);
    (void) printf("\nThe first plan as options:\n%s\n", options);
    if (!a->point->profile.measured)
        (void) puts("\nThe hardware's figures are published or derived ones, not measured there.");
    if (a->point->profile.noisy)
        (void) puts("\nSome of the hardware's figures were noisy when they were measured.");
    if (note(a)) (void) printf("\n%s\n", note(a));
    if (outside(a)) (void) printf("\nOutside of what was probed: %s\n", outside(a));
    return 0;
}

static json_t *options_json(const struct ps_plan *p)
{
    char *text = ps_plan_options(p);
    json_t *j = text ? json_string(text) : NULL;
    free(text);
    return j;
}

static json_t *plan_json(const struct ps_point *p, const struct ps_planned *x)
{
    struct ps_figures f;
    json_t *j = json_object();
    int r = j ? 0 : -1;
    ps_figures_of(&p->engine.plan, &p->profile, x, &f);
    if (!r) r = ps_figures_put(&f, j);
    if (!r) r = json_object_set_new(j, "first_token_s", json_real(x->sim.first_token_s));
    if (!r) r = json_object_set_new(j, "latency_p95_s", json_real(x->sim.end_p95_s));
    if (!r) r = json_object_set_new(j, "options", options_json(&x->plan));
    if (!r) return j;
    json_decref(j);
    return NULL;
}

static json_t *more_json(const struct ps_plan_answer *a)
{
    const double total = a->plans[0].sim.total_s;
    json_t *list = json_array();
    for (int i = 0; list && a->more && i < PS_MORE__COUNT; i++) {
        const double s = a->more->total_s[i];
        const char *path = i == PS_MORE_GPU_MEM ? "gpu.mem"
                           : i == PS_MORE_HOST_MEM
                               ? "host.mem"
                               : ps_rate_path((enum ps_rate_of)(i - PS_MORE_RATE));
        if (s <= 0) continue;
        if (json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f}", "what", path, "more",
                                                  i < PS_MORE_RATE ? "1GiB" : "10%", "total_s", s,
                                                  "gain", total / s - 1))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *answer_json(const struct ps_plan_answer *a)
{
    const struct ps_point *p = a->point;
    const struct ps_plan_req *q = &p->engine.plan;
    json_t *plans = json_array();
    for (unsigned k = 0; plans && k < a->n; k++)
        if (json_array_append_new(plans, plan_json(p, &a->plans[k]))) {
            json_decref(plans);
            plans = NULL;
        }
    json_t *rest = more_json(a);
    if (!plans || !rest) {
        json_decref(plans);
        json_decref(rest);
        return NULL;
    }
    return json_pack(
        "{s:{s:o, s:I, s:s}, s:{s:s, s:b}, s:{s:I, s:I, s:I}, s:{s:s, s:s}, s:{s:I, s:I, s:I, s:i},"
        " s:o, s:o, s:s?, s:s?}",
        "model", "name", ps_json_text(a->model->shape.name), "bytes",
        (json_int_t) a->model->weight_bytes, "dtype", ps_dtype_name(a->model->dtype), "hardware",
        "name", p->profile.name, "measured", p->profile.measured, "job", "requests",
        (json_int_t) p->stats.requests, "prompt_tokens", (json_int_t) p->stats.prompt_tokens,
        "generated_tokens", (json_int_t) p->stats.max_new_tokens, "kv", "policy",
        q->kv_config.policy, "dtype", ps_dtype_name(q->kv_config.type), "allowed", "host_bytes",
        (json_int_t) q->host_mem, "gpu_bytes", (json_int_t) q->gpu.mem_bytes, "disk_bytes",
        (json_int_t) q->disk_space, "threads", (int) q->threads, "plans", plans, "more", rest,
        "outside", outside(a), "note", note(a));
}

int ps_plan_print_json(const struct ps_plan_answer *a)
{
    const uint64_t failed = ps_json_failures();
    json_t *j = answer_json(a);
    if (ps_json_failures() != failed) {
        json_decref(j);
        j = NULL;
    }
    return ps_print_json(j);
}
