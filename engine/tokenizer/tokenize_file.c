/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tokenizer/tokenize_file.h"
#include "engine/base/ps_mem.h"
#include "engine/base/ps_utf8.h"
#include "engine/tokenizer/tok_impl.h"
#include <string.h>

enum { CHUNK = 1 << 20 };

/* What a run has in hand. */
struct text_run {
    const struct ps_tok *t;
    struct ps_encoder *e;
    const char *path;
    FILE *in, *out;
    struct ps_detail *dt;
    char *buf;
    size_t cap, len;
    uint64_t before; /* bytes of the file in front of buf */
    bool whole;      /* added tokens that reach over spaces: no cutting */
    bool first;      /* no id written yet */
};

static void run_done(struct text_run *w)
{
    ps_encoder_close(w->e);
    if (w->in) (void) fclose(w->in);
    free(w->buf);
}

static int open_in(const char *path, FILE **ret, struct ps_detail *dt)
{
    *ret = fopen(path, "re");
    if (*ret) return 0;
    int e = errno;
    return ps_fail(dt, -e, "%s: cannot be opened: %s", path, strerror(e));
}

static int check_out(FILE *out, struct ps_detail *dt)
{
    errno = 0;
    if (fflush(out) == 0 && !ferror(out)) return 0;
    int e = errno ? errno : EIO;
    return ps_fail(dt, -e, "the output cannot be written: %s", strerror(e));
}

static void put_ids(struct text_run *w, const int32_t *id, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char s[16], *p = s + sizeof(s);
        uint32_t v = (uint32_t) id[i];
        do *--p = (char) ('0' + v % 10);
        while (v /= 10);
        if (!w->first) *--p = ' ', *--p = ',';
        w->first = false;
        (void) fwrite(p, 1, (size_t) (s + sizeof(s) - p), w->out);
    }
}

/* A place where the ids of the parts are the ids of the whole: in front of a space that follows something else than white space
 * no word of the pattern goes on, and what its look-ahead sees stays the same. 0 = none. */
static size_t find_cut(const struct text_run *w)
{
    int32_t c;
    for (size_t i = w->whole ? 0 : w->len; i-- > 1;)
        if (w->buf[i] == ' ' && (tok_char_end(w->buf, i, &c), !tok_is_space(c))) return i;
    return 0;
}

static int bad_text(const struct text_run *w, size_t len)
{
    size_t ok = ps_utf8_valid(w->buf, len);
    return ps_fail(w->dt, -EILSEQ, "%s: byte %llu is not part of valid UTF-8 (0x%02x)", w->path,
                   (unsigned long long) (w->before + ok), (uint8_t) w->buf[ok]);
}

static int encode_front(struct text_run *w, size_t len)
{
    const int32_t *id;
    size_t n;
    int r = ps_encode(w->e, w->buf, len, false, &id, &n);
    if (r == -EILSEQ) return bad_text(w, len);
    if (r < 0) return ps_fail(w->dt, r, "%s: cannot be encoded: %s", w->path, ps_err_str(r));
    put_ids(w, id, n);
    memmove(w->buf, w->buf + len, w->len - len);
    w->len -= len;
    w->before += len;
    return ferror(w->out) ? check_out(w->out, w->dt) : 0;
}

static int grow(struct text_run *w)
{
    size_t cap = w->cap ? 2 * w->cap : CHUNK;
    if (cap > TOK_MAX_TEXT)
        return ps_fail(w->dt, -EFBIG, "%s: has a stretch of %d bytes without a place to cut",
                       w->path, TOK_MAX_TEXT);
    if (ps_grow(&w->buf, &w->cap, w->len, cap, 1) < 0)
        return ps_fail(w->dt, -ENOMEM, "%s: no memory for %zu bytes of it", w->path, cap);
    return 0;
}

static int tokenize(struct text_run *w)
{
    for (bool end = false; !end;) {
        int r = w->len == w->cap ? grow(w) : 0;
        if (r < 0) return r;
        size_t k = fread(w->buf + w->len, 1, w->cap - w->len, w->in);
        if (!k && ferror(w->in)) {
            int e = errno;
            return ps_fail(w->dt, -e, "%s: cannot be read: %s", w->path, strerror(e));
        }
        w->len += k;
        end = w->len < w->cap && feof(w->in);
        if (!end && w->len < w->cap) continue;
        size_t cut = end ? w->len : find_cut(w);
        if (cut) r = encode_front(w, cut);
        if (r < 0) return r;
    }
    return 0;
}

int ps_tokenize_file(const struct ps_tok *t, const char *path, bool special, FILE *out,
                     struct ps_detail *dt)
{
    struct text_run w = { .t = t, .path = path, .out = out, .dt = dt, .first = true };
    w.whole = !t->use_regex;
    for (uint32_t i = 0; i < t->n_added; i++)
        w.whole |= t->added[i].rstrip || memchr(t->block + t->added[i].off, ' ', t->added[i].len);
    int r = open_in(path, &w.in, dt);
    if (r >= 0) r = ps_encoder_open(t, &w.e);
    if (r >= 0) {
        (void) fputc('[', out);
        if (special) put_ids(&w, t->prefix, t->n_prefix);
        r = tokenize(&w);
    }
    if (r >= 0) {
        if (special) put_ids(&w, t->suffix, t->n_suffix);
        (void) fputs("]\n", out);
        r = check_out(out, dt);
    }
    run_done(&w);
    return r;
}

/* ---- and back */
struct id_list {
    const char *path;
    FILE *in;
    struct ps_detail *dt;
    uint64_t n; /* ids read */
};

static int skip_blank(FILE *f)
{
    int c;
    do c = getc_unlocked(f);
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r');
    return c;
}

static int bad_list(const struct id_list *l, const char *want)
{
    if (ferror(l->in)) {
        int e = errno;
        return ps_fail(l->dt, -e, "%s: cannot be read: %s", l->path, strerror(e));
    }
    return ps_fail(l->dt, -PS_EFORMAT,
                   "%s: is not a JSON list of ids: expected %s after %llu of them", l->path, want,
                   (unsigned long long) l->n);
}

/* The next id, or -1 at the list's end; < -1 is an error. */
static int64_t next_id(struct id_list *l)
{
    int c = skip_blank(l->in);
    if (!l->n && c == ']') return -1;
    if (l->n) {
        if (c == ']') return -1;
        if (c != ',') return bad_list(l, "\",\" or \"]\"");
        c = skip_blank(l->in);
    }
    if (c < '0' || c > '9') return bad_list(l, "an id");
    int64_t v = c - '0';
    const bool zero = c == '0';
    while ((c = getc_unlocked(l->in)) >= '0' && c <= '9') {
        v = v * 10 + (c - '0');
        if (zero || v > INT32_MAX) return bad_list(l, "an id in the vocabulary");
    }
    if (c != EOF) (void) ungetc(c, l->in);
    l->n++;
    return v;
}

static int detokenize(struct id_list *l, struct ps_decoder *d, char *text, FILE *out)
{
    if (skip_blank(l->in) != '[') return bad_list(l, "\"[\"");
    int64_t id;
    while ((id = next_id(l)) >= 0) {
        size_t len;
        if (!ps_tok_bytes(d->tok, (int32_t) id, &len))
            return ps_fail(l->dt, -PS_EFORMAT,
                           "%s: id %lld (number %llu) is not in the vocabulary of %u", l->path,
                           (long long) id, (unsigned long long) l->n, ps_tok_vocab(d->tok));
        (void) fwrite(text, 1, ps_decode(d, (int32_t) id, text), out);
        if (ferror(out)) break;
    }
    if (id < -1) return (int) id;
    (void) fwrite(text, 1, ps_decode_end(d, text), out);
    int r = check_out(out, l->dt);
    if (r < 0) return r;
    return skip_blank(l->in) == EOF && !ferror(l->in) ? 0 : bad_list(l, "nothing more");
}

int ps_detokenize_file(const struct ps_tok *t, const char *path, bool special, FILE *out,
                       struct ps_detail *dt)
{
    struct id_list l = { .path = path, .dt = dt };
    struct ps_decoder d = { .tok = t, .skip_special = !special };
    ps_auto_free char *text = ps_calloc(1, ps_tok_longest(t));
    if (!text) return ps_fail(dt, -ENOMEM, "%s: no memory to decode it", path);
    int r = open_in(path, &l.in, dt);
    if (r < 0) return r;
    r = detokenize(&l, &d, text, out);
    (void) fclose(l.in);
    return r;
}
