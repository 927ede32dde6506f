/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the scheduler. One thread owns all of this; it submits tasks to the device as if they ran one after the other, and waits
 * only for what it reads (a micro-batch's sampled tokens, scores, what --dump-kv writes) and for what it writes to be free again (ids,
 * control blocks: ps_sched_ctl).
 *
 *   open.c       opens everything: memory, files, device
 *   run.c        loads, the loop over sweeps
 *   weights.c    chunks of weights: those that stay, and the rings that the others pass through (ring.h)
 *   slots.c      admission, KV runs, what happens to a token, the end of a sequence
 *   pass.c       (layer, micro-batch): rows in chunks through the layer's list of steps
 *   attention.c  the attention step: argument blocks for prompt rows, decode rows, compaction
 *   kv.c         slabs that do not live where attention wants them: rings, ways in and out
 *   kvlog.c      new entries of such slabs: logs, merges, the way back from a GPU
 *   hidden.c     hidden states between layers
 *   head.c       embedding and head: ids to X, X to logits to tokens
 *   skip.c       sweeps that a simulation leaves out
 *
 * "Near" is where COMPUTE works: the GPU if there is one, else the host. "Far" is the host beside a GPU.
 */
#ifndef PS_SCHED_H
#define PS_SCHED_H
#include "engine/plan/layout.h"
#include "engine/sched/ring.h"
#include "engine/sched/run.h"

enum { PS_FILE_WEIGHTS, PS_FILE_OFFLOAD };

/* ENDED: without continuous batching a slot and its room stay taken until the whole block has ended. */
enum ps_slot_state { PS_SLOT_FREE, PS_SLOT_PROMPT, PS_SLOT_DECODE, PS_SLOT_ENDED };

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
/* Its rows of this sweep are decode rows alone; what CUDA is asked for during its passes is counted apart. */
static inline bool ps_mb_decodes(const struct ps_mb *b)
{
    return b->n_rows && b->n_decode == b->n_rows;
}

struct ps_weights {
    struct ps_buf *resident; /* [n_chunks], used for those that stay on the host or the GPU */
    struct ps_ring near;     /* what does not stay where COMPUTE works */
    struct ps_ring stage;    /* beside a GPU: what must be brought into pinned memory first */
    struct ps_buf file;
    struct ps_buf *biases; /* [layers]: in f32 (l.biases); written when the layer first passes by */
    int32_t *by_role;      /* [layers + 1][PS_W__COUNT] tensor index, -1 = none */
    bool *verified;        /* [n_chunks] */
    uint32_t group;        /* begun last; UINT32_MAX = none yet */
    uint64_t begun_end;    /* position in `near` after its chunks */
    uint64_t stage_used;   /* position in `stage` of what all uses were submitted of */
    uint64_t near_last, stage_last; /* positions in the rings at which the job ends */
};

/* Where the KV of a (layer, micro-batch) lives. */
struct ps_home {
    enum ps_tier tier;
    bool
        on_host; /* decode attention is the host's (without a GPU: COMPUTE's, which is on the host) */
    uint64_t rank;      /* among those of its tier */
    struct ps_buf kv;   /* the extent, or the region of the file */
    struct ps_buf meta; /* positions and scores; their offsets count from the arena's start */
    struct ps_buf log;  /* on disk: new entries since it was written */
    int32_t *pos;       /* [pool * Hkv] */
    float *score;       /* NULL without scores */
};

/* What was brought in for a pass: an extent where COMPUTE works, and one on the host (both the same without a GPU; NULL: not needed). */
struct ps_kv_way {
    bool set;
    uint32_t layer, k;
    struct ps_buf *near, *far;
};
struct ps_hidden_way {
    bool set;
    uint32_t k;
    struct ps_buf *near, *far;
};

/* A (group, micro-batch) in work: some rows of it. */
struct ps_pass {
    uint32_t layer, mb;
    uint32_t row0, rows;
    float *x; /* row 0 of the micro-batch (the head: of the gathered rows) */
    struct ps_buf *x_buf, *x_far;
    struct ps_buf *near, *far; /* the slab: struct ps_kv_way */
    struct ps_buf *near_meta;  /* of positions and scores that COMPUTE writes */
    int32_t *pos;
    float *score;
    int32_t *ids, *ids_pos;
    struct ps_buf *ids_buf;
    unsigned twin;       /* which O, and which place for attention on the host */
    bool rounds;         /* ps_rows_rounded, and the device wants it */
    bool o_f32;          /* O is not rounded all the same: some of it comes from the host */
    enum ps_actv copied; /* of what H holds a rounded copy; PS_A_NONE: it holds itself */
    bool last;           /* nothing else of the micro-batch is open: its hidden state can go */
    bool ends; /* no micro-batch after this one: the group's weights are not needed any more */
};

/* What is counted of sweeps that are left out (skip.c). */
struct ps_skip;

struct ps_sched {
    const struct ps_run_cfg *cfg;
    const struct ps_run_io *io;
    const struct ps_packed *m;
    const struct ps_shape *shape;
    const struct ps_plan *plan;
    const struct ps_plan_detail *d;
    struct ps_schedule how;
    struct ps_layout l;
    struct ps_dev *dev;
    struct ps_steps embed, layer, head;
    struct ps_weights w;
    struct ps_mb *mb;
    uint8_t *host_mem, *gpu_mem; /* where the arenas begin */
    struct ps_buf act[PS_A__COUNT], o2, prompt_kv, gather, logits, scored;
    struct ps_buf ctl[PS_CTL_BLOCKS];
    uint32_t ctl_next;
    struct ps_home *home; /* [layers * micro_batches] */
    struct ps_buf *kv_ring, *gpu_kv_ring, *gpu_ring_meta, *hidden_ring, *gpu_hidden_ring;
    struct ps_buf new_rows[PS_NEW_BLOCKS], gpu_new_rows[PS_NEW_BLOCKS], far_in[2], far_o[2],
        from_gpu;
    /* counts of ring uses: the next takes slot count % size */
    uint64_t kv_pass, gpu_kv_pass, hidden_pass, gpu_hidden_pass, new_pass, wait_pass;
    struct ps_kv_way kv_next; /* what was brought in early */
    struct ps_hidden_way hidden_next;
    struct ps_pass waiting; /* submitted up to its attention, which runs on the host */
    bool waits;
    struct ps_seq *pending; /* asked for, did not fit */
    bool dry, stop;
    uint32_t active;
    uint64_t prompt_budget; /* tokens that may still be admitted this sweep */
    struct ps_run_stats stats;
    double mark_s; /* when the tokens of the last sweep were there */
    bool skips;    /* this sweep is left out */
    struct ps_skip *skip;
    struct ps_detail verify_detail;
    _Atomic int verify_failed;
    struct ps_detail *dt;
};

/* weights.c */
int ps_weights_init(struct ps_sched *s) ps_must_check;
void ps_weights_done(struct ps_sched *s);
int ps_weights_load(struct ps_sched *s) ps_must_check;
/* Before the first use of a group's chunks in a sweep, and after the last. */
int ps_weights_begin(struct ps_sched *s, uint32_t group) ps_must_check;
/* Between: reads and copies for the groups that follow, as far as the rings have room, spread over the group's micro-batches (`part`
 * of `parts`), so that KV and hidden states get their turn in between. */
int ps_weights_spread(struct ps_sched *s, uint32_t part, uint32_t parts) ps_must_check;
void ps_weights_end(struct ps_sched *s, uint32_t group);
/* When a sweep's embedding is done, if none can come after it: nothing is brought in but what it still needs. */
void ps_weights_last(struct ps_sched *s);
/* What a sweep moves. */
void ps_weights_bytes(const struct ps_sched *s, uint64_t bytes[PS_Q__COUNT][PS_KIND__COUNT]);
const struct ps_packed_tensor *ps_weights_tensor(const struct ps_sched *s, uint32_t group,
                                                 enum ps_role role);
/* Where tensor t's part in chunk c lies, and in those behind it that lie in one piece with it (on a GPU), and which rows. */
enum { PS_PART_CHUNKS = 64 };
struct ps_part {
    const uint8_t *p;
    uint32_t row0, rows, chunks;
    struct ps_use uses[PS_PART_CHUNKS]; /* their buffers, read; the rest is empty */
};
struct ps_part ps_weights_part(struct ps_sched *s, const struct ps_packed_tensor *t, uint32_t c);

/* slots.c */
int ps_slots_init(struct ps_sched *s) ps_must_check;
void ps_slots_done(struct ps_sched *s);
/* Until the tokens of micro-batch k's last head are there, and its ids may be written. */
int ps_slots_wait(struct ps_sched *s, uint32_t k) ps_must_check;
/* Hands those tokens to the job; frees the slots of sequences that ended. */
int ps_slots_take_tokens(struct ps_sched *s, uint32_t k) ps_must_check;
/* The block has ended: its slots are free again (how.no_continuous). */
void ps_slots_clear(struct ps_sched *s);
int ps_slots_admit(struct ps_sched *s, uint32_t k) ps_must_check;
/* Decode rows first, then prompts; fills the ids. */
void ps_slots_lay_rows(struct ps_sched *s, uint32_t k);
/* Whether there can be a sweep after this one, whose rows are laid out: if not, nothing more is read ahead. */
int ps_slots_more(struct ps_sched *s, bool *ret) ps_must_check;
/* All of a sweep's passes were submitted: lengths and positions move on. */
void ps_slots_advance(struct ps_sched *s, uint32_t k);

/* The bias of step i of a layer in f32, on the GPU; *ret_buf is its buffer. */
const float *ps_weights_bias(struct ps_sched *s, uint32_t layer, unsigned i,
                             struct ps_buf **ret_buf);

/* pass.c */
int ps_pass_layer(struct ps_sched *s, uint32_t layer, uint32_t k) ps_must_check;
/* The layer's last micro-batch was submitted: its weights are let go as soon as may be. */
void ps_pass_layer_end(struct ps_sched *s, uint32_t layer);
/* All tasks of a (layer, micro-batch), the embedding's or the head's were submitted, but for the ways home: how.barrier waits here. */
int ps_pass_barrier(struct ps_sched *s) ps_must_check;
/* The rest of a pass that waits for attention on the host. */
int ps_pass_finish(struct ps_sched *s) ps_must_check;
int ps_pass_steps(struct ps_sched *s, const struct ps_steps *list, struct ps_pass *p,
                  uint32_t group) ps_must_check;
float *ps_pass_act(struct ps_sched *s, const struct ps_pass *p, enum ps_actv a);
/* The type that it is kept in, at the same place. */
enum ps_dtype ps_pass_type(const struct ps_sched *s, const struct ps_pass *p, enum ps_actv a);
struct ps_buf *ps_pass_buf(struct ps_sched *s, const struct ps_pass *p, enum ps_actv a);

/* attention.c */
int ps_attention(struct ps_sched *s, const struct ps_pass *p) ps_must_check;
/* The next control block, when nobody reads it any more. */
int ps_sched_ctl(struct ps_sched *s, struct ps_ctl **ret, struct ps_buf **ret_buf) ps_must_check;
/* The slot's part of an extent and of its positions and scores, each of which may be NULL. */
struct ps_slab ps_slab_of(const struct ps_sched *s, const struct ps_slot *slot, uint8_t *extent,
                          int32_t *pos, float *score);

/* kv.c */
int ps_kv_init(struct ps_sched *s) ps_must_check;
void ps_kv_done(struct ps_sched *s);
size_t ps_slab_at(const struct ps_sched *s, uint32_t layer, uint32_t k);
struct ps_home *ps_kv_home(struct ps_sched *s, uint32_t layer, uint32_t k);
/* The slab of (layer, k) where the pass wants it. */
int ps_kv_acquire(struct ps_sched *s, uint32_t layer, uint32_t k, struct ps_pass *p) ps_must_check;
/* The same, early, for a pass that will come next but is not there yet. */
int ps_kv_ahead(struct ps_sched *s, uint32_t layer, uint32_t k) ps_must_check;
/* The same, but nothing is moved: its sweep is left out. */
void ps_kv_pretend(struct ps_sched *s, uint32_t layer, uint32_t k);
/* The pass has no rows: what was brought in for it is dropped. */
void ps_kv_skip(struct ps_sched *s, uint32_t layer, uint32_t k);
/* Bytes of K and V that entries [from, to) of a slot's slab take with them between two extents. */
uint64_t ps_kv_slot_bytes(const struct ps_sched *s, const struct ps_slot *t, uint32_t from,
                          uint32_t to, bool disk);
/* Which entries of the slot, if any, are written to the disk after this sweep's pass. */
bool ps_kv_written(const struct ps_sched *s, uint32_t k, uint32_t index, uint32_t *from,
                   uint32_t *to);
/* Writes back what has to go. */
int ps_kv_release(struct ps_sched *s, const struct ps_pass *p) ps_must_check;
/* n positions and (unless NULL) scores from the GPU to the host; each pair of places lies in its buffer. */
int ps_kv_fetch_meta(struct ps_sched *s, struct ps_buf *dst, int32_t *pos, float *score,
                     struct ps_buf *src, const int32_t *from_pos, const float *from_score,
                     uint64_t n) ps_must_check;

/* kvlog.c */
/* When it is a slot's turn to be written (slabs on disk), of log_steps. */
uint32_t ps_kv_turn(const struct ps_sched *s, uint32_t index);
/* Whether this decode step of the slot ends with a merge (slabs on disk). */
bool ps_kv_merges(const struct ps_sched *s, const struct ps_slot *slot, uint32_t index);
/* Puts the logs of (layer, k) into its extent, just read. */
int ps_kv_replay(struct ps_sched *s, uint32_t layer, uint32_t k,
                 struct ps_buf *extent) ps_must_check;
/* Where attention on the host logs a slot's new entry (slabs on disk). */
void ps_kv_log_args(struct ps_sched *s, const struct ps_pass *p, uint32_t index,
                    struct ps_decode_row *row);
/* Where attention on the GPU leaves the i-th row's new entry for the host; and, when it is submitted, the way of n of them there,
 * decode rows `from` and on. */
void ps_kv_new_args(struct ps_sched *s, uint32_t i, struct ps_decode_row *row);
int ps_kv_new_home(struct ps_sched *s, const struct ps_pass *p, uint32_t from,
                   uint32_t n) ps_must_check;

/* hidden.c */
int ps_hidden_init(struct ps_sched *s) ps_must_check;
void ps_hidden_done(struct ps_sched *s);
int ps_hidden_acquire(struct ps_sched *s, uint32_t k, bool fresh, struct ps_pass *p) ps_must_check;
int ps_hidden_ahead(struct ps_sched *s, uint32_t k) ps_must_check;
int ps_hidden_release(struct ps_sched *s, const struct ps_pass *p) ps_must_check;

uint64_t ps_hidden_rows_bytes(const struct ps_sched *s, uint32_t k, bool disk);

/* skip.c: with io->skip; without it s->skip is NULL and nothing is counted */
int ps_skip_init(struct ps_sched *s) ps_must_check;
void ps_skip_done(struct ps_sched *s);
/* Rows are laid out: sets s->skips. */
int ps_skip_ask(struct ps_sched *s) ps_must_check;
void ps_skip_sweep(struct ps_sched *s);
/* Adds what was moved by sweeps that were left out. */
void ps_skip_bytes(const struct ps_sched *s, uint64_t bytes[PS_Q__COUNT][PS_KIND__COUNT]);

/* head.c */
int ps_head_embed(struct ps_sched *s, uint32_t k) ps_must_check;
int ps_head_run(struct ps_sched *s, uint32_t k) ps_must_check;
#endif
