/* SPDX-License-Identifier: Apache-2.0 */
/* A device executes two kinds of task, in the order in which one thread submits them: run a kernel, or
 * move bytes between two buffers. Tasks go to queues; queues work side by side.
 *
 * Nobody states dependencies. A task names the buffers that it reads and writes, a buffer remembers who
 * last wrote it and who has read it since, and ps_dev_* derive what the task must wait for:
 *
 *     after[q] = k   the first k tasks of queue q must be complete before this one starts
 *
 * That vector is all that a device sees. `now` obeys it by doing everything at once; `cpu` has a thread
 * per queue, one I/O loop behind the disk queues and a worker pool behind COMPUTE; `cuda` turns it into
 * stream waits; `sim` lets virtual time pass when somebody waits, which makes planning a by-product of running.
 * A scheduler is written once, as if everything were sequential; how far it
 * runs ahead is bounded by its ring buffers, since a slot in use makes the next writer wait.
 *
 * Contract (tests/offload/dev_contract.c): tasks of one queue start in order (the disk queues keep several
 * in flight); completion counts a queue's tasks from its first without gaps; the bytes are those of a
 * sequential run. After a task failed, later tasks do nothing, and every wait returns the first error.
 * One thread submits and waits.
 */
#ifndef PS_DEV_H
#define PS_DEV_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include "kernels/kern.h"
#include "offload/store.h"

enum ps_q {
    PS_Q_COMPUTE, /* the device's own kernels */
    PS_Q_HOST, /* host work beside it: checksums, logs of KV; beside a GPU decode attention, too */
    PS_Q_H2D,  /* weights, host to GPU */
    PS_Q_UP, /* all else on that way: KV, hidden states, what attention on the host made, which weights must not hold up */
    PS_Q_D2H,
    PS_Q_READ, /* disk to host */
    PS_Q_WRITE,
    PS_Q__COUNT,
};
const char *ps_q_name(enum ps_q q);

enum ps_where { PS_HOST, PS_GPU, PS_DISK };

/* What a buffer holds: waits and bytes are reported by kind. */
enum ps_kind { PS_KIND_OTHER, PS_KIND_WEIGHTS, PS_KIND_KV, PS_KIND_HIDDEN, PS_KIND__COUNT };

/* A piece of memory, and who touches it. Zero `wrote`/`read` means: nobody, readable now. */
struct ps_buf {
    enum ps_where where;
    enum ps_kind kind;
    uint32_t file;      /* on disk: the store's file index */
    void *p;            /* host or device address; unused on disk */
    uint64_t off;       /* on disk, bytes from the start of the file */
    uint64_t len_bytes; /* a task touches the buffer, never a part that another task owns */
    enum ps_q wrote_q;
    uint64_t wrote;             /* the task of wrote_q that last wrote it, counted from 1 */
    uint64_t read[PS_Q__COUNT]; /* per queue, the last task that read it since */
};

struct ps_use {
    struct ps_buf *buf; /* NULL: the task has no such operand */
    bool writes;
};

/* A rectangle of bytes inside two buffers. On the disk side offsets, pitches and row_bytes are multiples of the
 * store's alignment, and so is the address on the host side. rows == 1 is a plain range. */
struct ps_rect {
    uint64_t dst_off, src_off; /* from the buffers' starts */
    uint64_t row_bytes, rows;
    uint64_t dst_pitch, src_pitch; /* between rows; not read when rows == 1 */
};

enum { PS_TASK_ARGS = 128 };
struct ps_task {
    const struct ps_kern *kern; /* NULL: move `rect` from src to dst */
    uint8_t args
        [PS_TASK_ARGS]; /* a copy of the kernel's args struct; what it points to must stay until done */
    enum ps_where dst_where, src_where;
    uint32_t disk_file;
    uint64_t disk_off;  /* of the disk side's buffer */
    uint8_t *dst, *src; /* host or device addresses of the buffers; NULL on the disk side */
    struct ps_rect rect;
    struct ps_cost cost;      /* of a kernel; of a move, bytes = the rectangle's */
    enum ps_kind kind;        /* of the buffer moved */
    uint8_t why[PS_Q__COUNT]; /* enum ps_kind of the buffer that after[q] comes from */
    bool counted;             /* ps_dev's */
    uint32_t tag; /* the caller's: shown in traces and errors (layer << 16 | micro-batch) */
};

/* What a device has done since it was opened. Times are of the wall (virtual for sim). */
struct ps_dev_stats {
    uint64_t tasks[PS_Q__COUNT];
    uint64_t busy_ns[PS_Q__COUNT];               /* something of the queue was under way */
    uint64_t bytes[PS_Q__COUNT][PS_KIND__COUNT]; /* moved, by kind of buffer */
    uint64_t op_ns[PS_OP__COUNT];
    double flops[PS_Q__COUNT], mem_bytes[PS_Q__COUNT]; /* costs of kernels */
    uint64_t stall_ns
        [PS_KIND__COUNT]; /* COMPUTE had a next task that waited for a buffer of this kind */
    uint64_t idle_ns;     /* COMPUTE had no task */
};

/* One task's span, for timelines; called from the queue's own thread. */
typedef void ps_dev_trace(void *ud, enum ps_q q, const struct ps_task *t, uint64_t t0_ns,
                          uint64_t t1_ns);

struct ps_dev;
struct ps_dev_ops {
    const char *name;
    /* Takes a copy of *t. Must not wait for tasks, only for room. 0 or a negative error. */
    int (*start)(struct ps_dev *d, enum ps_q q, const struct ps_task *t,
                 const uint64_t after[PS_Q__COUNT]);
    /* Returns when the first n[q] tasks of every queue q are complete: 0, or the first task's error. */
    int (*wait)(struct ps_dev *d, const uint64_t n[PS_Q__COUNT]);
    void (*stats)(struct ps_dev *d, struct ps_dev_stats *ret);
    /* The failed task's detail: op or file, offset, length, tag. Valid after a wait returned an error. */
    const char *(*error_text)(const struct ps_dev *d);
    void (*close)(struct ps_dev *d);
};

struct ps_dev { /* first member of every implementation's struct */
    const struct ps_dev_ops *ops;
    uint64_t submitted[PS_Q__COUNT];
    uint32_t tag;                   /* given to the tasks that follow */
    bool counted;                   /* likewise: what they ask of CUDA is counted apart */
    bool serial;                    /* likewise: each begins when all before it are done */
    uint8_t last_kind[PS_Q__COUNT]; /* of what each queue's last task moves */
    uint32_t align;                 /* of the disk side of moves: the store's; 0 = any */
    enum ps_where where;            /* of what COMPUTE's kernels work on: PS_HOST or PS_GPU */
    enum ps_place place; /* of COMPUTE's kernels; HOST's are the host's on every device */
    uint32_t sm;         /* PS_PLACE_CUDA: what a row's `need` may be at most */
    bool rounds;         /* COMPUTE's linears want x rounded where ps_linear_rounds() says so */
};

enum { PS_THREADS_MAX = 4096 };
struct ps_dev_cfg {
    struct ps_store *
        store; /* not owned; driven by the device's I/O thread alone while it is open; may be NULL */
    unsigned threads;     /* workers behind COMPUTE; 1 to PS_THREADS_MAX */
    uint32_t queue_len;   /* tasks a queue holds before start() waits; 0 = 1024 */
    uint32_t io_bytes;    /* a transfer is cut into ios of this size; 0 = 1 MiB */
    size_t scratch_bytes; /* per worker */
    void *scratch; /* (threads + 1) * scratch_bytes, 64-byte aligned, the caller's: one for HOST */
    ps_dev_trace *trace; /* may be NULL */
    void *trace_ud;
};
int ps_dev_now_open(const struct ps_dev_cfg *cfg, struct ps_dev **ret) ps_must_check;
int ps_dev_cpu_open(const struct ps_dev_cfg *cfg, struct ps_dev **ret) ps_must_check;

/* Nothing is computed or moved; tasks take the time that they would on a described machine, and share it with what runs beside them. What is
 * submitted after a wait begins no earlier than what was waited for was done. Traces and stats have virtual times. */
struct ps_profile; /* offload/profile.h */
struct ps_sim_cfg {
    const struct ps_profile *profile; /* a rate of 0 that no coarser one stands for costs nothing */
    bool gpu;                         /* COMPUTE is the GPU's */
    uint32_t queue_len;               /* as struct ps_dev_cfg's */
    ps_dev_trace *trace;              /* may be NULL */
    void *trace_ud;
    /* May be NULL: emptied, then filled when something is priced beyond what the profile's curves cover, with what it was first. */
    struct ps_detail *outside;
};
/* The profile must live as long as the device. -EINVAL: it holds a number that cannot be a rate, or a curve that is none. */
int ps_dev_sim_open(const struct ps_sim_cfg *cfg, struct ps_dev **ret) ps_must_check;
double ps_dev_sim_now_s(
    const struct ps_dev *d); /* the time that the submitting thread has reached */
double ps_dev_sim_busy_s(const struct ps_dev *d, enum ps_q q); /* until then */
bool ps_dev_is_sim(const struct ps_dev *d); /* it computes nothing: outputs are not there to read */

void ps_dev_close(struct ps_dev *d); /* waits for what runs; takes NULL */
static inline void ps_dev_closep(struct ps_dev **d) { ps_dev_close(*d); }
#define ps_auto_dev ps_cleanup(ps_dev_closep)

/* Runs op with these args (of ps_op_args_size(op) bytes) on q, with the fastest row of q's place that takes them; -PS_EUNSUPPORTED if
 * there is none. uses[] must name every buffer that args point into. */
int ps_dev_run(struct ps_dev *d, enum ps_q q, enum ps_op op, const void *args,
               const struct ps_use *uses, unsigned n_uses) ps_must_check;
/* The same with a given row (tests); -EINVAL if it is another place's. */
int ps_dev_run_kern(struct ps_dev *d, enum ps_q q, const struct ps_kern *kern, const void *args,
                    const struct ps_use *uses, unsigned n_uses) ps_must_check;
/* Moves bytes; the two places decide the queue. -ERANGE when the rectangle leaves a buffer. */
int ps_dev_move(struct ps_dev *d, struct ps_buf *dst, struct ps_buf *src,
                const struct ps_rect *rect) ps_must_check;
/* Until the host may read buf (writes = false) or overwrite it (true). */
int ps_dev_wait(struct ps_dev *d, const struct ps_buf *buf, bool writes) ps_must_check;
int ps_dev_drain(struct ps_dev *d) ps_must_check;
void ps_dev_stats_get(struct ps_dev *d, struct ps_dev_stats *ret);
/* Bytes that a queue moved, of all kinds. */
double ps_dev_moved(const struct ps_dev_stats *s, enum ps_q q);
const char *ps_dev_error_text(const struct ps_dev *d); /* "" when nothing failed */
#endif
