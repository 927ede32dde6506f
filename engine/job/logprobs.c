/* SPDX-License-Identifier: Apache-2.0 */
/* The "logprobs" object: four lists over the same tokens, so four readings of the tape. With echo the prompt's tokens come
 * first, and the very first has no log-probability. */
#include "engine/base/ps_utf8.h"
#include "engine/job/record.h"
#include <stdio.h>
#include <string.h>

/* All tokens of the object in turn. */
struct tokens {
    struct ps_recorder *r;
    const struct ps_slot *s;
    struct ps_tape_reader tape;
    uint32_t i, n, n_prompt; /* n_prompt: of them the prompt's */
    bool scored;             /* this one has a log-probability */
    struct ps_tape_entry e;
};

static void first_token(struct tokens *t, struct ps_recorder *r, const struct ps_slot *s)
{
    *t = (struct tokens) { .r = r, .s = s, .n_prompt = s->head.echo ? s->head.n_prompt : 0 };
    t->n = t->n_prompt + s->n_new;
    ps_tape_rewind(&s->tape, r->read, r->read_cap, &t->tape);
}

/* 1 with the next one in t->e, 0 at the end, or an error. */
static int next_token(struct tokens *t)
{
    if (t->i == t->n) return 0;
    t->scored = t->i > 0 || !t->n_prompt;
    if (!t->scored) t->e = (struct ps_tape_entry) { .token = t->s->ids[0] };
    int err = t->scored ? ps_tape_next(&t->tape, &t->e) : 0;
    if (err < 0) return err;
    t->i++;
    return 1;
}

/* A token's own text, valid UTF-8. */
static struct ps_jstr token_text(struct ps_recorder *r, const struct ps_slot *s, int32_t id,
                                 char *buf)
{
    struct ps_jstr t = { buf, 0 };
    if (s->head.tokens_as_ids || !r->tok) {
        t.len = (size_t) snprintf(buf, r->text_cap, "token_id:%d", id);
        return t;
    }
    struct ps_decoder d = { .tok = r->tok };
    t.len = ps_decode(&d, id, buf);
    t.len += ps_decode_end(&d, buf + t.len);
    return t;
}

static void put_pair(struct ps_jout *o, bool *first, struct ps_jstr text, float logprob)
{
    ps_jout_text(o, *first ? "" : ", ");
    *first = false;
    ps_jout_string(o, text.s, text.len);
    ps_jout_text(o, ": ");
    ps_jout_f32(o, logprob);
}

/* The best, then the chosen one; of equal texts the first, which is the better. */
static void put_top(struct ps_recorder *r, const struct ps_slot *s, const struct ps_tape_entry *e,
                    struct ps_jout *o)
{
    struct ps_jstr text[PS_TOP_MAX + 1];
    bool first = true;
    ps_jout_text(o, "{");
    for (uint32_t i = 0; i <= e->n_top; i++) {
        int32_t id = i < e->n_top ? e->top_id[i] : e->token;
        bool seen = false;
        text[i] = token_text(r, s, id, r->tops + i * r->text_cap);
        for (uint32_t j = 0; j < i; j++)
            seen |= text[j].len == text[i].len && !memcmp(text[j].s, text[i].s, text[i].len);
        if (!seen) put_pair(o, &first, text[i], i < e->n_top ? e->top_logprob[i] : e->logprob);
    }
    ps_jout_text(o, "}");
}

enum list { TOKENS, LOGPROBS, TOPS };

static int put_list(struct ps_recorder *r, const struct ps_slot *s, enum list what,
                    struct ps_jout *o)
{
    struct tokens t;
    int err;
    first_token(&t, r, s);
    ps_jout_text(o, "[");
    while ((err = next_token(&t)) > 0) {
        if (t.i > 1) ps_jout_text(o, ", ");
        if (what == TOKENS) {
            struct ps_jstr text = token_text(r, s, t.e.token, r->text);
            ps_jout_string(o, text.s, text.len);
        } else if (!t.scored) {
            ps_jout_text(o, "null");
        } else if (what == LOGPROBS) {
            ps_jout_f32(o, t.e.logprob);
        } else {
            put_top(r, s, &t.e, o);
        }
    }
    ps_jout_text(o, "]");
    return err;
}

/* Where each token's text begins, in code points of "text". A token that leaves a character unfinished adds nothing; the one
 * that completes it adds the character. What the tokenizer put in front of the prompt is not in the text. */
static int put_offsets(struct ps_recorder *r, const struct ps_slot *s, struct ps_jout *o)
{
    struct tokens t;
    struct ps_decoder d = { .tok = r->tok, .skip_special = !s->head.text_prompt };
    uint64_t at = 0;
    int err;
    first_token(&t, r, s);
    ps_jout_text(o, "[");
    while ((err = next_token(&t)) > 0) {
        uint32_t i = t.i - 1;
        if (i) ps_jout_text(o, ", ");
        if (i == t.n_prompt) {
            if (t.n_prompt && r->tok) at += ps_utf8_points(r->text, ps_decode_end(&d, r->text));
            if (t.n_prompt && s->head.text_prompt) at = s->head.prompt_points;
            d = (struct ps_decoder) { .tok = r->tok, .skip_special = true };
        }
        ps_jout_u64(o, at);
        bool prefix = i < t.n_prompt && i < s->head.prefix;
        if (r->tok && !prefix) at += ps_utf8_points(r->text, ps_decode(&d, t.e.token, r->text));
    }
    ps_jout_text(o, "]");
    return err;
}

int ps_record_logprobs(struct ps_recorder *r, const struct ps_slot *s, struct ps_jout *o)
{
    static const char *const keys[] = { "{\"tokens\": ", ", \"token_logprobs\": ",
                                        ", \"top_logprobs\": " };
    int err = 0;
    for (int i = TOKENS; !err && i <= TOPS; i++) {
        ps_jout_text(o, keys[i]);
        err = put_list(r, s, (enum list) i, o);
    }
    ps_jout_text(o, ", \"text_offset\": ");
    if (!err) err = put_offsets(r, s, o);
    ps_jout_text(o, "}");
    return err;
}
