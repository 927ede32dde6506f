/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-NeoX (Black et al. 2022) in Hugging Face's form: attention and the feed-forward part side by side, or one after the other; a part of each head is
 * rotated. To be planned for only: there is no op for the rotation, so the steps leave it out, and the checkpoint's one matrix for Q, K and V stands
 * here as three, under names of ours. The activation changes no shape and is not looked at. */
#include "engine/model/families.h"

static int gpt_neox_shape(const struct ps_config *c, struct ps_shape *s)
{
    int r = ps_config_sizes(c, "intermediate_size", s);
    if (r < 0 || (r = ps_config_bool(c, "use_parallel_residual", true, &s->parallel)) < 0 ||
        (r = ps_config_bool(c, "attention_bias", true, &s->bias)) < 0 ||
        (r = ps_config_bool(c, "tie_word_embeddings", false, &s->tied)) < 0 ||
        (r = ps_config_id(c, "bos_token_id", s->vocab, 0, &s->bos)) < 0 ||
        (r = ps_config_eos(c, s->vocab, &s->eos)) < 0 ||
        (r = ps_config_id(c, "pad_token_id", s->vocab, -1, &s->pad)) < 0)
        return r;
    if (!s->bias)
        return ps_fail(c->dt, -PS_EUNSUPPORTED, "%s: attention_bias false is not supported",
                       c->path);
    s->norm_before = s->final_norm = true;
    return 0;
}

static void gpt_neox_tensors(const struct ps_shape *s, void *ud, ps_tensor_add *add)
{
    const uint32_t h = s->hidden;
    add(ud, 0, PS_W_FINAL_NORM_W, 1, h, true, "gpt_neox.final_layer_norm.weight");
    add(ud, 0, PS_W_FINAL_NORM_B, 1, h, true, "gpt_neox.final_layer_norm.bias");
    add(ud, 0, PS_W_TOKENS, s->vocab, h, false, "gpt_neox.embed_in.weight");
    if (!s->tied) add(ud, 0, PS_W_HEAD, s->vocab, h, false, "embed_out.weight");
    const struct ps_layer_part o = { PS_W_O, h, h, "attention.dense.weight" },
                               up = { PS_W_FC1, s->ffn, h, "mlp.dense_h_to_4h.weight" };
    const struct ps_layer_part parts[] = {
        { PS_W_NORM1_W, 0, h, "input_layernorm.weight" },
        { PS_W_NORM1_B, 0, h, "input_layernorm.bias" },
        { PS_W_NORM2_W, 0, h, "post_attention_layernorm.weight" },
        { PS_W_NORM2_B, 0, h, "post_attention_layernorm.bias" },
        { PS_W_Q_B, 0, h, "attention.query.bias" },
        { PS_W_K_B, 0, h, "attention.key.bias" },
        { PS_W_V_B, 0, h, "attention.value.bias" },
        { PS_W_O_B, 0, h, "attention.dense.bias" },
        { PS_W_FC1_B, 0, s->ffn, "mlp.dense_h_to_4h.bias" },
        { PS_W_FC2_B, 0, h, "mlp.dense_4h_to_h.bias" },
        { PS_W_Q, h, h, "attention.query.weight" },
        { PS_W_K, h, h, "attention.key.weight" },
        { PS_W_V, h, h, "attention.value.weight" },
        s->parallel ? up : o,
        s->parallel ? o : up,
        { PS_W_FC2, h, s->ffn, "mlp.dense_4h_to_h.weight" },
    };
    ps_layer_tensors(s, "gpt_neox", parts, PS_ARRAY_LEN(parts), ud, add);
}

static void gpt_neox_steps(const struct ps_shape *s, struct ps_steps *embed, struct ps_steps *layer,
                           struct ps_steps *head)
{
    embed->n = layer->n = head->n = 0;
    (void) ps_step_add(embed, PS_STEP_TOKENS, PS_W_TOKENS, PS_W_NONE, PS_A_NONE, PS_A_X);
    (void) ps_step_add(layer, PS_STEP_NORM, PS_W_NORM1_W, PS_W_NORM1_B, PS_A_X, PS_A_H);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_Q, PS_W_Q_B, PS_A_H, PS_A_Q);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_K, PS_W_K_B, PS_A_H, PS_A_K);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_V, PS_W_V_B, PS_A_H, PS_A_V);
    (void) ps_step_add(layer, PS_STEP_ATTENTION, PS_W_NONE, PS_W_NONE, PS_A_Q, PS_A_O);
    /* Side by side, the feed-forward part reads X before attention's result is added to it. */
    for (int i = 0; i < 2; i++)
        if (s->parallel == (i == 1)) {
            ps_step_add(layer, PS_STEP_LINEAR, PS_W_O, PS_W_O_B, PS_A_O, PS_A_X)->residual = PS_A_X;
        } else {
            (void) ps_step_add(layer, PS_STEP_NORM, PS_W_NORM2_W, PS_W_NORM2_B, PS_A_X, PS_A_H);
            (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_FC1, PS_W_FC1_B, PS_A_H, PS_A_F);
        }
    ps_step_add(layer, PS_STEP_LINEAR, PS_W_FC2, PS_W_FC2_B, PS_A_F, PS_A_X)->residual = PS_A_X;
    (void) ps_step_add(head, PS_STEP_NORM, PS_W_FINAL_NORM_W, PS_W_FINAL_NORM_B, PS_A_X, PS_A_H);
    (void) ps_step_add(head, PS_STEP_LINEAR, s->tied ? PS_W_TOKENS : PS_W_HEAD, PS_W_NONE, PS_A_H,
                       PS_A_LOGITS);
}

const struct ps_family_ops ps_family_gpt_neox = {
    .model_type = "gpt_neox",
    .shape = gpt_neox_shape,
    .tensors = gpt_neox_tensors,
    .steps = gpt_neox_steps,
};
