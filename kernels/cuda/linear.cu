// SPDX-License-Identifier: Apache-2.0
/* linear. Activations are f32. Three ways, by the number of rows (`exact` goes the first, and so do f32 weights up to PS_LINEAR_TILE_ROWS):
 *
 * Up to FEW: own kernel, one launch. A warp makes two or four columns, its lanes lie along k, 16 bytes of weights a load; x is shared in blocks
 * of k. Weights are widened and everything is summed in f32: nothing is rounded but the result.
 *
 * Up to PS_LINEAR_TILE_ROWS: own kernel on tensor cores, one launch (linear_tile.cu). x is rounded to f16, or goes in as two of bf16.
 *
 * More: cuBLAS, f16 or bf16 in, f32 sums and f32 out. x is rounded to the weights' type into scratch; the same launch puts
 * bias + residual into y, to which cuBLAS adds; only ReLU needs a launch behind it. f32 weights go in as they are (no TF32). */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/rows.cuh"
#include <cublas_v2.h>

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

template <class T, bool VEC, int ROWS>
__device__ inline void few(const ps_linear &a, uint32_t m0, uint32_t n0, float (*xs)[BLOCK_K])
{
    const uint32_t lane = threadIdx.x % 32, rows = a.m - m0 < ROWS ? a.m - m0 : ROWS;
    const T *w = static_cast<const T *>(a.w);
    constexpr uint32_t TILE_N = cols_of<ROWS>;
    float acc[ROWS * TILE_N];
#pragma unroll
    for (int m = 0; m < ROWS; m++)
        for (uint32_t n = 0; n < TILE_N; n++) acc[m * TILE_N + n] = 0;
    for (uint32_t k0 = 0; k0 < a.k; k0 += BLOCK_K) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < ROWS * BLOCK_K; i += BLOCK) {
            const uint32_t m = i / BLOCK_K, k = i % BLOCK_K;
            xs[m][spot(k)] = m < rows && k0 + k < a.k ? a.x[(size_t) (m0 + m) * a.ldx + k0 + k] : 0;
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
                const float x[8] = { lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w };
#pragma unroll
                for (uint32_t n = 0; n < TILE_N; n++)
                    for (int i = 0; i < 8; i++)
                        acc[m * TILE_N + n] = fmaf(x[i], v[n][i], acc[m * TILE_N + n]);
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
        ps_linear_finish(a, static_cast<const T *>(a.bias), m0 + m, n, acc[i]);
    }
}

template <class T, int ROWS> __global__ void __launch_bounds__(BLOCK) linear_few(const ps_linear a)
{
    __shared__ __align__(16) float xs[ROWS][BLOCK_K];
    const uint32_t n0 = (blockIdx.y * WARPS + threadIdx.x / 32) * cols_of<ROWS>,
                   m0 = blockIdx.x * ROWS;
    if (a.k % 8 == 0 && (uintptr_t) a.w % 16 == 0)
        few<T, true, ROWS>(a, m0, n0, xs);
    else
        few<T, false, ROWS>(a, m0, n0, xs);
}

template <class T, int ROWS> static int launch_few(ps_cuda_stream *s, const ps_linear &a)
{
    auto *few_rows = linear_few<T, ROWS>;
    const uint32_t cols = WARPS * cols_of<ROWS>;
    return PS_LAUNCH(s, few_rows, dim3((a.m + ROWS - 1) / ROWS, (a.n + cols - 1) / cols), BLOCK, a);
}

/* ---- many rows */

/* x rounded to xs[m][k], if xs; y = bias + residual, if `fill`. A block for each row. */
template <class T>
__global__ void __launch_bounds__(BLOCK) linear_before(const ps_linear a, T *xs, bool fill)
{
    const size_t m = blockIdx.x;
    const T *bias = static_cast<const T *>(a.bias);
    for (uint32_t k = threadIdx.x; xs && k < a.k; k += BLOCK)
        ps_put(xs + m * a.k + k, a.x[m * a.ldx + k]);
    for (uint32_t n = threadIdx.x; fill && n < a.n; n += BLOCK)
        a.y[m * a.ldy + n] =
            (bias ? ps_get(bias[n]) : 0) + (a.residual ? a.residual[m * a.ldr + n] : 0);
}

template <class T> __global__ void __launch_bounds__(BLOCK) linear_relu(const ps_linear a)
{
    const T *bias = static_cast<const T *>(a.bias);
    float *y = a.y + (size_t) blockIdx.x * a.ldy;
    for (uint32_t n = threadIdx.x; n < a.n; n += BLOCK) {
        const float v = y[n] + (bias ? ps_get(bias[n]) : 0);
        y[n] = v < 0 ? 0 : v;
    }
}

static int gemm(ps_cuda_stream *s, const ps_linear &a, const void *x, uint32_t ldx, float beta)
{
    static const cudaDataType types[PS_DTYPE__COUNT] = { CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF };
    const float one = 1;
    s->calls++;
    return ps_cublas_rc(cublasGemmEx(static_cast<cublasHandle_t>(s->blas), CUBLAS_OP_T, CUBLAS_OP_N,
                                     (int) a.n, (int) a.m, (int) a.k, &one, a.w, types[a.wtype],
                                     (int) a.k, x, types[a.wtype], (int) ldx, &beta, a.y,
                                     CUDA_R_32F, (int) a.ldy, CUBLAS_COMPUTE_32F,
                                     CUBLAS_GEMM_DEFAULT),
                        "cublasGemmEx");
}

template <class T> static int many(ps_cuda_stream *s, const ps_linear &a, void *scratch)
{
    const bool wide = a.wtype == PS_F32, relu = a.act == PS_ACT_RELU;
    const bool fill = !relu && (a.bias || (a.residual && a.residual != a.y));
    T *xs = wide ? nullptr : static_cast<T *>(scratch);
    auto *before = linear_before<T>;
    auto *after = linear_relu<T>;
    int r = xs || fill ? PS_LAUNCH(s, before, a.m, BLOCK, a, xs, fill) : 0;
    if (r >= 0)
        r = gemm(s, a, wide ? (const void *) a.x : xs, wide ? a.ldx : a.k,
                 !relu && (a.bias || a.residual) ? 1 : 0);
    if (r >= 0 && relu) r = PS_LAUNCH(s, after, a.m, BLOCK, a);
    return r;
}

/* ---- which */

enum way { OWN, TENSOR, LIBRARY };

/* ReLU and a residual together (no model of ours), and bf16 where the GPU has no such product, take the first kernel for any number
 * of rows. sm is 0 where it is not known: then it is LIBRARY if it may be. */
static way way_of(const ps_linear *a, uint32_t sm)
{
    if (a->m <= FEW || a->exact || (a->wtype == PS_BF16 && sm && sm < 80)) return OWN;
    if (a->m <= PS_LINEAR_TILE_ROWS) return a->wtype == PS_F32 ? OWN : TENSOR;
    return a->act == PS_ACT_RELU && a->residual ? OWN : LIBRARY;
}

size_t ps_linear_cuda_scratch(const void *args)
{
    const ps_linear *a = static_cast<const ps_linear *>(args);
    return way_of(a, 0) != LIBRARY || a->wtype == PS_F32
               ? 0
               : (size_t) a->m * a->k * ps_bytes(a->wtype);
}

int ps_linear_cuda(const void *args, const ps_span *span)
{
    const ps_linear a = *static_cast<const ps_linear *>(args);
    ps_cuda_stream *s = ps_stream(span);
    const way how = way_of(&a, s->sm);
    if (how == TENSOR) return ps_linear_tile_cuda(a, s);
    return ps_by_dtype(a.wtype, [=](auto *t) {
        typedef std::remove_pointer_t<decltype(t)> T;
        if (how == LIBRARY) return many<T>(s, a, span->scratch);
        return a.m == 1   ? launch_few<T, 1>(s, a)
               : a.m <= 4 ? launch_few<T, 4>(s, a)
                          : launch_few<T, FEW>(s, a);
    });
}
