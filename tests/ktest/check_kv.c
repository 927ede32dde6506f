/* SPDX-License-Identifier: Apache-2.0 */
/* kv_round, kv_compact, kv_replay. */
#include "engine/base/ps_err.h"
#include "ktest.h"

static const enum ps_dtype kv_types[] = { PS_F16, PS_F32 };

static void round_case(struct kt *kt, uint32_t d, enum ps_dtype t, int fault)
{
    struct ps_kv_round a = { .rows = 1 + kt_below(kt, 5), .kv_heads = 1 + kt_below(kt, 3), .d = d };
    a.at = kt_below(kt, 4);
    a.cap = a.at + a.rows + kt_below(kt, 3);
    a.ldk = a.kv_heads * d + kt_below(kt, 3);
    a.ldv = a.kv_heads * d + kt_below(kt, 3);
    a.kv_type = t;
    float *k = kt_in_f32(kt, (size_t) (a.rows - 1) * a.ldk + a.kv_heads * d, -70, 70);
    float *v = kt_in_f32(kt, (size_t) (a.rows - 1) * a.ldv + a.kv_heads * d, -1e-4f, 1e-4f);
    if (fault == 1) k[d - 1] = 65520;
    if (fault == 2) v[0] = -__builtin_inff();
    if (fault == 3) v[d - 1] = __builtin_nanf("");
    if (fault == 0 && d > 1) k[d - 1] = 65519, k[0] = -0.0f;
    a.k = k;
    a.v = v;
    a.dst_k = kt_out(kt, kt_type_of(t), (size_t) a.kv_heads * a.cap * d, 0);
    a.dst_v = kt_out(kt, kt_type_of(t), (size_t) a.kv_heads * a.cap * d, 0);
    kt_check(kt,
             &(struct kt_spec) { .op = PS_OP_kv_round,
                                 .args = &a,
                                 .want_rc =
                                     fault == 0 || (fault == 1 && t == PS_F32) ? 0 : -PS_ENUMERIC },
             "%ux%ux%u %s fault=%d", a.rows, a.kv_heads, d, ps_dtype_name(t), fault);
}

static void check_round(struct kt *kt)
{
    static const uint32_t ds[] = { 1, 7, 8, 9, 15, 16, 17, 33, 64, 80, 128, 131 };
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof ds / sizeof ds[0]; i++)
            for (int fault = 0; fault < 4; fault++) round_case(kt, ds[i], kv_types[t], fault);
}
const struct kt_test kt_test_kv_round = { PS_OP_kv_round, check_round, NULL };

static uint32_t stay(const struct ps_keep *k, uint32_t n)
{
    const uint64_t b = (uint64_t) k->sinks + k->heavy + k->recent;
    return k->heavy == PS_KEEP_ALL || b > n ? n : (uint32_t) b;
}

static void compact_case(struct kt *kt, uint32_t d, uint32_t total, struct ps_keep keep, int ties,
                         enum ps_dtype t)
{
    struct ps_kv_compact a = { .n_seqs = 1 + kt_below(kt, 2), .kv_heads = 1 + kt_below(kt, 3) };
    struct ps_compact_seq *seqs = kt_in_bytes(kt, a.n_seqs * sizeof *seqs);
    a.seqs = seqs;
    a.d = d;
    a.longest = total;
    a.kv_type = t;
    for (uint32_t s = 0; s < a.n_seqs; s++) {
        struct ps_compact_seq q = { .keep = keep };
        q.total = s ? 1 + kt_below(kt, total) : total;
        q.src.cap = q.total + kt_below(kt, 3);
        q.dst.cap = stay(&keep, q.total) + kt_below(kt, 3);
        if (q.dst.cap == 0) q.dst.cap = 1;
        const size_t from = (size_t) a.kv_heads * q.src.cap, to = (size_t) a.kv_heads * q.dst.cap;
        q.src.k = kt_in_dtype(kt, t, from * d, -1, 1);
        q.src.v = kt_in_dtype(kt, t, from * d, -1, 1);
        if (keep.heavy > 0 && (keep.heavy != PS_KEEP_ALL || ties)) {
            q.src.score = kt_in_f32(kt, from, 0, 3);
            for (size_t i = 0; ties && i < from; i++)
                q.src.score[i] = ties == 1 ? (float) kt_below(kt, 4) / 8 : 1;
            q.dst.score = kt_out(kt, KT_F32, to, 0);
        }
        q.dst.k = kt_out(kt, kt_type_of(t), to * d, 0);
        q.dst.v = kt_out(kt, kt_type_of(t), to * d, 0);
        q.dst.pos = kt_out(kt, KT_I32, to, 0);
        seqs[s] = q;
    }
    kt_check(kt, &(struct kt_spec) { .op = PS_OP_kv_compact, .args = &a },
             "d=%u total=%u keep=%d/%d/%d %s ties=%d", d, total, (int) keep.sinks, (int) keep.heavy,
             (int) keep.recent, ps_dtype_name(t), ties);
}

static void check_compact(struct kt *kt)
{
    static const struct ps_keep keeps[] = { { 0, PS_KEEP_ALL, 0 }, { 0, 2, 2 },    { 0, 3, 0 },
                                            { 2, 0, 3 },           { 0, 0, 5 },    { 1, 4, 1 },
                                            { 3, 7, 9 },           { 0, 0, 0 },    { 4, 50, 46 },
                                            { 0, 1, 0 },           { 0, 200, 100 } };
    static const uint32_t totals[] = { 1, 2, 5, 16, 19, 20, 64, 101, 517 };
    for (size_t k = 0; k < sizeof keeps / sizeof keeps[0]; k++)
        for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++)
            for (int ties = 0; ties < 3; ties++)
                compact_case(kt, (uint32_t[]) { 1, 5, 16, 64 }[kt_below(kt, 4)], totals[i],
                             keeps[k], ties, kv_types[(k + i) % 2]);
}
const struct kt_test kt_test_kv_compact = { PS_OP_kv_compact, check_compact, NULL };

static void check_replay(struct kt *kt)
{
    static const uint32_t ns[] = { 0, 3, 6, 9, 70 };
    for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++)
        for (size_t t = 0; t < 2; t++) {
            const uint32_t n = ns[i];
            struct ps_kv_replay a = { .n_seqs = 1 + kt_below(kt, 3),
                                      .kv_heads = 2,
                                      .d = 1 + 7 * (n % 10) };
            struct ps_replay_seq *seqs = kt_in_bytes(kt, a.n_seqs * sizeof *seqs);
            a.seqs = seqs;
            a.kv_type = kv_types[t];
            for (uint32_t s = 0; s < a.n_seqs; s++) {
                struct ps_replay_seq q = { .cap = 1 + kt_below(kt, 6), .n = n };
                q.log_cap = n + 1;
                const size_t len = (size_t) a.kv_heads * q.cap * a.d,
                             log = (size_t) a.kv_heads * q.log_cap * a.d;
                q.k = kt_inout(kt, kt_type_of(a.kv_type), len, 0);
                q.v = kt_inout(kt, kt_type_of(a.kv_type), len, 0);
                q.log_k = kt_in_dtype(kt, a.kv_type, log, -1, 1);
                q.log_v = kt_in_dtype(kt, a.kv_type, log, -1, 1);
                q.log_index = kt_in_i32(kt, (size_t) a.kv_heads * q.log_cap, -1, (int32_t) q.cap);
                seqs[s] = q;
            }
            kt_check(kt, &(struct kt_spec) { .op = PS_OP_kv_replay, .args = &a }, "n=%u %s", n,
                     ps_dtype_name(a.kv_type));
        }
}
const struct kt_test kt_test_kv_replay = { PS_OP_kv_replay, check_replay, NULL };
