// SPDX-License-Identifier: Apache-2.0
// Streams are queues of pieces of work; when one runs is drawn, between "somebody waits for it" and "at once". Clocks say what is
// ordered, whatever ran when: they are computed where the work is queued.
#include "emu_order.h"
#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <thread>

namespace cudaemu
{
std::mutex &big_lock = *new std::mutex;
Mode mode = LATE;
cudaError_t sticky;
static std::vector<cudaStream_t> &contexts =
    *new std::vector<cudaStream_t>; // by context; [0] is the host: NULL
static Clock &host_clock = *new Clock;
static std::condition_variable &moved = *new std::condition_variable,
                               &helper_wake = *new std::condition_variable;
static unsigned held, fault_in;
static cudaError_t fault_with;
static bool helper_runs;
static uint64_t calls_seen;
static size_t events_live;
thread_local bool on_device, in_host_function;
thread_local const Op *running;

void join(Clock &into, const Clock &c)
{
    if (into.size() < c.size()) into.resize(c.size());
    for (size_t i = 0; i < c.size(); i++) into[i] = std::max(into[i], c[i]);
}
std::string Op::name() const
{
    return what + (ctx == 1 ? " (default stream" : " (stream " + std::to_string(ctx - 1)) + ", " +
           std::to_string(n) + ".)";
}

static cudaStream_t add_stream(bool blocking)
{
    if (contexts.empty()) contexts.push_back(nullptr);
    cudaStream_t s = new CUstream_st;
    s->ctx = (unsigned) contexts.size();
    s->blocking = blocking;
    contexts.push_back(s);
    return s;
}
cudaStream_t stream_of(cudaStream_t s)
{
    if (contexts.empty()) add_stream(true);
    return !s || s == cudaStreamLegacy ? contexts[1] : s;
}
bool valid(cudaStream_t s)
{
    s = stream_of(s);
    for (size_t i = 1; i < contexts.size(); i++)
        if (contexts[i] == s) return s->alive;
    return false;
}
cudaStream_t stream_new(bool blocking)
{
    stream_of(nullptr);
    return add_stream(blocking);
}

static bool may_run(const CUstream_st *s)
{
    if (s->q.empty() || s->host_running) return false;
    for (auto &a : s->q.front()->after)
        if (contexts[a.first]->done < a.second) return false;
    return true;
}
static void finish(cudaStream_t s)
{
    s->q.pop_front();
    s->done++;
    moved.notify_all();
}
// Runs the head of s, which may run and is no host function.
static void step(cudaStream_t s)
{
    OpP op = s->q.front();
    if (fault_in && op->run && --fault_in == 0) sticky = fault_with;
    if (op->run && sticky == cudaSuccess) {
        Opened o;
        on_device = true;
        running = op.get();
        for (const Range &r : op->ranges) {
            race_access(op, r.lo, r.hi, r.write);
            watch_open(r.lo, r.hi);
        }
        op->run(*op);
        watch_close();
        running = nullptr;
        on_device = false;
    }
    op->run = nullptr; // the piece itself may be remembered for long
    finish(s);
}
// One step towards the end of what stream `ctx` has queued.
static void drive(unsigned ctx, std::unique_lock<std::mutex> &lock)
{
    cudaStream_t s = contexts[ctx];
    if (s->host_running) {
        moved.wait(lock);
        return;
    }
    for (auto &a : s->q.front()->after)
        if (contexts[a.first]->done < a.second) return drive(a.first, lock);
    if (s->q.front()->host) {
        s->wanted = true;
        helper_wake.notify_all();
        moved.wait(lock);
    } else
        step(s);
}
void reach(unsigned ctx, uint64_t n)
{
    std::unique_lock<std::mutex> lock(big_lock, std::adopt_lock);
    while (contexts[ctx]->done < n) drive(ctx, lock);
    lock.release();
}
void reach_all()
{
    for (size_t c = 1; c < contexts.size(); c++) reach((unsigned) c, contexts[c]->put);
    for (size_t c = 1; c < contexts.size(); c++) host_knows(contexts[c]->clock);
}
void nudge(unsigned ctx, uint64_t n)
{
    cudaStream_t s = contexts[ctx];
    if (s->done >= n || draw(mode == LATE ? 4 : 2)) return;
    while (!may_run(s)) { // what it waits for
        if (s->host_running || s->q.empty()) return;
        for (auto &a : s->q.front()->after)
            if (contexts[a.first]->done < a.second) {
                s = contexts[a.first];
                break;
            }
    }
    if (s->q.front()->host) {
        s->wanted = true;
        helper_wake.notify_all();
    } else
        step(s);
}
bool reached(unsigned ctx, uint64_t n) { return contexts[ctx]->done >= n; }

// Some stream's next piece that may run now and need not be waited for. NULL: none.
static cudaStream_t some(bool all, bool host)
{
    size_t n = contexts.size(), from = n ? draw((unsigned) n) : 0;
    for (size_t i = 0; i < n; i++) {
        cudaStream_t s = contexts[(from + i) % n];
        if (!s || !may_run(s) || (s->q.front()->host != nullptr) != host) continue;
        if (host ? all || s->wanted || (mode != LATE && (mode != HELD || s->ctx != held))
                 : all || mode != HELD || s->ctx != held)
            return s;
    }
    return nullptr;
}
void between()
{
    if (on_device || mode == LATE) return;
    if (some(false, true)) helper_wake.notify_all();
    unsigned steps = mode == DRAWN ? draw(4) : ~0u;
    for (cudaStream_t s; steps-- && (s = some(false, false));) step(s);
}

// The thread of host functions; it also keeps the device going where nobody calls for a while.
static void helper_main()
{
    std::unique_lock<std::mutex> lock(big_lock);
    for (uint64_t last = 0;; last = calls_seen) {
        bool late =
            helper_wake.wait_for(lock, std::chrono::milliseconds(10)) == std::cv_status::timeout;
        bool idle = late && last == calls_seen;
        while (cudaStream_t s = some(idle, true)) {
            OpP op = s->q.front();
            s->host_running = true;
            s->wanted = false;
            lock.unlock();
            in_host_function = true;
            if (sticky == cudaSuccess) op->host(op->host_ud);
            in_host_function = false;
            lock.lock();
            s->host_running = false;
            finish(s);
        }
        cudaStream_t s;
        while (idle && !some(true, true) && (s = some(true, false))) step(s);
    }
}
static void helper_start()
{
    if (helper_runs) return;
    helper_runs = true;
    pthread_atfork([] { big_lock.lock(); }, [] { big_lock.unlock(); }, [] { big_lock.unlock(); });
    std::thread(helper_main).detach();
}

OpP submit(cudaStream_t stream, std::string what, std::vector<Range> ranges,
           std::function<void(Op &)> run)
{
    cudaStream_t s = stream_of(stream);
    helper_start();
    OpP op = std::make_shared<Op>();
    op->what = std::move(what);
    op->ctx = s->ctx;
    op->ranges = std::move(ranges);
    op->run = std::move(run);
    // The legacy default stream waits for all blocking streams, and they for it.
    for (size_t c = 1; c < contexts.size(); c++) {
        cudaStream_t o = contexts[c];
        if (o == s || !(s->ctx == 1 ? o->blocking : s->blocking && c == 1)) continue;
        join(s->clock, o->clock);
        op->after.push_back({ (unsigned) c, o->put });
    }
    for (auto &a : s->waits) op->after.push_back(a);
    s->waits.clear();
    join(s->clock, host_clock);
    op->n = ++s->put;
    if (s->clock.size() <= s->ctx) s->clock.resize(s->ctx + 1);
    s->clock[s->ctx] = op->n;
    op->before = s->clock;
    s->q.push_back(op);
    for (const Range &r : op->ranges)
        if (pinned_piece(r.lo)) watch_add(op, r.lo, r.hi, r.write);
    return op;
}
void host_knows(const Clock &c)
{
    join(host_clock, c);
    watch_update();
}
bool known(const Op &op) { return at(host_clock, op.ctx) >= op.n; }

void stream_wait(cudaStream_t stream, const CUevent_st *e)
{
    cudaStream_t s = stream_of(stream);
    join(s->clock, e->clock);
    s->waits.push_back({ e->ctx, e->n });
    submit(stream, "cudaStreamWaitEvent", {}, nullptr);
}
void event_record(CUevent_st *e, cudaStream_t stream)
{
    auto time = std::make_shared<double>(-1);
    OpP op = submit(stream, "cudaEventRecord", {}, nullptr);
    op->run = [time](Op &) {
        auto now = std::chrono::steady_clock::now().time_since_epoch();
        *time = std::chrono::duration<double, std::milli>(now).count();
    };
    e->recorded = true;
    e->ctx = op->ctx;
    e->n = op->n;
    e->clock = op->before;
    e->time = time;
}

void order_fault(unsigned nth, cudaError_t e)
{
    fault_in = nth;
    fault_with = e;
}
void order_called() { calls_seen++; }
size_t order_live()
{
    size_t n = events_live;
    for (size_t c = 2; c < contexts.size(); c++) n += contexts[c]->alive;
    return n;
}
void order_reset(unsigned seed)
{
    if (sticky != cudaSuccess) reach_all(); // nothing of it runs any more
    for (cudaStream_t s : contexts)
        if (s && !s->q.empty()) fatal("cudaemu_reset() while work is queued");
    if (order_live() == 0) { // nothing refers to them any more
        for (cudaStream_t s : contexts) delete s;
        contexts.clear();
        host_clock.clear();
    }
    rng = Rng(seed);
    mode = (Mode) (seed % 4);
    held = 2 + seed / 4 % 3;
    sticky = cudaSuccess;
    fault_in = 0;
}
void events_count(int d) { events_live += (size_t) d; }
} // namespace cudaemu
