/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA (Touvron et al. 2023) and its heirs of the same model_type, in Hugging Face's form: root mean square norms, rotated queries and keys, grouped
 * KV heads, a gated feed-forward part, no biases. To be planned for only. There are no ops for the rotation and for the gate's product, so the steps leave
 * them out: F and G are both made, and F alone goes on. The activation and the kind of rotation change no shape and are not looked at. */
#include "engine/model/families.h"

static int llama_shape(const struct ps_config *c, struct ps_shape *s)
{
    int64_t kv, d;
    bool biased, mlp_biased;
    int r = ps_config_sizes(c, "intermediate_size", s);
    if (r < 0 ||
        (r = ps_config_int(c, "num_key_value_heads", 1, s->q_heads, s->q_heads, &kv)) < 0 ||
        (r = ps_config_int(c, "head_dim", 1, PS_HIDDEN_MAX, s->head_dim, &d)) < 0 ||
        (r = ps_config_bool(c, "attention_bias", false, &biased)) < 0 ||
        (r = ps_config_bool(c, "mlp_bias", false, &mlp_biased)) < 0 ||
        (r = ps_config_bool(c, "tie_word_embeddings", false, &s->tied)) < 0 ||
        (r = ps_config_id(c, "bos_token_id", s->vocab, 1, &s->bos)) < 0 ||
        (r = ps_config_eos(c, s->vocab, &s->eos)) < 0 ||
        (r = ps_config_id(c, "pad_token_id", s->vocab, -1, &s->pad)) < 0)
        return r;
    if (biased || mlp_biased)
        return ps_fail(c->dt, -PS_EUNSUPPORTED, "%s: %s true is not supported", c->path,
                       biased ? "attention_bias" : "mlp_bias");
    if (s->q_heads % kv)
        return ps_fail(c->dt, -PS_EFORMAT,
                       "%s: num_attention_heads %u is not a multiple of num_key_value_heads %lld",
                       c->path, s->q_heads, (long long) kv);
    s->kv_heads = (uint32_t) kv;
    s->head_dim = (uint32_t) d;
    s->norm_before = s->final_norm = s->gated = true;
    return 0;
}

static void llama_tensors(const struct ps_shape *s, void *ud, ps_tensor_add *add)
{
    const uint32_t h = s->hidden, q = s->q_heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    add(ud, 0, PS_W_FINAL_NORM_W, 1, h, true, "model.norm.weight");
    add(ud, 0, PS_W_TOKENS, s->vocab, h, false, "model.embed_tokens.weight");
    if (!s->tied) add(ud, 0, PS_W_HEAD, s->vocab, h, false, "lm_head.weight");
    const struct ps_layer_part parts[] = {
        { PS_W_NORM1_W, 0, h, "input_layernorm.weight" },
        { PS_W_NORM2_W, 0, h, "post_attention_layernorm.weight" },
        { PS_W_Q, q, h, "self_attn.q_proj.weight" },
        { PS_W_K, kv, h, "self_attn.k_proj.weight" },
        { PS_W_V, kv, h, "self_attn.v_proj.weight" },
        { PS_W_O, h, q, "self_attn.o_proj.weight" },
        { PS_W_GATE, s->ffn, h, "mlp.gate_proj.weight" },
        { PS_W_FC1, s->ffn, h, "mlp.up_proj.weight" },
        { PS_W_FC2, h, s->ffn, "mlp.down_proj.weight" },
    };
    ps_layer_tensors(s, "model", parts, PS_ARRAY_LEN(parts), ud, add);
}

static void llama_steps(const struct ps_shape *s, struct ps_steps *embed, struct ps_steps *layer,
                        struct ps_steps *head)
{
    const enum ps_role none = PS_W_NONE;
    embed->n = layer->n = head->n = 0;
    (void) ps_step_add(embed, PS_STEP_TOKENS, PS_W_TOKENS, none, PS_A_NONE, PS_A_X);
    (void) ps_step_add(layer, PS_STEP_NORM, PS_W_NORM1_W, none, PS_A_X, PS_A_H);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_Q, none, PS_A_H, PS_A_Q);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_K, none, PS_A_H, PS_A_K);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_V, none, PS_A_H, PS_A_V);
    (void) ps_step_add(layer, PS_STEP_ATTENTION, none, none, PS_A_Q, PS_A_O);
    ps_step_add(layer, PS_STEP_LINEAR, PS_W_O, none, PS_A_O, PS_A_X)->residual = PS_A_X;
    (void) ps_step_add(layer, PS_STEP_NORM, PS_W_NORM2_W, none, PS_A_X, PS_A_H);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_GATE, none, PS_A_H, PS_A_G);
    (void) ps_step_add(layer, PS_STEP_LINEAR, PS_W_FC1, none, PS_A_H, PS_A_F);
    ps_step_add(layer, PS_STEP_LINEAR, PS_W_FC2, none, PS_A_F, PS_A_X)->residual = PS_A_X;
    (void) ps_step_add(head, PS_STEP_NORM, PS_W_FINAL_NORM_W, none, PS_A_X, PS_A_H);
    (void) ps_step_add(head, PS_STEP_LINEAR, s->tied ? PS_W_TOKENS : PS_W_HEAD, none, PS_A_H,
                       PS_A_LOGITS);
}

const struct ps_family_ops ps_family_llama = {
    .model_type = "llama",
    .shape = llama_shape,
    .tensors = llama_tensors,
    .steps = llama_steps,
};
