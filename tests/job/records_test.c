/* SPDX-License-Identifier: Apache-2.0 */
/* What a request becomes: the rules for generation, log-probabilities and records. */
#include "ps_cmocka.h"
#include "try_job.h"

static const char *text_of(json_t *c) { return json_string_value(json_object_get(c, "text")); }
static const char *reason_of(json_t *c)
{
    return json_string_value(json_object_get(c, "finish_reason"));
}

/* One line; its text and finish reason. */
static void expect(const char *line, const char *text, const char *reason, size_t n_ids)
{
    struct tj t;
    char code[64];
    tj_begin(&t);
    json_t *c = tj_one(&t, line, code);
    assert_string_equal(code, "");
    if (strcmp(text_of(c), text) != 0)
        fail_msg("%s gives \"%s\", wanted \"%s\"", line, text_of(c), text);
    assert_string_equal(reason_of(c), reason);
    if (n_ids) assert_int_equal(json_array_size(json_object_get(c, "token_ids")), n_ids);
    assert_int_equal(t.res.generated_tokens, n_ids ? n_ids : t.res.generated_tokens);
    json_decref(c);
    tj_end(&t);
}

/* The toy repeats the prompt behind its first token. */
static void sequences_end_as_they_should(void **state)
{
    expect("{\"prompt\": \"hello\", \"max_tokens\": 8}", "hellohel", "length", 0);
    expect(
        "{\"prompt\": \"hello\", \"max_tokens\": 8, \"stop\": \"lo\", \"return_token_ids\": true}",
        "hel", "stop", 5);
    expect("{\"prompt\": \"hello\", \"max_tokens\": 8, \"stop\": [\"zz\", \"ohe\"], "
           "\"return_token_ids\": true}",
           "hell", "stop", 7);
    expect("{\"prompt\": \"hello\", \"max_tokens\": 8, \"stop\": \"h\"}", "", "stop", 0);
    expect("{\"prompt\": \"aab\", \"max_tokens\": 8, \"stop\": \"ab\"}", "a", "stop", 0);
    expect("{\"prompt\": \"aaab\", \"max_tokens\": 9, \"stop\": [\"aab\", \"b\"]}", "a", "stop",
           0); /* the longest of those complete at once */
    expect("{\"prompt\": \"hello\", \"max_tokens\": 12, \"min_tokens\": 6, \"stop\": \"lo\", "
           "\"return_token_ids\": true}",
           "hellohel", "stop", 10);
    expect("{\"prompt\": \"hello\", \"max_tokens\": 5, \"min_tokens\": 5, \"stop\": \"lo\"}", "hel",
           "stop", 0);
    /* EOS in the "output": it counts, and is in no text */
    expect("{\"prompt\": \"ab</s>cd\", \"max_tokens\": 9, \"return_token_ids\": true}", "ab",
           "stop", 3);
    expect("{\"prompt\": \"ab</s>cd\", \"max_tokens\": 7, \"ignore_eos\": true, "
           "\"return_token_ids\": true}",
           "abcdab", "length", 7);
    expect("{\"prompt\": \"ab</s>cd\", \"max_tokens\": 9, \"min_tokens\": 4, \"return_token_ids\": "
           "true}",
           "abxcdab", "stop", 8);
    expect("{\"prompt\": \"abcd\", \"max_tokens\": 9, \"stop_token_ids\": [102]}", "ab", "stop", 0);
    /* a stop string in the middle of a token's text, and across two */
    expect("{\"prompt\": [5, 259, 259], \"max_tokens\": 4, \"stop\": \"b\"}", "a", "stop", 0);
    expect("{\"prompt\": [5, 259, 259], \"max_tokens\": 4, \"stop\": \"ba\"}", "a", "stop", 0);
    /* an unfinished character becomes U+FFFD at the end, and waits before */
    expect("{\"prompt\": [5, 261], \"max_tokens\": 1}", "\xef\xbf\xbd", "length", 0);
    expect("{\"prompt\": [5, 261, 175], \"max_tokens\": 2}", "\xe2\x82\xac", "length", 0);
    expect("{\"prompt\": [5, 261, 175], \"max_tokens\": 3, \"stop\": \"\xe2\x82\xac\"}", "", "stop",
           0);
    /* echo */
    expect("{\"prompt\": \"hello\", \"max_tokens\": 3, \"echo\": true}", "hellohel", "length", 0);
    expect("{\"prompt\": [2, 104, 105], \"max_tokens\": 1, \"echo\": true}", "efe", "length", 0);
    expect("{\"prompt\": \"a\\u0000\\\"\\\\\\n\\u001f\", \"max_tokens\": 1, \"echo\": true, "
           "\"stop\": \"a\"}",
           "a", "stop", 0);
}

static double at(json_t *a, size_t i) { return json_number_value(json_array_get(a, i)); }

static void logprobs_echo_and_offsets(void **state)
{
    struct tj t;
    char code[64];
    tj_begin(&t);
    json_t *c = tj_one(&t,
                       "{\"prompt\": \"h\xc3\xa9\", \"max_tokens\": 2, \"echo\": true, "
                       "\"logprobs\": 2, \"return_token_ids\": true}",
                       code);
    json_t *l = json_object_get(c, "logprobs"), *tok = json_object_get(l, "tokens"),
           *lp = json_object_get(l, "token_logprobs");
    json_t *top = json_object_get(l, "top_logprobs"), *off = json_object_get(l, "text_offset");
    assert_string_equal(text_of(c), "h\xc3\xa9h\xef\xbf\xbd");
    assert_int_equal(json_array_size(tok), 6); /* </s> h, two halves, h, one half */
    assert_int_equal(json_array_size(lp), 6);
    assert_int_equal(json_array_size(top), 6);
    assert_string_equal(json_string_value(json_array_get(tok, 0)), "</s>");
    assert_string_equal(json_string_value(json_array_get(tok, 2)), "\xef\xbf\xbd");
    assert_true(json_is_null(json_array_get(lp, 0)) && json_is_null(json_array_get(top, 0)));
    static const int offsets[] = { 0, 0, 1, 1, 2, 3 };
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(json_integer_value(json_array_get(off, i)), offsets[i]);
    assert_true((float) at(lp, 1) == -0.1f * (float) (107 % 7) - 0.01f);
    assert_int_equal(json_array_size(json_object_get(c, "prompt_token_ids")), 4);
    json_t *h = json_array_get(top, 1); /* "i", "j" and the chosen "h" */
    assert_int_equal(json_object_size(h), 3);
    assert_true((float) json_real_value(json_object_get(h, "i")) == -0.001f);
    json_decref(c);
    /* equal texts: two halves of characters look alike, the better stays */
    c = tj_one(&t, "{\"prompt\": [5, 200], \"max_tokens\": 1, \"logprobs\": 20}", code);
    json_t *d = json_array_get(json_object_get(json_object_get(c, "logprobs"), "top_logprobs"), 0);
    assert_int_equal(json_object_size(d), 1);
    assert_true((float) json_real_value(json_object_get(d, "\xef\xbf\xbd")) == -0.001f);
    json_decref(c);
    c = tj_one(&t,
               "{\"prompt\": [5, 200], \"max_tokens\": 1, \"logprobs\": 0, "
               "\"return_tokens_as_token_ids\": true}",
               code);
    d = json_array_get(json_object_get(json_object_get(c, "logprobs"), "top_logprobs"), 0);
    assert_int_equal(json_object_size(d), 1);
    assert_non_null(json_object_get(d, "token_id:200"));
    json_decref(c);
    /* scoring: no token is generated */
    c = tj_one(&t, "{\"prompt\": \"hello\", \"max_tokens\": 0, \"echo\": true, \"logprobs\": 0}",
               code);
    assert_string_equal(text_of(c), "hello");
    assert_int_equal(json_array_size(json_object_get(json_object_get(c, "logprobs"), "tokens")), 6);
    assert_string_equal(reason_of(c), "length");
    assert_int_equal(t.res.generated_tokens, 0);
    assert_true(fake.stats.scores_prompts);
    json_decref(c);
    tj_end(&t);
}

/* Long enough that the tapes spill. */
static void many_logprobs_come_back(void **state)
{
    struct tj t;
    char code[64];
    tj_begin(&t);
    fake.slots = 100;
    fake.micro_batches = 100;
    json_t *c = tj_one(&t,
                       "{\"prompt\": [5, 104], \"max_tokens\": 190, \"logprobs\": 20, "
                       "\"return_tokens_as_token_ids\": true}",
                       code);
    json_t *l = json_object_get(c, "logprobs"), *lp = json_object_get(l, "token_logprobs");
    assert_int_equal(json_array_size(lp), 190);
    for (size_t i = 0; i < 190; i++)
        assert_true((float) at(lp, i) ==
                    -0.1f * (float) (104 % 7) - 0.01f * (float) ((2 + i) % 50));
    for (size_t i = 0; i < 190; i++)
        assert_int_equal(json_object_size(json_array_get(json_object_get(l, "top_logprobs"), i)),
                         21);
    json_decref(c);
    tj_end(&t);
}

static void record_has_its_form(void **state)
{
    struct tj t;
    tj_begin(&t);
    tj_input(&t, "\xef\xbb\xbf{\"custom_id\": \"\\u00e9\\\"1\", \"body\": {\"prompt\": \"hi\", "
                 "\"model\": \"m\", \"user\": \"u\"}}\r\n\r\n \n"
                 "{\"prompt\": \"hi\", \"max_tokens\": 1}");
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(t.res.requests, 2);
    ps_auto_free char *out = tj_read(&t, "");
    char id[40];
    assert_int_equal(sscanf(out, "{\"id\": \"batch_req_%16[0-9a-f]-1\"", id), 1);
    char want[900];
    (void) snprintf(want, sizeof want,
                    "{\"id\": \"batch_req_%s-1\", \"custom_id\": \"\xc3\xa9\\\"1\", \"response\": "
                    "{\"status_code\": 200, \"request_id\": \"req_%s-1\", "
                    "\"body\": {\"id\": \"cmpl-%s-1\", \"object\": \"text_completion\", "
                    "\"created\": 1700000000, \"model\": \"m\", \"user\": \"u\", "
                    "\"choices\": [{\"index\": 0, \"text\": \"hihihihihihihihi\", \"token_ids\": "
                    "null, \"prompt_token_ids\": null, \"logprobs\": null, "
                    "\"finish_reason\": \"length\"}], \"usage\": {\"prompt_tokens\": 3, "
                    "\"completion_tokens\": 16, \"total_tokens\": 19}}}, "
                    "\"error\": null}\n",
                    id, id, id);
    assert_memory_equal(out, want, strlen(want));
    json_t *j = tj_line(&t, 1);
    assert_string_equal(json_string_value(json_object_get(j, "custom_id")), "line-4");
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(json_object_get(j, "response"), "body"), "model")),
                        "toy");
    json_decref(j);
    tj_end(&t);
}

static void sampling_depends_on_seed_and_id_alone(void **state)
{
    struct tj t;
    char code[64], first[64];
    tj_begin(&t);
    const char *line =
        "{\"custom_id\": \"a\", \"body\": {\"prompt\": \"x\", \"temperature\": 1, \"seed\": 5}}";
    json_t *c = tj_one(&t, line, code);
    (void) snprintf(first, sizeof first, "%s", text_of(c));
    json_decref(c);
    (void) unlink(t.out);
    tj_input(
        &t,
        "{\"custom_id\": \"b\", \"body\": {\"prompt\": \"x\", \"temperature\": 1, \"seed\": 5}}\n"
        "{\"custom_id\": \"a\", \"body\": {\"prompt\": \"yz\", \"temperature\": 1, \"seed\": 5}}\n"
        "{\"custom_id\": \"c\", \"body\": {\"prompt\": \"yz\", \"temperature\": 1, \"seed\": "
        "6}}\n");
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *out = tj_read(&t, "");
    char *hit = strstr(out, first);
    assert_non_null(hit);
    assert_non_null(strstr(strchr(out, '\n'), first));
    assert_null(strstr(hit + 1, first));
    tj_end(&t);
}

static void text_lines_are_prompts(void **state)
{
    struct tj t;
    tj_begin(&t);
    t.cfg.text = true;
    tj_input(&t, "\xef\xbb\xbfone\r\n\n{\"prompt\": \"x\"}\nbad \xff\nlast");
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(t.res.requests, 5);
    assert_int_equal(t.res.failed, 2);
    static const char *const want[] = { "\"text\": \"oneone", "\"code\": \"empty_prompt\"",
                                        "\"text\": \"{\\\"prompt", "\"code\": \"invalid_request\"",
                                        "\"text\": \"lastlast" };
    ps_auto_free char *out = tj_read(&t, "");
    char *s = out;
    for (size_t i = 0; i < PS_ARRAY_LEN(want); i++, s = strchr(s, '\n') + 1) {
        char *hit = strstr(s, want[i]);
        assert_true(hit && hit < strchr(s, '\n'));
    }
    tj_end(&t);
}

static void model_without_tokenizer(void **state)
{
    struct tj t;
    char code[64];
    tj_begin(&t);
    t.cfg.tok = NULL;
    json_decref(tj_one(&t, "{\"prompt\": \"hi\"}", code));
    assert_string_equal(code, "unsupported_value");
    json_t *c = tj_one(
        &t, "{\"prompt\": [5, 6], \"logprobs\": 1, \"return_token_ids\": true, \"echo\": true}",
        code);
    assert_string_equal(text_of(c), "");
    assert_int_equal(json_array_size(json_object_get(c, "token_ids")), 16);
    json_decref(c);
    t.cfg.defaults.stop[t.cfg.defaults.n_stop++] = (struct ps_jstr) { (char[]) { "x" }, 1 };
    assert_err(tj_run(&t), PS_EUSAGE); /* and not silently without effect */
    assert_non_null(strstr(t.dt.text, "--stop"));
    tj_end(&t);
}

static void same_name_twice(void **state)
{
    struct tj t;
    tj_begin(&t);
    tj_input(&t,
             "{\"custom_id\": \"a\", \"body\": {\"prompt\": \"x\"}}\n{\"custom_id\": \"\\u0061\", "
             "\"body\": {\"prompt\": \"x\"}}\n"
             "{\"custom_id\": \"b\", \"body\": {\"prompt\": 1}}\n{\"custom_id\": \"b\", \"body\": "
             "{\"prompt\": \"x\"}}\n"
             "{\"custom_id\": \"line-6\", \"body\": {\"prompt\": \"x\"}}\n{\"prompt\": \"x\"}\n");
    assert_ok_dt(tj_run(&t), &t.dt);
    static const char *const want[] = {
        NULL, "duplicate_custom_id", "invalid_request", "duplicate_custom_id",
        NULL, "duplicate_custom_id"
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(want); i++) {
        json_t *j = tj_line(&t, i), *e = json_object_get(j, "error");
        if (want[i])
            assert_string_equal(json_string_value(json_object_get(e, "code")), want[i]);
        else
            assert_true(json_is_null(e));
        json_decref(j);
    }
    tj_end(&t);
}

/* 40 MiB of each: too long, too deep, too many; memory stays where it was. */
static void hostile_lines(void **state)
{
    static const struct {
        const char *begin, *unit, *end, *code;
        size_t bytes;
    } lines[] = {
        { "{\"prompt\": \"", "a", "\"}", "line_too_long", 40 << 20 },
        { "{\"prompt\": [", "5,", "5]}", "context_length_exceeded", 15 << 20 },
        { "", "[", "", "invalid_json", 15 << 20 },
        { "", "{\"a\":", "", "invalid_json", 15 << 20 },
        { "{\"x\": [", "{\"a\":[1,2]},", "1]}", "unknown_field", 15 << 20 },
        { "{\"prompt\": \"", "a", "\"}", "context_length_exceeded", 15 << 20 },
        { "{\"custom_id\": \"", "a", "\", \"body\": {\"prompt\": \"x\"}}", "", 15 << 20 },
        { "{\"prompt\": \"x\", \"stop\": [", "\"a\",", "\"a\"]}", "invalid_request", 15 << 20 },
        { "{\"prompt\": \"x\", \"user\": \"", "\\u00e9", "\"}", "", 15 << 20 },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(lines); i++) {
        struct tj t;
        tj_begin(&t);
        FILE *f = fopen(t.in, "w");
        (void) fputs(lines[i].begin, f);
        for (size_t n = 0; n < lines[i].bytes; n += strlen(lines[i].unit))
            (void) fputs(lines[i].unit, f);
        (void) fprintf(f, "%s\n{\"prompt\": \"hi\"}\n", lines[i].end);
        (void) fclose(f);
        assert_ok_dt(tj_run(&t), &t.dt);
        assert_int_equal(t.res.requests, 2);
        assert_int_equal(t.res.failed, lines[i].code[0] ? 1 : 0);
        json_t *j = tj_line(&t, 0), *e = json_object_get(j, "error");
        if (lines[i].code[0])
            assert_string_equal(json_string_value(json_object_get(e, "code")), lines[i].code);
        json_decref(j);
        j = tj_line(&t, 1);
        assert_true(json_is_null(json_object_get(j, "error")));
        json_decref(j);
        tj_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_end_as_they_should),
        cmocka_unit_test(logprobs_echo_and_offsets),
        cmocka_unit_test(many_logprobs_come_back),
        cmocka_unit_test(record_has_its_form),
        cmocka_unit_test(sampling_depends_on_seed_and_id_alone),
        cmocka_unit_test(text_lines_are_prompts),
        cmocka_unit_test(model_without_tokenizer),
        cmocka_unit_test(same_name_twice),
        cmocka_unit_test(hostile_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
