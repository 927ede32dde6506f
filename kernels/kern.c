/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_util.h"
#include "kernels/op_info.h"
#include "ps_config.h"
#include <math.h>

/* Explicit list, not constructors: nothing is lost when the linker drops an object. */
static const struct ps_kern *const tables[] = {
    ps_kern_table_ref,
#if HAVE_AVX2
    ps_kern_table_avx2,
#endif
#if HAVE_AVX512
    ps_kern_table_avx512,
#endif
};

/* Of the module, if one is there. */
static const struct ps_kern *added;

static const struct ps_op_info *const infos[] = {
#define X(op) &ps_op_info_##op,
    PS_OPS(X)
#undef X
};

const struct ps_kern *ps_kern_at(size_t i)
{
    for (size_t t = 0; t < PS_ARRAY_LEN(tables); t++)
        for (const struct ps_kern *k = tables[t]; k->name; k++)
            if (i-- == 0) return k;
    for (const struct ps_kern *k = added; k && k->name; k++)
        if (i-- == 0) return k;
    return NULL;
}

void ps_kern_add(const struct ps_kern *rows) { added = rows; }

const struct ps_kern *ps_kern_ref(enum ps_op op)
{
    for (const struct ps_kern *k = ps_kern_table_ref; k->name; k++)
        if (k->op == op) return k;
    return NULL;
}

const struct ps_kern *ps_kern_pick(enum ps_op op, enum ps_place place, uint32_t flags,
                                   const void *args)
{
    const struct ps_kern *best = NULL, *k;
    for (size_t i = 0; (k = ps_kern_at(i)); i++) {
        if (k->op != op || k->place != place) continue;
        const bool fits = place == PS_PLACE_HOST ? (k->need & flags) == k->need : k->need <= flags;
        if (fits && (!k->takes || k->takes(args))) best = k;
    }
    return best;
}

const char *ps_op_name(enum ps_op op)
{
    static const char *const names[] = {
#define X(o) #o,
        PS_OPS(X)
#undef X
    };
    return op < PS_OP__COUNT ? names[op] : "?";
}

size_t ps_op_args_size(enum ps_op op) { return infos[op]->args_size; }
uint64_t ps_op_units(enum ps_op op, const void *args) { return infos[op]->units(args); }
size_t ps_op_scratch(enum ps_op op, const void *args)
{
    return infos[op]->scratch ? infos[op]->scratch(args) : 0;
}
size_t ps_kern_scratch(const struct ps_kern *k, const void *args)
{
    return k->scratch ? k->scratch(args) : ps_op_scratch(k->op, args);
}
struct ps_cost ps_op_cost(enum ps_op op, const void *args) { return infos[op]->cost(args); }

uint64_t ps_op_grain(enum ps_op op, const void *args, unsigned threads)
{
    enum { SPANS_PER_THREAD = 8 };
    const double repeated_at_most = 0.01;
    const struct ps_op_info *o = infos[op];
    double spans = (double) threads * SPANS_PER_THREAD;
    if (o->span_share) spans = fmin(2 * spans, repeated_at_most / o->span_share(args));
    spans = fmax(spans, threads);
    const uint64_t n = (uint64_t) spans, units = o->units(args);
    return units ? (units + n - 1) / n : 1;
}

uint64_t ps_op_next_span(enum ps_op op, uint64_t grain, uint64_t left)
{
    const uint64_t rest = (left + 7) / 8, most = infos[op]->span_share ? left - rest : 0;
    if (most && rest < grain / 4) return left; /* for so little a span repeats too much */
    return most > grain ? most : grain < left ? grain : left;
}

int ps_kern_run_all(const struct ps_kern *k, const void *args, void *scratch)
{
    const struct ps_span span = { .end = ps_op_units(k->op, args), .scratch = scratch };
    return k->run(args, &span);
}
