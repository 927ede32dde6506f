/* SPDX-License-Identifier: Apache-2.0 */
/* OPT (Zhang et al. 2022) in Hugging Face's form. Pre-norm as published, except 350M: post-norm, a token table narrower than
 * the hidden state (project_in, project_out) and no final norm. Learned positions begin at row 2 of their table. */
#include "engine/model/families.h"
#include <stdio.h>
#include <string.h>

enum { LAYERS_MAX = 1024, HIDDEN_MAX = 1 << 16, FFN_MAX = 1 << 18, VOCAB_MAX = 1 << 20 };
enum { POSITIONS_MAX = 1 << 20, HEADS_MAX = 4096 };
#define MUST INT64_MIN

static int opt_sizes(const struct ps_config *c, struct ps_shape *s)
{
    int64_t layers, hidden, ffn, heads, vocab, pos, embed;
    int r;
    if ((r = ps_config_int(c, "num_hidden_layers", 1, LAYERS_MAX, MUST, &layers)) < 0 ||
        (r = ps_config_int(c, "hidden_size", 1, HIDDEN_MAX, MUST, &hidden)) < 0 ||
        (r = ps_config_int(c, "ffn_dim", 1, FFN_MAX, MUST, &ffn)) < 0 ||
        (r = ps_config_int(c, "num_attention_heads", 1, HEADS_MAX, MUST, &heads)) < 0 ||
        (r = ps_config_int(c, "vocab_size", 1, VOCAB_MAX, MUST, &vocab)) < 0 ||
        (r = ps_config_int(c, "max_position_embeddings", 1, POSITIONS_MAX, MUST, &pos)) < 0 ||
        (r = ps_config_int(c, "word_embed_proj_dim", 1, HIDDEN_MAX, hidden, &embed)) < 0)
        return r;
    if (hidden % heads)
        return ps_fail(c->dt, -PS_EFORMAT,
                       "%s: hidden_size %lld is not a multiple of num_attention_heads %lld",
                       c->path, (long long) hidden, (long long) heads);
    s->layers = (uint32_t) layers;
    s->hidden = (uint32_t) hidden;
    s->ffn = (uint32_t) ffn;
    s->q_heads = s->kv_heads = (uint32_t) heads;
    s->head_dim = (uint32_t) (hidden / heads);
    s->vocab = (uint32_t) vocab;
    s->embed = (uint32_t) embed;
    s->positions = (uint32_t) pos;
    s->position_rows = (uint32_t) pos + 2;
    s->position_add = 2;
    return 0;
}

static int opt_shape(const struct ps_config *c, struct ps_shape *s)
{
    bool affine, no_final;
    int r = opt_sizes(c, s);
    if (r < 0 || (r = ps_config_bool(c, "do_layer_norm_before", true, &s->norm_before)) < 0 ||
        (r = ps_config_bool(c, "_remove_final_layer_norm", false, &no_final)) < 0 ||
        (r = ps_config_bool(c, "enable_bias", true, &s->bias)) < 0 ||
        (r = ps_config_bool(c, "layer_norm_elementwise_affine", true, &affine)) < 0 ||
        (r = ps_config_bool(c, "tie_word_embeddings", true, &s->tied)) < 0 ||
        (r = ps_config_id(c, "bos_token_id", s->vocab, 2, &s->bos)) < 0 ||
        (r = ps_config_id(c, "eos_token_id", s->vocab, 2, &s->eos)) < 0 ||
        (r = ps_config_id(c, "pad_token_id", s->vocab, 1, &s->pad)) < 0)
        return r;
    if (!affine)
        return ps_fail(c->dt, -PS_EUNSUPPORTED,
                       "%s: layer_norm_elementwise_affine false (norms without weights) is not "
                       "supported",
                       c->path);
    const json_t *act = json_object_get(c->root, "activation_function");
    const char *name = act ? json_string_value(act) : "relu";
    if (!name || strcmp(name, "relu") != 0)
        return ps_fail(c->dt, -PS_EUNSUPPORTED,
                       "%s: activation_function \"%s\" is not supported for OPT (relu is)", c->path,
                       name ? name : "(not a string)");
    s->act = PS_ACT_RELU;
    s->eps = 1e-5f; /* not in the config: PyTorch's default, which OPT was trained with */
    s->final_norm = s->norm_before && !no_final;
    return 0;
}

/* Vectors before matrices in each group, and the roles in the order of their enum. */
static void opt_tensors(const struct ps_shape *s, void *ud,
                        void (*add)(void *ud, uint32_t group, enum ps_role role, uint32_t rows,
                                    uint32_t cols, bool vector, const char *name))
{
    const uint32_t h = s->hidden, kv = s->kv_heads * s->head_dim;
    const bool projected = s->embed != h;
    if (s->final_norm) {
        add(ud, 0, PS_W_FINAL_NORM_W, 1, h, true, "model.decoder.final_layer_norm.weight");
        add(ud, 0, PS_W_FINAL_NORM_B, 1, h, true, "model.decoder.final_layer_norm.bias");
    }
    if (projected) {
        add(ud, 0, PS_W_PROJECT_OUT, s->embed, h, false, "model.decoder.project_out.weight");
        add(ud, 0, PS_W_PROJECT_IN, h, s->embed, false, "model.decoder.project_in.weight");
    }
    add(ud, 0, PS_W_POSITIONS, s->position_rows, h, false, "model.decoder.embed_positions.weight");
    add(ud, 0, PS_W_TOKENS, s->vocab, s->embed, false, "model.decoder.embed_tokens.weight");
    if (!s->tied) add(ud, 0, PS_W_HEAD, s->vocab, s->embed, false, "lm_head.weight");

    const struct {
        enum ps_role role;
        uint32_t rows, cols;
        const char *name;
    } parts[] = {
        { PS_W_NORM1_W, 0, h, "self_attn_layer_norm.weight" },
        { PS_W_NORM1_B, 0, h, "self_attn_layer_norm.bias" },
        { PS_W_NORM2_W, 0, h, "final_layer_norm.weight" },
        { PS_W_NORM2_B, 0, h, "final_layer_norm.bias" },
        { PS_W_Q_B, 0, h, "self_attn.q_proj.bias" },
        { PS_W_K_B, 0, kv, "self_attn.k_proj.bias" },
        { PS_W_V_B, 0, kv, "self_attn.v_proj.bias" },
        { PS_W_O_B, 0, h, "self_attn.out_proj.bias" },
        { PS_W_FC1_B, 0, s->ffn, "fc1.bias" },
        { PS_W_FC2_B, 0, h, "fc2.bias" },
        { PS_W_Q, h, h, "self_attn.q_proj.weight" },
        { PS_W_K, kv, h, "self_attn.k_proj.weight" },
        { PS_W_V, kv, h, "self_attn.v_proj.weight" },
        { PS_W_O, h, h, "self_attn.out_proj.weight" },
        { PS_W_FC1, s->ffn, h, "fc1.weight" },
        { PS_W_FC2, h, s->ffn, "fc2.weight" },
    };
    for (uint32_t l = 0; l < s->layers; l++)
        for (size_t i = 0; i < PS_ARRAY_LEN(parts); i++) {
            if (!s->bias && parts[i].role >= PS_W_Q_B && parts[i].role <= PS_W_FC2_B) continue;
            char name[96];
            (void) snprintf(name, sizeof name, "model.decoder.layers.%u.%s", l, parts[i].name);
            bool vec = !parts[i].rows;
            add(ud, 1 + l, parts[i].role, vec ? 1 : parts[i].rows, parts[i].cols, vec, name);
        }
}

static struct ps_step *step(struct ps_steps *list, enum ps_step_op op, enum ps_role w,
                            enum ps_role b, enum ps_actv in, enum ps_actv out)
{
    struct ps_step *t = &list->s[list->n++];
    *t = (struct ps_step) { .op = op, .w = w, .b = b, .in = in, .out = out };
    return t;
}

static void opt_steps(const struct ps_shape *s, struct ps_steps *embed, struct ps_steps *layer,
                      struct ps_steps *head)
{
    const bool projected = s->embed != s->hidden, bias = s->bias, before = s->norm_before;
    embed->n = layer->n = head->n = 0;
    (void) step(embed, PS_STEP_TOKENS, PS_W_TOKENS, PS_W_NONE, PS_A_NONE,
                projected ? PS_A_E : PS_A_X);
    if (projected) (void) step(embed, PS_STEP_LINEAR, PS_W_PROJECT_IN, PS_W_NONE, PS_A_E, PS_A_X);
    step(embed, PS_STEP_POSITIONS, PS_W_POSITIONS, PS_W_NONE, PS_A_NONE, PS_A_X)->add = true;

#define BIAS(role) (bias ? (role) : PS_W_NONE)
    enum ps_actv in = before ? PS_A_H : PS_A_X;
    if (before) (void) step(layer, PS_STEP_NORM, PS_W_NORM1_W, PS_W_NORM1_B, PS_A_X, PS_A_H);
    (void) step(layer, PS_STEP_LINEAR, PS_W_Q, BIAS(PS_W_Q_B), in, PS_A_Q);
    (void) step(layer, PS_STEP_LINEAR, PS_W_K, BIAS(PS_W_K_B), in, PS_A_K);
    (void) step(layer, PS_STEP_LINEAR, PS_W_V, BIAS(PS_W_V_B), in, PS_A_V);
    (void) step(layer, PS_STEP_ATTENTION, PS_W_NONE, PS_W_NONE, PS_A_Q, PS_A_O);
    step(layer, PS_STEP_LINEAR, PS_W_O, BIAS(PS_W_O_B), PS_A_O, PS_A_X)->residual = PS_A_X;
    if (before)
        (void) step(layer, PS_STEP_NORM, PS_W_NORM2_W, PS_W_NORM2_B, PS_A_X, PS_A_H);
    else
        (void) step(layer, PS_STEP_NORM, PS_W_NORM1_W, PS_W_NORM1_B, PS_A_X, PS_A_X);
    step(layer, PS_STEP_LINEAR, PS_W_FC1, BIAS(PS_W_FC1_B), in, PS_A_F)->act = s->act;
    step(layer, PS_STEP_LINEAR, PS_W_FC2, BIAS(PS_W_FC2_B), PS_A_F, PS_A_X)->residual = PS_A_X;
    if (!before) (void) step(layer, PS_STEP_NORM, PS_W_NORM2_W, PS_W_NORM2_B, PS_A_X, PS_A_X);
#undef BIAS

    in = PS_A_X;
    if (s->final_norm) {
        (void) step(head, PS_STEP_NORM, PS_W_FINAL_NORM_W, PS_W_FINAL_NORM_B, in, PS_A_H);
        in = PS_A_H;
    }
    if (projected) {
        (void) step(head, PS_STEP_LINEAR, PS_W_PROJECT_OUT, PS_W_NONE, in, PS_A_E);
        in = PS_A_E;
    }
    (void) step(head, PS_STEP_LINEAR, s->tied ? PS_W_TOKENS : PS_W_HEAD, PS_W_NONE, in,
                PS_A_LOGITS);
}

const struct ps_family_ops ps_family_opt = {
    .model_type = "opt",
    .shape = opt_shape,
    .tensors = opt_tensors,
    .steps = opt_steps,
};
