/* SPDX-License-Identifier: Apache-2.0 */
/* The memory map of a run: every large thing the sweep touches, cut from one arena, and from a second one of the GPU where COMPUTE
 * is one. The plan calls ps_layout_*() with arenas that only measure, the sweep with real ones: what the plan accepts is what
 * the sweep takes.
 *
 * KV pool: per layer and micro-batch one extent of `pool` entries, K first, then V. A sequence gets a run of entries [e0, e0 + cap) of
 * the pool; its slab is K [kv head][cap][d] at element e0 * Hkv * d, V likewise, scores and positions at e0 * Hkv. All layers
 * share e0 and cap. With a fixed budget all caps are equal; with `full` a sequence has its own length, rounded up to `quantum`. */
#ifndef PS_LAYOUT_H
#define PS_LAYOUT_H
#include "engine/plan/plan.h"
#include "offload/arena.h"

/* A plan in few words: what is searched for, and built from (shape_plan.h). */
struct ps_candidate {
    uint32_t slots, micro_batches, prompt_tokens, chunk_rows, prefetch, log_steps;
    struct ps_shares weights, kv, hidden;
    uint64_t slabs[PS_TIER__COUNT], mbs[PS_TIER__COUNT]; /* what kv and hidden come to */
    /* Beside a GPU: */
    double attention_host_pct; /* of the slabs that do not lie on it */
    bool weights_pinned;
};

struct ps_plan_detail {
    struct ps_candidate
        from;        /* for the same model, job and options it makes the same plan on any machine */
    bool gpu;        /* COMPUTE is a GPU's */
    uint32_t gpu_sm; /* its compute capability; 0: not known */
    uint8_t *chunk_tier; /* [n_chunks] enum ps_tier */
    uint8_t *slab_tier;  /* [layers * micro_batches], layer-major */
    uint8_t
        *slab_host; /* the same shape: beside a GPU, decode attention over it runs on the host */
    uint8_t *hidden_tier; /* [micro_batches] */
    bool weights_pinned;  /* beside a GPU: what lies on the host can be copied to it as it is */
    uint64_t
        ring_bytes; /* the ring on the host: chunks from the disk, and whatever must be pinned on its way to a GPU */
    uint64_t gpu_ring_bytes; /* the ring on the GPU: chunks that do not stay there */
    uint32_t kv_ring;        /* KV extents in host memory for slabs on disk; 0 = none are */
    uint32_t gpu_kv_ring;    /* on the GPU, for slabs that do not lie there */
    uint32_t hidden_ring, gpu_hidden_ring; /* the same for hidden states */
    uint32_t
        passes; /* that are under way together: 2 while one waits for attention on the host, else 1 */
    uint32_t log_steps;   /* decode steps between merges of a slab on disk */
    uint32_t head_rows;   /* rows whose logits are in memory together */
    uint32_t pool;        /* entries of a micro-batch's KV pool, in each layer */
    uint32_t quantum;     /* slab lengths are multiples of this */
    uint32_t mb_prompt;   /* most prompt tokens of one micro-batch in one sweep */
    uint32_t mb_rows;     /* slots + mb_prompt */
    uint32_t most_banned; /* ids in a sequence's list of them */
    bool scores;
    enum ps_dtype kv_type;
    size_t scratch_bytes; /* of one worker */
    size_t gpu_scratch_bytes;
    uint64_t gpu_mem_bytes;  /* of plan's gpu_bytes: what ps_layout_gpu() cuts up */
    char *table, *gpu_table; /* the memory items, one a line */
};

/* Beside a GPU: whether so many rows are more than its own linear is for (ps_linear_rounds), so that what linears read is kept rounded to the
 * weights' type. Not with KV in f32, which is for checking. */
static inline bool ps_rows_rounded(const struct ps_plan_detail *d, enum ps_dtype weights,
                                   uint32_t rows)
{
    return d->gpu && ps_linear_rounds(d->gpu_sm, rows, weights) && d->kv_type != PS_F32;
}
/* Activations that nothing but linears reads: then they are kept in no other form. */
static inline bool ps_actv_rounds(enum ps_actv a)
{
    return a == PS_A_H || a == PS_A_F || a == PS_A_O;
}

/* Whether COMPUTE does the decode attention over this slab (where there is no GPU: all). */
static inline bool ps_slab_near(const struct ps_plan_detail *d, size_t slab)
{
    return !d->slab_host[slab];
}

enum { PS_CTL_BLOCKS = 16 }; /* even: half of them become free at a time */
enum { PS_NEW_BLOCKS = 3 };  /* blocks of new KV entries on their way from the GPU */

/* Arguments of one pass that kernels read by pointer; a block is reused when its pass is done. */
struct ps_ctl {
    struct ps_decode_row *decode;   /* [slots] */
    struct ps_prompt_seq *prompt;   /* [slots] */
    struct ps_compact_seq *compact; /* [slots] */
    struct ps_replay_seq *replay;   /* [slots] */
    int32_t *at;                    /* [slots * Hkv] */
};

/* Names that begin with gpu_ are on the GPU. Activations, what attention works on, and logits are where COMPUTE works; the rest is on
 * the host, and small things that kernels on a GPU read and write there (ids, control blocks, results) are pinned. */
struct ps_layout {
    uint8_t *resident, *gpu_resident; /* chunks that stay, one after the other in order */
    uint8_t *ring;                    /* [ring_bytes] */
    uint8_t *gpu_ring;                /* [gpu_ring_bytes] */
    uint8_t *kv_host, *gpu_kv;        /* the slabs of that tier, in slab order, extent bytes each */
    uint8_t *kv_ring;                 /* [kv_ring][extent bytes] */
    uint8_t *gpu_kv_ring;             /* [gpu_kv_ring][extent bytes] */
    /* [slabs][pool * Hkv], in slab order: without a GPU of all slabs; beside one, those with attention on the host and the others.
     * NULL without scores. */
    float *score, *gpu_score;
    int32_t *pos, *gpu_pos; /* the same shape */
    float *
        gpu_ring_score; /* [gpu_kv_ring][pool * Hkv]: of slabs with attention on the host, while a prompt is compacted */
    int32_t *gpu_ring_pos;
    uint8_t *new_rows, *gpu_new_rows; /* [PS_NEW_BLOCKS][slots][ps_new_row_bytes] */
    float *far_q, *far_k, *far_v,
        *far_o;             /* [passes][slots][width]: of decode rows with attention on the host */
    uint8_t *log_k, *log_v; /* [slabs on disk][slots][Hkv][log_steps][d] */
    int32_t *log_index;     /* [slabs on disk][slots][Hkv][log_steps] */
    float *hidden, *gpu_hidden; /* micro-batches of that tier, in order: [mb_rows][hidden] */
    float *hidden_ring;         /* [hidden_ring][mb_rows][hidden] */
    float *gpu_hidden_ring;     /* [gpu_hidden_ring][mb_rows][hidden] */
    float *act[PS_A__COUNT];    /* scratch of chunk_rows rows; X and LOGITS are elsewhere */
    float *o2;                  /* O of a second pass */
    float *
        biases; /* [layers][ps_biases_before(all steps)]: in f32, for linears of many rows; NULL: there are none */
    float *gather;                     /* [head_rows][hidden]: the head's X */
    float *logits;                     /* [head_rows][vocab] */
    uint8_t *prompt_k, *prompt_v;      /* [Hkv * d * mb_prompt] */
    float *prompt_score;               /* [Hkv * mb_prompt] */
    int32_t *ids, *ids_pos;            /* [micro_batches][mb_rows] */
    int32_t *gather_ids;               /* [micro_batches][mb_rows] */
    struct ps_sample_row *sample_rows; /* [micro_batches][mb_rows] */
    struct ps_sample_out *outs;        /* [micro_batches][slots] */
    struct ps_sample_out *scored;      /* [head_rows] */
    int32_t *banned;                   /* beside a GPU: [micro_batches][slots][most_banned] */
    struct ps_ctl ctl[PS_CTL_BLOCKS];
    void *worker_scratch; /* (threads + 1) * scratch_bytes */
    int32_t *dump_pos;    /* for --dump-kv: [Hkv * kv_cap] */
    float *dump_score;
    int32_t *from_gpu_pos; /* beside a GPU, for --dump-kv: [Hkv * kv_cap] */
    float *from_gpu_score;
    uint64_t
        control_bytes; /* the front of the host arena: what this thread itself writes and reads, and kernels by pointer */
    uint64_t pinned_bytes; /* beside a GPU: the front of the host arena that has to be pinned */
};

/* A new KV entry of one decode row, as it comes from the GPU: K [Hkv][d], V likewise, then where they went in the slab, int32 [Hkv]. */
uint64_t ps_new_row_bytes(const struct ps_shape *s, const struct ps_plan_detail *d);

/* Floats of a layer's biases in f32 before that of step `i` of n (i == n: of all): those of linears whose result stays f32. */
uint64_t ps_biases_before(const struct ps_shape *s, const struct ps_steps *layer, unsigned i);

uint64_t ps_kv_extent_half(const struct ps_shape *s,
                           const struct ps_plan_detail *d); /* K of a pool, 4 KiB multiple */
uint64_t ps_kv_extent_bytes(const struct ps_shape *s, const struct ps_plan_detail *d); /* K and V */
uint64_t ps_hidden_bytes(const struct ps_shape *s,
                         const struct ps_plan_detail *d); /* of one micro-batch, 4 KiB multiple */
/* Entries of a slab for a sequence that will feed n tokens. */
uint32_t ps_slab_cap(const struct ps_plan_detail *d, const struct ps_keep *k, uint32_t n);

/* Fill in what lies on the host (all, without a GPU), and on the GPU. *l is zero at first. */
int ps_layout_host(struct ps_arena *host, const struct ps_packed *m, const struct ps_plan *p,
                   unsigned threads, struct ps_layout *l, struct ps_detail *dt) ps_must_check;
int ps_layout_gpu(struct ps_arena *gpu, const struct ps_packed *m, const struct ps_plan *p,
                  struct ps_layout *l, struct ps_detail *dt) ps_must_check;
#endif
