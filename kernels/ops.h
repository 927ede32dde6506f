/* SPDX-License-Identifier: Apache-2.0 */
/* The ops and their contracts. All matrices are row-major; `ld*` are distances between rows in elements.
 * Pointers need no alignment beyond their element's unless said. Activations are f32 on the host.
 * Sizes are >= 1 unless said; a task with zero rows is not submitted. Outputs overlap inputs only where said.
 *
 * Symbols: M rows of a batch, N output features, K input features, d head dimension, Hq query heads, Hkv KV
 * heads, G = Hq / Hkv query heads that share a KV head (query heads g*G .. g*G+G-1 read KV head g).
 */
#ifndef PS_OPS_H
#define PS_OPS_H
#include "engine/base/ps_dtype.h"
#include <stdbool.h>
#include <stdint.h>

/* y[r,:] = table row ids[r], for the rows r with row0 <= ids[r] < row0 + n_rows (the others are left alone:
 * a table comes in pieces, each a task); `add` adds to y instead of overwriting. Unit: a row r. */
struct ps_embed {
    float *y;
    const void *table; /* [n_rows, cols], starting with table row row0 */
    const int32_t *ids;
    uint32_t rows, cols, ldy;
    uint32_t row0, n_rows;
    int32_t ids_add; /* added to each id first: OPT's positions begin at row 2 */
    enum ps_dtype dtype;
    bool add;
};

/* y[r,:] = (x[r,:] - mean) / sqrt(var + eps) * w + b, var the biased variance. y may equal x. `rounded`, if not NULL, gets the
 * result once more, rounded to `dtype`; then y may be NULL. Unit: a row. */
struct ps_layernorm {
    float *y;
    const float *x;
    const void *w, *b; /* [cols] */
    void *rounded;     /* [rows, cols], apart from x */
    uint32_t rows, cols, ldx, ldy;
    float eps;
    enum ps_dtype dtype; /* of w and b */
};

/* y[i] = x[i] in another type, rounded to nearest. y and x do not overlap. Unit: PS_CONVERT_UNIT consecutive i. */
enum { PS_CONVERT_UNIT = 4096 };
struct ps_convert {
    void *y;
    const void *x;
    uint64_t n;
    enum ps_dtype to, from;
};

enum ps_act { PS_ACT_NONE, PS_ACT_RELU, PS_ACT__COUNT };

/* y[m,n] = act(sum_k x[m,k] * w[n,k] + bias[n]) + residual[m,n]
 * The sum runs in f32 (FMA; f64 for small K) in an order that depends on K alone. `bias` and `residual` may be NULL; residual
 * may equal y (same ld). Several tasks may each make some columns of one y: w, bias, y and residual then point
 * at the first of the N columns. w is never written. Unit: PS_LINEAR_UNIT consecutive n, over all rows m.
 *
 * rounded_x, if not NULL, is read instead of x, and rounded_y written instead of y, rounded (then there is no residual): the other pointer is
 * NULL, and the elements are of type wtype. On CUDA more rows than PS_LINEAR_OWN_ROWS are best given as the library wants them: x rounded,
 * and of a y in f32 the bias in f32, too. Without that our own kernels take them all the same. */
enum { PS_LINEAR_UNIT = 64 };
enum { PS_LINEAR_OWN_ROWS = 256 };
/* Whether tensor cores multiply weights of this type: bf16 from compute capability 8.0 on (sm 0: not known, a new one). */
static inline bool ps_linear_tensor(uint32_t sm, enum ps_dtype wtype)
{
    return wtype == PS_F16 || (wtype == PS_BF16 && (!sm || sm >= 80));
}
static inline bool ps_linear_rounds(uint32_t sm, uint32_t m, enum ps_dtype wtype)
{
    return m > PS_LINEAR_OWN_ROWS && ps_linear_tensor(sm, wtype);
}
enum { PS_LINEAR_WIDE_K = 512 }; /* up to here sums are in f64 */
struct ps_linear {
    float *y;
    const float *x;
    void *rounded_y;
    const void *rounded_x;
    const void *w;
    const void *bias; /* [N], of type wtype unless bias_f32 */
    const float *residual;
    uint32_t m, n, k;
    uint32_t ldx, ldy, ldr;
    enum ps_dtype wtype;
    enum ps_act act;
    bool bias_f32;
    bool
        exact; /* x goes into the product as it is, also where a row would round it to the weights' type (CUDA) */
    bool
        odd; /* rows that sum wider than f32 round y to odd: rounded once more, to f16, it is as if rounded once */
};

/* A KV slab: the fixed room for one sequence's KV in one layer. Entry e of KV head h lies at element
 * (h*cap + e)*d of k and v, at h*cap + e of score and pos. The order of entries means nothing; the first
 * `len` of each head are in use (the same number in every head). */
struct ps_slab {
    void *k, *v;  /* KV type */
    float *score; /* NULL when the policy has none */
    int32_t *pos; /* text position of each entry */
    uint32_t cap;
};

/* Rounds new K and V rows to the KV type, into a slab-shaped place: rows r go to entry `at + r` of each head.
 * Unit: a row. Values that overflow f16 are an error (-PS_ENUMERIC). */
struct ps_kv_round {
    const float *k, *v;  /* [rows, Hkv*d] */
    void *dst_k, *dst_v; /* [Hkv, cap, d] */
    uint32_t rows, ldk, ldv;
    uint32_t kv_heads, d, cap, at;
    enum ps_dtype kv_type;
};

/* Attention of some rows of one prompt over that prompt's rounded K and V, causal. Query row r is text
 * position first + r and attends to keys 0 .. first + r. o[r, hq*d ..] gets the result.
 * score[h*cap + j], if not NULL, accumulates over rows (ascending) and over the G query heads (ascending)
 * the probabilities p(r, j); rows with first == 0 start it at zero for all j < total. The S x S matrix is never stored. */
struct ps_prompt_seq {
    const float *q;    /* [rows, Hq*d] */
    void *o;           /* [rows, Hq*d], of o_type */
    const void *k, *v; /* [Hkv, cap, d] */
    float *score;      /* [Hkv, cap] or NULL */
    uint32_t rows, first, cap;
    uint32_t total; /* the prompt's whole length; first + rows <= total <= cap */
};
/* Unit: one KV head of one sequence (sequence-major). Scratch depends on the longest first + rows. */
struct ps_attn_prompt {
    const struct ps_prompt_seq *seqs;
    uint32_t n_seqs, q_heads, kv_heads, d, ldq, ldo;
    uint32_t longest; /* max over seqs of first + rows: sizes the scratch */
    float scale;      /* on q.k, 1/sqrt(d) */
    enum ps_dtype kv_type, o_type;
};

/* What stays: the first `sinks` text positions, the `recent` latest, and the `heavy` greatest scores of the
 * rest; equal scores: the later position goes. PS_KEEP_ALL in `heavy` keeps everything. */
#define PS_KEEP_ALL UINT32_MAX
struct ps_keep {
    uint32_t sinks, heavy, recent;
};

/* One decode step of one sequence in one layer, per KV head h:
 *   k,v rounded to the KV type; p = softmax over the slab's `len` entries and the new one; o = p V;
 *   score += p summed over the G query heads (the new entry starts at its own p), if the slab has scores;
 *   then the new entry is written at index len if len < sinks+heavy+recent (or heavy == PS_KEEP_ALL), else the
 *   victim's place is overwritten: the smallest score among the entries that are neither sinks (pos < sinks)
 *   nor recent (pos > now - recent), the new one included; equal scores: the greatest pos. Without scores
 *   all count as equal, and keep must leave exactly one candidate (heavy == 0). The new entry may be its own
 *   victim: nothing is written then.
 * at[h] gets the index written, or -1. With log_k not NULL the rounded new entry is also written to
 * log_k/log_v [Hkv, log_cap, d] at log_at, and at[h] to log_index [Hkv, log_cap] (a slab on disk is read-only
 * between merges; ps_kv_replay puts these entries back after a read). Its position and score are in the slab's pos and score.
 * A K or V that is not finite once rounded, and a NaN where scores are kept, are errors (-PS_ENUMERIC). */
struct ps_decode_row {
    const float *q;     /* [Hq*d] */
    const float *k, *v; /* [Hkv*d] */
    void *o;            /* [Hq*d], of o_type */
    struct ps_slab slab;
    struct ps_keep keep;
    uint32_t len; /* entries in use before this step */
    int32_t now;  /* the new token's text position */
    int32_t *at;  /* [Hkv] */
    void *log_k, *log_v;
    int32_t *log_index;
    uint32_t log_cap, log_at;
};
/* Unit: one KV head of one row (row-major). */
struct ps_attn_decode {
    const struct ps_decode_row *rows;
    uint32_t n_rows, q_heads, kv_heads, d;
    uint32_t longest; /* max over rows of len + 1: sizes the scratch */
    float scale;
    enum ps_dtype kv_type, o_type;
};

/* After a prompt: copies what stays of src (entries 0..total-1 are positions 0..total-1) into dst, in
 * ascending position, with pos and scores. dst.cap >= what stays. Unit: one KV head of one sequence. */
struct ps_compact_seq {
    struct ps_slab src; /* src.pos is not read */
    struct ps_slab dst;
    struct ps_keep keep;
    uint32_t total;
};
struct ps_kv_compact {
    const struct ps_compact_seq *seqs;
    uint32_t n_seqs, kv_heads, d;
    uint32_t longest; /* max of total */
    enum ps_dtype kv_type;
};

/* Puts logged entries 0..n-1 (see ps_decode_row), in order, into a slab that was just read from disk; an
 * index of -1 is passed over. Unit: one KV head of one sequence. */
struct ps_replay_seq {
    void *k, *v; /* slab */
    const void *log_k, *log_v;
    const int32_t *log_index;
    uint32_t cap, log_cap, n;
};
struct ps_kv_replay {
    const struct ps_replay_seq *seqs;
    uint32_t n_seqs, kv_heads, d;
    enum ps_dtype kv_type;
};

/* One row's next token from its logits (f32, `vocab` of them).
 *   forced >= 0: that token is taken (scoring a prompt). Else temperature == 0: the greatest logit, the lower id
 *   of equals. Else: logits / temperature, the top_k greatest (0 = off; ties at the edge: lower ids first), of
 *   these the smallest set, taken from the most probable on (equal: lower id first), whose probability reaches
 *   top_p (1 = off), then inverse-CDF with u = ps_uniform(key, index) over that set in that order.
 *   banned ids are left out of the choice (not of the log-probabilities).
 * logprob = natural log of the softmax over all of the raw logits. top: the n_top greatest, descending, lower
 * id first of equals. A logit that is NaN or +inf, or a row with nothing to choose from, gives token -1. */
enum { PS_TOP_MAX = 20 };
struct ps_sample_out {
    int32_t token;
    float logprob;
    uint32_t n_top;
    int32_t top_id[PS_TOP_MAX];
    float top_logprob[PS_TOP_MAX];
};
struct ps_sample_row {
    const float *logits;
    struct ps_sample_out *out;
    const int32_t *banned;
    uint64_t key;   /* of (seed, custom_id) */
    uint32_t index; /* of the generated token */
    uint32_t n_banned, n_top, top_k;
    int32_t forced;
    float temperature, top_p;
};
/* Unit: a row. */
struct ps_sample {
    const struct ps_sample_row *rows;
    uint32_t n_rows, vocab;
};
/* The counter-based random number in [0, 1) that sampling uses: a function of its arguments alone. */
double ps_uniform(uint64_t key, uint32_t index);

/* Runs a function of the host: what is no kernel but belongs in a queue (a checksum). Unit: one. */
struct ps_call {
    int (*fn)(void *ud, uint64_t arg);
    void *ud;
    uint64_t arg;
    uint64_t bytes; /* that it reads: its cost */
};
#endif
