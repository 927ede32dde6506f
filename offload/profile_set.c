/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that differ from a described one in a figure: for sweeps, and for what a little more of something would bring. */
#include "offload/profile_set.h"
#include "offload/profile_units.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void scale_curve(struct ps_curve *c, double factor)
{
    for (uint32_t i = 0; i < c->n; i++) c->y[i] *= factor;
}

static void scale_attention(struct ps_rate_attention *a, uint32_t n, double factor)
{
    for (uint32_t i = 0; i < n; i++) scale_curve(&a[i].over_n, factor);
}

static void scale_memory(struct ps_worker_rates *w, double factor)
{
    w->mem *= factor;
    w->copy *= factor;
    w->residual *= factor;
    w->gap_s /= factor;
    scale_attention(w->decode, w->n_decode, factor);
    for (int i = 0; i < PS_OP__COUNT; i++) w->op[i] *= factor;
    scale_curve(&w->read_over, factor);
    scale_curve(&w->copy_over, factor);
}

static void scale_arithmetic(struct ps_worker_rates *w, double factor)
{
    w->flops *= factor;
    for (uint32_t i = 0; i < w->n_linear; i++) scale_curve(&w->linear[i].over_m, factor);
    scale_attention(w->prompt, w->n_prompt, factor);
}

static void scale_way(struct ps_way *w, double factor)
{
    w->alone *= factor;
    w->beside *= factor;
    w->busy *= factor;
}

static void scale_disk(struct ps_way *w, struct ps_rate_disk *d, uint32_t n, double factor)
{
    scale_way(w, factor);
    for (uint32_t i = 0; i < n; i++) scale_curve(&d[i].over_depth, factor);
}

void ps_profile_scale(struct ps_profile *p, enum ps_rate_of what, double factor)
{
    switch (what) {
    case PS_RATE_DISK_READ:
        scale_disk(&p->disk_read, p->disk_read_at, p->n_disk_read, factor);
        break;
    case PS_RATE_DISK_WRITE:
        scale_disk(&p->disk_write, p->disk_write_at, p->n_disk_write, factor);
        break;
    case PS_RATE_H2D: scale_way(&p->h2d, factor); break;
    case PS_RATE_D2H: scale_way(&p->d2h, factor); break;
    case PS_RATE_DRAM: scale_memory(&p->host, factor); break;
    case PS_RATE_GEMM: scale_arithmetic(&p->host, factor); break;
    case PS_RATE_HBM: scale_memory(&p->gpu, factor); break;
    case PS_RATE_GPU_GEMM: scale_arithmetic(&p->gpu, factor); break;
    default: break;
    }
}

/* Where a linear takes about as long as reading its weights, memory is its limit. */
static void fewer_threads(struct ps_rate_linear *l, double mem, double share, double mem_share)
{
    const double bytes = (double) ps_dtype_bytes(l->wtype);
    for (uint32_t i = 0; i < l->over_m.n; i++) {
        const double read = l->over_m.y[i] * bytes / (2 * l->over_m.x[i]);
        l->over_m.y[i] *= read > mem / 2 ? fmax(share, mem_share) : share;
    }
}

void ps_profile_threads(struct ps_profile *p, unsigned threads)
{
    const unsigned were = p->threads ? p->threads : p->cores;
    struct ps_worker_rates *w = &p->host;
    p->threads = threads;
    if (threads >= were) return;
    const struct ps_curve *c = &w->read_over;
    const double share = (double) threads / were,
                 mem = c->n ? ps_curve_at(c, threads, NULL) / ps_curve_at(c, were, NULL) : 1;
    for (uint32_t i = 0; i < w->n_linear; i++) fewer_threads(&w->linear[i], w->mem, share, mem);
    w->mem *= mem;
    w->residual *= mem;
    w->flops *= share;
    if (threads == 1) w->spread_s = 0; /* nothing is handed over */
    w->gap_s /= share;
    scale_attention(w->decode, w->n_decode, mem);
    scale_attention(w->prompt, w->n_prompt, share);
    for (int i = 0; i < PS_OP__COUNT; i++) w->op[i] *= mem;
}

static const struct {
    const char *path, *text;
    size_t at;
} rates[PS_RATE__COUNT] = {
    [PS_RATE_DISK_READ] = { "disk.read", "disk reads",
                            offsetof(struct ps_profile, disk_read.alone) },
    [PS_RATE_DISK_WRITE] = { "disk.write", "disk writes",
                             offsetof(struct ps_profile, disk_write.alone) },
    [PS_RATE_H2D] = { "links.h2d", "copies to the GPU", offsetof(struct ps_profile, h2d.alone) },
    [PS_RATE_D2H] = { "links.d2h", "copies from the GPU", offsetof(struct ps_profile, d2h.alone) },
    [PS_RATE_DRAM] = { "host.read", "host memory", offsetof(struct ps_profile, host.mem) },
    [PS_RATE_GEMM] = { "host.flops", "the host's arithmetic",
                       offsetof(struct ps_profile, host.flops) },
    [PS_RATE_HBM] = { "gpu.read", "GPU memory", offsetof(struct ps_profile, gpu.mem) },
    [PS_RATE_GPU_GEMM] = { "gpu.flops", "the GPU's arithmetic",
                           offsetof(struct ps_profile, gpu.flops) },
};

const char *ps_rate_path(enum ps_rate_of what) { return rates[what].path; }
const char *ps_rate_text(enum ps_rate_of what) { return rates[what].text; }

double ps_profile_rate(const struct ps_profile *p, enum ps_rate_of what)
{
    const void *rate = (const char *) p + rates[what].at;
    return *(const double *) rate;
}

/* Sections, and where in a profile their figures are counted from. */
static const struct {
    const char *name;
    const struct ps_field *fields;
    size_t at;
} sections[] = {
    { "host.", ps_fields_host, 0 },
    { "host.", ps_fields_worker, offsetof(struct ps_profile, host) },
    { "host.ops.", ps_fields_ops, offsetof(struct ps_profile, host) },
    { "gpu.", ps_fields_gpu, 0 },
    { "gpu.", ps_fields_worker, offsetof(struct ps_profile, gpu) },
    { "gpu.ops.", ps_fields_ops, offsetof(struct ps_profile, gpu) },
    { "disk.", ps_fields_disk, 0 },
    { "links.", ps_fields_links, 0 },
    { "", ps_fields_price, 0 },
};

/* *ret_base: where in a profile its section's figures are counted from. */
static const struct ps_field *find(const char *path, size_t *ret_base)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(sections); i++) {
        const size_t n = strlen(sections[i].name);
        if (strncmp(path, sections[i].name, n) != 0) continue;
        for (const struct ps_field *f = sections[i].fields; f->key; f++)
            if (!strcmp(f->key, path + n)) {
                *ret_base = sections[i].at;
                return f;
            }
    }
    return NULL;
}

static int refuse(const struct ps_field *f, const char *path, const char *value,
                  struct ps_detail *dt)
{
    return ps_fail(dt, -PS_EUSAGE, "%s=%s: %s from %g to %g with its unit (%s) was expected", path,
                   value, f->type == PS_FIELD_U32 ? "a whole number" : "a number", f->least,
                   f->most, ps_units_text(f->dim));
}

/* Sizes as in options, too: 512M, 8G are powers of 1024. */
static double unit_of(const struct ps_field *f, const char *name)
{
    static const char suffixes[] = "KMGT";
    if (f->dim == PS_DIM_BYTES && *name && !name[1] && strchr(suffixes, *name))
        return ldexp(1, 10 * (int) (strchr(suffixes, *name) - suffixes + 1));
    const bool plain = f->dim == PS_DIM_CORES || f->dim == PS_DIM_THREADS || f->dim == PS_DIM_SM ||
                       f->dim == PS_DIM_TIMES || f->dim == PS_DIM_MONEY;
    return plain && !*name ? 1 : ps_unit(f->dim, name);
}

/* The number and its unit; negative if it is none. */
static double value_of(const struct ps_field *f, const char *value)
{
    char *end;
    if (*value < '0' || *value > '9' || value[1] == 'x' || value[1] == 'X') return -1;
    const double n = strtod(value, &end), unit = unit_of(f, end);
    return unit > 0 ? n * unit : -1;
}

int ps_profile_set(struct ps_profile *p, const char *path, const char *value, struct ps_detail *dt)
{
    size_t base = 0;
    const struct ps_field *f = find(path, &base);
    if (!f) return -ENOENT;
    const double v = value_of(f, value);
    if (!(v >= f->least && v <= f->most) || (f->type == PS_FIELD_U32 && v != floor(v)))
        return refuse(f, path, value, dt);
    if ((!strncmp(path, "gpu.", 4) || !strncmp(path, "links.", 6)) && !p->gpu_mem)
        return ps_fail(dt, -PS_EUSAGE, "%s=%s: %s has no GPU", path, value, p->name);
    for (int i = 0; i < PS_RATE__COUNT; i++) {
        const double now = ps_profile_rate(p, (enum ps_rate_of) i);
        if (rates[i].at != base + f->at || now <= 0) continue;
        ps_profile_scale(p, (enum ps_rate_of) i, v / now);
        return 0;
    }
    ps_field_put(f, (uint8_t *) p + base, v);
    return 0;
}

bool ps_profile_scales(const char *path)
{
    for (int i = 0; i < PS_RATE__COUNT; i++)
        if (!strcmp(rates[i].path, path)) return true;
    return false;
}

bool ps_profile_amount(const struct ps_profile *p, const char *path, double *ret)
{
    size_t base = 0;
    const struct ps_field *f = find(path, &base);
    if (!f || (f->dim != PS_DIM_RATE && f->dim != PS_DIM_FLOPS && f->dim != PS_DIM_BYTES))
        return false;
    *ret = ps_field_get(f, (const uint8_t *) p + base);
    return true;
}
