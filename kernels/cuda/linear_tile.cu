// SPDX-License-Identifier: Apache-2.0
/* linear of x in f32 by tensor cores, in one launch: a block makes COLS columns of rows_of<T> rows, and those
 * that share columns stand side by side, so that the second finds the weights in the cache.
 *
 * x comes in the weights' type into shared memory, BLOCK_K inputs at a time; each warp has its own eighth of these inputs, and the
 * warps' sums are added in their order at the end. An input's place in a tile means nothing to a sum, so a lane takes eight
 * neighbours of a row of w in one 16-byte load, and uses them as the pairs of four tiles; x likewise.
 *
 * f16 holds an input to 2^-11. bf16 would to 2^-8: there an input is the sum of two, what rounding leaves of it being the
 * second, and so is the product. Few rows leave the tensor cores time for that. */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/rows.cuh"
#include <type_traits>

static constexpr uint32_t BLOCK = 256, WARPS = BLOCK / 32;
static constexpr uint32_t COLS = 32, WARP_K = 32, BLOCK_K = WARPS * WARP_K, PAD = 32;
static constexpr uint32_t N_TILES = COLS / 16, ROUND = 16; /* rows whose sums meet at a time */
template <class T> static constexpr uint32_t terms_of = std::is_same<T, __half>::value ? 1 : 2;
template <class T> static constexpr uint32_t rows_of = 64 / terms_of<T>;

template <class T> struct tile_shared {
    union {
        alignas(16)
            uint16_t x[terms_of<T>][rows_of<T>]
                      [BLOCK_K + PAD]; /* bits of T; the padding keeps eight lanes on 32 banks */
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

template <class T>
__device__ inline void stage(const ps_linear &a, uint32_t m0, uint32_t k0, tile_shared<T> &s)
{
    const bool vec = (a.k | a.ldx) % 8 == 0 && (uintptr_t) a.x % 16 == 0;
    for (uint32_t i = threadIdx.x; i < rows_of<T> * BLOCK_K / 8; i += BLOCK) {
        const uint32_t m = i / (BLOCK_K / 8), k = i % (BLOCK_K / 8) * 8;
        const bool row = m0 + m < a.m;
        const float *from = a.x + (size_t) (m0 + (row ? m : 0)) * a.ldx + k0 + k;
        float f[8];
        if (vec && row && k0 + k < a.k)
            ps_get8(from, f);
        else
            for (uint32_t e = 0; e < 8; e++) f[e] = row && k0 + k + e < a.k ? from[e] : 0;
#pragma unroll
        for (uint32_t term = 0; term < terms_of<T>; term++) {
            T v[8];
            for (uint32_t e = 0; e < 8; e++) {
                ps_put(&v[e], f[e]);
                f[e] -= ps_get(v[e]);
            }
            memcpy(&s.x[term][m][k], v, sizeof v);
        }
    }
}

template <class T> __global__ void __launch_bounds__(BLOCK, 2) linear_tile(const ps_linear a)
{
    __shared__ tile_shared<T> s;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4,
                   at = warp * WARP_K + lane % 4 * 8;
    constexpr uint32_t ROWS = rows_of<T>, M_TILES = ROWS / 8;
    const uint32_t m0 = blockIdx.x * ROWS, n0 = blockIdx.y * COLS, rows = a.m - m0;
    const T *w = static_cast<const T *>(a.w);
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
        stage(a, m0, k0, s);
        __syncthreads();
#pragma unroll
        for (uint32_t m = 0; m < M_TILES; m++) {
            if (m * 8 >= rows) break;
#pragma unroll
            for (uint32_t term = 0; term < terms_of<T>; term++) {
                const uint4 right = *reinterpret_cast<const uint4 *>(&s.x[term][m * 8 + g][at]);
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
    }
#pragma unroll
    for (uint32_t r0 = 0; r0 < ROWS; r0 += ROUND) {
        if (r0 >= rows) break;
        __syncthreads();
#pragma unroll
        for (uint32_t n = 0; n < N_TILES; n++)
            for (uint32_t m = 0; m < ROUND / 8; m++)
                for (uint32_t i = 0; i < 4; i++)
                    s.sums[warp][m * 8 + lane % 4 * 2 + i % 2][n * 16 + g + i / 2 * 8] =
                        acc[n][r0 / 8 + m][i];
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < ROUND * COLS; i += BLOCK) {
            const uint32_t r = r0 + i / COLS, n = n0 + i % COLS;
            if (r >= rows || n >= a.n) continue;
            float sum = s.sums[0][i / COLS][i % COLS];
            for (uint32_t o = 1; o < WARPS; o++) sum += s.sums[o][i / COLS][i % COLS];
            ps_linear_finish<T>(a, m0 + r, n, sum);
        }
    }
}

template <class T> static int launch(const ps_linear &a, ps_cuda_stream *s)
{
    auto *tile = linear_tile<T>;
    const dim3 grid((a.m + rows_of<T> - 1) / rows_of<T>, (a.n + COLS - 1) / COLS);
    return PS_LAUNCH(s, tile, grid, BLOCK, a);
}

int ps_linear_tile_cuda(const ps_linear &a, ps_cuda_stream *s)
{
    return a.wtype == PS_F16 ? launch<__half>(a, s) : launch<__nv_bfloat16>(a, s);
}
