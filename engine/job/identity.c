/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/identity.h"
#include "engine/base/ps_mem.h"
#include "engine/base/ps_utf8.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { READ_BYTES = 1 << 20 };

void ps_ident_add(struct ps_ident *id, const char *name, const char *fmt, ...)
{
    assert(id->n < PS_IDENT_MAX); /* fewer options than that change results */
    struct ps_ident_item *it = &id->items[id->n++];
    (void) snprintf(it->name, sizeof it->name, "%s", name);
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(it->value, sizeof it->value, fmt, ap);
    va_end(ap);
}

static int hash_file(int fd, const char *path, struct ps_ident *id, struct ps_detail *dt)
{
    ps_auto_free char *buf = ps_calloc(1, READ_BYTES);
    XXH3_state_t *x = XXH3_createState();
    uint64_t off = 0;
    int r = buf && x ? 0 : -ENOMEM;
    if (!r) (void) XXH3_128bits_reset(x);
    while (!r) {
        ssize_t n = pread(fd, buf, READ_BYTES, (off_t) off);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            r = ps_fail(dt, -errno, "%s: read failed at offset %" PRIu64 ": %s", path, off,
                        ps_err_str(errno));
        if (n <= 0) break;
        (void) XXH3_128bits_update(x, buf, (size_t) n);
        off += (uint64_t) n;
    }
    if (!r) {
        XXH128_hash_t h = XXH3_128bits_digest(x);
        ps_ident_add(id, "INPUT", "%016" PRIx64 "%016" PRIx64 ", %" PRIu64 " bytes",
                     (uint64_t) h.high64, (uint64_t) h.low64, off);
    }
    (void) XXH3_freeState(x);
    return r;
}

static void add_i64(struct ps_ident *id, const char *name, int64_t v)
{
    if (v < 0)
        ps_ident_add(id, name, "default");
    else
        ps_ident_add(id, name, "%" PRId64, v);
}

static void add_kv(struct ps_ident *id, const struct ps_kv_config *kv)
{
    static const char *const positions[] = { "default", "true", "cache" };
    ps_ident_add(id, "--kv-policy", "%s", kv->policy ? kv->policy : "full");
    if (kv->budget_share >= 0)
        ps_ident_add(id, "--kv-budget", "%.9g%%", kv->budget_share);
    else
        add_i64(id, "--kv-budget", kv->budget);
    if (kv->heavy_ratio >= 0)
        ps_ident_add(id, "--kv-heavy-ratio", "%.9g", kv->heavy_ratio);
    else
        ps_ident_add(id, "--kv-heavy-ratio", "default");
    add_i64(id, "--kv-heavy", kv->heavy);
    add_i64(id, "--kv-recent", kv->recent);
    add_i64(id, "--kv-sinks", kv->sinks);
    ps_ident_add(id, "--kv-budget-of", "%s",
                 kv->budget_of == PS_BUDGET_OF_PROMPT ? "prompt" : "total");
    ps_ident_add(id, "--kv-dtype", "%s", ps_dtype_name(kv->type));
    ps_ident_add(id, "--kv-positions", "%s", positions[(kv->positions_cache + 1) % 3]);
}

static void add_stop(struct ps_ident *id, struct ps_jstr s, uint32_t i)
{
    char name[16];
    (void) snprintf(name, sizeof name, i ? "--stop %u" : "--stop", i + 1);
    ps_ident_add(id, name, "%.*s #%016" PRIx64, (int) (s.len < 48 ? s.len : 48), s.s,
                 (uint64_t) XXH3_64bits(s.s, s.len));
    /* Cut in the middle of a character, or never UTF-8: the hash still tells. */
    char *v = id->items[id->n - 1].value;
    for (size_t n = strlen(v), ok; (ok = ps_utf8_valid(v, n)) < n;) v[ok] = '?';
}

int ps_ident_make(const struct ps_job_cfg *cfg, int input_fd, struct ps_ident *ret,
                  struct ps_detail *dt)
{
    const struct ps_params *d = &cfg->defaults;
    ret->n = 0;
    int r = hash_file(input_fd, cfg->input, ret, dt);
    if (r < 0) return r;
    ps_ident_add(ret, "MODEL", "%016" PRIx64, cfg->model->hash);
    if (cfg->tok)
        ps_ident_add(ret, "MODEL's tokenizer", "%016" PRIx64, ps_tok_hash(cfg->tok));
    else
        ps_ident_add(ret, "MODEL's tokenizer", "none");
    ps_ident_add(ret, "--text", "%s", cfg->text ? "yes" : "no");
    if (cfg->limit == UINT64_MAX)
        ps_ident_add(ret, "--limit", "none");
    else
        ps_ident_add(ret, "--limit", "%" PRIu64, cfg->limit);
    ps_ident_add(ret, "--max-tokens", "%" PRIu32, d->max_tokens);
    ps_ident_add(ret, "--temperature", "%.9g", (double) d->temperature);
    ps_ident_add(ret, "--top-p", "%.9g", (double) d->top_p);
    ps_ident_add(ret, "--top-k", "%" PRIu32, d->top_k);
    ps_ident_add(ret, "--seed", "%" PRIu64, d->seed);
    for (uint32_t i = 0; i < d->n_stop; i++) add_stop(ret, d->stop[i], i);
    add_kv(ret, &cfg->plan.kv_config);
    return 0;
}

uint64_t ps_ident_hash(const struct ps_ident *id)
{
    uint64_t h = id->n;
    for (size_t i = 0; i < id->n; i++) {
        h = XXH3_64bits_withSeed(id->items[i].name, strlen(id->items[i].name) + 1, h);
        h = XXH3_64bits_withSeed(id->items[i].value, strlen(id->items[i].value) + 1, h);
    }
    return h;
}

static const char *value_of(const struct ps_ident *id, const char *name)
{
    for (size_t i = 0; i < id->n; i++)
        if (!strcmp(id->items[i].name, name)) return id->items[i].value;
    return NULL;
}

static void differs(const char *name, const char *was, const char *is, char *text, size_t n)
{
    size_t at = strlen(text);
    (void) snprintf(text + at, n - at, "%s%s was %s, is %s", at ? "; " : "", name,
                    was ? was : "not given", is ? is : "not given");
}

bool ps_ident_same(const struct ps_ident *was, const struct ps_ident *is, char *ret_text, size_t n)
{
    ret_text[0] = 0;
    for (size_t i = 0; i < was->n; i++) {
        const char *v = value_of(is, was->items[i].name);
        if (!v || strcmp(v, was->items[i].value) != 0)
            differs(was->items[i].name, was->items[i].value, v, ret_text, n);
    }
    for (size_t i = 0; i < is->n; i++)
        if (!value_of(was, is->items[i].name))
            differs(is->items[i].name, NULL, is->items[i].value, ret_text, n);
    return !ret_text[0];
}
