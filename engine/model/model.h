/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is, as data: its shape (from config.json), its tensors in execution order, and per group the
 * list of steps (op, weights, which activations it reads and writes). Packing order, memory arithmetic, the
 * sweep and the simulator all follow from these lists; a model family is another list, not another code path.
 *
 * Groups: group 0 is the stem, everything outside the layers (token table, positions, projections, final
 * norm): it passes by once per sweep, for the head of one sweep and the embedding of the next. Group 1 + l is layer l.
 */
#ifndef PS_MODEL_H
#define PS_MODEL_H
#include "engine/base/ps_dtype.h"
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include "kernels/ops.h"

enum ps_family { PS_FAMILY_OPT, PS_FAMILY_LLAMA, PS_FAMILY_GPT_NEOX, PS_FAMILY__COUNT };

struct ps_shape {
    enum ps_family family;
    char name[96]; /* for reports: config's _name_or_path or the folder's last component */
    uint32_t layers, hidden, ffn, q_heads, kv_heads, head_dim, vocab;
    uint32_t embed;     /* width of the token table: hidden, unless projected (OPT-350M) */
    uint32_t positions; /* longest text */
    uint32_t
        position_rows; /* rows of the learned table; OPT: positions + 2; 0 = positions are rotations */
    int32_t position_add; /* OPT: 2 */
    bool norm_before, final_norm, tied, bias;
    bool gated;    /* the second matrix of the feed-forward part is multiplied by a gate's output */
    bool parallel; /* attention and the feed-forward part both read the layer's input */
    enum ps_act act;
    float eps;
    int32_t bos, eos, pad; /* -1 = none */
    enum ps_dtype dtype;   /* config's torch_dtype / dtype: what the source says it is */
};

/* Reads config.json text (`path` is for messages). Refuses, naming the field, what is not supported: other model
 * types, OPT's activations other than relu, absurd or inconsistent sizes. */
int ps_shape_parse(const char *json, size_t len, const char *path, struct ps_shape *ret,
                   struct ps_detail *dt) ps_must_check;
/* What of a shape decides how weights are used, "NAME=VALUE ...", by config.json's names: neither token ids nor dtype nor name. */
enum { PS_SHAPE_TEXT = 640 };
void ps_shape_text(const struct ps_shape *s, char ret[static PS_SHAPE_TEXT]);
/* config.json's model_type: "opt". */
const char *ps_family_name(enum ps_family f);
/* 0, or -PS_EUNSUPPORTED for a family that can be planned for, but neither converted nor run. */
int ps_shape_runs(const struct ps_shape *s, const char *path, struct ps_detail *dt) ps_must_check;
/* From FOLDER/config.json, or from a file if `path` is one. */
int ps_shape_read(const char *path, struct ps_shape *ret, struct ps_detail *dt) ps_must_check;
/* The same, and its text, which the caller frees. */
int ps_shape_load(const char *path, struct ps_shape *ret, char **ret_json, size_t *ret_len,
                  struct ps_detail *dt) ps_must_check;

enum ps_role {
    PS_W_NONE,
    PS_W_FINAL_NORM_W,
    PS_W_FINAL_NORM_B,
    PS_W_PROJECT_OUT,
    PS_W_PROJECT_IN,
    PS_W_POSITIONS,
    PS_W_TOKENS,
    PS_W_HEAD, /* untied output table */
    PS_W_NORM1_W,
    PS_W_NORM1_B,
    PS_W_NORM2_W,
    PS_W_NORM2_B,
    PS_W_Q_B,
    PS_W_K_B,
    PS_W_V_B,
    PS_W_O_B,
    PS_W_FC1_B,
    PS_W_FC2_B,
    PS_W_Q,
    PS_W_K,
    PS_W_V,
    PS_W_O,
    PS_W_GATE,
    PS_W_FC1, /* of a gated layer: up */
    PS_W_FC2, /* down */
    PS_W__COUNT
};

struct ps_tensor {
    char name
        [96]; /* in the packed file: Hugging Face's, with the "model." prefix ("model.decoder.layers.0...") */
    enum ps_role role;
    uint32_t group;
    uint32_t rows, cols; /* a vector has rows == 1 */
    bool vector;         /* 1-D in files */
};

/* The tensors in packing order: group by group, inside a group the small ones (vectors) first, then matrices in the order
 * of use. The caller frees *ret. */
int ps_model_tensors(const struct ps_shape *s, struct ps_tensor **ret, size_t *ret_n,
                     struct ps_detail *dt) ps_must_check;

/* Activations of a row. X is the hidden state that goes from layer to layer. */
enum ps_actv {
    PS_A_NONE,
    PS_A_X,
    PS_A_H,
    PS_A_Q,
    PS_A_K,
    PS_A_V,
    PS_A_O,
    PS_A_F,
    PS_A_G, /* what a gate gives */
    PS_A_E,
    PS_A_LOGITS,
    PS_A__COUNT
};
/* Its width in elements (PS_A_NONE: 0). */
uint32_t ps_actv_width(const struct ps_shape *s, enum ps_actv a);

enum ps_step_op {
    PS_STEP_TOKENS,
    PS_STEP_POSITIONS,
    PS_STEP_NORM,
    PS_STEP_LINEAR,
    PS_STEP_ATTENTION
};
struct ps_step {
    enum ps_step_op op;
    enum ps_role w, b; /* matrix or norm weight, and bias; PS_W_NONE if there is none */
    enum ps_actv in, out, residual;
    enum ps_act act;
    bool add; /* TOKENS, POSITIONS: add to out */
};
enum { PS_STEPS_MAX = 24 };
struct ps_steps {
    unsigned n;
    struct ps_step s[PS_STEPS_MAX];
};
/* The three lists of a model: ids to X, X to X in a layer, X to LOGITS. ATTENTION reads Q, K, V and writes O. */
void ps_model_steps(const struct ps_shape *s, struct ps_steps *ret_embed,
                    struct ps_steps *ret_layer, struct ps_steps *ret_head);
#endif
