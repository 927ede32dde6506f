/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the ktest harness. */
#ifndef PS_KT_H
#define PS_KT_H
#include "kernels/cuda/ps_cuda.h"
#include "ktest.h"
#include <stdio.h>

enum { KT_BUF_MAX = 256, KT_ROW_MAX = 128, KT_BIG_MAX = 256, KT_THREADS_MAX = 256 };
enum kt_role { KT_IN, KT_OUT, KT_INOUT };
enum kt_verdict { KT_NONE, KT_PASS, KT_FAIL, KT_SKIP };

struct kt_buf {
    uint8_t *map;
    size_t map_len, pre, bytes;
    uint8_t *p;
    enum kt_role role;
    enum kt_type type;
    float rel;
    uint8_t *first, *want,
        *one; /* initial contents; the reference's result; this row's, as one span */
};

struct kt_bench_opts {
    double ms; /* 0 = no benchmark */
    unsigned threads;
    bool full, cpu_time;
    unsigned dims[3], sets; /* --dims=MxNxK, --sets=N: zero when not given */
    const char *shape_glob, *mkl, *openblas;
    FILE *json;
    unsigned n_json;
};

struct kt_pool;
struct kt {
    uint32_t rng[4];
    struct kt_buf buf[KT_BUF_MAX];
    unsigned n_buf;
    struct {
        void *p, *gpu; /* its copy on the GPU, made when a row there first needs it */
        size_t bytes;
    } big[KT_BIG_MAX];
    unsigned n_big;
    uint32_t cpu;
    const char *op_glob, *var_glob, *module; /* --cuda */
    enum kt_verdict verdict[KT_ROW_MAX];     /* per row of the kernel table, over all its shapes */
    struct kt_bench_opts bench;
    struct kt_pool *pool;
    const struct ps_cuda_api *cuda; /* NULL: no CUDA rows are run */
    struct ps_cuda_stream stream;
    double floor_flops, floor_bytes; /* per ns: best seen in this run, or --limits */
};

/* kt_buf.c */
struct kt_buf *kt_buf_new(struct kt *kt, size_t bytes, enum kt_role role, enum kt_type type,
                          float rel);
size_t kt_type_bytes(enum kt_type t);
void kt_bufs_free(struct kt *kt);
void kt_bufs_protect(struct kt *kt, int prot); /* of the inputs */
void kt_bufs_reset(struct kt *kt);             /* poison outputs, restore in/outs */
bool kt_canaries_ok(const struct kt *kt);
void kt_big_free(struct kt *kt);
void kt_big_pop(struct kt *kt); /* the last one */

/* kt_run.c */
bool kt_usable(const struct kt *kt, const struct ps_kern *k);
void kt_catch_crashes(void);

/* kt_cuda.c */
void kt_cuda_open(struct kt *kt);
void kt_cuda_close(struct kt *kt);
/* 0 or the row's error, its kernels' included. */
int kt_cuda_run(struct kt *kt, const struct ps_kern *k, const void *args, struct kt_buf *scratch,
                const char **ret_why);
/* ns of one pass of a row over args[0..n), which point into kt_big() memory, as scratch does. */
double kt_cuda_pass(struct kt *kt, const struct ps_kern *k, const void *const *args, unsigned n,
                    void *scratch);
void kt_cuda_forget(struct kt *kt, unsigned big); /* its copy: it is old, or no longer needed */

/* kt_pool.c: runs fn(ud, worker) on `threads` threads, the caller being worker 0. */
struct kt_pool *kt_pool_open(unsigned threads);
void kt_pool_run(struct kt_pool *p, void (*fn)(void *ud, unsigned worker), void *ud);
void kt_pool_close(struct kt_pool *p);

/* kt_bench.c */
uint64_t kt_now_ns(void);
void kt_bench_open(struct kt *kt);
void kt_bench_close(struct kt *kt);
/* kt_floor.c: functions for kt_pool_run() */
enum { KT_READ_WAYS = 5 };
struct kt_read {
    const char *p;
    size_t bytes;
    unsigned threads, way; /* the best way counts */
};
double kt_floor_flops_of_one(const struct kt *kt);
void kt_floor_fma(void *ud, unsigned worker);  /* ud: struct kt */
void kt_floor_read(void *ud, unsigned worker); /* ud: struct kt_read */
#endif
