/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the cpu device, and of the host's side of the cuda device: counters and who sleeps on them. Private to this
 * folder.
 *
 * Per queue three counters only grow: PUT (tasks submitted), ISSUED (tasks in a GPU's stream; not used for the host's queues)
 * and DONE (tasks complete). DONE of a GPU's queue moves only as far as somebody needs it. Whoever must wait
 * publishes which counters it needs to reach what, then looks once more, then sleeps; whoever moves a
 * counter stores it, then looks at what others need. Sequential consistency of these four steps is what makes a wake-up
 * impossible to miss, and nobody is woken for a count that is not his. */
#ifndef PS_DEV_CPU_H
#define PS_DEV_CPU_H
#include "offload/dev_exec.h"
#include "offload/pool.h"
#include <pthread.h>
#include <stdatomic.h>

enum { PUT, ISSUED, DONE, COUNTERS };

struct ps_slot {
    struct ps_task task;
    uint64_t after[PS_Q__COUNT];
    /* the I/O thread's: */
    struct ps_cut cut;
    uint32_t ios; /* in flight */
    bool all_cut;
    uint64_t t0_ns;
};

struct ps_sleeper {
    _Atomic uint64_t need[COUNTERS][PS_Q__COUNT]; /* UINT64_MAX: not that one */
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

/* One sleeper per queue with a thread of its own (READ's is the I/O thread, for WRITE too), the thread that submits, and for each
 * of a GPU's queues the thread that asks what is complete. */
enum {
    SLEEP_IO = PS_Q_READ,
    SLEEP_MAIN = PS_Q__COUNT,
    SLEEP_REAP,
    SLEEPERS = SLEEP_REAP + PS_Q__COUNT
};

struct ps_cpu;
struct ps_lane {
    struct ps_cpu *cpu;
    enum ps_q q;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of stats */
    struct ps_dev_stats stats;
};

struct ps_cpu {
    struct ps_dev base;
    struct ps_dev_cfg cfg;
    struct ps_pool *pool; /* behind COMPUTE, or behind HOST where COMPUTE is the GPU's */
    bool on_gpu[PS_Q__COUNT];
    _Atomic uint64_t count[COUNTERS][PS_Q__COUNT];
    _Atomic bool stop;
    struct ps_sleeper sleeper[SLEEPERS];
    struct ps_slot *ring[PS_Q__COUNT]; /* cfg.queue_len each */
    struct ps_lane lane[PS_Q__COUNT];
    struct ps_io *ios; /* the I/O thread's, as the next */
    struct ps_io **free_ios, **pending;
    unsigned n_ios;
    _Atomic int err; /* the first */
    pthread_mutex_t err_lock;
    struct ps_detail detail;
};

static inline struct ps_slot *ps_cpu_slot(struct ps_cpu *c, enum ps_q q, uint64_t i)
{
    return &c->ring[q][i % c->cfg.queue_len];
}
/* The first of the counts that a task names and that is not reached: its queue, or -1. */
int ps_cpu_unmet(const struct ps_cpu *c, const uint64_t after[PS_Q__COUNT]);
void ps_cpu_bump(struct ps_cpu *c, int counter, enum ps_q q, uint64_t n);
/* Says that a sleeper needs a counter to be n; nobody looks at it before. */
void ps_cpu_need(struct ps_cpu *c, int sleeper, int counter, enum ps_q q, uint64_t n);
void ps_cpu_wake(struct ps_cpu *c, int sleeper);
/* Until the counter is n; false when the device stops instead. */
bool ps_cpu_wait_count(struct ps_cpu *c, int sleeper, int counter, enum ps_q q, uint64_t n,
                       uint64_t spin_ns);

/* For a device that is more than this: memory and locks without threads; the thread of one queue, if `main` is not the
 * queue's own; the ops' start, wait, stats and error text. */
int ps_cpu_cfg_check(const struct ps_dev_cfg *cfg) ps_must_check;
int ps_cpu_init(struct ps_cpu *c, const struct ps_dev_cfg *cfg) ps_must_check;
int ps_cpu_thread(struct ps_cpu *c, enum ps_q q, void *(*main)(void *lane)) ps_must_check;
void *ps_cpu_lane_main(void *lane);
int ps_cpu_start(struct ps_dev *d, enum ps_q q, const struct ps_task *t,
                 const uint64_t after[PS_Q__COUNT]);
int ps_cpu_wait(struct ps_dev *d, const uint64_t n[PS_Q__COUNT]);
void ps_cpu_stats(struct ps_dev *d, struct ps_dev_stats *ret);
const char *ps_cpu_error(const struct ps_dev *d);
/* Waits for all tasks and ends the threads; then frees what init() took. */
void ps_cpu_stop(struct ps_cpu *c);
void ps_cpu_done(struct ps_cpu *c);
/* The first error of a run stays. */
void ps_cpu_fail(struct ps_cpu *c, int err, const struct ps_detail *dt);
void *ps_cpu_io_main(void *lane);
#endif
