/* SPDX-License-Identifier: Apache-2.0 */
/* Merging against the definition, added tokens with all their flags, and how the work grows with the text. */
#include "tok_support.h"

#define PAD                                                                                      \
    "{\"add_bos_token\": false, \"bos_token\": null, \"eos_token\": null, \"unk_token\": null, " \
    "\"added_tokens_decoder\": {"

static uint64_t rnd_state = 1;
static uint32_t rnd(uint32_t below)
{
    rnd_state = rnd_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (rnd_state >> 33) % below;
}

/* The definition: the lowest rank first, of equal ones the leftmost. */
static size_t merge_naive(const struct ps_tok *t, int32_t *id, size_t n)
{
    for (;;) {
        const struct tok_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct tok_merge *m = tok_merge_find(t, id[i], id[i + 1]);
            if (m && (!best || m->rank < best->rank)) {
                best = m;
                at = i;
            }
        }
        if (!best) return n;
        id[at] = best->id;
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof(*id));
        n--;
    }
}

static void merges_follow_the_definition(void **state)
{
    /* Rules in an order that no training gives: later ones make what earlier ones need. */
    static const char *const token[] = { "aa", "ab",  "ba",  "aab", "abab",  "aaaa",
                                         "bb", "abb", "cab", "bc",  "aabaab" };
    static const char *const rule[] = { "aa b", "a a", "ab ab", "a b",  "aa aa", "b a",
                                        "ab b", "b b", "c ab",  "a bb", "b c",   "a ab" };
    /* And in orders that training gives: the first five in any, then the others. */
    static const char *const trained[] = { "a a",   "a b",   "b a",  "b b",  "b c",  "aa b",
                                           "ab ab", "aa aa", "ab b", "c ab", "a bb", "a ab" };
    enum { FIRST = 5, OTHERS = PS_ARRAY_LEN(trained) - FIRST };
    char more[400] = "";
    for (size_t i = 0; i < PS_ARRAY_LEN(token); i++)
        (void) snprintf(more + strlen(more), sizeof(more) - strlen(more), ", \"%s\": %zu", token[i],
                        256 + i);
    struct tok_bpe bpe = { 0 };
    int out_of_order = 0;
    for (int round = 0; round < 80; round++) {
        char rules[200] = "";
        const bool in_order = round % 2;
        uint32_t from = rnd(PS_ARRAY_LEN(rule)),
                 step = 1 + 2 * rnd(2) + 2 * (rnd(2) ? 2 : 0); /* 1, 3, 5, 7 */
        if (step == 3) step = 11;                              /* coprime to 12 */
        for (size_t i = 0; i < PS_ARRAY_LEN(rule); i++, from += step)
            (void) snprintf(rules + strlen(rules), sizeof(rules) - strlen(rules), "%s\n",
                            !in_order   ? rule[from % PS_ARRAY_LEN(rule)]
                            : i < FIRST ? trained[from % FIRST]
                                        : trained[FIRST + from % OTHERS]);
        if (in_order) strcat(rules, "aab aab\n"); /* which two rules could make */
        struct ps_tok *t = must_build(tiny_files(tiny_vocab(more), rules, NULL));
        if (in_order) assert_true(t->in_order);
        out_of_order += !t->in_order;
        for (int k = 0; k < 200; k++) {
            int32_t a[600], b[600];
            size_t n = 1 + rnd(k % 4 ? TOK_SHORT + 8 : k % 40 ? 159 : 600), n_a = 0;
            for (size_t i = 0; i < n; i++) a[i] = b[i] = "aaabbc"[rnd(6)];
            size_t want = merge_naive(t, b, n);
            assert_ok(tok_bpe_merge(&bpe, t, a, n, &n_a));
            assert_int_equal(n_a, want);
            assert_memory_equal(a, b, want * sizeof(*a));
        }
        ps_tok_close(t);
    }
    assert_true(out_of_order > 10);
    tok_bpe_done(&bpe);
}

static struct ps_tok *with_added(const char *flags, const char *more)
{
    char config[1024];
    (void) snprintf(config, sizeof(config), PAD "\"300\": {\"content\": \"<m>\"%s}%s}}", flags,
                    more);
    return must_build(tiny_files(tiny_vocab(""), "", config));
}

static void added_tokens_with_flags(void **state)
{
    static const struct {
        const char *flags, *text, *want;
    } c[] = {
        { "", "a <m> b", "[97, 32, 300, 32, 98]" },
        { "", "<m><m><m", "[300, 300, 60, 109]" },
        { "", "<<m>>", "[60, 300, 62]" },
        { ", \"lstrip\": true", "a \n\xe3\x80\x80<m> b", "[97, 300, 32, 98]" },
        { ", \"lstrip\": true", "  <m>", "[300]" },
        { ", \"rstrip\": true", "a <m> \t b", "[97, 32, 300, 98]" },
        { ", \"rstrip\": true, \"lstrip\": true", "<m>  <m> x", "[300, 300, 120]" },
        { ", \"single_word\": true", "a<m> <m>b <m>",
          "[97, 60, 109, 62, 32, 60, 109, 62, 98, 32, 300]" },
        { ", \"single_word\": true", "-<m>.", "[45, 300, 46]" },
        { ", \"single_word\": true", "_<m>", "[95, 60, 109, 62]" },
        { ", \"single_word\": true", "\xc3\xa9<m>", "[195, 169, 60, 109, 62]" },
        { ", \"normalized\": true", "x<m>", "[120, 300]" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(c); i++) {
        struct ps_tok *t = with_added(c[i].flags, "");
        assert_ids(t, c[i].text, true, c[i].want);
        ps_tok_close(t);
    }
    /* The longest of those that begin at a place; one that may not stand there takes its letters with it. */
    struct ps_tok *t =
        with_added("", ", \"301\": {\"content\": \"<m><\"}, \"60\": {\"content\": \"<\"}");
    assert_ids(t, "<m><m><", true, "[301, 109, 62, 60]");
    ps_tok_close(t);
    t = with_added("", ", \"301\": {\"content\": \"x<m>\", \"single_word\": true}");
    assert_ids(t, "ax<m>", true, "[97, 120, 60, 109, 62]");
    ps_tok_close(t);
    /* Those with normalized = false are looked for first, wherever they are. */
    t = with_added("", ", \"301\": {\"content\": \"a<m>\", \"normalized\": true}");
    assert_ids(t, "a<m>", true, "[97, 300]");
    ps_tok_close(t);
    /* An added token of one byte that the vocabulary lacks stays out of words. */
    struct tok_files fs =
        tiny_files("\"a\": 1", "", PAD "\"7\": {\"content\": \"b\", \"single_word\": true}}}");
    t = must_build(fs);
    assert_ids(
        t, "ab b a", true,
        "[1, 7, 1]"); /* and without an unknown token the other bytes give nothing, as in the library */
    ps_tok_close(t);
}

static void unknown_bytes(void **state)
{
    for (int fuse = 0; fuse < 2; fuse++) {
        struct tok_files fs = { .folder = "tiny" };
        put_file(&fs, TOK_FAST,
                 fuse ? "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                        "false}, \"model\": {\"type\": \"BPE\","
                        "\"vocab\": {\"a\": 0, \"?\": 1}, \"merges\": [], \"unk_token\": \"?\", "
                        "\"fuse_unk\": true}}"
                      : "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                        "false}, \"model\": {\"type\": \"BPE\","
                        "\"vocab\": {\"a\": 0, \"?\": 1}, \"merges\": [], \"unk_token\": \"?\"}}");
        struct ps_tok *t = must_build(fs);
        assert_ids(t, "axya", true, fuse ? "[0, 1, 0]" : "[0, 1, 1, 0]");
        ps_tok_close(t);
    }
}

/* Steps of the merge loop for n bytes of one word. */
static uint64_t work(const char *unit, size_t n)
{
    struct ps_tok *t = NULL;
    struct ps_encoder *e;
    const int32_t *id;
    size_t n_ids, len = strlen(unit);
    assert_ok(ps_tok_open(SOURCE_ROOT "/models/demo-opt", &t, NULL));
    assert_ok(ps_encoder_open(t, &e));
    char *s = malloc(n);
    for (size_t i = 0; i < n; i++) s[i] = unit[i % len];
    assert_ok(ps_encode(e, s, n, false, &id, &n_ids));
    char *back = decode_all(t, id, n_ids, false, &len);
    assert_int_equal(len, n);
    assert_memory_equal(back, s, n);
    free(back);
    free(s);
    uint64_t w = e->bpe.work;
    ps_encoder_close(e);
    ps_tok_close(t);
    return w;
}

/* Ten times the text is at most ten times the work, and the logarithm. */
static void long_words_cost_n_log_n(void **state)
{
    static const char *const unit[] = { "a",
                                        " ",
                                        "the",
                                        "\n",
                                        "-",
                                        "0123456789",
                                        "\xc3\xa9",
                                        "\xe6\x97\xa5",
                                        "abcdefghijklmnopqrstuvwxyz" };
    for (size_t i = 0; i < PS_ARRAY_LEN(unit); i++) {
        size_t n = 60000 / strlen(unit[i]) * strlen(unit[i]);
        uint64_t one = work(unit[i], n), ten = work(unit[i], 10 * n);
        if (ten > 14 * one + 1000)
            fail_msg("\"%s\": %llu, then %llu", unit[i], (unsigned long long) one,
                     (unsigned long long) ten);
        assert_true(ten < (uint64_t) n * 10 * 60);
    }
}

/* A token that is white space and strips it: each of n matches lies in the same stretch. */
static void stripping_is_linear(void **state)
{
    struct ps_tok *t = must_build(
        tiny_files(tiny_vocab(""), "", PAD "\"300\": {\"content\": \" \", \"rstrip\": true}}}"));
    size_t n = 1 << 20;
    char *s = malloc(n);
    memset(s, ' ', n);
    struct tok_scan sc;
    struct tok_span sp;
    tok_scan_init(&sc, t, 0, s, n);
    size_t hits = 0;
    while (tok_scan_next(&sc, &sp)) hits += sp.id == 300;
    assert_true(hits >= 1);
    free(s);
    ps_tok_close(t);
}

static void an_open_tokenizer_is_small(void **state)
{
    struct ps_tok *t = NULL;
    assert_ok(ps_tok_open(SOURCE_ROOT "/models/demo-opt", &t, NULL));
    size_t bytes = t->n_ids * sizeof(*t->entry) + t->block_cap +
                   (t->slot_mask + 1) * sizeof(*t->slot) + (t->merge_mask + 1) * sizeof(*t->merge);
    assert_true(bytes < 100 * (size_t) t->n_ids); /* for 50,272 ids: 5 MB */
    ps_tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_follow_the_definition),
        cmocka_unit_test(added_tokens_with_flags),
        cmocka_unit_test(unknown_bytes),
        cmocka_unit_test(long_words_cost_n_log_n),
        cmocka_unit_test(stripping_is_linear),
        cmocka_unit_test(an_open_tokenizer_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
