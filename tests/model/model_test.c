/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_mem.h"
#include "engine/model/model.h"
#include "ps_cmocka.h"
#include <jansson.h>

#define SIZES                                                                          \
    "\"model_type\":\"opt\",\"num_hidden_layers\":2,\"hidden_size\":8,\"ffn_dim\":24," \
    "\"num_attention_heads\":2,\"vocab_size\":11,\"max_position_embeddings\":16"

#define OTHER(type)                                                          \
    "\"model_type\":\"" type "\",\"num_hidden_layers\":2,\"hidden_size\":8," \
    "\"intermediate_size\":24,\"num_attention_heads\":4,\"vocab_size\":11,"  \
    "\"max_position_embeddings\":16"

static int parse(const char *json, struct ps_shape *s, struct ps_detail *dt)
{
    dt->text[0] = 0;
    return ps_shape_parse(json, strlen(json), "x/config.json", s, dt);
}

static void defaults_are_hugging_faces(void **state)
{
    struct ps_shape s;
    struct ps_detail dt;
    assert_ok_dt(parse("{" SIZES "}", &s, &dt), &dt);
    assert_int_equal(s.layers, 2);
    assert_int_equal(s.head_dim, 4);
    assert_int_equal(s.embed, 8);
    assert_int_equal(s.position_rows, 18);
    assert_true(s.norm_before && s.final_norm && s.tied && s.bias);
    assert_int_equal(s.bos, 2);
    assert_int_equal(s.pad, 1);
    assert_int_equal(s.dtype, PS_F32);
    assert_string_equal(s.name, "x");
    assert_true(s.eps > 0.9e-5f && s.eps < 1.1e-5f);
}

static void names_and_types(void **state)
{
    struct ps_shape s;
    struct ps_detail dt;
    assert_ok_dt(parse("{" SIZES ",\"_name_or_path\":\"facebook/opt-350m\",\"torch_dtype\":"
                       "\"float16\",\"do_layer_norm_before\":false,\"word_embed_proj_dim\":4,"
                       "\"eos_token_id\":null,\"pad_token_id\":99}",
                       &s, &dt),
                 &dt);
    assert_string_equal(s.name, "facebook/opt-350m");
    assert_int_equal(s.dtype, PS_F16);
    assert_int_equal(s.embed, 4);
    assert_false(s.final_norm);
    assert_int_equal(s.eos, -1);
    assert_int_equal(s.pad, -1);
    assert_ok_dt(
        parse("{" SIZES ",\"_name_or_path\":\"/home/a/big/\",\"dtype\":\"bfloat16\"}", &s, &dt),
        &dt);
    assert_string_equal(s.name, "big");
    assert_int_equal(s.dtype, PS_BF16);
    assert_ok_dt(parse("{" SIZES ",\"eos_token_id\":-1}", &s, &dt), &dt);
    assert_int_equal(s.eos, -1);
    assert_ok_dt(parse("{" SIZES ",\"eos_token_id\":[10]}", &s, &dt), &dt);
    assert_int_equal(s.eos, 10);
}

static void refusals_name_the_field(void **state)
{
    static const struct {
        const char *json, *says;
        int err;
    } cases[] = {
        { "", "config.json", PS_EFORMAT },
        { "[]", "expected a JSON object", PS_EFORMAT },
        { "{}", "model_type", PS_EFORMAT },
        { "{\"model_type\":\"bloom\"}", "bloom", PS_EUNSUPPORTED },
        { "{" OTHER("llama") ",\"num_key_value_heads\":3}", "num_key_value_heads", PS_EFORMAT },
        { "{" OTHER("llama") ",\"num_key_value_heads\":5}", "num_key_value_heads", PS_EFORMAT },
        { "{" OTHER("llama") ",\"attention_bias\":true}", "attention_bias", PS_EUNSUPPORTED },
        { "{" OTHER("llama") ",\"mlp_bias\":true}", "mlp_bias", PS_EUNSUPPORTED },
        { "{" OTHER("gpt_neox") ",\"attention_bias\":false}", "attention_bias", PS_EUNSUPPORTED },
        { "{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":2,\"hidden_size\":8}",
          "intermediate_size", PS_EFORMAT },
        { "{\"model_type\":\"opt\"}", "num_hidden_layers", PS_EFORMAT },
        { "{" SIZES ",\"eos_token_id\":11}", "eos_token_id is 11; expected 0 to 10", PS_EFORMAT },
        { "{" SIZES ",\"eos_token_id\":-2}", "eos_token_id is -2", PS_EFORMAT },
        { "{" SIZES ",\"eos_token_id\":[99999]}", "eos_token_id is 99999", PS_EFORMAT },
        { "{" SIZES ",\"activation_function\":\"gelu\"}", "gelu", PS_EUNSUPPORTED },
        { "{" SIZES ",\"layer_norm_elementwise_affine\":false}", "layer_norm_elementwise_affine",
          PS_EUNSUPPORTED },
        { "{" SIZES ",\"enable_bias\":1}", "enable_bias", PS_EFORMAT },
        { "{" SIZES ",\"torch_dtype\":\"float64\"}", "float64", PS_EUNSUPPORTED },
        { "{" SIZES ",\"quantization_config\":{}}", "quantization_config", PS_EUNSUPPORTED },
        { "{" SIZES ",\"word_embed_proj_dim\":1e3}", "word_embed_proj_dim", PS_EFORMAT },
        { "{" SIZES ",\"word_embed_proj_dim\":-4}", "word_embed_proj_dim", PS_EFORMAT },
        { "{" SIZES ",\"hidden_size\":9}", "duplicate", PS_EFORMAT },
        { "{\"model_type\":\"opt\",\"num_hidden_layers\":2,\"hidden_size\":9,\"ffn_dim\":24,"
          "\"num_attention_heads\":2,\"vocab_size\":11,\"max_position_embeddings\":16}",
          "num_attention_heads", PS_EFORMAT },
        { "{\"model_type\":\"opt\",\"num_hidden_layers\":99999999}", "num_hidden_layers",
          PS_EFORMAT },
    };
    struct ps_shape s = { .layers = 77 };
    struct ps_detail dt;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        int r = parse(cases[i].json, &s, &dt);
        if (r != -cases[i].err) fail_msg("%s: %s (%s)", cases[i].json, ps_err_name(r), dt.text);
        assert_says(&dt, cases[i].says);
        assert_int_equal(s.layers, 77);
    }
    char deep[400];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    assert_err(parse(deep, &s, &dt), PS_EFORMAT);
    assert_says(&dt, "nested");
}

static uint64_t count(const struct ps_shape *s)
{
    struct ps_tensor *t;
    struct ps_detail dt;
    size_t n;
    uint64_t sum = 0;
    assert_ok_dt(ps_model_tensors(s, &t, &n, &dt), &dt);
    uint32_t group = 0;
    bool matrix = false;
    for (size_t i = 0; i < n; i++) {
        assert_true(t[i].group >= group && t[i].group <= s->layers);
        if (t[i].group > group) matrix = false;
        group = t[i].group;
        assert_false(matrix && t[i].vector); /* vectors first */
        matrix = !t[i].vector;
        if (t[i].vector) assert_int_equal(t[i].rows, 1);
        sum += (uint64_t) t[i].rows * t[i].cols;
    }
    assert_int_equal(group, s->layers);
    free(t);
    return sum;
}

/* The published configs, and the number of parameters that Hugging Face counts for each. */
static void published_sizes(void **state)
{
    static const struct {
        const char *name;
        uint64_t params;
    } models[] = {
        { "opt-125m", 125239296 },      { "opt-350m", 331196416 },
        { "opt-1.3b", 1315758080 },     { "opt-2.7b", 2651596800 },
        { "opt-6.7b", 6658473984 },     { "opt-13b", 12853473280 },
        { "opt-30b", 29974540288 },     { "opt-66b", 65719701504 },
        { "opt-175b", 174604468224 },   { "llama-7b", 6738415616 },
        { "llama-13b", 13015864320 },   { "llama-30b", 32528943616 },
        { "llama-65b", 65285660672 },   { "llama-2-70b", 68976648192 },
        { "llama-3-70b", 70553706496 }, { "gpt-neox-20b", 20554567680 },
    };
    const char *root = getenv("PS_SOURCE_ROOT");
    if (!root) skip();
    for (size_t i = 0; i < PS_ARRAY_LEN(models); i++) {
        char path[4096];
        struct ps_shape s;
        struct ps_detail dt;
        (void) snprintf(path, sizeof path, "%s/configs/models/%s.json", root, models[i].name);
        assert_ok_dt(ps_shape_read(path, &s, &dt), &dt);
        if (count(&s) != models[i].params)
            fail_msg("%s: %llu parameters", models[i].name, (unsigned long long) count(&s));
    }
}

/* Every activation is written before it is read, and each weight of a layer is used once. */
static void check_steps(const struct ps_shape *s)
{
    struct ps_steps list[3];
    bool have[PS_A__COUNT] = { [PS_A_NONE] = true };
    int used[PS_W__COUNT] = { 0 };
    ps_model_steps(s, &list[0], &list[1], &list[2]);
    for (int k = 0; k < 3; k++) {
        if (k) /* only X goes on from one list to the next */
            for (int a = PS_A_X + 1; a < PS_A__COUNT; a++) have[a] = false;
        assert_true(list[k].n <= PS_STEPS_MAX);
        for (unsigned i = 0; i < list[k].n; i++) {
            const struct ps_step *t = &list[k].s[i];
            assert_true(have[t->in] && (!t->residual || have[t->residual]));
            if (t->op == PS_STEP_ATTENTION) assert_true(have[PS_A_K] && have[PS_A_V]);
            assert_true(t->out != PS_A_NONE && ps_actv_width(s, t->out) > 0);
            have[t->out] = true;
            used[t->w]++;
            used[t->b]++;
        }
    }
    assert_true(have[PS_A_LOGITS]);
    struct ps_tensor *t;
    struct ps_detail dt;
    size_t n;
    assert_ok_dt(ps_model_tensors(s, &t, &n, &dt), &dt);
    for (size_t i = 0; i < n; i++) /* the tied table twice */
        assert_int_equal(used[t[i].role], t[i].role == PS_W_TOKENS && s->tied ? 2 : 1);
    free(t);
}

static void steps_are_whole(void **state)
{
    static const char *const more[] = {
        "",
        ",\"do_layer_norm_before\":false,\"word_embed_proj_dim\":4",
        ",\"do_layer_norm_before\":false",
        ",\"word_embed_proj_dim\":12,\"_remove_final_layer_norm\":true",
        ",\"enable_bias\":false,\"tie_word_embeddings\":false",
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(more); i++) {
        char json[1024];
        struct ps_shape s;
        struct ps_detail dt;
        (void) snprintf(json, sizeof json, "{" SIZES "%s}", more[i]);
        assert_ok_dt(parse(json, &s, &dt), &dt);
        check_steps(&s);
        (void) count(&s);
    }
}

/* Families that can be planned for: their widths, their steps, and that nobody runs them. */
static void planned_families(void **state)
{
    static const struct {
        const char *json;
        uint32_t kv_heads, head_dim;
        bool gated, parallel;
    } cases[] = {
        { "{" OTHER("llama") "}", 4, 2, true, false },
        { "{" OTHER("llama") ",\"num_key_value_heads\":2,\"head_dim\":6}", 2, 6, true, false },
        { "{" OTHER("llama") ",\"tie_word_embeddings\":true}", 4, 2, true, false },
        { "{" OTHER("gpt_neox") "}", 4, 2, false, true },
        { "{" OTHER("gpt_neox") ",\"use_parallel_residual\":false}", 4, 2, false, false },
    };
    struct ps_shape s;
    struct ps_detail dt;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        assert_ok_dt(parse(cases[i].json, &s, &dt), &dt);
        assert_int_equal(s.kv_heads, cases[i].kv_heads);
        assert_int_equal(s.head_dim, cases[i].head_dim);
        assert_int_equal(s.gated, cases[i].gated);
        assert_int_equal(s.parallel, cases[i].parallel);
        assert_int_equal(ps_actv_width(&s, PS_A_V), cases[i].kv_heads * cases[i].head_dim);
        assert_int_equal(s.position_rows, 0);
        check_steps(&s);
        (void) count(&s);
        assert_err(ps_shape_runs(&s, "x/config.json", &dt), PS_EUNSUPPORTED);
        assert_says(&dt, "can be planned for");
    }
    assert_ok_dt(parse("{" SIZES "}", &s, &dt), &dt);
    assert_ok_dt(ps_shape_runs(&s, "x", &dt), &dt);
}

static void every_allocation_fails(void **state)
{
    struct ps_detail dt;
    struct ps_shape s;
    int r = -1;
    for (uint64_t nth = 1; r < 0; nth++) {
        assert_true(nth < 1000);
        struct ps_tensor *t = NULL;
        size_t n;
        ps_mem_fault_arm(nth);
        r = parse("{" SIZES "}", &s, &dt);
        if (r == 0) r = ps_model_tensors(&s, &t, &n, &dt);
        int hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (r == 0 && hit) fail_msg("allocation %llu failed unnoticed", (unsigned long long) nth);
        if (r < 0 && r != -ENOMEM) fail_msg("%llu: %s", (unsigned long long) nth, dt.text);
        free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_hugging_faces),
        cmocka_unit_test(names_and_types),
        cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(published_sizes),
        cmocka_unit_test(steps_are_whole),
        cmocka_unit_test(planned_families),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
