/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the scheduler. One thread owns all of this; it submits tasks to the device as if they ran one after the other, and waits
 * only for what it reads (a micro-batch's sampled tokens, scores, what --dump-kv writes) and for what it writes to be free again (ids,
 * control blocks: ps_sched_ctl).
 *
 *   run.c        opens everything, loads, the loop over sweeps
 *   weights.c    chunks of weights: resident ones, and the ring that streamed ones pass through
 *   slots.c      admission, KV runs, what happens to a token, the end of a sequence
 *   pass.c       (layer, micro-batch): rows in chunks through the layer's list of steps
 *   attention.c  the attention step: argument blocks for prompt rows, decode rows, compaction
 *   kvdisk.c     slabs and hidden states on disk: rings, logs, merges
 *   head.c       embedding and head: ids to X, X to logits to tokens
 */
#ifndef PS_SCHED_H
#define PS_SCHED_H
#include "engine/plan/layout.h"
#include "engine/sched/run.h"

enum { PS_FILE_WEIGHTS, PS_FILE_OFFLOAD };

enum ps_slot_state { PS_SLOT_FREE, PS_SLOT_PROMPT, PS_SLOT_DECODE };

struct ps_slot {
    enum ps_slot_state state;
    struct ps_seq *seq;
    struct ps_keep keep;
    uint32_t e0, cap; /* its run of the micro-batch's KV pool */
    uint32_t len;     /* entries in use, the same in every layer and head */
    uint32_t fed;     /* tokens in the model: the next one's position */
    uint32_t made;    /* tokens generated */
    int32_t token;    /* the next one to feed */
    uint32_t row;     /* its (first) row in the micro-batch, this sweep */
    uint32_t
        logged; /* slabs on disk: entries in the log, and entries in the slab when it was last written */
    uint32_t on_disk;
};

struct ps_mb {
    struct ps_slot *slots;
    uint32_t *decode, *prompt; /* slot indices of this sweep, in row order */
    uint32_t n_decode, n_prompt, n_rows;
    uint32_t *by_run; /* slots in use, ascending e0 */
    uint32_t n_runs;
    bool has_outs; /* a head was submitted whose tokens nobody has taken yet */
    struct ps_buf hidden, ids, gather_ids, outs;
};

/* A chunk in the ring: its bytes are [begin, end) in endless offsets (weights.c). */
struct ps_ring_chunk {
    struct ps_buf buf;
    uint64_t begin, end;
};

struct ps_weights {
    struct ps_buf *resident;     /* [n_chunks], used for resident ones */
    struct ps_ring_chunk *place; /* [n_chunks], where a streamed chunk was last read to */
    struct ps_ring_chunk *past;  /* queue: what was used up and may still be in somebody's hands */
    struct ps_buf file;
    uint32_t *stream;   /* streamed chunks in order; the order repeats for ever */
    uint32_t *in_group; /* [layers + 1] streamed chunks of a group */
    int32_t *by_role;   /* [layers + 1][PS_W__COUNT] tensor index, -1 = none */
    bool *verified;     /* [n_chunks] */
    uint32_t n_stream;
    uint64_t read_pos,
        free_pos; /* positions in the repeating order: reads submitted, uses all submitted */
    uint64_t virtual_end; /* of what was read last */
    uint64_t past_begin, past_end;
};

struct ps_sched {
    const struct ps_run_cfg *cfg;
    const struct ps_run_io *io;
    const struct ps_packed *m;
    const struct ps_shape *shape;
    const struct ps_plan *plan;
    const struct ps_plan_detail *d;
    struct ps_layout l;
    struct ps_dev *dev;
    struct ps_steps embed, layer, head;
    struct ps_weights w;
    struct ps_mb *mb;
    struct ps_buf act[PS_A__COUNT], prompt_kv, gather, logits, scored;
    struct ps_buf ctl[PS_CTL_BLOCKS];
    uint32_t ctl_next;
    /* slabs: [layers * micro_batches] */
    struct ps_buf *slab;      /* on the host: the extent; on disk: the region of the file */
    struct ps_buf *slab_meta; /* its positions, scores and log: on the host wherever the slab is */
    uint32_t *slab_rank;      /* among those of its tier */
    struct ps_buf *kv_ring, *hidden_ring;
    uint64_t kv_pass, hidden_pass;   /* count of ring uses: the next takes slot pass % size */
    uint64_t kv_ahead, hidden_ahead; /* uses whose reads were submitted early */
    struct ps_seq *pending;          /* asked for, did not fit */
    bool dry, stop;
    uint32_t active;
    uint64_t prompt_budget; /* tokens that may still be admitted this sweep */
    struct ps_run_stats stats;
    double mark_s; /* when the tokens of the last sweep were there */
    struct ps_detail verify_detail;
    _Atomic int verify_failed;
    struct ps_detail *dt;
};

/* A (group, micro-batch) in work: some rows of it. */
struct ps_pass {
    uint32_t layer, mb;
    uint32_t row0, rows;
    float *x; /* row 0 of the micro-batch (the head: of the gathered rows) */
    struct ps_buf *x_buf;
    struct ps_buf *kv, *kv_meta; /* the slab extent in memory; what ps_sched.slab_meta says */
    uint8_t *kv_mem;
    int32_t *ids, *ids_pos;
    struct ps_buf *ids_buf;
};

/* weights.c */
int ps_weights_init(struct ps_sched *s) ps_must_check;
void ps_weights_done(struct ps_sched *s);
int ps_weights_load(struct ps_sched *s) ps_must_check;
/* Before the first use of a group's chunks in a sweep, and after the last. */
int ps_weights_begin(struct ps_sched *s, uint32_t group) ps_must_check;
/* Between: reads for the groups that follow, as far as the ring has room, spread over the group's micro-batches (`part` of
 * `parts`), so that the reads of KV and hidden states get their turn in between. */
int ps_weights_spread(struct ps_sched *s, uint32_t group, uint32_t part,
                      uint32_t parts) ps_must_check;
void ps_weights_end(struct ps_sched *s, uint32_t group);
const struct ps_packed_tensor *ps_weights_tensor(const struct ps_sched *s, uint32_t group,
                                                 enum ps_role role);
/* Where tensor t's part in chunk c lies: *ret_p, its buffer, and which rows. */
struct ps_part {
    const uint8_t *p;
    struct ps_buf *buf;
    uint32_t row0, rows;
};
struct ps_part ps_weights_part(struct ps_sched *s, const struct ps_packed_tensor *t, uint32_t c);

/* slots.c */
int ps_slots_init(struct ps_sched *s) ps_must_check;
void ps_slots_done(struct ps_sched *s);
/* Hands the tokens of micro-batch k's last head to the job; frees the slots of sequences that ended. */
int ps_slots_take_tokens(struct ps_sched *s, uint32_t k) ps_must_check;
int ps_slots_admit(struct ps_sched *s, uint32_t k) ps_must_check;
/* Decode rows first, then prompts; fills the ids. */
int ps_slots_lay_rows(struct ps_sched *s, uint32_t k) ps_must_check;
/* All of a sweep's passes were submitted: lengths and positions move on. */
void ps_slots_advance(struct ps_sched *s, uint32_t k);

/* pass.c */
int ps_pass_layer(struct ps_sched *s, uint32_t layer, uint32_t k) ps_must_check;
int ps_pass_steps(struct ps_sched *s, const struct ps_steps *list, const struct ps_pass *p,
                  uint32_t group) ps_must_check;
float *ps_pass_act(struct ps_sched *s, const struct ps_pass *p, enum ps_actv a);
struct ps_buf *ps_pass_buf(struct ps_sched *s, const struct ps_pass *p, enum ps_actv a);

/* attention.c */
int ps_attention(struct ps_sched *s, const struct ps_pass *p) ps_must_check;
/* The next control block, when nobody reads it any more. */
int ps_sched_ctl(struct ps_sched *s, struct ps_ctl **ret, struct ps_buf **ret_buf) ps_must_check;
struct ps_slab ps_slab_of(const struct ps_sched *s, uint32_t layer, uint32_t k,
                          const struct ps_slot *slot, uint8_t *extent);

/* kvdisk.c */
int ps_kv_init(struct ps_sched *s) ps_must_check;
void ps_kv_done(struct ps_sched *s);
struct ps_buf *ps_kv_meta(struct ps_sched *s, uint32_t layer, uint32_t k);
/* The slab extent of (layer, k) in memory, reads submitted. */
int ps_kv_acquire(struct ps_sched *s, uint32_t layer, uint32_t k, struct ps_pass *p) ps_must_check;
/* Submits the reads for a pass that will come next but is not there yet. */
int ps_kv_ahead(struct ps_sched *s, uint32_t layer, uint32_t k) ps_must_check;
/* The pass that was to come next has no rows: what was read ahead for it is dropped. */
void ps_kv_skip(struct ps_sched *s);
/* Writes back what has to go. */
int ps_kv_release(struct ps_sched *s, const struct ps_pass *p) ps_must_check;
bool ps_kv_on_disk(const struct ps_sched *s, uint32_t layer, uint32_t k);
/* Whether this decode step of the slot ends with a merge (slabs on disk). */
bool ps_kv_merges(const struct ps_sched *s, const struct ps_slot *slot, uint32_t index);
/* Fills the replay arguments of one slot, and the log fields of its decode row. */
void ps_kv_replay_args(struct ps_sched *s, const struct ps_pass *p, uint32_t index,
                       struct ps_replay_seq *ret);
void ps_kv_log_args(struct ps_sched *s, const struct ps_pass *p, uint32_t index,
                    struct ps_decode_row *row);
int ps_hidden_acquire(struct ps_sched *s, uint32_t k, bool fresh, struct ps_pass *p) ps_must_check;
int ps_hidden_ahead(struct ps_sched *s, uint32_t k) ps_must_check;
int ps_hidden_release(struct ps_sched *s, const struct ps_pass *p) ps_must_check;

/* head.c */
int ps_head_embed(struct ps_sched *s, uint32_t k) ps_must_check;
int ps_head_run(struct ps_sched *s, uint32_t k) ps_must_check;
#endif
