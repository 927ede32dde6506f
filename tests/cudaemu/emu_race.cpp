// SPDX-License-Identifier: Apache-2.0
// Who touched which byte last, and what the host may not touch yet.
#include "emu.h"
#include <algorithm>
#include <map>
#include <sys/mman.h>
#ifdef __x86_64__
#include <ucontext.h>
#endif

namespace cudaemu
{

// ---- accesses: for each range of bytes the last writer and the readers since

struct Seg {
    Addr hi;
    OpP wrote;
    std::vector<OpP> read;
};
static std::map<Addr, Seg> &shadow = *new std::map<Addr, Seg>;

static bool before(const Op &a, const Op &b)
{
    return a.ctx == b.ctx || at(b.before, a.ctx) >= a.n;
}
static void check(const OpP &op, const OpP &other, bool writes, bool other_wrote, Addr lo, Addr hi)
{
    if (!other || other == op || before(*other, *op)) return;
    if (std::find(op->blamed.begin(), op->blamed.end(), other.get()) != op->blamed.end()) return;
    op->blamed.push_back(other.get());
    report("unordered: %s %s %zu bytes at %s, and %s %s them; nothing orders the two",
           op->name().c_str(), writes ? "writes" : "reads", (size_t) (hi - lo),
           describe(lo).c_str(), other->name().c_str(), other_wrote ? "writes" : "reads");
}
static void split(Addr a)
{
    auto it = shadow.upper_bound(a);
    if (it == shadow.begin()) return;
    --it;
    if (it->first == a || it->second.hi <= a) return;
    Seg tail = it->second;
    it->second.hi = a;
    shadow[a] = tail;
}
void race_access(const OpP &op, Addr lo, Addr hi, bool write)
{
    if (lo >= hi) return;
    split(lo);
    split(hi);
    auto it = shadow.lower_bound(lo);
    for (Addr a = lo; a < hi;) {
        if (it == shadow.end() || it->first > a) { // nobody yet
            Addr end = it == shadow.end() ? hi : std::min(hi, it->first);
            it = shadow.insert(it, { a, Seg { end, nullptr, {} } });
        }
        Seg &s = it->second;
        check(op, s.wrote, write, true, a, s.hi);
        if (write)
            for (const OpP &r : s.read) check(op, r, true, false, a, s.hi);
        else {
            s.read.erase(std::remove_if(s.read.begin(), s.read.end(),
                                        [&](const OpP &r) { return before(*r, *op); }),
                         s.read.end());
            s.read.push_back(op);
        }
        a = s.hi;
        ++it;
    }
    if (write) {
        shadow.erase(shadow.lower_bound(lo), shadow.lower_bound(hi));
        shadow[lo] = { hi, op, {} };
    }
    if (pinned_piece(lo) && op->ranges.empty())
        watch_add(op, lo, hi, write); // a kernel that works on pinned memory
}
void race_forget(Addr lo, Addr hi)
{
    split(lo);
    split(hi);
    shadow.erase(shadow.lower_bound(lo), shadow.lower_bound(hi));
}
void race_reset() { shadow.clear(); }

// ---- what the host may not touch

struct Watch {
    OpP op;
    Addr lo, hi;
    bool write;
};
struct Closed { // how many watches close a page
    unsigned all, writes;
};
static std::vector<Watch> &watches = *new std::vector<Watch>;
static std::map<Addr, Closed> &closed = *new std::map<Addr, Closed>;
static std::vector<Range> &open_now = *new std::vector<Range>;
static bool cannot;

static int protection(Addr page)
{
    auto it = closed.find(page);
    if (it == closed.end()) return PROT_READ | PROT_WRITE;
    return it->second.all ? PROT_NONE : PROT_READ;
}
static void protect(Addr lo, Addr hi)
{
    for (Addr page = lo / PAGE, end = (hi + PAGE - 1) / PAGE; page < end;) {
        int p = protection(page);
        Addr next = page + 1;
        while (next < end && protection(next) == p) next++;
        if (mprotect(reinterpret_cast<void *>(page * PAGE), (next - page) * PAGE, p) != 0 &&
            !cannot) {
            cannot = true;
            (void) fprintf(stderr, "cudaemu: this pinned memory cannot be watched (huge pages?)\n");
        }
        page = next;
    }
}
static void count(const Watch &w, int d)
{
    for (Addr page = w.lo / PAGE; page < (w.hi + PAGE - 1) / PAGE; page++) {
        Closed &c = closed[page];
        (w.write ? c.all : c.writes) += (unsigned) d;
        if (!c.all && !c.writes) closed.erase(page);
    }
    protect(w.lo, w.hi);
}
void watch_add(const OpP &op, Addr lo, Addr hi, bool write)
{
    watches.push_back({ op, lo, hi, write });
    count(watches.back(), 1);
}
static void watch_drop(size_t i)
{
    Watch w = watches[i];
    watches[i] = watches.back();
    watches.pop_back();
    count(w, -1);
}
void watch_update()
{
    for (size_t i = watches.size(); i-- > 0;)
        if (known(*watches[i].op)) watch_drop(i);
}
void watch_gone(Addr lo, Addr hi, const char *how)
{
    for (size_t i = watches.size(); i-- > 0;) {
        Watch w = watches[i];
        if (w.hi <= lo || w.lo >= hi) continue;
        report("%s is %s while %s uses it: the host has not waited for that",
               describe(w.lo).c_str(), how, w.op->name().c_str());
        watch_drop(i);
    }
}
void watch_open(Addr lo, Addr hi)
{
    if (closed.lower_bound(lo / PAGE) == closed.lower_bound((hi + PAGE - 1) / PAGE)) return;
    (void) mprotect(reinterpret_cast<void *>(lo & ~(PAGE - 1)),
                    ((hi + PAGE - 1) & ~(PAGE - 1)) - (lo & ~(PAGE - 1)), PROT_READ | PROT_WRITE);
    open_now.push_back({ lo, hi, false });
}
void watch_close()
{
    for (const Range &r : open_now) protect(r.lo, r.hi);
    open_now.clear();
}

static thread_local std::vector<Addr> stepping; // pages open for one instruction
bool watch_fault(Addr a, bool write, void *uc)
{
    if (on_device) { // a kernel that works on pinned memory
        if (!closed.count(a / PAGE)) return false;
        watch_open(a, a + 1);
        return true;
    }
    std::lock_guard<std::mutex> lock(big_lock);
    if (!pinned_piece(a)) return false;
    if (!closed.count(a / PAGE)) // opened meanwhile, unless nothing is there
        return mprotect(reinterpret_cast<void *>(a & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE) ==
               0;
    for (size_t i = watches.size(); i-- > 0;) {
        Watch w = watches[i];
        if (a < w.lo || a >= w.hi || !(w.write || write)) continue;
        report("the host %s %s, which %s %s: the host has not waited for that",
               write ? "writes" : "reads", describe(a).c_str(), w.op->name().c_str(),
               w.write ? "writes" : "reads");
        watch_drop(i);
    }
    if (!closed.count(a / PAGE)) return true;
    // Something else of the page is in use: this one instruction may pass.
    (void) mprotect(reinterpret_cast<void *>(a & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
#ifdef __x86_64__
    stepping.push_back(a & ~(PAGE - 1));
    static_cast<ucontext_t *>(uc)->uc_mcontext.gregs[REG_EFL] |= 0x100; // trap flag
#else
    (void) uc; // the page stays open until something changes
#endif
    return true;
}
bool watch_stepped(void *uc)
{
    if (stepping.empty()) return false;
    std::lock_guard<std::mutex> lock(big_lock);
    for (Addr p : stepping) protect(p, p + 1);
    stepping.clear();
#ifdef __x86_64__
    static_cast<ucontext_t *>(uc)->uc_mcontext.gregs[REG_EFL] &= ~0x100ll;
#endif
    return true;
}
} // namespace cudaemu
