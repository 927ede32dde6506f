/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA files share: errors, launches, element types, reductions in a fixed order.
 *
 * The same files are built by nvcc for a GPU and by g++ with PS_CUDAEMU for tests/cudaemu. */
#ifndef PS_CU_CUH
#define PS_CU_CUH
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
extern "C" {
#include "engine/base/ps_err.h"
#include "kernels/cuda/ps_cuda.h"
#include "kernels/kern.h"
}

/* ---- the host's side */

/* 0, or the error as ours, with `what` (a call, or what was launched) kept for ps_cuda_api.error(). */
int ps_cuda_rc(cudaError_t e, const char *what);
int ps_cublas_rc(int status, const char *what);
#define PS_CUDA(call)    ps_cuda_rc(call, #call)
#define PS_LT(name, ...) ps_cublas_rc(cublasLt##name(__VA_ARGS__), "cublasLt" #name)

static inline ps_cuda_stream *ps_stream(const ps_span *span)
{
    return static_cast<ps_cuda_stream *>(span->stream);
}
static inline cudaStream_t ps_cuda_of(const ps_cuda_stream *s)
{
    return static_cast<cudaStream_t>(s->stream);
}

/* The only way to launch: g++ cannot parse <<<>>>. Evaluates to 0 or a negative error. `kernel` is a name or a
 * pointer (a template's arguments hold commas). */
#ifdef PS_CUDAEMU
#define PS_LAUNCH_ON(kernel, grid, block, s, ...) \
    CUDAEMU_LAUNCH(kernel, grid, block, 0, ps_cuda_of(s), __VA_ARGS__)
#else
#define PS_LAUNCH_ON(kernel, grid, block, s, ...) \
    kernel<<<grid, block, 0, ps_cuda_of(s)>>>(__VA_ARGS__)
#endif
#define PS_LAUNCH(s, kernel, grid, block, ...)                           \
    ((s)->launches++, PS_LAUNCH_ON(kernel, grid, block, s, __VA_ARGS__), \
     ps_cuda_rc(cudaGetLastError(), "launch of " #kernel))

/* ---- element types: float, __half, __nv_bfloat16 */

__device__ inline float ps_get(float x) { return x; }
__device__ inline float ps_get(__half x) { return __half2float(x); }
__device__ inline float ps_get(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void ps_put(float *p, float x) { *p = x; }
__device__ inline void ps_put(__half *p, float x) { *p = __float2half_rn(x); }
__device__ inline void ps_put(__nv_bfloat16 *p, float x) { *p = __float2bfloat16_rn(x); }

/* Of a type that is known when the kernel runs. */
__device__ inline void ps_put_as(ps_dtype t, void *p, size_t i, float x)
{
    if (t == PS_F32)
        ps_put(static_cast<float *>(p) + i, x);
    else if (t == PS_F16)
        ps_put(static_cast<__half *>(p) + i, x);
    else
        ps_put(static_cast<__nv_bfloat16 *>(p) + i, x);
}

/* Eight elements in 16-byte loads: p is 16-byte aligned. */
template <class T> __device__ inline void ps_get8(const T *p, float v[8])
{
    alignas(16) T raw[8];
    const uint4 *from = reinterpret_cast<const uint4 *>(p);
    uint4 *to = reinterpret_cast<uint4 *>(raw);
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) * 8 / 16; i++) to[i] = from[i];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = ps_get(raw[i]);
}

__device__ inline bool ps_finite(float x) { return fabsf(x) <= FLT_MAX; }

static inline size_t ps_bytes(ps_dtype t) { return t == PS_F32 ? 4 : 2; }

/* Calls f with a null pointer of the element type: f(T *). */
template <class F> static inline int ps_by_dtype(ps_dtype t, F f)
{
    switch (t) {
    case PS_F32: return f(static_cast<float *>(nullptr));
    case PS_F16: return f(static_cast<__half *>(nullptr));
    case PS_BF16: return f(static_cast<__nv_bfloat16 *>(nullptr));
    default: return -EINVAL;
    }
}

/* ---- reductions: every thread gets the result, the order of operations depends on the block's shape alone */

template <class V, class F> __device__ inline V ps_warp_reduce(V v, F op)
{
    for (int o = 16; o; o >>= 1) v = op(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
/* Lanes o apart share the work of what is left: each adds up one half of the 2 * HALF sums, or both the same one. */
template <int HALF, int N> __device__ inline void ps_sums_step(float (&v)[N], int o)
{
    const bool upper = (threadIdx.x & o) != 0;
    if (HALF == 0) v[0] += __shfl_xor_sync(~0u, v[0], o);
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        const float give = upper ? v[i] : v[i + HALF], keep = upper ? v[i + HALF] : v[i];
        v[i] = keep + __shfl_xor_sync(~0u, give, o);
    }
}
/* Sums each of v[0..N) over the warp; lane l has those from l * N / 32 on, at least one, in v[0..]. */
template <int N> __device__ inline void ps_warp_sums(float (&v)[N])
{
    ps_sums_step<N / 2>(v, 16);
    ps_sums_step<N / 4>(v, 8);
    ps_sums_step<N / 8>(v, 4);
    ps_sums_step<N / 16>(v, 2);
    ps_sums_step<N / 32>(v, 1);
}
/* part: shared, one for each warp; may be used again after the next __syncthreads(). */
template <int WARPS, class V, class F> __device__ inline V ps_block_reduce(V v, V *part, F op)
{
    v = ps_warp_reduce(v, op);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < WARPS; i++) v = op(v, part[i]);
    return v;
}
struct ps_add {
    template <class V> __device__ V operator()(V a, V b) const { return a + b; }
};
struct ps_fmax {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/* Data that the op's contract calls an error: seen by the device after the kernel. */
__device__ inline void ps_fault(int32_t *err, ps_op op, int code)
{
    (void) atomicExch(&err[op], code);
}
#endif
