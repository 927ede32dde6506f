/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated device with a profile in which everything that is not set costs nothing, and short ways to submit. Kernels are calls, which
 * read 1e9 bytes a second: a call of s * 1e9 bytes takes s seconds. */
#ifndef PS_VIRTUAL_RIG_H
#define PS_VIRTUAL_RIG_H
#include "offload/dev.h"
#include "offload/profile.h"

#define G 1e9

enum { RIG_SPANS = 4096 };
struct rig {
    struct ps_profile profile;
    struct ps_sim_cfg cfg;
    struct ps_dev *dev;
    struct ps_detail outside;
    struct {
        enum ps_q q;
        double t0, t1;
    } span[RIG_SPANS]; /* in the order of their ends; those beyond are left out */
    unsigned n_spans;
};

struct rig *rig_open(struct ps_profile profile, bool gpu); /* the one before is gone */
void rig_reopen(struct rig *g);                            /* the device anew, as cfg says */
double rig_drained(struct rig *g);                         /* the time when all is done */
struct ps_dev_stats rig_stats(struct rig *g);

struct ps_buf rig_buf(enum ps_where where);
void rig_move(struct rig *g, struct ps_buf *dst, struct ps_buf *src, double bytes);
/* Between buffers that nobody else uses. */
void rig_move_alone(struct rig *g, enum ps_where to, enum ps_where from, enum ps_kind kind,
                    double bytes);
/* The buffers may be NULL. */
void rig_call(struct rig *g, enum ps_q q, double s, struct ps_buf *wrote, struct ps_buf *read);

void near(double got, double want); /* up to rounding */
#endif
