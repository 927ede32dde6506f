/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of this folder simulate: models of configs/models, machines that are made up, plans for them. */
#ifndef SIM_RIG_H
#define SIM_RIG_H
#include "engine/checkpoint/pack_file.h"
#include "engine/search/simulate.h"

extern const struct ps_profile rig_t4, rig_cpu;

struct rig {
    struct ps_packed *model;
    struct ps_plan_req req; /* to be changed before rig_plan() */
    struct ps_plan plan;
    struct ps_profile profile;
    struct ps_lengths lengths;
    struct ps_schedule schedule;
    bool coarse;
    const volatile int *stop;
};
/* Of a model of configs/models (its layers cut to `layers` unless 0), with automatic placement. */
void rig_open(struct rig *r, const char *config, uint32_t layers, const struct ps_profile *p,
              const struct ps_lengths *l, const char *policy);
void rig_plan(struct rig *r);
void rig_close(struct rig *r);
/* Simulates; the plan must be there. */
struct ps_simulated rig_run(const struct rig *r, bool every_sweep, uint32_t most_sweeps);
int rig_try(const struct rig *r, bool every_sweep, uint32_t most_sweeps, struct ps_simulated *ret);
#endif
