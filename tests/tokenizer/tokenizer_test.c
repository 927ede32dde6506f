/* SPDX-License-Identifier: Apache-2.0 */
/* The demo model's tokenizer against ids that Hugging Face gave (compare_hf.py golden, classes). */
#include "tok_support.h"
#include <jansson.h>

static struct ps_tok *demo(void)
{
    struct ps_detail dt = { "" };
    struct ps_tok *t = NULL;
    assert_ok_dt(ps_tok_open(SOURCE_ROOT "/models/demo-opt", &t, &dt), &dt);
    return t;
}

static void golden_ids(void **state)
{
    struct ps_tok *t = demo();
    struct ps_encoder *e;
    json_t *all = json_load_file(SOURCE_ROOT "/tests/tokenizer/hf_demo_opt.json", JSON_ALLOW_NUL,
                                 NULL),
           *row;
    size_t i;
    assert_ok(ps_encoder_open(t, &e));
    assert_true(json_array_size(all) > 100);
    json_array_foreach(all, i, row)
    {
        const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
        const char *s = json_string_value(text);
        size_t len = json_string_length(text), n, back_len;
        const int32_t *id;
        for (int again = 0; again < 2; again++) { /* the second time from the cache */
            assert_ok(ps_encode(e, s, len, true, &id, &n));
            assert_int_equal(n, json_array_size(ids));
            for (size_t k = 0; k < n; k++)
                assert_int_equal(id[k], json_integer_value(json_array_get(ids, k)));
        }
        assert_int_equal(id[0], 2);
        char *back = decode_all(t, id + 1, n - 1, false, &back_len);
        assert_int_equal(back_len, len);
        assert_memory_equal(back, s, len);
        free(back);
        assert_ok(ps_encode(e, s, len, false, &id, &n));
        assert_int_equal(n + 1, json_array_size(ids));
    }
    json_decref(all);
    ps_encoder_close(e);
    ps_tok_close(t);
}

static void what_a_tokenizer_tells(void **state)
{
    struct ps_tok *t = demo();
    size_t len;
    assert_int_equal(ps_tok_vocab(t), 4096);
    assert_int_equal(ps_tok_bos(t), 2);
    assert_true(ps_tok_is_special(t, 1) && ps_tok_is_special(t, 2));
    assert_false(ps_tok_is_special(t, 0) || ps_tok_is_special(t, 300));
    assert_false(ps_tok_is_special(t, -1) || ps_tok_is_special(t, 4096));
    assert_memory_equal(ps_tok_bytes(t, 2, &len), "</s>", 4);
    assert_int_equal(len, 4);
    assert_memory_equal(ps_tok_bytes(t, 4, &len), "\0", 1);
    assert_int_equal(len, 1);
    assert_null(ps_tok_bytes(t, 4096, &len));
    assert_null(ps_tok_bytes(t, -1, &len));
    ps_tok_close(t);
    ps_tok_close(NULL);
    ps_encoder_close(NULL);
}

/* Every code point is a letter, a number, white space or something else exactly as in Hugging Face's regex; with JIT and without. */
static void classes(void **state)
{
    char *want = malloc(0x110000);
    memset(want, 'O', 0x110000);
    FILE *f = fopen(SOURCE_ROOT "/tests/tokenizer/hf_classes.txt", "re");
    assert_non_null(f);
    char k;
    unsigned a, b;
    while (fscanf(f, "%c %x %x\n", &k, &a, &b) == 3) memset(want + a, k, b - a + 1);
    (void) fclose(f);
    for (int jit = 0; jit < 2; jit++) {
        struct tok_pretok *p;
        struct tok_words *w;
        assert_ok(tok_pretok_open(jit, &p, NULL));
        assert_ok(tok_words_open(p, &w));
        for (int32_t c = 0; c < 0x110000; c++) {
            char s[8] = "a";
            char got = 'S';
            if (c >= 0xd800 && c < 0xe000) continue;
            size_t n = 1 + (c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
            if (n == 2)
                s[1] = (char) c;
            else
                for (size_t i = n - 1, v = (size_t) c; i >= 1; i--, v >>= 6)
                    s[i] = (char) (i > 1 ? 0x80 | (v & 63) : (0xf00 >> (n - 1)) | v);
            for (const char *q = "aL1N!O"; *q && got == 'S'; q += 2) {
                s[0] = q[0];
                int64_t end = tok_words_next(w, s, n, 0);
                assert_true(end > 0);
                if ((size_t) end == n) got = q[1];
            }
            if (got != want[c]) fail_msg("U+%04X is %c, not %c", (unsigned) c, got, want[c]);
        }
        tok_words_close(w);
        tok_pretok_close(p);
    }
    free(want);
}

static void refuses_what_is_no_text(void **state)
{
    struct ps_tok *t = demo();
    struct ps_encoder *e;
    const int32_t *id = NULL;
    size_t n = 7;
    assert_ok(ps_encoder_open(t, &e));
    static const char *const bad[] = { "\xff",     "a\xc3", "\xed\xa0\x80",      "\xf4\x90\x80\x80",
                                       "\xc0\x80", "\x80",  "abcdefghij\xe2\x82" };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++)
        assert_err(ps_encode(e, bad[i], strlen(bad[i]), true, &id, &n), EILSEQ);
    assert_null(id);
    assert_int_equal(n, 7);
    assert_ok(ps_encode(e, NULL, 0, false, &id, &n));
    assert_int_equal(n, 0);
    ps_encoder_close(e);
    ps_tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_ids),
        cmocka_unit_test(what_a_tokenizer_tells),
        cmocka_unit_test(classes),
        cmocka_unit_test(refuses_what_is_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
