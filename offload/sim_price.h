/* SPDX-License-Identifier: Apache-2.0 */
/* What a task takes on a machine that it has to itself, and how much of what tasks share it uses meanwhile: from its op and args, or from
 * what it moves, and a profile. Private to this folder. Prices are read from the args at once: nothing is kept of them. */
#ifndef PS_SIM_PRICE_H
#define PS_SIM_PRICE_H
#include "offload/dev.h"
#include "offload/profile.h"

/* What queues share. */
enum ps_shared {
    PS_SHARED_CORES,
    PS_SHARED_DRAM,
    PS_SHARED_READ, /* of the disk; alone unless something is written meanwhile */
    PS_SHARED_WRITE,
    PS_SHARED_UP, /* the way to the GPU: H2D and UP */
    PS_SHARED_DOWN,
    PS_SHARED__COUNT,
};

struct ps_price {
    double solo_s;
    double use[PS_SHARED__COUNT]; /* of the whole, 0 to 1, on average over solo_s */
    /* Of the disk: how many transfers; how long after the last byte it is done, while others have the way already, and if kernels run on the
     * host then; how much of what was asked for the other way before has to be done first, 0 to 1. */
    double ios, delay_s, busy_delay_s, behind;
};

/* Curves of one kind (linears, decode attention, prompt attention) at one place. */
struct ps_curves {
    unsigned n;
    struct {
        enum ps_dtype type;
        double size; /* K, or d */
        const struct ps_curve *over;
    } at[PS_RATES_MAX];
};
enum ps_curve_kind {
    PS_CURVE_LINEAR,
    PS_CURVE_DECODE,
    PS_CURVE_PROMPT,
    PS_CURVE__KINDS,
};

enum { PS_PRICES_KEPT = 2048 };
struct ps_pricer {
    const struct ps_profile *profile;
    bool gpu; /* COMPUTE's kernels run there */
    const struct ps_worker_rates *compute;
    struct ps_detail *outside; /* may be NULL: what was priced beyond the curves first */
    struct ps_curves curves[2][PS_CURVE__KINDS]; /* of the host, the GPU */
    struct {
        uint64_t key[2];
        double rate;
    } kept[PS_PRICES_KEPT]; /* rates that were asked for before */
};
/* The profile and `outside` stay the caller's and must live as long. -EINVAL if a rate is no number that a rate can be. */
int ps_pricer_init(struct ps_pricer *p, const struct ps_profile *profile, bool gpu,
                   struct ps_detail *outside) ps_must_check;
void ps_price_task(struct ps_pricer *p, enum ps_q q, const struct ps_task *t, struct ps_price *ret);
/* How much of each there is when these queues (a bit each) have something under way: 1, or less for a direction of the disk or the
 * link to the GPU beside the other, and for reads beside kernels of the host. */
void ps_price_room(const struct ps_pricer *p, unsigned queues, double ret[PS_SHARED__COUNT]);
#endif
