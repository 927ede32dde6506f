/* SPDX-License-Identifier: Apache-2.0 */
/* A state dict as torch.save lays it out: which globals there may be, what their calls make, and the tensors at the end. */
#include "engine/checkpoint/pickle_vm.h"
#include <string.h>

/* In the order of their enum. */
static const char *const kind_names[] = { "a mark",         "None",      "a bool",     "an int",
                                          "a float",        "a string",  "a tuple",    "a list",
                                          "a dict",         "a class",   "a function", "a function",
                                          "a storage type", "a storage", "a tensor" };

static bool is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && !memcmp(s, word, n);
}

int ps_pickle_global(struct ps_pickle_vm *m, const char *mod, size_t nmod, const char *name,
                     size_t n)
{
    static const char *const storages[] = { "FloatStorage",  "HalfStorage", "BFloat16Storage",
                                            "DoubleStorage", "LongStorage", "IntStorage",
                                            "ShortStorage",  "CharStorage", "ByteStorage",
                                            "BoolStorage" };
    if (is(mod, nmod, "collections") && is(name, n, "OrderedDict"))
        return ps_pickle_push(m, (struct ps_pickle_value) { .kind = PS_PICKLE_ORDERED_DICT_TYPE });
    if (is(mod, nmod, "torch._utils") && is(name, n, "_rebuild_tensor_v2"))
        return ps_pickle_push(m, (struct ps_pickle_value) { .kind = PS_PICKLE_REBUILD_TENSOR });
    if (is(mod, nmod, "torch._utils") && is(name, n, "_rebuild_parameter"))
        return ps_pickle_push(m, (struct ps_pickle_value) { .kind = PS_PICKLE_REBUILD_PARAMETER });
    for (size_t i = 0; is(mod, nmod, "torch") && i < PS_ARRAY_LEN(storages); i++)
        if (is(name, n, storages[i]))
            return ps_pickle_push(
                m, (struct ps_pickle_value) { .kind = PS_PICKLE_STORAGE_TYPE, .s = storages[i] });
    char what[160];
    size_t w = 0;
    for (size_t i = 0; i < nmod && w < 70; i++) what[w++] = mod[i];
    what[w++] = '.';
    for (size_t i = 0; i < n && w < 150; i++) what[w++] = name[i];
    for (size_t i = 0; i < w; i++)
        if ((unsigned char) what[i] < 0x20 || (unsigned char) what[i] > 0x7e) what[i] = '?';
    return ps_fail(m->dt, -PS_EUNSUPPORTED,
                   "%s: data.pkl asks for %.*s, which a state dict of tensors does not need: the "
                   "file may carry code, and is not read",
                   m->path, (int) w, what);
}

/* ("storage", TYPE, key, location, number of elements) */
int ps_pickle_persistent(struct ps_pickle_vm *m)
{
    int r = ps_pickle_need(m, 1);
    if (r < 0) return r;
    struct ps_pickle_value t = *ps_pickle_top(m, 0);
    if (t.kind != PS_PICKLE_TUPLE || t.n != 5 || ps_pickle_item(m, &t, 0)->kind != PS_PICKLE_TEXT ||
        !is(ps_pickle_item(m, &t, 0)->s, ps_pickle_item(m, &t, 0)->n, "storage") ||
        ps_pickle_item(m, &t, 1)->kind != PS_PICKLE_STORAGE_TYPE ||
        ps_pickle_item(m, &t, 2)->kind != PS_PICKLE_TEXT ||
        ps_pickle_item(m, &t, 3)->kind != PS_PICKLE_TEXT ||
        ps_pickle_item(m, &t, 4)->kind != PS_PICKLE_INT || ps_pickle_item(m, &t, 4)->i < 0)
        return ps_pickle_bad(m, "a persistent id that is not a tensor's storage");
    t.kind = PS_PICKLE_STORAGE;
    m->stack.n--;
    return ps_pickle_push(m, t);
}

static bool sizes(const struct ps_pickle_vm *m, const struct ps_pickle_value *t)
{
    if (t->kind != PS_PICKLE_TUPLE || t->n > PS_PICKLE_DIMS) return false;
    for (uint32_t i = 0; i < t->n; i++)
        if (ps_pickle_item(m, t, i)->kind != PS_PICKLE_INT || ps_pickle_item(m, t, i)->i < 0)
            return false;
    return true;
}

int ps_pickle_reduce(struct ps_pickle_vm *m)
{
    int r = ps_pickle_need(m, 2);
    if (r < 0) return r;
    struct ps_pickle_value args = *ps_pickle_top(m, 0);
    const enum ps_pickle_kind fn = ps_pickle_top(m, 1)->kind;
    if (args.kind != PS_PICKLE_TUPLE)
        return ps_pickle_bad(m, "a call without a tuple of arguments");
    m->stack.n -= 2;
    if (fn == PS_PICKLE_ORDERED_DICT_TYPE) {
        if (args.n) return ps_pickle_bad(m, "an OrderedDict made from arguments");
        return ps_pickle_push(m, (struct ps_pickle_value) { .kind = PS_PICKLE_DICT });
    }
    if (fn == PS_PICKLE_REBUILD_PARAMETER) {
        if (args.n < 1 || ps_pickle_item(m, &args, 0)->kind != PS_PICKLE_TENSOR)
            return ps_pickle_bad(m, "a parameter that is not a tensor");
        return ps_pickle_push_to(m, &m->stack, m->items.v[args.items]);
    }
    if (fn != PS_PICKLE_REBUILD_TENSOR)
        return ps_pickle_bad(m, "a call of something that is not a function");
    if (args.n < 4 || ps_pickle_item(m, &args, 0)->kind != PS_PICKLE_STORAGE ||
        ps_pickle_item(m, &args, 1)->kind != PS_PICKLE_INT || ps_pickle_item(m, &args, 1)->i < 0 ||
        !sizes(m, ps_pickle_item(m, &args, 2)) || !sizes(m, ps_pickle_item(m, &args, 3)) ||
        ps_pickle_item(m, &args, 2)->n != ps_pickle_item(m, &args, 3)->n)
        return ps_pickle_bad(m, "a tensor with unusable storage, sizes or strides");
    args.kind = PS_PICKLE_TENSOR;
    return ps_pickle_push(m, args);
}

/* A state dict's attributes (_metadata: module versions) are of no use here. */
int ps_pickle_build(struct ps_pickle_vm *m)
{
    int r = ps_pickle_need(m, 2);
    if (r < 0) return r;
    if (ps_pickle_top(m, 0)->kind != PS_PICKLE_DICT || ps_pickle_top(m, 1)->kind != PS_PICKLE_DICT)
        return ps_pickle_bad(m, "state set on something that is not a dict");
    m->stack.n--;
    return 0;
}

static void tensor_of(const struct ps_pickle_vm *m, const struct ps_pickle_value *t,
                      struct ps_pickle_tensor *ret)
{
    const struct ps_pickle_value *st = ps_pickle_item(m, t, 0), *dims = ps_pickle_item(m, t, 2),
                                 *strides = ps_pickle_item(m, t, 3);
    ret->offset = (uint64_t) ps_pickle_item(m, t, 1)->i;
    ret->storage = ps_pickle_item(m, st, 1)->s;
    ret->key = (struct ps_pickle_text) { ps_pickle_item(m, st, 2)->s, ps_pickle_item(m, st, 2)->n };
    ret->storage_elems = (uint64_t) ps_pickle_item(m, st, 4)->i;
    ret->ndim = dims->n;
    for (uint32_t i = 0; i < dims->n; i++) {
        ret->dims[i] = (uint64_t) ps_pickle_item(m, dims, i)->i;
        ret->strides[i] = (uint64_t) ps_pickle_item(m, strides, i)->i;
    }
}

int ps_pickle_hand_out(struct ps_pickle_vm *m,
                       int (*add)(void *ud, const struct ps_pickle_tensor *t, struct ps_detail *dt),
                       void *ud)
{
    if (m->stack.n != 1 || ps_pickle_top(m, 0)->kind != PS_PICKLE_DICT)
        return ps_fail(m->dt, -PS_EUNSUPPORTED,
                       "%s holds %s instead of a flat dict of tensors; save model.state_dict()",
                       m->path,
                       m->stack.n == 1 ? kind_names[ps_pickle_top(m, 0)->kind] : "several things");
    for (uint32_t i = 0; i < m->entries.n; i += 3) {
        const struct ps_pickle_value *k = &m->values[m->entries.v[i + 1]];
        const struct ps_pickle_value *v = &m->values[m->entries.v[i + 2]];
        if (m->entries.v[i] != m->stack.v[0]) continue;
        if (k->kind != PS_PICKLE_TEXT)
            return ps_fail(m->dt, -PS_EUNSUPPORTED, "%s: a key of its dict is %s, not a name",
                           m->path, kind_names[k->kind]);
        if (v->kind != PS_PICKLE_TENSOR)
            return ps_fail(m->dt, -PS_EUNSUPPORTED,
                           "%s: entry %.*s of its dict is %s, not a tensor; save the flat "
                           "model.state_dict()",
                           m->path, k->n < 100 ? (int) k->n : 100, k->s, kind_names[v->kind]);
        struct ps_pickle_tensor t = { .name = { k->s, k->n } };
        tensor_of(m, v, &t);
        int r = add(ud, &t, m->dt);
        if (r < 0) return r;
    }
    return 0;
}
