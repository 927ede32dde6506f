/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: what every family shares. */
#include "engine/base/ps_file.h"
#include "engine/model/families.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };

static int field_type(const struct ps_config *c, const char *field, const char *want)
{
    return ps_fail(c->dt, -PS_EFORMAT, "%s: %s must be %s", c->path, field, want);
}

int ps_config_int(const struct ps_config *c, const char *field, int64_t lo, int64_t hi,
                  int64_t absent, int64_t *ret)
{
    const json_t *v = json_object_get(c->root, field);
    if (!v || json_is_null(v)) {
        if (absent == INT64_MIN)
            return ps_fail(c->dt, -PS_EFORMAT, "%s: %s is missing", c->path, field);
        *ret = absent;
        return 0;
    }
    if (!json_is_integer(v)) return field_type(c, field, "an integer");
    int64_t n = json_integer_value(v);
    if (n < lo || n > hi)
        return ps_fail(c->dt, -PS_EFORMAT, "%s: %s is %lld; expected %lld to %lld", c->path, field,
                       (long long) n, (long long) lo, (long long) hi);
    *ret = n;
    return 0;
}

int ps_config_bool(const struct ps_config *c, const char *field, bool absent, bool *ret)
{
    const json_t *v = json_object_get(c->root, field);
    if (v && !json_is_null(v) && !json_is_boolean(v)) return field_type(c, field, "true or false");
    *ret = v && !json_is_null(v) ? json_is_true(v) : absent;
    return 0;
}

static int config_id(const struct ps_config *c, const char *field, int64_t absent, int64_t *ret)
{
    const json_t *v = json_object_get(c->root, field);
    int64_t id = absent;
    if (json_is_array(v) && json_array_size(v) == 1) v = json_array_get(v, 0);
    if (json_is_null(v))
        id = -1;
    else if (v && !json_is_integer(v))
        return field_type(c, field, "one token id or null");
    else if (v)
        id = json_integer_value(v);
    *ret = id;
    return 0;
}

int ps_config_id(const struct ps_config *c, const char *field, uint32_t vocab, int64_t absent,
                 int32_t *ret)
{
    int64_t id = -1;
    int r = config_id(c, field, absent, &id);
    *ret = id >= 0 && id < (int64_t) vocab ? (int32_t) id : -1;
    return r;
}

int ps_config_eos(const struct ps_config *c, uint32_t vocab, int32_t *ret)
{
    static const char field[] = "eos_token_id";
    int64_t id = -1;
    int r = config_id(c, field, vocab > 2 ? 2 : -1, &id);
    if (r < 0) return r;
    if (id < -1 || id >= (int64_t) vocab)
        return ps_fail(c->dt, -PS_EFORMAT,
                       "%s: %s is %lld; expected 0 to %u (vocab_size - 1), or null where nothing "
                       "ends a text",
                       c->path, field, (long long) id, vocab - 1);
    *ret = (int32_t) id;
    return 0;
}

enum { LAYERS_MAX = 1024, FFN_MAX = 1 << 18, VOCAB_MAX = 1 << 20, POSITIONS_MAX = 1 << 20 };

int ps_config_sizes(const struct ps_config *c, const char *ffn_field, struct ps_shape *s)
{
    const int64_t must = INT64_MIN;
    int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, vocab = 0, pos = 0;
    int r;
    if ((r = ps_config_int(c, "num_hidden_layers", 1, LAYERS_MAX, must, &layers)) < 0 ||
        (r = ps_config_int(c, "hidden_size", 1, PS_HIDDEN_MAX, must, &hidden)) < 0 ||
        (r = ps_config_int(c, ffn_field, 1, FFN_MAX, must, &ffn)) < 0 ||
        (r = ps_config_int(c, "num_attention_heads", 1, PS_HEADS_MAX, must, &heads)) < 0 ||
        (r = ps_config_int(c, "vocab_size", 1, VOCAB_MAX, must, &vocab)) < 0 ||
        (r = ps_config_int(c, "max_position_embeddings", 1, POSITIONS_MAX, must, &pos)) < 0)
        return r;
    if (hidden % heads)
        return ps_fail(c->dt, -PS_EFORMAT,
                       "%s: hidden_size %lld is not a multiple of num_attention_heads %lld",
                       c->path, (long long) hidden, (long long) heads);
    s->layers = (uint32_t) layers;
    s->hidden = s->embed = (uint32_t) hidden;
    s->ffn = (uint32_t) ffn;
    s->q_heads = s->kv_heads = (uint32_t) heads;
    s->head_dim = (uint32_t) (hidden / heads);
    s->vocab = (uint32_t) vocab;
    s->positions = (uint32_t) pos;
    return 0;
}

static int config_dtype(const struct ps_config *c, enum ps_dtype *ret)
{
    static const struct {
        const char *name;
        enum ps_dtype t;
    } names[] = { { "float32", PS_F32 }, { "float16", PS_F16 }, { "bfloat16", PS_BF16 } };
    const json_t *v = json_object_get(c->root, "dtype");
    const char *field = "dtype";
    if (!v || json_is_null(v)) {
        field = "torch_dtype";
        v = json_object_get(c->root, field);
    }
    *ret = PS_F32; /* Hugging Face's default */
    if (!v || json_is_null(v)) return 0;
    const char *s = json_string_value(v);
    if (!s) return field_type(c, field, "a string");
    if (!strncmp(s, "torch.", 6)) s += 6;
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        if (!strcmp(s, names[i].name)) {
            *ret = names[i].t;
            return 0;
        }
    return ps_fail(c->dt, -PS_EUNSUPPORTED,
                   "%s: %s \"%s\" is not supported (float16, bfloat16 and float32 are)", c->path,
                   field, s);
}

/* The config's own name, or the folder's; only the last part of a path on somebody's machine. */
static void shape_name(const struct ps_config *c, struct ps_shape *s)
{
    const char *name = json_string_value(json_object_get(c->root, "_name_or_path"));
    char folder[4096];
    if (!name || !*name) {
        (void) snprintf(folder, sizeof folder, "%s", c->path);
        char *slash = strrchr(folder, '/');
        if (slash && !strcmp(slash + 1, "config.json"))
            *slash = 0; /* FOLDER/config.json; other files go by their own name */
        else if (!slash && !strcmp(folder, "config.json"))
            folder[0] = 0;
        size_t n = strlen(folder);
        while (n > 1 && folder[n - 1] == '/') folder[--n] = 0;
        if (n > 5 && !strcmp(folder + n - 5, ".json")) folder[n - 5] = 0;
        name = folder;
        slash = strrchr(folder, '/');
        if (slash) name = slash + 1;
    } else if (*name == '/' || *name == '.') {
        size_t n = strlen(name);
        while (n > 1 && name[n - 1] == '/') n--;
        size_t from = n;
        while (from > 0 && name[from - 1] != '/') from--;
        (void) snprintf(folder, sizeof folder, "%.*s", (int) (n - from), name + from);
        name = folder;
    }
    size_t w = 0;
    for (const char *p = name; *p && w < sizeof s->name - 1; p++)
        s->name[w++] = (unsigned char) *p < 0x20 || *p == 0x7f ? '?' : *p;
    while (w && *name && strlen(name) > w && ((unsigned char) name[w] & 0xc0) == 0x80)
        w--; /* cut between characters */
    s->name[w] = 0;
    if (!w) (void) snprintf(s->name, sizeof s->name, "model");
}

static int shape_from(const struct ps_config *c, struct ps_shape *ret)
{
    struct ps_shape s = { 0 };
    const json_t *type = json_object_get(c->root, "model_type");
    if (!json_is_string(type))
        return ps_fail(c->dt, -PS_EFORMAT,
                       "%s: model_type is missing; is this a Hugging Face config.json?", c->path);
    int f = 0;
    while (f < PS_FAMILY__COUNT && strcmp(json_string_value(type), ps_families[f]->model_type) != 0)
        f++;
    if (f == PS_FAMILY__COUNT)
        return ps_fail(c->dt, -PS_EUNSUPPORTED,
                       "%s: model_type \"%.64s\" is not supported (opt is; llama and gpt_neox can "
                       "be planned for)",
                       c->path, json_string_value(type));
    const json_t *q = json_object_get(c->root, "quantization_config");
    if (q && !json_is_null(q))
        return ps_fail(c->dt, -PS_EUNSUPPORTED,
                       "%s: quantization_config: quantised checkpoints are not supported; take the "
                       "float16, bfloat16 or float32 one",
                       c->path);
    s.family = (enum ps_family) f;
    int r = ps_families[f]->shape(c, &s);
    if (r < 0 || (r = config_dtype(c, &s.dtype)) < 0) return r;
    shape_name(c, &s);
    *ret = s;
    return 0;
}

void ps_shape_text(const struct ps_shape *s, char ret[static PS_SHAPE_TEXT])
{
    (void) snprintf(ret, PS_SHAPE_TEXT,
                    "model_type=%s num_hidden_layers=%u hidden_size=%u word_embed_proj_dim=%u "
                    "ffn_dim=%u num_attention_heads=%u num_key_value_heads=%u head_dim=%u "
                    "vocab_size=%u max_position_embeddings=%u do_layer_norm_before=%d "
                    "final_layer_norm=%d tie_word_embeddings=%d enable_bias=%d",
                    ps_family_name(s->family), s->layers, s->hidden, s->embed, s->ffn, s->q_heads,
                    s->kv_heads, s->head_dim, s->vocab, s->positions, s->norm_before, s->final_norm,
                    s->tied, s->bias);
}

int ps_shape_parse(const char *json, size_t len, const char *path, struct ps_shape *ret,
                   struct ps_detail *dt)
{
    if (len > CONFIG_BYTES_MAX)
        return ps_fail(dt, -EFBIG, "%s: a config of more than 1 MiB is not plausible", path);
    json_t *root;
    int r = ps_json_object(json, len, path, &root, dt);
    if (r < 0) return r;
    struct ps_config c = { root, path, dt };
    r = shape_from(&c, ret);
    json_decref(root);
    return r;
}

int ps_shape_load(const char *path, struct ps_shape *ret, char **ret_json, size_t *ret_len,
                  struct ps_detail *dt)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        int e = errno;
        return ps_fail(dt, -e, "%s: %s", path, strerror(e));
    }
    ps_auto_free char *json = NULL, *file = NULL;
    file = S_ISDIR(st.st_mode) ? ps_concat(path, "/", "config.json") : ps_concat(path, "", "");
    size_t len;
    if (!file) return ps_fail(dt, -ENOMEM, "out of memory for %s", path);
    int r = ps_slurp(file, CONFIG_BYTES_MAX, &json, &len, dt);
    if (r == -ENOENT)
        return ps_fail(
            dt, r,
            "%s is no model folder: it has no config.json (one in Hugging Face layout, or "
            "one that penstock convert made, was expected)",
            path);
    if (r < 0 || (r = ps_shape_parse(json, len, file, ret, dt)) < 0) return r;
    *ret_json = PS_TAKE(json);
    *ret_len = len;
    return 0;
}

int ps_shape_read(const char *path, struct ps_shape *ret, struct ps_detail *dt)
{
    ps_auto_free char *json = NULL;
    size_t len;
    return ps_shape_load(path, ret, &json, &len, dt);
}
