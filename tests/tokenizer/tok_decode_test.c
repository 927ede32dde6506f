/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to text: what Python's bytes.decode("utf-8", errors="replace") gives, however the bytes are cut into tokens. */
#include "tok_support.h"

#define R "\xef\xbf\xbd"

static struct ps_tok *bytes_tok(void)
{
    return must_build(tiny_files(tiny_vocab(", \"</s>\": 256, \"\xc3\xa9\xc3\xa9\": 257"), "",
                                 "{\"bos_token\": \"</s>\"}"));
}

static void ill_formed(void **state)
{
    /* From Python. */
    static const struct {
        const char *in, *out;
    } c[] = {
        { "abc", "abc" },
        { "\xc3\xa9", "\xc3\xa9" },
        { "\xff", R },
        { "a\xc3", "a" R },
        { "\xc3z", R "z" },
        { "\xe6\x97", R },
        { "\xe6\x97z", R "z" },
        { "\xe6z\x97", R "z" R },
        { "\xf0\x9f\x92", R },
        { "\xf0\x9f\x92\xf0\x9f\x92\xa9", R "\xf0\x9f\x92\xa9" },
        { "\xed\xa0\x80", R R R }, /* a surrogate */
        { "\xc0\xaf", R R },       /* overlong */
        { "\xe0\x80\xaf", R R R },
        { "\xe0\xa0\xaf", "\xe0\xa0\xaf" },
        { "\xf0\x8f\xbf\xbf", R R R R },
        { "\xf4\x90\x80\x80", R R R R }, /* beyond U+10FFFF */
        { "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf" },
        { "\xf5\x80", R R },
        { "\x80\xbf", R R },
        { "\xe6\xe6\xe6", R R R },
        { "\xf0\x9f\xc3\xa9", R "\xc3\xa9" },
        { "\xef\xbb\xbfx", "\xef\xbb\xbfx" },
    };
    struct ps_tok *t = bytes_tok();
    for (size_t i = 0; i < PS_ARRAY_LEN(c); i++) {
        int32_t id[16];
        size_t n = strlen(c[i].in), len;
        for (size_t k = 0; k < n; k++) id[k] = (uint8_t) c[i].in[k];
        char *s = decode_all(t, id, n, false, &len);
        if (strcmp(s, c[i].out) != 0) fail_msg("case %zu gives %s", i, s);
        free(s);
    }
    ps_tok_close(t);
}

static void nul_and_special(void **state)
{
    struct ps_tok *t = bytes_tok();
    size_t len;
    char *s = decode_all(t, (int32_t[]) { 0, 97, 0 }, 3, false, &len);
    assert_int_equal(len, 3);
    assert_memory_equal(s, "\0a\0", 3);
    free(s);
    s = decode_all(t, (int32_t[]) { 256, 97, 256 }, 3, false, &len);
    assert_string_equal(s, "</s>a</s>");
    free(s);
    s = decode_all(t, (int32_t[]) { 256, 97, 256 }, 3, true, &len);
    assert_string_equal(s, "a");
    free(s);
    /* A skipped token does not come between the bytes of a character; one that is shown does. */
    s = decode_all(t, (int32_t[]) { 0xc3, 256, 0xa9 }, 3, true, &len);
    assert_string_equal(s, "\xc3\xa9");
    free(s);
    s = decode_all(t, (int32_t[]) { 0xc3, 256, 0xa9 }, 3, false, &len);
    assert_string_equal(s, R "</s>" R);
    free(s);
    /* Ids without a token give nothing. The text of a token goes through the byte alphabet: e-acute there is byte e9. */
    s = decode_all(t, (int32_t[]) { -1, 97, 100000, 257 }, 4, false, &len);
    assert_string_equal(s, "a" R R);
    free(s);
    ps_tok_close(t);
}

/* What comes out early is never taken back: pieces end where characters end. */
static void bytes_wait_for_their_character(void **state)
{
    struct ps_tok *t = bytes_tok();
    struct ps_decoder d = { .tok = t };
    char out[64];
    assert_true(ps_tok_longest(t) <= sizeof(out));
    assert_int_equal(ps_decode(&d, 0xf0, out), 0);
    assert_int_equal(ps_decode(&d, 0x9f, out), 0);
    assert_int_equal(ps_decode(&d, 0x92, out), 0);
    assert_int_equal(ps_decode(&d, 0xa9, out), 4);
    assert_memory_equal(out, "\xf0\x9f\x92\xa9", 4);
    assert_int_equal(ps_decode(&d, 0xe6, out), 0);
    assert_int_equal(ps_decode(&d, 'x', out), 4);
    assert_memory_equal(out, R "x", 4);
    assert_int_equal(ps_decode_end(&d, out), 0);
    assert_int_equal(ps_decode(&d, 0xe6, out), 0);
    assert_int_equal(ps_decode_end(&d, out), 3);
    assert_int_equal(ps_decode_end(&d, out), 0);
    ps_tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ill_formed),
        cmocka_unit_test(nul_and_special),
        cmocka_unit_test(bytes_wait_for_their_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
