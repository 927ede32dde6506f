// SPDX-License-Identifier: Apache-2.0
/* sample: a block for each row. Top-k, top-p and the draw are each the search for one place in the descending order of the logits
 * (select.cuh). Probabilities are integers in units of 2^-45 of the greatest: their sums are exact, so that the result does not
 * depend on who adds first. */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/select.cuh"
#include "kernels/uniform.h"

static constexpr uint32_t BLOCK = 512, WARPS = BLOCK / 32, VOCAB_MAX = 1 << 18;
typedef unsigned long long u64; /* what atomicAdd() takes */

struct sample_args {
    ps_sample a;
    u64 *mass;      /* [rows][vocab] */
    uint32_t *keys; /* [rows][vocab]: sortable, 0 for what may not be chosen */
    int32_t *err;
};

struct sample_shared {
    u64 bins[PS_BINS], wide[WARPS];
    double sums[WARPS];
    float maxima[WARPS];
    uint32_t part[WARPS];
    int32_t found;
};

struct greatest {
    __device__ u64 operator()(u64 a, u64 b) const { return b > a ? b : a; }
};

/* Key, and the lower id of equals: the greatest is the best. */
__device__ inline u64 ranked(uint32_t key, uint32_t id) { return (u64) key << 32 | (uint32_t) ~id; }
__device__ inline uint32_t id_of(u64 ranked) { return ~(uint32_t) ranked; }

/* The id of the n-th (from 1) element with this key. */
__device__ inline int32_t nth_equal(const uint32_t *keys, uint32_t vocab, uint32_t key, u64 n,
                                    sample_shared &s)
{
    u64 before = 0;
    for (uint32_t i0 = 0; i0 < vocab; i0 += BLOCK) {
        const uint32_t i = i0 + threadIdx.x;
        const bool equal = i < vocab && keys[i] == key;
        uint32_t all;
        const u64 at = before + ps_rank<BLOCK>(equal, s.part, &all);
        if (equal && at + 1 == n) s.found = (int32_t) i;
        before += all;
    }
    __syncthreads();
    return s.found;
}

__device__ inline bool banned(const ps_sample_row &r, uint32_t id)
{
    for (uint32_t i = 0; i < r.n_banned; i++)
        if (r.banned[i] == (int32_t) id) return true;
    return false;
}

__device__ inline int32_t choose(const ps_sample_row &r, uint32_t vocab, uint32_t *keys, u64 *mass,
                                 sample_shared &s)
{
    u64 best = 0, n = 0;
    for (uint32_t i = threadIdx.x; i < vocab; i += BLOCK) {
        const bool may = r.logits[i] > -INFINITY && !banned(r, i);
        keys[i] = may ? ps_sortable(r.logits[i]) : 0;
        n += may;
        if (may) best = greatest()(best, ranked(keys[i], i));
    }
    n = ps_block_reduce<WARPS>(n, s.wide, ps_add());
    best = ps_block_reduce<WARPS>(best, s.wide, greatest());
    if (n == 0) return -1;
    if (r.temperature == 0) return (int32_t) id_of(best);

    const double top = (double) r.logits[id_of(best)];
    const auto key_of = [=](uint32_t i) { return keys[i]; };
    const auto mass_of = [=](uint32_t i) { return mass[i]; };
    uint32_t edge = 0; /* the last key that stays, and how many of those that have it */
    u64 ties = vocab;
    if (r.top_k > 0 && r.top_k < n)
        ties = ps_descend<BLOCK>(
            0, vocab, r.top_k, key_of, [](uint32_t) { return 1; }, s.bins, &edge);
    u64 kept = 0; /* above the edge */
    for (uint32_t i = threadIdx.x; i < vocab; i += BLOCK) {
        mass[i] = keys[i]
                      ? (u64) (exp(((double) r.logits[i] - top) / (double) r.temperature) * 0x1p45)
                      : 0;
        if (keys[i] > edge) kept += mass[i];
    }
    kept = ps_block_reduce<WARPS>(kept, s.wide,
                                  ps_add()); /* the barrier within shows mass to all, too */
    const auto of_edge = [&](uint32_t key) { return mass[nth_equal(keys, vocab, key, 1, s)]; };
    if (edge) kept += ties * of_edge(edge);
    if (r.top_p < 1) {
        const u64 want = (u64) ceil((double) r.top_p * (double) kept);
        u64 rest = ps_descend<BLOCK>(0, vocab, want ? want : 1, key_of, mass_of, s.bins, &edge);
        const u64 one = of_edge(edge), some = one ? (rest + one - 1) / one : 1;
        kept = (want ? want : 1) - rest + some * one;
    }
    u64 want = (u64) (ps_philox(r.key, r.index) * (double) kept) + 1;
    if (want > kept) want = kept;
    const u64 rest = ps_descend<BLOCK>(0, vocab, want, key_of, mass_of, s.bins, &edge);
    const u64 one = of_edge(edge);
    return nth_equal(keys, vocab, edge, one ? (rest + one - 1) / one : 1, s);
}

__global__ void __launch_bounds__(BLOCK) sample(const sample_args x)
{
    __shared__ sample_shared s;
    const ps_sample_row &r = x.a.rows[blockIdx.x];
    const uint32_t vocab = x.a.vocab;
    const float *logits = r.logits;
    if ((r.forced >= 0 && (uint32_t) r.forced >= vocab) || r.n_top > PS_TOP_MAX) {
        if (threadIdx.x == 0) ps_fault(x.err, PS_OP_sample, -EINVAL);
        return;
    }
    float max = -INFINITY, bad = 0;
    for (uint32_t i = threadIdx.x; i < vocab; i += BLOCK) {
        max = fmaxf(max, logits[i]);
        if (!(logits[i] < INFINITY)) bad = 1; /* NaN, too */
    }
    max = ps_block_reduce<WARPS>(max, s.maxima, ps_fmax());
    bad = ps_block_reduce<WARPS>(bad, s.maxima, ps_fmax());
    ps_sample_out *out = r.out;
    for (uint32_t i = threadIdx.x; i < PS_TOP_MAX; i += BLOCK)
        out->top_id[i] = 0, out->top_logprob[i] = 0;
    if (threadIdx.x == 0) out->token = -1, out->logprob = 0, out->n_top = 0;
    if (bad > 0 || max == -INFINITY) return;

    double sum = 0;
    for (uint32_t i = threadIdx.x; i < vocab; i += BLOCK)
        sum += exp((double) logits[i] - (double) max);
    const double lse = (double) max + log(ps_block_reduce<WARPS>(sum, s.sums, ps_add()));
    const uint32_t n_top = r.n_top < vocab ? r.n_top : vocab;
    u64 last = ~(u64) 0;
    for (uint32_t t = 0; t < n_top; t++) {
        u64 best = 0;
        for (uint32_t i = threadIdx.x; i < vocab; i += BLOCK) {
            const u64 it = ranked(ps_sortable(logits[i]), i);
            if (it < last && it > best) best = it;
        }
        last = ps_block_reduce<WARPS>(best, s.wide, greatest());
        if (threadIdx.x == 0) {
            out->top_id[t] = (int32_t) id_of(last);
            out->top_logprob[t] = (float) ((double) logits[id_of(last)] - lse);
        }
    }
    int32_t token = r.forced;
    if (token < 0)
        token = choose(r, vocab, x.keys + (size_t) blockIdx.x * vocab,
                       x.mass + (size_t) blockIdx.x * vocab, s);
    if (threadIdx.x) return;
    out->n_top = n_top;
    out->token = token;
    if (token >= 0) out->logprob = (float) ((double) logits[token] - lse);
}

bool ps_sample_cuda_takes(const void *args)
{
    return static_cast<const ps_sample *>(args)->vocab <= VOCAB_MAX;
}

size_t ps_sample_cuda_scratch(const void *args)
{
    const ps_sample *a = static_cast<const ps_sample *>(args);
    return (size_t) a->n_rows * a->vocab * (sizeof(u64) + sizeof(uint32_t));
}

int ps_sample_cuda(const void *args, const ps_span *span)
{
    ps_cuda_stream *s = ps_stream(span);
    sample_args x = { *static_cast<const ps_sample *>(args), static_cast<u64 *>(span->scratch),
                      nullptr, s->err };
    x.keys = reinterpret_cast<uint32_t *>(x.mass + (size_t) x.a.n_rows * x.a.vocab);
    return PS_LAUNCH(s, sample, x.a.n_rows, BLOCK, x);
}
