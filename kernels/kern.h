/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel table.
 *
 * One op = one args struct = one contract, documented on the struct (kernels/ops.h). Every implementation
 * of an op (scalar reference, AVX2, AVX-512, later AMX and CUDA) has the same signature and is one row in
 * one table. ps_kern_pick() reads that table to dispatch, tests/ktest reads the same table to compare and
 * to benchmark: a variant that is registered is tested, and a variant that is not registered cannot be
 * called. Each op declares once how its work divides into independent units, what it costs, and how much
 * scratch a worker needs.
 *
 * Row independence: a unit's result depends on that unit's inputs alone. It does not depend on how many
 * other rows there are, on how units are spread over threads, or on alignment. Rows of the table may differ
 * from each other within the tolerance that their check states.
 */
#ifndef PS_KERN_H
#define PS_KERN_H
#include "kernels/ops.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_OPS(X) \
    X(embed)      \
    X(layernorm)  \
    X(convert)    \
    X(linear) X(kv_round) X(attn_prompt) X(attn_decode) X(kv_compact) X(kv_replay) X(sample) X(call)

enum ps_op {
#define X(op) PS_OP_##op,
    PS_OPS(X)
#undef X
               PS_OP__COUNT,
};

enum ps_place { PS_PLACE_HOST, PS_PLACE_CUDA }; /* where the pointers must live */

/* One call's share of an op: units [begin, end), with scratch of at least ps_kern_scratch() bytes, 64-byte
 * aligned, private to the call and not initialised.
 *
 * On CUDA a call is always the whole op, scratch is device memory, and `stream` (NULL on the host) is a
 * struct ps_cuda_stream (kernels/cuda/ps_cuda.h). What args point to, arrays of structs included, is memory
 * that the device can read and write; run() itself follows no pointer of args, which may be freed or changed
 * when it has returned. takes(), scratch(), ps_op_units() and ps_op_cost() run on the host: for them the arrays of
 * structs must be readable there too (pinned host memory is both). */
struct ps_span {
    uint64_t begin, end;
    void *scratch;
    void *stream;
};

struct ps_kern {
    enum ps_op op;
    const char *name; /* "linear_avx2": op, then variant; unique */
    enum ps_place place;
    uint32_t need; /* ps_cpu_flags that must all be set, or minimum SM for CUDA */
    /* Optional: false if this row cannot take these args (a shape or type it has no code for); the next
     * slower row that can is used. Decides by types and sizes that do not depend on how many rows (M) there are. */
    bool (*takes)(const void *args);
    /* 0 or a negative error. Asynchronous on span->stream for CUDA, synchronous on the host. */
    int (*run)(const void *args, const struct ps_span *span);
    /* Optional: this row's scratch when it is not ps_op_scratch()'s; as there, no less for greater sizes. */
    size_t (*scratch)(const void *args);
};

/* Scalar reference for `op`: always present, always first. */
const struct ps_kern *ps_kern_ref(enum ps_op op);
/* Fastest row usable for these args with `flags` at `place`; NULL if there is none for that place. */
const struct ps_kern *ps_kern_pick(enum ps_op op, enum ps_place place, uint32_t flags,
                                   const void *args);
/* i-th row of the whole table, NULL past the end. Order: slowest to fastest per op. */
const struct ps_kern *ps_kern_at(size_t i);
const char *ps_op_name(enum ps_op op);

struct ps_cost {
    double flops;
    double bytes; /* DRAM traffic that cannot be avoided: each operand once */
};
size_t ps_op_args_size(enum ps_op op);
/* Independent pieces of work in these args, >= 0. */
uint64_t ps_op_units(enum ps_op op, const void *args);
/* Scratch that one worker needs to run any span of these args with any row. No less for greater sizes: what is sized for the
 * most rows and the longest slab does for all. */
size_t ps_op_scratch(enum ps_op op, const void *args);
struct ps_cost ps_op_cost(enum ps_op op, const void *args);
/* Units of the least span when so many threads share them: several spans a thread, so that one that loses its core does not hold
 * up its whole share; fewer where each span repeats some work. At least 1. */
uint64_t ps_op_grain(enum ps_op op, const void *args, unsigned threads);
/* Units of the next span of a thread that has `left` (>= 1) for itself: a grain; or, where spans repeat some work and all
 * units take the same time, most of them, all where the rest would be less than a quarter of a grain. */
uint64_t ps_op_next_span(enum ps_op op, uint64_t grain, uint64_t left);
/* Scratch that one call of this row needs. */
size_t ps_kern_scratch(const struct ps_kern *k, const void *args);

/* The whole of an op on the calling thread: tests, small work. */
int ps_kern_run_all(const struct ps_kern *k, const void *args, void *scratch);

/* Adds a module's rows (kernels/cuda) behind the others; once, before other threads use the table. */
void ps_kern_add(const struct ps_kern *rows);

/* Declared by each implementation file; terminated by a row with a NULL name. */
extern const struct ps_kern ps_kern_table_ref[];
extern const struct ps_kern ps_kern_table_avx2[];
extern const struct ps_kern ps_kern_table_avx512[];
#endif
