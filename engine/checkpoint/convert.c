/* SPDX-License-Identifier: Apache-2.0 */
/* From a checkpoint to a packed model. Everything that can be refused is refused before the destination's folder is made. */
#include "engine/checkpoint/convert.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/crc32.h"
#include "engine/checkpoint/elems.h"
#include "engine/checkpoint/pack_write.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { WARNINGS_MAX = 10 };

static void warnf(const struct ps_convert_opt *opt, const char *fmt, ...) ps_printf_(2, 3);
static void warnf(const struct ps_convert_opt *opt, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    if (!opt->warn) return;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    opt->warn(opt->ud, text);
}

/* Hugging Face's OPTForCausalLM names tensors "model.decoder...", a bare OPTModel and the oldest checkpoints "decoder...". */
const struct ps_src_tensor *ps_match_find(const struct ps_src *s, const char *name)
{
    const struct ps_src_tensor *t = ps_src_find(s, name);
    return t || strncmp(name, "model.", 6) != 0 ? t : ps_src_find(s, name + 6);
}

static int match_one(const struct ps_src *s, const struct ps_tensor *t, const char *folder,
                     const struct ps_src_tensor **ret, struct ps_detail *dt)
{
    char dims[200];
    const struct ps_src_tensor *f = ps_match_find(s, t->name);
    if (!f)
        return ps_fail(dt, -PS_EFORMAT,
                       "%s: tensor %s is missing (%zu tensor%s in %u file%s); config.json asks for "
                       "it",
                       folder, t->name, s->n_tensors, ps_plural(s->n_tensors), s->n_files,
                       ps_plural(s->n_files));
    const char *path = s->files[f->file].path;
    bool same = t->vector ? f->ndim == 1 && f->dims[0] == t->cols
                          : f->ndim == 2 && f->dims[0] == t->rows && f->dims[1] == t->cols;
    if (!same && t->vector)
        return ps_fail(dt, -PS_ESHAPE, "%s: tensor %s has shape %s, config.json asks for [%u]",
                       path, f->name, ps_src_dims(f, dims, sizeof dims), t->cols);
    if (!same)
        return ps_fail(dt, -PS_ESHAPE, "%s: tensor %s has shape %s, config.json asks for [%u, %u]",
                       path, f->name, ps_src_dims(f, dims, sizeof dims), t->rows, t->cols);
    if (f->dtype < 0)
        return ps_fail(dt, -PS_EUNSUPPORTED,
                       "%s: tensor %s has dtype %s; weights may be F16, BF16 or F32", path, f->name,
                       f->dtype_name);
    *ret = f;
    return 0;
}

/* Tensors that checkpoints carry and nobody needs. */
static bool is_known_extra(const char *name)
{
    static const char *const ends[] = { "decoder.version", ".position_ids", ".attn.masked_bias",
                                        ".rotary_emb.inv_freq", "embed_positions._float_tensor" };
    size_t n = strlen(name);
    if (!strncmp(name, "_pad.", 5)) return true;
    for (size_t i = 0; i < PS_ARRAY_LEN(ends); i++) {
        size_t m = strlen(ends[i]);
        if (n >= m && !strcmp(name + n - m, ends[i])) return true;
    }
    return false;
}

void ps_match_done(struct ps_match *m)
{
    free(m->from);
    *m = (struct ps_match) { 0 };
}

int ps_match_make(const struct ps_shape *shape, const struct ps_src *s, const char *folder,
                  struct ps_match *ret, struct ps_detail *dt)
{
    ps_auto_free struct ps_tensor *list = NULL;
    size_t n;
    int r = ps_model_tensors(shape, &list, &n, dt);
    if (r < 0) return r;
    ps_auto_free const struct ps_src_tensor **from = ps_calloc(n, sizeof(*from));
    ps_auto_free bool *used = ps_calloc(s->n_tensors, sizeof *used);
    if (!from || !used) return ps_fail(dt, -ENOMEM, "out of memory for %zu tensors", n);
    bool seen[PS_DTYPE__COUNT] = { 0 };
    for (size_t i = 0; i < n; i++) {
        if ((r = match_one(s, &list[i], folder, &from[i], dt)) < 0) return r;
        used[from[i] - s->tensors] = true;
        seen[from[i]->dtype] = true;
    }
    struct ps_match m = { .n = n };
    int kinds = 0;
    for (int t = 0; t < PS_DTYPE__COUNT; t++)
        if (seen[t]) {
            m.dtype = (enum ps_dtype) t;
            kinds++;
        }
    if (kinds > 1) m.dtype = PS_F32; /* the only one that holds both others' values */
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct ps_src_tensor *t = &s->tensors[i];
        if (used[i] || is_known_extra(t->name)) continue;
        if (shape->tied && !strcmp(t->name, "lm_head.weight"))
            m.tied_head = t;
        else if (m.n_extra++ < PS_MATCH_EXTRA)
            m.extra[m.n_extra - 1] = t;
    }
    m.from = PS_TAKE(from);
    *ret = m;
    return 0;
}

struct conv {
    const struct ps_src *src;
    struct ps_match m;
    enum ps_dtype to;
    struct ps_crc32 crc;
    struct conv_sum { /* of what was read of each tensor so far */
        uint64_t read_bytes;
        uint32_t crc;
    } * sums;
    pthread_mutex_t lock; /* sums */
};

/* Whether what is read of a tensor is what its sum is of. */
static bool is_whole(const struct ps_src_tensor *t)
{
    return !t->strided && t->bytes == t->sum.bytes;
}

static int bad_crc(const struct conv *c, const struct ps_src_tensor *t, struct ps_detail *dt)
{
    return ps_fail(dt, -PS_ECORRUPT,
                   "%s: tensor %s (%llu bytes at byte %llu) does not match its checksum: the file "
                   "is damaged (an interrupted download or copy?)",
                   c->src->files[t->file].path, t->name, (unsigned long long) t->sum.bytes,
                   (unsigned long long) t->sum.off);
}

/* Chunks come in any order, each byte of a tensor once: with the last one the sum is that of the whole. */
static int check_crc(struct conv *c, uint32_t tensor, const char *bytes, uint64_t off, size_t len,
                     struct ps_detail *dt)
{
    const struct ps_src_tensor *t = c->m.from[tensor];
    if (!t->sum.crc || !is_whole(t)) return 0;
    uint32_t crc = ps_crc32_shift(ps_crc32(&c->crc, bytes, len), t->bytes - off - len);
    (void) pthread_mutex_lock(&c->lock);
    struct conv_sum *s = &c->sums[tensor];
    s->crc ^= crc;
    s->read_bytes += len;
    bool bad = s->read_bytes == t->bytes && s->crc != t->sum.crc;
    (void) pthread_mutex_unlock(&c->lock);
    return bad ? bad_crc(c, t, dt) : 0;
}

static int check_storage(const struct conv *c, const struct ps_src_tensor *t, char *buf, size_t cap,
                         const struct ps_convert_opt *opt, struct ps_detail *dt)
{
    uint32_t crc = 0;
    for (uint64_t at = 0; at < t->sum.bytes;) {
        uint64_t left = t->sum.bytes - at;
        size_t n = left < cap ? (size_t) left : cap;
        int r = ps_pack_stopped(opt, dt);
        if (r < 0) return r;
        r = ps_src_pread(&c->src->files[t->file], buf, n, t->sum.off + at, dt);
        if (r < 0) return ps_fail_in(dt, r, "tensor %s", t->name);
        crc ^= ps_crc32_shift(ps_crc32(&c->crc, buf, n), left - n);
        at += n;
    }
    return crc == t->sum.crc ? 0 : bad_crc(c, t, dt);
}

/* Of a view that is not all of its storage the storage is read whole before, once for all its views. */
static int check_views(const struct conv *c, const struct ps_convert_opt *opt, struct ps_detail *dt)
{
    enum { STEP = 1 << 20 };
    ps_auto_free char *buf = ps_calloc(STEP, 1);
    if (!buf) return ps_fail(dt, -ENOMEM, "out of memory");
    for (size_t i = 0; i < c->m.n; i++) {
        const struct ps_src_tensor *t = c->m.from[i], *u;
        if (!t->sum.crc || is_whole(t)) continue;
        size_t k = 0;
        while (k < i &&
               (u = c->m.from[k], u->file != t->file || u->sum.off != t->sum.off || is_whole(u)))
            k++;
        int r = k < i ? 0 : check_storage(c, t, buf, STEP, opt, dt);
        if (r < 0) return r;
    }
    return 0;
}

static int fill(void *ud, uint32_t tensor, uint64_t elem0, uint64_t n, void *dst, void *scratch,
                struct ps_detail *dt)
{
    struct conv *c = ud;
    const struct ps_src_tensor *t = c->m.from[tensor];
    const struct ps_src_file *f = &c->src->files[t->file];
    const enum ps_dtype from = (enum ps_dtype) t->dtype;
    const size_t eb = ps_dtype_bytes(from);
    const char *bytes;
    int r = ps_src_elems(c->src, t, scratch, elem0, n, &bytes, dt);
    if (r < 0) return ps_fail_in(dt, r, "tensor %s", t->name);
    if ((r = check_crc(c, tensor, bytes, elem0 * eb, n * eb, dt)) < 0) return r;
    size_t bad = ps_elems_convert(from, bytes, c->to, dst, n);
    if (bad == n) return 0;
    float v;
    uint32_t word = 0;
    memcpy(&word, bytes + bad * eb, eb);
    v = from == PS_F32 ? 0 : ps_dtype_get(from, &word, 0);
    if (from == PS_F32) memcpy(&v, &word, sizeof v);
    unsigned long long index = elem0 + bad;
    if (!__builtin_isfinite(v))
        return ps_fail(dt, -PS_ENUMERIC, "%s: tensor %s: element %llu is %g, not a finite number",
                       f->path, t->name, index, (double) v);
    return ps_fail(dt, -PS_ENUMERIC,
                   "%s: tensor %s: element %llu is %g, which %s cannot hold; try --dtype %s",
                   f->path, t->name, index, (double) v, ps_dtype_name(c->to),
                   c->to == PS_F16 ? "bf16 or f32" : "f32");
}

/* A tied model may carry its output table a second time. If it is another one after all, Hugging Face goes by the config. */
static int check_tied(const struct conv *c, const struct ps_shape *shape,
                      const struct ps_convert_opt *opt, struct ps_detail *dt)
{
    const struct ps_src_tensor *a = c->m.tied_head, *b;
    if (!a) return 0;
    b = ps_match_find(c->src, "model.decoder.embed_tokens.weight");
    uint64_t n = (uint64_t) shape->vocab * shape->embed, at = 0;
    enum { STEP = 1 << 20 };
    bool same = b && a->dtype >= 0 && a->ndim == 2 && !memcmp(a->dims, b->dims, sizeof a->dims);
    if (same && a->file == b->file && a->off == b->off && a->dtype == b->dtype &&
        !memcmp(a->strides, b->strides, sizeof a->strides))
        return 0;
    ps_auto_free char *ra = ps_aligned(4096, STEP * 4 + PS_SRC_ROOM),
                      *rb = ps_aligned(4096, STEP * 4 + PS_SRC_ROOM);
    if (!ra || !rb) return ps_fail(dt, -ENOMEM, "out of memory");
    while (same && at < n) {
        const char *pa, *pb;
        size_t m = n - at < STEP ? (size_t) (n - at) : STEP;
        int r = ps_pack_stopped(opt, dt);
        if (r < 0 || (r = ps_src_elems(c->src, a, ra, at, m, &pa, dt)) < 0 ||
            (r = ps_src_elems(c->src, b, rb, at, m, &pb, dt)) < 0)
            return r;
        same = ps_elems_compare((enum ps_dtype) a->dtype, pa, (enum ps_dtype) b->dtype, pb, m) == m;
        at += m;
    }
    if (!same)
        warnf(opt,
              "%s: lm_head.weight differs from the token table, but config.json ties them: it "
              "is left out",
              c->src->files[a->file].path);
    return 0;
}

static int warn_vocab(const struct ps_shape *shape, const char *src,
                      const struct ps_convert_opt *opt, struct ps_detail *dt)
{
    int64_t top;
    int r = ps_vocab_top(src, &top, dt);
    if (r == 0 && top >= (int64_t) shape->vocab)
        warnf(opt,
              "%s: the tokenizer has ids up to %lld, the model's table %u rows: prompts with the "
              "ids beyond are refused",
              src, (long long) top, shape->vocab);
    return r;
}

static void warn_extra(const struct conv *c, const struct ps_convert_opt *opt)
{
    for (size_t i = 0; i < c->m.n_extra && i < PS_MATCH_EXTRA; i++)
        warnf(opt, "%s: tensor %.200s is not part of this model and is left out",
              c->src->files[c->m.extra[i]->file].path, c->m.extra[i]->name);
    if (c->m.n_extra > PS_MATCH_EXTRA)
        warnf(opt, "%zu more tensors are not part of this model and are left out",
              c->m.n_extra - PS_MATCH_EXTRA);
}

const char *const ps_side_files[] = { "vocab.json",
                                      "merges.txt",
                                      "tokenizer.json",
                                      "tokenizer_config.json",
                                      "special_tokens_map.json",
                                      "added_tokens.json",
                                      "generation_config.json",
                                      NULL };

/* The folder with everything in it; `folder` has the tokenizer's files, or is NULL. */
int ps_pack_produce(const char *dst, const struct ps_packed_text *config, const char *folder,
                    struct ps_pack_job *job, const struct ps_convert_opt *opt, struct ps_detail *dt)
{
    struct ps_outdir d = { 0 };
    int r = ps_outdir_begin(dst, opt->overwrite, &d, opt->warn, opt->ud, dt);
    if (r < 0) return r;
    r = ps_pack_write(&d, job, opt, dt);
    if (r == 0) r = ps_outdir_put(&d, "config.json", config->text, config->len, dt);
    for (size_t i = 0; r == 0 && folder && ps_side_files[i]; i++)
        r = ps_outdir_copy(&d, folder, ps_side_files[i], dt);
    if (r == 0) r = ps_outdir_commit(&d, opt->warn, opt->ud, dt);
    ps_outdir_done(&d, dt);
    return r;
}

static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int ps_pack_convert(const char *src, const char *dst, const struct ps_convert_opt *opt,
                    struct ps_detail *dt)
{
    const struct ps_convert_opt none = { .dtype = -1 };
    if (!opt) opt = &none;
    if (same_folder(src, dst)) return ps_fail(dt, -EINVAL, "%s: SRC and DST are the same", src);
    ps_auto_free char *json = NULL;
    ps_auto_src struct ps_src *s = NULL;
    struct ps_packed_text config = { 0 };
    struct ps_shape shape;
    int r = ps_shape_load(src, &shape, &json, &config.len, dt);
    if (r < 0 || (r = ps_shape_runs(&shape, src, dt)) < 0) return r;
    config.text = json;
    if ((r = ps_src_open(src, &s, dt)) < 0) return r;
    if (s->files[0].meta_pack.s && (r = ps_pack_check_meta(&s->files[0], &shape, src, dt)) < 0)
        return r;
    struct conv c = { .src = s, .lock = PTHREAD_MUTEX_INITIALIZER };
    if ((r = ps_match_make(&shape, s, src, &c.m, dt)) < 0) return r;
    ps_crc32_init(&c.crc);
    ps_auto_free struct conv_sum *sums = c.sums = ps_calloc(c.m.n, sizeof *sums);
    c.to = opt->dtype < 0 ? c.m.dtype : (enum ps_dtype) opt->dtype;
    ps_src_direct(s);
    warn_extra(&c, opt);
    ps_auto_pack struct ps_packed *p = ps_calloc(1, sizeof *p);
    struct ps_pack_head head = { 0 };
    if (!p || !sums) r = ps_fail(dt, -ENOMEM, "out of memory");
    if (r == 0) r = warn_vocab(&shape, src, opt, dt);
    if (r == 0) r = check_views(&c, opt, dt);
    if (r == 0) r = check_tied(&c, &shape, opt, dt);
    if (r == 0) r = ps_pack_layout(&shape, c.to, p, dt);
    if (r == 0)
        r = ps_pack_head_make(p, XXH3_64bits_withSeed(json, config.len, s->hash), &head, dt);
    if (r == 0) {
        struct ps_pack_job job = { .p = p, .head = &head, .fill = fill, .ud = &c };
        job.scratch_bytes = (size_t) p->chunk_bytes / ps_dtype_bytes(c.to) * 4 + PS_SRC_ROOM;
        r = ps_pack_produce(dst, &config, src, &job, opt, dt);
    }
    ps_pack_head_done(&head);
    ps_match_done(&c.m);
    return r;
}
