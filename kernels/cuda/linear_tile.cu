// SPDX-License-Identifier: Apache-2.0
/* linear for up to ROWS rows, by tensor cores, in one launch: a block makes COLS columns of all rows.
 *
 * x is rounded to the weights' type into shared memory, BLOCK_K inputs at a time; each warp has its own eighth of these inputs, and the
 * warps' sums are added in their order at the end. An input's place in a tile means nothing to a sum, so a lane takes eight
 * neighbours of a row of w in one 16-byte load, and uses them as the pairs of four tiles; x likewise. */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/rows.cuh"

static constexpr uint32_t BLOCK = 256, WARPS = BLOCK / 32;
static constexpr uint32_t ROWS = PS_LINEAR_TILE_ROWS, COLS = 32, WARP_K = 32,
                          BLOCK_K = WARPS * WARP_K, PAD = 32;
static constexpr uint32_t M_TILES = ROWS / 8, N_TILES = COLS / 16,
                          ROUND = 16; /* rows whose sums meet at a time */

template <class T> struct tile_shared {
    union {
        alignas(16) uint16_t
            x[ROWS][BLOCK_K + PAD]; /* bits of T; the padding keeps eight lanes on 32 banks */
        float sums[WARPS][ROUND][COLS];
    };
};

/* Eight of T, in pairs; zeroes where there is nothing. */
struct tile_words {
    uint32_t w[4];
};
template <class T>
__device__ inline tile_words words_of(const T *row, uint32_t k, uint32_t end, bool vec)
{
    tile_words r = { { 0, 0, 0, 0 } };
    if (vec) {
        if (k < end) {
            const uint4 v = *reinterpret_cast<const uint4 *>(row + k);
            r = { { v.x, v.y, v.z, v.w } };
        }
        return r;
    }
    T v[8];
    for (uint32_t i = 0; i < 8; i++) {
        ps_put(&v[i], 0);
        if (k + i < end) v[i] = row[k + i];
    }
    memcpy(r.w, v, sizeof r.w);
    return r;
}

template <class T> __device__ inline void stage(const ps_linear &a, uint32_t k0, tile_shared<T> &s)
{
    const bool vec = (a.k | a.ldx) % 8 == 0 && (uintptr_t) a.x % 16 == 0;
    for (uint32_t i = threadIdx.x; i < ROWS * BLOCK_K / 8; i += BLOCK) {
        const uint32_t m = i / (BLOCK_K / 8), k = i % (BLOCK_K / 8) * 8;
        const float *from = a.x + (size_t) m * a.ldx + k0 + k;
        float f[8];
        if (vec && m < a.m && k0 + k < a.k)
            ps_get8(from, f);
        else
            for (uint32_t e = 0; e < 8; e++) f[e] = m < a.m && k0 + k + e < a.k ? from[e] : 0;
        T v[8];
        for (uint32_t e = 0; e < 8; e++) ps_put(&v[e], f[e]);
        memcpy(&s.x[m][k], v, sizeof v);
    }
}

template <class T> __global__ void __launch_bounds__(BLOCK, 2) linear_tile(const ps_linear a)
{
    __shared__ tile_shared<T> s;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4,
                   at = warp * WARP_K + lane % 4 * 8;
    const uint32_t n0 = blockIdx.x * COLS;
    const T *w = static_cast<const T *>(a.w), *bias = static_cast<const T *>(a.bias);
    const bool vec = a.k % 8 == 0 && (uintptr_t) a.w % 16 == 0;
    float acc[N_TILES][M_TILES][4];
#pragma unroll
    for (uint32_t n = 0; n < N_TILES; n++)
        for (uint32_t m = 0; m < M_TILES; m++)
            for (uint32_t i = 0; i < 4; i++) acc[n][m][i] = 0;
    for (uint32_t k0 = 0; k0 < a.k; k0 += BLOCK_K) {
        tile_words left[N_TILES * 2]; /* on their way while x is staged */
#pragma unroll
        for (uint32_t r = 0; r < N_TILES * 2; r++) {
            const uint32_t n = n0 + g + 8 * r;
            left[r] =
                words_of(w + (size_t) (n < a.n ? n : 0) * a.k, k0 + at, n < a.n ? a.k : 0, vec);
        }
        __syncthreads();
        stage(a, k0, s);
        __syncthreads();
#pragma unroll
        for (uint32_t m = 0; m < M_TILES; m++) {
            if (m * 8 >= a.m) break;
            const uint4 right = *reinterpret_cast<const uint4 *>(&s.x[m * 8 + g][at]);
            const uint32_t b[4] = { right.x, right.y, right.z, right.w };
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
#pragma unroll
                for (uint32_t n = 0; n < N_TILES; n++) {
                    const uint32_t pair[2] = { left[2 * n].w[j], left[2 * n + 1].w[j] };
                    ps_mma<T>(acc[n][m], pair, b[j]);
                }
        }
    }
#pragma unroll
    for (uint32_t m0 = 0; m0 < ROWS; m0 += ROUND) {
        if (m0 >= a.m) break;
        __syncthreads();
#pragma unroll
        for (uint32_t n = 0; n < N_TILES; n++)
            for (uint32_t m = 0; m < ROUND / 8; m++)
                for (uint32_t i = 0; i < 4; i++)
                    s.sums[warp][m * 8 + lane % 4 * 2 + i % 2][n * 16 + g + i / 2 * 8] =
                        acc[n][m0 / 8 + m][i];
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < ROUND * COLS; i += BLOCK) {
            const uint32_t m = m0 + i / COLS, n = n0 + i % COLS;
            if (m >= a.m || n >= a.n) continue;
            float sum = s.sums[0][i / COLS][i % COLS];
            for (uint32_t o = 1; o < WARPS; o++) sum += s.sums[o][i / COLS][i % COLS];
            ps_linear_finish(a, bias, m, n, sum);
        }
    }
}

int ps_linear_tile_cuda(const ps_linear &a, ps_cuda_stream *s)
{
    const uint32_t blocks = (a.n + COLS - 1) / COLS;
    auto *f16 = linear_tile<__half>;
    auto *bf16 = linear_tile<__nv_bfloat16>;
    return a.wtype == PS_F16 ? PS_LAUNCH(s, f16, blocks, BLOCK, a)
                             : PS_LAUNCH(s, bf16, blocks, BLOCK, a);
}
