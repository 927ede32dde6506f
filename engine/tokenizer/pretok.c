/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2's pre-tokenizer: the pattern that cuts text into words, through PCRE2.
 *
 * Hugging Face runs the pattern with Oniguruma (Unicode 16 in tokenizers 0.22 and 0.23). Two things differ from PCRE2 10.42
 * (Unicode 14) and are written out here: PCRE2's \s also has U+180E, which is no white space since Unicode 6.3; and letters and
 * digits that came with Unicode 15, 15.1 and 16 are named as ranges. A PCRE2 that knows them already takes them twice, to no
 * effect. With both, the classes agree on all code points (tests/tokenizer/compare_hf.py --classes). */
#include "engine/base/ps_mem.h"
#include "engine/tokenizer/tok_impl.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define SPACE                                                                           \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define LETTER                                                                                     \
    "\\p{L}"                                                                                       \
    "\\x{1C89}\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}"                \
    "\\x{10D4A}-\\x{10D65}\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}\\x{11240}"          \
    "\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}" \
    "\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}\\x{1342F}"          \
    "\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}\\x{16D40}-\\x{16D6C}"         \
    "\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{"      \
    "1E4EB}"                                                                                       \
    "\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define NUMBER                                                                             \
    "\\p{N}"                                                                               \
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}" \
    "\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}" \
    "\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}"
/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static const char pattern[] = "'(?:[stmd]|re|ve|ll)| ?[" LETTER "]+| ?[" NUMBER "]+"
                              "| ?[^" SPACE LETTER NUMBER "]+"
                              "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+";

struct tok_pretok {
    pcre2_general_context *mem;
    pcre2_code *code;
    bool jit;
};

struct tok_words {
    const struct tok_pretok *p;
    pcre2_match_data *md;
};

static void *mem_get(size_t n, void *arg) { return ps_calloc(1, n); }
static void mem_put(void *p, void *arg) { free(p); }

int tok_pretok_open(bool jit, struct tok_pretok **ret, struct ps_detail *dt)
{
    struct tok_pretok *p = ps_calloc(1, sizeof(*p));
    if (!p) return -ENOMEM;
    p->mem = pcre2_general_context_create(mem_get, mem_put, NULL);
    pcre2_compile_context *cc = p->mem ? pcre2_compile_context_create(p->mem) : NULL;
    int err = PCRE2_ERROR_HEAP_FAILED;
    PCRE2_SIZE at = 0;
    if (cc)
        p->code = pcre2_compile((PCRE2_SPTR) pattern, sizeof(pattern) - 1,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_START_OPTIMIZE,
                                &err, &at, cc);
    pcre2_compile_context_free(cc);
    if (!p->code) {
        tok_pretok_close(p);
        if (err == PCRE2_ERROR_HEAP_FAILED) return -ENOMEM;
        return ps_fail(dt, -PS_EUNSUPPORTED,
                       "libpcre2 refuses the tokenizer's pattern (error %d at %zu); it needs "
                       "Unicode support",
                       err, (size_t) at);
    }
    /* Where the system forbids writable code (SELinux), matching is interpreted: slower, but the same. */
    p->jit = jit && pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    *ret = p;
    return 0;
}

void tok_pretok_close(struct tok_pretok *p)
{
    if (!p) return;
    pcre2_code_free(p->code);
    pcre2_general_context_free(p->mem);
    free(p);
}

bool tok_pretok_jit(const struct tok_pretok *p) { return p->jit; }

int tok_words_open(const struct tok_pretok *p, struct tok_words **ret)
{
    struct tok_words *w = ps_calloc(1, sizeof(*w));
    if (!w) return -ENOMEM;
    w->p = p;
    w->md = pcre2_match_data_create(1, p->mem);
    if (!w->md) {
        free(w);
        return -ENOMEM;
    }
    *ret = w;
    return 0;
}

void tok_words_close(struct tok_words *w)
{
    if (!w) return;
    pcre2_match_data_free(w->md);
    free(w);
}

int64_t tok_words_next(struct tok_words *w, const char *s, size_t len, size_t at)
{
    PCRE2_SPTR u = (PCRE2_SPTR) s;
    int rc = w->p->jit ? pcre2_jit_match(w->p->code, u, len, at, 0, w->md, NULL) : -1;
    if (rc < 0)
        rc = pcre2_match(w->p->code, u, len, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->md, NULL);
    if (rc == PCRE2_ERROR_NOMEMORY) return -ENOMEM;
    size_t end = rc >= 0 ? pcre2_get_ovector_pointer(w->md)[1] : 0;
    return end > at ? (int64_t) end : -PS_EUNSUPPORTED; /* the pattern matches everywhere */
}
