/* SPDX-License-Identifier: Apache-2.0 */
/* OPT (Zhang et al. 2022) in Hugging Face's form. Pre-norm as published, except 350M: post-norm, a token table narrower than
 * the hidden state (project_in, project_out) and no final norm. Learned positions begin at row 2 of their table. */
#include "engine/model/families.h"
#include <string.h>

static int opt_sizes(const struct ps_config *c, struct ps_shape *s)
{
    int64_t embed;
    int r = ps_config_sizes(c, "ffn_dim", s);
    if (r < 0 ||
        (r = ps_config_int(c, "word_embed_proj_dim", 1, PS_HIDDEN_MAX, s->hidden, &embed)) < 0)
        return r;
    s->embed = (uint32_t) embed;
    s->position_rows = s->positions + 2;
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
        (r = ps_config_eos(c, s->vocab, &s->eos)) < 0 ||
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
static void opt_tensors(const struct ps_shape *s, void *ud, ps_tensor_add *add)
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

    const struct ps_layer_part parts[] = {
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
    ps_layer_tensors(s, "model.decoder", parts, PS_ARRAY_LEN(parts), ud, add);
}

static void opt_steps(const struct ps_shape *s, struct ps_steps *embed, struct ps_steps *layer,
                      struct ps_steps *head)
{
    const bool projected = s->embed != s->hidden, bias = s->bias, before = s->norm_before;
    embed->n = layer->n = head->n = 0;
    (void) ps_step_add(embed, PS_STEP_TOKENS, PS_W_TOKENS, PS_W_NONE, PS_A_NONE,
                       projected ? PS_A_E : PS_A_X);
    if (projected)
        (void) ps_step_add(embed, PS_STEP_LINEAR, PS_W_PROJECT_IN, PS_W_NONE, PS_A_E, PS_A_X);
    ps_step_add(embed, PS_STEP_POSITIONS, PS_W_POSITIONS, PS_W_NONE, PS_A_NONE, PS_A_X)->add = true;

#define BIAS(role) (bias ? (role) : PS_W_NONE)
    enum ps_actv in = before ? PS_A_H : PS_A_X;
    if (before) (void) ps_step_add(layer, PS_STEP_NORM, PS_W_NORM1_W, PS_W_NORM1_B, PS_A_X, PS_A_H);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_Q, BIAS(PS_W_Q_B), in, PS_A_Q);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_K, BIAS(PS_W_K_B), in, PS_A_K);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_V, BIAS(PS_W_V_B), in, PS_A_V);
    (void) ps_step_add(layer, PS_STEP_ATTENTION, PS_W_NONE, PS_W_NONE, PS_A_Q, PS_A_O);
    ps_step_add(layer, PS_STEP_LINEAR, PS_W_O, BIAS(PS_W_O_B), PS_A_O, PS_A_X)->residual = PS_A_X;
    if (before)
        (void) ps_step_add(layer, PS_STEP_NORM, PS_W_NORM2_W, PS_W_NORM2_B, PS_A_X, PS_A_H);
    else
        (void) ps_step_add(layer, PS_STEP_NORM, PS_W_NORM1_W, PS_W_NORM1_B, PS_A_X, PS_A_X);
    ps_step_add(layer, PS_STEP_LINEAR, PS_W_FC1, BIAS(PS_W_FC1_B), in, PS_A_F)->act = s->act;
    ps_step_add(layer, PS_STEP_LINEAR, PS_W_FC2, BIAS(PS_W_FC2_B), PS_A_F, PS_A_X)->residual =
        PS_A_X;
    if (!before)
        (void) ps_step_add(layer, PS_STEP_NORM, PS_W_NORM2_W, PS_W_NORM2_B, PS_A_X, PS_A_X);
#undef BIAS

    in = PS_A_X;
    if (s->final_norm) {
        (void) ps_step_add(head, PS_STEP_NORM, PS_W_FINAL_NORM_W, PS_W_FINAL_NORM_B, in, PS_A_H);
        in = PS_A_H;
    }
    if (projected) {
        (void) ps_step_add(head, PS_STEP_LINEAR, PS_W_PROJECT_OUT, PS_W_NONE, in, PS_A_E);
        in = PS_A_E;
    }
    (void) ps_step_add(head, PS_STEP_LINEAR, s->tied ? PS_W_TOKENS : PS_W_HEAD, PS_W_NONE, in,
                       PS_A_LOGITS);
}

const struct ps_family_ops ps_family_opt = {
    .model_type = "opt",
    .runs = true,
    .shape = opt_shape,
    .tensors = opt_tensors,
    .steps = opt_steps,
};
