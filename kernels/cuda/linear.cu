// SPDX-License-Identifier: Apache-2.0
/* linear. Three ways, one launch or library call each:
 *
 * Up to FEW rows, and whatever the others do not take: own kernel. A warp makes two or four columns, its lanes lie along k, 16
 * bytes of weights a load; x is shared in blocks of k. Weights are widened and everything is summed in f32: nothing is rounded
 * but the result.
 *
 * More, of x in f32 and weights f16 or bf16: own kernel on tensor cores (linear_tile.cu). x is rounded to f16, or goes in as two of bf16.
 *
 * x that was rounded beforehand, and f32 weights from PS_LINEAR_OWN_ROWS on: cuBLASLt (linear_lt.cu). */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/rows.cuh"
#include <type_traits>

static constexpr uint32_t BLOCK = 256, WARPS = BLOCK / 32;
static constexpr uint32_t FEW = 16, STEP = 32 * 8, BLOCK_K = 2 * STEP;
/* Columns of a warp: as many as registers allow without leaving an SM to one block. */
template <int ROWS> static constexpr uint32_t cols_of = ROWS > 4 ? 2 : 4;

/* ---- few rows */

/* Where k of a block lies in shared memory: a lane's two quarters of eight are apart, so that lanes read 16 bytes side by side. */
__device__ inline uint32_t spot(uint32_t k)
{
    return k / STEP * STEP + k % 8 / 4 * (STEP / 2) + k % STEP / 8 * 4 + k % 4;
}

template <class T, class X, bool VEC, int ROWS>
__device__ inline void few(const ps_linear &a, uint32_t m0, uint32_t n0, float (*xs)[BLOCK_K])
{
    const uint32_t lane = threadIdx.x % 32, rows = a.m - m0 < ROWS ? a.m - m0 : ROWS;
    const T *w = static_cast<const T *>(a.w);
    const X *x = static_cast<const X *>(a.rounded_x ? a.rounded_x : a.x);
    constexpr uint32_t TILE_N = cols_of<ROWS>;
    float acc[ROWS * TILE_N];
#pragma unroll
    for (int m = 0; m < ROWS; m++)
        for (uint32_t n = 0; n < TILE_N; n++) acc[m * TILE_N + n] = 0;
    for (uint32_t k0 = 0; k0 < a.k; k0 += BLOCK_K) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < ROWS * BLOCK_K; i += BLOCK) {
            const uint32_t m = i / BLOCK_K, k = i % BLOCK_K;
            xs[m][spot(k)] =
                m < rows && k0 + k < a.k ? ps_get(x[(size_t) (m0 + m) * a.ldx + k0 + k]) : 0;
        }
        __syncthreads();
#pragma unroll
        for (uint32_t step = 0; step < BLOCK_K; step += STEP) {
            const uint32_t k = k0 + step + lane * 8;
            if (k >= a.k) break;
            float v[TILE_N][8];
#pragma unroll
            for (uint32_t n = 0; n < TILE_N; n++) {
                const uint32_t col = n0 + n < a.n ? n0 + n : a.n - 1;
                const T *from = w + (size_t) col * a.k + k;
                if (VEC)
                    ps_get8(from, v[n]);
                else
                    for (uint32_t i = 0; i < 8; i++) v[n][i] = k + i < a.k ? ps_get(from[i]) : 0;
            }
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                const float4 lo = *reinterpret_cast<const float4 *>(&xs[m][step + lane * 4]);
                const float4 hi =
                    *reinterpret_cast<const float4 *>(&xs[m][step + STEP / 2 + lane * 4]);
                const float xk[8] = { lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w };
#pragma unroll
                for (uint32_t n = 0; n < TILE_N; n++)
                    for (int i = 0; i < 8; i++)
                        acc[m * TILE_N + n] = fmaf(xk[i], v[n][i], acc[m * TILE_N + n]);
            }
        }
    }
    ps_warp_sums(acc);
    constexpr uint32_t sums = ROWS * TILE_N, each = sums < 32 ? 1 : sums / 32,
                       sharers = 32 * each / sums;
#pragma unroll
    for (uint32_t i = 0; i < each; i++) {
        const uint32_t at = lane * sums / 32 + i, m = at / TILE_N, n = n0 + at % TILE_N;
        if (lane % sharers || m >= rows || n >= a.n) continue;
        ps_linear_finish<T>(a, m0 + m, n, acc[i]);
    }
}

template <class T, class X, int ROWS>
__global__ void __launch_bounds__(BLOCK) linear_few(const ps_linear a)
{
    __shared__ __align__(16) float xs[ROWS][BLOCK_K];
    const uint32_t n0 = (blockIdx.y * WARPS + threadIdx.x / 32) * cols_of<ROWS>,
                   m0 = blockIdx.x * ROWS;
    if (a.k % 8 == 0 && (uintptr_t) a.w % 16 == 0)
        few<T, X, true, ROWS>(a, m0, n0, xs);
    else
        few<T, X, false, ROWS>(a, m0, n0, xs);
}

template <class T, class X, int ROWS> static int launch_few(ps_cuda_stream *s, const ps_linear &a)
{
    auto *few_rows = linear_few<T, X, ROWS>;
    const uint32_t cols = WARPS * cols_of<ROWS>;
    return PS_LAUNCH(s, few_rows, dim3((a.m + ROWS - 1) / ROWS, (a.n + cols - 1) / cols), BLOCK, a);
}

/* Any number of them. */
static int own(ps_cuda_stream *s, const ps_linear &a)
{
    return ps_by_dtype(a.wtype, [=](auto *t) {
        typedef std::remove_pointer_t<decltype(t)> T;
        if (a.rounded_x) return launch_few<T, T, FEW>(s, a);
        return a.m == 1   ? launch_few<T, float, 1>(s, a)
               : a.m <= 4 ? launch_few<T, float, 4>(s, a)
                          : launch_few<T, float, FEW>(s, a);
    });
}

/* ---- which */

/* ReLU before a residual (no model of ours) is none of the library's ways to end. */
static bool for_library(const ps_linear &a, bool tensor)
{
    const bool f32 = a.wtype == PS_F32, fits = !a.bias || f32 || a.bias_f32 == !a.rounded_y;
    return (f32 ? a.m > PS_LINEAR_OWN_ROWS : tensor && a.rounded_x) && fits &&
           !(a.act == PS_ACT_RELU && a.residual);
}

int ps_linear_cuda(const void *args, const ps_span *span)
{
    const ps_linear a = *static_cast<const ps_linear *>(args);
    ps_cuda_stream *s = ps_stream(span);
    const bool tensor = ps_linear_tensor(s->sm, a.wtype);
    if (a.exact) return own(s, a);
    if (for_library(a, tensor)) {
        const int r = ps_linear_lt_cuda(a, s);
        return r == -PS_EUNSUPPORTED ? own(s, a) : r;
    }
    return a.m <= FEW || a.rounded_x || !tensor ? own(s, a) : ps_linear_tile_cuda(a, s);
}
