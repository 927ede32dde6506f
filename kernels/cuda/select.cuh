/* SPDX-License-Identifier: Apache-2.0 */
/* Finding an element by its place in the descending order of f32 keys, without sorting: by a block, eight bits at a time from
 * the top. Equal keys are in the order of their index. Only integers are added up, so that the order of additions means nothing. */
#ifndef PS_SELECT_CUH
#define PS_SELECT_CUH
#include "kernels/cuda/cu.cuh"

static constexpr uint32_t PS_BINS = 256;

/* Ascending with the number, -0 as 0; never 0 for a number that is not NaN. */
__device__ inline uint32_t ps_sortable(float f)
{
    const uint32_t u = __float_as_uint(f + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* Goes down from the greatest key of elements [first, end), adding up weight(i), until `want` (at least 1, at most the sum of all) is
 * reached: *ret_key is the key where that happens, the result what is still wanted of the elements that have it. */
template <uint32_t BLOCK, class K, class W>
__device__ inline unsigned long long ps_descend(uint32_t first, uint32_t end,
                                                unsigned long long want, K key_of, W weight,
                                                unsigned long long *bins, uint32_t *ret_key)
{
    uint32_t key = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < PS_BINS; i += BLOCK) bins[i] = 0;
        __syncthreads();
        const uint32_t known = shift == 24 ? 0 : ~0u << (shift + 8);
        for (uint32_t i = first + threadIdx.x; i < end; i += BLOCK) {
            const uint32_t k = key_of(i);
            if ((k & known) == key)
                (void) atomicAdd(&bins[k >> shift & (PS_BINS - 1)], (unsigned long long) weight(i));
        }
        __syncthreads();
        uint32_t b = PS_BINS - 1;
        while (b > 0 && bins[b] < want) want -= bins[b--];
        key |= b << shift;
    }
    *ret_key = key;
    return want;
}

/* How many of the block's threads before this one have the flag, and how many have it at all. For all threads of the block;
 * part: shared, one for each warp. */
template <uint32_t BLOCK>
__device__ inline uint32_t ps_rank(bool flag, uint32_t *part, uint32_t *ret_all)
{
    const uint32_t ballot = __ballot_sync(~0u, flag), lane = threadIdx.x % 32,
                   warp = threadIdx.x / 32;
    __syncthreads();
    if (lane == 0) part[warp] = (uint32_t) __popc(ballot);
    __syncthreads();
    uint32_t before = (uint32_t) __popc(ballot & ((1u << lane) - 1)), all = 0;
    for (uint32_t w = 0; w < BLOCK / 32; w++) {
        if (w < warp) before += part[w];
        all += part[w];
    }
    *ret_all = all;
    return before;
}
#endif
