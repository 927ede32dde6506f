/* SPDX-License-Identifier: Apache-2.0 */
/* One line of the input, understood: OpenAI Batch form, a bare body, or (--text) a prompt. Whatever is wrong with it becomes an
 * error code and a message for that line's record; nothing here fails the job. */
#ifndef PS_REQUEST_H
#define PS_REQUEST_H
#include "engine/base/ps_jscan.h"

#define PS_LINE_ERRORS(X)                         \
    X(INVALID_JSON, "invalid_json")               \
    X(LINE_TOO_LONG, "line_too_long")             \
    X(INVALID_REQUEST, "invalid_request")         \
    X(UNKNOWN_FIELD, "unknown_field")             \
    X(UNSUPPORTED_VALUE, "unsupported_value")     \
    X(UNSUPPORTED_URL, "unsupported_url")         \
    X(DUPLICATE_CUSTOM_ID, "duplicate_custom_id") \
    X(EMPTY_PROMPT, "empty_prompt")               \
    X(TOKEN_OUT_OF_RANGE, "token_out_of_range")   \
    X(CONTEXT_LENGTH_EXCEEDED, "context_length_exceeded")
enum ps_line_error {
    PS_LE_NONE,
#define X(name, text) PS_LE_##name,
    PS_LINE_ERRORS(X)
#undef X
        PS_LE__COUNT
};
const char *ps_line_error_name(enum ps_line_error e);

enum { PS_STOPS = 4, PS_STOP_MAX = 1024, PS_STOP_IDS = 64, PS_MESSAGE_MAX = 320 };

/* What generation needs to know about a request, besides its prompt. */
struct ps_params {
    uint32_t max_tokens, min_tokens, top_k; /* top_k 0 = off */
    float temperature, top_p;
    uint64_t seed;
    int32_t logprobs; /* -1 = not wanted */
    bool echo, ignore_eos, return_ids, tokens_as_ids;
    uint32_t n_stop, n_stop_ids;
    struct ps_jstr stop[PS_STOPS]; /* into the line, or the defaults' */
    int32_t stop_ids[PS_STOP_IDS];
};

/* What lines are judged by. `params` are the values of fields that a line does not give. */
struct ps_rules {
    uint32_t vocab, positions;
    bool has_tokenizer;
    struct ps_params params;
};

struct ps_request {
    enum ps_line_error error;
    char message[PS_MESSAGE_MAX];
    struct ps_jstr custom_id;   /* s == NULL: none given */
    struct ps_jstr model, user; /* s == NULL: none given */
    struct ps_jstr text;        /* a prompt in words, if s != NULL */
    int32_t *ids;   /* the caller's room for positions + 1 ids: a prompt in ids, cut there */
    uint64_t n_ids; /* of them given: may be more than there is room for */
    struct ps_params params;
};

/* Both change the line in place; the request points into it. Set req->ids before. */
void ps_request_json(const struct ps_rules *rules, char *line, size_t len, struct ps_request *req);
void ps_request_text(const struct ps_rules *rules, char *line, size_t len, struct ps_request *req);
/* After tokenising: whether n_prompt tokens and what shall follow fit. Sets the error. */
void ps_request_fits(const struct ps_rules *rules, uint64_t n_prompt, struct ps_request *req);
/* Records an error, if none is recorded yet; false always. */
bool ps_request_fail(struct ps_request *req, enum ps_line_error e, const char *fmt, ...)
    ps_printf_(3, 4);
bool ps_line_blank(const char *line, size_t len);
#endif
