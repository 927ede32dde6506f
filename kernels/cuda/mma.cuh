/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor cores' product of a 16 x 8 and an 8 x 8 tile of f16 or bf16 into f32, by a warp (PTX ISA, mma.m16n8k8). With
 * g = lane / 4 and t = lane % 4 a lane has, each a pair of neighbours in one word:
 *     a[0], a[1]: rows g and g + 8 of A, columns 2t and 2t + 1
 *     b:          rows 2t and 2t + 1 of B, column g
 *     c[0..3]:    row g, columns 2t and 2t + 1, then the same of row g + 8
 * f16 from sm_75, bf16 from sm_80 on. */
#ifndef PS_MMA_CUH
#define PS_MMA_CUH
#include "kernels/cuda/cu.cuh"

#ifdef PS_CUDAEMU
template <class T> __device__ inline void ps_mma(float c[4], const uint32_t a[2], uint32_t b)
{
    const int g = (int) threadIdx.x % 32 / 4, t = (int) threadIdx.x % 4;
    for (int k = 0; k < 4; k++) {
        const uint32_t word[4] = { __shfl_sync(~0u, a[0], g * 4 + k),
                                   __shfl_sync(~0u, a[1], g * 4 + k),
                                   __shfl_sync(~0u, b, 8 * t + k),
                                   __shfl_sync(~0u, b, 8 * t + 4 + k) };
        T v[4][2];
        memcpy(v, word, sizeof v);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 2; j++)
                c[i] = fmaf(ps_get(v[i / 2][j]), ps_get(v[2 + i % 2][j]), c[i]);
    }
}
#else
template <class T> __device__ inline void ps_mma(float c[4], const uint32_t a[2], uint32_t b);
template <> __device__ inline void ps_mma<__half>(float c[4], const uint32_t a[2], uint32_t b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
        "%1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}
template <>
__device__ inline void ps_mma<__nv_bfloat16>(float c[4], const uint32_t a[2], uint32_t b)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
        "%1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
#else
    __trap(); /* the host does not launch it there */
#endif
}
#endif
#endif
