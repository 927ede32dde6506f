/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/sim_price.h"
#include "offload/dev_exec.h"
#include "offload/pool.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- a profile's numbers */

static bool is_rate(double x) { return x >= 0 && x <= DBL_MAX; }

static bool curve_ok(const struct ps_curve *c)
{
    if (c->n < 1 || c->n > PS_CURVE_MAX) return false;
    for (uint32_t i = 0; i < c->n; i++)
        if (!(c->x[i] > (i ? c->x[i - 1] : 0)) || !is_rate(c->x[i]) || !(c->y[i] > 0) ||
            !is_rate(c->y[i]))
            return false;
    return true;
}

static bool worker_ok(const struct ps_worker_rates *w)
{
    bool ok = is_rate(w->mem) && is_rate(w->copy) && is_rate(w->flops) && is_rate(w->task_s) &&
              is_rate(w->spread_s) && is_rate(w->wait_s) && is_rate(w->gap_s) &&
              is_rate(w->scores) && is_rate(w->residual) && w->n_linear <= PS_RATES_MAX &&
              w->n_decode <= PS_RATES_MAX && w->n_prompt <= PS_RATES_MAX;
    for (int o = 0; ok && o < PS_OP__COUNT; o++) ok = is_rate(w->op[o]);
    return ok;
}

static bool way_ok(const struct ps_way *w)
{
    return is_rate(w->alone) && is_rate(w->beside) && is_rate(w->delay_s) &&
           is_rate(w->busy_delay_s) && is_rate(w->behind) && is_rate(w->busy);
}

static bool add_curve(struct ps_curves *to, enum ps_dtype type, double size,
                      const struct ps_curve *c)
{
    to->at[to->n].type = type;
    to->at[to->n].size = size;
    to->at[to->n++].over = c;
    return size > 0 && is_rate(size) && curve_ok(c);
}

static bool add_curves(struct ps_curves to[PS_CURVE__KINDS], const struct ps_worker_rates *w)
{
    bool ok = worker_ok(w);
    for (uint32_t i = 0; ok && i < w->n_linear; i++)
        ok = add_curve(&to[PS_CURVE_LINEAR], w->linear[i].wtype, w->linear[i].k,
                       &w->linear[i].over_m);
    for (uint32_t i = 0; ok && i < w->n_decode; i++)
        ok = add_curve(&to[PS_CURVE_DECODE], w->decode[i].kv_type, w->decode[i].d,
                       &w->decode[i].over_n);
    for (uint32_t i = 0; ok && i < w->n_prompt; i++)
        ok = add_curve(&to[PS_CURVE_PROMPT], w->prompt[i].kv_type, w->prompt[i].d,
                       &w->prompt[i].over_n);
    return ok;
}

int ps_pricer_init(struct ps_pricer *p, const struct ps_profile *x, bool gpu,
                   struct ps_detail *outside)
{
    memset(p, 0, sizeof *p);
    p->profile = x;
    p->gpu = gpu;
    p->compute = gpu ? &x->gpu : &x->host;
    p->outside = outside;
    if (outside) outside->text[0] = '\0';
    if (!way_ok(&x->disk_read) || !way_ok(&x->disk_write) || !way_ok(&x->h2d) || !way_ok(&x->d2h) ||
        !is_rate(x->io_cores) || !is_rate(x->disk_s) || !is_rate(x->copy_s))
        return -EINVAL;
    return add_curves(p->curves[0], &x->host) && add_curves(p->curves[1], &x->gpu) ? 0 : -EINVAL;
}

/* ---- rates of kernels */

static void say_outside(struct ps_pricer *p, enum ps_curve_kind kind, bool on_gpu,
                        enum ps_dtype type, double size, double x)
{
    static const char *const words[PS_CURVE__KINDS][2] = {
        [PS_CURVE_LINEAR] = { "linear layers: rows", "inputs" },
        [PS_CURVE_DECODE] = { "decode attention: entries", "head dimension" },
        [PS_CURVE_PROMPT] = { "prompt attention: tokens", "head dimension" },
    };
    if (!p->outside || p->outside->text[0]) return;
    (void) snprintf(p->outside->text, sizeof p->outside->text, "%s %.0f, %s, %s %.0f, on the %s",
                    words[kind][0], x, ps_dtype_name(type), words[kind][1], size,
                    on_gpu ? "GPU" : "host");
}

/* One point is a rate for all sizes, and has no ends. */
static double at(const struct ps_curve *c, double x, bool *outside)
{
    return ps_curve_at(c, x, c->n > 1 ? outside : NULL);
}

/* Between the curves of the nearest sizes below and above, straight in log size and log rate. One curve alone is for all sizes; several
 * reach to half and to twice what they were made for. 0: there is no curve for the type. */
static double find_rate(struct ps_pricer *p, enum ps_curve_kind kind, bool on_gpu,
                        enum ps_dtype type, double size, double x)
{
    const struct ps_curves *c = &p->curves[on_gpu][kind];
    int below = -1, above = -1, n = 0;
    for (int i = 0; i < (int) c->n; i++) {
        if (c->at[i].type != type) continue;
        n++;
        if (c->at[i].size <= size && (below < 0 || c->at[i].size > c->at[below].size)) below = i;
        if (c->at[i].size >= size && (above < 0 || c->at[i].size < c->at[above].size)) above = i;
    }
    bool outside = false;
    const int one = below >= 0 ? below : above;
    double rate = 0;
    if (!n) {
        outside = c->n > 0;
    } else if (below < 0 || above < 0 || c->at[below].size == c->at[above].size) {
        rate = at(c->at[one].over, x, &outside);
        if (n > 1 && (size < c->at[one].size / 2 || size > c->at[one].size * 2)) outside = true;
    } else {
        const double a = at(c->at[below].over, x, &outside), b = at(c->at[above].over, x, &outside);
        rate = a * pow(b / a,
                       log(size / c->at[below].size) / log(c->at[above].size / c->at[below].size));
    }
    if (outside) say_outside(p, kind, on_gpu, type, size, x);
    return rate;
}

/* The same few sizes come again and again. */
static double rate_of(struct ps_pricer *p, enum ps_curve_kind kind, bool on_gpu, enum ps_dtype type,
                      uint32_t size, uint32_t x)
{
    const uint64_t a = (uint64_t) x << 32 | size,
                   b = UINT64_C(1) << 32 | (uint64_t) type << 16 | (uint64_t) kind << 8 | on_gpu;
    const uint64_t h = (a * 0x9E3779B97F4A7C15u) ^ (b * 0xC2B2AE3D27D4EB4Fu);
    const size_t i = (h >> 40) % PS_PRICES_KEPT;
    if (p->kept[i].key[0] == a && p->kept[i].key[1] == b) return p->kept[i].rate;
    p->kept[i].rate = find_rate(p, kind, on_gpu, type, size, x);
    p->kept[i].key[0] = a;
    p->kept[i].key[1] = b;
    return p->kept[i].rate;
}

static double over(double work, double rate) { return rate > 0 ? work / rate : 0; }

static double coarse(const struct ps_worker_rates *w, const struct ps_cost *c)
{
    return fmax(over(c->flops, w->flops), over(c->bytes, w->mem));
}

static double linear_s(struct ps_pricer *p, const struct ps_worker_rates *w, bool on_gpu,
                       const struct ps_task *t)
{
    const struct ps_linear *a = (const void *) t->args;
    const double rate = rate_of(p, PS_CURVE_LINEAR, on_gpu, a->wtype, a->k, a->m);
    const double more = a->residual ? over(4.0 * a->m * a->n, w->residual) : 0;
    return rate > 0 ? t->cost.flops / rate + more : coarse(w, &t->cost);
}

/* Of a KV head: see struct ps_worker_rates. */
static double gap_s(const struct ps_worker_rates *w, const struct ps_attn_decode *a,
                    const struct ps_decode_row *r)
{
    const double room = r->slab.cap > r->len + 1 ? r->slab.cap - r->len - 1.0 : 0;
    return w->gap_s * fmin(room * a->d * (double) ps_dtype_bytes(a->kv_type) / 4096, 1);
}

static double decode_s(struct ps_pricer *p, const struct ps_worker_rates *w, bool on_gpu,
                       const struct ps_task *t)
{
    const struct ps_attn_decode *a = (const void *) t->args;
    const double entry = 2.0 * a->kv_heads * a->d * (double) ps_dtype_bytes(a->kv_type);
    double s = 0, rate = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < a->n_rows; i++) {
        const uint32_t n = a->rows[i].len + 1;
        if (n != last) rate = rate_of(p, PS_CURVE_DECODE, on_gpu, a->kv_type, a->d, n);
        if (!(rate > 0)) return coarse(w, &t->cost);
        last = n;
        const double longer = a->rows[i].slab.score && w->scores > 0 ? w->scores : 1;
        s += n * entry * longer / rate + a->kv_heads * gap_s(w, a, &a->rows[i]);
    }
    return s;
}

static double prompt_s(struct ps_pricer *p, const struct ps_worker_rates *w, bool on_gpu,
                       const struct ps_task *t)
{
    const struct ps_attn_prompt *a = (const void *) t->args;
    double s = 0;
    for (uint32_t i = 0; i < a->n_seqs; i++) {
        struct ps_attn_prompt one = *a;
        const struct ps_prompt_seq *q = &a->seqs[i];
        const double rate =
            rate_of(p, PS_CURVE_PROMPT, on_gpu, a->kv_type, a->d, q->first + q->rows);
        if (!(rate > 0)) return coarse(w, &t->cost);
        one.seqs = q;
        one.n_seqs = 1;
        s += ps_op_cost(PS_OP_attn_prompt, &one).flops / rate;
    }
    return s;
}

static double kernel_s(struct ps_pricer *p, const struct ps_worker_rates *w, bool on_gpu,
                       const struct ps_task *t)
{
    const enum ps_op op = t->kern->op;
    if (op == PS_OP_linear) return linear_s(p, w, on_gpu, t);
    if (op == PS_OP_attn_decode) return decode_s(p, w, on_gpu, t);
    if (op == PS_OP_attn_prompt) return prompt_s(p, w, on_gpu, t);
    return w->op[op] > 0 ? t->cost.bytes / w->op[op] : coarse(w, &t->cost);
}

/* ---- tasks */

static double at_most_1(double x) { return x < 1 ? x : 1; }

/* `cores` of the machine's for the whole time, and so many bytes of its memory. */
static void use_host(const struct ps_profile *x, double cores, double bytes, struct ps_price *ret)
{
    const double there = fmax(x->cores, x->threads);
    if (!(ret->solo_s > 0)) return;
    ret->use[PS_SHARED_CORES] = at_most_1(over(cores, there));
    ret->use[PS_SHARED_DRAM] = at_most_1(over(bytes, x->host.mem) / ret->solo_s);
}

static void use_way(enum ps_shared way, double s, struct ps_price *ret)
{
    if (ret->solo_s > 0) ret->use[way] = at_most_1(s / ret->solo_s);
}

/* Behind COMPUTE are all threads; beside a GPU, they are behind HOST. */
static double threads_of(const struct ps_pricer *p, enum ps_q q)
{
    return q == PS_Q_COMPUTE || p->gpu ? p->profile->threads : 1;
}

static void price_kernel(struct ps_pricer *p, enum ps_q q, const struct ps_task *t,
                         struct ps_price *ret)
{
    const bool on_gpu = q == PS_Q_COMPUTE && p->gpu;
    const struct ps_worker_rates *w = on_gpu ? &p->profile->gpu : &p->profile->host;
    ret->solo_s = w->task_s + kernel_s(p, w, on_gpu, t);
    if (on_gpu || !ps_pool_alone(&t->cost)) ret->solo_s += w->spread_s;
    if (!on_gpu) use_host(p->profile, threads_of(p, q), t->cost.bytes, ret);
}

/* Rows that touch on both sides are one transfer. */
static double transfers(const struct ps_rect *r)
{
    const bool one = r->rows == 1 || (r->dst_pitch == r->row_bytes && r->src_pitch == r->row_bytes);
    return one ? 1 : (double) r->rows;
}

static void price_disk(const struct ps_pricer *p, bool read, const struct ps_task *t,
                       struct ps_price *ret)
{
    const struct ps_profile *x = p->profile;
    const struct ps_way *w = read ? &x->disk_read : &x->disk_write;
    const double s = over(t->cost.bytes, w->alone);
    ret->ios = fmax(transfers(&t->rect), ceil(t->cost.bytes / PS_IO_BYTES));
    ret->delay_s = w->delay_s;
    ret->busy_delay_s = fmax(w->busy_delay_s, w->delay_s);
    ret->behind = w->behind;
    ret->solo_s = x->disk_s * transfers(&t->rect) + s;
    if (ret->solo_s > 0) use_host(x, x->io_cores * s / ret->solo_s, t->cost.bytes, ret);
    use_way(read ? PS_SHARED_READ : PS_SHARED_WRITE, s, ret);
}

static void price_link(const struct ps_pricer *p, bool up, const struct ps_task *t,
                       struct ps_price *ret)
{
    const struct ps_profile *x = p->profile;
    const double s = over(t->cost.bytes, up ? x->h2d.alone : x->d2h.alone);
    ret->solo_s = x->copy_s + s;
    use_host(x, 0, t->cost.bytes, ret);
    use_way(up ? PS_SHARED_UP : PS_SHARED_DOWN, s, ret);
}

/* Within the host's memory, or the GPU's. */
static void price_copy(const struct ps_pricer *p, enum ps_q q, const struct ps_task *t,
                       struct ps_price *ret)
{
    const struct ps_profile *x = p->profile;
    const double both = 2 * t->cost.bytes;
    const struct ps_worker_rates *w = q == PS_Q_COMPUTE ? &x->gpu : &x->host;
    ret->solo_s =
        (q == PS_Q_COMPUTE ? x->copy_s : w->task_s) + over(both, w->copy > 0 ? w->copy : w->mem);
    if (q == PS_Q_HOST) use_host(x, 1, both, ret);
}

void ps_price_task(struct ps_pricer *p, enum ps_q q, const struct ps_task *t, struct ps_price *ret)
{
    *ret = (struct ps_price) { 0 };
    if (t->kern)
        price_kernel(p, q, t, ret);
    else if (q == PS_Q_READ || q == PS_Q_WRITE)
        price_disk(p, q == PS_Q_READ, t, ret);
    else if (q == PS_Q_H2D || q == PS_Q_UP || q == PS_Q_D2H)
        price_link(p, q != PS_Q_D2H, t, ret);
    else
        price_copy(p, q, t, ret);
}

/* What is left of a way whose rate is that one. */
static double left_of(const struct ps_way *w, double rate)
{
    return w->alone > 0 && rate > 0 ? at_most_1(rate / w->alone) : 1;
}
static double beside(const struct ps_way *w) { return left_of(w, w->beside); }

void ps_price_room(const struct ps_pricer *p, unsigned queues, double ret[PS_SHARED__COUNT])
{
    const struct ps_profile *x = p->profile;
    const unsigned up = 1u << PS_Q_H2D | 1u << PS_Q_UP, down = 1u << PS_Q_D2H,
                   read = 1u << PS_Q_READ, write = 1u << PS_Q_WRITE,
                   kernels = 1u << (p->gpu ? PS_Q_HOST : PS_Q_COMPUTE);
    for (int i = 0; i < PS_SHARED__COUNT; i++) ret[i] = 1;
    if (queues & read && queues & write) {
        ret[PS_SHARED_READ] = beside(&x->disk_read);
        ret[PS_SHARED_WRITE] = beside(&x->disk_write);
    }
    if (queues & kernels) ret[PS_SHARED_READ] *= left_of(&x->disk_read, x->disk_read.busy);
    if (queues & up && queues & down) {
        ret[PS_SHARED_UP] = beside(&x->h2d);
        ret[PS_SHARED_DOWN] = beside(&x->d2h);
    }
}
