/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA rows. module.cu lists them. */
#ifndef PS_CUDA_ROWS_CUH
#define PS_CUDA_ROWS_CUH
#include "kernels/cuda/cu.cuh"

int ps_embed_cuda(const void *args, const ps_span *span);
int ps_layernorm_cuda(const void *args, const ps_span *span);
int ps_convert_cuda(const void *args, const ps_span *span);
int ps_linear_cuda(const void *args, const ps_span *span);
int ps_kv_round_cuda(const void *args, const ps_span *span);
int ps_attn_prompt_cuda(const void *args, const ps_span *span);
int ps_attn_decode_cuda(const void *args, const ps_span *span);
int ps_kv_compact_cuda(const void *args, const ps_span *span);
int ps_kv_replay_cuda(const void *args, const ps_span *span);
int ps_sample_cuda(const void *args, const ps_span *span);

/* linear of x in f32, weights f16 or (from sm_80 on) bf16. */
int ps_linear_tile_cuda(const ps_linear &a, ps_cuda_stream *s);

/* linear by cublasLtMatmul: x, and the bias of a y in f32, as it wants them (ops.h). -PS_EUNSUPPORTED: it has nothing for this shape. */
int ps_linear_lt_cuda(const ps_linear &a, ps_cuda_stream *s);
/* Its handle and what it keeps of each shape: s->blas. */
int ps_linear_lt_open(ps_cuda_stream *s);
int ps_linear_lt_close(ps_cuda_stream *s);

bool ps_attn_prompt_cuda_takes(const void *args);
bool ps_attn_decode_cuda_takes(const void *args);
bool ps_sample_cuda_takes(const void *args);

size_t ps_attn_prompt_cuda_scratch(const void *args);
size_t ps_attn_decode_cuda_scratch(const void *args);
size_t ps_sample_cuda_scratch(const void *args);

/* What follows the sum of linear's y[m, n]; T is the weights' type. */
template <class T>
__device__ inline void ps_linear_finish(const ps_linear &a, uint32_t m, uint32_t n, float sum)
{
    if (a.bias)
        sum += a.bias_f32 ? static_cast<const float *>(a.bias)[n]
                          : ps_get(static_cast<const T *>(a.bias)[n]);
    if (a.act == PS_ACT_RELU && sum < 0) sum = 0; /* NaN stays NaN */
    if (a.residual) sum += a.residual[(size_t) m * a.ldr + n];
    const size_t at = (size_t) m * a.ldy + n;
    if (a.rounded_y)
        ps_put(static_cast<T *>(a.rounded_y) + at, sum);
    else
        a.y[at] = sum;
}
#endif
