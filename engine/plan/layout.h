/* SPDX-License-Identifier: Apache-2.0 */
/* The memory map of a run: every large thing the sweep touches, cut from one arena. The plan calls ps_layout_make() with an
 * arena that only measures, the sweep with a real one: what the plan accepts is what the sweep takes.
 *
 * KV pool: per layer and micro-batch one extent of `pool` entries, K first, then V. A sequence gets a run of entries [e0, e0 + cap) of
 * the pool; its slab is K [kv head][cap][d] at element e0 * Hkv * d, V likewise, scores and positions at e0 * Hkv. All layers
 * share e0 and cap. With a fixed budget all caps are equal; with `full` a sequence has its own length, rounded up to `quantum`. */
#ifndef PS_LAYOUT_H
#define PS_LAYOUT_H
#include "engine/plan/plan.h"
#include "offload/arena.h"

struct ps_plan_detail {
    uint8_t *chunk_tier;  /* [n_chunks] enum ps_tier */
    uint8_t *slab_tier;   /* [layers * micro_batches], layer-major */
    uint8_t *hidden_tier; /* [micro_batches] */
    uint64_t ring_bytes;  /* the ring for streamed chunks */
    uint32_t kv_ring;     /* KV extents in memory for slabs on disk; 0 = none are */
    uint32_t hidden_ring; /* the same for hidden states */
    uint32_t log_steps;   /* decode steps between merges of a slab on disk */
    uint32_t head_rows;   /* rows whose logits are in memory together */
    uint32_t pool;        /* entries of a micro-batch's KV pool, in each layer */
    uint32_t quantum;     /* slab lengths are multiples of this */
    uint32_t mb_prompt;   /* most prompt tokens of one micro-batch in one sweep */
    uint32_t mb_rows;     /* slots + mb_prompt */
    uint32_t ctl_blocks;
    bool scores;
    enum ps_dtype kv_type;
    size_t scratch_bytes; /* of one worker */
    char *table;          /* the memory items, one a line */
};

enum { PS_CTL_BLOCKS = 16 }; /* even: half of them become free at a time */

/* Arguments of one pass that kernels read by pointer; a block is reused when its pass is done. */
struct ps_ctl {
    struct ps_decode_row *decode;   /* [slots] */
    struct ps_prompt_seq *prompt;   /* [slots] */
    struct ps_compact_seq *compact; /* [slots] */
    struct ps_replay_seq *replay;   /* [slots] */
    int32_t *at;                    /* [slots * Hkv] */
};

struct ps_layout {
    uint8_t *resident;            /* resident chunks, one after the other in order */
    uint8_t *ring;                /* [ring_bytes] */
    uint8_t *kv_host;             /* the slabs on the host, in slab order, extent bytes each */
    uint8_t *kv_ring;             /* [kv_ring][extent bytes] */
    float *score;                 /* [layers * micro_batches][pool * Hkv], NULL without scores */
    int32_t *pos;                 /* the same shape */
    uint8_t *log_k, *log_v;       /* [slabs on disk][slots][Hkv][log_steps][d] */
    int32_t *log_index;           /* [slabs on disk][slots][Hkv][log_steps] */
    float *hidden;                /* micro-batches on the host, in order: [mb_rows][hidden] */
    float *hidden_ring;           /* [hidden_ring][mb_rows][hidden] */
    float *act[PS_A__COUNT];      /* scratch of chunk_rows rows; X and LOGITS are elsewhere */
    float *gather;                /* [head_rows][hidden]: the head's X */
    float *logits;                /* [head_rows][vocab] */
    uint8_t *prompt_k, *prompt_v; /* [Hkv * d * mb_prompt] */
    float *prompt_score;          /* [Hkv * mb_prompt] */
    int32_t *ids, *ids_pos;       /* [micro_batches][mb_rows] */
    int32_t *gather_ids;          /* [micro_batches][mb_rows] */
    struct ps_sample_row *sample_rows; /* [micro_batches][mb_rows] */
    struct ps_sample_out *outs;        /* [micro_batches][slots] */
    struct ps_sample_out *scored;      /* [head_rows] */
    struct ps_ctl ctl[PS_CTL_BLOCKS];
    void *worker_scratch; /* (threads + 1) * scratch_bytes */
    int32_t *dump_pos;    /* for --dump-kv: [Hkv * kv_cap] */
    float *dump_score;
};

uint64_t ps_kv_extent_half(const struct ps_shape *s,
                           const struct ps_plan_detail *d); /* K of a pool, 4 KiB multiple */
uint64_t ps_kv_extent_bytes(const struct ps_shape *s, const struct ps_plan_detail *d); /* K and V */
uint64_t ps_hidden_bytes(const struct ps_shape *s,
                         const struct ps_plan_detail *d); /* of one micro-batch, 4 KiB multiple */
/* Entries of a slab for a sequence that will feed n tokens. */
uint32_t ps_slab_cap(const struct ps_plan_detail *d, const struct ps_keep *k, uint32_t n);

int ps_layout_make(struct ps_arena *a, const struct ps_packed *m, const struct ps_plan *p,
                   unsigned threads, struct ps_layout *ret, struct ps_detail *dt) ps_must_check;
#endif
