/* SPDX-License-Identifier: Apache-2.0 */
/* The files a tokenizer comes from: each format read, each fault refused by name. The small vocabulary has the 256 bytes as ids 0-255,
 * so that byte b is id b, and merges l+l = 256, h+e = 257, he+ll = 258, #+# = 259. */
#include "tok_support.h"
#include <fcntl.h>
#include <sys/stat.h>

#define MORE ", \"ll\": 256, \"he\": 257, \"hell\": 258, \"##\": 259, \"</s>\": 260, \"<pad>\": 261"
#define OPT_CONFIG                                                                               \
    "{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_bos_token\": true, \"bos_token\": \"</s>\"," \
    " \"eos_token\": \"</s>\", \"unk_token\": \"</s>\", \"pad_token\": \"<pad>\"}"
#define RULES "l l\nh e\nhe ll\n# #\n"

static struct tok_files opt(const char *merges)
{
    return tiny_files(tiny_vocab(MORE), merges, OPT_CONFIG);
}

static void merges_of_all_shapes(void **state)
{
    static const char *const shape[] = {
        RULES,
        ("#version: 0.2\n" RULES),
        "#version: 0.2\r\nl l\r\nh e\r\nhe ll\r\n# #\r\n",
        "l l\nh e\nhe ll\n# #",
        "#version: 0.2\nl l\nh e\nhe ll\n# #",
        "l l\nh e\nhe ll\n# #\r\n\r\n\n",
        "# #\nl l\nh e\nhe ll",
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(shape); i++) {
        struct ps_tok *t = must_build(opt(shape[i]));
        assert_int_equal(t->n_merges, 4);
        assert_ids(t, "hello##", true, "[260, 258, 111, 259]");
        assert_ids(t, "hello##", false, "[258, 111, 259]");
        assert_ids(t, "", true, "[260]");
        ps_tok_close(t);
    }
}

static void merges_without_rules(void **state)
{
    static const char *const none[] = { "", "\n", "#version: 0.2", "#version: 0.2\n" };
    for (size_t i = 0; i < PS_ARRAY_LEN(none); i++) {
        struct ps_tok *t = must_build(opt(none[i]));
        assert_ids(t, "hell", false, "[104, 101, 108, 108]");
        ps_tok_close(t);
    }
}

static void bad_merges(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "l l\nh e x\n", "merges.txt:2" },
        { "l l\nhe\n", "merges.txt:2" },
        { "l l\n\nh e\n", "merges.txt:2" },
        { "#version\nl l\n#version: 2\n", "merges.txt:3: merge \"#version: 2\"" },
        { "l  l\n", "merges.txt:1" },
        { " l\n", "merges.txt:1" },
        { "l \n", "merges.txt:1" },
        { "l\tl\n", "merges.txt:1" },
        { "h e\nx y\n", "merges.txt:2" },
        { "x y\n", "what it makes is not in the vocabulary" },
        { "zz l\n", "its first token" },
        { "l zz\n", "its second token" },
        { "l \xe6\x97\xa5\n", "byte alphabet" },
        { "l \xff\n", "byte alphabet" },
        { "\xef\xbb\xbfl l\n", "byte alphabet" },
        { "l\rl\n", "merges.txt:1" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++)
        must_refuse(opt(bad[i].text), PS_EFORMAT, bad[i].says);
    char *huge = malloc(10000);
    memset(huge, 'l', 9999);
    huge[5000] = ' ';
    huge[9999] = 0;
    must_refuse(opt(huge), PS_EFORMAT, "merges.txt:1");
    free(huge);
}

static void bad_vocab(void **state)
{
    static const struct {
        const char *vocab, *says;
    } bad[] = {
        { "\"a\": 1, \"a\": 2", "duplicate" },
        { "\"a\": 1, \"b\": 1", "id 1 is given to two tokens" },
        { "\"a\": -1", "the id of \"a\"" },
        { "\"a\": 1.5", "the id of \"a\"" },
        { "\"a\": \"1\"", "the id of \"a\"" },
        { "\"a\": null", "the id of \"a\"" },
        { "\"a\": 4194304", "4194304" },
        { "\"a\": 99999999999999999999", "vocab.json:1" },
        { "\"a\": 1,", "vocab.json:1" },
        { "\n\n\"a\" 1", "vocab.json:3" },
        { "\"\xff\": 1", "vocab.json:1" },
        { "\"\\ud800\": 1", "vocab.json:1" },
        { "", "no tokens" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++)
        must_refuse(tiny_files(bad[i].vocab, "", "{\"bos_token\": null}"), PS_EFORMAT, bad[i].says);
    struct tok_files fs = opt(RULES);
    put_file(&fs, TOK_VOCAB, "[1]");
    must_refuse(fs, PS_EFORMAT, "tiny/vocab.json: expected a JSON object");
    fs = opt(RULES);
    put_file(&fs, TOK_VOCAB, "");
    must_refuse(fs, PS_EFORMAT, "tiny/vocab.json");
    char *deep = malloc(100001);
    memset(deep, '[', 100000);
    deep[100000] = 0;
    fs = opt(RULES);
    put_file(&fs, TOK_VOCAB, deep);
    must_refuse(fs, PS_EFORMAT, "tiny/vocab.json:1");
    free(deep);
}

static void missing_files(void **state)
{
    must_refuse(tiny_files(NULL, NULL, OPT_CONFIG), ENOENT, "no tokenizer files");
    must_refuse(tiny_files(tiny_vocab(""), NULL, OPT_CONFIG), PS_EFORMAT, "no merges.txt");
    must_refuse(tiny_files(NULL, RULES, OPT_CONFIG), PS_EFORMAT, "no vocab.json");
}

static void config_says(void **state)
{
    struct ps_tok *t = must_build(tiny_files(tiny_vocab(MORE), RULES, NULL));
    assert_int_equal(ps_tok_bos(t), -1); /* GPT2Tokenizer adds nothing by itself */
    assert_ids(t, "</s>", true, "[60, 47, 115, 62]");
    ps_tok_close(t);
    t = must_build(
        tiny_files(tiny_vocab(", \"<|endoftext|>\": 256"), "", "{\"add_bos_token\": true}"));
    assert_ids(t, "a<|endoftext|>", true, "[256, 97, 256]");
    ps_tok_close(t);
    t = must_build(tiny_files(tiny_vocab(MORE), RULES,
                              "{\"add_prefix_space\": true, \"pad_token\": \"<pad>\"}"));
    assert_ids(t, "a", true, "[32, 97]");
    assert_ids(t, " a", true, "[32, 97]");
    assert_ids(t, "\na<pad>b", true,
               "[32, 10, 97, 261, 32, 98]"); /* each stretch, as the fast tokenizers do */
    ps_tok_close(t);
    t = must_build(
        tiny_files(tiny_vocab(MORE), RULES, "{\"add_eos_token\": true, \"eos_token\": \"</s>\"}"));
    assert_ids(t, "a", true, "[97, 260]");
    ps_tok_close(t);
    /* special_tokens_map.json goes before, and added_tokens.json brings more; a token of no vocabulary gets the next id. */
    struct tok_files fs =
        tiny_files(tiny_vocab(MORE), RULES,
                   "{\"pad_token\": \"a\", \"additional_special_tokens\": [\"<n>\"]}");
    put_file(&fs, TOK_SPECIAL_MAP, "{\"pad_token\": {\"content\": \"<pad>\", \"lstrip\": true}}");
    put_file(&fs, TOK_ADDED_IDS, "{\"<y>\": 262}");
    t = must_build(fs);
    assert_ids(t, "a <pad> <y><n>", true, "[97, 261, 32, 262, 263]");
    assert_false(ps_tok_is_special(t, 262));
    assert_true(ps_tok_is_special(t, 263));
    ps_tok_close(t);
    t = must_build(tiny_files(
        tiny_vocab(MORE), RULES,
        "{\"added_tokens_decoder\": {\"260\": {\"content\": \"</s>\", \"special\": true},"
        " \"300\": {\"content\": \"<y>\", \"rstrip\": true}}}"));
    assert_ids(t, "</s><y>  a", true, "[260, 300, 97]");
    assert_int_equal(ps_tok_vocab(t), 301);
    size_t len;
    assert_null(ps_tok_bytes(t, 299, &len));
    ps_tok_close(t);
}

static void bad_config(void **state)
{
    static const struct {
        const char *config;
        int err;
        const char *says;
    } bad[] = {
        { "{", PS_EFORMAT, "tokenizer_config.json:1" },
        { "[]", PS_EFORMAT, "tokenizer_config.json: expected" },
        { "{\"add_bos_token\": 1}", PS_EFORMAT, "add_bos_token" },
        { "{\"add_prefix_space\": \"no\"}", PS_EFORMAT, "add_prefix_space" },
        { "{\"tokenizer_class\": \"LlamaTokenizer\"}", PS_EUNSUPPORTED, "LlamaTokenizer" },
        { "{\"bos_token\": 3}", PS_EFORMAT, "special token" },
        { "{\"bos_token\": {\"content\": 3}}", PS_EFORMAT, "added token" },
        { "{\"bos_token\": {\"content\": \"x\", \"lstrip\": 1}}", PS_EFORMAT, "lstrip" },
        { "{\"added_tokens_decoder\": []}", PS_EFORMAT, "added_tokens_decoder" },
        { "{\"added_tokens_decoder\": {\"x\": {\"content\": \"q\"}}}", PS_EFORMAT,
          "\"x\" is not an id" },
        { "{\"added_tokens_decoder\": {\"99999999\": {\"content\": \"q\"}}}", PS_EFORMAT,
          "99999999" },
        { "{\"added_tokens_decoder\": {\"5\": 6}}", PS_EFORMAT, "not an object" },
        { "{\"added_tokens_decoder\": {\"5\": {\"content\": \"</s>\"}}}", PS_EFORMAT,
          "has id 5, but 260" },
        { "{\"added_tokens_decoder\": {\"5\": {\"content\": \"new\"}}}", PS_EFORMAT,
          "id 5 is given to two" },
        { "{\"added_tokens_decoder\": {\"300\": {\"content\": \"\"}}}", PS_EFORMAT, "added token" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++)
        must_refuse(tiny_files(tiny_vocab(MORE), RULES, bad[i].config), bad[i].err, bad[i].says);
    struct tok_files fs = opt(RULES);
    put_file(&fs, TOK_ADDED_IDS, "{\"x\": \"y\"}");
    must_refuse(fs, PS_EFORMAT, "added_tokens.json");
    fs = opt(RULES);
    put_file(&fs, TOK_SPECIAL_MAP, "nonsense");
    must_refuse(fs, PS_EFORMAT, "special_tokens_map.json:1");
}

/* ---- tokenizer.json */
#define BYTELEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true}"
#define TEMPLATE                                                                                  \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"</s>\", "      \
    "\"type_id\": 0}},"                                                                           \
    " {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"special_tokens\": {\"</s>\": {\"id\": " \
    "\"</s>\","                                                                                   \
    " \"ids\": [260], \"tokens\": [\"</s>\"]}}}"
#define ADDED                                                                           \
    "[{\"id\": 260, \"content\": \"</s>\", \"single_word\": false, \"lstrip\": false, " \
    "\"rstrip\": false,"                                                                \
    " \"normalized\": false, \"special\": true}]"
#define STRINGS "[\"l l\", \"h e\", \"he ll\", \"# #\"]"
#define PAIRS   "[[\"l\", \"l\"], [\"h\", \"e\"], [\"he\", \"ll\"], [\"#\", \"#\"]]"

/* `model` are more members of model, each with a comma in front. */
static struct tok_files fast(const char *merges, const char *model, const char *added,
                             const char *pre, const char *post, const char *more)
{
    struct tok_files fs = { .folder = "tiny" };
    char *s = NULL;
    if (asprintf(&s,
                 "{\"version\": \"1.0\", \"added_tokens\": %s, \"pre_tokenizer\": %s, "
                 "\"post_processor\": %s, \"decoder\": " BYTELEVEL
                 "%s, \"model\": {\"type\": \"BPE\", \"vocab\": {%s}, \"merges\": %s%s}}",
                 added, pre, post, more, tiny_vocab(MORE), merges, model) < 0)
        abort();
    put_file(&fs, TOK_FAST, s);
    free(s);
    return fs;
}

static void fast_formats(void **state)
{
    static const struct {
        const char *merges, *pre, *post, *want;
    } f[] = {
        { STRINGS, BYTELEVEL, TEMPLATE, "[260, 258, 111, 32, 259, 260]" },
        { PAIRS, BYTELEVEL, TEMPLATE, "[260, 258, 111, 32, 259, 260]" },
        { PAIRS, BYTELEVEL, "null", "[258, 111, 32, 259, 260]" },
        { PAIRS, BYTELEVEL, BYTELEVEL, "[258, 111, 32, 259, 260]" },
        { "[]", BYTELEVEL, "null", "[104, 101, 108, 108, 111, 32, 35, 35, 260]" },
        { PAIRS, "{\"type\": \"Sequence\", \"pretokenizers\": [" BYTELEVEL "]}",
          "{\"type\": \"Sequence\", \"processors\": [" BYTELEVEL ", " TEMPLATE "]}",
          "[260, 258, 111, 32, 259, 260]" },
        { PAIRS, BYTELEVEL,
          "{\"type\": \"RobertaProcessing\", \"sep\": [\"</s>\", 260], \"cls\": [\"<pad>\", 261]}",
          "[261, 258, 111, 32, 259, 260, 260]" },
        { PAIRS, "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}", "null",
          "[32, 258, 111, 32, 259, 260]" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(f); i++) {
        struct ps_tok *t = must_build(fast(f[i].merges, "", ADDED, f[i].pre, f[i].post, ""));
        assert_ids(t, "hello ##</s>", true, f[i].want);
        ps_tok_close(t);
    }
    /* In a folder of GPT2Tokenizer's the configuration decides about the space in front; its add_bos_token does not count. */
    struct tok_files fs = fast(
        PAIRS, "", ADDED, "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}", TEMPLATE, "");
    put_file(&fs, TOK_CONFIG, "{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_bos_token\": false}");
    struct ps_tok *t = must_build(fs);
    assert_ids(t, "a", true, "[260, 97]");
    ps_tok_close(t);
    fs = fast(PAIRS, "", ADDED, "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}", TEMPLATE,
              "");
    put_file(&fs, TOK_CONFIG, "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}");
    t = must_build(fs);
    assert_ids(t, "a", true, "[260, 32, 97]");
    ps_tok_close(t);
    t = must_build(fast("[]", ", \"ignore_merges\": true", ADDED, BYTELEVEL, "null", ""));
    assert_ids(t, "hell", true, "[258]");
    assert_ids(t, "hells", true, "[104, 101, 108, 108, 115]");
    ps_tok_close(t);
}

static void bad_fast(void **state)
{
    static const struct {
        const char *merges, *model, *added, *pre, *post, *more;
        int err;
        const char *says;
    } bad[] = {
        { "{}", "", ADDED, BYTELEVEL, "null", "", PS_EFORMAT, "model.merges is not a list" },
        { "[\"l l\", \"h\"]", "", ADDED, BYTELEVEL, "null", "", PS_EFORMAT, "model.merges[1]" },
        { "[[\"l\", 1]]", "", ADDED, BYTELEVEL, "null", "", PS_EFORMAT, "model.merges[0]" },
        { "[[\"l\", \"l\", \"l\"]]", "", ADDED, BYTELEVEL, "null", "", PS_EFORMAT,
          "model.merges[0]" },
        { "[\"x y\"]", "", ADDED, BYTELEVEL, "null", "", PS_EFORMAT, "model.merges[0]" },
        { "[\"l l h\"]", "", ADDED, BYTELEVEL, "null", "", PS_EFORMAT, "model.merges[0]" },
        { PAIRS, ", \"dropout\": 0.1", ADDED, BYTELEVEL, "null", "", PS_EUNSUPPORTED, "dropout" },
        { PAIRS, ", \"byte_fallback\": true", ADDED, BYTELEVEL, "null", "", PS_EUNSUPPORTED,
          "byte_fallback" },
        { PAIRS, ", \"fuse_unk\": 1", ADDED, BYTELEVEL, "null", "", PS_EFORMAT, "fuse_unk" },
        { PAIRS, ", \"unk_token\": \"none\"", ADDED, BYTELEVEL, "null", "", PS_EFORMAT,
          "unk_token" },
        { PAIRS, ", \"end_of_word_suffix\": \"w\"", ADDED, BYTELEVEL, "null", "", PS_EUNSUPPORTED,
          "end_of_word_suffix" },
        { PAIRS, ", \"merges\": []", ADDED, BYTELEVEL, "null", "", PS_EFORMAT, "duplicate" },
        { PAIRS, "", "{}", BYTELEVEL, "null", "", PS_EFORMAT, "added_tokens is not a list" },
        { PAIRS, "", "[{\"content\": \"x\"}]", BYTELEVEL, "null", "", PS_EFORMAT, "added token" },
        { PAIRS, "", "[{\"id\": 7, \"content\": \"</s>\"}]", BYTELEVEL, "null", "", PS_EFORMAT,
          "has id 7, but 260" },
        { PAIRS, "", "[{\"id\": 7, \"content\": \"new\"}]", BYTELEVEL, "null", "", PS_EFORMAT,
          "id 7 is given to two" },
        { PAIRS, "", ADDED, "null", "null", "", PS_EUNSUPPORTED, "pre_tokenizer" },
        { PAIRS, "", ADDED, "{\"type\": \"Metaspace\"}", "null", "", PS_EUNSUPPORTED, "Metaspace" },
        { PAIRS, "", ADDED, BYTELEVEL, "{\"type\": \"Other\"}", "", PS_EUNSUPPORTED, "Other" },
        { PAIRS, "", ADDED, BYTELEVEL, "{\"type\": \"RobertaProcessing\"}", "", PS_EFORMAT,
          "post_processor" },
        { PAIRS, "", ADDED, BYTELEVEL, "{\"type\": \"TemplateProcessing\", \"single\": []}", "",
          PS_EUNSUPPORTED, "single" },
        { PAIRS, "", ADDED, BYTELEVEL,
          "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"q\"}}]}",
          "", PS_EFORMAT, "single[0]" },
        { PAIRS, "", ADDED, BYTELEVEL,
          "{\"type\": \"Sequence\", \"processors\": [" TEMPLATE ", " TEMPLATE "]}", "",
          PS_EUNSUPPORTED, "two" },
        { PAIRS, "", ADDED, BYTELEVEL, "null", ", \"normalizer\": {\"type\": \"NFC\"}",
          PS_EUNSUPPORTED, "NFC" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++)
        must_refuse(
            fast(bad[i].merges, bad[i].model, bad[i].added, bad[i].pre, bad[i].post, bad[i].more),
            bad[i].err, bad[i].says);
    struct tok_files fs = { .folder = "tiny" };
    put_file(&fs, TOK_FAST, "{\"model\": {\"type\": \"Unigram\"}}");
    must_refuse(fs, PS_EUNSUPPORTED, "Unigram");
    fs = (struct tok_files) { .folder = "tiny" };
    put_file(&fs, TOK_FAST, "{}");
    must_refuse(fs, PS_EUNSUPPORTED, "model");
    fs = (struct tok_files) { .folder = "tiny" };
    put_file(&fs, TOK_FAST, "{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}}");
    must_refuse(fs, PS_EFORMAT, "vocabulary");
}

static void folders(void **state)
{
    char dir[] = "/tmp/ps-tok-XXXXXX", path[64];
    struct ps_detail dt = { "" };
    struct ps_tok *t = NULL;
    assert_non_null(mkdtemp(dir));
    assert_err(ps_tok_open(dir, &t, &dt), ENOENT);
    assert_says(&dt, dir);
    (void) snprintf(path, sizeof(path), "%s/vocab.json", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_err(ps_tok_open(dir, &t, &dt), EISDIR);
    assert_says(&dt, path);
    assert_int_equal(rmdir(path), 0);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(ftruncate(fd, (off_t) TOK_MAX_FILE + 1), 0);
    (void) close(fd);
    assert_err(ps_tok_open(dir, &t, &dt), EFBIG);
    assert_says(&dt, "vocab.json");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_err(ps_tok_open(dir, &t, &dt), ENOENT);
    assert_null(t);
}

/* Whichever allocation fails, jansson's included, the answer is -ENOMEM and nothing leaks; in the end it works. */
static void every_allocation_fails(void **state)
{
    for (int kind = 0; kind < 2; kind++) {
        struct tok_files fs = kind ? fast(PAIRS, "", ADDED, BYTELEVEL, TEMPLATE, "") : opt(RULES);
        for (uint64_t nth = 1;; nth++) {
            struct ps_tok *t = NULL;
            struct ps_encoder *e = NULL;
            const int32_t *id = NULL;
            size_t n = 0;
            char text[400];
            memset(text, 'l', sizeof(text));
            assert_true(nth < 10000);
            ps_mem_fault_arm(nth);
            int r = tok_build(&fs, &t, NULL);
            if (r >= 0) r = ps_encoder_open(t, &e);
            if (r >= 0) r = ps_encode(e, text, sizeof(text), true, &id, &n);
            int hit = ps_mem_fault_hit();
            ps_mem_fault_arm(0);
            if (hit) {
                /* A failed JIT compilation falls back to the interpreter. */
                if (r != -ENOMEM && !(r >= 0 && n == 201))
                    fail_msg("allocation %llu of %d: %d, %zu ids", (unsigned long long) nth, kind,
                             r, n);
            } else {
                assert_ok(r);
                assert_int_equal(n, 201);
            }
            ps_encoder_close(e);
            ps_tok_close(t);
            if (!hit) break;
        }
        tok_files_done(&fs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_of_all_shapes),
        cmocka_unit_test(merges_without_rules),
        cmocka_unit_test(bad_merges),
        cmocka_unit_test(bad_vocab),
        cmocka_unit_test(missing_files),
        cmocka_unit_test(config_says),
        cmocka_unit_test(bad_config),
        cmocka_unit_test(fast_formats),
        cmocka_unit_test(bad_fast),
        cmocka_unit_test(folders),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
