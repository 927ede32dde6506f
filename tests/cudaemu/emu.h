// SPDX-License-Identifier: Apache-2.0
// What the emulation's files share. What is modelled: include/cudaemu.h.
//
//   emu_block.cpp  a launch: fibers, barriers, warp operations, and what a kernel touches
//   emu_order.cpp  streams, events, the host's thread for host functions: what runs when
//   emu_race.cpp   which accesses are ordered; the pages of pinned memory that are closed to the host
//   emu_mem.cpp    allocations, pinned ranges, page faults
//   emu_api.cpp    the runtime's calls; emu_blas.cpp cuBLAS's
//
// One lock (`big_lock`) is held by every call and by whatever runs on the "device"; host functions run without it.
#ifndef PS_CUDAEMU_EMU_H
#define PS_CUDAEMU_EMU_H
#include "cuda_runtime.h"
#include "cudaemu.h"
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cudaemu
{
typedef uintptr_t Addr;
enum : Addr { PAGE = 4096 };

extern std::mutex &big_lock;
// Small and quick: every turn of a fiber is drawn.
struct Rng {
    typedef uint32_t result_type;
    uint64_t state;
    explicit Rng(uint64_t seed) : state(seed) {}
    static constexpr uint32_t min() { return 0; }
    static constexpr uint32_t max() { return UINT32_MAX; }
    uint32_t operator()() // splitmix64
    {
        uint64_t z = state += 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        return (uint32_t) (z >> 32);
    }
};
extern Rng rng;
static inline unsigned draw(unsigned n) // 0 .. n-1
{
    return (unsigned) ((uint64_t) rng() * n >> 32);
}
enum Mode { LATE, EARLY, DRAWN, HELD };
extern Mode mode;

__attribute__((format(printf, 1, 2))) void report(const char *format, ...);
[[noreturn]] __attribute__((format(printf, 1, 2))) void fatal(const char *format, ...);

// ---- order

typedef std::vector<uint64_t>
    Clock; // by context: the first n pieces of its work. Context 0 is the host.
void join(Clock &into, const Clock &c);
static inline uint64_t at(const Clock &c, unsigned ctx) { return ctx < c.size() ? c[ctx] : 0; }

struct Range {
    Addr lo, hi;
    bool write;
};
struct Op {
    std::string what;
    unsigned ctx;
    uint64_t n;   // the n-th of its stream, from 1
    Clock before; // itself included
    std::vector<std::pair<unsigned, uint64_t>> after;
    std::function<void(Op &)> run; // may be empty
    cudaHostFn_t host = nullptr;   // runs on the host functions' thread
    void *host_ud = nullptr;
    std::vector<Range> ranges;      // known when it is queued
    std::vector<const Op *> blamed; // unordered pairs are reported once
    std::string name() const;
};
typedef std::shared_ptr<Op> OpP;

// Queues it on `s` (NULL: the default stream) behind what the stream and the host have waited for.
OpP submit(cudaStream_t s, std::string what, std::vector<Range> ranges,
           std::function<void(Op &)> run);
void reach(unsigned ctx, uint64_t n); // runs what is needed for it
void reach_all();
void host_knows(const Clock &c);
bool known(const Op &op); // has the host waited for it?
bool valid(cudaStream_t s);
size_t order_live();
extern cudaError_t sticky; // what every call returns from now on

// ---- races

// Checks an access that happens now, and remembers it.
void race_access(const OpP &op, Addr lo, Addr hi, bool write);
void race_forget(Addr lo, Addr hi); // freed
void race_reset();
// The host may not touch these bytes of pinned memory until it has waited for op (or not write them, if op only reads).
void watch_add(const OpP &op, Addr lo, Addr hi, bool write);
void watch_update(); // the host has learned something
void watch_gone(Addr lo, Addr hi,
                const char *how); // unregistered or freed: reported if still watched
// A page fault at a: the host touched a watched page. False: it is none.
bool watch_fault(Addr a, bool write, void *ucontext);
bool watch_stepped(void *ucontext); // the instruction that watch_fault() let pass is done
void watch_open(Addr lo, Addr hi);  // for the device; until watch_close()
void watch_close();

// ---- memory

struct Piece { // an allocation or a pinned range
    Addr lo = 0, hi = 0;
    unsigned id = 0;
    bool owned = false; // pinned memory that cudaMallocHost made
};
const Piece *device_piece(Addr a); // that holds a, or NULL
const Piece *pinned_piece(Addr a);
bool pinned_within(Addr lo, Addr hi); // some of it is pinned
bool in_device_region(Addr a);
std::string describe(Addr a); // "device allocation 3 + 0x40", ...
// Device memory can be touched by this thread (and, for as long, by others).
struct Opened {
    Opened();
    ~Opened();
};
extern thread_local bool on_device; // this thread runs device work now
extern thread_local const Op *running;
size_t memory_live();
size_t memory_peak();
void memory_limit(size_t device_bytes, size_t pinned_bytes);
void memory_start(); // once: takes the page faults

cudaError_t device_alloc(size_t n, void **ret);
cudaError_t device_free(void *p);
cudaError_t host_alloc(size_t n, void **ret);
cudaError_t host_free(void *p);
cudaError_t host_register(void *p, size_t n);
cudaError_t host_unregister(void *p);
void memory_info(size_t *ret_free, size_t *ret_total);

// ---- kernels

struct Launch {
    std::string name;
    void (*call)(const void *);
    std::vector<unsigned char> args;
    dim3 grid, block;
    size_t smem;
};
void run_launch(const OpP &op, const Launch &l);
extern thread_local Thread *self; // the kernel's thread that runs, or NULL
// A kernel's thread touches memory: called by the compiler's announcements. atomic: see cudaemu.h.
enum Touch { READ, WRITE, ATOMIC };
extern const bool tracks;       // this program's kernels do that
extern const size_t aligned_to; // alignments up to this are looked at
void touch(const void *p, size_t size, Touch how);

// ---- calls

// First in each call: takes the lock, counts, lets the n-th fail.
struct Call {
    std::unique_lock<std::mutex> lock;
    cudaError_t err;
    explicit Call(const char *function);
    ~Call();
};
std::string plain(const char *function); // without cuBLAS's version
extern size_t handles;                   // of cuBLAS
cudaError_t failed(cudaError_t e);       // remembers it for cudaGetLastError
void counted_sync();
#define CUDAEMU_CALL()             \
    cudaemu::Call call_(__func__); \
    if (call_.err != cudaSuccess) return call_.err
} // namespace cudaemu
#endif
