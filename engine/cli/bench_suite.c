/* SPDX-License-Identifier: Apache-2.0 */
/* A suite: { "name", "source", "notes", "model": a path from the suite's folder, "options", "schedule", "rows": [ row... ] }; a row:
 * { "name", "model", "prompt_len", "gen_len", "job": a path, "requests", "options", "schedule", "published", "notes" }. "options" are those
 * of generate by their names, "schedule" a list of no-overlap, barrier, no-continuous; the suite's own come before the row's. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_json.h"
#include "engine/cli/bench.h"
#include <stdio.h>
#include <string.h>

enum { SUITE_MAX_BYTES = 4 << 20 };

/* Where one is, for messages. */
struct place {
    const char *file;
    char at[64]; /* "", or "rows[3]." */
    struct ps_detail *dt;
};

static int wrong(const struct place *p, const char *field, const char *what)
{
    return ps_fail(p->dt, -PS_EFORMAT, "--suite %s: %s%s: %s", p->file, p->at, field, what);
}

static int known_fields(const struct place *p, json_t *o, const char *const *names)
{
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v)
    {
        size_t i = 0;
        while (names[i] && strcmp(names[i], key) != 0) i++;
        if (!names[i]) return wrong(p, key, "no such field");
    }
    return 0;
}

/* An optional text. */
static int text(const struct place *p, json_t *o, const char *field, const char **ret)
{
    json_t *v = json_object_get(o, field);
    if (v && !json_is_string(v)) return wrong(p, field, "a text was expected");
    if (v) *ret = json_string_value(v);
    return 0;
}

static int whole(const struct place *p, json_t *o, const char *field, uint64_t most, uint64_t *ret)
{
    char expected[80];
    json_t *v = json_object_get(o, field);
    if (!v) return 0;
    (void) snprintf(expected, sizeof expected, "a whole number from 1 to %llu was expected",
                    (unsigned long long) most);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || (uint64_t) json_integer_value(v) > most)
        return wrong(p, field, expected);
    *ret = (uint64_t) json_integer_value(v);
    return 0;
}

/* Numbers become texts, which stay for as long as the suite. */
static int set_option(const struct place *p, json_t *o, const char *key, json_t *v,
                      struct ps_engine_args *a)
{
    char field[128];
    struct ps_detail why = { "" };
    (void) snprintf(field, sizeof field, "options.%.100s", key);
    if (json_is_integer(v)) {
        if (json_object_set_new(o, key, json_sprintf("%lld", (long long) json_integer_value(v))) <
            0)
            return -ENOMEM;
        v = json_object_get(o, key);
    }
    if (!json_is_string(v)) return wrong(p, field, "a text or a whole number was expected");
    int r = ps_engine_set(a, key, (char *) (uintptr_t) json_string_value(v), &why);
    if (r == -ENOENT)
        return wrong(p, field, "no such option of memory, placement, KV or the machine");
    return r < 0 ? wrong(p, field, why.text) : 0;
}

static int set_options(const struct place *p, json_t *o, struct ps_engine_args *a)
{
    json_t *options = json_object_get(o, "options"), *v;
    const char *key;
    void *next;
    if (!options) return 0;
    if (!json_is_object(options)) return wrong(p, "options", "an object was expected");
    json_object_foreach_safe(options, next, key, v)
    {
        int r = set_option(p, options, key, v, a);
        if (r < 0) return r;
    }
    return 0;
}

static int set_schedule(const struct place *p, json_t *o, struct ps_schedule *how)
{
    json_t *list = json_object_get(o, "schedule"), *v;
    size_t i;
    if (!list) return 0;
    if (!json_is_array(list)) return wrong(p, "schedule", "a list was expected");
    *how = (struct ps_schedule) { 0 };
    json_array_foreach(list, i, v)
    {
        const char *s = json_is_string(v) ? json_string_value(v) : "";
        if (!strcmp(s, "no-overlap"))
            how->no_overlap = true;
        else if (!strcmp(s, "barrier"))
            how->barrier = true;
        else if (!strcmp(s, "no-continuous"))
            how->no_continuous = true;
        else
            return wrong(p, "schedule", "no-overlap, barrier or no-continuous were expected");
    }
    return 0;
}

static int published(const struct place *p, json_t *row)
{
    static const char *const fields[] = { "tokens_per_s", "source", "notes", NULL };
    json_t *o = json_object_get(row, "published");
    const char *source = NULL;
    if (!o) return 0;
    if (!json_is_object(o)) return wrong(p, "published", "an object was expected");
    struct place in = *p;
    const size_t n = strlen(in.at);
    (void) snprintf(in.at + n, sizeof in.at - n, "published.");
    int r = known_fields(&in, o, fields);
    if (!r) r = text(&in, o, "source", &source);
    if (!r && !(json_number_value(json_object_get(o, "tokens_per_s")) > 0))
        r = wrong(&in, "tokens_per_s", "a number above 0 was expected");
    return r;
}

/* 512, or "64-512". */
static int len(const struct place *p, json_t *o, const char *field, struct ps_bench_len *ret)
{
    json_t *v = json_object_get(o, field);
    uint64_t n = 0;
    int r = 0;
    if (json_is_string(v)) {
        if (ps_bench_len_parse(json_string_value(v), ret)) return 0;
        return wrong(p, field,
                     "a whole number of 1 or more, or a range as \"64-512\", was expected");
    }
    r = whole(p, o, field, UINT32_MAX / 2, &n);
    if (!r && n) *ret = (struct ps_bench_len) { (uint32_t) n, (uint32_t) n };
    return r;
}

/* A path from the suite's folder; NULL if the field is not there. */
static int path(const struct place *p, json_t *o, const char *field, char **ret)
{
    const char *name = NULL;
    ps_auto_free char *folder = NULL;
    int r = text(p, o, field, &name);
    *ret = NULL;
    if (r < 0 || !name) return r;
    if (!*name) return wrong(p, field, "a path was expected");
    if (*name != '/' && (r = ps_folder_of(p->file, &folder)) < 0) return r;
    *ret = *name == '/' ? ps_concat(name, "", "") : ps_concat(folder, "/", name);
    return *ret ? 0 : -ENOMEM;
}

static int row_lengths(const struct place *p, json_t *o, struct ps_bench_row *row)
{
    int r = len(p, o, "prompt_len", &row->prompt);
    if (!r) r = len(p, o, "gen_len", &row->gen);
    if (!r) r = whole(p, o, "requests", UINT32_MAX, &row->requests);
    if (!r) r = path(p, o, "job", &row->own_job);
    if (r < 0) return r;
    row->job = row->own_job;
    if (row->job && row->prompt.most)
        return wrong(p, "prompt_len", "the job says how long prompts are");
    if (row->job && row->gen.least != row->gen.most)
        return wrong(p, "gen_len", "with a job, one number for lines that do not say was expected");
    if (!row->job && !row->prompt.most) return wrong(p, "prompt_len", "is missing");
    if (!row->job && !row->gen.most) return wrong(p, "gen_len", "is missing");
    if (!row->gen.most) row->gen = (struct ps_bench_len) { 32, 32 };
    return 0;
}

/* One that is named there; else *ret stays. */
static int find_model(struct ps_bench *b, const struct place *p, json_t *o,
                      struct ps_bench_model **ret)
{
    ps_auto_free char *name = NULL;
    int r = path(p, o, "model", &name);
    if (r < 0 || !name) return r;
    struct ps_bench_model *m = ps_bench_model(b, name);
    if (!m) return wrong(p, "model", "too many models");
    *ret = m;
    return 0;
}

static int read_row(struct ps_bench *b, const struct place *p, json_t *o, struct ps_bench_row *ret)
{
    static const char *const fields[] = { "name",      "model",    "prompt_len", "gen_len",
                                          "job",       "requests", "options",    "schedule",
                                          "published", "notes",    NULL };
    const char *name = NULL;
    if (!json_is_object(o)) return wrong(p, "", "an object was expected");
    int r = known_fields(p, o, fields);
    if (!r) r = text(p, o, "name", &name);
    if (!r && (!name || !*name || strlen(name) >= sizeof ret->name))
        r = wrong(p, "name", "a text of 1 to 95 bytes was expected");
    if (!r) r = find_model(b, p, o, &ret->model);
    if (!r && !ret->model)
        r = wrong(p, "model", "is missing, and neither the suite nor MODEL says it");
    if (!r) r = row_lengths(p, o, ret);
    if (!r) r = set_options(p, o, &ret->engine);
    if (!r) r = set_schedule(p, o, &ret->how);
    if (!r) r = published(p, o);
    if (r < 0) return r;
    (void) snprintf(ret->name, sizeof ret->name, "%s", name);
    ret->spec = o;
    return 0;
}

static int add_row(struct ps_bench *b, const struct place *p, const struct ps_bench_row *base,
                   json_t *o)
{
    struct ps_bench_row row = *base;
    int r = read_row(b, p, o, &row);
    if (!r && !ps_bench_add(b, &row)) r = wrong(p, "", "too many rows");
    if (r < 0) free(row.own_job);
    return r;
}

/* MODEL stands in for the suite's. */
static int default_model(struct ps_bench *b, const struct place *p, struct ps_bench_model **ret)
{
    const char *ignored = NULL;
    if (!b->model) return find_model(b, p, b->suite, ret);
    *ret = ps_bench_model(b, b->model);
    return *ret ? text(p, b->suite, "model", &ignored) : -ENOMEM;
}

static int rows(struct ps_bench *b, struct place *p, const struct ps_bench_row *base)
{
    json_t *list = json_object_get(b->suite, "rows"), *v;
    size_t i;
    if (!json_is_array(list) || !json_array_size(list))
        return wrong(p, "rows", "a list of rows was expected");
    json_array_foreach(list, i, v)
    {
        (void) snprintf(p->at, sizeof p->at, "rows[%zu].", i);
        int r = add_row(b, p, base, v);
        if (r < 0) return r;
    }
    return 0;
}

/* The suite's, if all rows have their own: it is not opened, and no weights are made for it. */
static void drop_unused(struct ps_bench *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n_models; i++) {
        struct ps_bench_model *m = b->models[i];
        size_t k = 0;
        while (k < b->n_rows && b->rows[k].model != m) k++;
        if (k < b->n_rows) {
            b->models[n++] = m;
        } else {
            free(m->path);
            free(m);
        }
    }
    b->n_models = n;
}

int ps_bench_suite(struct ps_bench *b, const struct ps_bench_row *base, struct ps_detail *dt)
{
    static const char *const fields[] = { "name",    "source",   "notes", "model",
                                          "options", "schedule", "rows",  NULL };
    struct place p = { .file = b->suite_path, .dt = dt };
    struct ps_bench_row own = *base;
    ps_auto_free char *json = NULL;
    const char *ignored;
    size_t len;
    int r = ps_slurp(b->suite_path, SUITE_MAX_BYTES, &json, &len, dt);
    if (!r) r = ps_json_object(json, len, b->suite_path, &b->suite, dt);
    if (r < 0) return ps_fail_in(dt, r, "--suite");
    r = known_fields(&p, b->suite, fields);
    if (!r) r = text(&p, b->suite, "name", &ignored);
    if (!r) r = text(&p, b->suite, "source", &ignored);
    if (!r) r = default_model(b, &p, &own.model);
    if (!r) r = set_options(&p, b->suite, &own.engine);
    if (!r) r = set_schedule(&p, b->suite, &own.how);
    if (!r) r = rows(b, &p, &own);
    if (!r) drop_unused(b);
    return r;
}
