// SPDX-License-Identifier: Apache-2.0
// Device memory: pieces of one reserved region, each between pages that cannot be touched, never handed out twice, closed
// while nothing runs on the device. Pinned memory is the host's, and known. Page faults end here.
#include "emu.h"
#include <algorithm>
#include <csignal>
#include <map>
#include <sys/mman.h>
#ifdef __x86_64__
#include <ucontext.h>
#endif

namespace cudaemu
{
enum : size_t { REGION = (size_t) 64 << 30, ALIGN = 256 };
struct Allocation {
    Piece piece;
    Addr map_lo, map_hi; // whole pages
};
static std::map<Addr, Allocation> &device = *new std::map<Addr, Allocation>;
static std::map<Addr, Piece> &pinned = *new std::map<Addr, Piece>;
static Addr region, region_used;
static size_t used, peak, limit, pinned_used, pinned_limit;
static unsigned allocations, pins, open_depth;

static Addr up(Addr n, Addr to) { return (n + to - 1) / to * to; }
static void allow(Addr lo, Addr hi, int prot)
{
    if (mprotect(reinterpret_cast<void *>(lo), hi - lo, prot) != 0) fatal("mprotect failed");
}

Opened::Opened()
{
    if (open_depth++ == 0)
        for (auto &d : device) allow(d.second.map_lo, d.second.map_hi, PROT_READ | PROT_WRITE);
}
Opened::~Opened()
{
    if (--open_depth == 0)
        for (auto &d : device) allow(d.second.map_lo, d.second.map_hi, PROT_NONE);
}

bool in_device_region(Addr a) { return region && a >= region && a < region + REGION; }
const Piece *device_piece(Addr a)
{
    auto it = device.upper_bound(a);
    if (it == device.begin()) return nullptr;
    --it;
    return a < it->second.piece.hi ? &it->second.piece : nullptr;
}
const Piece *pinned_piece(Addr a)
{
    auto it = pinned.upper_bound(a);
    if (it == pinned.begin()) return nullptr;
    --it;
    return a < it->second.hi ? &it->second : nullptr;
}
bool pinned_within(Addr lo, Addr hi)
{
    if (pinned_piece(lo)) return true;
    auto next = pinned.upper_bound(lo);
    return next != pinned.end() && next->first < hi;
}
static std::string hex(Addr n)
{
    char t[32];
    (void) snprintf(t, sizeof t, "0x%zx", (size_t) n);
    return t;
}
std::string describe(Addr a)
{
    if (const Piece *d = device_piece(a))
        return "device allocation " + std::to_string(d->id) + " + " + hex(a - d->lo);
    if (const Piece *h = pinned_piece(a))
        return "pinned range " + std::to_string(h->id) + " + " + hex(a - h->lo);
    for (auto &d : device) {
        const Piece &p = d.second.piece;
        std::string of = "device allocation " + std::to_string(p.id) + " of " +
                         std::to_string(p.hi - p.lo) + " bytes";
        if (a >= p.hi && a < d.second.map_hi + PAGE)
            return std::to_string(a - p.hi) + " bytes past the end of " + of;
        if (a < p.lo && a >= d.second.map_lo - PAGE)
            return std::to_string(p.lo - a) + " bytes before " + of;
    }
    return (in_device_region(a) ? "device memory that is not allocated, " : "") + hex(a);
}

static void reserve()
{
    if (region) return;
    void *m = mmap(nullptr, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) fatal("no address space for device memory");
    region = reinterpret_cast<Addr>(m);
    (void) madvise(m, REGION, MADV_HUGEPAGE); // opened and closed often: fewer entries to change
}
// A piece ends where its pages end, or (seeds draw it) begins where they begin.
cudaError_t device_alloc(size_t n, void **ret)
{
    if (n == 0) {
        *ret = nullptr;
        return cudaSuccess;
    }
    reserve();
    Addr len = up(n, PAGE);
    if (n > limit - std::min(limit, used) || region_used + len + 2 * PAGE > REGION)
        return cudaErrorMemoryAllocation;
    Allocation d;
    d.map_lo = region + region_used + PAGE;
    d.map_hi = d.map_lo + len;
    region_used += len + PAGE;
    d.piece.lo = draw(4) == 0 ? d.map_lo : d.map_hi - up(n, ALIGN);
    d.piece.hi = d.piece.lo + n;
    d.piece.id = ++allocations;
    allow(d.map_lo, d.map_hi, PROT_READ | PROT_WRITE);
    std::memset(reinterpret_cast<void *>(d.map_lo), 0xff, len);
    if (!open_depth) allow(d.map_lo, d.map_hi, PROT_NONE);
    device[d.piece.lo] = d;
    used += up(n, ALIGN);
    peak = std::max(peak, used);
    *ret = reinterpret_cast<void *>(d.piece.lo);
    return cudaSuccess;
}
cudaError_t device_free(void *p)
{
    auto it = device.find(reinterpret_cast<Addr>(p));
    if (it == device.end()) return cudaErrorInvalidValue;
    Allocation d = it->second;
    {
        Opened o;
        for (Addr a = d.map_lo; a < d.map_hi; a++)
            if ((a < d.piece.lo || a >= d.piece.hi) &&
                *reinterpret_cast<unsigned char *>(a) != 0xff) {
                report("freed, and somebody had written to %s", describe(a).c_str());
                break;
            }
    }
    device.erase(it);
    used -= up(d.piece.hi - d.piece.lo, ALIGN);
    race_forget(d.piece.lo, d.piece.hi);
    (void) madvise(reinterpret_cast<void *>(d.map_lo), d.map_hi - d.map_lo, MADV_DONTNEED);
    return cudaSuccess;
}
void memory_info(size_t *ret_free, size_t *ret_total)
{
    *ret_total = limit;
    *ret_free = limit - std::min(limit, used);
}
void memory_limit(size_t device_bytes, size_t pinned_bytes)
{
    limit = device_bytes;
    pinned_limit = pinned_bytes;
    peak = used;
}
size_t memory_peak() { return peak; }
size_t memory_live() { return device.size() + pinned.size(); }

static cudaError_t pin(Addr lo, size_t n, bool owned)
{
    if (n == 0) return cudaErrorInvalidValue;
    if (pinned_within(lo, lo + n)) return cudaErrorHostMemoryAlreadyRegistered;
    if (n > pinned_limit - std::min(pinned_limit, pinned_used)) return cudaErrorMemoryAllocation;
    Piece p;
    p.lo = lo;
    p.hi = lo + n;
    p.id = ++pins;
    p.owned = owned;
    pinned[lo] = p;
    pinned_used += n;
    return cudaSuccess;
}
static cudaError_t unpin(void *p, bool owned)
{
    auto it = pinned.find(reinterpret_cast<Addr>(p));
    if (it == pinned.end() || it->second.owned != owned)
        return owned ? cudaErrorInvalidValue : cudaErrorHostMemoryNotRegistered;
    Piece gone = it->second;
    watch_gone(gone.lo, gone.hi, owned ? "freed" : "unregistered");
    pinned.erase(it);
    pinned_used -= gone.hi - gone.lo;
    race_forget(gone.lo, gone.hi);
    return cudaSuccess;
}
// What is registered is whole pages: a page that two ranges share belongs to the first.
cudaError_t host_register(void *p, size_t n)
{
    const Addr lo = reinterpret_cast<Addr>(p);
    if (pinned_within(lo / PAGE * PAGE, up(lo + n, PAGE)))
        return cudaErrorHostMemoryAlreadyRegistered;
    return pin(lo, n, false);
}
cudaError_t host_unregister(void *p) { return unpin(p, false); }
cudaError_t host_alloc(size_t n, void **ret)
{
    size_t len = up(n, PAGE);
    void *m = mmap(nullptr, len + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return cudaErrorMemoryAllocation;
    Addr lo = reinterpret_cast<Addr>(m) + PAGE;
    cudaError_t e = pin(lo, n, true);
    if (e != cudaSuccess) {
        (void) munmap(m, len + 2 * PAGE);
        return e;
    }
    allow(lo, lo + len, PROT_READ | PROT_WRITE);
    std::memset(reinterpret_cast<void *>(lo), 0xff, len);
    *ret = reinterpret_cast<void *>(lo);
    return cudaSuccess;
}
cudaError_t host_free(void *p)
{
    const Piece *x = pinned_piece(reinterpret_cast<Addr>(p));
    size_t len = x ? up(x->hi - x->lo, PAGE) : 0;
    cudaError_t e = unpin(p, true);
    if (e == cudaSuccess) (void) munmap(static_cast<char *>(p) - PAGE, len + 2 * PAGE);
    return e;
}

// ---- faults

static struct sigaction old_segv, old_trap;
static void on_fault(int sig, siginfo_t *info, void *uc)
{
    Addr a = reinterpret_cast<Addr>(info->si_addr);
    bool write = true;
#ifdef __x86_64__
    write = static_cast<ucontext_t *>(uc)->uc_mcontext.gregs[REG_ERR] & 2;
#endif
    if (watch_fault(a, write, uc)) return;
    const char *what = write ? "writes to" : "reads from";
    if (self) {
        fatal("%s, block (%u,%u,%u), thread (%u,%u,%u) %s %s", running->name().c_str(), self->bid.x,
              self->bid.y, self->bid.z, self->tid.x, self->tid.y, self->tid.z, what,
              describe(a).c_str());
    }
    if (in_device_region(a)) {
        if (on_device) fatal("%s %s %s", running->name().c_str(), what, describe(a).c_str());
        fatal("host code %s device memory: %s", what, describe(a).c_str());
    }
    (void) sigaction(sig, &old_segv,
                     nullptr); // not ours: happens again, to whoever was there before
}
static void on_trap(int sig, siginfo_t *, void *uc)
{
    if (!watch_stepped(uc)) (void) sigaction(sig, &old_trap, nullptr);
}
void memory_start()
{
    struct sigaction a = {};
    a.sa_flags = SA_SIGINFO | SA_NODEFER;
    a.sa_sigaction = on_fault;
    (void) sigaction(SIGSEGV, &a, &old_segv);
    a.sa_sigaction = on_trap;
    (void) sigaction(SIGTRAP, &a, &old_trap);
}
} // namespace cudaemu
