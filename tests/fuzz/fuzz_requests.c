/* SPDX-License-Identifier: Apache-2.0 */
/* Input lines: whatever they hold, a request is either in bounds or has an error whose message is text. And the checker agrees with
 * jansson on what is JSON. */
#include "engine/base/ps_utf8.h"
#include "engine/job/request.h"
#include <jansson.h>
#include <string.h>

enum { VOCAB = 100, POSITIONS = 64 };

static void require(int ok)
{
    if (!ok) abort();
}

/* jansson limits integers and reals and takes a NUL for the end, we limit the nesting: without these both say the same. */
static int has_digit_or_nul(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!p[i] || (p[i] >= '0' && p[i] <= '9')) return 1;
    return 0;
}

static void judge(struct ps_request *q)
{
    require(q->error < PS_LE__COUNT);
    if (q->error) {
        require(q->message[0] && strlen(q->message) < PS_MESSAGE_MAX);
        return;
    }
    require(q->text.s ? q->text.len > 0 : q->n_ids > 0);
    for (uint64_t i = 0; i < q->n_ids && i <= POSITIONS; i++)
        require(q->ids[i] >= 0 && q->ids[i] < VOCAB);
    require(q->params.n_stop <= PS_STOPS && q->params.n_stop_ids <= PS_STOP_IDS);
    require(q->params.logprobs >= -1 && q->params.logprobs <= 20);
    require(q->params.top_p > 0 && q->params.top_p <= 1 && q->params.temperature >= 0);
    require(q->params.top_k <= VOCAB && q->params.min_tokens <= q->params.max_tokens);
    for (uint32_t i = 0; i < q->params.n_stop; i++)
        require(q->params.stop[i].len &&
                ps_utf8_valid(q->params.stop[i].s, q->params.stop[i].len) == q->params.stop[i].len);
    if (q->text.s) require(ps_utf8_valid(q->text.s, q->text.len) == q->text.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct ps_rules rules = { .vocab = VOCAB,
                                    .positions = POSITIONS,
                                    .has_tokenizer = true,
                                    .params = { .max_tokens = 16, .top_p = 1, .logprobs = -1 } };
    int32_t ids[POSITIONS + 1];
    struct ps_request q = { .ids = ids };
    char *line =
        malloc(size + 1); /* exactly as long as the line: a sanitizer sees each step beyond it */
    if (!line) return 0;
    memcpy(line, data, size);
    struct ps_detail dt;
    json_t *j = json_loadb((const char *) data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    int ours = ps_jscan_check(line, size, &dt);
    require(!ours == (j != NULL) || has_digit_or_nul(data, size) || size > PS_JSCAN_DEPTH);
    json_decref(j);
    ps_request_json(&rules, line, size, &q);
    judge(&q);
    memcpy(line, data, size);
    ps_request_text(&rules, line, size, &q);
    judge(&q);
    free(line);
    return 0;
}
