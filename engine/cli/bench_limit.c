/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of runs: rates, medians, and the floor. */
#include "engine/cli/bench.h"
#include "engine/job/report.h"
#include <math.h>
#include <string.h>

double ps_bench_seconds(const struct ps_bench_run *r) { return r->prefill_s + r->decode_s; }

struct ps_bench_rates ps_bench_rates(const struct ps_bench_run *r)
{
    const uint64_t made = r->generated_tokens;
    return (struct ps_bench_rates) {
        .prefill = ps_ratio((double) r->prompt_tokens, r->prefill_s),
        /* each sequence's first token comes of its prompt */
        .decode = made > r->requests ? ps_ratio((double) (made - r->requests), r->decode_s) : NAN,
        .total = ps_ratio((double) made, ps_bench_seconds(r))
    };
}

static double rate_at(const struct ps_bench_run *r, size_t offset)
{
    struct ps_bench_rates v = ps_bench_rates(r);
    double x;
    memcpy(&x, (const char *) &v + offset, sizeof x);
    return x;
}

/* -> how many there are, ascending. */
static size_t sorted(const struct ps_bench_row *row, size_t offset,
                     double ret[static PS_BENCH_REPEATS_MAX])
{
    size_t n = 0;
    for (unsigned i = 0; i < row->n_runs; i++)
        if (row->run[i].complete) ret[n++] = rate_at(&row->run[i], offset);
    qsort(ret, n, sizeof *ret, ps_ascending);
    return n;
}

struct ps_bench_spread ps_bench_spread(const struct ps_bench_row *row, size_t offset)
{
    double v[PS_BENCH_REPEATS_MAX];
    const size_t n = sorted(row, offset, v);
    if (!n) return (struct ps_bench_spread) { NAN, NAN, NAN };
    return (struct ps_bench_spread) { (v[n / 2] + v[(n - 1) / 2]) / 2, v[0], v[n - 1] };
}

const struct ps_bench_run *ps_bench_middle(const struct ps_bench_row *row)
{
    double v[PS_BENCH_REPEATS_MAX];
    const size_t at = offsetof(struct ps_bench_rates, total), n = sorted(row, at, v);
    for (unsigned i = 0; n && i < row->n_runs; i++)
        if (row->run[i].complete && rate_at(&row->run[i], at) >= v[n / 2]) {
            if (rate_at(&row->run[i], at) <= v[n / 2]) return &row->run[i];
        }
    return NULL;
}

static bool same(struct ps_bench_len a, struct ps_bench_len b)
{
    return a.least == b.least && a.most == b.most;
}

static bool alike(const struct ps_bench_row *a, const struct ps_bench_row *b)
{
    return a->model == b->model && same(a->prompt, b->prompt) && same(a->gen, b->gen) &&
           !a->job == !b->job && (!a->job || !strcmp(a->job, b->job));
}

const struct ps_bench_row *ps_bench_first(const struct ps_bench *b, const struct ps_bench_row *row)
{
    const struct ps_bench_row *r = b->rows;
    while (!alike(r, row)) r++;
    return r;
}

double ps_bench_share(struct ps_bench_limit limit, const struct ps_bench_run *r)
{
    return limit.link ? ps_ratio(limit.floor_s, r->st.prefill_s + r->st.decode_s) : NAN;
}

/* What the run had to do, less what it did before the first sweep: weights that stay came then. */
struct ps_bench_limit ps_bench_limit(const struct ps_bench_row *row, const struct ps_bench_run *r)
{
    const struct ps_rates *v = &row->req.rates;
    const struct ps_plan *p = &row->plan;
    const struct ps_dev_stats *d = &r->st.dev;
    const bool gpu = p->gpu_bytes > 0;
    const double stay_gpu = (double) p->weight_bytes[PS_TIER_GPU],
                 stay = stay_gpu + (double) p->weight_bytes[PS_TIER_HOST];
    const double host_bytes = d->mem_bytes[PS_Q_HOST] + (gpu ? 0 : d->mem_bytes[PS_Q_COMPUTE]);
    const struct {
        const char *link;
        double work, rate;
    } all[] = {
        { "disk read", ps_dev_moved(d, PS_Q_READ) - stay, v->disk_read },
        { "disk write", ps_dev_moved(d, PS_Q_WRITE), v->disk_write },
        { "copies to the GPU", ps_dev_moved(d, PS_Q_H2D) + ps_dev_moved(d, PS_Q_UP) - stay_gpu,
          v->h2d },
        { "copies from the GPU", ps_dev_moved(d, PS_Q_D2H), v->d2h },
        { "memory", host_bytes, v->dram },
        { "GPU memory", gpu ? d->mem_bytes[PS_Q_COMPUTE] : 0, v->hbm },
        { gpu ? "GPU arithmetic" : "arithmetic", d->flops[PS_Q_COMPUTE],
          gpu ? v->gpu_gemm : v->gemm },
    };
    struct ps_bench_limit most = { NULL, 0 };
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++)
        if (all[i].rate > 0 && all[i].work / all[i].rate > most.floor_s)
            most = (struct ps_bench_limit) { all[i].link, all[i].work / all[i].rate };
    return most;
}
