// SPDX-License-Identifier: Apache-2.0
/* embed, layernorm, kv_round: a block for each row; convert. */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/rows.cuh"

static constexpr uint32_t BLOCK = 256, WARPS = BLOCK / 32;

template <class T> __global__ void __launch_bounds__(BLOCK) embed(const ps_embed a)
{
    const int64_t id = (int64_t) a.ids[blockIdx.x] + a.ids_add - a.row0;
    if (id < 0 || id >= a.n_rows) return;
    const T *from = static_cast<const T *>(a.table) + (size_t) id * a.cols;
    float *y = a.y + (size_t) blockIdx.x * a.ldy;
    for (uint32_t c = threadIdx.x; c < a.cols; c += BLOCK) {
        const float v = ps_get(from[c]);
        y[c] = a.add ? y[c] + v : v;
    }
}

int ps_embed_cuda(const void *args, const ps_span *span)
{
    const ps_embed a = *static_cast<const ps_embed *>(args);
    ps_cuda_stream *s = ps_stream(span);
    return ps_by_dtype(a.dtype, [=](auto *t) {
        auto *embed_rows = embed<std::remove_pointer_t<decltype(t)>>;
        return PS_LAUNCH(s, embed_rows, a.rows, BLOCK, a);
    });
}

/* The mean first, then the squares of what differs from it: one formula would lose a variance that is small beside the mean. */
template <class T> __global__ void __launch_bounds__(BLOCK) layernorm(const ps_layernorm a)
{
    __shared__ float part[WARPS];
    const float *x = a.x + (size_t) blockIdx.x * a.ldx;
    float *y = a.y ? a.y + (size_t) blockIdx.x * a.ldy : nullptr;
    T *rounded = a.rounded ? static_cast<T *>(a.rounded) + (size_t) blockIdx.x * a.cols : nullptr;
    const T *w = static_cast<const T *>(a.w), *b = static_cast<const T *>(a.b);
    float sum = 0;
    for (uint32_t c = threadIdx.x; c < a.cols; c += BLOCK) sum += x[c];
    const float mean = ps_block_reduce<WARPS>(sum, part, ps_add()) / (float) a.cols;
    float squares = 0;
    for (uint32_t c = threadIdx.x; c < a.cols; c += BLOCK) {
        const float d = x[c] - mean;
        squares = fmaf(d, d, squares);
    }
    const float var = ps_block_reduce<WARPS>(squares, part, ps_add()) / (float) a.cols;
    const float scale = 1 / sqrtf(var + a.eps);
    for (uint32_t c = threadIdx.x; c < a.cols; c += BLOCK) {
        const float v = fmaf((x[c] - mean) * scale, ps_get(w[c]), ps_get(b[c]));
        if (rounded) ps_put(rounded + c, v);
        if (y) y[c] = v;
    }
}

int ps_layernorm_cuda(const void *args, const ps_span *span)
{
    const ps_layernorm a = *static_cast<const ps_layernorm *>(args);
    ps_cuda_stream *s = ps_stream(span);
    return ps_by_dtype(a.dtype, [=](auto *t) {
        auto *norm_rows = layernorm<std::remove_pointer_t<decltype(t)>>;
        return PS_LAUNCH(s, norm_rows, a.rows, BLOCK, a);
    });
}

template <class T> __global__ void __launch_bounds__(BLOCK) convert(const ps_convert a)
{
    const T *x = static_cast<const T *>(a.x);
    const uint64_t from = (uint64_t) blockIdx.x * PS_CONVERT_UNIT;
    for (uint64_t i = from + threadIdx.x; i < from + PS_CONVERT_UNIT && i < a.n; i += BLOCK)
        ps_put_as(a.to, a.y, i, ps_get(x[i]));
}

int ps_convert_cuda(const void *args, const ps_span *span)
{
    const ps_convert a = *static_cast<const ps_convert *>(args);
    ps_cuda_stream *s = ps_stream(span);
    return ps_by_dtype(a.from, [=](auto *t) {
        auto *convert_units = convert<std::remove_pointer_t<decltype(t)>>;
        return PS_LAUNCH(s, convert_units, (uint32_t) span->end, BLOCK, a);
    });
}

template <class T>
__global__ void __launch_bounds__(BLOCK) kv_round(const ps_kv_round a, int32_t *err)
{
    const size_t r = blockIdx.x;
    T *dst_k = static_cast<T *>(a.dst_k), *dst_v = static_cast<T *>(a.dst_v);
    for (uint32_t i = threadIdx.x; i < a.kv_heads * a.d; i += BLOCK) {
        const size_t to = ((size_t) (i / a.d) * a.cap + a.at + r) * a.d + i % a.d;
        ps_put(dst_k + to, a.k[r * a.ldk + i]);
        ps_put(dst_v + to, a.v[r * a.ldv + i]);
        if (!ps_finite(ps_get(dst_k[to])) || !ps_finite(ps_get(dst_v[to])))
            ps_fault(err, PS_OP_kv_round, -PS_ENUMERIC);
    }
}

int ps_kv_round_cuda(const void *args, const ps_span *span)
{
    const ps_kv_round a = *static_cast<const ps_kv_round *>(args);
    ps_cuda_stream *s = ps_stream(span);
    return ps_by_dtype(a.kv_type, [=](auto *t) {
        auto *round_rows = kv_round<std::remove_pointer_t<decltype(t)>>;
        return PS_LAUNCH(s, round_rows, a.rows, BLOCK, a, s->err);
    });
}
