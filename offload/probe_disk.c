/* SPDX-License-Identifier: Apache-2.0 */
/* The disk, as a device uses it: moves of chunks between a file and a ring, the queues kept full; each direction alone, both together, and
 * reads beside the kernels. A move is one transfer here, so that what has been done by the time of a look is known to the transfer. */
#include "offload/probe_parts.h"
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)
enum {
    MOVE = 1 << 20,
    MOVES_LEAST = 64,
    BLOCKS = 3,
    DEPTHS = 4,
    RING = PS_PROBE_RING_BYTES / MOVE
};

int ps_probe_disk_room(struct ps_probing *p)
{
    const struct ps_probe_machine *c = p->cfg;
    uint64_t want = c->quick ? 256 * MIB : 2048 * MIB, left;
    int r = ps_machine_disk_free(c->folder, &left, p->dt);
    if (r < 0) return r;
    if (want > left / 10) want = left / 10;
    if (want > c->disk_space) want = c->disk_space;
    want = want / MOVE * MOVE;
    if (want < MOVES_LEAST * MOVE) {
        ps_probing_warn(p,
                        "%s: the disk is not measured: %d MiB would be the least, and a tenth of "
                        "what is free or --disk-space is less (%" PRIu64 " MiB are free)",
                        c->folder, MOVES_LEAST, left / MIB);
        return 0;
    }
    r = ps_store_unnamed(c->folder, &p->fd, p->open_as, p->dt);
    if (r < 0) return r;
    const int e = posix_fallocate(p->fd, 0, (off_t) want);
    if (e == ENOSPC || e == EFBIG || e == EDQUOT) {
        ps_probing_warn(p, "%s: %s: the disk is not measured", c->folder, ps_err_str(e));
        return 0;
    }
    if (e) return ps_fail(p->dt, -e, "making room in %s: %s", c->folder, ps_err_str(e));
    p->file_bytes = want;
    struct ps_store_file f = { .path = c->folder, .open_as = p->open_as, .write = true };
    const struct ps_store_cfg sc = {
        .files = &f, .n_files = 1, .mem = p->ring, .mem_bytes = (uint64_t) 2 * PS_PROBE_RING_BYTES
    };
    if (c->io) return ps_store_open(ps_store_find(c->io), &sc, &p->store, p->dt);
    return ps_store_open_best(&sc, &p->store, NULL, p->dt);
}

/* ---- queues kept full */

struct way { /* a direction: its part of the ring, and where it is in the file */
    bool on;
    enum ps_q q;
    struct ps_buf slot[RING];
    uint64_t put, at;
};
struct mix {
    struct ps_probing *p;
    struct way way[2]; /* reads, writes */
    struct ps_gauge *beside;
    uint64_t put; /* of beside */
};

/* Whatever used the slot before is done: no more are under way than there are slots. */
static int put_move(struct mix *m, struct way *w)
{
    struct ps_buf *slot = &w->slot[w->put++ % RING],
                  file = { .where = PS_DISK, .off = w->at, .len_bytes = MOVE };
    const struct ps_rect all = { .row_bytes = MOVE, .rows = 1 };
    const bool read = w->q == PS_Q_READ;
    w->at = (w->at + MOVE) % m->p->file_bytes;
    return ps_dev_move(m->p->rig.dev, read ? slot : &file, read ? &file : slot, &all);
}

static int fill(struct mix *m, const struct ps_dev_stats *st)
{
    enum { AHEAD = 4 };
    int r = 0;
    for (int i = 0; i < 2; i++)
        while (!r && m->way[i].on && m->way[i].put - st->tasks[m->way[i].q] < RING)
            r = put_move(m, &m->way[i]);
    while (!r && m->beside && m->put - st->tasks[PS_Q_COMPUTE] < AHEAD) {
        r = ps_rig_submit(&m->p->rig, m->beside);
        m->put++;
    }
    return r;
}

/* Slices of what has been done between two looks. The first is not counted: what was cached, and full buffers of the disk. */
static int run(struct mix *m, double max_s, struct ps_slices *s[3])
{
    enum { LEAST_TASKS = 8, SLICES = 6 };
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
                      st.tasks[m->way[i].q] - was.tasks[m->way[i].q] >= LEAST_TASKS || sec > 1;
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

static int mixed(struct ps_probing *p, bool read, bool write, struct ps_gauge *beside, double max_s,
                 struct ps_slices *s[3])
{
    struct mix m = { .p = p, .beside = beside };
    struct ps_dev_stats st;
    ps_dev_stats_get(p->rig.dev, &st);
    m.put = st.tasks[PS_Q_COMPUTE];
    for (int i = 0; i < 2; i++) {
        struct way *w = &m.way[i];
        w->on = i ? write : read;
        w->q = i ? PS_Q_WRITE : PS_Q_READ;
        w->put = st.tasks[w->q];
        w->at = i ? p->file_bytes / 2 / MOVE * MOVE : 0;
        for (int k = 0; k < RING; k++)
            w->slot[k] = (struct ps_buf) { .where = PS_HOST,
                                           .p = p->ring + (size_t) (i * RING + k) * MOVE,
                                           .len_bytes = MOVE };
    }
    return run(&m, max_s, s);
}

/* ---- what is written down */

/* Cores' worth of time that reads at full rate take: kernels alone, and beside them, in turns. */
static int beside_kernels(struct ps_probing *p, json_t *disk, const struct ps_rate *alone,
                          double max_s)
{
    enum { TURNS = 3 };
    /* As one of the host's: scratch is for those. */
    struct ps_gauge g = { .op = PS_OP_linear, .type = PS_F16, .m = 256, .k = 1024 };
    struct ps_slices free_of[3] = { { { 0 } } }, with[3] = { { { 0 } } };
    struct ps_rate f, w, io;
    int r = ps_rig_measure(&p->rig, &g, 1, 1, max_s / 10, NULL, NULL, p->dt);
    for (int i = 0; i < TURNS && !r && !g.left_out; i++) {
        r = mixed(p, false, false, &g, max_s / 2 / TURNS,
                  (struct ps_slices *[3]) { NULL, NULL, &free_of[2] });
        if (!r)
            r = mixed(p, true, false, &g, max_s / 2 / TURNS,
                      (struct ps_slices *[3]) { &with[0], NULL, &with[2] });
    }
    if (r < 0 || g.left_out) return r;
    ps_slices_sum(&free_of[2], &f);
    ps_slices_sum(&with[2], &w);
    ps_slices_sum(&with[0], &io);
    if (!(w.median > 0) || !(io.median > 0) || !(alone->median > 0)) return 0;
    const double slower = f.median / w.median - 1, threads = p->cfg->threads,
                 cores = slower * threads * alone->median / io.median;
    ps_out_value(&p->out, disk, "cores", fmin(fmax(cores, 0), threads), "cores");
    return 0;
}

/* Rates of transfers of one size over how many are under way. */
static int over_depth(struct ps_probing *p, json_t *list, enum ps_io_dir dir, uint32_t block,
                      double max_s, struct ps_rate *ret_deepest)
{
    static const double depths[DEPTHS] = { 1, 4, 16, 64 };
    struct ps_rate y[DEPTHS];
    bool direct;
    int r = 0;
    for (int i = 0; i < DEPTHS && !r; i++) {
        const struct ps_probe_disk how = { .store = p->cfg->io,
                                           .io_bytes = block,
                                           .depth = (uint32_t) depths[i],
                                           .max_bytes = p->file_bytes,
                                           .max_s = max_s / DEPTHS };
        if (p->cfg->stop && *p->cfg->stop) return -ECANCELED;
        r = ps_probe_disk_file(p->cfg->folder, p->open_as, dir, &how, &y[i], &direct, p->dt);
    }
    if (r < 0) return r;
    json_t *item = ps_out_item(&p->out, list);
    ps_out_set(&p->out, item, "block", json_integer(block));
    ps_out_curve(&p->out, item, "over_depth", depths, y, DEPTHS, "MB/s");
    *ret_deepest = y[DEPTHS - 1];
    return 0;
}

/* The engine's own size first. What a small transfer takes more than its bytes' share is a transfer's own. */
static int blocks(struct ps_probing *p, json_t *disk, double max_s)
{
    static const uint32_t sizes[BLOCKS] = { 1 << 20, 256 << 10, 64 << 10 };
    static const char *const keys[2] = { "read_over_depth", "write_over_depth" };
    const int dirs = p->cfg->quick ? 1 : 2, n = dirs * BLOCKS;
    for (int i = 0; i < dirs; i++) {
        json_t *list = ps_out_list(&p->out, disk, keys[i]);
        struct ps_rate own = { 0 }, r = { 0 };
        for (int k = 0; k < BLOCKS; k++) {
            int e = over_depth(p, list, i ? PS_IO_WRITE : PS_IO_READ, sizes[k], max_s / n, &r);
            if (e < 0) return e;
            if (!k) own = r;
            ps_probing_share(p, 0.7 + 0.3 * (i * BLOCKS + k + 1) / n);
        }
        const double s = i || !(r.median > 0) || !(own.median > 0)
                             ? 0
                             : sizes[BLOCKS - 1] / r.median - sizes[BLOCKS - 1] / own.median;
        if (!i) ps_out_value(&p->out, disk, "transfer", s > 0 ? s : 0, "us");
    }
    return 0;
}

/* All of the file is written before it is read. */
static int write_all(struct ps_probing *p)
{
    struct ps_rate r;
    bool direct;
    const struct ps_probe_disk how = { .store = p->cfg->io,
                                       .max_bytes = p->file_bytes,
                                       .max_s = 60 };
    int e = ps_probe_disk_file(p->cfg->folder, p->open_as, PS_IO_WRITE, &how, &r, &direct, p->dt);
    if (!e && !direct)
        ps_probing_warn(p,
                        "%s: files cannot be read past the page cache: rates of its disk are those "
                        "of memory, too",
                        p->cfg->folder);
    return e;
}

int ps_probe_disk_part(struct ps_probing *p, json_t *disk, double max_s)
{
    enum { TURNS = 2 };
    struct ps_slices s[4] = { { { 0 } } }; /* read, write, and beside each other */
    struct ps_rate r[4] = { { 0 } };
    static const char *const keys[4] = { "read", "write", "read_beside_write",
                                         "write_beside_read" };
    const double each = max_s * 0.5 / (3 * TURNS);
    int e = p->store ? write_all(p) : 0;
    for (int i = 0; i < TURNS && !e && p->store; i++) {
        e = mixed(p, true, false, NULL, each, (struct ps_slices *[3]) { &s[0], NULL, NULL });
        ps_probing_share(p, 0.5 * (i + 0.3) / TURNS);
        if (!e)
            e = mixed(p, false, true, NULL, each, (struct ps_slices *[3]) { NULL, &s[1], NULL });
        ps_probing_share(p, 0.5 * (i + 0.6) / TURNS);
        if (!e)
            e = mixed(p, true, true, NULL, each, (struct ps_slices *[3]) { &s[2], &s[3], NULL });
        ps_probing_share(p, 0.5 * (i + 1.0) / TURNS);
    }
    for (int i = 0; i < 4 && !e; i++) {
        ps_slices_sum(&s[i], &r[i]);
        ps_out_rate(&p->out, disk, keys[i], &r[i], "GB/s");
    }
    if (!e && p->store) e = beside_kernels(p, disk, &r[0], max_s * 0.2);
    if (!e && p->store) e = blocks(p, disk, max_s * 0.3);
    if (!e || e == -ECANCELED || p->dt->text[0]) return e;
    const char *why = ps_dev_error_text(p->rig.dev);
    return ps_fail(p->dt, e, "probing the disk of %s: %s", p->cfg->folder,
                   *why ? why : ps_err_str(e));
}
