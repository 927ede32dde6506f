/* SPDX-License-Identifier: Apache-2.0 */
/* Files to ids and back; a file of many chunks gives the ids of the whole text. */
#include "engine/tokenizer/tokenize_file.h"
#include "tok_support.h"

struct files {
    char dir[32], text[64], ids[64];
    struct ps_tok *t;
};

static int setup(void **state)
{
    struct files *f = calloc(1, sizeof(*f));
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/ps-tokfile-XXXXXX");
    if (!mkdtemp(f->dir)) return -1;
    (void) snprintf(f->text, sizeof(f->text), "%s/text", f->dir);
    (void) snprintf(f->ids, sizeof(f->ids), "%s/ids", f->dir);
    *state = f;
    return ps_tok_open(SOURCE_ROOT "/models/demo-opt", &f->t, NULL);
}

static int teardown(void **state)
{
    struct files *f = *state;
    (void) unlink(f->text);
    (void) unlink(f->ids);
    (void) rmdir(f->dir);
    ps_tok_close(f->t);
    free(f);
    return 0;
}

static void write_file(const char *path, const char *s, size_t len)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(s, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* What a run writes, to be freed. */
static char *run(const struct files *f, const char *path, bool back, bool special, int want,
                 struct ps_detail *dt, size_t *ret_len)
{
    char *s = NULL;
    FILE *out = open_memstream(&s, ret_len);
    int r = back ? ps_detokenize_file(f->t, path, special, out, dt)
                 : ps_tokenize_file(f->t, path, special, out, dt);
    (void) fclose(out);
    if (r != want) fail_msg("%d (%s), wanted %d", r, dt->text, want);
    return s;
}

static void there_and_back(void **state)
{
    struct files *f = *state;
    struct ps_detail dt = { "" };
    static const char text[] = "Hello  world\n\xc3\xa9\0 </s> x ";
    size_t len;
    write_file(f->text, text, sizeof(text) - 1);
    char *ids = run(f, f->text, false, true, 0, &dt, &len);
    assert_memory_equal(ids, "[2, ", 4);
    assert_int_equal(ids[len - 1], '\n');
    write_file(f->ids, ids, len);
    free(ids);
    char *s = run(f, f->ids, true, true, 0, &dt, &len);
    assert_int_equal(len, 4 + sizeof(text) - 1);
    assert_memory_equal(s + 4, text, sizeof(text) - 1);
    free(s);
    s = run(f, f->ids, true, false, 0, &dt, &len); /* without special tokens */
    assert_int_equal(len, sizeof(text) - 1 - 4);
    free(s);
    ids = run(f, f->text, false, false, 0, &dt, &len);
    write_file(f->ids, ids, len);
    free(ids);
    s = run(f, f->ids, true, true, 0, &dt, &len);
    assert_int_equal(len, sizeof(text) - 1);
    assert_memory_equal(s, text, len);
    free(s);
    write_file(f->text, "", 0);
    ids = run(f, f->text, false, true, 0, &dt, &len);
    assert_string_equal(ids, "[2]\n");
    free(ids);
    ids = run(f, f->text, false, false, 0, &dt, &len);
    assert_string_equal(ids, "[]\n");
    free(ids);
}

/* Chunks end at 1 MiB: words, runs of spaces and characters lie across. */
static void chunks_are_invisible(void **state)
{
    struct files *f = *state;
    struct ps_detail dt = { "" };
    static const char *const unit[] = { "some words,  and   spaces\n\n x",
                                        "\xe6\x97\xa5\xe6\x9c\xac", " ", "a</s> b\t \xc3\xa9 " };
    size_t n = (2 << 20) + 12345, len;
    char *text = malloc(n + 32);
    for (size_t i = 0; i < PS_ARRAY_LEN(unit); i++) {
        size_t k = 0, one = strlen(unit[i]);
        for (; k < n; k += one) memcpy(text + k, unit[i], one);
        write_file(f->text, text, k);
        char *ids = run(f, f->text, false, true, 0, &dt, &len);
        struct ps_encoder *e;
        const int32_t *id;
        size_t n_ids, at = 0;
        assert_ok(ps_encoder_open(f->t, &e));
        assert_ok(ps_encode(e, text, k, true, &id, &n_ids));
        char *p = ids;
        assert_int_equal(*p++, '[');
        for (; *p != ']'; at++) {
            assert_true(at < n_ids);
            if (strtol(p, &p, 10) != id[at]) fail_msg("unit %zu: id %zu differs", i, at);
            if (*p == ',') p += 2;
        }
        assert_int_equal(at, n_ids);
        ps_encoder_close(e);
        free(ids);
    }
    free(text);
}

static void bad_files(void **state)
{
    struct files *f = *state;
    struct ps_detail dt = { "" };
    size_t len;
    free(run(f, f->text, false, true, -ENOENT, &dt, &len));
    assert_says(&dt, f->text);
    free(run(f, f->dir, false, true, -EISDIR, &dt, &len));
    write_file(f->text, "ab\xff", 3);
    free(run(f, f->text, false, true, -EILSEQ, &dt, &len));
    assert_says(&dt, "byte 2");
    write_file(f->text, "ab\xe6\x97", 4);
    free(run(f, f->text, false, true, -EILSEQ, &dt, &len));
    free(run(f, f->ids, true, true, -ENOENT, &dt, &len));
    static const char *const bad[] = {
        "",       "[",     "[1",    "[1,",     "[1,]",
        "[,1]",   "[1 2]", "[-1]",  "[1.5]",   "[01]",
        "[4096]", "[1] x", "{}",    "[\"a\"]", "[99999999999999999999]",
        "[1]]",   "1",     "[[1]]", "[1e2]"
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        write_file(f->ids, bad[i], strlen(bad[i]));
        free(run(f, f->ids, true, true, -PS_EFORMAT, &dt, &len));
        assert_says(&dt, f->ids);
    }
    static const char *const good[] = { "[]", " [ ] \n", "[2,2 ,\t2\n]\n" };
    for (size_t i = 0; i < PS_ARRAY_LEN(good); i++) {
        write_file(f->ids, good[i], strlen(good[i]));
        free(run(f, f->ids, true, true, 0, &dt, &len));
    }
}

static void a_full_output_is_told(void **state)
{
    struct files *f = *state;
    struct ps_detail dt = { "" };
    FILE *out = fopen("/dev/full", "we");
    if (!out) skip();
    write_file(f->text, "Hello world", 11);
    assert_err(ps_tokenize_file(f->t, f->text, true, out, &dt), ENOSPC);
    assert_says(&dt, "output");
    (void) fclose(out);
    out = fopen("/dev/full", "we");
    write_file(f->ids, "[2, 300]", 8);
    assert_err(ps_detokenize_file(f->t, f->ids, true, out, &dt), ENOSPC);
    (void) fclose(out);
}

static void every_allocation_fails(void **state)
{
    struct files *f = *state;
    write_file(f->text, "Hello world", 11);
    write_file(f->ids, "[2, 300]", 8);
    for (int back = 0; back < 2; back++)
        for (uint64_t nth = 1;; nth++) {
            struct ps_detail dt = { "" };
            FILE *out = fopen("/dev/null", "we");
            ps_mem_fault_arm(nth);
            int r = back ? ps_detokenize_file(f->t, f->ids, true, out, &dt)
                         : ps_tokenize_file(f->t, f->text, true, out, &dt);
            int hit = ps_mem_fault_hit();
            ps_mem_fault_arm(0);
            (void) fclose(out);
            assert_true(nth < 100);
            if (!hit) {
                assert_ok_dt(r, &dt);
                break;
            }
            assert_true(r == -ENOMEM || r == 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(there_and_back, setup, teardown),
        cmocka_unit_test_setup_teardown(chunks_are_invisible, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_files, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_output_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(every_allocation_fails, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
