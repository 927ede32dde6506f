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
/* A token id, -1 when null or outside the vocabulary (such an id cannot occur). */
int ps_config_id(const struct ps_config *c, const char *field, uint32_t vocab, int64_t absent,
                 int32_t *ret) ps_must_check;

struct ps_family_ops {
    const char *model_type; /* config.json's */
    int (*shape)(const struct ps_config *c, struct ps_shape *s);
    /* Calls `add` for each tensor, in packing order. */
    void (*tensors)(const struct ps_shape *s, void *ud,
                    void (*add)(void *ud, uint32_t group, enum ps_role role, uint32_t rows,
                                uint32_t cols, bool vector, const char *name));
    void (*steps)(const struct ps_shape *s, struct ps_steps *embed, struct ps_steps *layer,
                  struct ps_steps *head);
};
extern const struct ps_family_ops ps_family_opt;
extern const struct ps_family_ops *const ps_families[PS_FAMILY__COUNT];
#endif
