/* SPDX-License-Identifier: Apache-2.0 */
/* Which sweeps of a job stand for the others. Sweeps are told apart by how long they would keep each part of the machine busy (by the
 * profile's coarsest figures: only to tell what is alike). Those that are alike make a group, and one of the group is run; it
 * counts for all of them, a little more or less so that the groups' loads add up to the job's. */
#ifndef PS_SAMPLE_H
#define PS_SAMPLE_H
#include "engine/search/simulate.h"

/* What a sweep asks for: in seconds, */
enum ps_load {
    PS_LOAD_COMPUTE,
    PS_LOAD_HOST,
    PS_LOAD_READ,
    PS_LOAD_WRITE,
    PS_LOAD_UP,
    PS_LOAD_DOWN,
    PS_LOAD_ALL,     /* of the sweep */
    PS_LOAD_PREFILL, /* the prompts' part of it */
    PS_LOAD__ALIKE,  /* and counts that weights are to get right, but that make no sweep another */
    PS_LOAD_LOTS = PS_LOAD__ALIKE,
    PS_LOAD_DECODE_ROWS,
    PS_LOAD_PROMPT_ROWS,
    PS_LOAD_HEAD_ROWS,
    PS_LOAD_ENTRIES,
    PS_LOAD_PAIRS,
    PS_LOAD__COUNT,
};
struct ps_loads {
    const struct ps_simulate_cfg *cfg;
    double *lot_s; /* [chunk_rows + 1]: linears of so many rows; 0 = not known yet */
};
int ps_loads_init(struct ps_loads *l, const struct ps_simulate_cfg *cfg) ps_must_check;
void ps_loads_done(struct ps_loads *l);
void ps_loads_of(struct ps_loads *l, const struct ps_sweep_shape *h, double ret[PS_LOAD__COUNT]);

/* Sweeps one after the other, as one: a long job's are put together two by two until they are few enough. */
enum { PS_STRETCHES = 1 << 14 };
struct ps_stretch {
    uint64_t first;
    uint32_t n, group;
    double counts;               /* as so many sweeps: n, unless some are repeated */
    double load[PS_LOAD__COUNT]; /* sums, of all that count */
    double time_s;               /* of the n: ps_sample_times() */
};
struct ps_laid {
    struct ps_stretch *at; /* [PS_STRETCHES] */
    uint32_t n, each;      /* sweeps of a stretch; the last may have fewer */
    uint64_t sweeps;
};
int ps_laid_init(struct ps_laid *l) ps_must_check;
void ps_laid_done(struct ps_laid *l);
/* Sweeps [from, to) count `times` more than once. */
void ps_laid_repeat(struct ps_laid *l, uint64_t from, uint64_t to, double times);
/* All that count. */
double ps_laid_sweeps(const struct ps_laid *l);
/* The next sweep. */
void ps_laid_add(struct ps_laid *l, const double load[PS_LOAD__COUNT]);

/* A sweep to run. */
struct ps_pick {
    uint64_t sweep;
    bool counts;   /* else it only brings the machine into the state that the next begins in */
    double group;  /* sweeps that it stands for */
    double weight; /* how often it counts */
    double load[PS_LOAD__COUNT]; /* its own, filled in when it runs */
};
struct ps_picks {
    struct ps_pick *at; /* ascending */
    uint32_t n;
};
/* At most `most` of them (>= 1; the first and the last sweep are always run). Free s->at either way. */
int ps_sample_pick(struct ps_laid *l, uint32_t most, struct ps_picks *s) ps_must_check;
/* When all have run, with their loads: how often each counts. */
void ps_sample_weigh(const struct ps_laid *l, struct ps_picks *s);
/* From what they took, took_s[i * apart], what each stretch took. */
void ps_sample_times(const struct ps_laid *l, const struct ps_picks *s, const double *took_s,
                     uint32_t apart);
#endif
