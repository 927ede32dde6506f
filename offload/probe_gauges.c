/* SPDX-License-Identifier: Apache-2.0 */
/* Which shapes are measured, and how what came of them is written down. */
#include "offload/probe_parts.h"
#include <math.h>
#include <string.h>

static void add(struct ps_gauge_list *l, struct ps_gauge g)
{
    if (l->n < PS_ARRAY_LEN(l->at)) l->at[l->n++] = g;
}

struct sizes {
    unsigned n;
    uint32_t at[16];
};

static void add_linear(struct ps_gauge_list *l, enum ps_dtype type, uint32_t k,
                       const struct sizes *m)
{
    for (unsigned i = 0; i < m->n; i++)
        add(l, (struct ps_gauge) { .op = PS_OP_linear, .type = type, .m = m->at[i], .k = k });
}

static void add_attention(struct ps_gauge_list *l, enum ps_op op, enum ps_dtype type, uint32_t d,
                          const struct sizes *k)
{
    for (unsigned i = 0; i < k->n; i++)
        add(l, (struct ps_gauge) { .op = op, .type = type, .k = k->at[i], .d = d });
}

/* What stands beside its like without scores, with slabs that are full, with nothing to add to. */
static const struct ps_gauge
    plain = { .op = PS_OP_attn_decode, .type = PS_F16, .k = 512, .d = 64 },
    scored = { .op = PS_OP_attn_decode, .type = PS_F16, .k = 512, .d = 64, .scores = true },
    lone = { .op = PS_OP_linear, .type = PS_F16, .m = 256, .k = 768 },
    adding = { .op = PS_OP_linear, .type = PS_F16, .m = 256, .k = 768, .residual = true },
    roomy = { .op = PS_OP_attn_decode, .type = PS_F16, .k = 512, .d = 64, .room = 128 };

static void add_ops(struct ps_gauge_list *l)
{
    const enum ps_dtype f16 = PS_F16;
    add(l, (struct ps_gauge) { .op = PS_OP_layernorm, .type = f16, .m = 1024, .k = 2048 });
    add(l, (struct ps_gauge) { .op = PS_OP_embed, .type = f16, .m = 256, .k = 2048 });
    add(l, (struct ps_gauge) { .op = PS_OP_kv_round, .type = f16, .m = 256, .d = 64 });
    add(l, (struct ps_gauge) {
               .op = PS_OP_kv_compact, .type = f16, .m = 8, .k = 512, .d = 64, .scores = true });
    add(l, (struct ps_gauge) { .op = PS_OP_sample, .m = 32, .k = 50272 });
}

/* First what tells of a task's own cost: see task_of(), spread_of(), wait_of(). */
static void begin(struct ps_gauge_list *l)
{
    const struct ps_gauge
        tiny = { .op = PS_OP_linear, .type = PS_F16, .m = 1, .k = 64, .n = 64 },
        apart = { .op = PS_OP_linear, .type = PS_F16, .m = 1, .k = 64, .n = 64, .apart = true },
        small = { .op = PS_OP_linear, .type = PS_F16, .m = 1, .k = 2048, .n = 256 };
    l->n = 0;
    add(l, tiny);
    add(l, small);
    add(l, apart);
}

void ps_gauges_host(struct ps_gauge_list *l, bool quick)
{
    static const struct sizes all_m = { 13,
                                        { 1, 2, 4, 8, 16, 32, 48, 64, 128, 256, 512, 1024, 2048 } },
                              some_m = { 7, { 1, 4, 16, 48, 64, 256, 1024 } },
                              all_n = { 5, { 32, 128, 512, 1024, 2048 } },
                              some_n = { 4, { 32, 128, 512, 1024 } },
                              all_t = { 8, { 16, 32, 64, 128, 256, 512, 1024, 2048 } },
                              some_t = { 4, { 32, 128, 512, 1024 } };
    begin(l);
    add_linear(l, PS_F16, 768, quick ? &some_m : &all_m);
    for (uint32_t k = 1024; k <= 8192; k *= 2)
        if (!quick || k == 8192) add_linear(l, PS_F16, k, quick ? &some_m : &all_m);
    for (uint32_t k = 2048; k <= 8192 && !quick; k *= 4) {
        add_linear(l, PS_BF16, k, &some_m);
        add_linear(l, PS_F32, k, &some_m);
    }
    for (uint32_t d = 64; d <= 128; d *= 2) {
        add_attention(l, PS_OP_attn_decode, PS_F16, d, quick ? &some_n : &all_n);
        add_attention(l, PS_OP_attn_prompt, PS_F16, d, quick || d > 64 ? &some_t : &all_t);
    }
    add_attention(l, PS_OP_attn_decode, PS_F32, 64, &some_n);
    if (!quick) add_attention(l, PS_OP_attn_prompt, PS_F32, 64, &some_t);
    add(l, scored);
    add(l, roomy);
    add(l, adding);
    add_ops(l);
    add(l, (struct ps_gauge) {
               .op = PS_OP_kv_replay, .q = PS_Q_HOST, .type = PS_F16, .m = 8, .k = 512, .d = 64 });
    add(l, (struct ps_gauge) { .op = PS_OP_call, .q = PS_Q_HOST });
    add(l, (struct ps_gauge) { .copy = true, .q = PS_Q_HOST });
}

void ps_gauges_gpu(struct ps_gauge_list *l, bool quick)
{
    /* Its linears change their way after 16 and after 256 rows. */
    static const struct sizes all_m = { 13,
                                        { 1, 4, 16, 17, 32, 64, 128, 256, 257, 512, 1024, 2048,
                                          4096 } },
                              some_m = { 7, { 1, 16, 17, 64, 256, 257, 1024 } },
                              all_n = { 5, { 32, 128, 512, 1024, 2048 } },
                              some_n = { 3, { 128, 512, 1024 } },
                              all_t = { 6, { 16, 64, 256, 512, 1024, 2048 } },
                              some_t = { 3, { 32, 256, 1024 } };
    begin(l);
    for (uint32_t k = 2048; k <= 8192; k *= quick ? 4 : 2)
        add_linear(l, PS_F16, k, quick ? &some_m : &all_m);
    for (uint32_t d = 64; d <= 128; d *= 2) {
        add_attention(l, PS_OP_attn_decode, PS_F16, d, quick ? &some_n : &all_n);
        add_attention(l, PS_OP_attn_prompt, PS_F16, d, quick ? &some_t : &all_t);
    }
    if (!quick) {
        add_linear(l, PS_BF16, 4096, &some_m);
        add_linear(l, PS_F32, 4096, &some_m);
    }
    add(l, scored);
    add(l, roomy);
    add_ops(l);
    add(l, (struct ps_gauge) { .copy = true, .q = PS_Q_COMPUTE });
}

/* ---- what came of them */

static const struct ps_gauge *find(const struct ps_gauge_list *l, struct ps_gauge like)
{
    for (unsigned i = 0; i < l->n; i++) {
        const struct ps_gauge *g = &l->at[i];
        if (g->op == like.op && g->copy == like.copy && g->type == like.type && g->k == like.k &&
            g->m == like.m && g->d == like.d && g->n == like.n && g->scores == like.scores &&
            g->room == like.room && g->residual == like.residual)
            return g;
    }
    return NULL;
}

/* Its rate without so many seconds for each task. */
static struct ps_rate rate_of(const struct ps_gauge *g, double task_s)
{
    struct ps_rate r = { 0 };
    if (!g || g->left_out) return r;
    ps_slices_sum(&g->s, &r);
    double *const all[] = { &r.max, &r.median, &r.min };
    if (!(r.max > 0) || g->work / r.max < 2 * task_s) return r;
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) *all[i] = g->work / (g->work / *all[i] - task_s);
    return r;
}

/* 0: not known; g may be NULL. */
static double seconds(const struct ps_gauge *g)
{
    const struct ps_rate r = rate_of(g, 0);
    return r.median > 0 ? g->work / r.median : 0;
}

/* A task that does next to nothing. */
static double task_of(const struct ps_gauge_list *l) { return seconds(&l->at[0]); }

/* What is left of a small task, if time went with work as it does from it to a chunk, and is more than any task's own: handing it to all
 * threads. */
static double spread_of(const struct ps_gauge_list *l)
{
    const struct ps_gauge *small = &l->at[1];
    const struct ps_gauge *large =
        find(l, (struct ps_gauge) { .op = PS_OP_linear, .type = PS_F16, .m = 1, .k = small->k });
    const double s = seconds(small), b = seconds(large);
    if (!(s > 0) || !(b > 0)) return 0;
    const double share = small->work / large->work, left = (s - share * b) / (1 - share);
    return fmax(left - task_of(l), 0);
}

/* How much longer the same task takes when each is waited for. */
static double wait_of(const struct ps_gauge_list *l)
{
    return fmax(seconds(&l->at[2]) - seconds(&l->at[0]), 0);
}

static bool one_curve(const struct ps_gauge *a, const struct ps_gauge *b)
{
    return a->op == b->op && a->type == b->type && a->d == b->d && a->scores == b->scores &&
           a->n == b->n && a->room == b->room && a->residual == b->residual &&
           (a->op != PS_OP_linear || a->k == b->k);
}

static void curve(struct ps_profile_out *o, json_t *list, const struct ps_gauge *g, unsigned n,
                  double task_s)
{
    const bool linear = g->op == PS_OP_linear, decode = g->op == PS_OP_attn_decode;
    double x[PS_CURVE_MAX];
    struct ps_rate y[PS_CURVE_MAX];
    unsigned have = 0;
    for (unsigned i = 0; i < n && have < PS_CURVE_MAX; i++) {
        y[have] = rate_of(&g[i], task_s);
        x[have] = linear ? g[i].m : decode ? g[i].k + 1 : g[i].k;
        have += y[have].median > 0;
    }
    if (!have) return;
    json_t *item = ps_out_item(o, list);
    ps_out_set(o, item, linear ? "weights" : "kv", json_string(ps_dtype_name(g->type)));
    ps_out_set(o, item, linear ? "k" : "d", json_integer(linear ? g->k : g->d));
    ps_out_curve(o, item,
                 linear   ? "over_m"
                 : decode ? "over_entries"
                          : "over_tokens",
                 x, y, have, decode ? "GB/s" : "GFLOP/s");
}

static void curves(struct ps_profile_out *o, json_t *worker, const char *key, enum ps_op op,
                   const struct ps_gauge_list *l, double task_s)
{
    json_t *list = ps_out_list(o, worker, key);
    for (unsigned i = 0, n; i < l->n; i += n) {
        for (n = 1; i + n < l->n && one_curve(&l->at[i], &l->at[i + n]);) n++;
        const struct ps_gauge *g = &l->at[i];
        if (g->op == op && !g->n && !g->scores && !g->room && !g->residual)
            curve(o, list, g, n, task_s);
    }
}

/* What of a residual is read in the time by which a linear that adds to it takes longer. */
static void adding_to(struct ps_profile_out *o, json_t *worker, const struct ps_gauge *with,
                      const struct ps_gauge *without)
{
    const double a = seconds(without), b = seconds(with);
    struct ps_rate r = { 0 };
    if (a > 0 && b > 1.001 * a)
        r.median = 4.0 * with->m * (with->work / (2.0 * with->m * with->k)) / (b - a);
    r.min = r.max = r.median;
    ps_out_rate(o, worker, "residual", &r, "GB/s");
}

static void beside_plain(struct ps_profile_out *o, json_t *worker, const struct ps_gauge_list *l)
{
    const struct ps_gauge *p = find(l, plain);
    const double a = seconds(p), b = seconds(find(l, scored)), c = seconds(find(l, roomy));
    adding_to(o, worker, find(l, adding), find(l, lone));
    if (!(a > 0)) return;
    const double heads = p->work / (4.0 * (p->k + 1) * p->d); /* of all sequences */
    if (b > 0) ps_out_value(o, worker, "scores", fmin(fmax(b / a, 1), 100), "x");
    if (c > 0) ps_out_value(o, worker, "gap", fmax(c - a, 0) / heads, "us");
}

void ps_gauges_out(struct ps_profile_out *o, json_t *worker, const struct ps_gauge_list *l)
{
    const double task_s = task_of(l) + spread_of(l); /* of those that are large */
    json_t *ops;
    const struct ps_gauge *typical = NULL;
    struct ps_rate copy = { 0 };
    ps_out_value(o, worker, "task", task_of(l), "us");
    ps_out_value(o, worker, "spread", spread_of(l), "us");
    ps_out_value(o, worker, "wait", wait_of(l), "us");
    for (unsigned i = 0; i < l->n; i++) {
        const struct ps_gauge *g = &l->at[i];
        if (g->op == PS_OP_linear && g->type == PS_F16 && !g->n && !g->residual && !g->left_out &&
            g->m <= 256)
            typical = g;
        if (g->copy) copy = rate_of(g, 0);
    }
    struct ps_rate flops = rate_of(typical, task_s);
    ps_out_rate(o, worker, "copy", &copy, "GB/s");
    ps_out_rate(o, worker, "flops", &flops, "GFLOP/s");
    beside_plain(o, worker, l);
    curves(o, worker, "linear", PS_OP_linear, l, task_s);
    curves(o, worker, "decode", PS_OP_attn_decode, l, task_s);
    curves(o, worker, "prompt", PS_OP_attn_prompt, l, task_s);
    ops = ps_out_object(o, worker, "ops");
    for (const struct ps_field *f = ps_fields_ops; f->key; f++)
        for (unsigned i = 0; i < l->n; i++) {
            const struct ps_gauge *g = &l->at[i];
            const char *name = g->op == PS_OP_call ? "checksum" : ps_op_name(g->op);
            struct ps_rate r = rate_of(g, task_s);
            if (!g->copy && !strcmp(name, f->key)) ps_out_rate(o, ops, f->key, &r, "GB/s");
        }
}
