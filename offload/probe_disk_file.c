/* SPDX-License-Identifier: Apache-2.0 */
/* The file that the disk is probed with, and what is found out of it by transfers alone, without a device. */
#include "offload/probe_parts.h"
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>

#define MIB (UINT64_C(1) << 20)
enum { MOVE = PS_PROBE_MOVE, MOVES_LEAST = 64, BLOCKS = 3, DEPTHS = 4 };

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
int ps_probe_disk_blocks(struct ps_probing *p, json_t *disk, double max_s, double *ret_transfer_s)
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
        if (i) continue;
        *ret_transfer_s = fmax(s, 0);
        ps_out_value(&p->out, disk, "transfer", *ret_transfer_s, "us");
    }
    return 0;
}

int ps_probe_disk_write_all(struct ps_probing *p)
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

int ps_probe_disk_older(struct ps_probing *p, double fresh, double max_s, double *ret)
{
    const struct ps_probe_disk how = { .store = p->cfg->io, .max_s = max_s };
    struct ps_rate r;
    bool direct;
    *ret = 1;
    if (!p->cfg->reads || !(fresh > 0)) return 0;
    const int e = ps_probe_disk_read(p->cfg->reads, &how, &r, &direct, p->dt);
    if (!e && r.total_s > 0) *ret = r.total_work / r.total_s / fresh;
    return e;
}
