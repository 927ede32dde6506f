/* SPDX-License-Identifier: Apache-2.0 */
/* A suite: { "name", "source", "notes", "model": a path from the suite's folder, "options", "schedule", "rows": [ row... ] }; a row:
 * { "name", "prompt_len", "gen_len", "requests", "options", "schedule", "published", "notes" }. "options" are those of generate by
 * their names, "schedule" a list of no-overlap, barrier, no-continuous; the suite's own come before the row's. */
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

static int add_row(struct ps_bench *b, const struct place *p, const struct ps_bench_row *base,
                   json_t *o)
{
    static const char *const fields[] = { "name",      "prompt_len", "gen_len",
                                          "requests",  "options",    "schedule",
                                          "published", "notes",      NULL };
    struct ps_bench_row row = *base;
    const char *name = NULL;
    uint64_t prompt = 0, gen = 0;
    if (!json_is_object(o)) return wrong(p, "", "an object was expected");
    int r = known_fields(p, o, fields);
    if (!r) r = text(p, o, "name", &name);
    if (!r && (!name || !*name || strlen(name) >= sizeof row.name))
        r = wrong(p, "name", "a text of 1 to 95 bytes was expected");
    if (!r) r = whole(p, o, "prompt_len", UINT32_MAX / 2, &prompt);
    if (!r) r = whole(p, o, "gen_len", UINT32_MAX / 2, &gen);
    if (!r) r = whole(p, o, "requests", UINT32_MAX, &row.requests);
    if (!r && !prompt) r = wrong(p, "prompt_len", "is missing");
    if (!r && !gen) r = wrong(p, "gen_len", "is missing");
    if (!r) r = set_options(p, o, &row.engine);
    if (!r) r = set_schedule(p, o, &row.how);
    if (!r) r = published(p, o);
    if (r < 0) return r;
    (void) snprintf(row.name, sizeof row.name, "%s", name);
    row.prompt = (uint32_t) prompt;
    row.gen = (uint32_t) gen;
    row.spec = o;
    return ps_bench_add(b, &row) ? 0 : wrong(p, "", "too many rows");
}

/* The model's path is from the suite's folder. */
static int find_model(struct ps_bench *b, const struct place *p)
{
    const char *model = NULL;
    ps_auto_free char *folder = NULL;
    int r = text(p, b->suite, "model", &model);
    if (r < 0 || b->model) return r;
    if (!model) return wrong(p, "model", "is missing, and no MODEL is given");
    if (*model != '/' && (r = ps_folder_of(b->suite_path, &folder)) < 0) return r;
    b->suite_model = *model == '/' ? ps_concat(model, "", "") : ps_concat(folder, "/", model);
    b->model = b->suite_model;
    return b->model ? 0 : -ENOMEM;
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
    if (!r) r = find_model(b, &p);
    if (!r) r = set_options(&p, b->suite, &own.engine);
    if (!r) r = set_schedule(&p, b->suite, &own.how);
    return r < 0 ? r : rows(b, &p, &own);
}
