/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_mem.h"
#include "engine/sched/sched.h"
#include <string.h>

static struct ps_buf host_buf(void *p, uint64_t len, enum ps_kind kind)
{
    return (struct ps_buf) { .where = PS_HOST, .kind = kind, .p = p, .len_bytes = len };
}

int ps_slots_init(struct ps_sched *s)
{
    const uint32_t mbs = s->plan->micro_batches, slots = s->plan->slots, rows = s->d->mb_rows;
    s->mb = ps_calloc(mbs, sizeof *s->mb);
    if (!s->mb) return ps_fail(s->dt, -ENOMEM, "slots: out of memory");
    for (uint32_t k = 0; k < mbs; k++) {
        struct ps_mb *b = &s->mb[k];
        b->slots = ps_calloc(slots, sizeof *b->slots);
        b->decode = ps_calloc(slots, sizeof *b->decode);
        b->prompt = ps_calloc(slots, sizeof *b->prompt);
        b->by_run = ps_calloc(slots, sizeof *b->by_run);
        if (!b->slots || !b->decode || !b->prompt || !b->by_run)
            return ps_fail(s->dt, -ENOMEM, "slots: out of memory");
        size_t at = (size_t) k * rows;
        b->ids = host_buf(s->l.ids + at, rows * sizeof(int32_t), PS_KIND_OTHER);
        b->gather_ids = host_buf(s->l.gather_ids + at, rows * sizeof(int32_t), PS_KIND_OTHER);
        b->outs =
            host_buf(s->l.outs + (size_t) k * slots, slots * sizeof *s->l.outs, PS_KIND_OTHER);
    }
    return 0;
}

void ps_slots_done(struct ps_sched *s)
{
    for (uint32_t k = 0; s->mb && k < s->plan->micro_batches; k++) {
        free(s->mb[k].slots);
        free(s->mb[k].decode);
        free(s->mb[k].prompt);
        free(s->mb[k].by_run);
    }
    free(s->mb);
}

/* ---- runs of the KV pool: first fit between the runs in use, which are kept in order */

static bool take_run(struct ps_sched *s, struct ps_mb *b, uint32_t index, uint32_t cap)
{
    uint32_t at = 0, i = 0;
    for (; i < b->n_runs; i++) {
        const struct ps_slot *t = &b->slots[b->by_run[i]];
        if (t->e0 - at >= cap) break;
        at = t->e0 + t->cap;
    }
    if (i == b->n_runs && s->d->pool - at < cap) return false;
    memmove(b->by_run + i + 1, b->by_run + i, (b->n_runs - i) * sizeof *b->by_run);
    b->by_run[i] = index;
    b->n_runs++;
    b->slots[index].e0 = at;
    b->slots[index].cap = cap;
    return true;
}

static void free_slot(struct ps_mb *b, uint32_t index)
{
    uint32_t i = 0;
    while (b->by_run[i] != index) i++;
    b->n_runs--;
    memmove(b->by_run + i, b->by_run + i + 1, (b->n_runs - i) * sizeof *b->by_run);
    b->slots[index] = (struct ps_slot) { .state = PS_SLOT_FREE };
}

/* Its room stays taken, with nothing in it. */
static void keep_slot(struct ps_slot *t)
{
    *t = (struct ps_slot) { .state = PS_SLOT_ENDED, .e0 = t->e0, .cap = t->cap };
}

void ps_slots_clear(struct ps_sched *s)
{
    for (uint32_t k = 0; k < s->plan->micro_batches; k++) {
        s->mb[k].n_runs = 0;
        memset(s->mb[k].slots, 0, s->plan->slots * sizeof *s->mb[k].slots);
    }
}

/* ---- admission */

static int fetch(struct ps_sched *s)
{
    if (s->pending || s->dry) return 0;
    int r = s->io->next(s->io->ud, &s->pending);
    if (r < 0) return r;
    if (r == 0) {
        s->pending = NULL;
        s->dry = true;
    }
    return 0;
}

int ps_slots_more(struct ps_sched *s, bool *ret)
{
    *ret = true;
    for (uint32_t k = 0; k < s->plan->micro_batches; k++)
        for (uint32_t i = 0; i < s->plan->slots; i++) {
            const struct ps_slot *t = &s->mb[k].slots[i];
            if (t->seq && t->made + 1 < t->seq->max_tokens) return 0;
        }
    int r = fetch(s);
    *ret = s->pending;
    return r;
}

static int admit_one(struct ps_sched *s, struct ps_mb *b, uint32_t index, bool *ret_fits)
{
    struct ps_seq *q = s->pending;
    struct ps_kv_split split = s->plan->split;
    if (s->cfg->kv_config->budget_of == PS_BUDGET_OF_PROMPT) {
        int r = ps_kv_resolve(s->cfg->kv_config, q->n_prompt, q->n_prompt, &split, s->dt);
        if (r < 0) return r;
    }
    uint32_t feeds = q->n_prompt + (q->max_tokens ? q->max_tokens - 1 : 0);
    *ret_fits = take_run(s, b, index, ps_slab_cap(s->d, &split.keep, feeds));
    if (!*ret_fits) return 0;
    struct ps_slot *t = &b->slots[index];
    t->state = PS_SLOT_PROMPT;
    t->seq = q;
    t->keep = split.keep;
    s->pending = NULL;
    s->active++;
    b->prompt[b->n_prompt++] = index;
    return 0;
}

int ps_slots_admit(struct ps_sched *s, uint32_t k)
{
    struct ps_mb *b = &s->mb[k];
    uint64_t room = s->d->mb_prompt;
    b->n_prompt = 0;
    for (uint32_t i = 0; i < s->plan->slots && !s->stop; i++) {
        if (b->slots[i].state != PS_SLOT_FREE) continue;
        int r = fetch(s);
        if (r < 0) return r;
        if (!s->pending) break;
        uint32_t n = s->pending->n_prompt;
        if (n > room || n > s->prompt_budget) break;
        bool fits;
        r = admit_one(s, b, i, &fits);
        if (r < 0) return r;
        if (!fits) break;
        room -= n;
        s->prompt_budget -= n;
    }
    return 0;
}

static void fill_ids(const struct ps_sched *s, uint32_t k)
{
    const struct ps_mb *b = &s->mb[k];
    int32_t *ids = b->ids.p, *pos = s->l.ids_pos + (size_t) k * s->d->mb_rows;
    for (uint32_t i = 0; i < b->n_decode; i++) {
        const struct ps_slot *t = &b->slots[b->decode[i]];
        ids[t->row] = t->token;
        pos[t->row] = (int32_t) t->fed;
    }
    for (uint32_t i = 0; i < b->n_prompt; i++) {
        const struct ps_slot *t = &b->slots[b->prompt[i]];
        for (uint32_t j = 0; j < t->seq->n_prompt; j++) {
            ids[t->row + j] = t->seq->prompt[j];
            pos[t->row + j] = (int32_t) j;
        }
    }
}

void ps_slots_lay_rows(struct ps_sched *s, uint32_t k)
{
    struct ps_mb *b = &s->mb[k];
    b->n_decode = b->n_rows = 0;
    for (uint32_t i = 0; i < s->plan->slots; i++) {
        struct ps_slot *t = &b->slots[i];
        if (t->state != PS_SLOT_DECODE) continue;
        b->decode[b->n_decode++] = i;
        t->row = b->n_rows++;
    }
    for (uint32_t i = 0; i < b->n_prompt; i++) {
        struct ps_slot *t = &b->slots[b->prompt[i]];
        t->row = b->n_rows;
        b->n_rows += t->seq->n_prompt;
    }
    if (!ps_dev_is_sim(s->dev)) fill_ids(s, k);
}

void ps_slots_advance(struct ps_sched *s, uint32_t k)
{
    struct ps_mb *b = &s->mb[k];
    uint64_t heads = (uint64_t) s->shape->layers * s->shape->kv_heads;
    const bool disk = s->plan->kv_bytes[PS_TIER_DISK] > 0;
    for (uint32_t i = 0; i < b->n_decode; i++) {
        struct ps_slot *t = &b->slots[b->decode[i]];
        uint32_t len = ps_keep_cap(&t->keep, t->len + 1);
        bool merged = disk && ps_kv_merges(s, t, b->decode[i]);
        t->logged = merged ? 0 : t->logged + 1;
        if (merged) t->on_disk = len;
        s->stats.evictions += heads * (t->len + 1 - len);
        t->len = len;
        t->fed++;
    }
    for (uint32_t i = 0; i < b->n_prompt; i++) {
        struct ps_slot *t = &b->slots[b->prompt[i]];
        t->fed = t->seq->n_prompt;
        t->len = t->on_disk = ps_keep_cap(&t->keep, t->fed);
        t->logged = 0;
        s->stats.evictions += heads * (t->fed - t->len);
        s->stats.prompt_tokens += t->fed;
    }
}

/* ---- what comes out */

/* Sorts one head's entries by position: insertion from an almost sorted start is enough for `full`, and short for the rest. */
static void by_position(int32_t *pos, float *score, uint32_t n)
{
    for (uint32_t gap = n / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (uint32_t i = gap; i < n; i++) {
            int32_t p = pos[i];
            float a = score ? score[i] : 0;
            uint32_t j = i;
            for (; j >= gap && pos[j - gap] > p; j -= gap) {
                pos[j] = pos[j - gap];
                if (score) score[j] = score[j - gap];
            }
            pos[j] = p;
            if (score) score[j] = a;
        }
}

/* The slot's positions and scores where the host can read them. */
static int read_meta(struct ps_sched *s, uint32_t layer, uint32_t k, const struct ps_slot *t,
                     struct ps_slab *ret)
{
    struct ps_home *h = ps_kv_home(s, layer, k);
    *ret = ps_slab_of(s, t, NULL, h->pos, h->score);
    /* A token may be there before the prompt's compaction is done. */
    if (h->on_host) return ps_dev_wait(s->dev, &h->meta, false);
    float *score = ret->score ? s->l.from_gpu_score : NULL;
    int r = ps_kv_fetch_meta(s, &s->from_gpu, s->l.from_gpu_pos, score, &h->meta, ret->pos,
                             ret->score, (uint64_t) t->cap * s->shape->kv_heads);
    ret->pos = s->l.from_gpu_pos;
    ret->score = score;
    return r < 0 ? r : ps_dev_wait(s->dev, &s->from_gpu, false);
}

static int dump(struct ps_sched *s, uint32_t k, const struct ps_slot *t)
{
    const uint32_t heads = s->shape->kv_heads, n = t->len;
    for (uint32_t j = 0; j < s->shape->layers; j++) {
        struct ps_slab slab;
        int r = read_meta(s, j, k, t, &slab);
        if (r < 0) return r;
        float *score = slab.score ? s->l.dump_score : NULL;
        for (uint32_t h = 0; h < heads; h++) {
            memcpy(s->l.dump_pos + (size_t) h * n, slab.pos + (size_t) h * slab.cap,
                   n * sizeof(int32_t));
            if (score)
                memcpy(score + (size_t) h * n, slab.score + (size_t) h * slab.cap,
                       n * sizeof(float));
            by_position(s->l.dump_pos + (size_t) h * n, score ? score + (size_t) h * n : NULL, n);
        }
        struct ps_kept kept = { .layer = j,
                                .kv_heads = heads,
                                .n = n,
                                .tokens_fed = t->fed,
                                .pos = s->l.dump_pos,
                                .score = score };
        r = s->io->kept(s->io->ud, t->seq, &kept);
        if (r < 0) return r;
    }
    return 0;
}

static int end(struct ps_sched *s, uint32_t k, uint32_t index)
{
    struct ps_mb *b = &s->mb[k];
    struct ps_slot *t = &b->slots[index];
    int r = s->cfg->dump_kv && s->io->kept ? dump(s, k, t) : 0;
    if (r >= 0) r = s->io->end(s->io->ud, t->seq);
    if (s->how.no_continuous)
        keep_slot(t);
    else
        free_slot(b, index);
    s->active--;
    return r;
}

static void jump(struct ps_sched *s, struct ps_slot *t)
{
    const uint32_t n = s->io->jump ? s->io->jump(s->io->ud, t->seq, t->made) : 0;
    if (!n) return;
    t->made += n;
    t->fed += n;
    t->len = t->on_disk = ps_keep_cap(&t->keep, t->len + n);
    t->logged = 0;
}

static int take_token(struct ps_sched *s, uint32_t k, uint32_t index)
{
    struct ps_mb *b = &s->mb[k];
    struct ps_slot *t = &b->slots[index];
    if (!t->seq->max_tokens) return end(s, k, index);
    static const struct ps_sample_out simulated;
    const struct ps_sample_out *out =
        ps_dev_is_sim(s->dev) ? &simulated : (struct ps_sample_out *) b->outs.p + index;
    if (out->token < 0)
        return ps_fail(
            s->dt, -PS_ENUMERIC,
            "token %u of a sequence with %u prompt tokens: the logits hold NaN or infinity, or "
            "every token is "
            "banned; are the weights sound, and do their values suit f16 KV (try --kv-dtype f32)?",
            t->made, t->seq->n_prompt);
    bool last = false;
    int r = s->io->token(s->io->ud, t->seq, t->made, out, &last);
    if (r < 0) return r;
    s->stats.generated_tokens++;
    t->made++;
    t->token = out->token;
    t->state = PS_SLOT_DECODE;
    jump(s, t);
    return last || t->made >= t->seq->max_tokens ? end(s, k, index) : 0;
}

int ps_slots_wait(struct ps_sched *s, uint32_t k)
{
    int r = ps_dev_wait(s->dev, &s->mb[k].outs, false);
    return r < 0 ? r : ps_dev_wait(s->dev, &s->mb[k].ids, true);
}

int ps_slots_take_tokens(struct ps_sched *s, uint32_t k)
{
    struct ps_mb *b = &s->mb[k];
    int r = 0;
    if (!b->has_outs) return 0;
    const bool real = !ps_dev_is_sim(s->dev);
    uint64_t t0 = real ? ps_now_ns() : 0;
    b->has_outs = false;
    for (uint32_t i = 0; !r && i < b->n_decode; i++) r = take_token(s, k, b->decode[i]);
    for (uint32_t i = 0; !r && i < b->n_prompt; i++) r = take_token(s, k, b->prompt[i]);
    if (real) s->stats.host_s += (double) (ps_now_ns() - t0) * 1e-9;
    return r;
}
