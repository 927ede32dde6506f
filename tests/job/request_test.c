/* SPDX-License-Identifier: Apache-2.0 */
/* What a line must look like: every rule for fields, and what is said where one is unknown. */
#include "ps_cmocka.h"
#include "try_job.h"

/* A line, and the code that its record must have ("" = it is fine). */
static const struct {
    const char *line, *code;
} verdicts[] = {
    { "{\"prompt\": \"hi\"}", "" },
    { "{\"prompt\": \"hi\", \"max_tokens\": null, \"stop\": null, \"user\": null, \"foo\": 1}",
      "unknown_field" },
    { "{\"prompt\": \"hi\", \"max_tokens\": null, \"stop\": null, \"seed\": null, \"logit_bias\": "
      "null, \"suffix\": null}",
      "" },
    { "{\"prompt\": \"hi\", \"stream_options\": null, \"custom_id\": null}", "" },
    { "{\"body\": {\"prompt\": \"hi\", \"foo\": null}, \"extra\": null}", "" },
    { "{\"pr\\u006fmpt\": \"hi\"}", "" },
    { "nope", "invalid_json" },
    { "{\"prompt\": \"hi\"", "invalid_json" },
    { "{\"prompt\": \"hi\"} x", "invalid_json" },
    { "{\"prompt\": \"\\ud800\"}", "invalid_json" },
    { "{\"prompt\": \"\\udc00\\ud800\"}", "invalid_json" },
    { "{\"prompt\": \"\\ud83d\\ude00\"}", "" },
    { "{\"prompt\": \"\xff\"}", "invalid_json" },
    { "{\"prompt\": \"\xed\xa0\x80\"}", "invalid_json" },
    { "{\"prompt\": \"a\tb\"}", "invalid_json" },
    { "{\"prompt\": 01}", "invalid_json" },
    { "[1]", "invalid_request" },
    { "\"x\"", "invalid_request" },
    { "{}", "invalid_request" },
    { "{\"prompt\": null}", "invalid_request" },
    { "{\"prompt\": \"\"}", "empty_prompt" },
    { "{\"prompt\": []}", "empty_prompt" },
    { "{\"prompt\": 5}", "invalid_request" },
    { "{\"prompt\": {}}", "invalid_request" },
    { "{\"prompt\": [\"a\"]}", "invalid_request" },
    { "{\"prompt\": [[5]]}", "invalid_request" },
    { "{\"prompt\": [5, 1.0]}", "invalid_request" },
    { "{\"prompt\": [5, true]}", "invalid_request" },
    { "{\"prompt\": [5, 262]}", "token_out_of_range" },
    { "{\"prompt\": [5, -1]}", "token_out_of_range" },
    { "{\"prompt\": [18446744073709551616]}", "token_out_of_range" },
    { "{\"prompt\": [5, 261]}", "" },
    { "{\"prompt\": [5], \"max_tokens\": 199}", "" },
    { "{\"prompt\": [5], \"max_tokens\": 200}", "context_length_exceeded" },
    { "{\"prompt\": [5], \"max_tokens\": 18446744073709551615}", "context_length_exceeded" },
    { "{\"prompt\": [5], \"max_tokens\": 18446744073709551616}", "invalid_request" },
    { "{\"prompt\": [5], \"max_tokens\": 1.0}", "invalid_request" },
    { "{\"prompt\": [5], \"max_tokens\": 1e1}", "invalid_request" },
    { "{\"prompt\": [5], \"max_tokens\": true}", "invalid_request" },
    { "{\"prompt\": [5], \"max_tokens\": \"3\"}", "invalid_request" },
    { "{\"prompt\": [5], \"max_tokens\": -1}", "invalid_request" },
    { "{\"prompt\": [5], \"max_tokens\": 0}", "unsupported_value" },
    { "{\"prompt\": [5], \"max_tokens\": 0, \"echo\": true, \"logprobs\": 0}", "" },
    { "{\"prompt\": [5], \"temperature\": -0.1}", "invalid_request" },
    { "{\"prompt\": [5], \"temperature\": 1e999}", "invalid_request" },
    { "{\"prompt\": [5], \"temperature\": 0.5}", "" },
    { "{\"prompt\": [5], \"top_p\": 0}", "invalid_request" },
    { "{\"prompt\": [5], \"top_p\": 1.01}", "invalid_request" },
    { "{\"prompt\": [5], \"top_p\": 1}", "" },
    { "{\"prompt\": [5], \"top_k\": -1}", "" },
    { "{\"prompt\": [5], \"top_k\": -2}", "invalid_request" },
    { "{\"prompt\": [5], \"top_k\": 99999999999}", "" },
    { "{\"prompt\": [5], \"top_k\": 2.0}", "invalid_request" },
    { "{\"prompt\": [5], \"seed\": -9223372036854775808}", "" },
    { "{\"prompt\": [5], \"seed\": 18446744073709551616}", "invalid_request" },
    { "{\"prompt\": [5], \"stop\": \"\"}", "invalid_request" },
    { "{\"prompt\": [5], \"stop\": [\"a\", \"\"]}", "invalid_request" },
    { "{\"prompt\": [5], \"stop\": [\"a\", \"b\", \"c\", \"d\"]}", "" },
    { "{\"prompt\": [5], \"stop\": [\"a\", \"b\", \"c\", \"d\", \"e\"]}", "invalid_request" },
    { "{\"prompt\": [5], \"stop\": [1]}", "invalid_request" },
    { "{\"prompt\": [5], \"stop\": []}", "" },
    { "{\"prompt\": [5], \"logprobs\": 20}", "" },
    { "{\"prompt\": [5], \"logprobs\": 21}", "invalid_request" },
    { "{\"prompt\": [5], \"logprobs\": true}", "invalid_request" },
    { "{\"prompt\": [5], \"echo\": 1}", "invalid_request" },
    { "{\"prompt\": [5], \"ignore_eos\": true, \"return_token_ids\": true, "
      "\"return_tokens_as_token_ids\": true}",
      "" },
    { "{\"prompt\": [5], \"min_tokens\": 16}", "" },
    { "{\"prompt\": [5], \"min_tokens\": 17}", "invalid_request" },
    { "{\"prompt\": [5], \"stop_token_ids\": [7, 9]}", "" },
    { "{\"prompt\": [5], \"stop_token_ids\": [262]}", "token_out_of_range" },
    { "{\"prompt\": [5], \"stop_token_ids\": 7}", "invalid_request" },
    { "{\"prompt\": [5], \"model\": \"m\", \"user\": \"u\"}", "" },
    { "{\"prompt\": [5], \"model\": 3}", "invalid_request" },
    { "{\"prompt\": [5], \"n\": 1, \"best_of\": 1, \"presence_penalty\": 0.0, "
      "\"frequency_penalty\": 0, \"stream\": false, "
      "\"suffix\": \"\", \"logit_bias\": {}}",
      "" },
    { "{\"prompt\": [5], \"n\": 2}", "unsupported_value" },
    { "{\"prompt\": [5], \"n\": 1.0}", "invalid_request" },
    { "{\"prompt\": [5], \"best_of\": 3}", "unsupported_value" },
    { "{\"prompt\": [5], \"presence_penalty\": 0.1}", "unsupported_value" },
    { "{\"prompt\": [5], \"stream\": true}", "unsupported_value" },
    { "{\"prompt\": [5], \"suffix\": \"x\"}", "unsupported_value" },
    { "{\"prompt\": [5], \"logit_bias\": {\"5\": 1}}", "unsupported_value" },
    { "{\"prompt\": [5], \"prompt\": [6]}", "invalid_request" },
    { "{\"messages\": []}", "unknown_field" },
    { "{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": "
      "{\"prompt\": \"x\"}}",
      "" },
    { "{\"custom_id\": null, \"body\": {\"prompt\": \"x\"}}", "" },
    { "{\"custom_id\": 5, \"body\": {\"prompt\": \"x\"}}", "invalid_request" },
    { "{\"custom_id\": \"a\", \"method\": \"GET\", \"body\": {\"prompt\": \"x\"}}",
      "unsupported_value" },
    { "{\"custom_id\": \"a\", \"url\": \"/v1/chat/completions\", \"body\": {\"messages\": []}}",
      "unsupported_url" },
    { "{\"custom_id\": \"a\"}", "invalid_request" },
    { "{\"custom_id\": \"a\", \"body\": []}", "invalid_request" },
    { "{\"custom_id\": \"a\", \"body\": {\"prompt\": \"x\"}, \"prompt\": \"x\"}", "unknown_field" },
};

static void every_field_is_judged(void **state)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(verdicts); i++) {
        struct tj t;
        char code[64];
        tj_begin(&t);
        json_t *c = tj_one(&t, verdicts[i].line, code);
        if (strcmp(code, verdicts[i].code) != 0)
            fail_msg("%s gives \"%s\", wanted \"%s\"", verdicts[i].line, code, verdicts[i].code);
        assert_int_equal(t.res.failed, c == NULL);
        json_decref(c);
        tj_end(&t);
    }
}

/* An unknown field's error says what would work. */
static void an_unknown_field_is_told_what_would_work(void **state)
{
    static const struct {
        const char *line, *end;
    } all[] = {
        { "{\"prompt\": \"x\", \"max_completion_tokens\": 5}",
          "\"max_completion_tokens\" is no field of a completion request; \"max_tokens\" would "
          "work" },
        { "{\"prompt\": \"x\", \"max_new_tokens\": 5}", "; \"max_tokens\" would work" },
        { "{\"prompt\": \"x\", \"stop_sequences\": []}", "; \"stop\" would work" },
        { "{\"prompt\": \"x\", \"stream_options\": {}}",
          "; nothing is streamed here: leave it out" },
        { "{\"messages\": []}",
          "; chat needs a template that is not applied here: put its text into "
          "\"prompt\"" },
        { "{\"PROMPT\": \"x\"}", "; \"prompt\" is one" },
        { "{\"prompt\": \"x\", \"maxTokens\": 5}", "; \"max_tokens\" is one" },
        { "{\"prompt\": \"x\", \"max-token\": 5}", "; \"max_tokens\" is one" },
        { "{\"prompt\": \"x\", \"temprature\": 5}", "; \"temperature\" is one" },
        { "{\"prompt\": \"x\", \"stop_token_id\": 5}", "; \"stop_token_ids\" is one" },
        { "{\"prompt\": \"x\", \"bestof\": 5}", "; \"best_of\" is one" },
        { "{\"prompt\": \"x\", \"foo\": 1}",
          "\"foo\" is no field of a completion request; there are prompt, max_tokens, temperature, "
          "top_p, top_k, seed, stop, logprobs, echo, ignore_eos, return_token_ids, "
          "return_tokens_as_token_ids, min_tokens, stop_token_ids, model, user" },
        { "{\"prompt\": \"x\", \"____\": 1}",
          "return_tokens_as_token_ids, min_tokens, stop_token_ids, model, user" },
        { "{\"prompt\": \"x\", "
          "\"a_field_with_a_name_that_is_longer_than_that_of_any_field_that_there_is_here\": 1}",
          "stop_token_ids, model, user" },
        { "{\"custom_id\": \"a\", \"Body\": {\"prompt\": \"x\"}}",
          "(the request's own fields stand inside \"body\"); \"body\" is one" },
        { "{\"custom_id\": \"a\", \"body\": {\"prompt\": \"x\"}, \"prompt\": \"x\"}",
          "); there are custom_id, method, url, body" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) {
        struct tj t;
        char code[64];
        tj_begin(&t);
        json_t *c = tj_one(&t, all[i].line, code);
        assert_null(c);
        assert_string_equal(code, "unknown_field");
        json_t *j = tj_line(&t, 0);
        const char *m = json_string_value(json_object_get(json_object_get(j, "error"), "message"));
        const size_t n = strlen(m), n_end = strlen(all[i].end);
        if (n < n_end || strcmp(m + n - n_end, all[i].end) != 0)
            fail_msg("%s gives \"%s\", wanted \"...%s\"", all[i].line, m, all[i].end);
        json_decref(j);
        tj_end(&t);
    }
}

static void judge(const char *line, const char *code_wanted)
{
    struct tj t;
    char code[64];
    tj_begin(&t);
    json_decref(tj_one(&t, line, code));
    assert_string_equal(code, code_wanted);
    tj_end(&t);
}

/* As docs/interface.md has them: 64 stop tokens; stop strings of 1024 bytes, four of them. */
static void limits_are_as_documented(void **state)
{
    char line[8192], ids[512] = "7";
    for (int i = 1; i < 64; i++) strcat(ids, ", 7");
    (void) snprintf(line, sizeof line, "{\"prompt\": [5], \"stop_token_ids\": [%s]}", ids);
    judge(line, "");
    (void) snprintf(line, sizeof line, "{\"prompt\": [5], \"stop_token_ids\": [%s, 7]}", ids);
    judge(line, "unsupported_value");
    char stop[1026] = "";
    memset(stop, 'a', 1024);
    (void) snprintf(line, sizeof line,
                    "{\"prompt\": [5], \"stop\": [\"%s\", \"%s\", \"%s\", \"%s\"]}", stop, stop,
                    stop, stop);
    judge(line, "");
    memcpy(stop + 1022, "\xc3\xa9", 3); /* two bytes, one character */
    (void) snprintf(line, sizeof line, "{\"prompt\": [5], \"stop\": \"%s\"}", stop);
    judge(line, "");
    (void) snprintf(line, sizeof line, "{\"prompt\": [5], \"stop\": \"a%s\"}", stop);
    judge(line, "unsupported_value");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_judged),
        cmocka_unit_test(an_unknown_field_is_told_what_would_work),
        cmocka_unit_test(limits_are_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
