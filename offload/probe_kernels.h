/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of kernels as a run has them: through a device, in tasks of the engine's sizes, with weights and KV that come from memory and not
 * from a cache. On the host or on a GPU alike. Private to this folder. */
#ifndef PS_PROBE_KERNELS_H
#define PS_PROBE_KERNELS_H
#include "offload/dev.h"
#include "offload/probe_slices.h"

/* A task, and what repeating it has shown. */
struct ps_gauge {
    enum ps_op op; /* call: a checksum */
    bool copy;     /* no op: a move within the memory */
    enum ps_q q;
    enum ps_dtype type; /* of weights, or KV */
    uint32_t m;         /* rows; of attention: sequences, 0 = as many as make a good task */
    uint32_t k;         /* inputs of a linear; entries, tokens of attention */
    uint32_t n;         /* outputs of a linear; 0 = a chunk's rows */
    uint32_t d;         /* head dimension */
    uint32_t room;      /* of decode's slabs, entries beyond those in use; at least 1 */
    bool scores;
    bool residual; /* a linear adds to what is there */
    bool apart;    /* each task is waited for */
    /* Found by ps_rig_measure(): */
    double
        work; /* of one task, as its op's cost has it: flops of linear and attn_prompt, K and V of attn_decode, else bytes */
    double task_s;      /* of the last one */
    bool left_out;      /* it would take too long, or more memory than there is */
    struct ps_slices s; /* work per second, the device's own time included */
};

/* Where gauges run. The memory is the caller's; it holds small numbers of no meaning. */
struct ps_rig {
    struct ps_dev *dev;
    enum ps_place place; /* of COMPUTE */
    uint32_t sm;
    uint8_t *cold; /* weights and KV */
    uint64_t cold_bytes;
    uint8_t *act;  /* activations, logits: another quarter of that size */
    uint8_t *meta; /* scores and positions of slabs: a sixteenth */
    void *
        ctl; /* what kernels read by pointer and the host writes: PS_RIG_CTL_BYTES (pinned, for a GPU) */
    uint8_t *stage;       /* a GPU's: as long as meta, pinned host memory; else NULL */
    uint64_t chunk_bytes; /* of a linear's weights, at most PS_RIG_CHUNK */
    /* Its own: what tasks name. The places of a copy's two sides, of stage and of meta; COMPUTE's tasks name meta. */
    struct ps_buf side[2], staged, near;
    uint64_t turn;            /* walks through cold */
    const volatile int *stop; /* may be NULL */
};
enum { PS_RIG_CHUNK = 8 << 20, PS_RIG_CTL_BYTES = 8 << 20 };
#define PS_RIG_ACT_BYTES(cold)  ((cold) / 4)
#define PS_RIG_META_BYTES(cold) ((cold) / 16)

/* Fills `bytes` of host memory with halves around 1e-1 of either sign or, if `f32`, floats of that size. Whatever type a kernel takes them for, they
 * are normal numbers: gauges of several types share the memory. */
void ps_rig_fill(void *p, uint64_t bytes, bool f32);
/* Scratch that a worker, or the GPU's rows, need for any of these gauges. */
size_t ps_rig_scratch(struct ps_rig *r, const struct ps_gauge *g, unsigned n);
/* Runs each gauge for its share of max_s, in some rounds, so that what comes and goes meets all of them. -ECANCELED when *stop was set. */
int ps_rig_measure(struct ps_rig *r, struct ps_gauge *g, unsigned n, unsigned rounds, double max_s,
                   void (*progress)(void *ud, double share), void *ud,
                   struct ps_detail *dt) ps_must_check;
/* Submits the task once more (beside something else), when what is written to `needs` (may be NULL) is there. */
int ps_rig_submit(struct ps_rig *r, struct ps_gauge *g, struct ps_buf *needs) ps_must_check;
#endif
