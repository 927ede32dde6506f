/* SPDX-License-Identifier: Apache-2.0 */
/* What the cpu device itself costs: a task that does nothing, submitted and run in a stream; a round trip with a wait; a small
 * kernel shared by the pool beside the same kernel on one thread; and the processor time of an idle device. */
#include "engine/base/ps_mem.h"
#include "offload/dev.h"
#include <stdio.h>
#include <time.h>

static int nothing(void *ud, uint64_t arg) { return 0; }
static int sleep_ms(void *ud, uint64_t arg)
{
    return nanosleep(&(struct timespec) { .tv_nsec = (long) arg * 1000000 }, NULL);
}

static double at(clockid_t c)
{
    struct timespec ts;
    (void) clock_gettime(c, &ts);
    return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec * 1e-3;
}
static double us(void) { return at(CLOCK_MONOTONIC); }

/* Microseconds a task: n wait in the queue behind a slow first one, so that none finds it empty; or each is waited for. */
static double stream(struct ps_dev *d, int n, bool wait)
{
    struct ps_buf b = { .where = PS_HOST };
    struct ps_use use = { &b, true };
    struct ps_call call = { sleep_ms, NULL, wait ? 0 : 20 };
    double t0 = us();
    int r = ps_dev_run(d, PS_Q_COMPUTE, PS_OP_call, &call, &use, 1);
    call.fn = nothing;
    for (int i = 0; i < n && r >= 0; i++) {
        r = ps_dev_run(d, PS_Q_COMPUTE, PS_OP_call, &call, &use, 1);
        if (r >= 0 && wait) r = ps_dev_wait(d, &b, true);
    }
    if (r < 0 || ps_dev_drain(d) < 0) return -1;
    return (us() - t0 - (double) call.arg * 1000) / n;
}

static double kernel_us(struct ps_dev *d, const struct ps_linear *a, int n)
{
    struct ps_buf b = { .where = PS_HOST };
    struct ps_use use = { &b, true };
    double t0 = us();
    for (int i = 0; i < n; i++)
        if (ps_dev_run(d, PS_Q_COMPUTE, PS_OP_linear, a, &use, 1) < 0) return -1;
    return ps_dev_drain(d) < 0 ? -1 : (us() - t0) / n;
}

int main(int argc, char **argv)
{
    enum { N = 1000, K = 512, COLS = 1024, SCRATCH = 8 << 20 };
    unsigned threads = argc > 1 ? (unsigned) atoi(argv[1]) : 2;
    if (!threads || threads > 256) return 2;
    ps_auto_free void *scratch = ps_aligned(64, (size_t) (threads + 1) * SCRATCH);
    ps_auto_free float *x = ps_calloc(K, sizeof *x), *y = ps_calloc(COLS, sizeof *y);
    ps_auto_free float *w = ps_calloc((size_t) K * COLS, sizeof *w);
    if (!scratch || !x || !y || !w) return 1;
    struct ps_linear a = {
        .y = y, .x = x, .w = w, .m = 1, .n = COLS, .k = K, .ldx = K, .ldy = COLS, .wtype = PS_F32
    };
    for (unsigned t = 1; t <= threads; t += threads > 1 ? threads - 1 : 1) {
        ps_auto_dev struct ps_dev *d = NULL;
        struct ps_dev_cfg c = { .threads = t, .scratch = scratch, .scratch_bytes = SCRATCH };
        if (ps_dev_cpu_open(&c, &d) < 0) return 1;
        double queued = stream(d, N, false), waited = stream(d, N, true);
        double k = kernel_us(d, &a, 2000);
        (void) nanosleep(&(struct timespec) { .tv_nsec = 10000000 }, NULL);
        double c0 = at(CLOCK_PROCESS_CPUTIME_ID);
        (void) nanosleep(&(struct timespec) { .tv_nsec = 200000000 }, NULL);
        (void) printf(
            "threads %u: task %.2f us, task and wait %.2f us, linear 1x%dx%d f32 %.1f us, "
            "idle %.2f %% of a core\n",
            t, queued, waited, COLS, K, k, (at(CLOCK_PROCESS_CPUTIME_ID) - c0) / 2000);
    }
    return 0;
}
