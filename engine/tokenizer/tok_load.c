/* SPDX-License-Identifier: Apache-2.0 */
/* From files to a tokenizer. What transformers does with them was looked up in its releases 4.57 and 5.24; where these differ,
 * 5.24 counts. In short: tokenizer.json says everything but the class's add_prefix_space; without it, vocab.json and merges.txt
 * are used as GPT2Tokenizer does, with tokenizer_config.json's add_bos_token. */
#include "engine/base/ps_mem.h"
#include "engine/tokenizer/tok_json.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const char *str_of(const json_t *obj, const char *key)
{
    return json_string_value(json_object_get(obj, key));
}

static int get_class(struct tok_source *s)
{
    const char *c = str_of(s->root[TOK_CONFIG], "tokenizer_class");
    s->gpt2 = !c || !strcmp(c, "GPT2Tokenizer") || !strcmp(c, "GPT2TokenizerFast");
    if (s->gpt2 || s->root[TOK_FAST]) return 0;
    return tok_source_fail(
        s, TOK_CONFIG, -PS_EUNSUPPORTED,
        "tokenizer_class \"%.80s\" with vocab.json is not supported; expected GPT2Tokenizer "
        "(or a tokenizer.json)",
        c);
}

/* ---- model */
static int merges_json(struct ps_tok *t, const struct tok_source *s, const json_t *list)
{
    json_t *v;
    size_t i;
    int r = json_is_array(list) ? tok_merges_init(t, json_array_size(list)) : -PS_EFORMAT;
    if (r == -PS_EFORMAT) return tok_source_fail(s, TOK_FAST, r, "model.merges is not a list");
    char where[4200];
    json_array_foreach(list, i, v)
    {
        if (r < 0) return r;
        (void) snprintf(where, sizeof(where), "%s/%s: model.merges[%zu]", s->fs->folder,
                        tok_file_name[TOK_FAST], i);
        const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
        const char *text = json_string_value(v), *gap = text ? strchr(text, ' ') : NULL;
        if (gap && !strchr(gap + 1, ' '))
            r = tok_merges_add(t, text, (size_t) (gap - text), gap + 1, strlen(gap + 1),
                               (uint32_t) i, where, s->dt);
        else if (json_array_size(v) == 2 && json_is_string(a) && json_is_string(b))
            r = tok_merges_add(t, json_string_value(a), json_string_length(a), json_string_value(b),
                               json_string_length(b), (uint32_t) i, where, s->dt);
        else
            r = ps_fail(s->dt, -PS_EFORMAT, "%s: expected \"a b\" or [\"a\", \"b\"]", where);
    }
    return r;
}

static int check_model(struct ps_tok *t, const struct tok_source *s, const json_t *m)
{
    const char *type = str_of(m, "type");
    if (!json_is_object(m) || (type && strcmp(type, "BPE") != 0))
        return tok_source_fail(s, TOK_FAST, -PS_EUNSUPPORTED,
                               "model.type is \"%.40s\"; only BPE is supported",
                               type ? type : "missing");
    static const char *const must_lack[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    for (size_t i = 0; i < PS_ARRAY_LEN(must_lack); i++)
        if (!tok_json_nothing(json_object_get(m, must_lack[i])))
            return tok_source_fail(s, TOK_FAST, -PS_EUNSUPPORTED, "model.%s is not supported",
                                   must_lack[i]);
    const json_t *drop = json_object_get(m, "dropout");
    bool fallback = false;
    if (drop && !json_is_null(drop) && !(json_is_number(drop) && json_number_value(drop) == 0))
        return tok_source_fail(s, TOK_FAST, -PS_EUNSUPPORTED, "model.dropout is not supported");
    int r = tok_json_bool(s, TOK_FAST, m, "byte_fallback", false, &fallback);
    if (r >= 0) r = tok_json_bool(s, TOK_FAST, m, "fuse_unk", false, &t->fuse_unk);
    if (r >= 0) r = tok_json_bool(s, TOK_FAST, m, "ignore_merges", false, &t->ignore_merges);
    if (r < 0) return r;
    if (fallback)
        return tok_source_fail(s, TOK_FAST, -PS_EUNSUPPORTED,
                               "model.byte_fallback is not supported");
    const json_t *unk = json_object_get(m, "unk_token");
    if (tok_json_nothing(unk)) return 0;
    const json_t *id = json_object_get(s->vocab, json_is_string(unk) ? json_string_value(unk) : "");
    if (!json_is_integer(id))
        return tok_source_fail(s, TOK_FAST, -PS_EFORMAT,
                               "model.unk_token is not in the vocabulary");
    t->unk = (int32_t) json_integer_value(id);
    return 0;
}

static int fill_vocab(struct ps_tok *t, const struct tok_source *s)
{
    size_t bytes = 1;
    const char *key;
    json_t *v;
    int file = s->root[TOK_FAST] ? TOK_FAST : TOK_VOCAB;
    char where[4200];
    json_object_foreach(s->vocab, key, v) bytes += strlen(key);
    for (size_t i = 0; i < s->n_pend; i++) bytes += 2 * s->pend[i].len;
    int r = tok_vocab_init(t, (uint32_t) (s->max_id + 1),
                           (uint32_t) (json_object_size(s->vocab) + s->n_pend), bytes);
    (void) snprintf(where, sizeof(where), "%s/%s", s->fs->folder, tok_file_name[file]);
    json_object_foreach(s->vocab, key, v)
    {
        if (r >= 0)
            r = tok_vocab_add(t, key, strlen(key), (int32_t) json_integer_value(v), where, s->dt);
    }
    for (size_t i = 0; i < s->n_pend && r >= 0; i++) {
        const struct tok_pending *p = &s->pend[i];
        (void) snprintf(where, sizeof(where), "%s/%s", s->fs->folder, p->file);
        r = tok_added_add(t, p->text, p->len, p->as, where, s->dt);
    }
    if (r >= 0) r = tok_added_sort(t);
    for (int b = 0; b < 256; b++) {
        char c = (char) b;
        t->byte_id[b] = r < 0 ? -1 : tok_vocab_find_bytes(t, &c, 1);
    }
    return r;
}

/* ---- the ids around a text */
static int affix(const struct tok_source *s, int64_t id, int32_t *list, uint32_t *n)
{
    if (id < 0 || id > s->max_id)
        return tok_source_fail(s, TOK_FAST, -PS_EFORMAT,
                               "post_processor names a token that does not exist");
    if (*n == TOK_MAX_AFFIX)
        return tok_source_fail(s, TOK_FAST, -PS_EFORMAT, "post_processor adds more than %d tokens",
                               TOK_MAX_AFFIX);
    list[(*n)++] = (int32_t) id;
    return 0;
}

static int post_template(struct ps_tok *t, const struct tok_source *s, const json_t *pp)
{
    json_t *single = json_object_get(pp, "single"), *v, *one;
    size_t i, k, texts = 0;
    int r = 0;
    json_array_foreach(single, i, v)
    {
        const char *name = str_of(json_object_get(v, "SpecialToken"), "id");
        if (json_is_object(json_object_get(v, "Sequence"))) {
            texts++;
            continue;
        }
        json_t *ids =
            name ? json_object_get(json_object_get(json_object_get(pp, "special_tokens"), name),
                                   "ids")
                 : NULL;
        if (!json_is_array(ids))
            return tok_source_fail(
                s, TOK_FAST, -PS_EFORMAT,
                "post_processor.single[%zu] is neither the text nor one of its special_tokens", i);
        json_array_foreach(ids, k, one)
        {
            int64_t id = json_is_integer(one) ? json_integer_value(one) : -1;
            if (r >= 0)
                r = texts ? affix(s, id, t->suffix, &t->n_suffix)
                          : affix(s, id, t->prefix, &t->n_prefix);
        }
        if (r < 0) return r;
    }
    if (texts != 1)
        return tok_source_fail(s, TOK_FAST, -PS_EUNSUPPORTED,
                               "post_processor.single must have the text once");
    return 0;
}

static int post_roberta(struct ps_tok *t, const struct tok_source *s, const json_t *pp)
{
    const json_t *cls = json_array_get(json_object_get(pp, "cls"), 1);
    const json_t *sep = json_array_get(json_object_get(pp, "sep"), 1);
    int r = affix(s, json_is_integer(cls) ? json_integer_value(cls) : -1, t->prefix, &t->n_prefix);
    if (r >= 0)
        r = affix(s, json_is_integer(sep) ? json_integer_value(sep) : -1, t->suffix, &t->n_suffix);
    return r;
}

static int post_one(struct ps_tok *t, const struct tok_source *s, const json_t *pp)
{
    const char *type = str_of(pp, "type");
    if (!pp || json_is_null(pp) || (type && !strcmp(type, "ByteLevel"))) return 0;
    if (t->n_prefix + t->n_suffix)
        return tok_source_fail(s, TOK_FAST, -PS_EUNSUPPORTED,
                               "post_processor has two that add tokens");
    if (type && !strcmp(type, "TemplateProcessing")) return post_template(t, s, pp);
    if (type && (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing")))
        return post_roberta(t, s, pp);
    return tok_source_fail(
        s, TOK_FAST, -PS_EUNSUPPORTED,
        "post_processor.type is \"%.40s\"; supported are ByteLevel, TemplateProcessing, "
        "RobertaProcessing and a Sequence of them",
        type ? type : "missing");
}

static int post(struct ps_tok *t, const struct tok_source *s)
{
    const json_t *pp = json_object_get(s->root[TOK_FAST], "post_processor");
    const char *type = str_of(pp, "type");
    if (!type || strcmp(type, "Sequence") != 0) return post_one(t, s, pp);
    json_t *list = json_object_get(pp, "processors"), *v;
    size_t i;
    int r = json_is_array(list) ? 0 : -PS_EFORMAT;
    if (r < 0) return tok_source_fail(s, TOK_FAST, r, "post_processor.processors is not a list");
    json_array_foreach(list, i, v)
    {
        if (r >= 0) r = post_one(t, s, v);
    }
    return r;
}

/* GPT2Tokenizer without tokenizer.json: add_bos_token (OPT: true) and add_eos_token. */
static int config_affix(struct ps_tok *t, const struct tok_source *s)
{
    static const char *const key[2][2] = { { "add_bos_token", "bos_token" },
                                           { "add_eos_token", "eos_token" } };
    for (int i = 0; i < 2; i++) {
        bool add;
        int r = tok_json_bool(s, TOK_CONFIG, s->root[TOK_CONFIG], key[i][0], false, &add);
        if (r < 0) return r;
        const char *text = add ? tok_source_named(s, key[i][1]) : NULL;
        if (!text) continue;
        int64_t id = tok_source_id(s, text);
        if (id < 0)
            return tok_source_fail(s, TOK_CONFIG, -PS_EFORMAT,
                                   "%s \"%.80s\" is not in the vocabulary", key[i][1], text);
        if (i)
            t->suffix[t->n_suffix++] = (int32_t) id;
        else
            t->prefix[t->n_prefix++] = (int32_t) id;
    }
    return 0;
}

/* ---- tokenizer.json's other parts */
/* The member, or the only one of a Sequence of one. */
static const json_t *alone_in(const json_t *v, const char *list)
{
    const char *type = str_of(v, "type");
    if (!type || strcmp(type, "Sequence") != 0) return v;
    const json_t *all = json_object_get(v, list);
    return json_array_size(all) == 1 ? json_array_get(all, 0) : json_array_size(all) ? v : NULL;
}

static int fast_parts(struct ps_tok *t, const struct tok_source *s)
{
    const json_t *root = s->root[TOK_FAST];
    const json_t *norm = alone_in(json_object_get(root, "normalizer"), "normalizers");
    const json_t *pre = alone_in(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    const json_t *dec = alone_in(json_object_get(root, "decoder"), "decoders");
    const char *type = str_of(pre, "type");
    if (norm && !json_is_null(norm))
        return tok_source_fail(s, TOK_FAST, -PS_EUNSUPPORTED,
                               "normalizer is \"%.40s\"; none is supported",
                               str_of(norm, "type") ? str_of(norm, "type") : "missing");
    if (!type || strcmp(type, "ByteLevel") != 0)
        return tok_source_fail(s, TOK_FAST, -PS_EUNSUPPORTED,
                               "pre_tokenizer is \"%.40s\"; only ByteLevel is supported",
                               type ? type : "missing");
    int r = tok_json_bool(s, TOK_FAST, pre, "add_prefix_space", true, &t->add_prefix_space);
    if (r >= 0) r = tok_json_bool(s, TOK_FAST, pre, "use_regex", true, &t->use_regex);
    if (r < 0) return r;
    type = str_of(dec, "type");
    if (dec && !json_is_null(dec) && (!type || strcmp(type, "ByteLevel") != 0))
        return tok_source_fail(s, TOK_FAST, -PS_EUNSUPPORTED,
                               "decoder is \"%.40s\"; only ByteLevel is supported",
                               type ? type : "missing");
    return post(t, s);
}

static int load(struct ps_tok *t, struct tok_source *s)
{
    const json_t *fast = s->root[TOK_FAST], *config = s->root[TOK_CONFIG];
    const json_t *model = json_object_get(fast, "model");
    s->vocab = fast ? json_object_get(model, "vocab") : s->root[TOK_VOCAB];
    int r = get_class(s);
    if (r >= 0 && fast) r = check_model(t, s, model);
    if (r < 0) return r;
    if (!json_object_size(s->vocab))
        return tok_source_fail(s, fast ? TOK_FAST : TOK_VOCAB, -PS_EFORMAT,
                               "there are no tokens in the vocabulary");
    r = tok_source_added(s);
    if (r >= 0) r = fill_vocab(t, s);
    char where[4200];
    (void) snprintf(where, sizeof(where), "%s/%s", s->fs->folder, tok_file_name[TOK_MERGES]);
    const struct tok_file *m = &s->fs->f[TOK_MERGES];
    if (r >= 0)
        r = fast ? merges_json(t, s, json_object_get(model, "merges"))
                 : tok_merges_text(t, m->data, m->len, where, s->dt);
    if (r >= 0) r = fast ? fast_parts(t, s) : config_affix(t, s);
    if (r >= 0 && s->gpt2 && (config || !fast))
        r = tok_json_bool(s, TOK_CONFIG, config, "add_prefix_space", false, &t->add_prefix_space);
    if (t->n_prefix) t->bos = t->prefix[0];
    return r;
}

int tok_build(const struct tok_files *fs, struct ps_tok **ret, struct ps_detail *dt)
{
    const bool vocab = fs->f[TOK_VOCAB].data, merges = fs->f[TOK_MERGES].data;
    if (!fs->f[TOK_FAST].data && !vocab && !merges)
        return ps_fail(dt, -ENOENT,
                       "%s: has no tokenizer files (vocab.json and merges.txt, or tokenizer.json)",
                       fs->folder);
    if (!fs->f[TOK_FAST].data && (!vocab || !merges))
        return ps_fail(dt, -PS_EFORMAT, "%s: has %s, but no %s", fs->folder,
                       tok_file_name[vocab ? TOK_VOCAB : TOK_MERGES],
                       tok_file_name[vocab ? TOK_MERGES : TOK_VOCAB]);
    struct ps_tok *t = ps_calloc(1, sizeof(*t));
    if (!t) return -ENOMEM;
    t->unk = t->bos = -1;
    t->use_regex = true;
    struct tok_source s;
    int r = tok_source_open(fs, &s, dt);
    if (r >= 0) {
        r = load(t, &s);
        tok_source_done(&s);
    }
    if (r >= 0) r = tok_merges_look(t);
    if (r >= 0) r = tok_pretok_open(true, &t->pretok, dt);
    if (r < 0) {
        ps_tok_close(t);
        return r;
    }
    for (int i = 0; i < TOK__FILES; i++)
        t->hash = XXH3_64bits_withSeed(fs->f[i].data, fs->f[i].len, t->hash + (uint64_t) i);
    *ret = t;
    return 0;
}

int ps_tok_open(const char *folder, struct ps_tok **ret, struct ps_detail *dt)
{
    struct tok_files fs;
    int r = tok_files_read(folder, &fs, dt);
    if (r < 0) return r;
    r = tok_build(&fs, ret, dt);
    tok_files_done(&fs);
    return r == -ENOMEM ? ps_fail(dt, r, "%s: no memory for the tokenizer", folder) : r;
}

void ps_tok_close(struct ps_tok *t)
{
    if (!t) return;
    tok_pretok_close(t->pretok);
    free(t->entry);
    free(t->block);
    free(t->slot);
    free(t->merge);
    free(t->added);
    free(t->set[0].sorted);
    free(t->set[1].sorted);
    free(t);
}

uint64_t ps_tok_hash(const struct ps_tok *t) { return t->hash; }

uint32_t ps_tok_vocab(const struct ps_tok *t) { return t->n_ids; }

int32_t ps_tok_bos(const struct ps_tok *t) { return t->bos; }

bool ps_tok_is_special(const struct ps_tok *t, int32_t id)
{
    return id >= 0 && (uint32_t) id < t->n_ids && t->entry[id].flags & TOK_SPECIAL;
}

const char *ps_tok_bytes(const struct ps_tok *t, int32_t id, size_t *ret_len)
{
    if (id < 0 || (uint32_t) id >= t->n_ids || !(t->entry[id].flags & TOK_USED)) return NULL;
    *ret_len = t->entry[id].len;
    return t->block + t->entry[id].off;
}
