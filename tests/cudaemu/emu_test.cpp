// SPDX-License-Identifier: Apache-2.0
// The emulation is only worth something if it finds what it is there to find, and nothing where nothing is. "sees(x)" below:
// exactly those reports were made that hold x.
#include "cublasLt.h"
#include "cudaemu.h"
#include "emu_kernels.cuh"
extern "C" {
#include "emu_from_c.h"
#include "engine/base/ps_dtype.h"
}
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static int failed, checks, skipped; // checks
static int passed;                  // groups of them
static void check(bool ok, const char *what, int line)
{
    if (ok) {
        checks++;
        return;
    }
    failed++;
    std::fprintf(stderr, "not ok: line %d: %s\n", line, what);
    for (unsigned i = 0; i < cudaemu_reports() && i < 5; i++)
        std::fprintf(stderr, "    report: %s\n", cudaemu_report(i));
}
#define CHECK(x)   check(x, #x, __LINE__)
#define OK(call)   check((call) == cudaSuccess, #call, __LINE__)
#define BLAS(call) check((call) == CUBLAS_STATUS_SUCCESS, #call, __LINE__)

static bool sees(const char *text)
{
    for (unsigned i = 0; i < cudaemu_reports(); i++)
        if (!std::strstr(cudaemu_report(i), text)) return false;
    return cudaemu_reports() > 0;
}
static bool quiet() { return cudaemu_reports() == 0; }

// Memory and streams of one test, given back at its end.
struct Rig {
    std::vector<void *> dev, host;
    std::vector<cudaStream_t> streams;
    std::vector<cudaEvent_t> events;
    explicit Rig(unsigned seed = 0) { cudaemu_reset(seed); }
    template <class T> T *device(size_t n)
    {
        void *p = nullptr;
        OK(cudaMalloc(&p, n * sizeof(T)));
        dev.push_back(p);
        return static_cast<T *>(p);
    }
    template <class T> T *pinned(size_t n)
    {
        void *p = nullptr;
        OK(cudaMallocHost(&p, n * sizeof(T)));
        host.push_back(p);
        return static_cast<T *>(p);
    }
    cudaStream_t stream(unsigned flags = cudaStreamNonBlocking)
    {
        cudaStream_t s = nullptr;
        OK(cudaStreamCreateWithFlags(&s, flags));
        streams.push_back(s);
        return s;
    }
    cudaEvent_t event(cudaStream_t after)
    {
        cudaEvent_t e = nullptr;
        OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        OK(cudaEventRecord(e, after));
        events.push_back(e);
        return e;
    }
    // The two streams' later work: b's waits for a's.
    void order(cudaStream_t a, cudaStream_t b) { OK(cudaStreamWaitEvent(b, event(a), 0)); }
    template <class T> T *upload(const std::vector<T> &v)
    {
        T *p = device<T>(v.size());
        OK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
        return p;
    }
    template <class T> std::vector<T> download(const T *p, size_t n)
    {
        std::vector<T> v(n);
        OK(cudaDeviceSynchronize());
        OK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
    ~Rig()
    {
        (void) cudaDeviceSynchronize();
        for (cudaEvent_t e : events) (void) cudaEventDestroy(e);
        for (cudaStream_t s : streams) (void) cudaStreamDestroy(s);
        for (void *p : host) (void) cudaFreeHost(p);
        for (void *p : dev) (void) cudaFree(p);
    }
};
static std::vector<float> ramp(size_t n)
{
    std::vector<float> v(n);
    for (size_t i = 0; i < n; i++) v[i] = (float) (i + 1);
    return v;
}

// ---- kernels

static void kernels()
{
    unsigned wrong = 0;
    for (unsigned seed = 0; seed < 12; seed++) {
        Rig r(seed);
        float *x = r.upload(ramp(64)), *y = r.device<float>(1);
        sum_block(y, x, true, nullptr);
        CHECK(r.download(y, 1)[0] == 64 * 65 / 2 && quiet());
        sum_block(y, x, false, nullptr);
        wrong += r.download(y, 1)[0] != 64 * 65 / 2;
        CHECK(sees("no barrier between thread") || !cudaemu_tracks());
    }
    CHECK(wrong > 0); // it also computes something else
    {
        Rig r(5);
        unsigned *y = r.device<unsigned>(32);
        warp_ops(y, nullptr);
        std::vector<unsigned> v = r.download(y, 32);
        for (unsigned i = 0; i < 32; i++) CHECK(v[i] == i);
        CHECK(quiet());
    }
    {
        Rig r(2);
        float *x = r.upload(ramp(32)), *y = r.device<float>(32);
        mirror(y, x, true, nullptr);
        CHECK(r.download(y, 32)[0] == 32 && quiet());
        mirror(y, x, false, nullptr);
        (void) r.download(y, 32);
        CHECK(sees("no barrier between thread") || !cudaemu_tracks());
    }
    {
        Rig r;
        float *x = r.upload(ramp(100)), *y = r.device<float>(100);
        dynamic(y, x, 100, 0, nullptr);
        CHECK(r.download(y, 100)[99] == 1 && quiet());
        OK(cudaFuncSetAttribute((void (*)(int)) nullptr,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
        dynamic(y, x, 20 << 10, 0, nullptr); // 80 KiB, and nobody asked for more than 48
        CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    }
    {
        Rig r;
        float *y = r.device<float>(1);
        unwritten(y, nullptr);
        CHECK(std::isnan(r.download(y, 1)[0]) || !cudaemu_tracks());
    }
    {
        Rig r(6);
        int *count = r.device<int>(4);
        float *f = r.device<float>(1);
        OK(cudaMemset(count, 0, 4 * sizeof *count));
        OK(cudaMemset(f, 0, sizeof *f));
        atomics(count, f, false, nullptr);
        std::vector<int> c = r.download(count, 3);
        CHECK(c[0] == 256 && c[1] == 255 && c[2] == 256 && r.download(f, 1)[0] == 128 && quiet());
        atomics(count, f, true, nullptr);
        (void) r.download(count, 1);
        CHECK(sees("and so does another block") || !cudaemu_tracks());
    }
    for (unsigned steps = 0; steps < 8; steps++) {
        Rig r(9);
        float *y = r.device<float>(17);
        unsigned *counter = r.device<unsigned>(1);
        OK(cudaMemset(counter, 0, sizeof *counter));
        last_block(y, counter, 8, steps, nullptr);
        CHECK(r.download(y, 17)[16] == 56);
        CHECK(steps == 7 ? quiet() : sees("and so does another block") || !cudaemu_tracks());
    }
    {
        Rig r;
        (void) r.download(r.upload(ramp(2)), 2);
        diverging(false, nullptr);
        OK(cudaDeviceSynchronize());
        CHECK(cudaemu_reports() == 1 && sees("some threads have left"));
        diverging(true, nullptr);
        OK(cudaDeviceSynchronize());
        CHECK(cudaemu_reports() == 2 && std::strstr(cudaemu_report(1), "wait for ever"));
    }
    {
        Rig r;
        trapping(nullptr);
        CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure &&
              cudaGetLastError() == cudaErrorLaunchFailure);
        CHECK(cudaGetLastError() == cudaErrorLaunchFailure); // it stays
        cudaemu_reset(0);
    }
}

static void bounds()
{
    if (!cudaemu_tracks()) {
        skipped++;
        return;
    }
    for (unsigned seed = 0; seed < 8;
         seed++) { // one element past the end, which is not a page's end
        Rig r(seed);
        float *x = r.upload(ramp(61)), *y = r.device<float>(60);
        twice(y, x, 61, nullptr);
        OK(cudaDeviceSynchronize());
        CHECK(cudaemu_reports() == 1 &&
              sees("out of bounds: 4 bytes at 0 bytes past the end of device allocation"));
    }
    CHECK(cudaemu_reports() == 2 &&
          std::strstr(cudaemu_report(1), "freed, and somebody had written to"));
    {
        Rig r;
        float *x = r.upload(ramp(10)), *y = r.device<float>(10);
        dynamic(y, x, 10, 1, nullptr); // 40 bytes, rounded up to 48 by the alignment of its start
        OK(cudaDeviceSynchronize());
        CHECK(cudaemu_reports() == 1 &&
              sees("out of bounds: past the end of dynamic shared memory"));
    }
    {
        Rig r;
        misaligned(r.device<float>(4), nullptr);
        OK(cudaDeviceSynchronize());
        CHECK(sees("not aligned: 8 bytes"));
    }
    {
        Rig r;
        std::vector<float> x = ramp(64);
        twice(r.device<float>(64), x.data(), 64, nullptr);
        OK(cudaDeviceSynchronize());
        CHECK(cudaemu_reports() > 0 && sees("touches host memory that is not pinned"));
    }
}

static void half_types()
{
    bool same = true;
    for (uint32_t u = 0; u < 0x10000; u++) {
        auto nan = [](float f) { return f != f; };
        float f = ps_f16_to_f32((uint16_t) u), g = __half2float(__ushort_as_half((uint16_t) u));
        float b = ps_bf16_to_f32((uint16_t) u),
              c = __bfloat162float(__ushort_as_bfloat16((uint16_t) u));
        same = same && (f == g || (nan(f) && nan(g))) && (b == c || (nan(b) && nan(c)));
        for (float d :
             { -1.0f, 0.0f, 1.0f }) { // on, just below and just above the middle between two f16
            float x = cudaemu::from_bits<float>(cudaemu::bits(f) + 0x1000 + (uint64_t) (int64_t) d);
            if (nan(x) || nan(f)) continue;
            same = same && __half_as_ushort(__float2half_rn(x)) == ps_f32_to_f16(x);
            float y = cudaemu::from_bits<float>(cudaemu::bits(b) + 0x8000 + (uint64_t) (int64_t) d);
            if (!nan(y) && !nan(b))
                same = same && __bfloat16_as_ushort(__float2bfloat16_rn(y)) == ps_f32_to_bf16(y);
        }
    }
    CHECK(same);
    Rig r(1);
    std::vector<__half> x(512);
    std::vector<__nv_bfloat16> b(512);
    for (size_t i = 0; i < 512; i++) x[i] = __half((int) i), b[i] = __nv_bfloat16((int) (i % 128));
    __half *y = r.device<__half>(512);
    __nv_bfloat16 *z = r.device<__nv_bfloat16>(512);
    halves(y, r.upload(x), 512, nullptr);
    bhalves(z, r.upload(b), 512, nullptr);
    std::vector<__half> v = r.download(y, 512);
    std::vector<__nv_bfloat16> w = r.download(z, 512);
    bool right = true;
    for (int i = 0; i < 512; i++)
        right = right && (float) v[(size_t) i] == 2 * i && (float) w[(size_t) i] == 2 * (i % 128);
    CHECK(right && quiet());
}

// ---- order

// h2d on one stream, kernel on another, d2h on a third, then the next h2d into the same place. An event can be left out.
enum Leave { NONE, IN, OUT, REUSE, HOST };
static float pipeline(unsigned seed, Leave leave)
{
    Rig r(seed);
    float *x = r.device<float>(64), *y = r.device<float>(64), *h = r.pinned<float>(64),
          *out = r.pinned<float>(64);
    cudaStream_t in = r.stream(), run = r.stream(), back = r.stream();
    for (int i = 0; i < 64; i++) h[i] = (float) i, out[i] = -1;
    OK(cudaMemcpyAsync(x, h, 64 * 4, cudaMemcpyHostToDevice, in));
    if (leave != IN) r.order(in, run);
    twice(y, x, 64, run);
    if (leave != OUT) r.order(run, back);
    OK(cudaMemcpyAsync(out, y, 64 * 4, cudaMemcpyDeviceToHost, back));
    if (leave != REUSE) r.order(run, in);
    OK(cudaMemsetAsync(x, 0, 64 * 4, in));
    if (leave != HOST) OK(cudaStreamSynchronize(back));
    return out[63];
}
static void orders()
{
    CHECK(cudaemu_tracks() || (skipped++, true));
    const char *const found[] = { nullptr, "unordered", "unordered", "unordered",
                                  "the host reads" };
    for (int leave = NONE; leave <= HOST; leave++) {
        unsigned wrong = 0;
        bool all = true;
        for (unsigned seed = 0; seed < 24; seed++) {
            wrong += pipeline(seed, (Leave) leave) != 126;
            // Without announcements only what the copies touch is known: no race with a kernel.
            bool must = leave == NONE ? quiet() : sees(found[leave]);
            if (!must && (cudaemu_tracks() || leave == NONE || leave == HOST)) all = false;
        }
        CHECK(all);
        CHECK(leave == NONE ? wrong == 0 : wrong > 0 || leave == REUSE);
    }
    // The two operations and their streams are named.
    pipeline(0, OUT);
    if (cudaemu_tracks()) {
        std::string t = cudaemu_report(0);
        CHECK(t.find("cudaMemcpyAsync of 256 bytes to the host (stream ") != t.npos &&
              t.find("kernel twice_kernel") != t.npos);
        CHECK(t.find("emu_kernels.cu:") != t.npos &&
              t.find("256 bytes at device allocation") != t.npos);
    }
    for (unsigned seed = 0; seed < 4;
         seed++) { // the two halves of a buffer, no multiple of anything
        Rig r(seed);
        float *x = r.upload(ramp(100)), *y = r.device<float>(100);
        cudaStream_t a = r.stream(), b = r.stream();
        twice(y, x, 37, a);
        twice(y + 37, x + 37, 63, b);
        OK(cudaDeviceSynchronize());
        CHECK(quiet());
        twice(y + 36, x, 1, a);
        twice(y + 36, x, 1, b);
        OK(cudaDeviceSynchronize());
        CHECK(sees("writes 4 bytes") || !cudaemu_tracks());
    }
    for (unsigned flags : { (unsigned) cudaStreamDefault,
                            (unsigned) cudaStreamNonBlocking }) { // the default stream's rule
        Rig r(3);
        float *y = r.device<float>(8);
        cudaStream_t s = r.stream(flags);
        OK(cudaMemsetAsync(y, 0, 32, s));
        OK(cudaMemsetAsync(y, 1, 32, nullptr));
        OK(cudaMemsetAsync(y, 2, 32, s));
        OK(cudaDeviceSynchronize());
        CHECK(flags == cudaStreamDefault ? quiet() : sees("unordered"));
    }
    { // what the host has waited for comes before what it then queues
        Rig r(7);
        float *y = r.device<float>(8);
        cudaStream_t a = r.stream(), b = r.stream();
        OK(cudaMemsetAsync(y, 0, 32, a));
        OK(cudaEventSynchronize(r.event(a)));
        OK(cudaMemsetAsync(y, 1, 32, b));
        cudaEvent_t e = r.event(b);
        while (cudaEventQuery(e) == cudaErrorNotReady) {
        }
        (void) cudaGetLastError();
        OK(cudaMemsetAsync(y, 1, 32, a));
        OK(cudaDeviceSynchronize());
        CHECK(quiet());
        // What counts is what was recorded when the wait was queued.
        OK(cudaMemsetAsync(y, 1, 32, b));
        OK(cudaStreamWaitEvent(a, e, 0));
        OK(cudaEventRecord(e, b));
        OK(cudaMemsetAsync(y, 1, 32, a));
        OK(cudaDeviceSynchronize());
        CHECK(cudaemu_reports() == 1 && sees("unordered"));
        OK(cudaMemsetAsync(y, 1, 32, b));
        OK(cudaEventRecord(e, b));
        OK(cudaStreamWaitEvent(a, e, 0));
        OK(cudaMemsetAsync(y, 1, 32, a));
        OK(cudaDeviceSynchronize());
        CHECK(cudaemu_reports() == 1);
    }
    { // rows of a rectangle, and what lies between them
        Rig r(0);
        float *y = r.device<float>(64), *h = r.pinned<float>(64);
        cudaStream_t a = r.stream(), b = r.stream();
        for (int i = 0; i < 64; i++) h[i] = (float) i;
        OK(cudaMemcpy2DAsync(y, 32, h, 16, 16, 8, cudaMemcpyHostToDevice, a));
        OK(cudaMemset2DAsync(y + 4, 32, 0, 16, 8, b));
        std::vector<float> v = r.download(y, 64);
        CHECK(v[8] == 4 && v[9] == 5 && v[4] == 0 && v[63] == 0 && quiet());
        OK(cudaMemset2DAsync(y + 4, 32, 0, 16, 8, b));
        OK(cudaMemset2DAsync(y + 3, 32, 0, 16, 8, a));
        OK(cudaDeviceSynchronize());
        CHECK(sees("unordered"));
    }
}

static void lateness()
{
    for (unsigned seed = 0; seed < 2; seed++) {
        Rig r(seed); // 0: as late as possible, 1: at once
        float *y = r.device<float>(1), *h = r.pinned<float>(1);
        cudaStream_t a = r.stream(), b = r.stream();
        *h = 5;
        OK(cudaMemsetAsync(y, 0, 4, a));
        OK(cudaStreamSynchronize(a));
        OK(cudaMemcpyAsync(y, h, 4, cudaMemcpyHostToDevice, a));
        OK(cudaMemcpyAsync(h, y, 4, cudaMemcpyDeviceToHost, b)); // nothing orders it
        OK(cudaStreamSynchronize(b));
        CHECK(*h == (seed ? 5 : 0));
        OK(cudaDeviceSynchronize());
        CHECK(sees("unordered"));
    }
}

static void host_side()
{
    for (unsigned seed = 0; seed < 8; seed++) {
        Rig r(seed);
        float *y = r.device<float>(4), *h = r.pinned<float>(64);
        cudaStream_t s = r.stream();
        for (int i = 0; i < 64; i++) h[i] = (float) i;
        OK(cudaMemcpyAsync(y, h + 8, 16, cudaMemcpyHostToDevice, s));
        h[12] = 1; // of the same page, not of the copy
        volatile float read = h[9];
        CHECK(read == 9 && quiet()); // both may read
        h[11] = 1;
        CHECK(cudaemu_reports() == 1 && sees("the host writes pinned range"));
        OK(cudaStreamSynchronize(s));
        h[8] = 2;
        CHECK(cudaemu_reports() == 1);
        OK(cudaMemcpyAsync(h, y, 16, cudaMemcpyDeviceToHost, s));
        std::vector<float> other(h + 4, h + 64); // neighbours, many at a time
        h[4] += other[0];
        CHECK(cudaemu_reports() == 1);
        read = h[3];
        CHECK(cudaemu_reports() == 2 &&
              std::strstr(cudaemu_report(1), "the host reads pinned range"));
        OK(cudaStreamSynchronize(s));
        CHECK(h[0] == 8 && h[4] == 8 && cudaemu_reports() == 2);
    }
    {
        Rig r;
        float *y = r.device<float>(1024), page[64];
        cudaStream_t s = r.stream();
        OK(cudaMemcpyAsync(y, page, sizeof page, cudaMemcpyDefault, s));
        CHECK(cudaemu_reports() == 1 && sees("its source is not pinned"));
        OK(cudaMemcpyAsync(page, y, sizeof page, cudaMemcpyDefault, s));
        CHECK(cudaemu_reports() == 2 &&
              std::strstr(cudaemu_report(1), "its destination is not pinned"));
        std::vector<float> big(4096);
        char *at = reinterpret_cast<char *>(((uintptr_t) big.data() + 4096) / 4096 * 4096);
        OK(cudaHostRegister(at, 2048, 0));
        CHECK(cudaHostRegister(at + 2048, 64, 0) ==
              cudaErrorHostMemoryAlreadyRegistered); // its page
        OK(cudaHostUnregister(at));
        OK(cudaHostRegister(at, 4096, 0));
        OK(cudaHostRegister(at + 4096, 4000, 0));
        CHECK(cudaHostRegister(at + 8000, 64, 0) == cudaErrorHostMemoryAlreadyRegistered);
        (void) cudaGetLastError();
        OK(cudaMemcpyAsync(y, at, 2048, cudaMemcpyDefault, s));
        CHECK(cudaemu_reports() == 2);
        // Two ranges; pinned memory and what follows it; and what stands before it.
        const struct {
            char *from;
            size_t n;
        } leaves[] = { { at + 4000, 128 }, { at + 8000, 128 }, { at - 64, 128 } };
        for (auto &l : leaves) {
            CHECK(cudaMemcpyAsync(y, l.from, l.n, cudaMemcpyDefault, s) == cudaErrorInvalidValue);
            CHECK(std::strstr(cudaemu_report(cudaemu_reports() - 1), "leaves its pinned range"));
        }
        CHECK(cudaemu_reports() == 5);
        OK(cudaStreamSynchronize(s));
        OK(cudaMemcpyAsync(y, at + 4096, 64, cudaMemcpyDefault, s));
        OK(cudaHostUnregister(at));
        CHECK(cudaemu_reports() == 5);
        OK(cudaHostUnregister(at + 4096));
        CHECK(cudaemu_reports() == 6 &&
              std::strstr(cudaemu_report(5), "unregistered while cudaMemcpyAsync"));
        CHECK(cudaHostUnregister(at) == cudaErrorHostMemoryNotRegistered);
        OK(cudaStreamSynchronize(s));
    }
    { // a copy that leaves its allocation, a wrong direction, a stream that is gone
        Rig r;
        float *y = r.device<float>(16), *h = r.pinned<float>(64);
        cudaStream_t s;
        OK(cudaStreamCreate(&s));
        CHECK(cudaMemcpyAsync(y, h, 65, cudaMemcpyHostToDevice, s) == cudaErrorInvalidValue &&
              sees("leaves its allocation"));
        CHECK(cudaMemcpyAsync(y, h, 64, cudaMemcpyDeviceToHost, s) ==
              cudaErrorInvalidMemcpyDirection);
        OK(cudaStreamDestroy(s));
        CHECK(cudaMemcpyAsync(y, h, 64, cudaMemcpyHostToDevice, s) ==
              cudaErrorInvalidResourceHandle);
    }
}

static std::atomic<int> in_order, wrong_order;
static void host_functions()
{
    for (unsigned seed = 0; seed < 8; seed++) {
        Rig r(seed);
        float *h = r.pinned<float>(1), *y = r.device<float>(1);
        cudaStream_t a = r.stream(), b = r.stream();
        in_order = wrong_order = 0;
        OK(cudaMemsetAsync(y, 0, 4, a));
        OK(cudaMemcpyAsync(h, y, 4, cudaMemcpyDeviceToHost, a));
        OK(cudaLaunchHostFunc(
            a, [](void *) { in_order += 1; }, nullptr));
        r.order(a, b);
        OK(cudaLaunchHostFunc(
            b, [](void *) { wrong_order += in_order != 1, in_order += 10; }, nullptr));
        if (seed % 2) // nobody waits: it goes on by itself
            while (in_order != 11) std::this_thread::yield();
        OK(cudaStreamSynchronize(b));
        CHECK(in_order == 11 && wrong_order == 0 && quiet());
    }
    Rig r;
    OK(cudaLaunchHostFunc(
        nullptr, [](void *) { (void) cudaSetDevice(0); }, nullptr));
    OK(cudaDeviceSynchronize());
    CHECK(cudaemu_reports() == 1 && sees("a host function calls cudaSetDevice"));
}

static void threads()
{
    Rig r(2);
    std::vector<std::thread> all;
    std::atomic<int> right(0);
    for (int t = 0; t < 3; t++) {
        float *h = r.pinned<float>(64), *y = r.device<float>(64), *z = r.device<float>(64);
        cudaStream_t s = r.stream();
        all.emplace_back([=, &right] {
            for (int i = 0; i < 20; i++) {
                for (int k = 0; k < 64; k++) h[k] = (float) (t * 100 + i + k);
                (void) cudaMemcpyAsync(y, h, 256, cudaMemcpyHostToDevice, s);
                twice(z, y, 64, s);
                (void) cudaMemcpyAsync(h, z, 256, cudaMemcpyDeviceToHost, s);
                (void) cudaStreamSynchronize(s);
                right += h[63] == (float) (2 * (t * 100 + i + 63));
            }
        });
    }
    for (std::thread &t : all) t.join();
    CHECK(right == 60 && quiet());
}

// ---- failures and counts

static cudaError_t several(Rig *r)
{
    void *p = nullptr;
    cudaError_t e = cudaMalloc(&p, 64);
    if (e != cudaSuccess) return e;
    r->dev.push_back(p);
    e = cudaMemset(p, 0, 64);
    if (e != cudaSuccess) return e;
    twice(static_cast<float *>(p), static_cast<float *>(p), 1, nullptr);
    e = cudaGetLastError();
    return e != cudaSuccess ? e : cudaDeviceSynchronize();
}
static void failures()
{
    for (unsigned n = 1; n <= 5; n++) {
        Rig r;
        cudaemu_fail(nullptr, n, cudaErrorDevicesUnavailable);
        CHECK(several(&r) == (n <= 4 ? cudaErrorDevicesUnavailable : cudaSuccess));
        cudaemu_fail(nullptr, 0, 0);
        (void) cudaGetLastError();
        CHECK(cudaGetLastError() == cudaSuccess && several(&r) == cudaSuccess);
    }
    {
        Rig r;
        cudaemu_fail("launch", 2, cudaErrorLaunchOutOfResources);
        CHECK(several(&r) == cudaSuccess && several(&r) == cudaErrorLaunchOutOfResources &&
              several(&r) == cudaSuccess);
        CHECK(cudaemu_calls("launch") == 3 && cudaemu_calls("cudaMalloc") == 3 &&
              cudaemu_calls("cudaDeviceSynchronize") == 2);
        CHECK(cudaemu_calls(nullptr) == 11 && cudaemu_device_syncs() == 2);
        cudaemu_fail("cudaMemset", 1, cudaErrorIllegalAddress);
        CHECK(several(&r) == cudaErrorIllegalAddress && several(&r) == cudaErrorIllegalAddress);
        CHECK(std::strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress") ==
              0);
        cudaemu_reset(0);
    }
    {
        Rig r;
        float *y = r.device<float>(1);
        cudaemu_fault(2, cudaErrorECCUncorrectable);
        OK(cudaMemsetAsync(y, 0, 4));
        OK(cudaMemsetAsync(y, 0, 4)); // fails when it runs
        CHECK(cudaStreamSynchronize(nullptr) == cudaErrorECCUncorrectable &&
              cudaGetLastError() == cudaErrorECCUncorrectable);
        CHECK(cudaMemsetAsync(y, 0, 4) == cudaErrorECCUncorrectable);
        cudaemu_reset(0);
    }
    {
        Rig r;
        size_t free_bytes = 0, total = 0, live = cudaemu_live();
        void *p = nullptr, *q = nullptr;
        cudaemu_limit(1 << 20, 8192);
        OK(cudaMalloc(&p, 1000 << 10));
        CHECK(cudaMalloc(&q, 100 << 10) == cudaErrorMemoryAllocation &&
              cudaGetLastError() == cudaErrorMemoryAllocation);
        OK(cudaMemGetInfo(&free_bytes, &total));
        CHECK(total == 1 << 20 && free_bytes == 24 << 10 && cudaemu_peak() == 1000 << 10 &&
              cudaemu_live() == live + 1);
        OK(cudaFree(p));
        OK(cudaMalloc(&p, 1 << 20));
        OK(cudaFree(p));
        CHECK(cudaFree(p) == cudaErrorInvalidValue && cudaemu_live() == live);
        OK(cudaMallocHost(&p, 8192));
        CHECK(cudaMallocHost(&q, 1) == cudaErrorMemoryAllocation);
        OK(cudaFreeHost(p));
        CHECK(cudaemu_live() == live);
    }
    {
        int n = -1, v = -1;
        cudaemu_sm(0);
        CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0 &&
              cudaSetDevice(0) == cudaErrorNoDevice);
        cudaemu_reset(0);
        cudaemu_sm(75);
        OK(cudaGetDeviceCount(&n));
        OK(cudaDeviceGetAttribute(&v, cudaDevAttrComputeCapabilityMajor, 0));
        CHECK(n == 1 && v == 7);
    }
}

// ---- cuBLAS

static void blas()
{
    enum { M = 5, N = 7, K = 9 };
    for (int trans = 0; trans < 4; trans++)
        for (cudaDataType type : { CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF }) {
            Rig r((unsigned) trans);
            bool ta = trans & 1, tb = trans & 2;
            size_t lda = (ta ? K : M) + 1, ldb = (tb ? N : K) + 2, ldc = M + 3,
                   size = type == CUDA_R_32F ? 4 : 2;
            std::vector<float> a(lda * (ta ? M : K)), b(ldb * (tb ? K : N)), c(ldc * N, 1);
            auto bytes = [&](const std::vector<float> &v) {
                std::vector<unsigned char> t(v.size() * size);
                for (size_t i = 0; i < v.size(); i++)
                    ps_dtype_put(type == CUDA_R_32F   ? PS_F32
                                 : type == CUDA_R_16F ? PS_F16
                                                      : PS_BF16,
                                 t.data(), i, v[i]);
                return t;
            };
            for (size_t i = 0; i < a.size(); i++) a[i] = (float) (int) (i * 7 % 11) - 5;
            for (size_t i = 0; i < b.size(); i++) b[i] = (float) (int) (i * 5 % 13) - 6;
            unsigned char *da = r.upload(bytes(a)), *db = r.upload(bytes(b)),
                          *work = r.device<unsigned char>(1024);
            float *dc = r.upload(c), alpha = 2, beta = 3;
            cublasHandle_t h;
            BLAS(cublasCreate(&h));
            cudaStream_t s = r.stream();
            BLAS(cublasSetStream(h, s));
            BLAS(cublasSetWorkspace(h, work, 1024));
            OK(cudaDeviceSynchronize());
            BLAS(cublasGemmEx(h, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, M,
                              N, K, &alpha, da, type, (int) lda, db, type, (int) ldb, &beta, dc,
                              CUDA_R_32F, (int) ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
            std::vector<float> v = r.download(dc, c.size());
            bool right = true;
            for (size_t n = 0; n < N; n++)
                for (size_t m = 0; m < ldc; m++) {
                    float sum = 0;
                    for (size_t k = 0; m < M && k < K; k++)
                        sum +=
                            a[ta ? m * lda + k : k * lda + m] * b[tb ? k * ldb + n : n * ldb + k];
                    right = right && v[n * ldc + m] == (m < M ? 2 * sum + 3 : 1);
                }
            CHECK(right && quiet());
            BLAS(cublasDestroy(h));
        }
    for (bool shared : { false, true }) { // two handles, two streams, one workspace
        Rig r(shared);
        float *x = r.upload(ramp(16)), *y = r.device<float>(32), one = 1, zero = 0;
        unsigned char *work = r.device<unsigned char>(2048);
        for (int i = 0; i < 2; i++) {
            cublasHandle_t h;
            cudaStream_t s = r.stream();
            BLAS(cublasCreate(&h));
            BLAS(cublasSetStream(h, s));
            BLAS(cublasSetWorkspace(h, work + (shared ? 0 : 1024 * i), 1024));
            BLAS(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, x, 4, x, 4, &zero,
                             y + 16 * i, 4));
            BLAS(cublasDestroy(h));
        }
        CHECK(quiet()); // cublasDestroy() waits
        cublasHandle_t h[2];
        for (int i = 0; i < 2; i++) {
            BLAS(cublasCreate(&h[i]));
            BLAS(cublasSetStream(h[i], r.streams[(size_t) i]));
            BLAS(cublasSetWorkspace(h[i], work + (shared ? 0 : 1024 * i), 1024));
            BLAS(cublasSgemm(h[i], CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, x, 4, x, 4, &zero,
                             y + 16 * i, 4));
        }
        OK(cudaDeviceSynchronize());
        CHECK(shared ? sees("unordered: cublasSgemm") : quiet());
        BLAS(cublasDestroy(h[0]));
        BLAS(cublasDestroy(h[1]));
    }
    { // bias, ReLU and a second matrix in one call
        Rig r(1);
        float *w = r.upload(std::vector<float> { 1, 2, -3, -4, 5, 6 }),
              *x = r.upload(std::vector<float> { 1, 1 }),
              *bias = r.upload(std::vector<float> { 1, 2, -20 }), *y = r.device<float>(3), one = 1,
              zero = 0;
        cublasLtHandle_t h;
        cublasLtMatmulDescOpaque_t d;
        cublasLtMatrixLayoutOpaque_t lw, lx, ly;
        cublasLtMatmulPreferenceOpaque_t p;
        cublasLtMatmulHeuristicResult_t best;
        cublasOperation_t t = CUBLAS_OP_T;
        cublasLtEpilogue_t e = CUBLASLT_EPILOGUE_RELU_BIAS;
        int found = 0;
        size_t live = cudaemu_live();
        BLAS(cublasLtCreate(&h));
        BLAS(cublasLtMatmulDescInit(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        BLAS(cublasLtMatmulDescSetAttribute(&d, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t));
        BLAS(cublasLtMatmulDescSetAttribute(&d, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e));
        BLAS(cublasLtMatmulDescSetAttribute(&d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                            sizeof bias));
        BLAS(cublasLtMatrixLayoutInit(&lw, CUDA_R_32F, 2, 3, 2));
        BLAS(cublasLtMatrixLayoutInit(&lx, CUDA_R_32F, 2, 1, 2));
        BLAS(cublasLtMatrixLayoutInit(&ly, CUDA_R_32F, 3, 1, 3));
        BLAS(cublasLtMatmulPreferenceInit(&p));
        auto aligned = [&](uint32_t bytes) {
            for (auto a : { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES })
                BLAS(cublasLtMatmulPreferenceSetAttribute(&p, a, &bytes, sizeof bytes));
        };
        aligned(4);
        BLAS(cublasLtMatmulAlgoGetHeuristic(h, &d, &lw, &lx, &ly, &ly, &p, 1, &best, &found));
        CHECK(found == 1);
        auto product = [&](const cublasLtMatmulAlgo_t *algo) {
            return cublasLtMatmul(h, &d, &one, w, &lw, x, &lx, &zero, y, &ly, y, &ly, algo, nullptr,
                                  0, nullptr);
        };
        BLAS(product(&best.algo));
        std::vector<float> v = r.download(y, 3);
        CHECK(v[0] == 4 && v[1] == 0 && v[2] == 0 && quiet());
        e = CUBLASLT_EPILOGUE_BIAS;
        BLAS(cublasLtMatmulDescSetAttribute(&d, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e));
        CHECK(product(&best.algo) == CUBLAS_STATUS_INVALID_VALUE && cudaemu_reports() == 1);
        cudaemu_lt_refuse(true);
        CHECK(cublasLtMatmulAlgoGetHeuristic(h, &d, &lw, &lx, &ly, &ly, &p, 1, &best, &found) ==
                  CUBLAS_STATUS_NOT_SUPPORTED &&
              found == 0);
        cudaemu_lt_refuse(false);
        aligned(8);
        BLAS(cublasLtMatmulAlgoGetHeuristic(h, &d, &lw, &lx, &ly, &ly, &p, 1, &best, &found));
        CHECK(cublasLtMatmul(h, &d, &one, w + 1, &lw, x, &lx, &zero, y, &ly, y, &ly, &best.algo,
                             nullptr, 0, nullptr) == CUBLAS_STATUS_INVALID_VALUE &&
              cudaemu_reports() == 2 && sees("the algorithm was chosen for "));
        CHECK(cudaemu_live() == live + 1);
        BLAS(cublasLtDestroy(h));
        CHECK(cudaemu_live() == live);
    }
    {
        Rig r;
        cublasHandle_t h;
        cudaemu_fail("cublasCreate", 1, cudaErrorMemoryAllocation);
        CHECK(cublasCreate(&h) == CUBLAS_STATUS_ALLOC_FAILED);
    }
}

// ---- what ends the process

// What a child says before it ends by abort(); "" if it ends otherwise.
static std::string dies(const std::function<void()> &f)
{
    int fd[2];
    std::string said;
    if (pipe(fd) != 0) return said;
    pid_t child = fork();
    if (child == 0) {
        (void) dup2(fd[1], 2);
        (void) close(fd[0]);
        f();
        _exit(0);
    }
    (void) close(fd[1]);
    char t[512];
    for (ssize_t n; (n = read(fd[0], t, sizeof t)) > 0;) said.append(t, (size_t) n);
    (void) close(fd[0]);
    int status = 0;
    (void) waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? said : "";
}
static bool has(const std::string &t, const char *what) { return t.find(what) != t.npos; }
static void deaths()
{
    CHECK(has(dies([] {
                  Rig r;
                  float *y = r.device<float>(4);
                  _exit((int) y[0]);
              }),
              "host code reads from device memory: device allocation"));
    CHECK(has(dies([] {
                  Rig r;
                  float *y = r.device<float>(4);
                  y[1] = 1;
              }),
              "host code writes to device memory"));
    CHECK(has(dies([] {
                  Rig r(1);
                  float *x = r.device<float>(4096), *y = r.device<float>(64);
                  twice(y, x, 2048, nullptr); // far past its page
                  (void) cudaDeviceSynchronize();
              }),
              "past the end of device allocation"));
    CHECK(has(dies([] {
                  Rig r(1);
                  float *y = r.device<float>(64), *h = r.pinned<float>(64);
                  (void) cudaFree(y);
                  r.dev.clear();
                  twice(y, h, 64, nullptr);
                  (void) cudaDeviceSynchronize();
              }),
              "device memory that is not allocated"));
}

// A program that knows nothing of all this is steered by its environment.
static int child()
{
    float *y, x[4] = { 0 };
    int n;
    if (cudaMalloc(&y, 2 << 20) != cudaErrorMemoryAllocation ||
        cudaMalloc(&y, 16) != cudaErrorNotPermitted)
        return 1;
    if (cudaMalloc(&y, 16) != cudaSuccess) return 1;
    if (cudaGetDeviceCount(&n) != cudaErrorUnknown) return 1;
    (void) cudaMemcpyAsync(y, x, 16, cudaMemcpyDefault, nullptr);
    return 0;
}
static void environment(const char *self)
{
    char log[] = "cudaemu-XXXXXX";
    int fd = mkstemp(log);
    std::string cmd =
                    std::string("CUDAEMU=seed=3,mem=1M,fail=2:800,fail=cudaGetDeviceCount:1:999,") +
                    "exit=86,log=" + log + " '" + self + "' child 2>/dev/null",
                all;
    int rc = std::system(cmd.c_str());
    char t[512];
    for (ssize_t n; (n = read(fd, t, sizeof t)) > 0;) all.append(t, (size_t) n);
    (void) close(fd);
    (void) unlink(log);
    CHECK(WIFEXITED(rc) && WEXITSTATUS(rc) == 86);
    CHECK(has(all, "report cudaMemcpyAsync") && has(all, "its source is not pinned"));
    CHECK(has(all, "calls cudaMalloc 3\n") && has(all, "reports 1\n") && has(all, "live 1\n"));
}

int main(int argc, char **argv)
{
    if (argc > 1) return child();
    cudaemu_quiet();
    const std::function<void()> groups[] = {
        kernels,
        bounds,
        half_types,
        orders,
        lateness,
        host_side,
        host_functions,
        threads,
        failures,
        blas,
        [] {
            CHECK(emu_from_c() == 0);
            CHECK(cudaemu_live() == 0);
        },
        [=] { environment(argv[0]); },
        deaths,
    };
    for (const auto &group : groups) {
        const int before = failed;
        group();
        passed += failed == before;
    }
    std::printf("# %d checks\n%d passed, %d failed, %d skipped\n", checks, passed, failed, skipped);
    return failed != 0;
}
