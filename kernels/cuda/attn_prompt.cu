// SPDX-License-Identifier: Apache-2.0
/* Attention over prompts. "Virtual rows" are a sequence's query rows times the query heads that share a KV head, rows ascending, then
 * heads: they read the same K and V.
 *
 * attn_prompt: a block takes TILE virtual rows and walks over their keys, TILE at a time, keeping each row's running maximum
 * and sum; it makes OUT columns of the output (another block makes the next ones). Tiles of keys begin at key 0, so that a row's bits do
 * not depend on how its prompt was cut into chunks.
 *
 * attn_scores: a block takes TILE keys and walks over the virtual rows, now that each row's maximum and sum are known: the probabilities
 * are exact, and a thread adds up a key's in the order of the rows. The price is that q.k is computed twice; nothing of
 * size S x S is ever stored. All products are f32: K and V as they lie there, q unrounded. */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/rows.cuh"

static constexpr uint32_t BLOCK = 256, TILE = 64, DEPTH = 32, OUT = 64, PAD = 4, EACH = 4;
static constexpr uint32_t ACROSS = TILE / EACH; /* threads along the keys; as many along the rows */

struct prompt_args {
    ps_attn_prompt a;
    float *stats; /* [all rows of all sequences][q_heads][2]: maximum, sum */
};

struct prompt_shared {
    union {
        struct {
            float q[DEPTH][TILE + PAD], k[DEPTH][TILE + PAD];
        } in;
        float v[TILE][OUT];
    };
    float p[TILE][TILE + 1];
};

/* One KV head of a sequence. */
template <class T> struct prompt_head {
    const T *k, *v;
    const float *q;
    uint32_t first, rows, group, virtuals, d, ldq;
    float scale;
    bool vec;
    __device__ prompt_head(const ps_attn_prompt &a, const ps_prompt_seq &s, uint32_t h)
    {
        group = a.q_heads / a.kv_heads, d = a.d, ldq = a.ldq, scale = a.scale;
        first = s.first, rows = s.rows, virtuals = rows * group;
        const size_t base = (size_t) h * s.cap * d;
        k = static_cast<const T *>(s.k) + base, v = static_cast<const T *>(s.v) + base;
        q = s.q + (size_t) h * group * d;
        vec = d % 8 == 0 && ((uintptr_t) s.k | (uintptr_t) s.v) % 16 == 0;
    }
    __device__ uint32_t last_key(uint32_t virtual_row) const { return first + virtual_row / group; }
    __device__ const float *q_row(uint32_t virtual_row) const
    {
        return q + (size_t) (virtual_row / group) * ldq + virtual_row % group * d;
    }
};

/* Eight elements from column c of row `key`, those beyond d, and of keys beyond `keys`, zero. */
template <class T>
__device__ inline void part_of_row(const T *m, uint32_t key, uint32_t keys, uint32_t c, uint32_t d,
                                   bool vec, float v[8])
{
    const T *row = m + (size_t) key * d;
    if (vec && key < keys && c < d) return ps_get8(row + c, v);
    for (uint32_t i = 0; i < 8; i++) v[i] = key < keys && c + i < d ? ps_get(row[c + i]) : 0;
}

/* Scaled q.k of virtual rows v0 + EACH*y + i and keys k0 + EACH*x + j, -inf where the row does not see the key. */
template <class T>
__device__ inline void tile_of_logits(const prompt_head<T> &h, uint32_t v0, uint32_t k0,
                                      prompt_shared &s, float ret[EACH][EACH])
{
    const uint32_t x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS, keys = h.first + h.rows;
    for (uint32_t i = 0; i < EACH; i++)
        for (uint32_t j = 0; j < EACH; j++) ret[i][j] = 0;
    for (uint32_t c0 = 0; c0 < h.d; c0 += DEPTH) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < TILE * DEPTH; i += BLOCK) {
            const uint32_t r = v0 + i / DEPTH, c = c0 + i % DEPTH;
            s.in.q[i % DEPTH][i / DEPTH] = r < h.virtuals && c < h.d ? h.q_row(r)[c] : 0;
        }
        for (uint32_t i = threadIdx.x; i < TILE * DEPTH / 8; i += BLOCK) {
            const uint32_t key = i / (DEPTH / 8), c = i % (DEPTH / 8) * 8;
            float v[8];
            part_of_row(h.k, k0 + key, keys, c0 + c, h.d, h.vec, v);
            for (uint32_t e = 0; e < 8; e++) s.in.k[c + e][key] = v[e];
        }
        __syncthreads();
#pragma unroll 8
        for (uint32_t c = 0; c < DEPTH; c++) {
            float q[EACH], k[EACH];
            for (uint32_t i = 0; i < EACH; i++)
                q[i] = s.in.q[c][y * EACH + i], k[i] = s.in.k[c][x * EACH + i];
            for (uint32_t i = 0; i < EACH; i++)
                for (uint32_t j = 0; j < EACH; j++) ret[i][j] = fmaf(q[i], k[j], ret[i][j]);
        }
    }
    for (uint32_t i = 0; i < EACH; i++)
        for (uint32_t j = 0; j < EACH; j++)
            ret[i][j] = k0 + x * EACH + j <= h.last_key(v0 + y * EACH + i) ? h.scale * ret[i][j]
                                                                           : -INFINITY;
}

/* Over the threads that share a row: ACROSS neighbours. */
template <class F> __device__ inline float across(float v, F op)
{
    for (int o = ACROSS / 2; o; o /= 2) v = op(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

/* Where sequence `seq` has its rows' statistics: behind those of the sequences before it. */
__device__ inline float *stats_of(const prompt_args &x, uint32_t seq)
{
    size_t before = 0;
    for (uint32_t i = 0; i < seq; i++) before += x.a.seqs[i].rows;
    return x.stats + before * x.a.q_heads * 2;
}
/* Maximum and sum of a virtual row of KV head h. */
template <class T>
__device__ inline float *stats_at(float *stats, const prompt_args &x, const prompt_head<T> &p,
                                  uint32_t h, uint32_t v)
{
    return stats + ((size_t) (v / p.group) * x.a.q_heads + h * p.group + v % p.group) * 2;
}

template <class T> __global__ void __launch_bounds__(BLOCK) attn_prompt(const prompt_args x)
{
    __shared__ prompt_shared s;
    const uint32_t seq = blockIdx.x / x.a.kv_heads, head = blockIdx.x % x.a.kv_heads;
    const uint32_t v0 = (gridDim.y - 1 - blockIdx.y) * TILE,
                   c0 = blockIdx.z * OUT; /* the longest rows first */
    const uint32_t tx = threadIdx.x % ACROSS, ty = threadIdx.x / ACROSS;
    const prompt_head<T> h(x.a, x.a.seqs[seq], head);
    if (v0 >= h.virtuals) return;
    const uint32_t keys = h.first + h.rows, end = v0 + TILE < h.virtuals ? v0 + TILE : h.virtuals;
    float m[EACH], sum[EACH], o[EACH][EACH];
    for (uint32_t i = 0; i < EACH; i++) {
        m[i] = -INFINITY, sum[i] = 0;
        for (uint32_t j = 0; j < EACH; j++) o[i][j] = 0;
    }
    for (uint32_t k0 = 0; k0 <= h.last_key(end - 1); k0 += TILE) {
        float p[EACH][EACH];
        tile_of_logits(h, v0, k0, s, p);
        for (uint32_t i = 0; i < EACH; i++) {
            float most = p[i][0], all = 0;
            for (uint32_t j = 1; j < EACH; j++) most = fmaxf(most, p[i][j]);
            most = fmaxf(m[i], across(most, ps_fmax()));
            for (uint32_t j = 0; j < EACH; j++) {
                p[i][j] = expf(p[i][j] - most);
                all += p[i][j];
                s.p[ty * EACH + i][tx * EACH + j] = p[i][j];
            }
            const float shrink = expf(m[i] - most);
            sum[i] = fmaf(sum[i], shrink, across(all, ps_add()));
            m[i] = most;
            for (uint32_t j = 0; j < EACH; j++) o[i][j] *= shrink;
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < TILE * OUT / 8; i += BLOCK) {
            const uint32_t key = i / (OUT / 8), c = i % (OUT / 8) * 8;
            float v[8];
            part_of_row(h.v, k0 + key, keys, c0 + c, h.d, h.vec, v);
            for (uint32_t e = 0; e < 8; e++) s.v[key][c + e] = v[e];
        }
        __syncthreads();
#pragma unroll 8
        for (uint32_t k = 0; k < TILE; k++)
            for (uint32_t i = 0; i < EACH; i++)
                for (uint32_t j = 0; j < EACH; j++)
                    o[i][j] = fmaf(s.p[ty * EACH + i][k], s.v[k][tx * EACH + j], o[i][j]);
    }
    for (uint32_t i = 0; i < EACH; i++) {
        const uint32_t v = v0 + ty * EACH + i;
        if (v >= h.virtuals) break;
        const size_t to = (size_t) (v / h.group) * x.a.ldo +
                          ((size_t) head * h.group + v % h.group) * h.d + c0 + tx * EACH;
        for (uint32_t j = 0; j < EACH; j++)
            if (c0 + tx * EACH + j < h.d)
                ps_put_as(x.a.o_type, x.a.seqs[seq].o, to + j, o[i][j] / sum[i]);
    }
    if (c0 > 0 || tx > 0 || !x.a.seqs[seq].score) return;
    float *stats = stats_of(x, seq);
    for (uint32_t i = 0; i < EACH && v0 + ty * EACH + i < h.virtuals; i++) {
        float *to = stats_at(stats, x, h, head, v0 + ty * EACH + i);
        to[0] = m[i], to[1] = sum[i];
    }
}

template <class T> __global__ void __launch_bounds__(BLOCK) attn_scores(const prompt_args x)
{
    __shared__ prompt_shared s;
    const uint32_t seq = blockIdx.x / x.a.kv_heads, head = blockIdx.x % x.a.kv_heads,
                   k0 = blockIdx.y * TILE;
    const uint32_t tx = threadIdx.x % ACROSS, ty = threadIdx.x / ACROSS;
    const ps_prompt_seq &q = x.a.seqs[seq];
    const prompt_head<T> h(x.a, q, head);
    if (!q.score) return;
    float *score = q.score + (size_t) head * q.cap, *stats = stats_of(x, seq);
    /* Keys that no row of this chunk sees begin at zero as well. */
    for (uint32_t j = gridDim.y * TILE + threadIdx.x;
         blockIdx.y == 0 && q.first == 0 && j < q.total; j += BLOCK)
        score[j] = 0;
    const uint32_t key = k0 + threadIdx.x;
    const bool mine = threadIdx.x < TILE && key < q.total;
    float sum = mine && q.first > 0 ? score[key] : 0;
    const uint32_t from = k0 > q.first ? (k0 - q.first) * h.group / TILE * TILE : 0;
    for (uint32_t v0 = from; v0 < h.virtuals; v0 += TILE) {
        float p[EACH][EACH];
        tile_of_logits(h, v0, k0, s, p);
        for (uint32_t i = 0; i < EACH; i++) {
            const uint32_t v = v0 + ty * EACH + i;
            const float *row = v < h.virtuals ? stats_at(stats, x, h, head, v) : nullptr;
            for (uint32_t j = 0; j < EACH; j++)
                s.p[ty * EACH + i][tx * EACH + j] = row ? expf(p[i][j] - row[0]) / row[1] : 0;
        }
        __syncthreads();
        for (uint32_t i = 0; mine && i < TILE; i++) sum += s.p[i][threadIdx.x];
    }
    if (mine && (q.first == 0 || key < q.first + q.rows)) score[key] = sum;
}

bool ps_attn_prompt_cuda_takes(const void *args)
{
    return static_cast<const ps_attn_prompt *>(args)->kv_type != PS_BF16;
}

/* Without the array (a plan's worst case) as if every sequence were the longest. */
size_t ps_attn_prompt_cuda_scratch(const void *args)
{
    const ps_attn_prompt *a = static_cast<const ps_attn_prompt *>(args);
    size_t rows = a->seqs ? 0 : (size_t) a->n_seqs * a->longest;
    for (uint32_t s = 0; a->seqs && s < a->n_seqs; s++) rows += a->seqs[s].rows;
    return rows * a->q_heads * 2 * sizeof(float);
}

template <class T> static int launch(const prompt_args &x, ps_cuda_stream *s)
{
    const uint32_t heads = x.a.n_seqs * x.a.kv_heads, group = x.a.q_heads / x.a.kv_heads;
    auto *attend = attn_prompt<T>;
    auto *scores = attn_scores<T>;
    const dim3 rows(heads, (x.a.longest * group + TILE - 1) / TILE, (x.a.d + OUT - 1) / OUT);
    const int r = PS_LAUNCH(s, attend, rows, BLOCK, x);
    return r < 0 ? r : PS_LAUNCH(s, scores, dim3(heads, (x.a.longest + TILE - 1) / TILE), BLOCK, x);
}

int ps_attn_prompt_cuda(const void *args, const ps_span *span)
{
    const prompt_args x = { *static_cast<const ps_attn_prompt *>(args),
                            static_cast<float *>(span->scratch) };
    ps_cuda_stream *s = ps_stream(span);
    return x.a.kv_type == PS_F32 ? launch<float>(x, s) : launch<__half>(x, s);
}
