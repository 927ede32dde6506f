/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation of CUDA on the CPU: what is modelled, what is reported, and how a test steers it.
 *
 * The .cu and device files are built by the host compiler against the headers in this folder; PS_LAUNCH
 * (kernels/cuda/check.cuh) is the one place that differs. Device memory is host memory that only the emulation opens.
 *
 * KERNELS. A thread is a fiber; a block's fibers take turns, drawn from the seed, and change at barriers, at warp
 * operations and now and then at an access. Blocks run one after the other, in a drawn order. The compiler
 * announces every load and store of a kernel (gcc: its calls for TSan, answered here; clang: its coverage calls),
 * so that these are known to the byte, whatever the order was:
 *   - an access outside of every allocation, shared array (dynamic) and pinned range; one that is not aligned;
 *   - two threads of a block that touch a shared byte, one writing, with no barrier between them; two blocks that
 *     do so to a byte of global memory (atomics are no race with each other);
 *   - shared memory that nobody wrote holds 0xff (NaNs); so do new allocations.
 * Barriers that not all threads reach, warp operations whose lanes differ, and threads that wait for ever are reported.
 *
 * STREAMS. Work is queued and runs when the seed likes: seed % 4 == 0: as late as it may (only what somebody waits for, and
 * what that needs); 1: at once; 2: drawn; 3: one stream is held back, the others at once. After 10 to 20 ms without
 * any call the device goes on by itself; host functions run on a thread of their own.
 * A vector clock over streams and the host says what is ordered: program order in a stream, event waits, the legacy
 * default stream's rule, and what the host has waited for. Reported, whatever the order was in which things ran:
 *   - two accesses to a byte of device or pinned memory that are not ordered, at least one writing;
 *   - the host touching pinned memory while a copy that it has not waited for uses it (those pages are closed to it), or
 *     unregistering it;
 *   - an asynchronous copy whose host side is not pinned; a copy that leaves a pinned range, be it into its neighbour's:
 *     that one fails, too (cudaErrorInvalidValue; see offload/pinned.h).
 * Host code that touches device memory, and a kernel that leaves its guard pages, ends the process with a message.
 *
 * NOT SEEN. All host threads count as one: what one has waited for, all know (their order among themselves is
 * TSan's). Host accesses are seen by page faults: by threads outside of a running kernel or copy, and not those that
 * the operating system makes for io_uring on registered buffers. Static shared arrays have no bounds here (ASan's
 * build has). Blocks that wait for each other hang. __device__ and __constant__ variables are not modelled, nor are
 * managed memory, graphs and stream-ordered allocation. With clang, copies of whole structs are not announced, and an
 * address must be a multiple of 4 at most. Without announcements (cudaemu_tracks() false: gcc with TSan, and the quick
 * build) only the ranges of copies and of cuBLAS calls are known, and a block's threads do not take turns by the seed.
 *
 * THE WHOLE PROGRAM. build/tests/emu/penstock finds a CUDA module beside it that is this emulation, in the quick build;
 * build/tests/emu/race/penstock (gcc alone) the one that knows every access (half as quick). It is steered by the environment variable
 * CUDAEMU, read when the program first asks for CUDA, a list with commas of
 *   seed=3       as above (else 0)              mem=64M   of the GPU (256M)      pin=8M    pinned at once, at most
 *   sm=75        compute capability (90)        sm=0      there is no GPU
 *   inplace=0    kernels would have to reach registered memory by other addresses than the host's (as under WSL)
 *   fail=12:2    the 12th call fails with cudaError_t 2; fail=cudaMemcpyAsync:12:2: the 12th call of that function ("launch":
 *                of a kernel). May be given more than once.
 *   fault=5:700  the 5th piece of work that runs fails
 *   exit=86      the program's exit status if anything was reported
 *   abort        at the first report
 *   log=FILE     lines are added: "report TEXT" at once; at the end "calls FUNCTION N", "device_syncs N", "peak BYTES", "live N"
 *                and "reports N".
 * tests/e2e/harness.py looks at these after every run. Thread-safe. */
#ifndef PS_CUDAEMU_H
#define PS_CUDAEMU_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Everything as at start, and this seed: queues must be empty. Memory and streams that live stay; calls, reports, faults
 * and limits are forgotten. */
void cudaemu_reset(unsigned seed);
void cudaemu_limit(size_t device_bytes, size_t pinned_bytes);
void cudaemu_sm(int sm); /* the device's compute capability; 0: there is no device */
/* The nth call from now (1: the next) to `function` (NULL: any) fails with this cudaError_t and does nothing; a launch's name is
 * "launch". The errors that CUDA calls sticky stay, and what was queued never
 * runs. 0: none. */
void cudaemu_fail(const char *function, unsigned nth, int error);
/* The nth piece of work that runs from now fails; whoever asks next is told. Always sticky. */
void cudaemu_fault(unsigned nth, int error);

void cudaemu_lt_refuse(bool refuse); /* cuBLASLt has no algorithm for anything from now on */
unsigned cudaemu_calls(const char *function); /* so far; NULL: all */
unsigned cudaemu_device_syncs(
    void); /* calls that wait for the whole device: cudaDeviceSynchronize, cudaFree, cudaFreeHost, cudaMemcpy... */
unsigned cudaemu_reports(void);
const char *cudaemu_report(unsigned i); /* "" past the end */
void cudaemu_quiet(void);               /* from now on reports are kept, and not printed */
size_t cudaemu_peak(void);              /* device bytes allocated at once, at most */
size_t cudaemu_live(
    void); /* allocations, pinned ranges, streams, events and handles that were not given back */
bool cudaemu_tracks(void); /* kernels in this program announce their accesses */
#ifdef __cplusplus
}
#endif
#endif
