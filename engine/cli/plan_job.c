/* SPDX-License-Identifier: Apache-2.0 */
/* A job's file, read for the lengths of its requests. */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/cli/plan.h"
#include "engine/job/lengths_of.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct job {
    struct ps_tok *tok;
    struct ps_spool spool;
    struct ps_table table;
    struct ps_first first;
    int fd;
};

static int first_pass(const struct ps_job_file *f, const struct ps_packed *m, const char *beside,
                      struct job *j, struct ps_detail *dt)
{
    const struct ps_first_cfg cfg = { .rules = { .vocab = m->shape.vocab,
                                                 .positions = m->shape.positions,
                                                 .has_tokenizer = j->tok != NULL,
                                                 .params = f->defaults },
                                      .tok = j->tok,
                                      .fd = j->fd,
                                      .input = f->path,
                                      .beside = beside,
                                      .text = f->text,
                                      .limit = f->limit,
                                      .stop = ps_signals_count() };
    int r = ps_table_open(beside, UINT64_MAX / 4, &j->table, dt);
    if (!r) r = ps_spool_open(beside, &j->spool, dt);
    return r < 0 ? r : ps_first_pass(&cfg, &j->spool, &j->table, &j->first, dt);
}

static int take(const struct ps_job_file *f, const struct job *j, struct ps_job_stats *ret_stats,
                struct ps_lengths *ret, struct ps_detail *dt)
{
    const struct ps_first *x = &j->first;
    if (!x->stats.requests)
        return ps_fail(dt, -PS_EFORMAT, "--job %s: no valid request%s%s", f->path,
                       x->failed ? "; the first error: " : "", x->failed ? x->first_message : "");
    if (x->failed)
        ps_say("warning: %u of %u line%s in error and left out, the first line %u: %s", x->failed,
               j->table.n, ps_plural(j->table.n), x->first_failed, x->first_message);
    *ret_stats = x->stats;
    return ps_lengths_of(&j->spool, &j->table, x->stats.requests, ret);
}

int ps_job_file_read(const struct ps_job_file *f, const char *model, const struct ps_packed *m,
                     struct ps_job_stats *ret_stats, struct ps_lengths *ret, struct ps_detail *dt)
{
    struct job j = { .fd = -1 };
    const char *tmp = getenv("TMPDIR");
    ps_auto_free char *beside = ps_concat(tmp && *tmp ? tmp : "/tmp", "/", "penstock-plan");
    struct stat st;
    if (!beside) return -ENOMEM;
    j.spool.out.fd = j.table.out.fd = -1;
    ps_auto_close int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return ps_fail(dt, -errno, "--job %s: cannot open: %s", f->path, ps_err_str(errno));
    j.fd = fd;
    int r =
        S_ISREG(st.st_mode)
            ? 0
            : ps_fail(dt, -PS_EUSAGE, "--job %s: a regular file of requests was expected", f->path);
    if (!r) r = ps_tok_open(model, &j.tok, dt);
    if (r == -ENOENT || r == -ENOTDIR) r = 0; /* token ids only */
    if (!r) r = first_pass(f, m, beside, &j, dt);
    if (!r) r = take(f, &j, ret_stats, ret, dt);
    ps_spool_close(&j.spool);
    ps_table_close(&j.table);
    ps_tok_close(j.tok);
    return r;
}
