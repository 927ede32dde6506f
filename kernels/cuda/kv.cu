// SPDX-License-Identifier: Apache-2.0
/* kv_compact and kv_replay: a block for each KV head of a sequence. */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/select.cuh"

static constexpr uint32_t BLOCK = 256, WARPS = BLOCK / 32;

/* A row of d elements, by the threads `of` .. in steps of `by`; in 16-byte pieces where both rows allow it. */
__device__ inline void copy_row(void *to, const void *from, size_t bytes, uint32_t of, uint32_t by)
{
    const uintptr_t bits = (uintptr_t) to | (uintptr_t) from | bytes;
    if (bits % 16 == 0)
        for (size_t i = of; i < bytes / 16; i += by)
            static_cast<uint4 *>(to)[i] = static_cast<const uint4 *>(from)[i];
    else
        for (size_t i = of; i < bytes / 2; i += by)
            static_cast<uint16_t *>(to)[i] = static_cast<const uint16_t *>(from)[i];
}

struct compact_args {
    ps_kv_compact a;
    size_t row_bytes;
    int32_t *err;
};

__global__ void __launch_bounds__(BLOCK) kv_compact(const compact_args x)
{
    __shared__ unsigned long long bins[PS_BINS];
    __shared__ uint32_t part[WARPS], kept[BLOCK];
    const ps_compact_seq &s = x.a.seqs[blockIdx.x / x.a.kv_heads];
    const uint32_t h = blockIdx.x % x.a.kv_heads;
    const size_t from = (size_t) h * s.src.cap, to = (size_t) h * s.dst.cap;
    const float *score = s.src.score ? s.src.score + from : nullptr;
    const ps_keep keep = s.keep;
    const bool all =
        keep.heavy == PS_KEEP_ALL || s.total <= (uint64_t) keep.sinks + keep.heavy + keep.recent;
    const uint32_t first = all ? s.total : keep.sinks, end = all ? s.total : s.total - keep.recent;
    uint32_t key = 0;            /* the least that stays */
    unsigned long long ties = 0; /* how many of its equals do */
    if (!all && keep.heavy > 0) {
        if (!score) {
            if (threadIdx.x == 0) ps_fault(x.err, PS_OP_kv_compact, -EINVAL);
            return;
        }
        ties = ps_descend<BLOCK>(
            first, end, keep.heavy, [=](uint32_t i) { return ps_sortable(score[i]); },
            [](uint32_t) { return 1; }, bins, &key);
    }
    uint32_t n = 0, equal = 0; /* kept so far; of these, equal to the threshold */
    for (uint32_t j0 = 0; j0 < s.total; j0 += BLOCK) {
        const uint32_t j = j0 + threadIdx.x;
        const bool contested = j >= first && j < end && j < s.total;
        const uint32_t mine = contested && keep.heavy > 0 ? ps_sortable(score[j]) : 0;
        uint32_t in_tile;
        const bool tie = contested && keep.heavy > 0 && mine == key;
        const uint32_t place =
            equal + ps_rank<BLOCK>(tie, part, &in_tile); /* among its equals: earlier ones first */
        const bool heavy = contested && keep.heavy > 0 && (tie ? place < ties : mine > key);
        const bool stays = j < s.total && (!contested || heavy);
        equal += in_tile;
        const uint32_t at = ps_rank<BLOCK>(stays, part, &in_tile);
        if (stays) {
            kept[at] = j;
            s.dst.pos[to + n + at] = (int32_t) j;
            if (s.dst.score) s.dst.score[to + n + at] = score ? score[j] : 0;
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x / 32; i < in_tile; i += WARPS) {
            const size_t src = (from + kept[i]) * x.row_bytes, dst = (to + n + i) * x.row_bytes;
            copy_row(static_cast<char *>(s.dst.k) + dst, static_cast<const char *>(s.src.k) + src,
                     x.row_bytes, threadIdx.x % 32, 32);
            copy_row(static_cast<char *>(s.dst.v) + dst, static_cast<const char *>(s.src.v) + src,
                     x.row_bytes, threadIdx.x % 32, 32);
        }
        n += in_tile;
    }
}

int ps_kv_compact_cuda(const void *args, const ps_span *span)
{
    ps_cuda_stream *s = ps_stream(span);
    compact_args x = { *static_cast<const ps_kv_compact *>(args), 0, s->err };
    x.row_bytes = x.a.d * ps_bytes(x.a.kv_type);
    return PS_LAUNCH(s, kv_compact, x.a.n_seqs * x.a.kv_heads, BLOCK, x);
}

struct replay_args {
    ps_kv_replay a;
    size_t row_bytes;
    int32_t *err;
};

/* A warp for each logged entry that no later one overwrites: so the order of the log holds without anybody waiting. */
__global__ void __launch_bounds__(BLOCK) kv_replay(const replay_args x)
{
    const ps_replay_seq &s = x.a.seqs[blockIdx.x / x.a.kv_heads];
    const uint32_t h = blockIdx.x % x.a.kv_heads, lane = threadIdx.x % 32;
    const int32_t *index = s.log_index + (size_t) h * s.log_cap;
    for (uint32_t i = threadIdx.x / 32; i < s.n; i += WARPS) {
        const int32_t at = index[i];
        if (at >= 0 && (uint32_t) at >= s.cap && lane == 0)
            ps_fault(x.err, PS_OP_kv_replay, -EINVAL);
        bool later = false;
        for (uint32_t j = i + 1 + lane; j < s.n; j += 32) later |= index[j] == at;
        if (__ballot_sync(~0u, later) || at < 0 || (uint32_t) at >= s.cap) continue;
        const size_t dst = ((size_t) h * s.cap + (uint32_t) at) * x.row_bytes,
                     src = ((size_t) h * s.log_cap + i) * x.row_bytes;
        copy_row(static_cast<char *>(s.k) + dst, static_cast<const char *>(s.log_k) + src,
                 x.row_bytes, lane, 32);
        copy_row(static_cast<char *>(s.v) + dst, static_cast<const char *>(s.log_v) + src,
                 x.row_bytes, lane, 32);
    }
}

int ps_kv_replay_cuda(const void *args, const ps_span *span)
{
    ps_cuda_stream *s = ps_stream(span);
    replay_args x = { *static_cast<const ps_kv_replay *>(args), 0, s->err };
    x.row_bytes = x.a.d * ps_bytes(x.a.kv_type);
    return PS_LAUNCH(s, kv_replay, x.a.n_seqs * x.a.kv_heads, BLOCK, x);
}
