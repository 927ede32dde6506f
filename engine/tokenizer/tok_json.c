/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tokenizer/tok_json.h"
#include "engine/base/ps_mem.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

int tok_source_fail(const struct tok_source *s, int file, int err, const char *fmt, ...)
{
    char text[800];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return ps_fail(s->dt, err, "%s/%s: %s", s->fs->folder, tok_file_name[file], text);
}

static int parse(struct tok_source *s, int file)
{
    const struct tok_file *f = &s->fs->f[file];
    char path[PATH_MAX];
    if (!f->data) return 0;
    (void) snprintf(path, sizeof path, "%s/%s", s->fs->folder, tok_file_name[file]);
    return ps_json_object(f->data, f->len, path, &s->root[file], s->dt);
}

int tok_source_open(const struct tok_files *fs, struct tok_source *ret, struct ps_detail *dt)
{
    (void) ps_json_failures();
    *ret = (struct tok_source) { .fs = fs, .dt = dt, .seen = json_object() };
    int r = ret->seen ? 0 : -ENOMEM;
    for (int i = 0; i < TOK__FILES && r >= 0; i++)
        if (i != TOK_MERGES) r = parse(ret, i);
    if (r < 0) tok_source_done(ret);
    return r;
}

void tok_source_done(struct tok_source *s)
{
    for (int i = 0; i < TOK__FILES; i++) json_decref(s->root[i]);
    json_decref(s->seen);
    free(s->pend);
}

int tok_json_bool(const struct tok_source *s, int file, const json_t *obj, const char *key,
                  bool def, bool *ret)
{
    const json_t *v = json_object_get(obj, key);
    if (v && !json_is_boolean(v) && !json_is_null(v))
        return tok_source_fail(s, file, -PS_EFORMAT, "%s is neither true nor false", key);
    *ret = json_is_boolean(v) ? json_is_true(v) : def;
    return 0;
}

bool tok_json_nothing(const json_t *v)
{
    return !v || json_is_null(v) || (json_is_string(v) && !json_string_length(v));
}

int64_t tok_source_id(const struct tok_source *s, const char *text)
{
    const json_t *v = json_object_get(s->vocab, text);
    if (v) return json_integer_value(v);
    v = json_object_get(s->seen, text);
    return v ? s->pend[json_integer_value(v)].as.id : -1;
}

/* Enters a token once; id < 0: the vocabulary's, or the next one. */
static int pend(struct tok_source *s, int file, const char *c, int64_t id, struct tok_added as)
{
    size_t len = c ? strlen(c) : 0;
    if (!c || !len || len > TOK_MAX_CONTENT)
        return tok_source_fail(s, file, -PS_EFORMAT,
                               "an added token is not a text of 1 to %d bytes", TOK_MAX_CONTENT);
    if (json_object_get(s->seen, c)) return 0;
    const json_t *known = json_object_get(s->vocab, c);
    if (known && id >= 0 && id != json_integer_value(known))
        return tok_source_fail(s, file, -PS_EFORMAT,
                               "added token \"%.80s\" has id %lld, but %lld in the vocabulary", c,
                               (long long) id, (long long) json_integer_value(known));
    if (id < 0) id = known ? json_integer_value(known) : s->next_id;
    if (id >= TOK_MAX_IDS || s->n_pend == TOK_MAX_ADDED)
        return tok_source_fail(s, file, -PS_EFORMAT,
                               "added token \"%.80s\": ids must be below %d, tokens at most %d", c,
                               TOK_MAX_IDS, TOK_MAX_ADDED);
    if (ps_grow(&s->pend, &s->cap_pend, s->n_pend, s->n_pend + 1, sizeof(*s->pend)) < 0)
        return -ENOMEM;
    if (json_object_set_new(s->seen, c, json_integer((json_int_t) s->n_pend)) < 0) return -ENOMEM;
    as.id = (int32_t) id;
    s->pend[s->n_pend++] = (struct tok_pending) { c, len, tok_file_name[file], as };
    if (id >= s->next_id) s->next_id = id + 1;
    if (id > s->max_id) s->max_id = id;
    return 0;
}

/* {"content": ..., "lstrip": ..., ...} */
static int pend_object(struct tok_source *s, int file, const json_t *o, int64_t id, bool special)
{
    struct tok_added as = { 0 };
    const struct {
        const char *key;
        bool *at, def;
    } flag[] = { { "special", &as.special, special },
                 { "lstrip", &as.lstrip, false },
                 { "rstrip", &as.rstrip, false },
                 { "single_word", &as.single_word, false },
                 { "normalized", &as.normalized, false } };
    if (!json_is_object(o))
        return tok_source_fail(s, file, -PS_EFORMAT, "an added token is not an object");
    for (size_t i = 0; i < PS_ARRAY_LEN(flag); i++) {
        int r = tok_json_bool(s, file, o, flag[i].key, flag[i].def, flag[i].at);
        if (r < 0) return r;
    }
    as.special |= special;
    return pend(s, file, json_string_value(json_object_get(o, "content")), id, as);
}

/* A special token: a text, or an object. */
static int pend_special(struct tok_source *s, int file, const json_t *v)
{
    if (json_is_object(v)) return pend_object(s, file, v, -1, true);
    if (json_is_string(v))
        return pend(s, file, json_string_value(v), -1, (struct tok_added) { .special = true });
    return tok_source_fail(s, file, -PS_EFORMAT, "a special token is neither a text nor an object");
}

static const char *const special_name[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token" };

/* Which file's word counts: special_tokens_map.json over tokenizer_config.json, unless the latter lists its tokens itself. */
static json_t *named(const struct tok_source *s, const char *name, int *ret_file)
{
    *ret_file = TOK_SPECIAL_MAP;
    json_t *v = NULL;
    if (!json_object_get(s->root[TOK_CONFIG], "added_tokens_decoder"))
        v = json_object_get(s->root[TOK_SPECIAL_MAP], name);
    if (v) return v;
    *ret_file = TOK_CONFIG;
    return json_object_get(s->root[TOK_CONFIG], name);
}

/* GPT2Tokenizer has defaults for these three. */
static bool has_default(const struct tok_source *s, const char *name)
{
    return s->gpt2 &&
           (!strcmp(name, "bos_token") || !strcmp(name, "eos_token") || !strcmp(name, "unk_token"));
}

#define GPT2_DEFAULT "<|endoftext|>"

const char *tok_source_named(const struct tok_source *s, const char *name)
{
    int file;
    const json_t *v = named(s, name, &file);
    if (json_is_object(v)) v = json_object_get(v, "content");
    if (json_is_string(v)) return json_string_value(v);
    return !v && has_default(s, name) ? GPT2_DEFAULT : NULL;
}

static int pend_default(struct tok_source *s)
{
    /* Hugging Face would append it to a vocabulary without it; a model has no row for that one. */
    if (!json_object_get(s->vocab, GPT2_DEFAULT)) return 0;
    return pend(s, TOK_CONFIG, GPT2_DEFAULT, -1, (struct tok_added) { .special = true });
}

static int pend_named(struct tok_source *s)
{
    bool deflt = false;
    for (size_t i = 0; i < PS_ARRAY_LEN(special_name); i++) {
        int file;
        json_t *v = named(s, special_name[i], &file);
        deflt |= !v && has_default(s, special_name[i]);
        if (tok_json_nothing(v)) continue;
        int r = pend_special(s, file, v);
        if (r < 0) return r;
    }
    static const char *const list[] = { "additional_special_tokens", "extra_special_tokens" };
    for (size_t i = 0; i < PS_ARRAY_LEN(list); i++) {
        int file, r = 0;
        json_t *v = named(s, list[i], &file), *x;
        size_t k;
        const char *key;
        json_array_foreach(v, k, x)
        {
            if (r >= 0) r = pend_special(s, file, x);
        }
        json_object_foreach(v, key, x)
        {
            if (r >= 0) r = pend_special(s, file, x);
        }
        if (r < 0) return r;
    }
    return deflt ? pend_default(s) : 0;
}

static int pend_decoder(struct tok_source *s)
{
    json_t *all = json_object_get(s->root[TOK_CONFIG], "added_tokens_decoder"), *v;
    const char *key;
    if (all && !json_is_object(all) && !json_is_null(all))
        return tok_source_fail(s, TOK_CONFIG, -PS_EFORMAT, "added_tokens_decoder is not an object");
    json_object_foreach(all, key, v)
    {
        char *end;
        errno = 0;
        long id = strtol(key, &end, 10);
        if (key[0] < '0' || key[0] > '9' || *end || errno || id >= TOK_MAX_IDS)
            return tok_source_fail(s, TOK_CONFIG, -PS_EFORMAT,
                                   "added_tokens_decoder: \"%.80s\" is not an id below %d", key,
                                   TOK_MAX_IDS);
        int r = pend_object(s, TOK_CONFIG, v, id, false);
        if (r < 0) return r;
    }
    return 0;
}

static int id_of(const struct tok_source *s, int file, const json_t *v, const char *what,
                 int64_t *ret)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= TOK_MAX_IDS)
        return tok_source_fail(s, file, -PS_EFORMAT, "the id of \"%.80s\" is not a number below %d",
                               what, TOK_MAX_IDS);
    *ret = json_integer_value(v);
    return 0;
}

/* tokenizer.json's list of objects with ids. */
static int pend_fast(struct tok_source *s)
{
    json_t *all = json_object_get(s->root[TOK_FAST], "added_tokens"), *v;
    size_t i;
    if (all && !json_is_array(all) && !json_is_null(all))
        return tok_source_fail(s, TOK_FAST, -PS_EFORMAT, "added_tokens is not a list");
    json_array_foreach(all, i, v)
    {
        int64_t id = 0;
        int r = id_of(s, TOK_FAST, json_object_get(v, "id"), "added token", &id);
        if (r >= 0) r = pend_object(s, TOK_FAST, v, id, false);
        if (r < 0) return r;
    }
    return 0;
}

/* added_tokens.json: text -> id. */
static int pend_ids(struct tok_source *s)
{
    const char *key;
    json_t *v;
    if (json_object_get(s->root[TOK_CONFIG], "added_tokens_decoder") || s->root[TOK_FAST]) return 0;
    json_object_foreach(s->root[TOK_ADDED_IDS], key, v)
    {
        int64_t id = 0;
        int r = id_of(s, TOK_ADDED_IDS, v, key, &id);
        if (r < 0) return r;
        bool special = false;
        for (size_t i = 0; i < PS_ARRAY_LEN(special_name); i++) {
            const char *n = tok_source_named(s, special_name[i]);
            special |= n && !strcmp(n, key);
        }
        r = pend(s, TOK_ADDED_IDS, key, id,
                 (struct tok_added) { .special = special, .normalized = !special });
        if (r < 0) return r;
    }
    return 0;
}

int tok_source_added(struct tok_source *s)
{
    const char *key;
    json_t *v;
    int file = s->root[TOK_FAST] ? TOK_FAST : TOK_VOCAB;
    s->max_id = -1;
    json_object_foreach(s->vocab, key, v)
    {
        int64_t id = 0;
        int r = id_of(s, file, v, key, &id);
        if (r < 0) return r;
        if (id > s->max_id) s->max_id = id;
    }
    s->next_id = (int64_t) json_object_size(s->vocab);
    int r = pend_decoder(s);
    if (r >= 0) r = pend_fast(s);
    if (r >= 0) r = pend_ids(s);
    if (r >= 0) r = pend_named(s);
    return r;
}
