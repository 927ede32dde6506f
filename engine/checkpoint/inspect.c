/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/checkpoint/inspect.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_json.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/convert.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* jansson's setters report failure, but one failed setter shows in the end as a missing field: all are ORed into `oom`. */
struct report {
    json_t *o;
    int oom;
};

static void set(struct report *r, json_t *o, const char *key, json_t *v)
{
    r->oom |= json_object_set_new(o, key, v) < 0;
}
/* A child that could not be put in place is gone: NULL, with which jansson's calls just fail. */
static json_t *child(struct report *r, json_t *o, const char *key, json_t *v)
{
    if (json_object_set_new(o, key, v) == 0) return v;
    r->oom = 1;
    return NULL;
}
static json_t *sub(struct report *r, json_t *o, const char *key)
{
    return child(r, o, key, json_object());
}
static json_t *list(struct report *r, json_t *o, const char *key)
{
    return child(r, o, key, json_array());
}
static void set_int(struct report *r, json_t *o, const char *key, uint64_t v)
{
    set(r, o, key, json_integer((json_int_t) v));
}
/* Paths need not be UTF-8; then they are shown with question marks. */
static json_t *any_text(const char *s)
{
    json_t *v = json_string(s);
    if (v) return v;
    char copy[PATH_MAX];
    (void) snprintf(copy, sizeof copy, "%s", s);
    for (char *p = copy; *p; p++)
        if ((unsigned char) *p > 0x7e) *p = '?';
    return json_string(copy);
}
static void append_text(struct report *r, json_t *a, const char *s)
{
    r->oom |= json_array_append_new(a, any_text(s)) < 0;
}

static void set_id(struct report *r, json_t *o, const char *key, int32_t id)
{
    set(r, o, key, id < 0 ? json_null() : json_integer(id));
}

static void tell_shape(struct report *r, const struct ps_shape *s)
{
    json_t *m = sub(r, r->o, "model"), *kv;
    set(r, m, "name", any_text(s->name));
    set(r, m, "family", json_string(ps_family_name(s->family)));
    set_int(r, m, "layers", s->layers);
    set_int(r, m, "hidden", s->hidden);
    set_int(r, m, "ffn", s->ffn);
    set_int(r, m, "heads", s->q_heads);
    set_int(r, m, "kv_heads", s->kv_heads);
    set_int(r, m, "head_dim", s->head_dim);
    set_int(r, m, "vocab", s->vocab);
    set_int(r, m, "embed", s->embed);
    set_int(r, m, "positions", s->positions);
    set(r, m, "norm", json_string(s->norm_before ? "before" : "after"));
    set(r, m, "final_norm", json_boolean(s->final_norm));
    set(r, m, "tied", json_boolean(s->tied));
    set(r, m, "bias", json_boolean(s->bias));
    set(r, m, "activation", json_string(s->act == PS_ACT_RELU ? "relu" : "other"));
    set_id(r, m, "bos", s->bos);
    set_id(r, m, "eos", s->eos);
    set_id(r, m, "pad", s->pad);
    uint64_t per = 2ull * s->layers * s->kv_heads * s->head_dim;
    kv = sub(r, r->o, "kv_bytes_per_token");
    set_int(r, kv, "f16", per * 2);
    set_int(r, kv, "f32", per * 4);
}

/* Parameters and bytes as the shape asks for them, in `dtype`. */
static int tell_sizes(struct report *r, const struct ps_shape *s, enum ps_dtype dtype,
                      struct ps_detail *dt)
{
    ps_auto_free struct ps_tensor *t = NULL;
    size_t n;
    int e = ps_model_tensors(s, &t, &n, dt);
    if (e < 0) return e;
    uint64_t all = 0, stem = 0, layer = 0, eb = ps_dtype_bytes(dtype);
    for (size_t i = 0; i < n; i++) {
        uint64_t k = (uint64_t) t[i].rows * t[i].cols;
        all += k;
        if (t[i].group == 0) stem += k;
        if (t[i].group == 1) layer += k;
    }
    set_int(r, r->o, "parameters", all);
    set(r, r->o, "dtype", json_string(ps_dtype_name(dtype)));
    set_int(r, r->o, "tensors", n);
    json_t *b = sub(r, r->o, "bytes");
    set_int(r, b, "weights", all * eb);
    set_int(r, b, "stem", stem * eb);
    set_int(r, b, "layer", layer * eb);
    return 0;
}

static void tell_tokenizer(struct report *r, const char *folder)
{
    const char *what = NULL;
    if (ps_is_file(folder, "vocab.json") && ps_is_file(folder, "merges.txt"))
        what = "vocab.json + merges.txt";
    else if (ps_is_file(folder, "tokenizer.json"))
        what = "tokenizer.json";
    set(r, r->o, "tokenizer", what ? json_string(what) : json_null());
    if (!what)
        append_text(r, json_object_get(r->o, "warnings"),
                    "no tokenizer files: prompts must be token ids, and results have no text");
}

static int tell_vocab(struct report *r, const char *folder, const struct ps_shape *s,
                      struct ps_detail *dt)
{
    char text[200];
    int64_t top;
    int e = ps_vocab_top(folder, &top, dt);
    if (e < 0 || top < (int64_t) s->vocab) return e;
    (void) snprintf(text, sizeof text,
                    "the tokenizer has ids up to %lld, the model's table %u rows", (long long) top,
                    s->vocab);
    append_text(r, json_object_get(r->o, "warnings"), text);
    return 0;
}

static void tell_file(struct report *r, const char *path, uint64_t bytes)
{
    json_t *f = json_object();
    set(r, f, "path", any_text(path));
    set_int(r, f, "bytes", bytes);
    r->oom |= json_array_append_new(json_object_get(r->o, "files"), f) < 0;
}

/* Reads every chunk. What cannot be read counts as damaged. */
static int verify_all(struct report *r, const struct ps_packed *p, struct ps_detail *dt)
{
    ps_auto_free char *buf = ps_aligned(PS_PACK_ALIGN, p->chunk_bytes);
    if (!buf) return ps_fail(dt, -ENOMEM, "out of memory for %u bytes", p->chunk_bytes);
    ps_auto_close int direct = open(p->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    struct ps_src_file f = { .path = p->path, .fd_direct = direct };
    f.fd = open(p->path, O_RDONLY | O_CLOEXEC);
    if (f.fd < 0) return ps_fail(dt, -errno, "%s: %s", p->path, strerror(errno));
    json_t *damaged = list(r, r->o, "damaged");
    for (uint32_t i = 0; i < p->n_chunks && json_array_size(damaged) < 100; i++) {
        struct ps_detail why = { "" };
        const char *bytes;
        const struct ps_chunk *c = &p->chunks[i];
        /* Offsets and lengths are aligned: no slack is needed. */
        int e = ps_src_read(&f, buf, c->len, c->off, &bytes, &why);
        if (e == 0) e = ps_pack_verify(p, i, bytes, &why);
        if (e < 0) append_text(r, damaged, why.text);
    }
    (void) close(f.fd);
    set(r, r->o, "checksums", json_string(json_array_size(damaged) ? "damaged" : "ok"));
    return 0;
}

static int packed(struct report *r, const char *path, bool verify, struct ps_detail *dt)
{
    ps_auto_pack struct ps_packed *p = NULL;
    int e = ps_pack_open(path, &p, dt);
    if (e < 0) return e;
    set(r, r->o, "kind", json_string("packed"));
    set(r, r->o, "format", json_string("safetensors"));
    tell_shape(r, &p->shape);
    if ((e = tell_sizes(r, &p->shape, p->dtype, dt)) < 0) return e;
    set_int(r, json_object_get(r->o, "bytes"), "file", p->file_bytes);
    set_int(r, r->o, "chunks", p->n_chunks);
    set_int(r, r->o, "longest_chunk", p->chunk_bytes);
    tell_file(r, p->path, p->file_bytes);
    char hash[20];
    (void) snprintf(hash, sizeof hash, "%016llx", (unsigned long long) p->hash);
    set(r, r->o, "hash", json_string(hash));
    tell_tokenizer(r, path);
    if ((e = tell_vocab(r, path, &p->shape, dt)) < 0) return e;
    set(r, r->o, "checksums", json_string("not checked"));
    return verify ? verify_all(r, p, dt) : 0;
}

static int folder(struct report *r, const char *path, struct ps_detail *dt)
{
    struct ps_shape s;
    ps_auto_src struct ps_src *src = NULL;
    struct ps_match m = { 0 };
    int e = ps_shape_read(path, &s, dt);
    if (e < 0 || (e = ps_shape_runs(&s, path, dt)) < 0 || (e = ps_src_open(path, &src, dt)) < 0)
        return e;
    if ((e = ps_match_make(&s, src, path, &m, dt)) < 0) return e;
    set(r, r->o, "kind", json_string("huggingface"));
    set(r, r->o, "format", json_string(src->format));
    tell_shape(r, &s);
    e = tell_sizes(r, &s, m.dtype, dt);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < src->n_files; i++) {
        tell_file(r, src->files[i].path, src->files[i].size);
        bytes += src->files[i].size;
    }
    if (e == 0) set_int(r, json_object_get(r->o, "bytes"), "file", bytes);
    tell_tokenizer(r, path);
    if (e == 0) e = tell_vocab(r, path, &s, dt);
    json_t *w = json_object_get(r->o, "warnings");
    for (size_t i = 0; i < m.n_extra && i < PS_MATCH_EXTRA; i++) {
        char text[400];
        (void) snprintf(text, sizeof text, "tensor %.200s is not part of this model",
                        m.extra[i]->name);
        append_text(r, w, text);
    }
    if (m.dtype != s.dtype)
        append_text(r, w, "config.json names another dtype than the weights have");
    ps_match_done(&m);
    return e;
}

static int weights(struct report *r, const char *path, struct ps_detail *dt)
{
    ps_auto_src struct ps_src *src = NULL;
    int e = ps_src_open_file(path, &src, dt);
    if (e < 0) return e;
    uint64_t params = 0, bytes = 0, n = 0, numel;
    const char *dtype = NULL;
    for (size_t i = 0; i < src->n_tensors; i++) {
        const struct ps_src_tensor *t = &src->tensors[i];
        if (!strncmp(t->name, "_pad.", 5) || !ps_src_numel(t->dims, t->ndim, &numel)) continue;
        params += numel;
        bytes += t->bytes;
        n++;
        if (!dtype)
            dtype = t->dtype_name;
        else if (strcmp(dtype, t->dtype_name) != 0)
            dtype = "mixed";
    }
    set(r, r->o, "kind", json_string("weights"));
    set(r, r->o, "format", json_string(src->format));
    set_int(r, r->o, "parameters", params);
    set(r, r->o, "dtype", dtype ? json_string(dtype) : json_null());
    set_int(r, r->o, "tensors", n);
    json_t *b = sub(r, r->o, "bytes");
    set_int(r, b, "weights", bytes);
    set_int(r, b, "file", src->files[0].size);
    tell_file(r, path, src->files[0].size);
    return 0;
}

static int config(struct report *r, const char *path, struct ps_detail *dt)
{
    struct ps_shape s;
    int e = ps_shape_read(path, &s, dt);
    if (e < 0) return e;
    set(r, r->o, "kind", json_string("config"));
    tell_shape(r, &s);
    struct ps_detail why;
    if (ps_shape_runs(&s, path, &why) < 0)
        append_text(r, json_object_get(r->o, "warnings"), why.text);
    return tell_sizes(r, &s, s.dtype, dt);
}

int ps_inspect_model(const char *path, bool verify, json_t **ret, struct ps_detail *dt)
{
    static const char *const fields[] = { "kind",
                                          "format",
                                          "model",
                                          "parameters",
                                          "dtype",
                                          "bytes",
                                          "tensors",
                                          "chunks",
                                          "hash",
                                          "checksums",
                                          "longest_chunk",
                                          "damaged",
                                          "kv_bytes_per_token",
                                          "tokenizer" };
    struct stat st;
    if (stat(path, &st) < 0) return ps_fail(dt, -errno, "%s: %s", path, strerror(errno));
    uint64_t failed = ps_json_failures();
    struct report r = { .o = json_object() };
    set(&r, r.o, "path", any_text(path));
    for (size_t i = 0; i < PS_ARRAY_LEN(fields); i++) set(&r, r.o, fields[i], json_null());
    (void) list(&r, r.o, "files");
    (void) list(&r, r.o, "warnings");
    size_t n = strlen(path);
    int e;
    if (S_ISDIR(st.st_mode))
        e = ps_pack_is(path) ? packed(&r, path, verify, dt) : folder(&r, path, dt);
    else
        e = n > 5 && !strcmp(path + n - 5, ".json") ? config(&r, path, dt) : weights(&r, path, dt);
    r.oom |= ps_json_failures() != failed; /* a text that was shown otherwise for want of memory */
    if (e == 0 && r.oom) e = ps_fail(dt, -ENOMEM, "out of memory for the report");
    if (e < 0)
        json_decref(r.o);
    else
        *ret = r.o;
    return e;
}
