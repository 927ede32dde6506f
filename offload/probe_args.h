/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of a gauge's tasks. Private to this folder. */
#ifndef PS_PROBE_ARGS_H
#define PS_PROBE_ARGS_H
#include "offload/probe_kernels.h"

union ps_gauge_args {
    struct ps_linear linear;
    struct ps_layernorm layernorm;
    struct ps_embed embed;
    struct ps_sample sample;
    struct ps_attn_decode decode;
    struct ps_attn_prompt prompt;
    struct ps_kv_round round;
    struct ps_kv_compact compact;
    struct ps_kv_replay replay;
};
/* Of the task that r->turn names. With `write`, what they point to in r->ctl is written, too, for all turns. False: it does not fit into
 * the rig's memory. */
bool ps_gauge_args(struct ps_rig *r, const struct ps_gauge *g, bool write,
                   union ps_gauge_args *ret) ps_must_check;

/* Slabs with room for so many entries: of `tasks` tasks, each with `seqs` sequences. */
struct ps_slabs {
    uint32_t seqs, heads, cap, tasks;
    uint64_t half, metas; /* of a task: bytes of its K; positions (and scores) */
};
/* Entries that there is room for in a gauge's slabs. */
uint32_t ps_gauge_room(const struct ps_gauge *g);
struct ps_slabs ps_gauge_slabs(const struct ps_rig *r, const struct ps_gauge *g, uint32_t room);
struct ps_slab ps_slabs_at(const struct ps_rig *r, const struct ps_gauge *g,
                           const struct ps_slabs *s, uint32_t t, uint32_t i, uint8_t *meta);
/* Rows of weights that a linear has. */
uint32_t ps_gauge_outputs(const struct ps_rig *r, const struct ps_gauge *g);
#endif
