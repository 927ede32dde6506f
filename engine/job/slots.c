/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/slots.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"

enum { TAPES_BYTES = 16 << 20, TAPE_MIN = 1 << 10, TAPE_MAX = 64 << 10 };

/* Offsets of a slot's parts inside its stripe. */
struct stripe {
    size_t ids, stop_ids, fail, stop_bytes, tape, bytes;
    uint32_t tape_cap;
};

static struct stripe layout(const struct ps_slots_cfg *c)
{
    struct stripe s = { 0 };
    uint64_t whole = (uint64_t) ps_tape_entry_bytes(!c->logprobs, c->most_top) * c->longest_total;
    uint32_t cap = TAPES_BYTES / (c->n ? c->n : 1);
    if (cap > TAPE_MAX) cap = TAPE_MAX;
    if (cap < TAPE_MIN) cap = TAPE_MIN;
    s.tape_cap = whole < cap ? (uint32_t) whole : cap;
    if (s.tape_cap < 256) s.tape_cap = 256; /* one entry at least */
    s.stop_ids = (size_t) c->longest_prompt * sizeof(int32_t);
    s.fail = s.stop_ids + ((size_t) c->most_stop_ids + 1) * sizeof(int32_t);
    s.stop_bytes = s.fail + (size_t) c->most_stop_bytes * sizeof(uint16_t);
    s.tape = s.stop_bytes + c->most_stop_bytes;
    s.bytes = PS_ROUND_UP(s.tape + s.tape_cap, 64);
    return s;
}

int ps_slots_open(const struct ps_slots_cfg *cfg, struct ps_slots *ret, struct ps_detail *dt)
{
    struct stripe l = layout(cfg);
    uint64_t region = PS_ROUND_UP(
        (uint64_t) ps_tape_entry_bytes(!cfg->logprobs, cfg->most_top) * cfg->longest_total, 4096);
    *ret = (struct ps_slots) { .n = cfg->n, .fd = -1 };
    ret->slots = ps_calloc(cfg->n, sizeof *ret->slots);
    ret->mem = ps_calloc(cfg->n, l.bytes);
    if (!ret->slots || !ret->mem) {
        ps_slots_close(ret);
        return -ENOMEM;
    }
    ret->fd = ps_temp_beside(cfg->beside, dt);
    if (ret->fd < 0) {
        int r = ret->fd;
        ps_slots_close(ret);
        return r;
    }
    for (uint32_t i = 0; i < cfg->n; i++) {
        struct ps_slot *s = &ret->slots[i];
        char *p = (char *) ret->mem + l.bytes * i;
        s->ids = (int32_t *) (void *) p;
        s->stop_ids = (int32_t *) (void *) (p + l.stop_ids);
        s->stop_fail = (uint16_t *) (void *) (p + l.fail);
        s->stop_bytes = p + l.stop_bytes;
        s->tape = (struct ps_tape) {
            .buf = (uint8_t *) p + l.tape, .cap = l.tape_cap, .fd = ret->fd, .region = region * i
        };
        ps_slots_give(ret, s);
    }
    return 0;
}

void ps_slots_close(struct ps_slots *s)
{
    free(s->slots);
    free(s->mem);
    if (s->fd >= 0) (void) close(s->fd);
    *s = (struct ps_slots) { .fd = -1 };
}

void ps_slots_give(struct ps_slots *s, struct ps_slot *slot)
{
    slot->next = s->free;
    s->free = slot;
}

static int load(struct ps_slot *s, const struct ps_spool *spool, uint64_t off)
{
    int fd = spool->out.fd, r = ps_spool_head(spool, off, &s->head);
    const struct ps_spool_head *h = &s->head;
    if (r < 0) return r;
    r = ps_pread_all(fd, s->ids, h->n_prompt * sizeof(int32_t), ps_spool_ids_off(off));
    if (!r)
        r = ps_pread_all(fd, s->stop_ids + s->n_stop_ids, h->n_stop_ids * sizeof(int32_t),
                         ps_spool_stop_ids_off(off, h));
    s->n_stop_ids += h->n_stop_ids;
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < h->n_stop; i++) bytes += h->stop_len[i];
    if (!r) r = ps_pread_all(fd, s->stop_bytes, bytes, ps_spool_stops_off(off, h));
    return r;
}

int ps_slots_take(struct ps_slots *pool, const struct ps_spool *spool, uint64_t off, uint32_t index,
                  int32_t eos, const struct ps_tok *tok, struct ps_slot **ret)
{
    struct ps_slot *s = pool->free;
    *ret = NULL;
    if (!s) return 0;
    s->n_stop_ids = 0;
    int r = ps_spool_head(spool, off, &s->head);
    if (r < 0) return r;
    if (eos >= 0 && !s->head.ignore_eos) s->stop_ids[s->n_stop_ids++] = eos;
    r = load(s, spool, off);
    if (r < 0) return r;
    const struct ps_spool_head *h = &s->head;
    uint32_t n_top = h->logprobs > 0 ? (uint32_t) h->logprobs : 0;
    pool->free = s->next;
    s->index = index;
    s->off = off;
    s->cut = UINT64_MAX;
    s->n_new = 0;
    s->stopped = s->last_hidden = false;
    s->dec = (struct ps_decoder) { .tok = tok, .skip_special = true };
    ps_stops_begin(&s->stops, h->n_stop, h->stop_len, s->stop_bytes, s->stop_fail);
    ps_tape_begin(&s->tape, h->logprobs < 0, n_top);
    s->seq = (struct ps_seq) {
        .prompt = s->ids,
        .n_prompt = h->n_prompt,
        .max_tokens = h->max_tokens,
        .min_tokens = h->min_tokens,
        .banned = s->stop_ids,
        .n_banned = h->min_tokens ? s->n_stop_ids : 0,
        .key = h->key,
        .temperature = h->temperature,
        .top_p = h->top_p,
        .top_k = h->top_k,
        .n_top = n_top,
        .score_prompt = h->echo && h->logprobs >= 0,
        .ud = s,
    };
    *ret = s;
    return 0;
}

int ps_slot_token(struct ps_slot *s, uint32_t index, const struct ps_sample_out *out, char *text,
                  bool *ret_end)
{
    int r = ps_tape_put(&s->tape, out);
    if (r < 0) return r;
    s->n_new = index + 1;
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == out->token) s->stopped = s->last_hidden = true;
    if (!s->stopped && s->stops.n) {
        size_t n = ps_decode(&s->dec, out->token, text);
        s->stopped = ps_stops_feed(&s->stops, text, n, s->n_new < s->head.min_tokens, &s->cut);
    }
    *ret_end = s->stopped || s->n_new >= s->head.max_tokens;
    return 0;
}
