/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA rows. module.cu lists them. */
#ifndef PS_CUDA_ROWS_CUH
#define PS_CUDA_ROWS_CUH
#include "kernels/cuda/cu.cuh"

int ps_embed_cuda(const void *args, const ps_span *span);
int ps_layernorm_cuda(const void *args, const ps_span *span);
int ps_linear_cuda(const void *args, const ps_span *span);
int ps_kv_round_cuda(const void *args, const ps_span *span);
int ps_attn_prompt_cuda(const void *args, const ps_span *span);
int ps_attn_decode_cuda(const void *args, const ps_span *span);
int ps_kv_compact_cuda(const void *args, const ps_span *span);
int ps_kv_replay_cuda(const void *args, const ps_span *span);
int ps_sample_cuda(const void *args, const ps_span *span);

/* linear for up to PS_LINEAR_TILE_ROWS rows of x, weights f16 or (from sm_80 on) bf16. The limit: micro-batches that plans choose stay
 * below it, so that a layer's decode step is few launches; whole prompts mostly do not, and there the library is quicker. */
static constexpr uint32_t PS_LINEAR_TILE_ROWS = 256;
int ps_linear_tile_cuda(const ps_linear &a, ps_cuda_stream *s);

bool ps_attn_prompt_cuda_takes(const void *args);
bool ps_attn_decode_cuda_takes(const void *args);
bool ps_sample_cuda_takes(const void *args);

size_t ps_linear_cuda_scratch(const void *args);
size_t ps_attn_prompt_cuda_scratch(const void *args);
size_t ps_attn_decode_cuda_scratch(const void *args);
size_t ps_sample_cuda_scratch(const void *args);

/* What follows the sum of linear's y[m, n]; T is the weights' type. */
template <class T>
__device__ inline void ps_linear_finish(const ps_linear &a, const T *bias, uint32_t m, uint32_t n,
                                        float sum)
{
    if (bias) sum += ps_get(bias[n]);
    if (a.act == PS_ACT_RELU && sum < 0) sum = 0; /* NaN stays NaN */
    if (a.residual) sum += a.residual[(size_t) m * a.ldr + n];
    a.y[(size_t) m * a.ldy + n] = sum;
}
#endif
