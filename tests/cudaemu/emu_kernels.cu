// SPDX-License-Identifier: Apache-2.0
#include "emu_kernels.cuh"
#ifdef PS_CUDAEMU
#define LAUNCH         CUDAEMU_LAUNCH
#define DYNAMIC_SHARED CUDAEMU_DYNAMIC_SHARED
#define UNALIGNED \
    __attribute__((no_sanitize("alignment"))) /* the emulation shall find it, not UBSan */
#else
#define LAUNCH(kernel, grid, block, smem, stream, ...) \
    kernel<<<grid, block, smem, stream>>>(__VA_ARGS__)
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#define UNALIGNED
#endif

template <int N> __global__ void sum_kernel(float *y, const float *x, bool barriers)
{
    __shared__ float part[N];
    part[threadIdx.x] = x[threadIdx.x];
    for (unsigned h = N / 2; h; h /= 2) {
        if (barriers) __syncthreads();
        if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];
    }
    if (threadIdx.x == 0) *y = part[0];
}
void sum_block(float *y, const float *x, bool barriers, cudaStream_t s)
{
    LAUNCH(sum_kernel<64>, 1, 64, 0, s, y, x, barriers);
}

__global__ void twice_kernel(float *y, const float *x, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2;
}
void twice(float *y, const float *x, unsigned n, cudaStream_t s)
{
    LAUNCH(twice_kernel, (n + 31) / 32, 32, 0, s, y, x, n);
}

__global__ void warp_kernel(unsigned *y)
{
    const unsigned i = threadIdx.x;
    bool ok = __shfl_xor_sync(~0u, i, 5) == (i ^ 5);
    ok = ok && __shfl_down_sync(~0u, i, 3) == (i + 3 < 32 ? i + 3 : i);
    ok = ok && __shfl_up_sync(~0u, i, 2, 8) == (i % 8 >= 2 ? i - 2 : i);
    ok = ok && __shfl_sync(~0u, i, 9) == 9 && __shfl_sync(~0u, i, 1, 4) == i / 4 * 4 + 1;
    ok = ok && __shfl_xor_sync(~0u, i * 0.5, 1) == (i ^ 1) * 0.5;
    ok = ok && __ballot_sync(~0u, i % 3 == 0) == 0x49249249u;
    ok = ok && __any_sync(~0u, i == 7) && !__any_sync(~0u, i == 40);
    ok = ok && __all_sync(~0u, i < 32) && !__all_sync(~0u, i < 31);
    if (i < 16) // half of a warp
        ok = ok && __shfl_xor_sync(0xffffu, i, 1) == (i ^ 1);
    else
        ok = ok && __ballot_sync(0xffff0000u, true) == 0xffff0000u;
    ok = ok && __popc(0xf0u) == 4 && __clz(1) == 31 && __brev(1) == 0x80000000u && __ffs(8) == 4;
    ok =
        ok && __syncthreads_count(i < 5) == 5 && __syncthreads_or(i == 31) && !__syncthreads_and(i);
    y[i] = ok ? i : 1000;
}
void warp_ops(unsigned *y, cudaStream_t s) { LAUNCH(warp_kernel, 1, 32, 0, s, y); }

__global__ void mirror_kernel(float *y, const float *x, bool sync)
{
    __shared__ float a[32];
    a[threadIdx.x] = x[threadIdx.x];
    if (sync) __syncwarp();
    y[threadIdx.x] = a[31 - threadIdx.x];
}
void mirror(float *y, const float *x, bool sync, cudaStream_t s)
{
    LAUNCH(mirror_kernel, 1, 32, 0, s, y, x, sync);
}

__global__ void dynamic_kernel(float *y, const float *x, unsigned n, unsigned extra)
{
    DYNAMIC_SHARED(float, a);
    for (unsigned i = threadIdx.x; i < n + extra; i += blockDim.x) a[i] = x[i < n ? i : 0];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) y[i] = a[n - 1 - i];
}
void dynamic(float *y, const float *x, unsigned n, unsigned extra, cudaStream_t s)
{
    LAUNCH(dynamic_kernel, 1, 40, n * sizeof(float), s, y, x, n, extra);
}

__global__ void unwritten_kernel(float *y)
{
    __shared__ float a[2];
    a[0] = 1;
    *y = a[0] + a[1 + threadIdx.x];
}
void unwritten(float *y, cudaStream_t s) { LAUNCH(unwritten_kernel, 1, 1, 0, s, y); }

__global__ void atomics_kernel(int *count, float *f, bool plain)
{
    const int i = (int) (blockIdx.x * blockDim.x + threadIdx.x);
    if (plain) {
        count[0] += 1;
        return;
    }
    atomicAdd(&count[0], 1);
    atomicMax(&count[1], i);
    for (int old = count[3], seen; (seen = atomicCAS(&count[2], old, old + 1)) != old;) old = seen;
    atomicAdd(f, 0.5f);
}
void atomics(int *count, float *f, bool plain, cudaStream_t s)
{
    LAUNCH(atomics_kernel, 4, 64, 0, s, count, f, plain);
}

template <class H, class H2> __global__ void halves_kernel(H *y, const H *x, unsigned n)
{
    union {
        uint4 u;
        H2 h[4];
    } v;
    const unsigned i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i >= n) return;
    v.u = __ldg(reinterpret_cast<const uint4 *>(x + i));
    for (int k = 0; k < 4; k++) v.h[k] = __hadd2(v.h[k], v.h[k]);
    *reinterpret_cast<uint4 *>(y + i) = v.u;
}
void halves(__half *y, const __half *x, unsigned n, cudaStream_t s)
{
    LAUNCH((halves_kernel<__half, __half2>), (n / 8 + 31) / 32, 32, 0, s, y, x, n);
}
void bhalves(__nv_bfloat16 *y, const __nv_bfloat16 *x, unsigned n, cudaStream_t s)
{
    LAUNCH((halves_kernel<__nv_bfloat16, __nv_bfloat162>), (n / 8 + 31) / 32, 32, 0, s, y, x, n);
}

UNALIGNED __global__ void misaligned_kernel(float *y)
{
    *reinterpret_cast<volatile unsigned long long *>(reinterpret_cast<char *>(y) + 2) = 0;
}
void misaligned(float *y, cudaStream_t s) { LAUNCH(misaligned_kernel, 1, 1, 0, s, y); }

__global__ void diverging_kernel(bool deadlock)
{
    if (deadlock) {
        if (threadIdx.x == 3)
            __syncwarp();
        else
            __syncthreads();
    } else if (threadIdx.x != 3)
        __syncthreads();
}
void diverging(bool deadlock, cudaStream_t s) { LAUNCH(diverging_kernel, 1, 8, 0, s, deadlock); }

// The last block adds up what two threads of each wrote. steps: what is done of fence, barrier, fence after.
__global__ void last_block_kernel(float *y, unsigned *counter, unsigned steps)
{
    __shared__ bool last;
    y[blockIdx.x * 2 + threadIdx.x] = (float) blockIdx.x;
    if (steps & 1) __threadfence();
    if (steps & 2) __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) == gridDim.x - 1;
        if (steps & 4) __threadfence();
    }
    __syncthreads();
    if (!last || threadIdx.x) return;
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x * 2; i++) sum += y[i];
    y[gridDim.x * 2] = sum;
}
void last_block(float *y, unsigned *counter, unsigned n, unsigned steps, cudaStream_t s)
{
    LAUNCH(last_block_kernel, n, 2, 0, s, y, counter, steps);
}

__global__ void trapping_kernel() { __trap(); }
void trapping(cudaStream_t s) { LAUNCH(trapping_kernel, 1, 4, 0, s); }
