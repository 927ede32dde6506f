/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/first_pass.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/base/ps_utf8.h"
#include "engine/job/lines.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

double ps_job_now_s(void)
{
    struct timespec t;
    (void) clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

struct pass {
    const struct ps_first_cfg *cfg;
    struct ps_spool *spool;
    struct ps_table *table;
    struct ps_first *ret;
    struct ps_encoder *enc;
    struct ps_request req;
    struct ps_jstr id; /* of the request at hand */
    char line_id[32];
};

static int same_id(void *ud, uint32_t other)
{
    struct pass *p = ud;
    struct ps_spool_head h;
    char buf[1024];
    uint64_t off;
    int r = ps_spool_flush(p->spool);
    if (!r) r = ps_table_off(p->table, other, &off);
    if (!r) r = ps_spool_head(p->spool, off, &h);
    if (r < 0) return r;
    if (h.text_len[PS_T_CUSTOM_ID] != p->id.len) return 0;
    uint64_t at = ps_spool_text_off(off, &h, PS_T_CUSTOM_ID);
    for (size_t i = 0; i < p->id.len; i += sizeof buf) {
        size_t n = p->id.len - i < sizeof buf ? p->id.len - i : sizeof buf;
        r = ps_pread_all(p->spool->out.fd, buf, n, at + i);
        if (r < 0) return r;
        if (memcmp(buf, p->id.s + i, n) != 0) return 0;
    }
    return 1;
}

/* Names the request, and makes sure that nobody else has that name; other errors of the line are told first. A line whose own name cannot be known is not
 * in the set. */
static int name_it(struct pass *p, uint64_t line)
{
    struct ps_request *q = &p->req;
    bool known = q->custom_id.s || !q->error;
    if (q->custom_id.s) {
        p->id = q->custom_id;
    } else {
        (void) snprintf(p->line_id, sizeof p->line_id, "line-%llu", (unsigned long long) line);
        p->id = (struct ps_jstr) { p->line_id, strlen(p->line_id) };
    }
    if (!known) return 0;
    int r = ps_table_unique(p->table, XXH3_64bits(p->id.s, p->id.len), p->table->n, same_id, p);
    if (r < 0) return r;
    if (r)
        (void) ps_request_fail(q, PS_LE_DUPLICATE_CUSTOM_ID,
                               "an earlier line has the same custom_id");
    return 0;
}

/* Ids of the prompt: *ret points to the encoder's memory or to the request's. */
static int tokenise(struct pass *p, const int32_t **ret, uint64_t *ret_n)
{
    struct ps_request *q = &p->req;
    const struct ps_rules *rules = &p->cfg->rules;
    *ret = q->ids;
    *ret_n = q->n_ids;
    if (!q->text.s) return 0;
    /* Text so long that it cannot fit whatever its tokens are need not be tokenised. */
    if (q->text.len / ps_tok_longest(p->cfg->tok) > rules->positions) {
        *ret_n = q->text.len / ps_tok_longest(p->cfg->tok);
        (void) ps_request_fail(q, PS_LE_CONTEXT_LENGTH_EXCEEDED,
                               "a prompt of %zu bytes is more than the model's %u positions hold",
                               q->text.len, rules->positions);
        return 0;
    }
    double t0 = ps_job_now_s();
    size_t n = 0;
    int r = ps_encode(p->enc, q->text.s, q->text.len, true, ret, &n);
    p->ret->tokenizer_s += ps_job_now_s() - t0;
    *ret_n = n;
    return r;
}

static void count(struct ps_first *f, const struct ps_spool_head *h, const struct ps_params *p)
{
    struct ps_job_stats *s = &f->stats;
    s->requests++;
    s->prompt_tokens += h->n_prompt;
    s->max_new_tokens += h->max_tokens;
    if (h->n_prompt > s->longest_prompt) s->longest_prompt = h->n_prompt;
    if (h->n_prompt + h->max_tokens > s->longest_total)
        s->longest_total = h->n_prompt + h->max_tokens;
    if (h->max_tokens > f->longest_new) f->longest_new = h->max_tokens;
    if (h->logprobs > 0 && (uint32_t) h->logprobs > s->most_top)
        s->most_top = (uint32_t) h->logprobs;
    s->scores_prompts |= h->echo && h->logprobs >= 0;
    f->logprobs |= h->logprobs >= 0;
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < p->n_stop; i++) bytes += (uint32_t) p->stop[i].len;
    if (bytes > f->most_stop_bytes) f->most_stop_bytes = bytes;
    if (p->n_stop_ids > f->most_stop_ids) f->most_stop_ids = p->n_stop_ids;
    s->most_banned = f->most_stop_ids + 1; /* and EOS */
}

static int spool_it(struct pass *p, uint64_t line, const int32_t *ids, uint64_t n_ids)
{
    struct ps_request *q = &p->req;
    const struct ps_params *m = &q->params;
    struct ps_spool_head h = {
        .line = (uint32_t) line,
        .error = q->error,
        .max_tokens = m->max_tokens,
        .min_tokens = m->min_tokens,
        .top_k = m->top_k,
        .temperature = m->temperature,
        .top_p = m->top_p,
        .logprobs = m->logprobs,
        .key = XXH3_64bits_withSeed(p->id.s, p->id.len, m->seed),
        .echo = m->echo,
        .ignore_eos = m->ignore_eos,
        .return_ids = m->return_ids,
        .tokens_as_ids = m->tokens_as_ids,
        .text_prompt = q->text.s != NULL,
        .has_model = q->model.s != NULL,
        .has_user = q->user.s != NULL,
    };
    struct ps_jstr texts[PS_T__COUNT] = { [PS_T_CUSTOM_ID] = p->id };
    static const struct ps_params none = { 0 };
    if (q->error) {
        texts[PS_T_MESSAGE] = (struct ps_jstr) { q->message, strlen(q->message) };
        if (!p->ret->failed++) {
            p->ret->first_failed = h.line;
            memcpy(p->ret->first_message, q->message, sizeof q->message);
        }
    } else {
        h.n_prompt = (uint32_t) n_ids;
        h.prefix = q->text.s && p->cfg->tok && n_ids && ids[0] == ps_tok_bos(p->cfg->tok);
        if (q->text.s) h.prompt_points = (uint32_t) ps_utf8_points(q->text.s, q->text.len);
        texts[PS_T_MODEL] = q->model;
        texts[PS_T_USER] = q->user;
        if (m->echo) texts[PS_T_PROMPT] = q->text;
        count(p->ret, &h, m);
        p->ret->no_tokens |= !p->cfg->tok && !m->return_ids && !m->tokens_as_ids;
    }
    uint64_t off;
    int r = ps_spool_put(p->spool, &h, ids, q->error ? &none : m, texts, &off);
    return r < 0 ? r : ps_table_add(p->table, off, (uint32_t) line);
}

/* Of an INPUT whose first line is no object, which option it may have wanted. */
static void hint_text(struct ps_request *q, const char *s, size_t len)
{
    const size_t n = strlen(q->message);
    while (len && (*s == ' ' || *s == '\t')) s++, len--;
    if (q->error && len && *s != '{')
        (void) snprintf(q->message + n, sizeof q->message - n,
                        "; plain text, one prompt a line, is read with --text");
}

static int one_line(struct pass *p, enum ps_line kind, uint64_t line, char *s, size_t len)
{
    struct ps_request *q = &p->req;
    const int32_t *ids = NULL;
    uint64_t n_ids = 0;
    if (kind == PS_LINE_LONG) {
        *q = (struct ps_request) { .ids = q->ids };
        (void) ps_request_fail(q, PS_LE_LINE_TOO_LONG, "the line is longer than %d MiB",
                               PS_LINE_MAX >> 20);
    } else if (p->cfg->text) {
        ps_request_text(&p->cfg->rules, s, len, q);
    } else {
        ps_request_json(&p->cfg->rules, s, len, q);
        if (!p->table->n) hint_text(q, s, len);
    }
    int r = name_it(p, line);
    if (!r && !q->error) {
        r = tokenise(p, &ids, &n_ids);
        if (!r) ps_request_fits(&p->cfg->rules, n_ids, q);
    }
    return r < 0 ? r : spool_it(p, line, ids, n_ids);
}

/* Says whose fault it was: of a line only the files' and memory's are left, the rest has become its record. */
static int line_failed(const struct pass *p, int r, uint64_t line, struct ps_detail *dt)
{
    if (r == -PS_EBUDGET)
        return ps_fail(dt, r,
                       "INPUT %s, line %llu: finding custom_ids that come twice takes up to 22 "
                       "bytes a line, and %llu MiB are all that --host-mem or the machine allows "
                       "for it; give more, or split the input",
                       p->cfg->input, (unsigned long long) line,
                       (unsigned long long) (p->table->set_budget >> 20));
    if (r == -ENOMEM)
        return ps_fail(dt, r, "INPUT %s, line %llu: out of memory", p->cfg->input,
                       (unsigned long long) line);
    return ps_fail(dt, r, "%s: the job's temporary files beside it, at offset %llu: %s",
                   p->cfg->beside, (unsigned long long) p->spool->out.at, ps_err_str(r));
}

static int all_lines(struct pass *p, struct ps_lines *l, struct ps_detail *dt)
{
    const struct ps_first_cfg *cfg = p->cfg;
    while (p->table->n < cfg->limit) {
        char *s = NULL;
        size_t len = 0;
        if (cfg->stop && *cfg->stop) return -ECANCELED;
        int kind = ps_lines_next(l, &s, &len);
        if (kind < 0)
            return ps_fail(dt, kind, "INPUT %s: read failed at offset %llu: %s", cfg->input,
                           (unsigned long long) l->off, ps_err_str(kind));
        if (!kind) break;
        if (l->line > UINT32_MAX)
            return ps_fail(dt, -EOVERFLOW, "INPUT %s: more than %u lines", cfg->input, UINT32_MAX);
        if (kind == PS_LINE_OK && !cfg->text && ps_line_blank(s, len)) continue;
        int r = one_line(p, (enum ps_line) kind, l->line, s, len);
        if (r < 0) return line_failed(p, r, l->line, dt);
        if (cfg->progress && p->table->n % 1024 == 0) cfg->progress(cfg->progress_ud, p->table->n);
    }
    int r = ps_spool_flush(p->spool);
    if (!r) r = ps_table_complete(p->table);
    return r < 0 ? line_failed(p, r, l->line, dt) : 0;
}

int ps_first_pass(const struct ps_first_cfg *cfg, struct ps_spool *spool, struct ps_table *table,
                  struct ps_first *ret, struct ps_detail *dt)
{
    struct pass p = { .cfg = cfg, .spool = spool, .table = table, .ret = ret };
    struct ps_lines l = { .fd = -1 };
    *ret = (struct ps_first) { 0 };
    ps_auto_free int32_t *ids = ps_calloc((size_t) cfg->rules.positions + 1, sizeof *ids);
    p.req.ids = ids;
    int r = ids ? ps_lines_init(&l, cfg->fd) : -ENOMEM;
    if (!r && cfg->tok) r = ps_encoder_open(cfg->tok, &p.enc);
    if (!r) r = all_lines(&p, &l, dt);
    ps_encoder_close(p.enc);
    ps_lines_done(&l);
    return r;
}
