/* SPDX-License-Identifier: Apache-2.0 */
#include "tok_support.h"
#include "engine/base/ps_utf8.h"
#include <utf8proc.h>

const char *tiny_vocab(const char *more)
{
    static char s[1 << 16];
    size_t n = 0;
    for (int b = 0; b < 256; b++) {
        utf8proc_uint8_t u[4];
        int k = (int) utf8proc_encode_char(tok_byte_char[b], u);
        const char *esc = tok_byte_char[b] == '"' || tok_byte_char[b] == '\\' ? "\\" : "";
        n += (size_t) snprintf(s + n, sizeof(s) - n, "%s\"%s%.*s\": %d", b ? ", " : "", esc, k,
                               (char *) u, b);
    }
    (void) snprintf(s + n, sizeof(s) - n, "%s", more);
    return s;
}

void put_file(struct tok_files *fs, int file, const char *text)
{
    free(fs->f[file].data);
    fs->f[file].data = text ? strdup(text) : NULL;
    fs->f[file].len = text ? strlen(text) : 0;
}

struct tok_files tiny_files(const char *vocab, const char *merges, const char *config)
{
    struct tok_files fs = { .folder = "tiny" };
    char *v = NULL;
    if (vocab && asprintf(&v, "{%s}", vocab) < 0) abort();
    put_file(&fs, TOK_VOCAB, v);
    put_file(&fs, TOK_MERGES, merges);
    put_file(&fs, TOK_CONFIG, config);
    free(v);
    return fs;
}

struct ps_tok *must_build(struct tok_files fs)
{
    struct ps_detail dt = { "" };
    struct ps_tok *t = NULL;
    int r = tok_build(&fs, &t, &dt);
    tok_files_done(&fs);
    assert_ok_dt(r, &dt);
    return t;
}

void must_refuse(struct tok_files fs, int err, const char *word)
{
    struct ps_detail dt = { "" };
    struct ps_tok *t = (void *) &dt;
    int r = tok_build(&fs, &t, &dt);
    tok_files_done(&fs);
    if (r >= 0) ps_tok_close(t);
    if (r != -err) fail_msg("%d (%s), wanted -%d with \"%s\"", r, dt.text, err, word);
    assert_says(&dt, word);
    assert_ptr_equal(t, &dt); /* untouched */
}

const char *ids_text(const int32_t *id, size_t n)
{
    static char s[1 << 16];
    size_t k = (size_t) snprintf(s, sizeof(s), "[");
    for (size_t i = 0; i < n && k < sizeof(s); i++)
        k += (size_t) snprintf(s + k, sizeof(s) - k, "%s%d", i ? ", " : "", id[i]);
    if (k < sizeof(s)) (void) snprintf(s + k, sizeof(s) - k, "]");
    return s;
}

const char *encode_text(const struct ps_tok *t, const char *text, size_t len, bool special)
{
    struct ps_encoder *e;
    const int32_t *id;
    size_t n;
    assert_ok(ps_encoder_open(t, &e));
    assert_ok(ps_encode(e, text, len, special, &id, &n));
    const char *s = ids_text(id, n);
    ps_encoder_close(e);
    return s;
}

char *decode_all(const struct ps_tok *t, const int32_t *id, size_t n, bool skip, size_t *ret_len)
{
    struct ps_decoder d = { .tok = t, .skip_special = skip };
    size_t longest = ps_tok_longest(t), len = 0;
    char *one = malloc(longest), *all = malloc((n + 1) * longest + 1);
    for (size_t i = 0; i <= n; i++) {
        size_t k = i < n ? ps_decode(&d, id[i], one) : ps_decode_end(&d, one);
        assert_true(k <= longest);
        assert_true(ps_utf8_valid(one, k) == k);
        memcpy(all + len, one, k);
        len += k;
    }
    all[len] = 0;
    free(one);
    *ret_len = len;
    return all;
}
