/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pickle_vm.h"
#include <string.h>

enum { VALUES_MAX = 1 << 20 };

/* ---- errors and memory */

int ps_pickle_bad(const struct ps_pickle_vm *m, const char *what)
{
    return ps_fail(m->dt, -PS_EFORMAT, "%s: data.pkl, byte %zu: %s", m->path,
                   (size_t) (m->p - m->start), what);
}

static int no_memory(const struct ps_pickle_vm *m)
{
    return ps_fail(m->dt, -ENOMEM, "out of memory for the contents of %s", m->path);
}

int ps_pickle_push_to(struct ps_pickle_vm *m, struct ps_pickle_list *l, uint32_t v)
{
    if (l->n == 4 * VALUES_MAX) return ps_pickle_bad(m, "too many values");
    if (ps_grow(&l->v, &l->cap, l->n, (size_t) l->n + 1, sizeof *l->v) < 0) return no_memory(m);
    l->v[l->n++] = v;
    return 0;
}

int ps_pickle_push(struct ps_pickle_vm *m, struct ps_pickle_value v)
{
    if (m->n_values == VALUES_MAX) return ps_pickle_bad(m, "too many values");
    if (ps_grow(&m->values, &m->cap_values, m->n_values, (size_t) m->n_values + 1, sizeof v) < 0)
        return no_memory(m);
    m->values[m->n_values] = v;
    return ps_pickle_push_to(m, &m->stack, m->n_values++);
}

static int take(struct ps_pickle_vm *m, size_t n, const unsigned char **ret)
{
    *ret = m->p;
    if ((size_t) (m->end - m->p) < n) return ps_pickle_bad(m, "it ends too early");
    m->p += n;
    return 0;
}

static int number(struct ps_pickle_vm *m, int n, uint64_t *ret)
{
    const unsigned char *p;
    int r = take(m, (size_t) n, &p);
    *ret = 0;
    for (int i = 0; r == 0 && i < n; i++) *ret |= (uint64_t) p[i] << (8 * i);
    return r;
}

int ps_pickle_need(struct ps_pickle_vm *m, uint32_t n)
{
    if (m->stack.n < n) return ps_pickle_bad(m, "more is taken from the stack than is there");
    for (uint32_t i = m->stack.n - n; i < m->stack.n; i++)
        if (m->values[m->stack.v[i]].kind == PS_PICKLE_MARK)
            return ps_pickle_bad(m, "a mark where a value belongs");
    return 0;
}

static int mark(struct ps_pickle_vm *m, uint32_t *ret)
{
    *ret = 0;
    for (uint32_t i = m->stack.n; i-- > 0;)
        if (m->values[m->stack.v[i]].kind == PS_PICKLE_MARK) {
            *ret = i;
            return 0;
        }
    return ps_pickle_bad(m, "no mark");
}

/* ---- opcodes that make values */

static int text(struct ps_pickle_vm *m, int width)
{
    uint64_t n;
    const unsigned char *p;
    int r = number(m, width, &n);
    if (r < 0) return r;
    if (n > PS_PICKLE_BYTES_MAX) return ps_pickle_bad(m, "a string that is too long");
    if ((r = take(m, (size_t) n, &p)) < 0) return r;
    return ps_pickle_push(m, (struct ps_pickle_value) { .kind = PS_PICKLE_TEXT,
                                                        .n = (uint32_t) n,
                                                        .s = (const char *) p });
}

static int integer(struct ps_pickle_vm *m, int width, bool is_signed)
{
    uint64_t v;
    int r = number(m, width, &v);
    if (r < 0) return r;
    if (is_signed && width && width < 8 && v >> (8 * width - 1)) v |= UINT64_MAX << (8 * width);
    return ps_pickle_push(m, (struct ps_pickle_value) { .kind = PS_PICKLE_INT, .i = (int64_t) v });
}

static int long1(struct ps_pickle_vm *m)
{
    uint64_t n;
    int r = number(m, 1, &n);
    if (r < 0) return r;
    return n > 8 ? ps_pickle_bad(m, "an integer of more than 64 bits") : integer(m, (int) n, true);
}

/* Tuple of the stack's values from index `from` on, which are replaced by it. */
static int tuple(struct ps_pickle_vm *m, uint32_t from, bool drop_mark)
{
    struct ps_pickle_value t = { .kind = PS_PICKLE_TUPLE,
                                 .n = m->stack.n - from,
                                 .items = m->items.n };
    for (uint32_t i = from; i < m->stack.n; i++) {
        int r = ps_pickle_push_to(m, &m->items, m->stack.v[i]);
        if (r < 0) return r;
    }
    m->stack.n = from - (drop_mark ? 1 : 0);
    return ps_pickle_push(m, t);
}

/* "module\nname\n" */
static int global_lines(struct ps_pickle_vm *m)
{
    const unsigned char *s[3] = { m->p };
    for (int i = 0; i < 2; i++) {
        const unsigned char *nl = memchr(s[i], '\n', (size_t) (m->end - s[i]));
        if (!nl) return ps_pickle_bad(m, "it ends too early");
        s[i + 1] = nl + 1;
    }
    m->p = s[2];
    return ps_pickle_global(m, (const char *) s[0], (size_t) (s[1] - s[0] - 1), (const char *) s[1],
                            (size_t) (s[2] - s[1] - 1));
}

static int stack_global(struct ps_pickle_vm *m)
{
    int r = ps_pickle_need(m, 2);
    if (r < 0) return r;
    const struct ps_pickle_value name = *ps_pickle_top(m, 0), mod = *ps_pickle_top(m, 1);
    if (name.kind != PS_PICKLE_TEXT || mod.kind != PS_PICKLE_TEXT)
        return ps_pickle_bad(m, "a global without a name");
    m->stack.n -= 2;
    return ps_pickle_global(m, mod.s, mod.n, name.s, name.n);
}

static int set_items(struct ps_pickle_vm *m, uint32_t from, bool marked)
{
    uint32_t n = m->stack.n - from, base = from - (marked ? 1 : 0);
    if (n % 2 || !base) return ps_pickle_bad(m, "dict entries without a dict");
    uint32_t dict = m->stack.v[base - 1];
    if (m->values[dict].kind != PS_PICKLE_DICT)
        return ps_pickle_bad(m, "dict entries without a dict");
    for (uint32_t i = from; i < m->stack.n; i += 2) {
        const uint32_t triple[] = { dict, m->stack.v[i], m->stack.v[i + 1] };
        for (int k = 0; k < 3; k++) {
            int r = ps_pickle_push_to(m, &m->entries, triple[k]);
            if (r < 0) return r;
        }
    }
    m->stack.n = base;
    return 0;
}

/* Lists only occur in attributes; their items are dropped. */
static int append(struct ps_pickle_vm *m, uint32_t from, bool marked)
{
    uint32_t base = from - (marked ? 1 : 0);
    if (!base || m->values[m->stack.v[base - 1]].kind != PS_PICKLE_LIST)
        return ps_pickle_bad(m, "items without a list");
    m->stack.n = base;
    return 0;
}

static int put(struct ps_pickle_vm *m, uint64_t at)
{
    int r = ps_pickle_need(m, 1);
    if (r < 0) return r;
    if (at >= VALUES_MAX || at > m->memo.n) return ps_pickle_bad(m, "a memo index out of order");
    if (at == m->memo.n) return ps_pickle_push_to(m, &m->memo, m->stack.v[m->stack.n - 1]);
    m->memo.v[at] = m->stack.v[m->stack.n - 1];
    return 0;
}

static int get(struct ps_pickle_vm *m, int width)
{
    uint64_t at;
    int r = number(m, width, &at);
    if (r < 0) return r;
    if (at >= m->memo.n) return ps_pickle_bad(m, "a memo entry that is not there");
    return ps_pickle_push_to(m, &m->stack, m->memo.v[at]);
}

static int with_mark(struct ps_pickle_vm *m,
                     int (*f)(struct ps_pickle_vm *m, uint32_t from, bool marked))
{
    uint32_t at;
    int r = mark(m, &at);
    return r < 0 ? r : f(m, at + 1, true);
}

static int with_top(struct ps_pickle_vm *m, uint32_t n,
                    int (*f)(struct ps_pickle_vm *m, uint32_t from, bool marked))
{
    int r = ps_pickle_need(m, n);
    return r < 0 ? r : f(m, m->stack.n - n, false);
}

static int simple(struct ps_pickle_vm *m, enum ps_pickle_kind k, int64_t i)
{
    return ps_pickle_push(m, (struct ps_pickle_value) { .kind = k, .i = i });
}

static int step(struct ps_pickle_vm *m, unsigned char op)
{
    uint64_t v;
    const unsigned char *p;
    int r = 0;
    switch (op) {
    case 0x80: /* PROTO */
        if ((r = number(m, 1, &v)) == 0 && v > 5) r = ps_pickle_bad(m, "a pickle protocol above 5");
        return r;
    case 0x95: return take(m, 8, &p); /* FRAME */
    case '(': return simple(m, PS_PICKLE_MARK, 0);
    case 'N': return simple(m, PS_PICKLE_NONE, 0);
    case 0x88: return simple(m, PS_PICKLE_BOOL, 1);
    case 0x89: return simple(m, PS_PICKLE_BOOL, 0);
    case 'K': return integer(m, 1, false);
    case 'M': return integer(m, 2, false);
    case 'J': return integer(m, 4, true);
    case 0x8a: return long1(m);
    case 'G': /* BINFLOAT */ return (r = take(m, 8, &p)) < 0 ? r : simple(m, PS_PICKLE_FLOAT, 0);
    case 0x8c: return text(m, 1);
    case 'X': return text(m, 4);
    case 0x8d: return text(m, 8);
    case 'U': return text(m, 1); /* Python 2's strings */
    case 'T': return text(m, 4);
    case '}': return simple(m, PS_PICKLE_DICT, 0);
    case ']': return simple(m, PS_PICKLE_LIST, 0);
    case ')': return tuple(m, m->stack.n, false);
    case 0x85: return with_top(m, 1, tuple);
    case 0x86: return with_top(m, 2, tuple);
    case 0x87: return with_top(m, 3, tuple);
    case 't': return with_mark(m, tuple);
    case 'c': return global_lines(m);
    case 0x93: return stack_global(m);
    case 'Q': return ps_pickle_persistent(m);
    case 'R': return ps_pickle_reduce(m);
    case 'b': return ps_pickle_build(m);
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

int ps_pickle_read(const char *bytes, size_t len, const char *path,
                   int (*add)(void *ud, const struct ps_pickle_tensor *t, struct ps_detail *dt),
                   void *ud, struct ps_detail *dt)
{
    struct ps_pickle_vm m = { .p = (const unsigned char *) bytes, .path = path, .dt = dt };
    m.start = m.p;
    m.end = m.p + len;
    int r = 0;
    for (;;) {
        const unsigned char *op;
        if ((r = take(&m, 1, &op)) < 0) break;
        if (*op == '.') { /* STOP */
            r = ps_pickle_hand_out(&m, add, ud);
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
