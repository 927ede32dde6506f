/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps that were laid out, and what they ask of the machine. */
#include "engine/base/ps_mem.h"
#include "engine/plan/layout.h"
#include "engine/search/sample.h"
#include <math.h>

static double per(double work, double rate) { return rate > 0 ? work / rate : 0; }

int ps_loads_init(struct ps_loads *l, const struct ps_simulate_cfg *cfg)
{
    *l = (struct ps_loads) { .cfg = cfg };
    l->lot_s = ps_calloc((size_t) cfg->plan->chunk_rows + 1, sizeof *l->lot_s);
    return l->lot_s ? 0 : -ENOMEM;
}

void ps_loads_done(struct ps_loads *l) { free(l->lot_s); }

static const struct ps_worker_rates *near_of(const struct ps_simulate_cfg *cfg)
{
    return cfg->plan->detail->gpu ? &cfg->profile->gpu : &cfg->profile->host;
}

/* All weights' linears, of a lot of rows. */
static double lot_s(struct ps_loads *l, uint32_t rows)
{
    const struct ps_packed *m = l->cfg->model;
    const struct ps_worker_rates *w = near_of(l->cfg);
    if (!rows || l->lot_s[rows] > 0) return l->lot_s[rows];
    const double weights = (double) m->weight_bytes,
                 flops = 2 * rows * weights / (double) ps_dtype_bytes(m->dtype),
                 rate = w->n_linear ? ps_curve_at(&w->linear[0].over_m, rows, NULL) : w->flops;
    return l->lot_s[rows] = fmax(per(flops, rate), per(weights, w->mem));
}

static double linear_s(struct ps_loads *l, const struct ps_sweep_shape *h)
{
    const uint32_t lot = l->cfg->plan->chunk_rows;
    double sum = 0;
    for (uint32_t k = 0; k < h->micro_batches; k++)
        sum += (h->rows[k] / lot) * lot_s(l, lot) + lot_s(l, h->rows[k] % lot);
    return sum;
}

static double bytes_s(const struct ps_sweep_shape *h, enum ps_q q, double rate)
{
    double sum = 0;
    for (int k = 0; k < PS_KIND__COUNT; k++) sum += (double) h->bytes[q][k];
    return per(sum, rate);
}

/* Two directions that slow each other down, which take a_s and b_s alone. */
static double both_s(const struct ps_way *a, double a_s, const struct ps_way *b, double b_s)
{
    const double slow_a = a->beside > 0 ? a->alone / a->beside : 1,
                 slow_b = b->beside > 0 ? b->alone / b->beside : 1;
    const double first = fmin(a_s * slow_a, b_s * slow_b);
    return first + fmax(a_s - first / slow_a, b_s - first / slow_b);
}

void ps_loads_of(struct ps_loads *l, const struct ps_sweep_shape *h, double ret[PS_LOAD__COUNT])
{
    const struct ps_simulate_cfg *cfg = l->cfg;
    const struct ps_profile *p = cfg->profile;
    const struct ps_plan *plan = cfg->plan;
    const struct ps_shape *m = &cfg->model->shape;
    const struct ps_worker_rates *near = near_of(cfg);
    const double slabs = (double) m->layers * plan->micro_batches, far = plan->host_slabs / slabs,
                 kv = (double) h->entries * m->layers *
                      (double) ps_slab_kv_bytes(m->kv_heads, m->head_dim, plan->detail->kv_type, 1),
                 pairs = 4 * h->prompt_pairs * m->layers * m->q_heads * m->head_dim;
    double sum = 0, most;
    ret[PS_LOAD_COMPUTE] =
        linear_s(l, h) + per(kv * (1 - far), near->mem) + per(pairs, near->flops / 4);
    ret[PS_LOAD_HOST] = per(kv * far, p->host.mem) + bytes_s(h, PS_Q_HOST, p->host.copy);
    ret[PS_LOAD_READ] = bytes_s(h, PS_Q_READ, p->disk_read.alone);
    ret[PS_LOAD_WRITE] = bytes_s(h, PS_Q_WRITE, p->disk_write.alone);
    ret[PS_LOAD_UP] = bytes_s(h, PS_Q_H2D, p->h2d.alone) + bytes_s(h, PS_Q_UP, p->h2d.alone);
    ret[PS_LOAD_DOWN] = bytes_s(h, PS_Q_D2H, p->d2h.alone);
    for (int i = 0; i < PS_LOAD_ALL; i++) sum += ret[i];
    most = fmax(both_s(&p->disk_read, ret[PS_LOAD_READ], &p->disk_write, ret[PS_LOAD_WRITE]),
                both_s(&p->h2d, ret[PS_LOAD_UP], &p->d2h, ret[PS_LOAD_DOWN]));
    most = fmax(most, fmax(ret[PS_LOAD_COMPUTE], ret[PS_LOAD_HOST]));
    ret[PS_LOAD_LOTS] = h->lots;
    ret[PS_LOAD_DECODE_ROWS] = (double) h->decode_rows;
    ret[PS_LOAD_PROMPT_ROWS] = (double) h->prompt_rows;
    ret[PS_LOAD_HEAD_ROWS] = (double) h->head_rows;
    ret[PS_LOAD_ENTRIES] = (double) h->entries;
    ret[PS_LOAD_PAIRS] = h->prompt_pairs;
    /* What overlaps is nearly free, not free. */
    ret[PS_LOAD_ALL] = most + 0.1 * fmax(sum - most, 0);
    ret[PS_LOAD_PREFILL] =
        ret[PS_LOAD_ALL] * (double) h->prompt_rows / (double) (h->prompt_rows + h->decode_rows);
}

int ps_laid_init(struct ps_laid *l)
{
    *l = (struct ps_laid) { .each = 1 };
    l->at = ps_calloc(PS_STRETCHES, sizeof *l->at);
    return l->at ? 0 : -ENOMEM;
}

void ps_laid_done(struct ps_laid *l) { free(l->at); }

static void append(struct ps_stretch *s, uint32_t n, const double load[PS_LOAD__COUNT])
{
    s->n += n;
    s->counts += n;
    for (int i = 0; i < PS_LOAD__COUNT; i++) s->load[i] += load[i];
}

static void halve(struct ps_laid *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const struct ps_stretch s = l->at[i];
        if (i % 2)
            append(&l->at[i / 2], s.n, s.load);
        else
            l->at[i / 2] = s;
    }
    l->n = (l->n + 1) / 2;
    l->each *= 2;
}

void ps_laid_add(struct ps_laid *l, const double load[PS_LOAD__COUNT])
{
    if (!l->n || l->at[l->n - 1].n == l->each) {
        if (l->n == PS_STRETCHES) halve(l);
        l->at[l->n++] = (struct ps_stretch) { .first = l->sweeps };
    }
    append(&l->at[l->n - 1], 1, load);
    l->sweeps++;
}

void ps_laid_repeat(struct ps_laid *l, uint64_t from, uint64_t to, double times)
{
    for (uint32_t i = 0; i < l->n; i++) {
        struct ps_stretch *s = &l->at[i];
        const uint64_t a = s->first > from ? s->first : from,
                       z = s->first + s->n < to ? s->first + s->n : to;
        if (a >= z) continue;
        const double factor = 1 + times * (double) (z - a) / s->n;
        s->counts *= factor;
        for (int k = 0; k < PS_LOAD__COUNT; k++) s->load[k] *= factor;
    }
}

double ps_laid_sweeps(const struct ps_laid *l)
{
    double sum = 0;
    for (uint32_t i = 0; i < l->n; i++) sum += l->at[i].counts;
    return sum;
}
