/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a hardware profile. Nothing in it is taken on trust: each figure has a unit of its own kind, a source and a bound, and what the
 * reader does not know it refuses, since a misspelt field would quietly be one that is missing. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "offload/profile_reader.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PROFILE_BYTES_MAX = 1 << 20 };

/* The lists of curves, and where the parts of an item stand in its struct. */
struct list {
    const char *key, *curve, *type_key, *size_key; /* type_key may be NULL */
    enum ps_dim dim;
    double size_most;
    size_t stride, at_type, at_size, at_curve;
};
static const struct list linear_list = { "linear",
                                         "over_m",
                                         "weights",
                                         "k",
                                         PS_DIM_FLOPS,
                                         1 << 20,
                                         sizeof(struct ps_rate_linear),
                                         offsetof(struct ps_rate_linear, wtype),
                                         offsetof(struct ps_rate_linear, k),
                                         offsetof(struct ps_rate_linear, over_m) };
#define ATTENTION(key, curve, dim)                                                              \
    {                                                                                           \
        key, curve, "kv", "d", dim, 1024, sizeof(struct ps_rate_attention),                     \
            offsetof(struct ps_rate_attention, kv_type), offsetof(struct ps_rate_attention, d), \
            offsetof(struct ps_rate_attention, over_n)                                          \
    }
#define DISK(key)                                                                               \
    {                                                                                           \
        key, "over_depth", NULL, "block", PS_DIM_RATE, 1 << 30, sizeof(struct ps_rate_disk), 0, \
            offsetof(struct ps_rate_disk, block), offsetof(struct ps_rate_disk, over_depth)     \
    }
static const struct list decode_list = ATTENTION("decode", "over_entries", PS_DIM_RATE),
                         prompt_list = ATTENTION("prompt", "over_tokens", PS_DIM_FLOPS),
                         read_list = DISK("read_over_depth"), write_list = DISK("write_over_depth");

static int dtype(struct ps_reader *r, const json_t *obj, const char *key, enum ps_dtype *ret)
{
    const json_t *v = json_object_get(obj, key);
    if (json_is_string(v) && !ps_dtype_parse(json_string_value(v), ret)) return 0;
    return ps_reader_refuse_at(r, key, v, "f32, f16 or bf16");
}

/* The reader stands on the item. */
static int list_item(struct ps_reader *r, const struct list *l, const json_t *v,
                     enum ps_dtype *ret_type, double *ret_size, struct ps_curve *ret)
{
    const char *const members[] = { l->curve, l->size_key, l->type_key, NULL };
    int e = ps_reader_only(r, v, NULL, NULL, members);
    if (!e && l->type_key) e = dtype(r, v, l->type_key, ret_type);
    if (!e) e = ps_reader_int(r, v, l->size_key, 1, l->size_most, ret_size);
    return e ? e : ps_reader_curve(r, v, l->curve, l->dim, ret);
}

static int list(struct ps_reader *r, const json_t *obj, const struct list *l, void *items,
                uint32_t *ret_n)
{
    const json_t *v = json_object_get(obj, l->key);
    const size_t n = json_array_size(v);
    if (!v || json_is_null(v)) return 0;
    if (!json_is_array(v) || n > PS_RATES_MAX)
        return ps_reader_refuse_at(r, l->key, v, "a list of at most 16 curves");
    const size_t was = ps_reader_enter(r, l->key);
    int e = 0;
    for (size_t i = 0; i < n && !e; i++) {
        const size_t here = ps_reader_enter_item(r, i);
        uint8_t *p = (uint8_t *) items + i * l->stride;
        e = list_item(r, l, json_array_get(v, i), (void *) (p + l->at_type),
                      (void *) (p + l->at_size), (void *) (p + l->at_curve));
        e = ps_reader_leave(r, here, e);
    }
    *ret_n = (uint32_t) n;
    return ps_reader_leave(r, was, e);
}

static int worker(struct ps_reader *r, const json_t *v, struct ps_worker_rates *w)
{
    static const char *const none[] = { NULL };
    int e = ps_reader_figures(r, v, ps_fields_worker, w);
    if (!e) e = list(r, v, &linear_list, w->linear, &w->n_linear);
    if (!e) e = list(r, v, &decode_list, w->decode, &w->n_decode);
    if (!e) e = list(r, v, &prompt_list, w->prompt, &w->n_prompt);
    const json_t *ops = json_object_get(v, "ops");
    if (e || !ops || json_is_null(ops)) return e;
    const size_t was = ps_reader_enter(r, "ops");
    e = ps_reader_only(r, ops, ps_fields_ops, NULL, none);
    if (!e) e = ps_reader_figures(r, ops, ps_fields_ops, w);
    return ps_reader_leave(r, was, e);
}

/* A curve of the host over threads. */
static int over_threads(struct ps_reader *r, const json_t *v, const char *key, struct ps_curve *ret)
{
    const json_t *c = json_object_get(v, key);
    return !c || json_is_null(c) ? 0 : ps_reader_curve(r, v, key, PS_DIM_RATE, ret);
}

static int host(struct ps_reader *r, const json_t *v)
{
    static const char *const members[] = {
        "cpu", "linear", "decode", "prompt", "ops", "read_over_threads", "copy_over_threads", NULL
    };
    struct ps_profile *p = r->p;
    int e = ps_reader_only(r, v, ps_fields_host, ps_fields_worker, members);
    if (!e) e = ps_reader_text(r, v, "cpu", false, p->cpu, sizeof p->cpu);
    if (!e) e = ps_reader_figures(r, v, ps_fields_host, p);
    if (!e) e = over_threads(r, v, "read_over_threads", &p->host.read_over);
    if (!e) e = over_threads(r, v, "copy_over_threads", &p->host.copy_over);
    return e ? e : worker(r, v, &p->host);
}

static int gpu(struct ps_reader *r, const json_t *v)
{
    static const char *const members[] = { "name", "linear", "decode", "prompt", "ops", NULL };
    struct ps_profile *p = r->p;
    int e = ps_reader_only(r, v, ps_fields_gpu, ps_fields_worker, members);
    if (!e) e = ps_reader_text(r, v, "name", true, p->gpu_name, sizeof p->gpu_name);
    if (!e) e = ps_reader_figures(r, v, ps_fields_gpu, p);
    return e ? e : worker(r, v, &p->gpu);
}

/* Both rates are known, or neither: then nothing can be put there. */
static int disk_rates(struct ps_reader *r, const json_t *v)
{
    struct ps_profile *p = r->p;
    const bool read = p->disk_read.alone > 0, write = p->disk_write.alone > 0;
    if (read != write)
        return ps_reader_refuse_at(r, read ? "write" : "read",
                                   json_object_get(v, read ? "write" : "read"),
                                   "a figure, as there is one for the other way");
    if (!read) p->disk_space = 0;
    return 0;
}

static int disk(struct ps_reader *r, const json_t *v)
{
    static const char *const members[] = { "read_over_depth", "write_over_depth", NULL };
    struct ps_profile *p = r->p;
    int e = ps_reader_only(r, v, ps_fields_disk, NULL, members);
    if (!e) e = ps_reader_figures(r, v, ps_fields_disk, p);
    if (!e) e = disk_rates(r, v);
    if (!e) e = list(r, v, &read_list, p->disk_read_at, &p->n_disk_read);
    return e ? e : list(r, v, &write_list, p->disk_write_at, &p->n_disk_write);
}

static int links(struct ps_reader *r, const json_t *v)
{
    static const char *const none[] = { NULL };
    int e = ps_reader_only(r, v, ps_fields_links, NULL, none);
    return e ? e : ps_reader_figures(r, v, ps_fields_links, r->p);
}

/* `notes`: for people. */
static int notes(struct ps_reader *r, const json_t *root)
{
    const json_t *v = json_object_get(root, "notes");
    if (v && !json_is_array(v)) return ps_reader_refuse_at(r, "notes", v, "a list of texts");
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return ps_reader_refuse_at(r, "notes", json_array_get(v, i), "a list of texts");
    return 0;
}

static int section(struct ps_reader *r, const json_t *root, const char *key,
                   int (*fn)(struct ps_reader *r, const json_t *v))
{
    const json_t *v = json_object_get(root, key);
    const size_t was = ps_reader_enter(r, key);
    return ps_reader_leave(r, was, v ? fn(r, v) : ps_reader_refuse(r, v, "an object"));
}
static int section_or_null(struct ps_reader *r, const json_t *root, const char *key,
                           int (*fn)(struct ps_reader *r, const json_t *v))
{
    const json_t *v = json_object_get(root, key);
    return !v || json_is_null(v) ? 0 : section(r, root, key, fn);
}

static int profile(struct ps_reader *r, const json_t *root)
{
    static const char *const members[] = { "name", "measured", "notes", "host",
                                           "gpu",  "disk",     "links", NULL };
    struct ps_profile *p = r->p;
    const json_t *m = json_object_get(root, "measured");
    int e = ps_reader_only(r, root, ps_fields_price, NULL, members);
    if (!e) e = ps_reader_text(r, root, "name", true, p->name, sizeof p->name);
    if (!e && m && !json_is_null(m)) {
        p->measured = true;
        e = ps_reader_text(r, root, "measured", true, NULL, 64);
    }
    if (!e) e = notes(r, root);
    if (!e) e = section(r, root, "host", host);
    if (!e) e = section_or_null(r, root, "gpu", gpu);
    if (!e) e = section(r, root, "disk", disk);
    if (!e) e = section_or_null(r, root, "links", links);
    if (!e) e = ps_reader_figures(r, root, ps_fields_price, p);
    if (!e && p->gpu_mem && !(p->h2d.alone > 0 && p->d2h.alone > 0))
        e = ps_fail(r->dt, -PS_EFORMAT,
                    "%s: links.%s is missing; expected a figure, as there is a gpu", r->file,
                    p->h2d.alone > 0 ? "d2h" : "h2d");
    return e;
}

int ps_profile_parse(const char *json, size_t len, const char *path, struct ps_profile *ret,
                     struct ps_detail *dt)
{
    json_t *root = NULL;
    ps_auto_free struct ps_profile *p = ps_calloc(1, sizeof *p);
    if (!p) return ps_fail(dt, -ENOMEM, "out of memory for %s", path);
    int e = ps_json_object(json, len, path, &root, dt);
    if (e < 0) return e;
    struct ps_reader r = { .file = path, .dt = dt, .p = p };
    e = profile(&r, root);
    json_decref(root);
    if (!e) *ret = *p;
    return e;
}

int ps_profile_read(const char *path, struct ps_profile *ret, struct ps_detail *dt)
{
    ps_auto_free char *json = NULL;
    size_t len;
    int r = ps_slurp(path, PROFILE_BYTES_MAX, &json, &len, dt);
    return r < 0 ? r : ps_profile_parse(json, len, path, ret, dt);
}

bool ps_profile_is_this(const struct ps_profile *p, const struct ps_machine *m, const char *gpu)
{
    const double mem = (double) p->host_mem, is = (double) ps_machine_mem(m);
    return p->measured && !strcmp(p->cpu, m->cpu_model) && p->cores == m->cpus &&
           fabs(mem - is) <= 0.02 * is && !strcmp(p->gpu_name, gpu);
}

int ps_profile_default_path(char **ret, struct ps_detail *dt)
{
    int r = ps_cache_path("hardware.json", ret);
    if (r == -ENOENT)
        return ps_fail(dt, r,
                       "no place for a hardware profile: neither XDG_CACHE_HOME nor HOME is set");
    return r < 0 ? ps_fail(dt, r, "out of memory") : 0;
}
