// SPDX-License-Identifier: Apache-2.0
// A launch on one CPU thread. Fibers yield at barriers, warp operations and, now and then, at an announced access;
// who goes on is drawn. What a kernel touches is kept by the byte: for global memory which block wrote and read it, for
// shared memory which threads did since which barrier.
#include "emu.h"
#include <link.h>
#include <sys/mman.h>
#include <unordered_map>
#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
#else
static void __asan_unpoison_memory_region(const void *, size_t) {}
static void __sanitizer_start_switch_fiber(void **, const void *, size_t) {}
static void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) {}
#endif

namespace cudaemu
{
thread_local Thread *self;
const Thread &me() { return *self; }

// ---- switching stacks

#ifdef __x86_64__
// Saves what the ABI wants kept on the stack that is left, and its end in *from.
asm(".text\n.type cudaemu_switch,@function\ncudaemu_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size cudaemu_switch,.-cudaemu_switch\n");
extern "C" void cudaemu_switch(void **from, void *to);
struct Context {
    void *sp;
};
static void context_make(Context *c, char *stack, size_t size, void (*entry)())
{
    void **top = reinterpret_cast<void **>(stack + size - 64);
    *--top = nullptr; // entry never returns; aligned as after a call
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    c->sp = top;
}
static void context_switch(Context *from, Context *to) { cudaemu_switch(&from->sp, to->sp); }
#else
} // namespace cudaemu
#include <ucontext.h>
namespace cudaemu
{
struct Context {
    ucontext_t u;
};
static void context_make(Context *c, char *stack, size_t size, void (*entry)())
{
    getcontext(&c->u);
    c->u.uc_stack.ss_sp = stack;
    c->u.uc_stack.ss_size = size;
    makecontext(&c->u, entry, 0);
}
static void context_switch(Context *from, Context *to) { swapcontext(&from->u, &to->u); }
#endif

// ---- one block

enum State { READY, AT_BARRIER, IN_WARP, DONE }; // READY: in Block.ready, or running
enum { STACK = 256 << 10, WARP = 32, THREADS_MAX = 1024, NOBODY = 0xffff, SLICE = 400 };
struct Fiber {
    Context ctx;
    char *stack;
    Thread t;
    Thread *own; // a copy on its stack, which the kernel may read
    State state;
    int line; // of the barrier or warp operation
    // warp operation
    WarpOp op;
    unsigned mask;
    int from;
    uint64_t value, result;
    // of global memory: when it wrote last, and when it fenced last (0: never), and after how many barriers
    uint32_t wrote, fenced, wrote_barriers, fenced_barriers;
    uint32_t syncs;       // __syncwarp()s so far
    uint32_t knows[WARP]; // what it is ordered after, by lane of its warp; not set while syncs == 0
};
struct Block {
    const Launch *launch;
    dim3 bid;
    std::vector<Fiber> f;
    std::vector<unsigned> ready;
    unsigned at_barrier, done, live;
    unsigned here[THREADS_MAX / WARP],
        gone[THREADS_MAX / WARP]; // by warp: lanes at a warp operation; that have left
    uint32_t barriers;            // passed
    int counted;                  // __syncthreads_count()
    Context scheduler;
    bool complained;
    unsigned slice;
    uint32_t number;      // of the block, from 1
    uint32_t now;         // counts writes to global memory, and fences
    const Fiber *counter; // the thread that did an atomic operation on global memory last
    bool acquired;        // and a fence after it
    std::vector<bool>
        published; // by number of block: what it wrote was fenced before an atomic operation
};
static thread_local Block *blk;
static thread_local Fiber *cur;
static thread_local bool trapped;

static std::vector<char *> stacks;
static char *stack_get(size_t i)
{
    while (stacks.size() <= i) { // a page that cannot be touched lies below each
        void *m = mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED || mprotect(m, PAGE, PROT_NONE) != 0)
            fatal("no memory for the threads of a block");
        stacks.push_back(static_cast<char *>(m) + PAGE);
    }
    return stacks[i];
}

// Who goes on is drawn; without announcements it is who became ready last, which is quicker. Fibers hand over to each other; only the first is started by the host's stack, and the last one goes
// back to it (also where all that are left wait for ever).
static const void *host_bottom;
static size_t host_size;
static bool host_asks; // whoever arrives learns where the host's stack is
static void arrived(void *fake)
{
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(fake, &bottom, &size);
    if (!host_asks) return;
    host_asks = false;
    host_bottom = bottom;
    host_size = size;
}
static Fiber *next()
{
    Block *b = blk;
    if (b->ready.empty() || trapped) return nullptr;
    const unsigned n = (unsigned) b->ready.size(), k = tracks ? draw(n) : n - 1;
    Fiber *f = &b->f[b->ready[k]];
    b->ready[k] = b->ready.back();
    b->ready.pop_back();
    return f;
}
static void turn_of(Fiber *f)
{
    cur = f;
    self = f ? f->own : nullptr;
}
// From a fiber. last: it never comes back.
static void hand_on(bool last)
{
    void *fake = nullptr;
    Fiber *from = cur, *to = next();
    if (to == from) return;
    turn_of(to);
    __sanitizer_start_switch_fiber(last ? nullptr : &fake, to ? to->stack : host_bottom,
                                   to ? (size_t) STACK : host_size);
    context_switch(&from->ctx, to ? &to->ctx : &blk->scheduler);
    arrived(fake);
}

static unsigned index_of(const Fiber *f) { return (unsigned) (f - blk->f.data()); }
static void complain(const char *what)
{
    if (!blk->complained)
        report("%s, block (%u,%u,%u): %s", blk->launch->name.c_str(), blk->bid.x, blk->bid.y,
               blk->bid.z, what);
    blk->complained = true;
}
static void wake(Fiber *f)
{
    f->state = READY;
    blk->ready.push_back(index_of(f));
}

// All of the block's threads are at the barrier, or have left: it opens.
static void barrier_try()
{
    Block *b = blk;
    if (!b->at_barrier || b->at_barrier + b->done != b->live) return;
    if (b->done) complain("some threads have left while others wait at __syncthreads()");
    int line = 0;
    for (Fiber &f : b->f) {
        if (f.state != AT_BARRIER) continue;
        if (line && f.line != line) complain("threads wait at different __syncthreads()");
        line = f.line;
    }
    b->at_barrier = 0;
    b->barriers++;
    int sum = 0;
    for (Fiber &f : b->f)
        if (f.state == AT_BARRIER) sum += (int) f.value;
    b->counted = sum;
    for (Fiber &f : b->f)
        if (f.state == AT_BARRIER) {
            f.result = (uint64_t) sum;
            wake(&f);
        }
}

// After a __syncwarp() each lane is ordered after all that the others were ordered after.
static void sync_lanes(Fiber *lane, unsigned n, unsigned want)
{
    uint32_t knows[WARP] = { 0 };
    for (unsigned i = 0; i < n; i++) {
        Fiber *o = &lane[i];
        if (!(want >> i & 1)) continue;
        if (o->syncs == 0) std::fill(o->knows, o->knows + WARP, 0);
        o->knows[i] = ++o->syncs;
        for (unsigned l = 0; l < WARP; l++) knows[l] = std::max(knows[l], o->knows[l]);
    }
    for (unsigned i = 0; i < n; i++)
        if (want >> i & 1) std::copy(knows, knows + WARP, lane[i].knows);
}

// The lanes that `f` waits for are there: values change hands.
static void warp_try(Fiber *f)
{
    Block *b = blk;
    unsigned first = index_of(f) / WARP * WARP, n = std::min<unsigned>(WARP, b->live - first);
    unsigned exist = n == WARP ? ~0u : (1u << n) - 1,
             want = f->mask & exist & ~b->gone[first / WARP];
    if ((b->here[first / WARP] & want) != want) return;
    Fiber *lane = &b->f[first];
    unsigned ballot = 0;
    bool same = true;
    for (unsigned i = 0; i < n; i++) {
        if (!(want >> i & 1)) continue;
        same = same && lane[i].op == f->op && lane[i].mask == f->mask;
        if (lane[i].value) ballot |= 1u << i;
    }
    if (!same) complain("lanes of one warp meet in different warp operations or masks");
    if (f->op == SYNC) sync_lanes(lane, n, want);
    for (unsigned i = 0; i < n; i++) {
        Fiber *o = &lane[i];
        if (!(want >> i & 1)) continue;
        if (o->op == BALLOT) o->result = ballot;
        if (o->op == SHUFFLE) { // a lane that takes no part holds nothing one could use
            bool there = o->from >= 0 && o->from < WARP && want >> o->from & 1;
            o->result = there ? lane[o->from].value : ~0ull;
        }
        wake(o);
    }
    b->here[first / WARP] &= ~want;
}

int block_count(int line, int predicate)
{
    cur->line = line;
    cur->value = (uint64_t) predicate;
    blk->at_barrier++;
    cur->state = AT_BARRIER;
    barrier_try();
    hand_on(false);
    return (int) cur->result;
}
void block_barrier(int line) { (void) block_count(line, 0); }
uint64_t warp(WarpOp op, unsigned mask, uint64_t v, int from, int line)
{
    Fiber *me = cur;
    if (op == ACTIVE)
        return me->t.lane < WARP ? 1u << me->t.lane : 0; // only itself is sure to be there
    if (!(mask >> me->t.lane & 1)) complain("a lane is not in the mask of its own warp operation");
    me->op = op;
    me->mask = mask | 1u << me->t.lane;
    me->value = v;
    me->from = from;
    me->line = line;
    me->state = IN_WARP;
    blk->here[index_of(me) / WARP] |= 1u << me->t.lane;
    warp_try(me);
    hand_on(false);
    return me->result;
}
void fence()
{
    cur->fenced = ++blk->now;
    cur->fenced_barriers = blk->barriers;
    if (cur == blk->counter) blk->acquired = true;
}
// A counter in global memory: it tells other blocks of what was written before, if all of that is ordered before it and fenced.
static void counts()
{
    Block *b = blk;
    bool all = true;
    for (const Fiber &f : b->f) {
        if (!f.wrote) continue;
        const bool mine = &f == cur;
        const bool ordered = mine || f.wrote_barriers < b->barriers;
        const bool own = f.fenced > f.wrote && (mine || f.fenced_barriers < b->barriers);
        const bool by_me = cur->fenced > f.wrote && cur->fenced_barriers > f.wrote_barriers;
        all = all && ordered && (own || by_me);
    }
    b->published[b->number] = all;
    b->counter = cur;
    b->acquired = false;
}
uint64_t ticks()
{
    static uint64_t t;
    return t += 100;
}
// Somebody leaves: who waits for it may go on.
[[noreturn]] static void end()
{
    Fiber *gone = cur;
    gone->state = DONE;
    blk->done++;
    blk->gone[index_of(gone) / WARP] |= 1u << gone->t.lane;
    unsigned first = index_of(gone) / WARP * WARP;
    for (unsigned i = first; i < first + WARP && i < blk->live; i++)
        if (blk->f[i].state == IN_WARP) warp_try(&blk->f[i]);
    barrier_try();
    hand_on(true);
    fatal("a thread went on after its end");
}
void trap(const char *what)
{
    complain(what);
    trapped = true;
    end();
}

static void fiber_main()
{
    arrived(nullptr);
    const Launch *l = blk->launch;
    Thread own = cur->t;
    cur->own = self = &own;
    void *args =
        __builtin_alloca_with_align(l->args.size() + 1, 16 * 8); // a thread's own: on its stack
    std::memcpy(args, l->args.data(), l->args.size());
    l->call(args);
    end();
}

static char *dynamic_base; // of a region that ends at a page that cannot be touched
static Addr dynamic_lo, dynamic_hi;
enum { DYNAMIC_MAX = 256 << 10 };
void *dynamic_shared() { return reinterpret_cast<void *>(dynamic_lo); }
static void dynamic_set(size_t smem)
{
    if (!dynamic_base) {
        void *m = mmap(nullptr, DYNAMIC_MAX + PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m == MAP_FAILED || mprotect(static_cast<char *>(m) + DYNAMIC_MAX, PAGE, PROT_NONE) != 0)
            fatal("no memory for shared memory");
        dynamic_base = static_cast<char *>(m);
    }
    dynamic_hi = reinterpret_cast<Addr>(dynamic_base) + DYNAMIC_MAX;
    dynamic_lo = (dynamic_hi - smem) & ~(Addr) 15;
    dynamic_hi = dynamic_lo + smem;
    std::memset(reinterpret_cast<void *>(dynamic_lo), 0xff, smem);
}

static void run_block(Block &b, dim3 bid)
{
    const Launch &l = *b.launch;
    unsigned n = b.live;
    b.bid = bid;
    b.ready.clear();
    b.at_barrier = b.done = b.barriers = 0;
    std::fill(b.here, b.here + THREADS_MAX / WARP, 0);
    std::fill(b.gone, b.gone + THREADS_MAX / WARP, 0);
    b.complained = b.acquired = false;
    b.counter = nullptr;
    b.now = 0;
    b.slice = 1 + draw(SLICE);
    dynamic_set(l.smem);
    for (unsigned i = 0; i < n; i++) {
        Fiber &f = b.f[i];
        f.stack = stack_get(i);
        __asan_unpoison_memory_region(f.stack, STACK); // frames that were left for good
        f.t = { dim3(i % l.block.x, i / l.block.x % l.block.y, i / (l.block.x * l.block.y)), bid,
                l.block, l.grid, i % WARP };
        f.own = &f.t;
        f.syncs = f.wrote = f.fenced = 0;
        // Stacks whose ends are a multiple of a page apart would share a few lines of the cache.
        context_make(&f.ctx, f.stack, STACK - i * 448 % PAGE, fiber_main);
        wake(&f);
    }
    void *fake = nullptr;
    Fiber *first = next();
    turn_of(first);
    host_asks = true;
    __sanitizer_start_switch_fiber(&fake, first->stack, STACK);
    context_switch(&b.scheduler, &first->ctx);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
    if (b.done != n && !trapped)
        complain("some threads wait for ever: not all reach a barrier or a warp operation");
}

// ---- what it touches

struct Cells { // a page of global memory: which block (from 1) touched each byte
    uint32_t wrote[PAGE], read[PAGE];
    bool atomic[PAGE];
};
enum : uint32_t { SEVERAL = 0xffffffff };
static std::unordered_map<Addr, std::unique_ptr<Cells>> touched;
static Addr last_page;
static Cells *last_cells;

struct When {
    uint16_t thread;
    uint32_t barriers, syncs;
};
struct SharedCell {
    uint64_t block; // serial number of the block that used it last
    bool written;
    When w, r1, r2;
};
static std::unordered_map<Addr, std::unique_ptr<SharedCell[]>> shared;
static Addr static_lo, static_hi; // where static shared arrays lie
static Addr last_shared;
static SharedCell *last_shared_cells;
static uint64_t block_serial;
static std::vector<Piece> images; // where programs and libraries lie; id 1: written to
static Addr pinned_ok_lo, pinned_ok_hi, device_ok_lo, device_ok_hi;

static int image_add(struct dl_phdr_info *info, size_t, void *)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &p = info->dlpi_phdr[i];
        if (p.p_type != PT_LOAD && p.p_type != PT_GNU_RELRO) continue;
        Piece x;
        x.lo = info->dlpi_addr + p.p_vaddr;
        x.hi = x.lo + p.p_memsz;
        x.id = p.p_type == PT_LOAD && p.p_flags & PF_W;
        // Constants that were relocated lie inside of a segment that is written to: they are found first.
        images.insert(p.p_type == PT_LOAD ? images.end() : images.begin(), x);
    }
    return 0;
}

static inline bool ordered(const When &x, unsigned me)
{
    if (x.thread == NOBODY || x.thread == me || x.barriers < blk->barriers) return true;
    return x.thread / WARP == me / WARP && cur->syncs && cur->knows[x.thread % WARP] > x.syncs;
}
static void shared_race(const void *p, const char *what, const When &other)
{
    if (blk->complained) return;
    report("%s, block (%u,%u,%u): no barrier between thread %u %s shared memory (%p) and thread %u "
           "before it",
           blk->launch->name.c_str(), self->bid.x, self->bid.y, self->bid.z, index_of(cur), what, p,
           other.thread);
    blk->complained = true;
}
static void touch_shared(Addr a, size_t size, Touch how)
{
    const unsigned me = index_of(cur);
    const When now = { (uint16_t) me, blk->barriers, cur->syncs };
    for (Addr x = a; x < a + size; x++) {
        if (x / PAGE != last_shared || !last_shared_cells) {
            auto &page = shared[x / PAGE];
            if (!page) page.reset(new SharedCell[PAGE]());
            last_shared_cells = page.get();
            last_shared = x / PAGE;
        }
        SharedCell &c = last_shared_cells[x % PAGE];
        if (c.block != block_serial) {
            When none = { NOBODY, 0, 0 };
            c = { block_serial, false, none, none, none };
            if (how != WRITE) *reinterpret_cast<unsigned char *>(x) = 0xff;
        }
        if (how == ATOMIC)
            continue; // atomics are ordered among themselves; beside plain accesses not looked at
        if (!ordered(c.w, me))
            shared_race(reinterpret_cast<void *>(a), how == WRITE ? "that writes" : "that reads",
                        c.w);
        if (how == WRITE) {
            if (!ordered(c.r1, me)) shared_race(reinterpret_cast<void *>(a), "that writes", c.r1);
            if (!ordered(c.r2, me)) shared_race(reinterpret_cast<void *>(a), "that writes", c.r2);
            c.w = now;
        } else if (c.r1.thread == now.thread || ordered(c.r1, me))
            c.r1 = now;
        else
            c.r2 = now;
    }
}

// Both ends of a counter: the other block has told of what it wrote, and this one has looked.
static bool told(uint32_t other)
{
    return blk->acquired && (other == SEVERAL || blk->published[other]);
}

static void touch_global(Addr a, size_t size, Touch how)
{
    if (how == ATOMIC) counts();
    if (how == WRITE) {
        cur->wrote = ++blk->now;
        cur->wrote_barriers = blk->barriers;
    }
    for (Addr x = a; x < a + size; x++) {
        if (x / PAGE != last_page || !last_cells) {
            auto &c = touched[x / PAGE];
            if (!c) c.reset(new Cells());
            last_cells = c.get();
            last_page = x / PAGE;
        }
        uint32_t &w = last_cells->wrote[x % PAGE], &r = last_cells->read[x % PAGE],
                 me = blk->number;
        bool &atomic = last_cells->atomic[x % PAGE];
        bool both = how == ATOMIC && atomic, clash = w && w != me && !both && !told(w);
        if (how != READ && r && r != me && !both && !told(r)) clash = true;
        if (clash && !blk->complained) {
            report("%s: block (%u,%u,%u) %s %s, and so does another block, which is not ordered "
                   "with it",
                   blk->launch->name.c_str(), self->bid.x, self->bid.y, self->bid.z,
                   how == READ ? "reads" : "writes", describe(x).c_str());
            blk->complained = true;
        }
        if (how != WRITE) r = !r || r == me ? me : SEVERAL;
        if (how != READ) {
            w = !w || w == me ? me : SEVERAL;
            atomic = how == ATOMIC;
        }
    }
}

static void elsewhere(Addr a, size_t size, Touch how)
{
    if (in_device_region(a)) {
        complain(("out of bounds: " + std::to_string(size) + " bytes at " + describe(a)).c_str());
        return;
    }
    if (images.empty()) dl_iterate_phdr(image_add, nullptr);
    for (const Piece &i : images) {
        if (a < i.lo || a >= i.hi) continue;
        if (i.id) { // from here on found at once
            static_lo = i.lo;
            static_hi = i.hi;
            for (const Piece &c : images)
                if (!c.id && c.lo >= i.lo && c.lo < i.hi) static_lo = std::max(static_lo, c.hi);
            if (a >= static_lo) touch_shared(a, size, how);
        }
        return;
    }
    complain("touches host memory that is not pinned");
}

void touch(const void *p, size_t size, Touch how)
{
    if (!tracks || !cur) return; // !cur: host code of a .cu file
    Addr a = reinterpret_cast<Addr>(p), stack = reinterpret_cast<Addr>(cur->stack);
    if (a - stack < STACK) return;
    if (size <= 16 && a & (size - 1) & (aligned_to - 1) && !(size & (size - 1)))
        complain(("not aligned: " + std::to_string(size) + " bytes at " + describe(a)).c_str());
    if ((a >= dynamic_lo && a + size <= dynamic_hi) || (a >= static_lo && a + size <= static_hi))
        touch_shared(a, size, how);
    else if (a >= device_ok_lo && a + size <= device_ok_hi)
        touch_global(a, size, how);
    else if (a >= pinned_ok_lo && a + size <= pinned_ok_hi)
        touch_global(a, size, how);
    else if (const Piece *d = device_piece(a); d && a + size <= d->hi) {
        device_ok_lo = d->lo;
        device_ok_hi = d->hi;
        touch_global(a, size, how);
    } else if (const Piece *h = pinned_piece(a); h && a + size <= h->hi) {
        pinned_ok_lo = h->lo;
        pinned_ok_hi = h->hi;
        touch_global(a, size, how);
    } else if (a + size > dynamic_hi && a < dynamic_hi + PAGE && a >= dynamic_lo)
        complain("out of bounds: past the end of dynamic shared memory");
    else
        elsewhere(a, size, how);
    if (how != ATOMIC && --blk->slice == 0) {
        blk->slice = 1 + draw(SLICE);
        wake(cur);
        hand_on(false);
    }
}
void atomic_load(const void *p, void *v, size_t size)
{
    touch(p, size, ATOMIC);
    std::memcpy(v, p, size);
}
void atomic_store(void *p, const void *v, size_t size) { std::memcpy(p, v, size); }

// The bytes that were touched, as ranges.
static void hand_over(const OpP &op)
{
    std::vector<Addr> pages;
    for (auto &t : touched) pages.push_back(t.first);
    std::sort(pages.begin(), pages.end());
    for (int write = 0; write < 2; write++) {
        Addr lo = 0, hi = 0;
        for (Addr page : pages) {
            const Cells &c = *touched[page];
            const uint32_t *who = write ? c.wrote : c.read;
            for (Addr i = 0; i < PAGE; i++) {
                if (!who[i] || (!write && c.wrote[i]))
                    continue; // what was written counts as written
                if (page * PAGE + i != hi) {
                    if (hi > lo) race_access(op, lo, hi, write);
                    lo = page * PAGE + i;
                }
                hi = page * PAGE + i + 1;
            }
        }
        if (hi > lo) race_access(op, lo, hi, write);
    }
    touched.clear();
    last_cells = nullptr;
}

void run_launch(const OpP &op, const Launch &l)
{
    Block b = {};
    b.launch = &l;
    b.live = l.block.x * l.block.y * l.block.z;
    b.f.resize(b.live);
    b.ready.reserve(b.live);
    b.published.assign(l.grid.x * l.grid.y * l.grid.z + 1, false);
    blk = &b;
    trapped = false;
    device_ok_hi = pinned_ok_hi = 0;
    device_ok_lo = pinned_ok_lo = ~(Addr) 0;
    std::vector<uint32_t> order(l.grid.x * l.grid.y * l.grid.z);
    for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
    std::shuffle(order.begin(), order.end(), rng);
    for (uint32_t i : order) {
        block_serial++;
        b.number = i + 1;
        run_block(b, dim3(i % l.grid.x, i / l.grid.x % l.grid.y, i / (l.grid.x * l.grid.y)));
        if (trapped) break;
    }
    blk = nullptr;
    if (trapped) sticky = cudaErrorLaunchFailure;
    hand_over(op);
}
} // namespace cudaemu
