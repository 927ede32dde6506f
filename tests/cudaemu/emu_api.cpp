// SPDX-License-Identifier: Apache-2.0
// The runtime's calls: what they check, what they queue, how they fail; and how a test steers all of it.
#include "emu_order.h"
#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <map>
#include <unistd.h>

namespace cudaemu
{
Rng rng(1);

static std::vector<std::string> &reports = *new std::vector<std::string>;
static std::map<std::string, unsigned> &calls = *new std::map<std::string, unsigned>;
static unsigned calls_total, device_syncs;
size_t handles;
static int sm = 90;
static int in_place = 1; // registered memory has the host's addresses on the device
static bool abort_at_report, silent;
static int exit_status; // of a program that reports were made in; 0: its own
static FILE *log_file;
static thread_local cudaError_t last_error;
static std::map<const void *, int> &dynamic_limit = *new std::map<const void *, int>;

struct Failure {
    std::string function; // empty: any
    unsigned in;
    cudaError_t e;
};
static std::vector<Failure> &failures = *new std::vector<Failure>;

enum { SHOWN = 20 };
static std::string text(const char *format, va_list ap)
{
    char t[1024];
    (void) vsnprintf(t, sizeof t, format, ap);
    return t;
}
static void say(const std::string &t)
{
    (void) fprintf(stderr, "cudaemu: %s\n", t.c_str());
    if (log_file) (void) fprintf(log_file, "report %s\n", t.c_str()), (void) fflush(log_file);
}
void report(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    reports.push_back(text(format, ap));
    va_end(ap);
    if ((reports.size() <= SHOWN && !silent) || abort_at_report) say(reports.back());
    if (reports.size() == SHOWN && !silent) say("further reports are only counted");
    if (abort_at_report) std::abort();
}
void fatal(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    say(text(format, ap));
    va_end(ap);
    std::abort();
}
cudaError_t failed(cudaError_t e)
{
    if (e != cudaSuccess) last_error = e;
    return e;
}
void counted_sync() { device_syncs++; }

static bool stays(cudaError_t e)
{
    switch (e) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure: return true;
    default: return false;
    }
}

static size_t bytes_of(const char *t)
{
    char *end;
    size_t n = std::strtoull(t, &end, 10);
    return *end == 'G' ? n << 30 : *end == 'M' ? n << 20 : *end == 'K' ? n << 10 : n;
}
enum : size_t { MEMORY = (size_t) 256 << 20, PINNED = (size_t) 1 << 40 };
// "12:2" or "cudaMalloc:12:2"
static Failure failure_of(const std::string &t)
{
    const size_t last = t.rfind(':'), first = t.find(':');
    if (last == t.npos) fatal("CUDAEMU: fail=%s: FUNCTION:N:ERROR or N:ERROR", t.c_str());
    const bool named = first != last;
    return { named ? t.substr(0, first) : "",
             (unsigned) std::atoi(t.c_str() + (named ? first + 1 : 0)),
             (cudaError_t) std::atoi(t.c_str() + last + 1) };
}
static void environment(const char *t)
{
    size_t mem = MEMORY, pin = PINNED;
    std::string all = t;
    for (size_t from = 0; from < all.size();) {
        size_t to = std::min(all.find(',', from), all.size()), eq = all.find('=', from);
        std::string key = all.substr(from, std::min(to, eq) - from),
                    v = eq < to ? all.substr(eq + 1, to - eq - 1) : "";
        unsigned nth = (unsigned) std::atoi(v.c_str());
        size_t colon = v.find(':');
        auto e = (cudaError_t) (colon == std::string::npos ? cudaErrorUnknown
                                                           : std::atoi(v.c_str() + colon + 1));
        if (key == "seed")
            order_reset(nth);
        else if (key == "mem")
            mem = bytes_of(v.c_str());
        else if (key == "pin")
            pin = bytes_of(v.c_str());
        else if (key == "fail")
            failures.push_back(failure_of(v));
        else if (key == "fault")
            order_fault(nth, e);
        else if (key == "sm")
            sm = (int) nth;
        else if (key == "inplace")
            in_place = (int) nth;
        else if (key == "log")
            log_file = std::fopen(v.c_str(), "a");
        else if (key == "exit")
            exit_status = (int) nth;
        else if (key == "abort")
            abort_at_report = true;
        else if (!key.empty())
            fatal("CUDAEMU: what is '%s'?", key.c_str());
        from = to + 1;
    }
    memory_limit(mem, pin);
}
static void at_end()
{
    if (log_file) {
        for (auto &c : calls) (void) fprintf(log_file, "calls %s %u\n", c.first.c_str(), c.second);
        (void) fprintf(log_file, "device_syncs %u\npeak %zu\nlive %zu\nreports %zu\n", device_syncs,
                       memory_peak(), cudaemu_live(), reports.size());
        (void) fclose(log_file);
    }
    if (!exit_status || reports.empty()) return;
    (void) fflush(nullptr);
    _exit(exit_status);
}
static void start()
{
    static bool started;
    if (started) return;
    started = true;
    memory_start();
    memory_limit(MEMORY, PINNED);
    const char *t = std::getenv("CUDAEMU");
    if (t) environment(t);
    if (t) std::atexit(at_end);
}

// cuBLAS's names carry a version that its header hides.
std::string plain(const char *function)
{
    std::string f = function;
    return f.size() > 3 && f.compare(f.size() - 3, 3, "_v2") == 0 ? f.substr(0, f.size() - 3) : f;
}

Call::Call(const char *name) : lock(big_lock), err(cudaSuccess)
{
    start();
    order_called();
    std::string function = plain(name);
    calls[function]++;
    calls_total++;
    if (in_host_function) report("a host function calls %s", function.c_str());
    between();
    if (sticky != cudaSuccess) err = sticky;
    for (Failure &f : failures)
        if (f.in && (f.function.empty() || f.function == function) && --f.in == 0) {
            err = f.e;
            if (stays(err)) sticky = err;
        }
    if (sticky != cudaSuccess)
        reach_all(); // what is queued never runs: nothing uses the host's memory any more
    if (sm == 0 && err == cudaSuccess) err = cudaErrorNoDevice;
    failed(err);
}
Call::~Call()
{
    if (err == cudaSuccess) between();
}

// ---- copies

enum Side { DEVICE, PINNED_HOST, PAGEABLE };
struct Rect { // rows of bytes
    Addr at;
    size_t pitch, width, height;
    Addr end() const { return height && width ? at + (height - 1) * pitch + width : at; }
};
static Side side_of(const Rect &r, bool *ret_ok)
{
    const Piece *d = device_piece(r.at), *h = pinned_piece(r.at);
    *ret_ok = true;
    if (d || in_device_region(r.at)) {
        *ret_ok = d && r.end() <= d->hi;
        if (!*ret_ok)
            report("a copy or memset leaves its allocation: %zu bytes at %s",
                   (size_t) (r.end() - r.at), describe(r.at).c_str());
        return DEVICE;
    }
    if (!h && !pinned_within(r.at, r.end())) return PAGEABLE;
    *ret_ok = h && r.end() <= h->hi;
    if (!*ret_ok)
        report("a copy leaves its pinned range: %zu bytes at %s", (size_t) (r.end() - r.at),
               describe(r.at).c_str());
    return PINNED_HOST;
}
static void ranges_add(std::vector<Range> *to, const Rect &r, bool write)
{
    if (r.pitch == r.width)
        to->push_back({ r.at, r.end(), write });
    else
        for (size_t i = 0; i < r.height; i++)
            to->push_back({ r.at + i * r.pitch, r.at + i * r.pitch + r.width, write });
}
static void copy_bytes(const Rect &d, const Rect &s)
{
    for (size_t i = 0; i < d.height; i++)
        std::memcpy(reinterpret_cast<void *>(d.at + i * d.pitch),
                    reinterpret_cast<const void *>(s.at + i * s.pitch), d.width);
}
static void op_wait(const OpP &op)
{
    reach(op->ctx, op->n);
    host_knows(op->before);
}

static cudaError_t copy(const char *call, Rect d, Rect s, cudaMemcpyKind kind, cudaStream_t st,
                        bool async)
{
    bool ok_d, ok_s;
    if (!valid(st)) return failed(cudaErrorInvalidResourceHandle);
    if (d.height > 1 && (d.pitch < d.width || s.pitch < s.width))
        return failed(cudaErrorInvalidValue);
    if (d.width == 0 || d.height == 0) return cudaSuccess;
    if (d.height == 1) d.pitch = s.pitch = d.width;
    Side to = side_of(d, &ok_d), from = side_of(s, &ok_s);
    if (!ok_d || !ok_s) return failed(cudaErrorInvalidValue);
    static const bool dst_host[] = { true, false, true, false },
                      src_host[] = { true, true, false, false };
    if (kind != cudaMemcpyDefault &&
        (dst_host[kind] != (to != DEVICE) || src_host[kind] != (from != DEVICE)))
        return failed(cudaErrorInvalidMemcpyDirection);
    std::string what = std::string(call) + " of " + std::to_string(d.width * d.height) + " bytes " +
                       (to == DEVICE     ? from == DEVICE ? "within the device" : "to the device"
                        : from == DEVICE ? "to the host"
                                         : "within the host");
    bool pageable = to == PAGEABLE || from == PAGEABLE;
    if (async && pageable)
        report("%s: its %s is not pinned (%s)", what.c_str(),
               to == PAGEABLE ? "destination" : "source",
               describe(to == PAGEABLE ? d.at : s.at).c_str());
    std::vector<Range> ranges;
    if (from != PAGEABLE) ranges_add(&ranges, s, false);
    if (to != PAGEABLE) ranges_add(&ranges, d, true);
    OpP op = submit(st, what, std::move(ranges), [=](Op &) { copy_bytes(d, s); });
    if (!async || pageable) op_wait(op);
    return failed(sticky);
}
static cudaError_t set(const char *call, Rect d, int v, cudaStream_t st)
{
    bool ok;
    if (!valid(st)) return failed(cudaErrorInvalidResourceHandle);
    if (d.width == 0 || d.height == 0) return cudaSuccess;
    if (d.height == 1) d.pitch = d.width;
    if (d.pitch < d.width || side_of(d, &ok) == PAGEABLE || !ok)
        return failed(cudaErrorInvalidValue);
    std::vector<Range> ranges;
    ranges_add(&ranges, d, true);
    submit(st, std::string(call) + " of " + std::to_string(d.width * d.height) + " bytes",
           std::move(ranges), [=](Op &) {
               for (size_t i = 0; i < d.height; i++)
                   std::memset(reinterpret_cast<void *>(d.at + i * d.pitch), v, d.width);
           });
    return cudaSuccess;
}

// ---- launches

static size_t dynamic_most()
{
    return (size_t) (sm >= 90 ? 227 : sm == 80 || sm == 87 ? 163 : sm >= 80 ? 99 : 64) << 10;
}
void enqueue(const Kernel &k, dim3 grid, dim3 block, size_t smem, cudaStream_t s)
{
    Call call("launch"); // what failed is seen by cudaGetLastError()
    if (call.err != cudaSuccess) return;
    uint64_t threads = (uint64_t) block.x * block.y * block.z;
    if (!threads || threads > 1024 || block.z > 64 || !grid.x || !grid.y || !grid.z ||
        grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff)
        call.err = failed(cudaErrorInvalidConfiguration);
    else if (smem > std::max<size_t>(48 << 10, dynamic_limit.count(k.entry)
                                                   ? (size_t) dynamic_limit[k.entry]
                                                   : 0))
        call.err = failed(cudaErrorInvalidValue);
    else if (!valid(s))
        call.err = failed(cudaErrorInvalidResourceHandle);
    if (call.err != cudaSuccess) return;
    auto l = std::make_shared<Launch>();
    auto *args = static_cast<const unsigned char *>(k.args);
    l->name = k.name;
    l->call = k.call;
    l->args.assign(args, args + k.args_bytes);
    l->grid = grid;
    l->block = block;
    l->smem = smem;
    OpP op = submit(s, k.name, {}, nullptr);
    std::weak_ptr<Op> self_op = op;
    op->run = [l, self_op](Op &) { run_launch(self_op.lock(), *l); };
}

static Addr addr(const void *p) { return reinterpret_cast<Addr>(p); }
static bool live_event(cudaEvent_t e) { return e != nullptr; }
} // namespace cudaemu

using namespace cudaemu;
extern "C" {
static const struct {
    const char *name, *text;
    cudaError_t e;
} errors[] = {
#define X(name, value, text) { #name, text, name },
    CUDAEMU_ERRORS(X)
#undef X
};
const char *cudaGetErrorName(cudaError_t e)
{
    for (auto &x : errors)
        if (x.e == e) return x.name;
    return "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t e)
{
    for (auto &x : errors)
        if (x.e == e) return x.text;
    return "unrecognized error code";
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t e = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void)
{
    std::lock_guard<std::mutex> lock(big_lock);
    return sticky != cudaSuccess ? sticky : last_error;
}

// ---- the device

cudaError_t cudaDriverGetVersion(int *v)
{
    std::lock_guard<std::mutex> lock(big_lock);
    start();
    *v = sm ? CUDART_VERSION : 0;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 0;
    CUDAEMU_CALL();
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int dev)
{
    CUDAEMU_CALL();
    return failed(dev == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int *dev)
{
    CUDAEMU_CALL();
    *dev = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned)
{
    CUDAEMU_CALL();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int dev)
{
    CUDAEMU_CALL();
    if (dev != 0) return failed(cudaErrorInvalidDevice);
    switch (a) {
    case cudaDevAttrMaxThreadsPerBlock: *v = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = (int) dynamic_most(); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = (int) dynamic_most() + 1024; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrMultiProcessorCount: *v = 4; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = sm == 75 ? 1024 : 2048; break;
    case cudaDevAttrIntegrated: *v = 0; break;
    case cudaDevAttrAsyncEngineCount: *v = 2; break;
    case cudaDevAttrUnifiedAddressing: *v = 1; break;
    case cudaDevAttrCanUseHostPointerForRegisteredMem: *v = in_place; break;
    case cudaDevAttrHostRegisterSupported: *v = 1; break;
    case cudaDevAttrL2CacheSize: *v = 4 << 20; break;
    case cudaDevAttrComputeCapabilityMajor: *v = sm / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *v = sm % 10; break;
    default: return failed(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int dev)
{
    CUDAEMU_CALL();
    if (dev != 0) return failed(cudaErrorInvalidDevice);
    size_t unused;
    *p = {};
    (void) snprintf(p->name, sizeof p->name, "emulated sm_%d", sm);
    memory_info(&unused, &p->totalGlobalMem);
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = dynamic_most();
    p->sharedMemPerMultiprocessor = dynamic_most() + 1024;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->major = sm / 10;
    p->minor = sm % 10;
    p->multiProcessorCount = 4;
    p->l2CacheSize = 4 << 20;
    p->asyncEngineCount = 2;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int dev)
{
    CUDAEMU_CALL();
    if (dev != 0) return failed(cudaErrorInvalidDevice);
    (void) snprintf(id, (size_t) len, "ffff:ff:1f.0"); // no such device: its NUMA node is not known
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    CUDAEMU_CALL();
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    CUDAEMU_CALL();
    counted_sync();
    reach_all();
    return failed(sticky);
}
cudaError_t cudaDeviceReset(void) { return cudaDeviceSynchronize(); }

// ---- memory

cudaError_t cudaMalloc(void **p, size_t n)
{
    CUDAEMU_CALL();
    return failed(device_alloc(n, p));
}
cudaError_t cudaFree(void *p)
{
    CUDAEMU_CALL();
    if (!p) return cudaSuccess;
    counted_sync();
    reach_all();
    return failed(device_free(p));
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    CUDAEMU_CALL();
    memory_info(free_bytes, total);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
    CUDAEMU_CALL();
    return failed(host_alloc(n, p));
}
cudaError_t cudaMallocHost(void **p, size_t n)
{
    CUDAEMU_CALL();
    return failed(host_alloc(n, p));
}
cudaError_t cudaFreeHost(void *p)
{
    CUDAEMU_CALL();
    if (!p) return cudaSuccess;
    counted_sync();
    reach_all();
    return failed(host_free(p));
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
    CUDAEMU_CALL();
    return failed(host_register(p, n));
}
cudaError_t cudaHostUnregister(void *p)
{
    CUDAEMU_CALL();
    return failed(host_unregister(p));
}
cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned)
{
    CUDAEMU_CALL();
    if (!pinned_piece(addr(h))) return failed(cudaErrorInvalidValue);
    *d = h;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    CUDAEMU_CALL();
    void *q = const_cast<void *>(p);
    *a = { cudaMemoryTypeUnregistered, -2, nullptr, nullptr };
    if (device_piece(addr(p))) *a = { cudaMemoryTypeDevice, 0, q, nullptr };
    if (pinned_piece(addr(p))) *a = { cudaMemoryTypeHost, 0, q, q };
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k)
{
    CUDAEMU_CALL();
    counted_sync();
    return copy(__func__, { addr(d), n, n, 1 }, { addr(s), n, n, 1 }, k, nullptr, false);
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k,
                            cudaStream_t st)
{
    CUDAEMU_CALL();
    return copy(__func__, { addr(d), n, n, 1 }, { addr(s), n, n, 1 }, k, st, true);
}
cudaError_t cudaMemcpy2D(void *d, size_t dpitch, const void *s, size_t spitch, size_t width,
                         size_t height, enum cudaMemcpyKind k)
{
    CUDAEMU_CALL();
    counted_sync();
    return copy(__func__, { addr(d), dpitch, width, height }, { addr(s), spitch, width, height }, k,
                nullptr, false);
}
cudaError_t cudaMemcpy2DAsync(void *d, size_t dpitch, const void *s, size_t spitch, size_t width,
                              size_t height, enum cudaMemcpyKind k, cudaStream_t st)
{
    CUDAEMU_CALL();
    return copy(__func__, { addr(d), dpitch, width, height }, { addr(s), spitch, width, height }, k,
                st, true);
}
cudaError_t cudaMemset(void *d, int v, size_t n)
{
    CUDAEMU_CALL();
    return set(__func__, { addr(d), n, n, 1 }, v, nullptr);
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st)
{
    CUDAEMU_CALL();
    return set(__func__, { addr(d), n, n, 1 }, v, st);
}
cudaError_t cudaMemset2DAsync(void *d, size_t pitch, int v, size_t width, size_t height,
                              cudaStream_t st)
{
    CUDAEMU_CALL();
    return set(__func__, { addr(d), pitch, width, height }, v, st);
}

// ---- streams

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    CUDAEMU_CALL();
    *s = stream_new(!(flags & cudaStreamNonBlocking));
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    CUDAEMU_CALL();
    *s = stream_new(!(flags & cudaStreamNonBlocking));
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    CUDAEMU_CALL();
    *s = stream_new(true);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    CUDAEMU_CALL();
    if (!s || !valid(s)) return failed(cudaErrorInvalidResourceHandle);
    s->alive = false; // what is queued will run
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t st)
{
    CUDAEMU_CALL();
    if (!valid(st)) return failed(cudaErrorInvalidResourceHandle);
    cudaStream_t s = stream_of(st);
    reach(s->ctx, s->put);
    host_knows(s->clock);
    return failed(sticky);
}
cudaError_t cudaStreamQuery(cudaStream_t st)
{
    CUDAEMU_CALL();
    if (!valid(st)) return failed(cudaErrorInvalidResourceHandle);
    cudaStream_t s = stream_of(st);
    nudge(s->ctx, s->put);
    if (sticky != cudaSuccess) return failed(sticky);
    if (!reached(s->ctx, s->put)) return failed(cudaErrorNotReady);
    host_knows(s->clock);
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    CUDAEMU_CALL();
    if (!valid(s) || !live_event(e)) return failed(cudaErrorInvalidResourceHandle);
    if (e->recorded) stream_wait(s, e);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *ud)
{
    CUDAEMU_CALL();
    if (!valid(s)) return failed(cudaErrorInvalidResourceHandle);
    OpP op = submit(s, "cudaLaunchHostFunc", {}, nullptr);
    op->host = fn;
    op->host_ud = ud;
    return cudaSuccess;
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    CUDAEMU_CALL();
    *e = new CUevent_st;
    (*e)->flags = flags;
    events_count(1);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    CUDAEMU_CALL();
    *e = new CUevent_st;
    events_count(1);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    CUDAEMU_CALL();
    if (!live_event(e)) return failed(cudaErrorInvalidResourceHandle);
    delete e;
    events_count(-1);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    CUDAEMU_CALL();
    if (!valid(s) || !live_event(e)) return failed(cudaErrorInvalidResourceHandle);
    event_record(e, s);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    CUDAEMU_CALL();
    if (!live_event(e)) return failed(cudaErrorInvalidResourceHandle);
    if (!e->recorded) return cudaSuccess;
    nudge(e->ctx, e->n);
    if (sticky != cudaSuccess) return failed(sticky);
    if (!reached(e->ctx, e->n)) return failed(cudaErrorNotReady);
    host_knows(e->clock);
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    CUDAEMU_CALL();
    if (!live_event(e)) return failed(cudaErrorInvalidResourceHandle);
    if (!e->recorded) return cudaSuccess;
    reach(e->ctx, e->n);
    host_knows(e->clock);
    return failed(sticky);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    CUDAEMU_CALL();
    if (!live_event(a) || !live_event(b) || !a->recorded || !b->recorded ||
        (a->flags | b->flags) & cudaEventDisableTiming)
        return failed(cudaErrorInvalidResourceHandle);
    if (*a->time < 0 || *b->time < 0) return failed(cudaErrorNotReady);
    *ms = (float) (*b->time - *a->time);
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute a, int v)
{
    CUDAEMU_CALL();
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize || v < 0 || (size_t) v > dynamic_most())
        return failed(cudaErrorInvalidValue);
    dynamic_limit[kernel] = v;
    return cudaSuccess;
}

// ---- for tests

void cudaemu_reset(unsigned seed)
{
    std::lock_guard<std::mutex> lock(big_lock);
    start();
    order_reset(seed);
    race_reset();
    memory_limit(MEMORY, PINNED);
    reports.clear();
    calls.clear();
    failures.clear();
    calls_total = device_syncs = 0;
    sm = 90;
    last_error = cudaSuccess;
}
void cudaemu_limit(size_t device_bytes, size_t pinned_bytes)
{
    std::lock_guard<std::mutex> lock(big_lock);
    start();
    memory_limit(device_bytes, pinned_bytes);
}
void cudaemu_sm(int v)
{
    std::lock_guard<std::mutex> lock(big_lock);
    start();
    sm = v;
}
void cudaemu_fail(const char *function, unsigned nth, int error)
{
    std::lock_guard<std::mutex> lock(big_lock);
    start();
    failures.clear();
    if (nth) failures.push_back({ function ? function : "", nth, (cudaError_t) error });
}
void cudaemu_fault(unsigned nth, int error)
{
    std::lock_guard<std::mutex> lock(big_lock);
    start();
    order_fault(nth, (cudaError_t) error);
}
void cudaemu_quiet(void)
{
    std::lock_guard<std::mutex> lock(big_lock);
    silent = true;
}
unsigned cudaemu_calls(const char *function)
{
    std::lock_guard<std::mutex> lock(big_lock);
    if (!function) return calls_total;
    auto it = calls.find(function);
    return it == calls.end() ? 0 : it->second;
}
unsigned cudaemu_device_syncs(void)
{
    std::lock_guard<std::mutex> lock(big_lock);
    return device_syncs;
}
unsigned cudaemu_reports(void)
{
    std::lock_guard<std::mutex> lock(big_lock);
    return (unsigned) reports.size();
}
const char *cudaemu_report(unsigned i)
{
    std::lock_guard<std::mutex> lock(big_lock);
    return i < reports.size() ? reports[i].c_str() : "";
}
size_t cudaemu_peak(void)
{
    std::lock_guard<std::mutex> lock(big_lock);
    return memory_peak();
}
size_t cudaemu_live(void)
{
    std::lock_guard<std::mutex> lock(big_lock);
    return memory_live() + order_live() + handles;
}
}
