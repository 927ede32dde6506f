/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/trace.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "engine/job/jout.h"
#include "engine/job/places.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

enum { TRACE_BUF = 1 << 20, TRACE_EVENTS = 4000000 };

struct ps_trace {
    pthread_mutex_t lock;
    struct ps_jout out;
    int fd;
    char *path, *tmp;
    uint64_t events, t0;
};

static void done(struct ps_trace *t)
{
    if (t->fd >= 0) (void) close(t->fd);
    free(t->path);
    free(t->tmp);
    free(t);
}

int ps_trace_open(const char *path, struct ps_trace **ret, struct ps_detail *dt)
{
    struct ps_trace *t = ps_calloc(1, sizeof *t);
    if (!t) return -ENOMEM;
    t->fd = -1;
    t->path = ps_concat(path, "", "");
    t->tmp = ps_concat(path, "", ".tmp");
    int r = t->path && t->tmp ? ps_places_open(t->tmp, O_TRUNC, &t->fd, dt) : -ENOMEM;
    if (!r) r = ps_jout_init(&t->out, t->fd, 0, TRACE_BUF);
    if (r < 0) {
        done(t);
        return ps_fail_in(dt, r, "--trace");
    }
    (void) pthread_mutex_init(&t->lock, NULL);
    ps_jout_text(&t->out, "{\"traceEvents\": [\n");
    for (int q = 0; q < PS_Q__COUNT; q++) {
        char line[160];
        (void) snprintf(line, sizeof line,
                        "%s{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": %d, "
                        "\"args\": {\"name\": \"%s\"}}",
                        q ? ",\n" : "", q, ps_q_name((enum ps_q) q));
        ps_jout_text(&t->out, line);
    }
    *ret = t;
    return 0;
}

static const char *task_name(const struct ps_task *t)
{
    static const char *const kinds[PS_KIND__COUNT] = { "other", "weights", "kv", "hidden" };
    if (t->kern) return t->kern->name;
    return kinds[t->kind < PS_KIND__COUNT ? t->kind : 0];
}

void ps_trace_task(void *trace, enum ps_q q, const struct ps_task *task, uint64_t t0_ns,
                   uint64_t t1_ns)
{
    struct ps_trace *t = trace;
    char line[320];
    (void) pthread_mutex_lock(&t->lock);
    if (!t->t0) t->t0 = t0_ns;
    double from = ((double) t0_ns - (double) t->t0) / 1e3;
    if (t->events++ < TRACE_EVENTS) {
        (void) snprintf(line, sizeof line,
                        ",\n{\"name\": \"%s\", \"ph\": \"X\", \"pid\": 1, \"tid\": %d, \"ts\": "
                        "%.3f, \"dur\": %.3f, \"args\": "
                        "{\"layer\": %u, \"micro_batch\": %u, \"bytes\": %.0f, \"flops\": %.0f}}",
                        task_name(task), (int) q, from, (double) (t1_ns - t0_ns) / 1e3,
                        task->tag >> 16, task->tag & 0xffff, task->cost.bytes, task->cost.flops);
        ps_jout_text(&t->out, line);
    }
    (void) pthread_mutex_unlock(&t->lock);
}

int ps_trace_close(struct ps_trace *t, struct ps_detail *dt)
{
    if (!t) return 0;
    ps_jout_text(&t->out,
                 "\n], \"displayTimeUnit\": \"ms\", \"otherData\": {\"events_left_out\": ");
    ps_jout_u64(&t->out, t->events > TRACE_EVENTS ? t->events - TRACE_EVENTS : 0);
    ps_jout_text(&t->out, "}}\n");
    int r = ps_jout_flush(&t->out);
    if (!r && fsync(t->fd) < 0) r = -errno;
    if (!r && rename(t->tmp, t->path) < 0) r = -errno;
    if (r < 0) (void) unlink(t->tmp);
    if (!r) r = ps_sync_beside(t->path);
    if (r < 0) r = ps_fail(dt, r, "--trace: %s: write failed: %s", t->path, ps_err_str(r));
    ps_jout_done(&t->out);
    (void) pthread_mutex_destroy(&t->lock);
    done(t);
    return r;
}
