/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/output.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/job/places.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { PART_BUF = 256 << 10, COPY_BUF = 1 << 20, COPY_FIRST = 4 << 10 };

int ps_output_init(struct ps_output *o, const char *path, const char *dump)
{
    *o = (struct ps_output) { .out.fd = -1, .kept.fd = -1, .in_order = true };
    o->path = ps_concat(path, "", "");
    o->part = ps_concat(path, "", ".part");
    o->journal = ps_concat(path, "", ".journal");
    o->sorted = ps_concat(path, "", ".sorted");
    if (dump) {
        o->dump = ps_concat(dump, "", "");
        o->dump_part = ps_concat(dump, "", ".part");
    }
    if (o->path && o->part && o->journal && o->sorted && !dump == !(o->dump && o->dump_part))
        return 0;
    ps_output_done(o);
    return -ENOMEM;
}

void ps_output_done(struct ps_output *o)
{
    if (o->out.fd >= 0) (void) close(o->out.fd);
    if (o->kept.fd >= 0) (void) close(o->kept.fd);
    ps_jout_done(&o->out);
    ps_jout_done(&o->kept);
    (void) XXH3_freeState(o->sum);
    free(o->path);
    free(o->part);
    free(o->journal);
    free(o->sorted);
    free(o->dump);
    free(o->dump_part);
    *o = (struct ps_output) { .out.fd = -1, .kept.fd = -1 };
}

static int bad_file(struct ps_detail *dt, int r, const char *path, const char *what)
{
    return ps_fail(dt, r, "%s: %s: %s", path, what, ps_err_str(r));
}

uint64_t ps_line_key(uint32_t line) { return XXH3_64bits(&line, sizeof line); }

static void add_done(struct ps_done *d, const struct ps_result *r)
{
    d->in_order = (!d->done || d->in_order) && r->line > d->last_line;
    d->last_line = r->line;
    d->lines += ps_line_key(r->line);
    d->done++;
    d->failed += r->failed;
    d->prompt_tokens += r->prompt_tokens;
    d->generated_tokens += r->generated_tokens;
    if (r->created) d->created = r->created;
}

static int count_records(int fd, uint64_t job, struct ps_done *ret)
{
    struct ps_results rs;
    struct ps_result rec;
    struct stat st;
    uint64_t end = 0;
    int r = ps_results_open(fd, &rs);
    if (r < 0) return r;
    *ret = (struct ps_done) { 0 };
    while ((r = ps_results_next(&rs, &rec)) > 0) {
        if (!rec.ok || rec.job != job) r = -PS_ECONFLICT;
        if (r < 0) break;
        add_done(ret, &rec);
        end = rec.off + rec.len;
    }
    if (!r && fstat(fd, &st) < 0) r = -errno;
    if (!r) ret->torn = (uint64_t) st.st_size != end;
    if (!r && !ret->done) r = -PS_ECONFLICT;
    ps_results_close(&rs);
    return r;
}

int ps_output_look(const struct ps_output *o, uint64_t job, struct ps_done *ret,
                   struct ps_detail *dt)
{
    struct stat st;
    if (stat(o->path, &st) < 0)
        return errno == ENOENT ? 0 : bad_file(dt, -errno, o->path, "cannot be looked at");
    ps_auto_close int fd = open(o->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return bad_file(dt, -errno, o->path, "cannot open");
    int r = count_records(fd, job, ret);
    if (r == -PS_ECONFLICT)
        return ps_fail(dt, r,
                       "%s exists and is not this job's (another INPUT, MODEL or options that "
                       "change results); --overwrite replaces it",
                       o->path);
    return r < 0 ? bad_file(dt, r, o->path, "cannot read") : 1;
}

static int open_part(const char *path, bool anew, struct ps_jout *o, struct ps_detail *dt)
{
    int fd, r = ps_places_open(path, anew ? O_TRUNC : 0, &fd, dt);
    if (r < 0) return r;
    return ps_jout_init(o, fd, 0, PART_BUF); /* takes the descriptor, whatever it returns */
}

/* The lines of one result in the KV dump, which must come next there: 1, 0 if they do not, or an error. */
static int take_dump(struct ps_results *dump, const struct ps_result *rec, uint32_t layers,
                     uint64_t *end)
{
    struct ps_result line;
    for (uint32_t l = 0; l < layers; l++) {
        int r = ps_results_next(dump, &line);
        if (r <= 0) return r;
        if (!line.custom_id || !rec->custom_id || line.custom_id_len != rec->custom_id_len ||
            memcmp(line.custom_id, rec->custom_id, rec->custom_id_len) != 0)
            return 0;
        *end = line.off + line.len;
    }
    return 1;
}

struct resume {
    struct ps_output *o;
    struct ps_table *t;
    struct ps_done *done;
    uint64_t job;
    uint32_t layers;
    struct ps_results recs, dump;
};

/* Takes one record in; 0 means that it and what follows has to go. */
static int take_record(struct resume *s, const struct ps_result *rec)
{
    uint32_t i = 0;
    int r = rec->ok && rec->job == s->job ? ps_table_find_line(s->t, rec->line, &i) : 0;
    if (r <= 0 || ps_table_is_done(s->t, i)) return r < 0 ? r : 0;
    if (s->o->dump && !rec->failed) {
        r = take_dump(&s->dump, rec, s->layers, &s->o->kept_done);
        if (r <= 0) return r;
    }
    r = ps_table_set_done(s->t, i, rec->off);
    if (r < 0) return r;
    s->o->in_order &= s->o->last_line < (int64_t) i;
    s->o->last_line = i;
    add_done(s->done, rec);
    return 1;
}

static int take_in(struct resume *s)
{
    struct ps_output *o = s->o;
    struct ps_result rec;
    uint64_t end = 0;
    int r = ps_results_open(o->out.fd, &s->recs);
    if (!r && o->dump) r = ps_results_open(o->kept.fd, &s->dump);
    while (!r && (r = ps_results_next(&s->recs, &rec)) > 0) {
        r = take_record(s, &rec);
        if (r <= 0) break;
        end = rec.off + rec.len;
        r = 0;
    }
    ps_results_close(&s->recs);
    ps_results_close(&s->dump);
    if (r < 0) return r;
    o->out.at = end;
    o->kept.at = o->kept_done;
    r = ps_jout_rewind(&o->out, end);
    return r < 0 || !o->dump ? r : ps_jout_rewind(&o->kept, o->kept_done);
}

/* Adds bytes [from, to) of the part file to a sum. */
static int sum_bytes(struct ps_output *o, XXH3_state_t *sum, uint64_t from, uint64_t to,
                     struct ps_detail *dt)
{
    ps_auto_free char *buf = ps_calloc(1, PART_BUF);
    if (!buf) return -ENOMEM;
    while (from < to) {
        size_t n = to - from < PART_BUF ? (size_t) (to - from) : PART_BUF;
        int r = ps_pread_all(o->out.fd, buf, n, from);
        if (r < 0) return bad_file(dt, r, o->part, "cannot read");
        (void) XXH3_64bits_update(sum, buf, n);
        from += n;
    }
    return 0;
}

int ps_output_sum(struct ps_output *o, struct ps_part_sum *ret, struct ps_detail *dt)
{
    int r = sum_bytes(o, o->sum, o->summed, o->out.at, dt);
    if (r < 0) return r;
    o->summed = o->out.at;
    *ret = (struct ps_part_sum) { o->summed, XXH3_64bits_digest(o->sum) };
    return 0;
}

static int check_sum(struct ps_output *o, const struct ps_part_sum *part, struct ps_detail *dt)
{
    struct stat st;
    if (fstat(o->out.fd, &st) < 0) return bad_file(dt, -errno, o->part, "cannot be looked at");
    if ((uint64_t) st.st_size < part->bytes) return 0;
    int r = sum_bytes(o, o->sum, 0, part->bytes, dt);
    if (!r && part->bytes && XXH3_64bits_digest(o->sum) != part->xxh3)
        r = ps_fail(dt, -PS_ECORRUPT,
                    "%s: its first %" PRIu64
                    " bytes are not what was written: it is damaged; --no-resume starts the job "
                    "anew",
                    o->part, part->bytes);
    (void) XXH3_64bits_reset(o->sum);
    return r;
}

int ps_output_open(struct ps_output *o, bool anew, const struct ps_part_sum *part, uint64_t job,
                   uint32_t layers, struct ps_table *t, struct ps_done *ret, struct ps_detail *dt)
{
    *ret = (struct ps_done) { 0 };
    o->last_line = -1;
    o->sum = XXH3_createState();
    if (!o->sum) return -ENOMEM;
    (void) XXH3_64bits_reset(o->sum);
    int r = open_part(o->part, anew, &o->out, dt);
    if (!r && o->dump) r = open_part(o->dump_part, anew, &o->kept, dt);
    if (r < 0 || anew) return r;
    if ((r = check_sum(o, part, dt)) < 0) return r;
    struct resume *s = ps_calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    *s = (struct resume) { .o = o, .t = t, .done = ret, .job = job, .layers = layers };
    r = take_in(s);
    free(s);
    return r < 0 ? bad_file(dt, r, o->part, "cannot take in what is there") : 0;
}

int ps_output_check_parts(struct ps_output *o, const struct ps_part_sum *part, struct ps_detail *dt)
{
    int r = ps_places_look(o->part, &o->out.fd, dt);
    if (!r && o->dump) r = ps_places_look(o->dump_part, &o->kept.fd, dt);
    if (r < 0 || o->out.fd < 0 || !part) return r;
    o->sum = XXH3_createState();
    if (!o->sum) return -ENOMEM;
    (void) XXH3_64bits_reset(o->sum);
    return check_sum(o, part, dt);
}

static int write_failed(struct ps_detail *dt, int r, const char *path, uint64_t off)
{
    return ps_fail(dt, r,
                   "%s: write failed at offset %" PRIu64
                   ": %s; finished results stay, the same command goes on later",
                   path, off, ps_err_str(r));
}

/* Takes back a result that could not be written whole. */
static int take_back(struct ps_output *o, int r, uint64_t from, struct ps_detail *dt)
{
    bool kept = o->dump && o->kept.err;
    r = write_failed(dt, r, kept ? o->dump_part : o->part, kept ? o->kept.at : o->out.at);
    (void) !ps_jout_rewind(&o->out, from);
    if (o->dump) (void) !ps_jout_rewind(&o->kept, o->kept_done);
    return r;
}

int ps_output_record(struct ps_output *o, int r, uint64_t from, struct ps_table *t, uint32_t index,
                     struct ps_detail *dt)
{
    if (r < 0) return take_back(o, r, from, dt);
    if (o->dump) o->kept_done = ps_jout_tell(&o->kept);
    o->in_order &= o->last_line < (int64_t) index;
    o->last_line = index;
    o->unsynced++;
    r = ps_table_set_done(t, index, from);
    return r < 0 ? bad_file(dt, r, o->path, "the job's temporary files beside it") : 0;
}

int ps_output_sync(struct ps_output *o, struct ps_detail *dt)
{
    if (!o->unsynced) return 0;
    int r = o->dump ? ps_jout_flush(&o->kept) : 0;
    if (!r && o->dump && fdatasync(o->kept.fd) < 0) r = -errno;
    if (r < 0) return write_failed(dt, r, o->dump_part, o->kept.at);
    r = ps_jout_flush(&o->out);
    if (!r && fdatasync(o->out.fd) < 0) r = -errno;
    if (r < 0) return write_failed(dt, r, o->part, o->out.at);
    o->unsynced = 0;
    return 0;
}

static int named(int fd, const char *path, struct ps_detail *dt)
{
    struct stat st;
    if (fstat(fd, &st) < 0) return bad_file(dt, -errno, path, "cannot be looked at");
    if (st.st_nlink) return 0;
    return ps_fail(dt, -ENOENT,
                   "%s was removed while the job ran; the job stops, for its results would be lost",
                   path);
}

int ps_output_named(const struct ps_output *o, const struct ps_journal *j, struct ps_detail *dt)
{
    int r = named(o->out.fd, o->part, dt);
    if (!r && o->dump) r = named(o->kept.fd, o->dump_part, dt);
    return r ? r : named(j->fd, j->path, dt);
}

/* Copies the line at `off`; small reads first, since most records are short. */
static int copy_line(int fd, uint64_t off, char *buf, struct ps_jout *to)
{
    for (size_t want = COPY_FIRST;; want = want * 4 < COPY_BUF ? want * 4 : COPY_BUF) {
        ssize_t n = pread(fd, buf, want, (off_t) off);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        if (!n) return -ENODATA;
        char *nl = memchr(buf, '\n', (size_t) n);
        ps_jout_bytes(to, buf, nl ? (size_t) (nl + 1 - buf) : (size_t) n);
        if (nl || to->err) return to->err;
        off += (uint64_t) n;
    }
}

static int sort_into(struct ps_output *o, const struct ps_table *t, int fd,
                     const volatile sig_atomic_t *stop)
{
    struct ps_jout to;
    ps_auto_free char *buf = ps_calloc(1, COPY_BUF);
    int r = buf ? ps_jout_init(&to, fd, 0, COPY_BUF) : -ENOMEM;
    if (r < 0) return r;
    for (uint32_t i = 0; !r && i < t->n; i++) {
        uint64_t off;
        r = ps_table_off(t, i, &off);
        if (!r) r = copy_line(o->out.fd, off, buf, &to);
        if (!r && stop && *stop) r = -ECANCELED;
    }
    if (!r) r = ps_jout_flush(&to);
    if (!r && fsync(fd) < 0) r = -errno;
    ps_jout_done(&to);
    return r;
}

static int make_sorted(struct ps_output *o, const struct ps_table *t,
                       const volatile sig_atomic_t *stop, struct ps_detail *dt)
{
    ps_auto_close int fd = -1;
    int r = ps_places_open(o->sorted, O_TRUNC, &fd, dt);
    if (r < 0) return r;
    r = sort_into(o, t, fd, stop);
    if (r < 0) (void) unlink(o->sorted);
    if (r < 0 && r != -ECANCELED)
        return ps_fail(dt, r,
                       "%s: results could not be put in order: %s; they are all in %s, the same "
                       "command goes on later",
                       o->sorted, ps_err_str(r), o->part);
    return r;
}

static int rename_dump(struct ps_output *o, struct ps_detail *dt)
{
    if (!o->dump) return 0;
    if (rename(o->dump_part, o->dump) < 0)
        return bad_file(dt, -errno, o->dump, "cannot rename the dump into place");
    int r = ps_sync_beside(o->dump);
    return r < 0 ? bad_file(dt, r, o->dump, "its folder cannot be synced") : 0;
}

int ps_output_tidy(struct ps_output *o, uint64_t job, const struct ps_done *done, bool look,
                   struct ps_detail *dt)
{
    ps_auto_close int fd = open(o->part, O_RDONLY | O_CLOEXEC);
    struct ps_done part = { 0 };
    if (fd >= 0 && (count_records(fd, job, &part) < 0 || part.done != done->done ||
                    part.created != done->created))
        return 0;
    if (look) return 1;
    if (o->dump && !access(o->dump_part, F_OK)) {
        int r = rename_dump(o, dt);
        if (r < 0) return r;
    }
    if (fd >= 0) (void) unlink(o->part);
    return 1;
}

int ps_output_finish(struct ps_output *o, const struct ps_table *t, bool completion,
                     const volatile sig_atomic_t *stop, struct ps_detail *dt)
{
    bool sort = !completion && !o->in_order;
    o->unsynced++;
    int r = ps_output_sync(o, dt);
    if (!r && sort) r = make_sorted(o, t, stop, dt);
    if (r < 0) return r;
    if (rename(sort ? o->sorted : o->part, o->path) < 0)
        return bad_file(dt, -errno, o->path, "cannot rename results into place");
    r = ps_sync_beside(o->path);
    if (r < 0) return bad_file(dt, r, o->path, "its folder cannot be synced");
    r = rename_dump(o, dt);
    if (r < 0) return r;
    if (sort) (void) unlink(o->part);
    return 0;
}
