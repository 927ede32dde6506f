/* SPDX-License-Identifier: Apache-2.0 */
/* What the opcodes of a pickle work on (pickle.c), for those who say what its globals and calls mean (pickle_torch.c).
 *
 * Values live in one growing table and are named by their index; the stack, the memo, the items of tuples and the entries of dicts are
 * lists of such indexes. Values are never changed once made, except that dicts gain entries. */
#ifndef PS_PICKLE_VM_H
#define PS_PICKLE_VM_H
#include "engine/checkpoint/pickle.h"

enum ps_pickle_kind {
    PS_PICKLE_MARK,
    PS_PICKLE_NONE,
    PS_PICKLE_BOOL,
    PS_PICKLE_INT,
    PS_PICKLE_FLOAT,
    PS_PICKLE_TEXT,
    PS_PICKLE_TUPLE,
    PS_PICKLE_LIST,
    PS_PICKLE_DICT,
    PS_PICKLE_ORDERED_DICT_TYPE,
    PS_PICKLE_REBUILD_TENSOR,
    PS_PICKLE_REBUILD_PARAMETER,
    PS_PICKLE_STORAGE_TYPE,
    PS_PICKLE_STORAGE, /* a tuple that was its persistent id */
    PS_PICKLE_TENSOR,  /* a tuple of the arguments it was rebuilt from */
};

struct ps_pickle_value {
    enum ps_pickle_kind kind;
    uint32_t n; /* TEXT: length; TUPLE, STORAGE, TENSOR: items */
    union {
        int64_t i;      /* INT, BOOL */
        const char *s;  /* TEXT; STORAGE_TYPE: its name, terminated */
        uint32_t items; /* first of n in the list of items */
    };
};

struct ps_pickle_list {
    uint32_t *v, n;
    size_t cap;
};

struct ps_pickle_vm {
    const unsigned char *p, *end, *start;
    const char *path;
    struct ps_detail *dt;
    struct ps_pickle_value *values;
    uint32_t n_values;
    size_t cap_values;
    struct ps_pickle_list stack, memo, items;
    struct ps_pickle_list entries; /* triples: dict, key, value */
};

/* -PS_EFORMAT, with the place. */
int ps_pickle_bad(const struct ps_pickle_vm *m, const char *what);
int ps_pickle_push_to(struct ps_pickle_vm *m, struct ps_pickle_list *l, uint32_t v) ps_must_check;
/* A new value, on the stack. */
int ps_pickle_push(struct ps_pickle_vm *m, struct ps_pickle_value v) ps_must_check;
/* The top `n` of the stack; a mark among them means a malformed pickle. */
int ps_pickle_need(struct ps_pickle_vm *m, uint32_t n) ps_must_check;

/* So many below the top; there must be one. */
static inline struct ps_pickle_value *ps_pickle_top(struct ps_pickle_vm *m, uint32_t below)
{
    return &m->values[m->stack.v[m->stack.n - 1 - below]];
}

/* Of a tuple, or what was one. */
static inline const struct ps_pickle_value *ps_pickle_item(const struct ps_pickle_vm *m,
                                                           const struct ps_pickle_value *t,
                                                           uint32_t i)
{
    return &m->values[m->items.v[t->items + i]];
}

/* What a state dict needs: a global by its name; a call; a storage; an object's attributes. Each takes its operands from the stack, where
 * the result is put. -PS_EUNSUPPORTED for another global. */
int ps_pickle_global(struct ps_pickle_vm *m, const char *mod, size_t nmod, const char *name,
                     size_t n) ps_must_check;
int ps_pickle_persistent(struct ps_pickle_vm *m) ps_must_check;
int ps_pickle_reduce(struct ps_pickle_vm *m) ps_must_check;
int ps_pickle_build(struct ps_pickle_vm *m) ps_must_check;
/* At the end: the dict on the stack, tensor by tensor. */
int ps_pickle_hand_out(struct ps_pickle_vm *m,
                       int (*add)(void *ud, const struct ps_pickle_tensor *t, struct ps_detail *dt),
                       void *ud) ps_must_check;
#endif
