/* SPDX-License-Identifier: Apache-2.0 */
/* Values live in one growing table and are named by their index; the stack, the memo, the items of tuples and the entries of dicts are
 * lists of such indexes. Values are never changed once made, except that dicts gain entries. */
#include "engine/checkpoint/pickle.h"
#include "engine/base/ps_mem.h"
#include <string.h>

enum { VALUES_MAX = 1 << 20 };

enum kind {
    V_MARK,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_TEXT,
    V_TUPLE,
    V_LIST,
    V_DICT,
    V_ORDERED_DICT_TYPE,
    V_REBUILD_TENSOR,
    V_REBUILD_PARAMETER,
    V_STORAGE_TYPE,
    V_STORAGE, /* a tuple that was its persistent id */
    V_TENSOR,  /* a tuple of the arguments it was rebuilt from */
};
static const char *const kind_names[] = { "a mark",         "None",      "a bool",     "an int",
                                          "a float",        "a string",  "a tuple",    "a list",
                                          "a dict",         "a class",   "a function", "a function",
                                          "a storage type", "a storage", "a tensor" };

struct value {
    enum kind kind;
    uint32_t n; /* TEXT: length; TUPLE, STORAGE, TENSOR: items */
    union {
        int64_t i;      /* INT, BOOL */
        const char *s;  /* TEXT; STORAGE_TYPE: its name, terminated */
        uint32_t items; /* first of n in the list of items */
    };
};

struct list {
    uint32_t *v, n;
    size_t cap;
};

struct vm {
    const unsigned char *p, *end, *start;
    const char *path;
    struct ps_detail *dt;
    struct value *values;
    uint32_t n_values;
    size_t cap_values;
    struct list stack, memo, items;
    struct list entries; /* triples: dict, key, value */
};

/* ---- errors and memory */

static int bad(const struct vm *m, const char *what)
{
    return ps_fail(m->dt, -PS_EFORMAT, "%s: data.pkl, byte %zu: %s", m->path,
                   (size_t) (m->p - m->start), what);
}

static int no_memory(const struct vm *m)
{
    return ps_fail(m->dt, -ENOMEM, "out of memory for the contents of %s", m->path);
}

static int push_to(struct vm *m, struct list *l, uint32_t v)
{
    if (l->n == 4 * VALUES_MAX) return bad(m, "too many values");
    if (ps_grow(&l->v, &l->cap, l->n, (size_t) l->n + 1, sizeof *l->v) < 0) return no_memory(m);
    l->v[l->n++] = v;
    return 0;
}

/* A new value, on the stack. */
static int push(struct vm *m, struct value v)
{
    if (m->n_values == VALUES_MAX) return bad(m, "too many values");
    if (ps_grow(&m->values, &m->cap_values, m->n_values, (size_t) m->n_values + 1, sizeof v) < 0)
        return no_memory(m);
    m->values[m->n_values] = v;
    return push_to(m, &m->stack, m->n_values++);
}

static int take(struct vm *m, size_t n, const unsigned char **ret)
{
    *ret = m->p;
    if ((size_t) (m->end - m->p) < n) return bad(m, "it ends too early");
    m->p += n;
    return 0;
}

static int number(struct vm *m, int n, uint64_t *ret)
{
    const unsigned char *p;
    int r = take(m, (size_t) n, &p);
    *ret = 0;
    for (int i = 0; r == 0 && i < n; i++) *ret |= (uint64_t) p[i] << (8 * i);
    return r;
}

/* The top `n` of the stack; a mark among them means a malformed pickle. */
static int need(struct vm *m, uint32_t n)
{
    if (m->stack.n < n) return bad(m, "more is taken from the stack than is there");
    for (uint32_t i = m->stack.n - n; i < m->stack.n; i++)
        if (m->values[m->stack.v[i]].kind == V_MARK) return bad(m, "a mark where a value belongs");
    return 0;
}

static struct value *top(struct vm *m, uint32_t below)
{
    return &m->values[m->stack.v[m->stack.n - 1 - below]];
}

static int mark(struct vm *m, uint32_t *ret)
{
    *ret = 0;
    for (uint32_t i = m->stack.n; i-- > 0;)
        if (m->values[m->stack.v[i]].kind == V_MARK) {
            *ret = i;
            return 0;
        }
    return bad(m, "no mark");
}

/* ---- opcodes that make values */

static int text(struct vm *m, int width)
{
    uint64_t n;
    const unsigned char *p;
    int r = number(m, width, &n);
    if (r < 0) return r;
    if (n > PS_PICKLE_BYTES_MAX) return bad(m, "a string that is too long");
    if ((r = take(m, (size_t) n, &p)) < 0) return r;
    return push(m, (struct value) { .kind = V_TEXT, .n = (uint32_t) n, .s = (const char *) p });
}

static int integer(struct vm *m, int width, bool is_signed)
{
    uint64_t v;
    int r = number(m, width, &v);
    if (r < 0) return r;
    if (is_signed && width && width < 8 && v >> (8 * width - 1)) v |= UINT64_MAX << (8 * width);
    return push(m, (struct value) { .kind = V_INT, .i = (int64_t) v });
}

static int long1(struct vm *m)
{
    uint64_t n;
    int r = number(m, 1, &n);
    if (r < 0) return r;
    return n > 8 ? bad(m, "an integer of more than 64 bits") : integer(m, (int) n, true);
}

/* Tuple of the stack's values from index `from` on, which are replaced by it. */
static int tuple(struct vm *m, uint32_t from, bool drop_mark)
{
    struct value t = { .kind = V_TUPLE, .n = m->stack.n - from, .items = m->items.n };
    for (uint32_t i = from; i < m->stack.n; i++) {
        int r = push_to(m, &m->items, m->stack.v[i]);
        if (r < 0) return r;
    }
    m->stack.n = from - (drop_mark ? 1 : 0);
    return push(m, t);
}

static bool is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && !memcmp(s, word, n);
}

static int global(struct vm *m, const char *mod, size_t nmod, const char *name, size_t n)
{
    static const char *const storages[] = { "FloatStorage",  "HalfStorage", "BFloat16Storage",
                                            "DoubleStorage", "LongStorage", "IntStorage",
                                            "ShortStorage",  "CharStorage", "ByteStorage",
                                            "BoolStorage" };
    if (is(mod, nmod, "collections") && is(name, n, "OrderedDict"))
        return push(m, (struct value) { .kind = V_ORDERED_DICT_TYPE });
    if (is(mod, nmod, "torch._utils") && is(name, n, "_rebuild_tensor_v2"))
        return push(m, (struct value) { .kind = V_REBUILD_TENSOR });
    if (is(mod, nmod, "torch._utils") && is(name, n, "_rebuild_parameter"))
        return push(m, (struct value) { .kind = V_REBUILD_PARAMETER });
    for (size_t i = 0; is(mod, nmod, "torch") && i < PS_ARRAY_LEN(storages); i++)
        if (is(name, n, storages[i]))
            return push(m, (struct value) { .kind = V_STORAGE_TYPE, .s = storages[i] });
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

/* "module\nname\n" */
static int global_lines(struct vm *m)
{
    const unsigned char *s[3] = { m->p };
    for (int i = 0; i < 2; i++) {
        const unsigned char *nl = memchr(s[i], '\n', (size_t) (m->end - s[i]));
        if (!nl) return bad(m, "it ends too early");
        s[i + 1] = nl + 1;
    }
    m->p = s[2];
    return global(m, (const char *) s[0], (size_t) (s[1] - s[0] - 1), (const char *) s[1],
                  (size_t) (s[2] - s[1] - 1));
}

static int stack_global(struct vm *m)
{
    int r = need(m, 2);
    if (r < 0) return r;
    const struct value name = *top(m, 0), mod = *top(m, 1);
    if (name.kind != V_TEXT || mod.kind != V_TEXT) return bad(m, "a global without a name");
    m->stack.n -= 2;
    return global(m, mod.s, mod.n, name.s, name.n);
}

/* ---- what torch.save's calls mean */

static const struct value *item(const struct vm *m, const struct value *t, uint32_t i)
{
    return &m->values[m->items.v[t->items + i]];
}

/* ("storage", TYPE, key, location, number of elements) */
static int persistent(struct vm *m)
{
    int r = need(m, 1);
    if (r < 0) return r;
    struct value t = *top(m, 0);
    if (t.kind != V_TUPLE || t.n != 5 || item(m, &t, 0)->kind != V_TEXT ||
        !is(item(m, &t, 0)->s, item(m, &t, 0)->n, "storage") ||
        item(m, &t, 1)->kind != V_STORAGE_TYPE || item(m, &t, 2)->kind != V_TEXT ||
        item(m, &t, 3)->kind != V_TEXT || item(m, &t, 4)->kind != V_INT || item(m, &t, 4)->i < 0)
        return bad(m, "a persistent id that is not a tensor's storage");
    t.kind = V_STORAGE;
    m->stack.n--;
    return push(m, t);
}

static bool sizes(const struct vm *m, const struct value *t)
{
    if (t->kind != V_TUPLE || t->n > PS_PICKLE_DIMS) return false;
    for (uint32_t i = 0; i < t->n; i++)
        if (item(m, t, i)->kind != V_INT || item(m, t, i)->i < 0) return false;
    return true;
}

static int reduce(struct vm *m)
{
    int r = need(m, 2);
    if (r < 0) return r;
    struct value args = *top(m, 0);
    const enum kind fn = top(m, 1)->kind;
    if (args.kind != V_TUPLE) return bad(m, "a call without a tuple of arguments");
    m->stack.n -= 2;
    if (fn == V_ORDERED_DICT_TYPE) {
        if (args.n) return bad(m, "an OrderedDict made from arguments");
        return push(m, (struct value) { .kind = V_DICT });
    }
    if (fn == V_REBUILD_PARAMETER) {
        if (args.n < 1 || item(m, &args, 0)->kind != V_TENSOR)
            return bad(m, "a parameter that is not a tensor");
        return push_to(m, &m->stack, m->items.v[args.items]);
    }
    if (fn != V_REBUILD_TENSOR) return bad(m, "a call of something that is not a function");
    if (args.n < 4 || item(m, &args, 0)->kind != V_STORAGE || item(m, &args, 1)->kind != V_INT ||
        item(m, &args, 1)->i < 0 || !sizes(m, item(m, &args, 2)) || !sizes(m, item(m, &args, 3)) ||
        item(m, &args, 2)->n != item(m, &args, 3)->n)
        return bad(m, "a tensor with unusable storage, sizes or strides");
    args.kind = V_TENSOR;
    return push(m, args);
}

/* A state dict's attributes (_metadata: module versions) are of no use here. */
static int build(struct vm *m)
{
    int r = need(m, 2);
    if (r < 0) return r;
    if (top(m, 0)->kind != V_DICT || top(m, 1)->kind != V_DICT)
        return bad(m, "state set on something that is not a dict");
    m->stack.n--;
    return 0;
}

static int set_items(struct vm *m, uint32_t from, bool marked)
{
    uint32_t n = m->stack.n - from, base = from - (marked ? 1 : 0);
    if (n % 2 || !base) return bad(m, "dict entries without a dict");
    uint32_t dict = m->stack.v[base - 1];
    if (m->values[dict].kind != V_DICT) return bad(m, "dict entries without a dict");
    for (uint32_t i = from; i < m->stack.n; i += 2) {
        const uint32_t triple[] = { dict, m->stack.v[i], m->stack.v[i + 1] };
        for (int k = 0; k < 3; k++) {
            int r = push_to(m, &m->entries, triple[k]);
            if (r < 0) return r;
        }
    }
    m->stack.n = base;
    return 0;
}

/* Lists only occur in attributes; their items are dropped. */
static int append(struct vm *m, uint32_t from, bool marked)
{
    uint32_t base = from - (marked ? 1 : 0);
    if (!base || m->values[m->stack.v[base - 1]].kind != V_LIST)
        return bad(m, "items without a list");
    m->stack.n = base;
    return 0;
}

static int put(struct vm *m, uint64_t at)
{
    int r = need(m, 1);
    if (r < 0) return r;
    if (at >= VALUES_MAX || at > m->memo.n) return bad(m, "a memo index out of order");
    if (at == m->memo.n) return push_to(m, &m->memo, m->stack.v[m->stack.n - 1]);
    m->memo.v[at] = m->stack.v[m->stack.n - 1];
    return 0;
}

static int get(struct vm *m, int width)
{
    uint64_t at;
    int r = number(m, width, &at);
    if (r < 0) return r;
    if (at >= m->memo.n) return bad(m, "a memo entry that is not there");
    return push_to(m, &m->stack, m->memo.v[at]);
}

static int with_mark(struct vm *m, int (*f)(struct vm *m, uint32_t from, bool marked))
{
    uint32_t at;
    int r = mark(m, &at);
    return r < 0 ? r : f(m, at + 1, true);
}

static int with_top(struct vm *m, uint32_t n, int (*f)(struct vm *m, uint32_t from, bool marked))
{
    int r = need(m, n);
    return r < 0 ? r : f(m, m->stack.n - n, false);
}

static int simple(struct vm *m, enum kind k, int64_t i)
{
    return push(m, (struct value) { .kind = k, .i = i });
}

static int step(struct vm *m, unsigned char op)
{
    uint64_t v;
    const unsigned char *p;
    int r = 0;
    switch (op) {
    case 0x80: /* PROTO */
        if ((r = number(m, 1, &v)) == 0 && v > 5) r = bad(m, "a pickle protocol above 5");
        return r;
    case 0x95: return take(m, 8, &p); /* FRAME */
    case '(': return simple(m, V_MARK, 0);
    case 'N': return simple(m, V_NONE, 0);
    case 0x88: return simple(m, V_BOOL, 1);
    case 0x89: return simple(m, V_BOOL, 0);
    case 'K': return integer(m, 1, false);
    case 'M': return integer(m, 2, false);
    case 'J': return integer(m, 4, true);
    case 0x8a: return long1(m);
    case 'G': /* BINFLOAT */ return (r = take(m, 8, &p)) < 0 ? r : simple(m, V_FLOAT, 0);
    case 0x8c: return text(m, 1);
    case 'X': return text(m, 4);
    case 0x8d: return text(m, 8);
    case 'U': return text(m, 1); /* Python 2's strings */
    case 'T': return text(m, 4);
    case '}': return simple(m, V_DICT, 0);
    case ']': return simple(m, V_LIST, 0);
    case ')': return tuple(m, m->stack.n, false);
    case 0x85: return with_top(m, 1, tuple);
    case 0x86: return with_top(m, 2, tuple);
    case 0x87: return with_top(m, 3, tuple);
    case 't': return with_mark(m, tuple);
    case 'c': return global_lines(m);
    case 0x93: return stack_global(m);
    case 'Q': return persistent(m);
    case 'R': return reduce(m);
    case 'b': return build(m);
    case 's': return with_top(m, 2, set_items);
    case 'u': return with_mark(m, set_items);
    case 'a': return with_top(m, 1, append);
    case 'e': return with_mark(m, append);
    case 'q': return (r = number(m, 1, &v)) < 0 ? r : put(m, v);
    case 'r': return (r = number(m, 4, &v)) < 0 ? r : put(m, v);
    case 0x94: return put(m, m->memo.n);
    case 'h': return get(m, 1);
    case 'j': return get(m, 4);
    default:
        return ps_fail(m->dt, -PS_EUNSUPPORTED,
                       "%s: data.pkl, byte %zu: opcode 0x%02x, which a state dict of tensors does "
                       "not need: the file may carry code, and is not read",
                       m->path, (size_t) (m->p - m->start) - 1, op);
    }
}

static void tensor_of(const struct vm *m, const struct value *t, struct ps_pickle_tensor *ret)
{
    const struct value *st = item(m, t, 0), *dims = item(m, t, 2), *strides = item(m, t, 3);
    ret->offset = (uint64_t) item(m, t, 1)->i;
    ret->storage = item(m, st, 1)->s;
    ret->key = (struct ps_pickle_text) { item(m, st, 2)->s, item(m, st, 2)->n };
    ret->storage_elems = (uint64_t) item(m, st, 4)->i;
    ret->ndim = dims->n;
    for (uint32_t i = 0; i < dims->n; i++) {
        ret->dims[i] = (uint64_t) item(m, dims, i)->i;
        ret->strides[i] = (uint64_t) item(m, strides, i)->i;
    }
}

static int hand_out(struct vm *m,
                    int (*add)(void *ud, const struct ps_pickle_tensor *t, struct ps_detail *dt),
                    void *ud)
{
    if (m->stack.n != 1 || top(m, 0)->kind != V_DICT)
        return ps_fail(m->dt, -PS_EUNSUPPORTED,
                       "%s holds %s instead of a flat dict of tensors; save model.state_dict()",
                       m->path, m->stack.n == 1 ? kind_names[top(m, 0)->kind] : "several things");
    for (uint32_t i = 0; i < m->entries.n; i += 3) {
        const struct value *k = &m->values[m->entries.v[i + 1]];
        const struct value *v = &m->values[m->entries.v[i + 2]];
        if (m->entries.v[i] != m->stack.v[0]) continue;
        if (k->kind != V_TEXT)
            return ps_fail(m->dt, -PS_EUNSUPPORTED, "%s: a key of its dict is %s, not a name",
                           m->path, kind_names[k->kind]);
        if (v->kind != V_TENSOR)
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

int ps_pickle_read(const char *bytes, size_t len, const char *path,
                   int (*add)(void *ud, const struct ps_pickle_tensor *t, struct ps_detail *dt),
                   void *ud, struct ps_detail *dt)
{
    struct vm m = { .p = (const unsigned char *) bytes, .path = path, .dt = dt };
    m.start = m.p;
    m.end = m.p + len;
    int r = 0;
    for (;;) {
        const unsigned char *op;
        if ((r = take(&m, 1, &op)) < 0) break;
        if (*op == '.') { /* STOP */
            r = hand_out(&m, add, ud);
            break;
        }
        if ((r = step(&m, *op)) < 0) break;
    }
    free(m.values);
    free(m.stack.v);
    free(m.memo.v);
    free(m.items.v);
    free(m.entries.v);
    return r;
}
