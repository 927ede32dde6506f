/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a request, field by field, through one table. A field that is null is passed over as if it were not there. */
#include "engine/job/request_walk.h"
#include <float.h>

/* ---- values */

static bool wrong_type(struct ps_walk *w, const char *expected)
{
    return ps_request_fail(w->req, PS_LE_INVALID_REQUEST, "%s: %s was expected", w->field,
                           expected);
}

static bool get_int(struct ps_walk *w, int64_t lo, uint64_t hi, struct ps_jint *ret)
{
    struct ps_jint v = { 0, false };
    bool ok = ps_jscan_int(&w->c, &v) >= 0;
    if (ok)
        ok = v.neg ? lo < 0 && v.mag <= -(uint64_t) lo
                   : v.mag <= hi && (lo <= 0 || v.mag >= (uint64_t) lo);
    *ret = v;
    if (ok) return true;
    return ps_request_fail(w->req, PS_LE_INVALID_REQUEST,
                           "%s: an integer from %lld to %llu was expected", w->field,
                           (long long) lo, (unsigned long long) hi);
}

static bool get_u32(struct ps_walk *w, uint32_t hi, uint32_t *ret)
{
    struct ps_jint v = { 0, false };
    if (!get_int(w, 0, hi, &v)) return false;
    *ret = (uint32_t) v.mag;
    return true;
}

static bool get_bool(struct ps_walk *w, bool *ret)
{
    return ps_jscan_bool(&w->c, ret) >= 0 || wrong_type(w, "true or false");
}

bool ps_walk_string(struct ps_walk *w, struct ps_jstr *ret)
{
    return ps_jscan_str(&w->c, ret) >= 0 || wrong_type(w, "a string");
}

static bool get_number(struct ps_walk *w, double *ret)
{
    return ps_jscan_double(&w->c, ret) >= 0 || wrong_type(w, "a finite number");
}

/* ---- fields */

/* Entry number `at` of a list of token ids. */
static bool get_id(struct ps_walk *w, uint64_t at, const char *expected, int32_t *ret)
{
    struct ps_jint v;
    int r = ps_jscan_int(&w->c, &v);
    if (r < 0 && r != -ERANGE) return wrong_type(w, expected);
    *ret = (int32_t) v.mag;
    if (r >= 0 && !v.neg && v.mag < w->rules->vocab) return true;
    return ps_request_fail(
        w->req, PS_LE_TOKEN_OUT_OF_RANGE,
        "%s: entry %llu, %s%llu%s, is no token: the vocabulary of %u has ids from 0 to %u",
        w->field, (unsigned long long) at + 1, v.neg ? "-" : "", (unsigned long long) v.mag,
        r < 0 ? " and more" : "", w->rules->vocab, w->rules->vocab - 1);
}

static bool prompt_text(struct ps_walk *w)
{
    struct ps_request *q = w->req;
    if (!ps_walk_string(w, &q->text)) return false;
    if (!w->rules->has_tokenizer)
        return ps_request_fail(
            q, PS_LE_UNSUPPORTED_VALUE,
            "prompt: the model has no tokenizer files, so it takes a list of token ids only");
    return q->text.len || ps_request_fail(q, PS_LE_EMPTY_PROMPT, "prompt: it is empty");
}

static bool f_prompt(struct ps_walk *w)
{
    struct ps_request *q = w->req;
    if (ps_jscan_type(&w->c) == PS_J_STRING) return prompt_text(w);
    if (ps_jscan_open(&w->c, '[') < 0) return wrong_type(w, "a string or a list of token ids");
    for (; ps_jscan_next(&w->c) > 0; q->n_ids++) {
        int32_t id = 0;
        if (!get_id(w, q->n_ids,
                    "a list of token ids (integers; several prompts are several lines)", &id))
            return false;
        if (q->n_ids <= w->rules->positions) q->ids[q->n_ids] = id;
    }
    return q->n_ids || ps_request_fail(q, PS_LE_EMPTY_PROMPT, "prompt: it is empty");
}

static bool f_max_tokens(struct ps_walk *w)
{
    struct ps_jint v = { 0, false };
    if (!get_int(w, 0, UINT64_MAX, &v)) return false;
    w->req->params.max_tokens = v.mag > UINT32_MAX ? UINT32_MAX : (uint32_t) v.mag;
    return true;
}
static bool f_min_tokens(struct ps_walk *w)
{
    return get_u32(w, UINT32_MAX, &w->req->params.min_tokens);
}

static bool f_temperature(struct ps_walk *w)
{
    double v = 0;
    if (!get_number(w, &v)) return false;
    if (v < 0 || v > (double) FLT_MAX) return wrong_type(w, "a number of 0 or more");
    w->req->params.temperature = (float) v;
    return true;
}

static bool f_top_p(struct ps_walk *w)
{
    double v = 0;
    if (!get_number(w, &v)) return false;
    if (!(v > 0 && v <= 1)) return wrong_type(w, "a number above 0, at most 1");
    w->req->params.top_p = (float) v > 0 ? (float) v : FLT_MIN;
    return true;
}

static bool f_top_k(struct ps_walk *w)
{
    struct ps_jint v = { 0, false };
    if (!get_int(w, -1, UINT64_MAX, &v)) return false;
    w->req->params.top_k = v.neg || v.mag > w->rules->vocab ? 0 : (uint32_t) v.mag;
    return true;
}

static bool f_seed(struct ps_walk *w)
{
    struct ps_jint v = { 0, false };
    if (!get_int(w, INT64_MIN, UINT64_MAX, &v)) return false;
    w->req->params.seed = v.neg ? -v.mag : v.mag;
    return true;
}

static bool one_stop(struct ps_walk *w)
{
    struct ps_params *p = &w->req->params;
    struct ps_jstr s;
    if (ps_jscan_type(&w->c) != PS_J_STRING || p->n_stop == PS_STOPS)
        return wrong_type(w, "a string or a list of up to four strings");
    if (!ps_walk_string(w, &s)) return false;
    if (!s.len) return ps_request_fail(w->req, PS_LE_INVALID_REQUEST, "stop: a string is empty");
    if (s.len > PS_STOP_MAX)
        return ps_request_fail(w->req, PS_LE_UNSUPPORTED_VALUE,
                               "stop: a string of %zu bytes; at most %d are supported", s.len,
                               PS_STOP_MAX);
    if (!w->rules->has_tokenizer)
        return ps_request_fail(w->req, PS_LE_UNSUPPORTED_VALUE,
                               "stop: the model has no tokenizer files; stop_token_ids would work");
    p->stop[p->n_stop++] = s;
    return true;
}

static bool f_stop(struct ps_walk *w)
{
    w->req->params.n_stop = 0;
    if (ps_jscan_open(&w->c, '[') < 0) return one_stop(w);
    while (ps_jscan_next(&w->c) > 0)
        if (!one_stop(w)) return false;
    return true;
}

static bool f_stop_token_ids(struct ps_walk *w)
{
    struct ps_params *p = &w->req->params;
    if (ps_jscan_open(&w->c, '[') < 0) return wrong_type(w, "a list of token ids");
    while (ps_jscan_next(&w->c) > 0) {
        int32_t id = 0;
        if (!get_id(w, p->n_stop_ids, "a list of token ids", &id)) return false;
        if (p->n_stop_ids == PS_STOP_IDS)
            return ps_request_fail(w->req, PS_LE_UNSUPPORTED_VALUE, "stop_token_ids: more than %d",
                                   PS_STOP_IDS);
        p->stop_ids[p->n_stop_ids++] = id;
    }
    return true;
}

static bool f_logprobs(struct ps_walk *w)
{
    uint32_t v = 0;
    if (!get_u32(w, 20, &v)) return false;
    w->req->params.logprobs = (int32_t) v;
    return true;
}
static bool f_echo(struct ps_walk *w) { return get_bool(w, &w->req->params.echo); }
static bool f_ignore_eos(struct ps_walk *w) { return get_bool(w, &w->req->params.ignore_eos); }
static bool f_return_ids(struct ps_walk *w) { return get_bool(w, &w->req->params.return_ids); }
static bool f_as_ids(struct ps_walk *w) { return get_bool(w, &w->req->params.tokens_as_ids); }
static bool f_model(struct ps_walk *w) { return ps_walk_string(w, &w->req->model); }
static bool f_user(struct ps_walk *w) { return ps_walk_string(w, &w->req->user); }

static bool not_neutral(struct ps_walk *w, const char *neutral)
{
    return ps_request_fail(w->req, PS_LE_UNSUPPORTED_VALUE, "%s: only %s is supported", w->field,
                           neutral);
}

static bool f_one(struct ps_walk *w)
{
    struct ps_jint v = { 0, false };
    if (!get_int(w, INT64_MIN, UINT64_MAX, &v)) return false;
    return (v.mag == 1 && !v.neg) || not_neutral(w, "1 (repeat the line for more)");
}
static bool f_zero(struct ps_walk *w)
{
    double v = 0;
    if (!get_number(w, &v)) return false;
    return v == 0 || not_neutral(w, "0");
}
static bool f_stream(struct ps_walk *w)
{
    bool v = false;
    if (!get_bool(w, &v)) return false;
    return !v || not_neutral(w, "false");
}
static bool f_suffix(struct ps_walk *w)
{
    struct ps_jstr s;
    if (!ps_walk_string(w, &s)) return false;
    return !s.len || not_neutral(w, "null");
}
static bool f_logit_bias(struct ps_walk *w)
{
    struct ps_jstr key;
    if (ps_jscan_open(&w->c, '{') < 0) return wrong_type(w, "an object");
    return ps_jscan_key(&w->c, &key) <= 0 || not_neutral(w, "{}");
}

enum { N_USED = 16 }; /* fields; of the others only the neutral value is taken */
static const struct field {
    const char *name;
    bool (*get)(struct ps_walk *w);
} fields[] = {
    { "prompt", f_prompt },
    { "max_tokens", f_max_tokens },
    { "temperature", f_temperature },
    { "top_p", f_top_p },
    { "top_k", f_top_k },
    { "seed", f_seed },
    { "stop", f_stop },
    { "logprobs", f_logprobs },
    { "echo", f_echo },
    { "ignore_eos", f_ignore_eos },
    { "return_token_ids", f_return_ids },
    { "return_tokens_as_token_ids", f_as_ids },
    { "min_tokens", f_min_tokens },
    { "stop_token_ids", f_stop_token_ids },
    { "model", f_model },
    { "user", f_user },
    { "n", f_one },
    { "best_of", f_one },
    { "presence_penalty", f_zero },
    { "frequency_penalty", f_zero },
    { "stream", f_stream },
    { "suffix", f_suffix },
    { "logit_bias", f_logit_bias },
};

/* Joint rules of the fields. */
static bool check_params(struct ps_request *q)
{
    const struct ps_params *p = &q->params;
    if (!q->text.s && !q->n_ids)
        return ps_request_fail(q, PS_LE_INVALID_REQUEST, "prompt is missing");
    if (p->min_tokens > p->max_tokens)
        return ps_request_fail(q, PS_LE_INVALID_REQUEST, "min_tokens %u is more than max_tokens %u",
                               p->min_tokens, p->max_tokens);
    if (!p->max_tokens && !(p->echo && p->logprobs >= 0))
        return ps_request_fail(
            q, PS_LE_UNSUPPORTED_VALUE,
            "max_tokens: 0 scores the prompt, and needs \"echo\": true and \"logprobs\"");
    return true;
}

bool ps_walk_body(struct ps_walk *w)
{
    const char *names[PS_ARRAY_LEN(fields)];
    for (size_t i = 0; i < PS_ARRAY_LEN(fields); i++) names[i] = fields[i].name;
    const struct ps_names of = { names, PS_ARRAY_LEN(fields), N_USED, "a completion request" };
    uint32_t seen = 0;
    struct ps_jstr key;
    if (ps_jscan_open(&w->c, '{') < 0) return wrong_type(w, "an object");
    while (ps_jscan_key(&w->c, &key) > 0) {
        const int i = ps_walk_key(w, key, &of, &seen);
        if (i < 0) return false;
        if (ps_jscan_type(&w->c) == PS_J_NULL) {
            if (ps_jscan_skip(&w->c) < 0) return false;
            continue;
        }
        w->field = fields[i].name;
        if (!fields[i].get(w)) return false;
    }
    return check_params(w->req);
}
