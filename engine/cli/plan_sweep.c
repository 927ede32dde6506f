/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a sweep: a few threads take the points in turn, first to search for a plan for each, then, from those with least upwards, to give what has
 * more the plan of what has less, where the search found no better one. The table is written when all are there. */
#include "engine/cli/plan_sweep.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "offload/machine.h"
#include "offload/profile_set.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct run {
    const struct ps_packed *model;
    const struct ps_point *base;
    struct ps_sweep *s;
    /* What is done with the rows [next, end), or those in order[next, end). */
    int (*each)(const struct run *x, size_t row, struct ps_detail *dt);
    const size_t *order;
    size_t end;
    pthread_mutex_t lock; /* of what follows, and of stderr */
    size_t next, planned;
    uint64_t told_ns;
    int err;
    struct ps_detail dt;
};

/* A figure of which nothing would come: the disk is planned for where both its rates are known, as they are once this machine is probed. */
static int useless(const struct ps_point *p, const char *name, struct ps_detail *dt)
{
    const struct ps_profile *f = &p->profile;
    if (p->to_probe || strncmp(name, "disk.", 5) != 0 ||
        (f->disk_read.alone > 0 && f->disk_write.alone > 0))
        return 0;
    return ps_fail(
        dt, -PS_EUSAGE,
        "--sweep %s: %s does not say how fast its disk is, so nothing is planned for it; "
        "both disk.read and disk.write were expected",
        name, f->name);
}

/* The machine first, then what is changed of it: before its other figures those that change some of them, too. So the order of the axes does not
 * matter. */
enum { MACHINE, RATES, REST, TURNS };
static int turn_of(const char *name)
{
    return !strcmp(name, "hardware") ? MACHINE : ps_profile_scales(name) ? RATES : REST;
}

/* The point of a row, or the first value that cannot be. */
static int point_at(const struct run *x, size_t row, struct ps_point *ret, struct ps_detail *dt)
{
    const unsigned n = x->s->n_axes;
    *ret = *x->base;
    for (unsigned i = 0; i < TURNS * n; i++) {
        const unsigned a = i % n;
        const struct ps_axis *ax = &x->s->axis[a];
        if (turn_of(ax->name) != (int) (i / n)) continue;
        char *v = ps_sweep_value(x->s, a, row);
        int r = ps_point_set(ret, ax->name, v, dt);
        if (r == -ENOENT && !dt->text[0])
            return ps_fail(dt, -PS_EUSAGE,
                           "--sweep %s: neither an option of plan that a sweep can vary (as "
                           "host-mem, gen-len), nor a field of a profile (as disk.read, gpu.mem)",
                           ax->name);
        if (r < 0) return ps_fail_in(dt, r, "--sweep %s", ax->name);
    }
    for (unsigned a = 0; a < n; a++) {
        int r = useless(ret, x->s->axis[a].name, dt);
        if (r < 0) return r;
    }
    return 0;
}

/* Takes *one over. */
static void put_plan(const struct ps_point *p, struct ps_planned *one, struct ps_sweep_row *ret)
{
    ps_figures_of(&p->engine.plan, &p->profile, one, &ret->figures);
    ret->total_s = one->sim.total_s;
    ret->from = one->plan.detail->from;
    ret->planned = true;
    free(ret->reason); /* what a point with less has was not found at once */
    ret->reason = NULL;
    ps_plan_done(&one->plan);
}

static int plan_row(const struct run *x, size_t at, struct ps_detail *dt)
{
    struct ps_sweep_row *row = &x->s->rows[at];
    struct ps_planned one;
    struct ps_point p;
    unsigned n = 0;
    int r = point_at(x, at, &p, dt);
    if (r < 0) return r;
    r = ps_point_complete(&p, x->model, dt);
    row->gpu = p.engine.plan.gpu.mem_bytes > 0;
    if (!r)
        r = ps_search(&p.engine.plan, &p.profile, &p.lengths, NULL, PS_SEARCH_BRIEF, 1,
                      ps_signals_count(), &one, &n, NULL, dt);
    if (r == -PS_EBUDGET || r == -PS_EUSAGE) {
        row->total_s = r == -PS_EBUDGET ? INFINITY : 0;
        row->reason = ps_concat(dt->text, "", "");
        return row->reason ? 0 : -ENOMEM;
    }
    if (!r) put_plan(&p, &one, row);
    return r;
}

/* The plan of a row that has less, here. */
static int try_plan_of(const struct run *x, size_t less, size_t at, struct ps_detail *dt)
{
    struct ps_sweep_row *row = &x->s->rows[at];
    struct ps_planned one;
    struct ps_point p;
    int r = point_at(x, at, &p, dt);
    if (!r) r = ps_point_complete(&p, x->model, dt);
    if (!r)
        r = ps_search_same(&p.engine.plan, &p.profile, &p.lengths, NULL, PS_SEARCH_BRIEF,
                           &x->s->rows[less].from, ps_signals_count(), &one, dt);
    if (r < 0) return r;
    if (one.sim.total_s < row->total_s)
        put_plan(&p, &one, row);
    else
        ps_plan_done(&one.plan);
    return 0;
}

/* Those with less were settled before. The next lesser ones are enough, for they are as fast as what has less still. */
static int settle_row(const struct run *x, size_t at, struct ps_detail *dt)
{
    const struct ps_sweep_row *rows = x->s->rows, *row = &rows[at];
    int r = 0;
    for (unsigned a = 0; !r && a < x->s->n_axes; a++) {
        const size_t less = ps_sweep_less(x->s, a, at);
        if (less != SIZE_MAX && rows[less].planned && rows[less].gpu == row->gpu &&
            rows[less].total_s < row->total_s)
            r = try_plan_of(x, less, at, dt);
    }
    return r;
}

int ps_sweep_settle(const struct ps_point *base, const struct ps_packed *m, struct ps_sweep *s,
                    size_t row, struct ps_detail *dt)
{
    const struct run x = { .model = m, .base = base, .s = s };
    return settle_row(&x, row, dt);
}

static void tell(struct run *x)
{
    const bool tty = isatty(STDERR_FILENO);
    const uint64_t now = ps_now_ns(), pause = tty ? 200000000 : UINT64_C(10000000000);
    char text[64];
    if (now - x->told_ns < pause) return;
    x->told_ns = now;
    (void) snprintf(text, sizeof text, "planning: %zu of %zu points", x->planned, x->s->n_rows);
    if (tty)
        ps_progress_line(text);
    else
        ps_say("%s", text);
}

/* The next row for a thread; false when there is none, or something failed. */
static bool take(struct run *x, size_t *ret)
{
    (void) pthread_mutex_lock(&x->lock);
    const bool more = x->next < x->end && !x->err && !*ps_signals_count();
    if (more) *ret = x->order ? x->order[x->next] : x->next;
    x->next += more;
    (void) pthread_mutex_unlock(&x->lock);
    return more;
}

static void *work(void *ud)
{
    struct run *x = ud;
    size_t row;
    while (take(x, &row)) {
        struct ps_detail dt = { "" };
        const int r = x->each(x, row, &dt);
        (void) pthread_mutex_lock(&x->lock);
        if (r < 0 && !x->err) {
            x->err = r;
            x->dt = dt;
        }
        x->planned += !x->order;
        tell(x);
        (void) pthread_mutex_unlock(&x->lock);
    }
    return NULL;
}

static int run_threads(struct run *x, struct ps_detail *dt)
{
    enum { THREADS_MAX = 64 };
    struct ps_machine machine;
    pthread_t t[THREADS_MAX];
    unsigned n = 0;
    ps_machine_read("", &machine);
    while (n + 1 < machine.cpus && n < THREADS_MAX && n + 1 < x->end - x->next)
        if (pthread_create(&t[n], NULL, work, x)) /* fewer will do */
            break;
        else
            n++;
    (void) work(x);
    while (n) (void) pthread_join(t[--n], NULL);
    ps_progress_end();
    if (!x->err && *ps_signals_count()) return -ECANCELED;
    *dt = x->dt;
    return x->err;
}

static int search_all(struct run *x, struct ps_detail *dt)
{
    x->told_ns = ps_now_ns();
    x->each = plan_row;
    x->end = x->s->n_rows;
    return run_threads(x, dt);
}

/* By ranks: what has less of something has a lower one. */
static int settle_all(struct run *x, struct ps_detail *dt)
{
    const struct ps_sweep *s = x->s;
    ps_auto_free size_t *order = NULL;
    int r = ps_sweep_ranked(s, &order);
    x->each = settle_row;
    x->order = order;
    x->next = 0;
    while (!r && x->next < s->n_rows) {
        const size_t rank = ps_sweep_rank(s, order[x->next]);
        for (x->end = x->next; x->end < s->n_rows && ps_sweep_rank(s, order[x->end]) == rank;)
            x->end++;
        r = run_threads(x, dt);
    }
    return r;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static int write_out(const struct ps_plan_args *a, const struct ps_packed *m,
                     const struct ps_sweep *s, struct ps_detail *dt)
{
    const bool json =
        a->format ? !strcmp(a->format, "json") : a->output && ends_with(a->output, ".json");
    ps_auto_free char *text = NULL;
    int r = ps_sweep_text(s, json, m->shape.name, a->command, &text);
    if (r < 0) return r;
    if (a->output) {
        r = ps_file_replace(a->output, text, dt);
        return r < 0 ? ps_fail_in(dt, r, "-o") : 0;
    }
    return fputs(text, stdout) == EOF ? -EIO : 0;
}

/* Every value is tried before any is planned for. The first row has a value of each axis, so one more row for each other value is enough. */
static int check_axis(const struct run *x, struct ps_axis *a, size_t step, struct ps_detail *dt)
{
    ps_auto_free double *amounts = ps_calloc(a->n, sizeof *amounts);
    bool ordered = true;
    if (!amounts) return -ENOMEM;
    for (size_t i = 0; i < a->n; i++) {
        struct ps_point p;
        int r = point_at(x, i * step, &p, dt);
        if (r < 0) return r;
        ordered &= ps_point_amount(&p, a->name, &amounts[i]);
    }
    return ordered ? ps_axis_order(a, amounts) : 0;
}

static int check_values(const struct run *x, struct ps_detail *dt)
{
    size_t step = 1;
    int r = 0;
    for (unsigned a = x->s->n_axes; !r && a-- > 0;) {
        r = check_axis(x, &x->s->axis[a], step, dt);
        step *= x->s->axis[a].n;
    }
    return r;
}

static int axes(const struct ps_plan_args *a, struct ps_sweep *s, struct ps_detail *dt)
{
    s->n_rows = 1;
    for (; s->n_axes < a->n_sweep; s->n_axes++) {
        struct ps_axis *x = &s->axis[s->n_axes];
        int r = ps_axis_parse(a->sweep[s->n_axes], x, dt);
        for (unsigned i = 0; !r && i < s->n_axes; i++)
            if (!strcmp(s->axis[i].name, x->name))
                r = ps_fail(dt, -PS_EUSAGE, "--sweep %s: given twice; one list was expected",
                            x->name);
        if (r < 0) return r;
        s->n_rows *= x->n;
        if (s->n_rows > PS_SWEEP_POINTS_MAX)
            return ps_fail(dt, -PS_EUSAGE, "--sweep: at most %d points were expected",
                           PS_SWEEP_POINTS_MAX);
    }
    s->rows = ps_calloc(s->n_rows, sizeof *s->rows);
    return s->rows ? 0 : -ENOMEM;
}

/* Better now than when all is planned. */
static int check_output(const struct ps_plan_args *a, const struct ps_sweep *s,
                        struct ps_detail *dt)
{
    const char *const inputs[] = { a->model, a->hardware, a->job.path };
    int r = ps_output_check("-o", a->output, inputs, PS_ARRAY_LEN(inputs), dt);
    for (unsigned i = 0; !r && i < s->n_axes; i++)
        if (!strcmp(s->axis[i].name, "hardware"))
            r = ps_output_check("-o", a->output, (const char *const *) s->axis[i].values,
                                s->axis[i].n, dt);
    return r;
}

int ps_plan_sweep(const struct ps_plan_args *a, struct ps_point *p, const struct ps_packed *m,
                  struct ps_detail *dt)
{
    struct ps_sweep s = { 0 };
    struct run x = { .model = m, .base = p, .s = &s };
    (void) pthread_mutex_init(&x.lock, NULL);
    int r = axes(a, &s, dt);
    if (!r) r = check_values(&x, dt);
    if (!r && a->output) r = check_output(a, &s, dt);
    if (!r) r = ps_point_probe(p, dt);
    if (!r) r = search_all(&x, dt);
    if (!r) r = settle_all(&x, dt);
    if (!r) r = write_out(a, m, &s, dt);
    for (size_t i = 0; s.rows && i < s.n_rows; i++) free(s.rows[i].reason);
    free(s.rows);
    for (unsigned i = 0; i < PS_SWEEPS_MAX; i++) ps_axis_done(&s.axis[i]);
    (void) pthread_mutex_destroy(&x.lock);
    return r;
}
