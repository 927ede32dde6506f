/* SPDX-License-Identifier: Apache-2.0 */
/* A line is checked to be JSON first; from then on calls of ps_jscan fail only for values of the wrong type. The envelope is walked
 * next, so that a record can name its custom_id whatever is wrong further in; then the body (request_body.c). */
#include "engine/base/ps_utf8.h"
#include "engine/job/request_walk.h"
#include <stdarg.h>
#include <stdio.h>

const char *ps_line_error_name(enum ps_line_error e)
{
    static const char *const names[] = { "none",
#define X(name, text) text,
                                         PS_LINE_ERRORS(X)
#undef X
    };
    return names[e < PS_LE__COUNT ? e : 0];
}

bool ps_request_fail(struct ps_request *req, enum ps_line_error e, const char *fmt, ...)
{
    if (req->error) return false;
    req->error = e;
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(req->message, sizeof req->message, fmt, ap);
    va_end(ap);
    return false;
}

bool ps_line_blank(const char *line, size_t len)
{
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r')) len--;
    return !len;
}

enum { E_CUSTOM_ID, E_METHOD, E_URL, E_BODY, E__COUNT };
static const char *const envelope[E__COUNT] = { "custom_id", "method", "url", "body" };

/* Whether it has one of its fields. */
static bool is_envelope(struct ps_jscan c)
{
    struct ps_jstr key;
    if (ps_jscan_open(&c, '{') < 0) return false;
    while (ps_jscan_key(&c, &key) > 0) {
        for (size_t i = 0; i < E__COUNT && ps_jscan_type(&c) != PS_J_NULL; i++)
            if (ps_jstr_is(key, envelope[i])) return true;
        if (ps_jscan_skip(&c) < 0) break;
    }
    return false;
}

static bool check_url(struct ps_request *q, struct ps_jstr url)
{
    if (ps_jstr_is(url, "/v1/completions")) return true;
    return ps_request_fail(
        q, PS_LE_UNSUPPORTED_URL,
        "url: \"%.*s\" is not supported; /v1/completions with the text as \"prompt\" would work",
        (int) (url.len < 64 ? url.len : 64), url.s);
}

/* Finds the envelope's values; custom_id is taken first, whatever else is wrong. */
static bool walk_envelope(struct ps_walk *w)
{
    static const struct ps_names of = {
        envelope, E__COUNT, E__COUNT,
        "the batch form (the request's own fields stand inside \"body\")"
    };
    struct ps_jscan at[E__COUNT] = { 0 };
    struct ps_jstr key, s;
    uint32_t seen = 0;
    if (ps_jscan_open(&w->c, '{') < 0) return false;
    while (ps_jscan_key(&w->c, &key) > 0) {
        const int i = ps_walk_key(w, key, &of, &seen);
        if (i >= 0 && ps_jscan_type(&w->c) != PS_J_NULL) at[i] = w->c;
        if (ps_jscan_skip(&w->c) < 0) break;
    }
    for (int i = 0; i < E_BODY; i++) {
        if (!at[i].p) continue;
        w->c = at[i];
        w->field = envelope[i];
        if (!ps_walk_string(w, &s)) {
            if (i == E_CUSTOM_ID) return false;
            continue;
        }
        if (i == E_CUSTOM_ID) w->req->custom_id = s;
        if (i == E_METHOD && !ps_jstr_is(s, "POST"))
            (void) ps_request_fail(w->req, PS_LE_UNSUPPORTED_VALUE,
                                   "method: only POST is supported");
        if (i == E_URL) (void) check_url(w->req, s);
    }
    if (w->req->error) return false;
    if (!at[E_BODY].p) return ps_request_fail(w->req, PS_LE_INVALID_REQUEST, "body is missing");
    w->c = at[E_BODY];
    w->field = "body";
    return true;
}

static void start(const struct ps_rules *rules, struct ps_request *req)
{
    *req = (struct ps_request) { .ids = req->ids, .params = rules->params };
}

void ps_request_json(const struct ps_rules *rules, char *line, size_t len, struct ps_request *req)
{
    struct ps_detail dt = { "" };
    start(rules, req);
    if (ps_jscan_check(line, len, &dt) < 0) {
        (void) ps_request_fail(req, PS_LE_INVALID_JSON, "not JSON: %s", dt.text);
        return;
    }
    struct ps_walk w = { .rules = rules, .req = req };
    ps_jscan_init(&w.c, line, len);
    if (ps_jscan_type(&w.c) != PS_J_OBJECT)
        (void) ps_request_fail(req, PS_LE_INVALID_REQUEST, "an object was expected");
    else if (!is_envelope(w.c) || walk_envelope(&w))
        (void) ps_walk_body(&w);
}

void ps_request_text(const struct ps_rules *rules, char *line, size_t len, struct ps_request *req)
{
    start(rules, req);
    size_t valid = ps_utf8_valid(line, len);
    if (ps_line_blank(line, len))
        (void) ps_request_fail(req, PS_LE_EMPTY_PROMPT, "the line is blank");
    else if (valid < len)
        (void) ps_request_fail(req, PS_LE_INVALID_REQUEST, "byte %zu of the line is not UTF-8",
                               valid + 1);
    else if (!rules->has_tokenizer)
        (void) ps_request_fail(
            req, PS_LE_UNSUPPORTED_VALUE,
            "the model has no tokenizer files, so it takes lists of token ids only");
    req->text = (struct ps_jstr) { line, len };
}

void ps_request_fits(const struct ps_rules *rules, uint64_t n_prompt, struct ps_request *req)
{
    if (n_prompt + req->params.max_tokens <= rules->positions) return;
    (void) ps_request_fail(
        req, PS_LE_CONTEXT_LENGTH_EXCEEDED,
        "%llu prompt token%s and max_tokens %u are more than the model's %u positions",
        (unsigned long long) n_prompt, ps_plural(n_prompt), req->params.max_tokens,
        rules->positions);
}
