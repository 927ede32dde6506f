/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a prompt and over slabs, one query head and one key after the other, in double. */
#include "engine/base/ps_err.h"
#include "kernels/ref/ref_rows.h"
#include <math.h>

static double dot(const float *q, enum ps_dtype t, const void *k, size_t at, uint32_t d)
{
    double s = 0;
    for (uint32_t c = 0; c < d; c++) s += (double) q[c] * (double) ps_dtype_get(t, k, at + c);
    return s;
}

/* s[0..n) becomes the softmax of itself. */
static void softmax(double *s, uint32_t n)
{
    double max = s[0], sum = 0;
    for (uint32_t j = 1; j < n; j++) max = fmax(max, s[j]);
    for (uint32_t j = 0; j < n; j++) sum += s[j] = exp(s[j] - max);
    for (uint32_t j = 0; j < n; j++) s[j] /= sum;
}

static void prompt_unit(const struct ps_attn_prompt *a, const struct ps_prompt_seq *s, uint32_t h,
                        double *p)
{
    const uint32_t group = a->q_heads / a->kv_heads, d = a->d;
    float *score = s->score ? s->score + (size_t) h * s->cap : NULL;
    for (uint32_t j = 0; score && s->first == 0 && j < s->total; j++) score[j] = 0;
    for (uint32_t r = 0; r < s->rows; r++)
        for (uint32_t g = 0; g < group; g++) {
            const uint32_t hq = h * group + g, n = s->first + r + 1;
            const float *q = s->q + (size_t) r * a->ldq + (size_t) hq * d;
            const size_t o = (size_t) r * a->ldo + (size_t) hq * d;
            for (uint32_t j = 0; j < n; j++)
                p[j] = a->scale * dot(q, a->kv_type, s->k, ((size_t) h * s->cap + j) * d, d);
            softmax(p, n);
            for (uint32_t c = 0; c < d; c++) {
                double sum = 0;
                for (uint32_t j = 0; j < n; j++)
                    sum += p[j] * (double) ps_dtype_get(a->kv_type, s->v,
                                                        ((size_t) h * s->cap + j) * d + c);
                ps_dtype_put(a->o_type, s->o, o + c, (float) sum);
            }
            for (uint32_t j = 0; score && j < n; j++) score[j] = (float) (score[j] + p[j]);
        }
}

int ps_attn_prompt_ref(const void *args, const struct ps_span *span)
{
    const struct ps_attn_prompt *a = args;
    for (uint64_t u = span->begin; u < span->end; u++)
        prompt_unit(a, &a->seqs[u / a->kv_heads], (uint32_t) (u % a->kv_heads), span->scratch);
    return 0;
}

/* x as it will be read back from KV of type t. */
static float rounded(enum ps_dtype t, float x)
{
    return t == PS_F16 ? ps_f16_to_f32(ps_f32_to_f16(x)) : x;
}

/* Which entry goes when entry `len` (the new one) has come: see struct ps_decode_row. -1: there is none. */
static int64_t victim(const struct ps_decode_row *r, uint32_t h, float new_score)
{
    const int32_t *pos = r->slab.pos + (size_t) h * r->slab.cap;
    const float *score = r->slab.score ? r->slab.score + (size_t) h * r->slab.cap : NULL;
    int64_t best = -1, best_pos = -1;
    float best_score = 0;
    for (uint32_t j = 0; j <= r->len; j++) {
        const int64_t at = j < r->len ? pos[j] : r->now;
        const float s = !score ? 0 : j < r->len ? score[j] : new_score;
        if (at < (int64_t) r->keep.sinks || at > (int64_t) r->now - (int64_t) r->keep.recent)
            continue;
        if (best < 0 || s < best_score || (s == best_score && at > best_pos))
            best = j, best_pos = at, best_score = s;
    }
    return best;
}

static void write_kv(const struct ps_attn_decode *a, const struct ps_decode_row *r, uint32_t h,
                     void *k, void *v, size_t entry)
{
    for (uint32_t c = 0; c < a->d; c++) {
        ps_dtype_put(a->kv_type, k, entry * a->d + c, r->k[(size_t) h * a->d + c]);
        ps_dtype_put(a->kv_type, v, entry * a->d + c, r->v[(size_t) h * a->d + c]);
    }
}

static int decode_unit(const struct ps_attn_decode *a, const struct ps_decode_row *r, uint32_t h,
                       double *p, double *sum_p)
{
    const uint32_t group = a->q_heads / a->kv_heads, d = a->d, n = r->len + 1;
    const size_t base = (size_t) h * r->slab.cap;
    const float *new_k = r->k + (size_t) h * d, *new_v = r->v + (size_t) h * d;
    const enum ps_dtype t = a->kv_type;

    for (uint32_t c = 0; c < d; c++)
        if (!isfinite(rounded(t, new_k[c])) || !isfinite(rounded(t, new_v[c]))) return -PS_ENUMERIC;
    for (uint32_t j = 0; j < n; j++) sum_p[j] = 0;
    for (uint32_t g = 0; g < group; g++) {
        const float *q = r->q + (size_t) (h * group + g) * d;
        const size_t o = (size_t) (h * group + g) * d;
        for (uint32_t j = 0; j < r->len; j++)
            p[j] = a->scale * dot(q, t, r->slab.k, (base + j) * d, d);
        p[r->len] = 0;
        for (uint32_t c = 0; c < d; c++) p[r->len] += (double) q[c] * (double) rounded(t, new_k[c]);
        p[r->len] *= a->scale;
        softmax(p, n);
        for (uint32_t j = 0; j < n; j++) sum_p[j] += p[j];
        for (uint32_t c = 0; c < d; c++) {
            double sum = p[r->len] * (double) rounded(t, new_v[c]);
            for (uint32_t j = 0; j < r->len; j++)
                sum += p[j] * (double) ps_dtype_get(t, r->slab.v, (base + j) * d + c);
            ps_dtype_put(a->o_type, r->o, o + c, (float) sum);
        }
    }

    float *score = r->slab.score ? r->slab.score + base : NULL;
    for (uint32_t j = 0; score && j < r->len; j++) score[j] = (float) (score[j] + sum_p[j]);
    const float new_score = (float) sum_p[r->len];
    if (score && isnan(new_score)) return -PS_ENUMERIC;
    int64_t at = r->len;
    if (r->keep.heavy != PS_KEEP_ALL &&
        r->len >= (uint64_t) r->keep.sinks + r->keep.heavy + r->keep.recent) {
        at = victim(r, h, new_score);
        if (at < 0) return -EINVAL;
        if (at == (int64_t) r->len) at = -1;
    }
    r->at[h] = (int32_t) at;
    if (at >= 0) {
        write_kv(a, r, h, r->slab.k, r->slab.v, base + (size_t) at);
        r->slab.pos[base + (size_t) at] = r->now;
        if (score) score[at] = new_score;
    }
    if (r->log_k) {
        write_kv(a, r, h, r->log_k, r->log_v, (size_t) h * r->log_cap + r->log_at);
        r->log_index[(size_t) h * r->log_cap + r->log_at] = (int32_t) at;
    }
    return 0;
}

int ps_attn_decode_ref(const void *args, const struct ps_span *span)
{
    const struct ps_attn_decode *a = args;
    double *p = span->scratch;
    for (uint64_t u = span->begin; u < span->end; u++) {
        int rc = decode_unit(a, &a->rows[u / a->kv_heads], (uint32_t) (u % a->kv_heads), p,
                             p + a->longest);
        if (rc < 0) return rc;
    }
    return 0;
}
