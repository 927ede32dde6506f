// SPDX-License-Identifier: Apache-2.0
/* Decode attention over slabs: one pass over K and V, and whatever the policy wants to know of it.
 *
 * A block does CHUNK entries of one KV head of one row, for all query heads of the group (HEADS at a time; K and V of further
 * ones come from the cache). The chunk's size is a constant, so that a row's bits do not depend on its neighbours. Lanes lie along d,
 * eight elements each, 16 bytes of f16 a load; an entry's dot product is summed in the same order wherever it lies, the new one's
 * too, so that equal keys have equal scores. Where a row has several chunks, each leaves its logits, and its maximum, sum and
 * output, in scratch, and the block that comes last joins them in the order of the chunks. Whoever is alone or last adds the
 * probabilities to the scores, finds the victim and writes the new entry: nobody reads K and V by then. */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/rows.cuh"

static constexpr uint32_t BLOCK = 128, WARPS = BLOCK / 32, CHUNK = 256, D_MAX = 256, UNROLL = 4;

static uint32_t chunks_of(uint32_t n) { return (n + CHUNK - 1) / CHUNK; }

/* Scratch, in floats. Of a unit (a KV head of a row), for each query head: what each chunk found (maximum, sum, output), the logits of
 * all entries, and maximum and sum of the whole. Nothing when one chunk is enough. */
struct decode_place {
    uint32_t group, d, chunks;
    __host__ __device__ size_t part_of_head() const { return (size_t) chunks * (d + 2); }
    __host__ __device__ size_t of_head() const
    {
        return part_of_head() + (size_t) chunks * CHUNK + 2;
    }
    __host__ __device__ size_t of_unit() const { return group * of_head(); }
    __device__ float *part(float *unit, uint32_t g, uint32_t chunk) const
    {
        return unit + g * of_head() + (size_t) chunk * (d + 2);
    }
    __device__ float *logits(float *unit, uint32_t g) const
    {
        return unit + g * of_head() + part_of_head();
    }
    __device__ float *whole(float *unit, uint32_t g) const
    {
        return logits(unit, g) + (size_t) chunks * CHUNK;
    }
};

struct decode_args {
    ps_attn_decode a;
    uint32_t row0; /* of this launch */
    decode_place place;
    float *scratch;
    uint32_t *counters;
    int32_t *err;
};

/* What a block shares. */
template <class T, int HEADS> struct decode_shared {
    alignas(16) T new_k[D_MAX], new_v[D_MAX]; /* rounded */
    float p[HEADS][CHUNK];                    /* logits, then exp(logit - max) */
    float max[HEADS], sum[HEADS];
    float out[WARPS][HEADS][D_MAX];
    float total[CHUNK]; /* of an entry over the group's heads, when there is one chunk */
    struct best {
        float score;
        int32_t pos, at; /* at < 0: none */
    } best[WARPS];
    float new_score;
    bool last;
};

/* Elements c .. c+7 of a row of d; those beyond are zero. */
template <class T, bool VEC>
__device__ inline void row8(const T *row, uint32_t c, uint32_t d, float v[8])
{
    if (VEC) {
        if (c < d) return ps_get8(row + c, v);
        for (int i = 0; i < 8; i++) v[i] = 0;
    } else {
        for (uint32_t i = 0; i < 8; i++) v[i] = c + i < d ? ps_get(row[c + i]) : 0;
    }
}

/* A row's entries of one KV head: those of the slab, then the new one. */
template <class T> struct decode_entries {
    const T *slab, *fresh;
    uint32_t len, d;
    __device__ const T *operator()(uint32_t e) const
    {
        return e < len ? slab + (size_t) e * d : fresh;
    }
};

/* p[0..heads)[0..count): scaled logits of entries begin .. begin+count-1. */
template <class T, bool VEC, int HEADS>
__device__ inline void logits(const decode_entries<T> &k, const float *q, float scale,
                              uint32_t begin, uint32_t count, uint32_t heads, uint32_t lanes,
                              float (*p)[CHUNK])
{
    const uint32_t subs = BLOCK / lanes, sub = threadIdx.x / lanes, c = threadIdx.x % lanes * 8;
    float qv[HEADS][8];
#pragma unroll
    for (int g = 0; g < HEADS; g++)
        for (uint32_t i = 0; i < 8; i++)
            qv[g][i] = g < (int) heads && c + i < k.d ? q[g * k.d + c + i] : 0;
    for (uint32_t e0 = 0; e0 < count; e0 += UNROLL * subs) {
        float kv[UNROLL][8];
#pragma unroll
        for (uint32_t u = 0; u < UNROLL; u++) {
            const uint32_t e = e0 + u * subs + sub;
            row8<T, VEC>(k(begin + (e < count ? e : 0)), c, k.d, kv[u]);
        }
#pragma unroll
        for (int g = 0; g < HEADS; g++) {
            if (g >= (int) heads) break;
#pragma unroll
            for (uint32_t u = 0; u < UNROLL; u++) {
                float s = 0;
                for (int i = 0; i < 8; i++) s = fmaf(qv[g][i], kv[u][i], s);
                for (int o = (int) lanes / 2; o; o /= 2) s += __shfl_xor_sync(~0u, s, o);
                const uint32_t e = e0 + u * subs + sub;
                if (c == 0 && e < count) p[g][e] = scale * s;
            }
        }
    }
}

/* A warp for each head: p becomes exp(p - max). `keep`, if not NULL, gets the logits. */
__device__ inline void exponentials(float *p, uint32_t count, float *ret_max, float *ret_sum,
                                    float *keep)
{
    const uint32_t lane = threadIdx.x % 32;
    float m = -INFINITY, sum = 0;
    for (uint32_t e = lane; e < count; e += 32) {
        m = fmaxf(m, p[e]);
        if (keep) keep[e] = p[e];
    }
    m = ps_warp_reduce(m, ps_fmax());
    for (uint32_t e = lane; e < count; e += 32) sum += p[e] = expf(p[e] - m);
    sum = ps_warp_reduce(sum, ps_add());
    if (lane == 0) *ret_max = m, *ret_sum = sum;
}

/* out[warp][head][0..d): sums over the warp's entries of p * v. */
template <class T, bool VEC, int HEADS>
__device__ inline void weigh(const decode_entries<T> &v, uint32_t begin, uint32_t count,
                             uint32_t heads, uint32_t lanes, const float (*p)[CHUNK],
                             float (*out)[HEADS][D_MAX])
{
    const uint32_t subs = BLOCK / lanes, sub = threadIdx.x / lanes, c = threadIdx.x % lanes * 8;
    float acc[HEADS][8];
#pragma unroll
    for (int g = 0; g < HEADS; g++)
        for (int i = 0; i < 8; i++) acc[g][i] = 0;
    for (uint32_t e0 = 0; e0 < count; e0 += UNROLL * subs) {
        float vv[UNROLL][8];
#pragma unroll
        for (uint32_t u = 0; u < UNROLL; u++) {
            const uint32_t e = e0 + u * subs + sub;
            row8<T, VEC>(v(begin + (e < count ? e : 0)), c, v.d, vv[u]);
        }
#pragma unroll
        for (int g = 0; g < HEADS; g++) {
            if (g >= (int) heads) break;
#pragma unroll
            for (uint32_t u = 0; u < UNROLL; u++) {
                const uint32_t e = e0 + u * subs + sub;
                const float w = e < count ? p[g][e] : 0;
                for (int i = 0; i < 8; i++) acc[g][i] = fmaf(w, vv[u][i], acc[g][i]);
            }
        }
    }
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        if (g >= (int) heads) break;
        for (int i = 0; i < 8; i++)
            for (int o = (int) lanes; o < 32; o *= 2)
                acc[g][i] += __shfl_xor_sync(~0u, acc[g][i], o);
        for (uint32_t i = 0; i < 8; i++)
            if (threadIdx.x % 32 < lanes && c + i < v.d)
                out[threadIdx.x / 32][g][c + i] = acc[g][i];
    }
}

/* All query heads of one chunk. */
template <class T, bool VEC, int HEADS>
__device__ inline void chunk_pass(const decode_args &x, const ps_decode_row &r, uint32_t h,
                                  uint32_t chunk, bool alone, float *unit,
                                  decode_shared<T, HEADS> &s)
{
    const uint32_t d = x.a.d, group = x.place.group, n = r.len + 1, begin = chunk * CHUNK;
    const uint32_t count = n - begin < CHUNK ? n - begin : CHUNK, warp = threadIdx.x / 32;
    const size_t base = (size_t) h * r.slab.cap * d;
    const decode_entries<T> k = { static_cast<const T *>(r.slab.k) + base, s.new_k, r.len, d };
    const decode_entries<T> v = { static_cast<const T *>(r.slab.v) + base, s.new_v, r.len, d };
    uint32_t lanes = 1;
    while (lanes * 8 < d) lanes *= 2;
    for (uint32_t e = threadIdx.x; alone && e < count; e += BLOCK) s.total[e] = 0;
    for (uint32_t g0 = 0; g0 < group; g0 += HEADS) {
        const uint32_t heads = group - g0 < HEADS ? group - g0 : HEADS;
        logits<T, VEC, HEADS>(k, r.q + ((size_t) h * group + g0) * d, x.a.scale, begin, count,
                              heads, lanes, s.p);
        __syncthreads();
        for (uint32_t g = warp; g < heads; g += WARPS)
            exponentials(s.p[g], count, &s.max[g], &s.sum[g],
                         alone ? nullptr : x.place.logits(unit, g0 + g) + begin);
        __syncthreads();
        weigh<T, VEC, HEADS>(v, begin, count, heads, lanes, s.p, s.out);
        for (uint32_t e = threadIdx.x; alone && e < count; e += BLOCK)
            for (uint32_t g = 0; g < heads; g++) s.total[e] += s.p[g][e] / s.sum[g];
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < heads * d; i += BLOCK) {
            const uint32_t g = i / d, c = i % d;
            float o = s.out[0][g][c];
            for (uint32_t w = 1; w < WARPS; w++) o += s.out[w][g][c];
            if (alone)
                ps_put_as(x.a.o_type, r.o, ((size_t) h * group + g0 + g) * d + c, o / s.sum[g]);
            else
                x.place.part(unit, g0 + g, chunk)[2 + c] = o;
        }
        for (uint32_t g = threadIdx.x; !alone && g < heads; g += BLOCK) {
            float *part = x.place.part(unit, g0 + g, chunk);
            part[0] = s.max[g], part[1] = s.sum[g];
        }
    }
}

/* The outputs of a row of several chunks, and each head's maximum and sum. */
__device__ inline void join(const decode_args &x, const ps_decode_row &r, uint32_t h,
                            uint32_t chunks, float *unit)
{
    const uint32_t d = x.a.d, group = x.place.group;
    for (uint32_t i = threadIdx.x; i < group * d; i += BLOCK) {
        const uint32_t g = i / d, c = i % d;
        float m = -INFINITY, sum = 0, o = 0;
        for (uint32_t j = 0; j < chunks; j++) m = fmaxf(m, __ldcg(x.place.part(unit, g, j)));
        for (uint32_t j = 0; j < chunks; j++) {
            const float *part = x.place.part(unit, g, j), w = expf(__ldcg(part) - m);
            sum = fmaf(__ldcg(part + 1), w, sum);
            o = fmaf(__ldcg(part + 2 + c), w, o);
        }
        ps_put_as(x.a.o_type, r.o, ((size_t) h * group + g) * d + c, o / sum);
        if (c == 0) x.place.whole(unit, g)[0] = m, x.place.whole(unit, g)[1] = sum;
    }
    __syncthreads();
}

template <class B> __device__ inline B worse(B a, B b)
{
    if (a.at < 0) return b;
    if (b.at < 0) return a;
    return b.score < a.score || (b.score == a.score && b.pos > a.pos) ? b : a;
}

/* Adds the probabilities to the scores and says where the new entry goes: an index, -1 (nowhere), or -EINVAL, -PS_ENUMERIC. */
template <class S>
__device__ inline int32_t settle(const decode_args &x, const ps_decode_row &r, uint32_t h,
                                 bool alone, float *unit, S &s)
{
    typedef typename std::remove_reference<decltype(s.best[0])>::type best;
    const int32_t *pos = r.slab.pos + (size_t) h * r.slab.cap;
    float *score = r.slab.score ? r.slab.score + (size_t) h * r.slab.cap : nullptr;
    const bool evicts = r.keep.heavy != PS_KEEP_ALL &&
                        r.len >= (uint64_t) r.keep.sinks + r.keep.heavy + r.keep.recent;
    best mine = { 0, 0, -1 };
    for (uint32_t e = threadIdx.x; (score || evicts) && e <= r.len; e += BLOCK) {
        float now = 0;
        if (score) {
            float p = alone ? s.total[e] : 0;
            for (uint32_t g = 0; !alone && g < x.place.group; g++) {
                const float *whole = x.place.whole(unit, g);
                p += expf(__ldcg(x.place.logits(unit, g) + e) - whole[0]) / whole[1];
            }
            now = e < r.len ? score[e] + p : p;
            if (e < r.len)
                score[e] = now;
            else
                s.new_score = now;
        }
        const int32_t at = e < r.len ? pos[e] : r.now;
        if ((int64_t) at < (int64_t) r.keep.sinks ||
            (int64_t) at > (int64_t) r.now - (int64_t) r.keep.recent)
            continue;
        mine = worse(mine, best { now, at, (int32_t) e });
    }
    for (int o = 16; o; o /= 2) {
        const best other = { __shfl_xor_sync(~0u, mine.score, o), __shfl_xor_sync(~0u, mine.pos, o),
                             __shfl_xor_sync(~0u, mine.at, o) };
        mine = worse(mine, other);
    }
    if (threadIdx.x % 32 == 0) s.best[threadIdx.x / 32] = mine;
    __syncthreads();
    if (score && s.new_score != s.new_score) return -PS_ENUMERIC;
    if (!evicts) return (int32_t) r.len;
    mine = s.best[0];
    for (uint32_t w = 1; w < WARPS; w++) mine = worse(mine, s.best[w]);
    return mine.at < 0 ? -EINVAL : mine.at == (int32_t) r.len ? -1 : mine.at;
}

/* The new entry's K and V, and what belongs to them. */
template <class T, class S>
__device__ inline void put(const decode_args &x, const ps_decode_row &r, uint32_t h, int32_t at,
                           const S &s)
{
    const uint32_t d = x.a.d;
    const size_t entry = (size_t) h * r.slab.cap + (at < 0 ? 0 : at),
                 logged = (size_t) h * r.log_cap + r.log_at;
    for (uint32_t c = threadIdx.x; c < d; c += BLOCK) {
        if (at >= 0) {
            static_cast<T *>(r.slab.k)[entry * d + c] = s.new_k[c];
            static_cast<T *>(r.slab.v)[entry * d + c] = s.new_v[c];
        }
        if (r.log_k) {
            static_cast<T *>(r.log_k)[logged * d + c] = s.new_k[c];
            static_cast<T *>(r.log_v)[logged * d + c] = s.new_v[c];
        }
    }
    if (threadIdx.x) return;
    r.at[h] = at;
    if (r.log_k) r.log_index[logged] = at;
    if (at < 0) return;
    r.slab.pos[entry] = r.now;
    if (r.slab.score) r.slab.score[entry] = s.new_score;
}

template <class T, int HEADS>
__global__ void __launch_bounds__(BLOCK) attn_decode(const decode_args x)
{
    __shared__ decode_shared<T, HEADS> s;
    const uint32_t of_launch = blockIdx.x, h = of_launch % x.a.kv_heads, chunk = blockIdx.y,
                   d = x.a.d;
    const ps_decode_row &r = x.a.rows[x.row0 + of_launch / x.a.kv_heads];
    const uint32_t chunks = (r.len + CHUNK) / CHUNK; /* of len + 1 entries */
    float *unit = x.scratch + of_launch * x.place.of_unit();
    if (chunk >= chunks) return;
    bool bad = false;
    for (uint32_t c = threadIdx.x; c < d; c += BLOCK) {
        ps_put(&s.new_k[c], r.k[(size_t) h * d + c]);
        ps_put(&s.new_v[c], r.v[(size_t) h * d + c]);
        bad |= !ps_finite(ps_get(s.new_k[c])) || !ps_finite(ps_get(s.new_v[c]));
    }
    bad = __syncthreads_or(bad);
    const bool vec = d % 8 == 0 && ((uintptr_t) r.slab.k | (uintptr_t) r.slab.v) % 16 == 0;
    if (vec)
        chunk_pass<T, true, HEADS>(x, r, h, chunk, chunks == 1, unit, s);
    else
        chunk_pass<T, false, HEADS>(x, r, h, chunk, chunks == 1, unit, s);
    if (chunks > 1) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            s.last = atomicAdd(&x.counters[of_launch], 1u) == chunks - 1;
            if (s.last) (void) atomicExch(&x.counters[of_launch], 0u);
            __threadfence();
        }
        __syncthreads();
        if (!s.last) return;
        join(x, r, h, chunks, unit);
    }
    const int32_t at = bad ? -PS_ENUMERIC : settle(x, r, h, chunks == 1, unit, s);
    if (at >= -1)
        put<T>(x, r, h, at, s);
    else if (threadIdx.x == 0)
        ps_fault(x.err, PS_OP_attn_decode, at);
}

static decode_place place_of(const ps_attn_decode *a)
{
    return { a->q_heads / a->kv_heads, a->d, chunks_of(a->longest) };
}

bool ps_attn_decode_cuda_takes(const void *args)
{
    const ps_attn_decode *a = static_cast<const ps_attn_decode *>(args);
    return a->d <= D_MAX && a->kv_heads <= PS_CUDA_COUNTERS && a->kv_type != PS_BF16;
}

size_t ps_attn_decode_cuda_scratch(const void *args)
{
    const ps_attn_decode *a = static_cast<const ps_attn_decode *>(args);
    const uint32_t per = PS_CUDA_COUNTERS / a->kv_heads, rows = a->n_rows < per ? a->n_rows : per;
    return a->longest <= CHUNK ? 0 : rows * a->kv_heads * place_of(a).of_unit() * sizeof(float);
}

template <class T, int HEADS>
static int launch(const decode_args &x, ps_cuda_stream *s, uint32_t rows)
{
    auto *decode = attn_decode<T, HEADS>;
    return PS_LAUNCH(s, decode, dim3(rows * x.a.kv_heads, x.place.chunks), BLOCK, x);
}

/* One launch, unless there are more units than counters. */
int ps_attn_decode_cuda(const void *args, const ps_span *span)
{
    ps_cuda_stream *s = ps_stream(span);
    decode_args x = { *static_cast<const ps_attn_decode *>(args), 0,           {},
                      static_cast<float *>(span->scratch),        s->counters, s->err };
    x.place = place_of(&x.a);
    /* Chunks alone use no scratch and need none, but make an address of it. */
    if (!x.scratch) x.scratch = reinterpret_cast<float *>(s->counters);
    const uint32_t per = PS_CUDA_COUNTERS / x.a.kv_heads;
    int r = 0;
    for (; r >= 0 && x.row0 < x.a.n_rows; x.row0 += per) {
        const uint32_t rows = x.a.n_rows - x.row0 < per ? x.a.n_rows - x.row0 : per;
        const bool f32 = x.a.kv_type == PS_F32;
        if (x.place.group == 1)
            r = f32 ? launch<float, 1>(x, s, rows) : launch<__half, 1>(x, s, rows);
        else
            r = f32 ? launch<float, 4>(x, s, rows) : launch<__half, 4>(x, s, rows);
    }
    return r;
}
