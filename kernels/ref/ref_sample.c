/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling in double: everything that may be chosen is sorted, then the rules are applied one by one. */
#include "kernels/ref/ref_rows.h"
#include "kernels/uniform.h"
#include <errno.h>
#include <math.h>

double ps_uniform(uint64_t key, uint32_t index) { return ps_philox(key, index); }

struct cand {
    float x;
    int32_t id;
};

static bool before(struct cand a, struct cand b)
{
    return a.x > b.x || (a.x == b.x && a.id < b.id);
}

/* Heap sort, best first: qsort() may allocate. */
static void sort(struct cand *c, size_t n)
{
    for (size_t i = n / 2, end = n; end > 1;) {
        struct cand it;
        if (i > 0) {
            it = c[--i];
        } else {
            it = c[--end];
            c[end] = c[0];
        }
        size_t hole = i;
        for (size_t kid; (kid = 2 * hole + 1) < end; hole = kid) {
            if (kid + 1 < end && before(c[kid], c[kid + 1])) kid++;
            if (!before(it, c[kid])) break;
            c[hole] = c[kid];
        }
        c[hole] = it;
    }
}

static bool banned(const struct ps_sample_row *r, int32_t id)
{
    for (uint32_t i = 0; i < r->n_banned; i++)
        if (r->banned[i] == id) return true;
    return false;
}

/* c: what may be chosen, best first. */
static int32_t choose(const struct ps_sample_row *r, const struct cand *c, size_t n)
{
    if (n == 0) return -1;
    if (r->temperature == 0) return c[0].id;
    if (r->top_k > 0 && r->top_k < n) n = r->top_k;
    double total = 0, kept = 0, run = 0;
    for (size_t i = 0; i < n; i++) total += exp(((double) c[i].x - c[0].x) / r->temperature);
    size_t m = 0;
    do kept += exp(((double) c[m].x - c[0].x) / r->temperature);
    while (++m < n && (r->top_p >= 1 || kept < (double) r->top_p * total));
    const double want = ps_uniform(r->key, r->index) * kept;
    for (size_t i = 0; i < m; i++)
        if ((run += exp(((double) c[i].x - c[0].x) / r->temperature)) > want) return c[i].id;
    return c[m - 1].id;
}

static int sample_row(const struct ps_sample_row *r, uint32_t vocab, struct cand *c)
{
    const float *x = r->logits;
    struct ps_sample_out *out = r->out;
    double max = -INFINITY, sum = 0;
    if (r->forced >= 0 && (uint32_t) r->forced >= vocab) return -EINVAL;
    if (r->n_top > PS_TOP_MAX) return -EINVAL;
    *out = (struct ps_sample_out) { .token = -1 };
    for (uint32_t i = 0; i < vocab; i++) {
        if (isnan(x[i]) || x[i] == INFINITY) return 0;
        max = fmax(max, (double) x[i]);
    }
    if (max == -INFINITY) return 0;
    for (uint32_t i = 0; i < vocab; i++) sum += exp((double) x[i] - max);
    const double lse = max + log(sum);

    for (uint32_t i = 0; i < vocab; i++) c[i] = (struct cand) { x[i], (int32_t) i };
    sort(c, vocab);
    out->n_top = r->n_top < vocab ? r->n_top : vocab;
    for (uint32_t i = 0; i < out->n_top; i++) {
        out->top_id[i] = c[i].id;
        out->top_logprob[i] = (float) ((double) c[i].x - lse);
    }
    out->token = r->forced;
    if (r->forced < 0) {
        size_t n = 0;
        for (uint32_t i = 0; i < vocab && c[i].x > -INFINITY; i++)
            if (!banned(r, c[i].id)) c[n++] = c[i];
        out->token = choose(r, c, n);
    }
    if (out->token >= 0) out->logprob = (float) ((double) x[out->token] - lse);
    return 0;
}

int ps_sample_ref(const void *args, const struct ps_span *span)
{
    const struct ps_sample *a = args;
    for (uint64_t r = span->begin; r < span->end; r++) {
        int rc = sample_row(&a->rows[r], a->vocab, span->scratch);
        if (rc < 0) return rc;
    }
    return 0;
}
