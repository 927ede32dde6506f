/* SPDX-License-Identifier: Apache-2.0 */
/* The disk, as a device uses it: moves between a file and a ring, the queues kept full, or each after the one before it; each direction
 * alone, both together, and reads of chunks that kernels wait for. But for those a move is one transfer here, so that what has been done by
 * the time of a look is known to the transfer. */
#include "offload/probe_parts.h"
#include <math.h>
#include <time.h>

enum {
    MOVE = PS_PROBE_MOVE,
    CHUNK = PS_RIG_CHUNK,
    LINK = 64 << 10, /* of a chain: what a disk lets pass in bursts must not hide a move's wait */
    RING = PS_PROBE_RING_BYTES / MOVE
};

/* ---- queues kept full */

struct way {        /* a direction: its part of the ring, and where it is in the file */
    bool on, chain; /* chain: each move waits for the one before it */
    enum ps_q q;
    struct ps_buf slot[RING], file;
    uint32_t slots;
    uint64_t put, at;
};
struct mix {
    struct ps_probing *p;
    struct way way[2]; /* reads, writes */
    struct ps_gauge *beside;
    bool feeds;   /* what is read is what `beside` waits for */
    uint64_t put; /* of beside */
};

/* What it uses is free, or the device waits until it is. */
static int put_move(struct mix *m, struct way *w)
{
    struct ps_buf *slot = &w->slot[w->put++ % w->slots], own = w->file,
                  *file = w->chain ? &w->file : &own;
    const bool read = w->q == PS_Q_READ;
    const uint64_t bytes = slot->len_bytes;
    if (w->at + bytes > m->p->file_bytes) w->at = 0;
    const struct ps_rect all = {
        .dst_off = read ? 0 : w->at, .src_off = read ? w->at : 0, .row_bytes = bytes, .rows = 1
    };
    w->at += bytes;
    const int r = ps_dev_move(m->p->rig.dev, read ? slot : file, read ? file : slot, &all);
    return r || !m->feeds ? r : ps_rig_submit(&m->p->rig, m->beside, slot);
}

static int fill(struct mix *m, const struct ps_dev_stats *st)
{
    enum { AHEAD = 4 };
    int r = 0;
    for (int i = 0; i < 2; i++)
        while (!r && m->way[i].on &&
               m->way[i].put - st->tasks[m->way[i].q] < (m->way[i].chain ? RING : m->way[i].slots))
            r = put_move(m, &m->way[i]);
    while (!r && m->beside && !m->feeds && m->put - st->tasks[PS_Q_COMPUTE] < AHEAD) {
        r = ps_rig_submit(&m->p->rig, m->beside, NULL);
        m->put++;
    }
    return r;
}

/* Slices of what has been done between two looks. The first is not counted: what was cached, and full buffers of the disk. */
static int run(struct mix *m, double max_s, struct ps_slices *s[3])
{
    enum { LEAST_TASKS = 8, LEAST_LINKS = 2, SLICES = 6 };
    const double slice_s = max_s / (SLICES + 1);
    const uint64_t begin = ps_now_ns();
    struct ps_dev_stats was, st;
    uint64_t t0 = begin;
    unsigned n = 0;
    int r = 0;
    ps_dev_stats_get(m->p->rig.dev, &was);
    st = was;
    while (!r && n <= SLICES && ps_probe_since_s(begin) < 2 + 3 * max_s) {
        if (m->p->cfg->stop && *m->p->cfg->stop) r = -ECANCELED;
        if (!r) r = fill(m, &st);
        (void) nanosleep(&(struct timespec) { .tv_nsec = 500000 }, NULL);
        ps_dev_stats_get(m->p->rig.dev, &st);
        const double sec = ps_probe_since_s(t0);
        bool enough = sec >= slice_s;
        for (int i = 0; i < 2; i++)
            enough &= !m->way[i].on ||
                      st.tasks[m->way[i].q] - was.tasks[m->way[i].q] >=
                          (m->way[i].chain ? LEAST_LINKS : LEAST_TASKS) ||
                      sec > 1;
        if (!enough) continue;
        const double work[3] = { ps_dev_moved(&st, PS_Q_READ) - ps_dev_moved(&was, PS_Q_READ),
                                 ps_dev_moved(&st, PS_Q_WRITE) - ps_dev_moved(&was, PS_Q_WRITE),
                                 st.flops[PS_Q_COMPUTE] - was.flops[PS_Q_COMPUTE] };
        for (int i = 0; i < 3; i++)
            if (n && s[i]) ps_slices_add(s[i], work[i], sec);
        was = st;
        t0 = ps_now_ns();
        n++;
    }
    const int d = ps_dev_drain(m->p->rig.dev);
    return r ? r : d;
}

static void ring_of(struct way *w, uint8_t *at, uint32_t slots, uint64_t bytes)
{
    w->slots = slots;
    for (uint32_t k = 0; k < slots; k++)
        w->slot[k] = (struct ps_buf) { .where = PS_HOST, .p = at + k * bytes, .len_bytes = bytes };
}

static void begin(struct mix *m)
{
    struct ps_probing *p = m->p;
    struct ps_dev_stats st;
    ps_dev_stats_get(p->rig.dev, &st);
    m->put = st.tasks[PS_Q_COMPUTE];
    for (int i = 0; i < 2; i++) {
        struct way *w = &m->way[i];
        w->q = i ? PS_Q_WRITE : PS_Q_READ;
        w->put = st.tasks[w->q];
        w->at = i ? p->file_bytes / 2 / MOVE * MOVE : 0;
        w->file = (struct ps_buf) { .where = PS_DISK, .len_bytes = p->file_bytes };
        ring_of(w, p->ring + (size_t) i * PS_PROBE_RING_BYTES, w->chain ? 1 : RING,
                w->chain && !m->way[1 - i].on ? LINK : MOVE);
    }
}

enum how { OFF, FULL, CHAIN };
static int mixed(struct ps_probing *p, enum how read, enum how write, struct ps_gauge *beside,
                 double max_s, struct ps_slices *s[3])
{
    struct mix m = { .p = p, .beside = beside };
    const enum how how[2] = { read, write };
    for (int i = 0; i < 2; i++) {
        m.way[i].on = how[i] != OFF;
        m.way[i].chain = how[i] == CHAIN;
    }
    begin(&m);
    return run(&m, max_s, s);
}

/* ---- what is written down */

static double task_s(const struct ps_dev_stats *was, const struct ps_dev_stats *st)
{
    const double n = (double) (st->tasks[PS_Q_COMPUTE] - was->tasks[PS_Q_COMPUTE]);
    return n > 0 ? (double) (st->busy_ns[PS_Q_COMPUTE] - was->busy_ns[PS_Q_COMPUTE]) * 1e-9 / n : 0;
}

/* A linear for each chunk that is read, as in a sweep. *ret_chunk_s: a chunk after the other; *ret_task_s: the linear meanwhile. */
static int feed(struct ps_probing *p, struct ps_gauge *g, double max_s, double *ret_chunk_s,
                double *ret_task_s)
{
    struct mix m = { .p = p, .beside = g, .feeds = true, .way[0].on = true };
    struct ps_slices s = { { 0 } };
    struct ps_dev_stats was, st;
    begin(&m);
    ring_of(&m.way[0], p->ring, 2 * PS_PROBE_RING_BYTES / CHUNK, CHUNK);
    ps_dev_stats_get(p->rig.dev, &was);
    const int r = run(&m, max_s, (struct ps_slices *[3]) { &s, NULL, NULL });
    ps_dev_stats_get(p->rig.dev, &st);
    *ret_task_s = task_s(&was, &st);
    *ret_chunk_s = s.sum.total_work > 0 ? s.sum.total_s * CHUNK / s.sum.total_work : 0;
    return r;
}

static int alone_s(struct ps_probing *p, struct ps_gauge *g, double max_s, double *ret_task_s)
{
    struct ps_dev_stats was, st;
    ps_dev_stats_get(p->rig.dev, &was);
    const int r = mixed(p, OFF, OFF, g, max_s, (struct ps_slices *[3]) { NULL, NULL, NULL });
    ps_dev_stats_get(p->rig.dev, &st);
    *ret_task_s = task_s(&was, &st);
    return r;
}

/* Reads while kernels have all cores, and cores' worth of time that reads at full rate take of them. Linears of as many rows as keep COMPUTE
 * busy for a good half of the time that their weights take to come: the rest of the time reads are alone, at the rate that is known. */
static int beside_kernels(struct ps_probing *p, json_t *disk, double alone, double factor,
                          double max_s)
{
    enum { TURNS = 3, ROWS = 64, ROWS_MOST = 256 };
    struct ps_gauge g = { .op = PS_OP_linear, .type = PS_F16, .m = ROWS, .k = 768 };
    double c = 0, with = 0, chunk = 0, once[3] = { 0 };
    int r = ps_rig_measure(&p->rig, &g, 1, 1, max_s / 10, NULL, NULL, p->dt);
    if (r || g.left_out || !(alone > 0) || p->rig.chunk_bytes < CHUNK) return r;
    g.m = (uint32_t) fmax(1, fmin(ROWS_MOST, ROWS * 0.6 * CHUNK / alone / g.task_s));
    for (int i = 0; i < TURNS && !r; i++) {
        r = alone_s(p, &g, max_s * 0.3 / TURNS, &once[0]);
        if (!r) r = feed(p, &g, max_s * 0.6 / TURNS, &once[1], &once[2]);
        c += once[0] / TURNS;
        chunk += once[1] / TURNS;
        with += once[2] / TURNS;
    }
    if (r < 0 || !(c > 0.2 * chunk) || with > 0.95 * chunk) return r; /* nothing can be told */
    const double rate = (CHUNK - (chunk - with) * alone) / with, threads = p->cfg->threads,
                 beside = fmin(fmax(rate, alone / 4), alone),
                 cores = (1 - c / with) * threads * alone / beside;
    ps_out_value(&p->out, disk, "read_beside_kernels", factor * beside, "GB/s");
    ps_out_value(&p->out, disk, "cores", fmin(fmax(cores, 0), threads), "cores");
    return 0;
}

static double seconds_of(const struct ps_slices *s, double bytes)
{
    return s->sum.total_work > 0 ? s->sum.total_s * bytes / s->sum.total_work : 0;
}

static int chain(struct ps_probing *p, int dir, bool other, struct ps_gauge *beside, double max_s,
                 double *ret_link_s, double *ret_other_s)
{
    struct ps_slices s[2] = { { { 0 } } };
    const enum how o = other ? FULL : OFF;
    const int r = mixed(p, dir ? o : CHAIN, dir ? CHAIN : o, beside, max_s,
                        (struct ps_slices *[3]) { &s[0], &s[1], NULL });
    *ret_link_s = seconds_of(&s[dir], other ? MOVE : LINK);
    *ret_other_s = seconds_of(&s[1 - dir], MOVE);
    return r;
}

/* Moves that wait for one another. Small ones, alone and beside kernels: when a transfer is known to be done. Others, beside a full queue of
 * the other direction: whether they wait for what that asked for before. transfer_s: of each, whatever happens. */
static int chains(struct ps_probing *p, json_t *disk, const struct ps_rate alone[2],
                  double transfer_s, double max_s)
{
    static const char *const keys[2][3] = {
        { "read_delay", "read_delay_beside_kernels", "read_behind_write" },
        { "write_delay", "write_delay_beside_kernels", "write_behind_read" }
    };
    /* As one of the host's: scratch is for those. */
    struct ps_gauge g = { .op = PS_OP_linear, .type = PS_F16, .m = 256, .k = 768 };
    int r = ps_rig_measure(&p->rig, &g, 1, 1, max_s / 10, NULL, NULL, p->dt);
    for (int i = 0; i < 2 && !r; i++) {
        double own, busy, behind, other;
        r = chain(p, i, false, NULL, max_s * 0.15, &own, &other);
        if (!r) r = chain(p, i, false, g.left_out ? NULL : &g, max_s * 0.15, &busy, &other);
        if (!r) r = chain(p, i, true, NULL, max_s * 0.15, &behind, &other);
        if (r || !(own > 0) || !(busy > 0) || !(other > 0) || !(alone[i].median > 0)) continue;
        const double link_s = LINK / alone[i].median + transfer_s, delay_s = fmax(own - link_s, 0),
                     longer = behind - delay_s - transfer_s - MOVE / alone[i].median;
        ps_out_value(&p->out, disk, keys[i][0], delay_s, "us");
        ps_out_value(&p->out, disk, keys[i][1], fmax(busy - link_s, delay_s), "us");
        ps_out_value(&p->out, disk, keys[i][2], fmin(fmax(longer / (RING * other), 0), 1), "x");
    }
    return r;
}

static void scale(struct ps_rate *r, double factor)
{
    r->median *= factor;
    r->min *= factor;
    r->max *= factor;
}

int ps_probe_disk_part(struct ps_probing *p, json_t *disk, double max_s)
{
    enum { TURNS = 2 };
    struct ps_slices s[4] = { { { 0 } } }; /* read, write, and beside each other */
    struct ps_rate r[4] = { { 0 } };
    static const char *const keys[4] = { "read", "write", "read_beside_write",
                                         "write_beside_read" };
    const double each = max_s * 0.4 / (3 * TURNS);
    double transfer_s = 0, factor = 1;
    int e = p->store ? ps_probe_disk_write_all(p) : 0;
    for (int i = 0; i < TURNS && !e && p->store; i++) {
        e = mixed(p, FULL, OFF, NULL, each, (struct ps_slices *[3]) { &s[0], NULL, NULL });
        ps_probing_share(p, 0.5 * (i + 0.3) / TURNS);
        if (!e) e = mixed(p, OFF, FULL, NULL, each, (struct ps_slices *[3]) { NULL, &s[1], NULL });
        ps_probing_share(p, 0.5 * (i + 0.6) / TURNS);
        if (!e)
            e = mixed(p, FULL, FULL, NULL, each, (struct ps_slices *[3]) { &s[2], &s[3], NULL });
        ps_probing_share(p, 0.5 * (i + 1.0) / TURNS);
    }
    for (int i = 0; i < 4; i++) ps_slices_sum(&s[i], &r[i]);
    if (!e && p->store) e = ps_probe_disk_older(p, r[0].median, each, &factor);
    for (int i = 0; i < 4 && !e; i++) {
        struct ps_rate out = r[i];
        if (i % 2 == 0) scale(&out, factor);
        ps_out_rate(&p->out, disk, keys[i], &out, "GB/s");
    }
    if (!e && p->store) e = beside_kernels(p, disk, r[0].median, factor, max_s * 0.2);
    if (!e && p->store) e = ps_probe_disk_blocks(p, disk, max_s * 0.25, &transfer_s);
    if (!e && p->store) e = chains(p, disk, r, transfer_s, max_s * 0.15);
    if (!e || e == -ECANCELED || p->dt->text[0]) return e;
    const char *why = ps_dev_error_text(p->rig.dev);
    return ps_fail(p->dt, e, "probing the disk of %s: %s", p->cfg->folder,
                   *why ? why : ps_err_str(e));
}
