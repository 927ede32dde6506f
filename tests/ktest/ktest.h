/* SPDX-License-Identifier: Apache-2.0 */
/* ktest: compares every row of the kernel table with the scalar reference, and times it.
 *
 * A check file supplies, per op, shapes, inputs and tolerances; the harness enumerates the rows, guards and
 * poisons the buffers, runs each row as one span and as random spans in random order (equal bits wanted),
 * compares with the reference element by element, and catches crashes.
 *
 * Buffers end exactly at an inaccessible page and have canaries in front. Inputs are read-only while a row
 * runs; outputs are poisoned with NaN before each run; in/out buffers get back what the check put into them.
 * All rows run on the same addresses, so args may point anywhere into buffers, and to arrays of structs that
 * do (put those arrays into kt_in_bytes() buffers: then they are guarded and read-only too). Buffers live until the
 * end of kt_check(). For a row on another device a harness can find pointers by their value: no two mappings overlap.
 *
 * Adding an op: write check_<op>.c with a struct kt_test, list it in ktest.c and meson.build. */
#ifndef PS_KTEST_H
#define PS_KTEST_H
#include "kernels/kern.h"
#include <stdbool.h>

struct kt;

enum kt_type { KT_F32, KT_F16, KT_BF16, KT_I32, KT_U8 }; /* integers and bytes: every bit counts */
enum kt_type kt_type_of(enum ps_dtype t);
/* `rel` (see kt_out) of what is rounded to t in the end: there the last bit may differ. */
float kt_rounded(enum ps_dtype t, float rel);

uint32_t kt_rnd(struct kt *kt);
uint32_t kt_below(struct kt *kt, uint32_t n);        /* 0 .. n-1 */
float kt_uniform(struct kt *kt, float lo, float hi); /* [lo, hi) */

float *kt_in_f32(struct kt *kt, size_t n, float lo, float hi);
void *kt_in_dtype(struct kt *kt, enum ps_dtype t, size_t n, float lo, float hi); /* rounded to t */
int32_t *kt_in_i32(struct kt *kt, size_t n, int32_t lo, int32_t hi);             /* [lo, hi) */
void *kt_in_bytes(struct kt *kt, size_t bytes); /* zeroes, for the check to fill */
/* `rel`: |got - want| <= rel * max(|want|, 0.1 * max|want| over the buffer); elements that the reference
 * leaves alone must keep their poison (or what was in them), bit by bit. 0: equal bits. */
void *kt_out(struct kt *kt, enum kt_type t, size_t n, float rel);
void *kt_inout(struct kt *kt, enum kt_type t, size_t n,
               float rel); /* zeroes, for the check to fill */

struct kt_spec {
    enum ps_op op;
    const void *args;
    int want_rc; /* what every row must return; with a negative one the outputs are not compared */
    /* Optional: the same work cut in another way than into units (some of the rows, some of a prompt's chunks).
     * Fills ret_args (at most KT_ARGS_MAX bytes) with the i-th piece; false when there are no more. Together the
     * pieces must write the bits that the whole writes. Called anew, from 0, for each row. */
    bool (*piece)(struct kt *kt, const void *args, unsigned i, void *ret_args);
    /* Optional: the tolerance of CUDA rows, which round their inputs, relative to the largest element of a buffer: what rounding does to a sum
     * does not shrink with the sum. Their bits may depend on how the work is cut, too. */
    float loose;
    float
        usual; /* the usual size of what is rounded, where a buffer's largest element may be smaller */
    /* Optional, instead of the comparison by tolerance: NULL, or why not. Outputs and in/outs in the order of
     * their creation, n[i] bytes each. */
    const char *(*compare)(const void *args, const void *const *want, const void *const *got,
                           const size_t *n);
};
enum { KT_ARGS_MAX = 256 };

/* Runs every row of spec->op and compares its outputs with the reference's; then frees the buffers. */
void kt_check(struct kt *kt, const struct kt_spec *spec, const char *shape_fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- benchmarks: own shapes, own buffers, no comparison */

/* Memory of a benchmark, 64-byte aligned, freed after the op's bench function. */
void *kt_big(struct kt *kt, size_t bytes);
/* Fills with random values of type t, fast. */
void kt_big_fill(struct kt *kt, void *p, enum ps_dtype t, size_t n, float lo, float hi);

struct kt_peer {
    const char *name;
    void (*run)(void *ud, unsigned i); /* the work of args[i], with kt_threads() threads */
    void *ud;
    const void *const *args; /* NULL, or the same row with these args: what is timed on a GPU */
};
/* One sample is one pass over all of args[0..n_args) (several sets make a working set that no cache holds).
 * Every usable row and every peer is sampled in turn; with --cuda the module's rows alone, between two events, on copies of the
 * kt_big() memory. bytes: DRAM traffic of one pass / n_args when not ps_op_cost()'s. */
struct kt_bench {
    enum ps_op op;
    const void *const *args;
    unsigned n_args;
    const struct kt_peer *peers;
    unsigned n_peers;
};
void kt_bench(struct kt *kt, const struct kt_bench *b, const char *shape_fmt, ...)
    __attribute__((format(printf, 3, 4)));
unsigned kt_threads(const struct kt *kt);
bool kt_wants_shape(const struct kt *kt, const char *shape); /* --shape=GLOB */
const unsigned *kt_dims(const struct kt *kt);                /* --dims=MxNxK, or NULL */
bool kt_on_gpu(const struct kt *kt);                         /* --cuda */
uint32_t kt_sm(const struct kt *kt);                         /* that GPU's */
unsigned kt_sets(const struct kt *kt);   /* --sets=N: copies of the data, 0 = the bench decides */
bool kt_slow_bench(const struct kt *kt); /* --full: model-sized working sets */

struct kt_test {
    enum ps_op op;
    void (*check)(struct kt *kt);
    void (*bench)(struct kt *kt); /* optional */
};
#endif
