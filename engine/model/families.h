/* SPDX-License-Identifier: Apache-2.0 */
/* What a model family gives: how its config.json reads, its tensors, its steps. model.c has the table. */
#ifndef PS_FAMILIES_H
#define PS_FAMILIES_H
#include "engine/base/ps_json.h"
#include "engine/model/model.h"

/* Fields of a config, with errors that name file and field. */
struct ps_config {
    const json_t *root;
    const char *path;
    struct ps_detail *dt;
};
/* An integer in lo..hi. A missing field (or null) gives `absent`, or is an error if that is INT64_MIN. */
int ps_config_int(const struct ps_config *c, const char *field, int64_t lo, int64_t hi,
                  int64_t absent, int64_t *ret) ps_must_check;
int ps_config_bool(const struct ps_config *c, const char *field, bool absent,
                   bool *ret) ps_must_check;
/* A token id, -1 when null or outside the vocabulary (such an id cannot occur, and nothing asks for it). */
int ps_config_id(const struct ps_config *c, const char *field, uint32_t vocab, int64_t absent,
                 int32_t *ret) ps_must_check;

/* eos_token_id: 2 where it is absent, -1 when null or -1; others outside the vocabulary are refused, for no text would end. */
int ps_config_eos(const struct ps_config *c, uint32_t vocab, int32_t *ret) ps_must_check;

enum { PS_HIDDEN_MAX = 1 << 16, PS_HEADS_MAX = 4096 };
/* What every family has, from the fields that all of them call alike; `ffn` is the one that they do not. Heads are all alike, the token table
 * is as wide as the hidden state. */
int ps_config_sizes(const struct ps_config *c, const char *ffn, struct ps_shape *s) ps_must_check;

/* Takes a tensor, in packing order. */
typedef void ps_tensor_add(void *ud, uint32_t group, enum ps_role role, uint32_t rows,
                           uint32_t cols, bool vector, const char *name);
/* The tensors of all layers: vectors (rows 0) before matrices, matrices in the order of use. "PREFIX.layers.N.NAME". Biases are left out
 * of a shape without. */
struct ps_layer_part {
    enum ps_role role;
    uint32_t rows, cols;
    const char *name;
};
void ps_layer_tensors(const struct ps_shape *s, const char *prefix,
                      const struct ps_layer_part *parts, size_t n, void *ud, ps_tensor_add *add);
struct ps_step *ps_step_add(struct ps_steps *list, enum ps_step_op op, enum ps_role w,
                            enum ps_role b, enum ps_actv in, enum ps_actv out);

struct ps_family_ops {
    const char *model_type; /* config.json's */
    bool runs; /* else its shapes are known, and it can be planned for: there are no kernels yet */
    int (*shape)(const struct ps_config *c, struct ps_shape *s);
    void (*tensors)(const struct ps_shape *s, void *ud, ps_tensor_add *add);
    void (*steps)(const struct ps_shape *s, struct ps_steps *embed, struct ps_steps *layer,
                  struct ps_steps *head);
};
extern const struct ps_family_ops ps_family_opt, ps_family_llama, ps_family_gpt_neox;
extern const struct ps_family_ops *const ps_families[PS_FAMILY__COUNT];
#endif
