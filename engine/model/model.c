/* SPDX-License-Identifier: Apache-2.0 */
/* The table of families, and what follows from a shape without knowing the family. */
#include "engine/model/model.h"
#include "engine/base/ps_mem.h"
#include "engine/model/families.h"
#include <stdio.h>
#include <string.h>

const struct ps_family_ops *const ps_families[PS_FAMILY__COUNT] = {
    [PS_FAMILY_OPT] = &ps_family_opt,
    [PS_FAMILY_LLAMA] = &ps_family_llama,
    [PS_FAMILY_GPT_NEOX] = &ps_family_gpt_neox,
};

const char *ps_family_name(enum ps_family f) { return ps_families[f]->model_type; }

int ps_shape_runs(const struct ps_shape *s, const char *path, struct ps_detail *dt)
{
    if (ps_families[s->family]->runs) return 0;
    return ps_fail(dt, -PS_EUNSUPPORTED,
                   "%s: model_type \"%s\" is not supported (opt is): it can be planned for "
                   "(penstock plan), but neither converted nor run",
                   path, ps_family_name(s->family));
}

struct list {
    struct ps_tensor *t; /* NULL while counting */
    size_t n;
};

static void list_add(void *ud, uint32_t group, enum ps_role role, uint32_t rows, uint32_t cols,
                     bool vector, const char *name)
{
    struct list *l = ud;
    if (l->t) {
        struct ps_tensor *t = &l->t[l->n];
        *t = (struct ps_tensor) {
            .role = role, .group = group, .rows = rows, .cols = cols, .vector = vector
        };
        (void) snprintf(t->name, sizeof t->name, "%s", name);
    }
    l->n++;
}

int ps_model_tensors(const struct ps_shape *s, struct ps_tensor **ret, size_t *ret_n,
                     struct ps_detail *dt)
{
    struct list l = { NULL, 0 };
    ps_families[s->family]->tensors(s, &l, list_add);
    l.t = ps_calloc(l.n, sizeof *l.t);
    if (!l.t) return ps_fail(dt, -ENOMEM, "out of memory for the model's list of tensors");
    l.n = 0;
    ps_families[s->family]->tensors(s, &l, list_add);
    *ret = l.t;
    *ret_n = l.n;
    return 0;
}

void ps_layer_tensors(const struct ps_shape *s, const char *prefix,
                      const struct ps_layer_part *parts, size_t n, void *ud, ps_tensor_add *add)
{
    for (uint32_t l = 0; l < s->layers; l++)
        for (size_t i = 0; i < n; i++) {
            if (!s->bias && parts[i].role >= PS_W_Q_B && parts[i].role <= PS_W_FC2_B) continue;
            char name[96];
            (void) snprintf(name, sizeof name, "%s.layers.%u.%s", prefix, l, parts[i].name);
            bool vec = !parts[i].rows;
            add(ud, 1 + l, parts[i].role, vec ? 1 : parts[i].rows, parts[i].cols, vec, name);
        }
}

struct ps_step *ps_step_add(struct ps_steps *list, enum ps_step_op op, enum ps_role w,
                            enum ps_role b, enum ps_actv in, enum ps_actv out)
{
    struct ps_step *t = &list->s[list->n++];
    *t = (struct ps_step) { .op = op, .w = w, .b = b, .in = in, .out = out };
    return t;
}

uint32_t ps_actv_width(const struct ps_shape *s, enum ps_actv a)
{
    switch (a) {
    case PS_A_X:
    case PS_A_H: return s->hidden;
    case PS_A_Q:
    case PS_A_O: return s->q_heads * s->head_dim;
    case PS_A_K:
    case PS_A_V: return s->kv_heads * s->head_dim;
    case PS_A_F:
    case PS_A_G: return s->ffn;
    case PS_A_E: return s->embed;
    case PS_A_LOGITS: return s->vocab;
    case PS_A_NONE:
    case PS_A__COUNT: break;
    }
    return 0;
}

void ps_model_steps(const struct ps_shape *s, struct ps_steps *ret_embed,
                    struct ps_steps *ret_layer, struct ps_steps *ret_head)
{
    ps_families[s->family]->steps(s, ret_embed, ret_layer, ret_head);
}
