/* SPDX-License-Identifier: Apache-2.0 */
/* The table of families, and what follows from a shape without knowing the family. */
#include "engine/model/model.h"
#include "engine/base/ps_mem.h"
#include "engine/model/families.h"
#include <stdio.h>
#include <string.h>

const struct ps_family_ops *const ps_families[PS_FAMILY__COUNT] = {
    [PS_FAMILY_OPT] = &ps_family_opt,
};

const char *ps_family_name(enum ps_family f) { return ps_families[f]->model_type; }

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

uint32_t ps_actv_width(const struct ps_shape *s, enum ps_actv a)
{
    switch (a) {
    case PS_A_X:
    case PS_A_H: return s->hidden;
    case PS_A_Q:
    case PS_A_O: return s->q_heads * s->head_dim;
    case PS_A_K:
    case PS_A_V: return s->kv_heads * s->head_dim;
    case PS_A_F: return s->ffn;
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
