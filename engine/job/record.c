/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/record.h"
#include "engine/base/ps_mem.h"
#include <stdio.h>
#include <string.h>

enum { READ_CAP = 64 << 10 };

int ps_recorder_init(struct ps_recorder *r)
{
    r->text_cap = 32 + PS_DECODE_SLACK + (r->tok ? ps_tok_longest(r->tok) : 0);
    r->read_cap = READ_CAP;
    r->text = ps_calloc(1, r->text_cap);
    r->tops = ps_calloc(PS_TOP_MAX + 1, r->text_cap);
    r->read = ps_calloc(1, r->read_cap);
    if (r->text && r->tops && r->read) return 0;
    ps_recorder_done(r);
    return -ENOMEM;
}

void ps_recorder_done(struct ps_recorder *r)
{
    free(r->text);
    free(r->tops);
    free(r->read);
    r->text = r->tops = NULL;
    r->read = NULL;
}

/* PREFIX, the job's hash and the line. */
static void put_id(struct ps_jout *o, const char *prefix, uint64_t job, uint32_t line)
{
    char t[64];
    (void) snprintf(t, sizeof t, "\"%s%016llx-%u\"", prefix, (unsigned long long) job, line);
    ps_jout_text(o, t);
}

static int put_spooled(struct ps_recorder *r, uint64_t off, const struct ps_spool_head *h,
                       enum ps_spool_text t, struct ps_jout *o)
{
    ps_jout_text(o, "\"");
    int e = ps_spool_copy(r->spool, off, h, t, o);
    ps_jout_text(o, "\"");
    return e;
}

static int begin(struct ps_recorder *r, uint64_t off, const struct ps_spool_head *h,
                 struct ps_jout *o)
{
    ps_jout_text(o, "{\"id\": ");
    put_id(o, "batch_req_", r->job, h->line);
    ps_jout_text(o, ", \"custom_id\": ");
    return put_spooled(r, off, h, PS_T_CUSTOM_ID, o);
}

/* The prompt's text, for echo: as it was given, or what its ids stand for. */
static int put_prompt(struct ps_recorder *r, const struct ps_slot *s, struct ps_jout *o)
{
    if (s->head.text_prompt) return ps_spool_copy(r->spool, s->off, &s->head, PS_T_PROMPT, o);
    if (!r->tok) return 0;
    struct ps_decoder d = { .tok = r->tok, .skip_special = true };
    for (uint32_t i = 0; i < s->head.n_prompt; i++)
        ps_jout_escaped(o, r->text, ps_decode(&d, s->ids[i], r->text));
    ps_jout_escaped(o, r->text, ps_decode_end(&d, r->text));
    return 0;
}

/* Skips the scored prompt's entries, so that the next one is the first generated token. */
static int to_generated(struct ps_recorder *r, const struct ps_slot *s, struct ps_tape_reader *tr)
{
    struct ps_tape_entry e;
    ps_tape_rewind(&s->tape, r->read, r->read_cap, tr);
    int err = 0;
    for (uint32_t i = s->n_new; !err && i < s->tape.count; i++) err = ps_tape_next(tr, &e);
    return err;
}

/* Generated text up to the cut, and without the token that ended it. */
static int put_text(struct ps_recorder *r, const struct ps_slot *s, struct ps_jout *o)
{
    struct ps_tape_reader tr;
    struct ps_tape_entry e;
    struct ps_decoder d = { .tok = r->tok, .skip_special = true };
    if (!r->tok) return 0;
    uint64_t left = s->cut;
    uint32_t n = s->n_new - s->last_hidden;
    int err = to_generated(r, s, &tr);
    for (uint32_t i = 0; !err && left && i <= n; i++) {
        size_t len;
        if (i < n) {
            err = ps_tape_next(&tr, &e);
            if (err < 0) break;
            len = ps_decode(&d, e.token, r->text);
        } else {
            len = ps_decode_end(&d, r->text);
        }
        if (len > left) len = (size_t) left;
        ps_jout_escaped(o, r->text, len);
        left -= len;
    }
    return err;
}

static int put_ids(struct ps_recorder *r, const struct ps_slot *s, struct ps_jout *o)
{
    if (!s->head.return_ids) {
        ps_jout_text(o, ", \"token_ids\": null, \"prompt_token_ids\": null");
        return 0;
    }
    struct ps_tape_reader tr;
    struct ps_tape_entry e;
    ps_jout_text(o, ", \"token_ids\": [");
    int err = to_generated(r, s, &tr);
    for (uint32_t i = 0; !err && i < s->n_new; i++) {
        err = ps_tape_next(&tr, &e);
        if (err < 0) break;
        if (i) ps_jout_text(o, ", ");
        ps_jout_i64(o, e.token);
    }
    ps_jout_text(o, "], \"prompt_token_ids\": [");
    for (uint32_t i = 0; i < s->head.n_prompt; i++) {
        if (i) ps_jout_text(o, ", ");
        ps_jout_i64(o, s->ids[i]);
    }
    ps_jout_text(o, "]");
    return err;
}

static int put_choice(struct ps_recorder *r, const struct ps_slot *s, struct ps_jout *o)
{
    ps_jout_text(o, ", \"choices\": [{\"index\": 0, \"text\": \"");
    int err = s->head.echo ? put_prompt(r, s, o) : 0;
    if (!err) err = put_text(r, s, o);
    ps_jout_text(o, "\"");
    if (!err) err = put_ids(r, s, o);
    ps_jout_text(o, ", \"logprobs\": ");
    if (s->head.logprobs < 0)
        ps_jout_text(o, "null");
    else if (!err)
        err = ps_record_logprobs(r, s, o);
    ps_jout_text(o, s->stopped ? ", \"finish_reason\": \"stop\"}]"
                               : ", \"finish_reason\": \"length\"}]");
    return err;
}

static int put_body(struct ps_recorder *r, const struct ps_slot *s, struct ps_jout *o)
{
    const struct ps_spool_head *h = &s->head;
    int err = 0;
    ps_jout_text(o, "{\"id\": ");
    put_id(o, "cmpl-", r->job, h->line);
    ps_jout_text(o, ", \"object\": \"text_completion\", \"created\": ");
    ps_jout_i64(o, r->created);
    ps_jout_text(o, ", \"model\": ");
    if (h->has_model)
        err = put_spooled(r, s->off, h, PS_T_MODEL, o);
    else
        ps_jout_string(o, r->model, strlen(r->model));
    if (h->has_user && !err) {
        ps_jout_text(o, ", \"user\": ");
        err = put_spooled(r, s->off, h, PS_T_USER, o);
    }
    if (!err) err = put_choice(r, s, o);
    ps_jout_text(o, ", \"usage\": {\"prompt_tokens\": ");
    ps_jout_u64(o, h->n_prompt);
    ps_jout_text(o, ", \"completion_tokens\": ");
    ps_jout_u64(o, s->n_new);
    ps_jout_text(o, ", \"total_tokens\": ");
    ps_jout_u64(o, (uint64_t) h->n_prompt + s->n_new);
    ps_jout_text(o, "}}");
    return err;
}

int ps_record_result(struct ps_recorder *r, const struct ps_slot *s, struct ps_jout *o)
{
    int err = begin(r, s->off, &s->head, o);
    ps_jout_text(o, ", \"response\": {\"status_code\": 200, \"request_id\": ");
    put_id(o, "req_", r->job, s->head.line);
    ps_jout_text(o, ", \"body\": ");
    if (!err) err = put_body(r, s, o);
    ps_jout_text(o, "}, \"error\": null}\n");
    return err ? err : o->err;
}

int ps_record_error(struct ps_recorder *r, uint64_t off, const struct ps_spool_head *h,
                    struct ps_jout *o)
{
    const char *code = ps_line_error_name((enum ps_line_error) h->error);
    int err = begin(r, off, h, o);
    ps_jout_text(o, ", \"response\": null, \"error\": {\"code\": \"");
    ps_jout_text(o, code);
    ps_jout_text(o, "\", \"message\": ");
    if (!err) err = put_spooled(r, off, h, PS_T_MESSAGE, o);
    ps_jout_text(o, ", \"line\": ");
    ps_jout_u64(o, h->line);
    ps_jout_text(o, "}}\n");
    return err ? err : o->err;
}

int ps_record_kept(struct ps_recorder *r, const struct ps_slot *s, const struct ps_kept *k,
                   struct ps_jout *o)
{
    ps_jout_text(o, "{\"custom_id\": ");
    int err = put_spooled(r, s->off, &s->head, PS_T_CUSTOM_ID, o);
    ps_jout_text(o, ", \"layer\": ");
    ps_jout_u64(o, k->layer);
    ps_jout_text(o, ", \"tokens_fed\": ");
    ps_jout_u64(o, k->tokens_fed);
    ps_jout_text(o, ", \"kept\": [");
    for (size_t i = 0, n = (size_t) k->kv_heads * k->n; i < n || i < k->kv_heads; i++) {
        if (!k->n) {
            ps_jout_text(o, i ? ", []" : "[]");
            continue;
        }
        if (i % k->n == 0) ps_jout_text(o, i ? ", [" : "[");
        ps_jout_i64(o, k->pos[i]);
        ps_jout_text(o, i % k->n == k->n - 1 ? "]" : ", ");
    }
    ps_jout_text(o, "], \"scores\": ");
    if (!k->score) ps_jout_text(o, "null}\n");
    if (!k->score) return err ? err : o->err;
    ps_jout_text(o, "[");
    for (size_t h = 0; h < k->kv_heads; h++) {
        ps_jout_text(o, h ? ", [" : "[");
        for (size_t i = 0; i < k->n; i++) {
            if (i) ps_jout_text(o, ", ");
            ps_jout_f32(o, k->score[h * k->n + i]);
        }
        ps_jout_text(o, "]");
    }
    ps_jout_text(o, "]}\n");
    return err ? err : o->err;
}
