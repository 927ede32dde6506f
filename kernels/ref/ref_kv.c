/* SPDX-License-Identifier: Apache-2.0 */
/* Moves of KV entries: rounding into a slab, what stays after a prompt, the log put back. */
#include "engine/base/ps_err.h"
#include "kernels/ref/ref_rows.h"
#include <math.h>
#include <string.h>

int ps_kv_round_ref(const void *args, const struct ps_span *span)
{
    const struct ps_kv_round *a = args;
    for (uint64_t r = span->begin; r < span->end; r++)
        for (uint32_t h = 0; h < a->kv_heads; h++)
            for (uint32_t c = 0; c < a->d; c++) {
                const size_t to = ((size_t) h * a->cap + a->at + r) * a->d + c;
                const size_t from = (size_t) h * a->d + c;
                ps_dtype_put(a->kv_type, a->dst_k, to, a->k[r * a->ldk + from]);
                ps_dtype_put(a->kv_type, a->dst_v, to, a->v[r * a->ldv + from]);
                if (!isfinite(ps_dtype_get(a->kv_type, a->dst_k, to)) ||
                    !isfinite(ps_dtype_get(a->kv_type, a->dst_v, to)))
                    return -PS_ENUMERIC;
            }
    return 0;
}

/* Does position j stay? Counts who is better, n steps each: obvious, and slow for long prompts. */
static bool stays(const struct ps_keep *keep, const float *score, uint32_t total, uint32_t j)
{
    const uint32_t first = keep->sinks, end = total - keep->recent; /* the contested middle */
    if (j < first || j >= end) return true;
    if (keep->heavy == 0) return false;
    uint32_t better = 0;
    for (uint32_t i = first; i < end; i++)
        better += score[i] > score[j] || (score[i] == score[j] && i < j);
    return better < keep->heavy;
}

static int compact_unit(const struct ps_kv_compact *a, const struct ps_compact_seq *s, uint32_t h)
{
    const size_t from = (size_t) h * s->src.cap, to = (size_t) h * s->dst.cap;
    const size_t bytes = a->d * ps_dtype_bytes(a->kv_type);
    const float *score = s->src.score ? s->src.score + from : NULL;
    const bool all = s->keep.heavy == PS_KEEP_ALL ||
                     s->total <= (uint64_t) s->keep.sinks + s->keep.heavy + s->keep.recent;
    if (!all && s->keep.heavy > 0 && !score) return -EINVAL;
    size_t n = to;
    for (uint32_t j = 0; j < s->total; j++) {
        if (!all && !stays(&s->keep, score, s->total, j)) continue;
        memcpy((char *) s->dst.k + n * bytes, (const char *) s->src.k + (from + j) * bytes, bytes);
        memcpy((char *) s->dst.v + n * bytes, (const char *) s->src.v + (from + j) * bytes, bytes);
        s->dst.pos[n] = (int32_t) j;
        if (s->dst.score) s->dst.score[n] = score ? score[j] : 0;
        n++;
    }
    return 0;
}

int ps_kv_compact_ref(const void *args, const struct ps_span *span)
{
    const struct ps_kv_compact *a = args;
    for (uint64_t u = span->begin; u < span->end; u++) {
        int rc = compact_unit(a, &a->seqs[u / a->kv_heads], (uint32_t) (u % a->kv_heads));
        if (rc < 0) return rc;
    }
    return 0;
}

int ps_kv_replay_ref(const void *args, const struct ps_span *span)
{
    const struct ps_kv_replay *a = args;
    const size_t bytes = a->d * ps_dtype_bytes(a->kv_type);
    for (uint64_t u = span->begin; u < span->end; u++) {
        const struct ps_replay_seq *s = &a->seqs[u / a->kv_heads];
        const size_t h = u % a->kv_heads, to = h * s->cap, from = h * s->log_cap;
        for (uint32_t i = 0; i < s->n; i++) {
            const int32_t at = s->log_index[from + i];
            if (at < 0) continue;
            if ((uint32_t) at >= s->cap) return -EINVAL;
            memcpy((char *) s->k + (to + (size_t) at) * bytes,
                   (const char *) s->log_k + (from + i) * bytes, bytes);
            memcpy((char *) s->v + (to + (size_t) at) * bytes,
                   (const char *) s->log_v + (from + i) * bytes, bytes);
        }
    }
    return 0;
}
