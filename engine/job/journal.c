/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/journal.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_jscan.h"
#include "engine/job/lines.h"
#include "engine/job/places.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { JOURNAL_BUF = 16 << 10, VERSION = 3 };

/* -EBUSY, naming it, if another process has it locked; 0 if none has. */
static int whose(int fd, const char *path, struct ps_detail *dt)
{
    struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    if (fcntl(fd, F_GETLK, &l) < 0)
        return ps_fail(dt, -errno, "%s: cannot lock: %s", path, ps_err_str(errno));
    return l.l_type == F_UNLCK
               ? 0
               : ps_fail(dt, -EBUSY,
                         "%s: process %ld is working on this output; wait for it or stop it", path,
                         (long) l.l_pid);
}

/* Locks the file that is at path now: it may be removed by its last owner between open and lock. */
static int open_locked(const char *path, int *ret, struct ps_detail *dt)
{
    for (;;) {
        ps_auto_close int fd = -1;
        int r = ps_places_open(path, 0, &fd, dt);
        if (r < 0) return r;
        struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        if (fcntl(fd, F_SETLK, &l) < 0) {
            int e = errno;
            if (e != EACCES && e != EAGAIN)
                return ps_fail(dt, -e, "%s: cannot lock: %s", path, ps_err_str(e));
            r = whose(fd, path, dt);
            if (r < 0) return r;
            continue; /* it ended just now */
        }
        struct stat a, b;
        if (fstat(fd, &a) < 0 || stat(path, &b) < 0 || a.st_ino != b.st_ino || a.st_dev != b.st_dev)
            continue;
        *ret = PS_TAKE_FD(fd);
        return 0;
    }
}

static bool get_options(struct ps_jscan *c, struct ps_ident *id)
{
    char *name, *value;
    int r = ps_jscan_open(c, '{');
    id->n = 0;
    while (r >= 0 && (r = ps_jscan_name(c, &name)) > 0) {
        struct ps_ident_item *it = &id->items[id->n];
        if (id->n == PS_IDENT_MAX || ps_jscan_text(c, &value) < 0 ||
            strlen(name) >= sizeof it->name || strlen(value) >= sizeof it->value)
            return false;
        (void) snprintf(it->name, sizeof it->name, "%s", name);
        (void) snprintf(it->value, sizeof it->value, "%s", value);
        id->n++;
    }
    return r >= 0;
}

static bool get_sums(struct ps_jscan *c, double sums[PS_SUM__COUNT])
{
    size_t n = 0;
    int r = ps_jscan_open(c, '[');
    for (; r >= 0 && (r = ps_jscan_next(c)) > 0; n++)
        if (n == PS_SUM__COUNT || ps_jscan_double(c, &sums[n]) < 0) return false;
    return r >= 0 && n == PS_SUM__COUNT;
}

/* The members of a line that were there. */
enum {
    HAS_VERSION = 1,
    HAS_JOB = 2,
    HAS_STARTED = 4,
    HAS_OPTIONS = 8,
    HAS_RUN = 16,
    HAS_SUMS = 32,
    HAS_PART_BYTES = 64,
    HAS_PART_SUM = 128
};
enum {
    FIRST_LINE = HAS_VERSION | HAS_JOB | HAS_STARTED | HAS_OPTIONS,
    SUMS_LINE = HAS_RUN | HAS_SUMS | HAS_PART_BYTES | HAS_PART_SUM
};

static int get_number(struct ps_jscan *c, uint64_t most, uint64_t *ret)
{
    int r = ps_jscan_u64(c, ret);
    return r < 0 || *ret <= most ? r : -PS_EFORMAT;
}

static int get_hash(struct ps_jscan *c, uint64_t *ret)
{
    char *text, *end;
    int r = ps_jscan_text(c, &text);
    if (r < 0) return r;
    *ret = strtoull(text, &end, 16);
    return end == text + 16 && !*end ? 0 : -PS_EFORMAT;
}

/* Takes one member in: the bit for it (0 for one that is not known), or an error. */
static int get_member(struct ps_jscan *c, struct ps_jstr key, struct ps_journal *j,
                      struct ps_journal_run *ret)
{
    uint64_t v = 0;
    int r;
    if (ps_jstr_is(key, "penstock_journal"))
        return get_number(c, UINT64_MAX, &v) < 0 || v != VERSION ? -PS_EFORMAT : HAS_VERSION;
    if (ps_jstr_is(key, "job")) return (r = get_hash(c, &j->job)) < 0 ? r : HAS_JOB;
    if (ps_jstr_is(key, "started")) {
        r = get_number(c, INT64_MAX, &v);
        j->started = (int64_t) v;
        return r < 0 ? r : HAS_STARTED;
    }
    if (ps_jstr_is(key, "options")) return get_options(c, &j->ident) ? HAS_OPTIONS : -PS_EFORMAT;
    if (ps_jstr_is(key, "dump_kv")) return ps_jscan_bool(c, &j->dump_kv);
    if (ps_jstr_is(key, "run")) {
        r = get_number(c, UINT32_MAX, &v);
        ret->run = (uint32_t) v;
        return r < 0 ? r : HAS_RUN;
    }
    if (ps_jstr_is(key, "sums")) return get_sums(c, ret->sums) ? HAS_SUMS : -PS_EFORMAT;
    if (ps_jstr_is(key, "part_bytes"))
        return get_number(c, INT64_MAX, &ret->part.bytes) < 0 ? -PS_EFORMAT : HAS_PART_BYTES;
    if (ps_jstr_is(key, "part_xxh3"))
        return get_hash(c, &ret->part.xxh3) < 0 ? -PS_EFORMAT : HAS_PART_SUM;
    return ps_jscan_skip(c);
}

int ps_journal_line(char *line, size_t len, struct ps_journal *j, struct ps_journal_run *ret)
{
    struct ps_jscan c;
    struct ps_jstr key;
    int have = 0, r;
    ps_jscan_init(&c, line, len);
    if (ps_jscan_open(&c, '{') < 0) return 0;
    while ((r = ps_jscan_key(&c, &key)) > 0) {
        if ((r = get_member(&c, key, j, ret)) < 0) return 0;
        have |= r;
    }
    if (r < 0 || ps_jscan_done(&c) < 0) return 0;
    return have == FIRST_LINE ? 1 : have == SUMS_LINE ? 2 : 0;
}

static void add_sums(struct ps_journal *j, const double last[PS_SUM__COUNT])
{
    for (int i = 0; i < PS_SUM__COUNT; i++) j->sums[i] += last[i];
}

/* The file's length, and whether its last line is whole. */
static int look(int fd, uint64_t *ret_len, bool *ret_whole)
{
    struct stat st;
    char last = '\n';
    if (fstat(fd, &st) < 0) return -errno;
    *ret_len = (uint64_t) st.st_size;
    int r = st.st_size ? ps_pread_all(fd, &last, 1, *ret_len - 1) : 0;
    *ret_whole = last == '\n';
    return r;
}

/* Line by line into j, *ret_end = where the last good one ends. */
static int read_lines(struct ps_journal *j, struct ps_lines *l, uint64_t *ret_end,
                      struct ps_detail *dt)
{
    double last[PS_SUM__COUNT] = { 0 };
    struct ps_journal_run run = { 0 };
    uint32_t last_run = 0;
    uint64_t len_bytes = 0;
    bool whole = false;
    int r = look(j->fd, &len_bytes, &whole);
    while (!r) {
        char *s = NULL;
        size_t len = 0;
        int kind = ps_lines_next(l, &s, &len);
        if (kind < 0) return kind;
        if (!kind) break;
        uint64_t next = l->off - (l->to - l->from);
        if (next == len_bytes && !whole) break; /* torn: the lines before it count */
        int what = kind == PS_LINE_OK ? ps_journal_line(s, len, j, &run) : 0;
        if (l->line == 1 && what != 1)
            return ps_fail(
                dt, -PS_EFORMAT,
                "%s, line 1: not a journal of this version; --no-resume starts the job anew",
                j->path);
        if (l->line > 1 && what != 2) break;
        *ret_end = next;
        j->fresh = false;
        if (what == 1) continue;
        if (run.run != last_run) add_sums(j, last);
        last_run = run.run;
        memcpy(last, run.sums, sizeof last);
        j->part = run.part;
    }
    if (!r) add_sums(j, last);
    j->runs = last_run;
    return r;
}

static int read_it(struct ps_journal *j, bool cut, struct ps_detail *dt)
{
    struct ps_lines l;
    uint64_t end = 0;
    int r = ps_lines_init(&l, j->fd);
    if (!r) r = read_lines(j, &l, &end, dt);
    ps_lines_done(&l);
    if (!r && cut && ftruncate(j->fd, (off_t) end) < 0) r = -errno;
    j->out.at = end;
    return r < 0 && r != -PS_EFORMAT ? ps_fail(dt, r, "%s: cannot be read%s: %s", j->path,
                                               cut ? " and cut" : "", ps_err_str(r))
                                     : r;
}

static int init(const char *path, struct ps_journal *j)
{
    memset(j, 0, sizeof *j);
    j->fd = -1;
    j->fresh = true;
    j->path = ps_concat(path, "", "");
    return j->path ? 0 : -ENOMEM;
}

int ps_journal_open(const char *path, bool discard, struct ps_journal *ret, struct ps_detail *dt)
{
    int r = init(path, ret);
    if (!r) r = open_locked(path, &ret->fd, dt);
    if (!r) r = ps_jout_init(&ret->out, ret->fd, 0, JOURNAL_BUF);
    uint64_t len = 1;
    bool whole;
    if (!r) r = look(ret->fd, &len, &whole);
    ret->remove = !len;
    if (!r) r = discard ? 0 : read_it(ret, true, dt);
    if (r < 0) ps_journal_close(ret);
    return r;
}

int ps_journal_look(const char *path, bool discard, struct ps_journal *ret, struct ps_detail *dt)
{
    int r = init(path, ret);
    if (!r) r = ps_places_look(path, &ret->fd, dt);
    if (!r && ret->fd >= 0) r = whose(ret->fd, path, dt);
    if (!r && ret->fd >= 0 && !discard) r = read_it(ret, false, dt);
    if (r < 0) ps_journal_close(ret);
    return r;
}

void ps_journal_close(struct ps_journal *j)
{
    if (j->fd >= 0) {
        if (j->remove) (void) unlink(j->path);
        (void) close(j->fd);
    }
    ps_jout_done(&j->out);
    free(j->path);
    j->path = NULL;
    j->fd = -1;
}

int ps_journal_begin(struct ps_journal *j, const struct ps_ident *id, int64_t started, bool dump_kv)
{
    struct ps_jout *o = &j->out;
    char hash[24];
    bool first = true;
    if (ftruncate(j->fd, 0) < 0) return -errno;
    o->at = 0;
    j->started = started;
    j->job = ps_ident_hash(id);
    (void) snprintf(hash, sizeof hash, "\"%016" PRIx64 "\"", j->job);
    ps_jout_text(o, "{\"penstock_journal\": ");
    ps_jout_u64(o, VERSION);
    ps_jout_text(o, ", \"job\": ");
    ps_jout_text(o, hash);
    ps_jout_text(o, ", \"started\": ");
    ps_jout_i64(o, started);
    ps_jout_text(o, dump_kv ? ", \"dump_kv\": true" : ", \"dump_kv\": false");
    ps_jout_text(o, ", \"options\": {");
    for (size_t i = 0; i < id->n; i++) {
        ps_jout_key(o, &first, id->items[i].name);
        ps_jout_string(o, id->items[i].value, strlen(id->items[i].value));
    }
    ps_jout_text(o, "}}\n");
    int r = ps_jout_flush(o);
    if (!r && fsync(j->fd) < 0) r = -errno;
    if (!r) r = ps_sync_beside(j->path);
    if (!r) j->fresh = j->remove = false;
    return r;
}

int ps_journal_sums(struct ps_journal *j, const double sums[PS_SUM__COUNT],
                    const struct ps_part_sum *part)
{
    char hash[24];
    struct ps_jout *o = &j->out;
    uint64_t at = ps_jout_tell(o);
    ps_jout_text(o, "{\"run\": ");
    ps_jout_u64(o, j->runs + 1);
    ps_jout_text(o, ", \"sums\": [");
    for (int i = 0; i < PS_SUM__COUNT; i++) {
        if (i) ps_jout_text(o, ", ");
        ps_jout_f64(o, sums[i] == sums[i] ? sums[i] : 0);
    }
    ps_jout_text(o, "], \"part_bytes\": ");
    ps_jout_u64(o, part->bytes);
    (void) snprintf(hash, sizeof hash, "\"%016" PRIx64 "\"", part->xxh3);
    ps_jout_text(o, ", \"part_xxh3\": ");
    ps_jout_text(o, hash);
    ps_jout_text(o, "}\n");
    int r = ps_jout_flush(o);
    if (r < 0) (void) !ps_jout_rewind(o, at);
    return r;
}
