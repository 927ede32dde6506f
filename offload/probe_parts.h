/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of probing a machine, each of which fills its section of the profile. Private to this folder. */
#ifndef PS_PROBE_PARTS_H
#define PS_PROBE_PARTS_H
#include "offload/probe_kernels.h"
#include "offload/probe_machine.h"
#include "offload/profile_write.h"

struct ps_probing {
    const struct ps_probe_machine *cfg;
    struct ps_profile_out out;
    struct ps_detail *dt;
    double seconds;      /* for all that follows, as planned */
    double begin, share; /* of the part at hand, in progress */
    const char *what;
    /* Of the host: */
    struct ps_rig rig;
    struct ps_store *store; /* NULL: there is no room for a file */
    int fd;                 /* of that file, else < 0 */
    char open_as[32];
    uint64_t file_bytes;
    uint8_t *ring; /* for transfers, of each direction: PS_PROBE_RING_BYTES */
};
enum { PS_PROBE_RING_BYTES = 64 << 20, PS_PROBE_MOVE = 1 << 20 };

void ps_probing_now(struct ps_probing *p, const char *what, double begin, double share);
void ps_probing_share(void *probing, double share); /* of the part, done */
void ps_probing_warn(struct ps_probing *p, const char *fmt, ...) ps_printf_(2, 3);

/* The file to read and write, and a store for it; without room p->store stays NULL, and a note says so. */
int ps_probe_disk_room(struct ps_probing *p) ps_must_check;
/* All of the file is written before it is read. */
int ps_probe_disk_write_all(struct ps_probing *p) ps_must_check;
/* How many times as fast a file is read that has been there for long than one just written: the storage beneath may have moved it. */
int ps_probe_disk_older(struct ps_probing *p, double fresh, double max_s,
                        double *ret) ps_must_check;
/* Curves over how many transfers are under way, for blocks of some sizes; what a transfer takes beside its bytes' share. */
int ps_probe_disk_blocks(struct ps_probing *p, json_t *disk, double max_s,
                         double *ret_transfer_s) ps_must_check;
/* With p->rig.dev open: section `disk`. */
int ps_probe_disk_part(struct ps_probing *p, json_t *disk, double max_s) ps_must_check;

/* Worker's curves and figures of gauges that were measured, each without what a task takes whatever it does. */
struct ps_gauge_list {
    struct ps_gauge at[192];
    unsigned n;
};
void ps_gauges_host(struct ps_gauge_list *l, bool quick);
void ps_gauges_gpu(struct ps_gauge_list *l, bool quick);
void ps_gauges_out(struct ps_profile_out *o, json_t *worker, const struct ps_gauge_list *l);

/* Sections `gpu` and `links`. */
int ps_probe_gpu_part(struct ps_probing *p, double max_s) ps_must_check;
#endif
