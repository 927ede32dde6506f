/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel sees, in C++: cuda_runtime.h includes it. Threads are fibers of one CPU thread, see cudaemu.h. */
#ifndef PS_CUDAEMU_KERNEL_H
#define PS_CUDAEMU_KERNEL_H
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* Blocks run one after the other, so a static is what a block shares. */
#define __shared__   static

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define CUDAEMU_VEC2(T, name, bytes)                            \
    struct __attribute__((aligned(bytes))) name##2 { T x, y; }; \
    static inline name##2 make_##name##2(T x, T y) { return { x, y }; }
#define CUDAEMU_VEC4(T, name, bytes)                                  \
    struct __attribute__((aligned(bytes))) name##4 { T x, y, z, w; }; \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return { x, y, z, w }; }
CUDAEMU_VEC2(float, float, 8)
CUDAEMU_VEC4(float, float, 16)
CUDAEMU_VEC2(int, int, 8)
CUDAEMU_VEC4(int, int, 16)
CUDAEMU_VEC2(unsigned, uint, 8)
CUDAEMU_VEC4(unsigned, uint, 16)
CUDAEMU_VEC2(unsigned short, ushort, 4)
CUDAEMU_VEC4(unsigned short, ushort, 8)
CUDAEMU_VEC2(unsigned char, uchar, 2)
CUDAEMU_VEC4(unsigned char, uchar, 4)
CUDAEMU_VEC2(double, double, 16)

namespace cudaemu
{
struct Thread {
    dim3 tid, bid, bdim, gdim;
    unsigned lane;
};
const Thread &me(); // who asks

enum WarpOp { SYNC, SHUFFLE, BALLOT, ACTIVE };
void block_barrier(int line);
int block_count(int line, int predicate); /* a barrier that adds up the predicates */
/* What lane `from` put, once all lanes of `mask` are here (SHUFFLE); the lanes whose v is not 0 (BALLOT). */
uint64_t warp(WarpOp op, unsigned mask, uint64_t v, int from, int line);
void fence();
void *dynamic_shared();
uint64_t ticks();
[[noreturn]] void trap(const char *what);
/* Between these two no other thread runs. */
void atomic_load(const void *p, void *v, size_t size);
void atomic_store(void *p, const void *v, size_t size);

/* A launch: `call` is run with a copy of args by each thread. */
struct Kernel {
    const char *name;
    const void *entry;
    void (*call)(const void *args);
    const void *args;
    size_t args_bytes;
};
void enqueue(const Kernel &k, dim3 grid, dim3 block, size_t smem, cudaStream_t s);

template <class... P, class... A>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
            cudaStream_t s, A... a)
{
    struct Args {
        void (*kernel)(P...);
        std::tuple<P...> p;
    } args = { kernel, std::tuple<P...>(a...) };
    static_assert(sizeof args <= 4096, "CUDA passes at most 4 KiB of arguments");
    auto call = [](const void *v) {
        const Args *x = static_cast<const Args *>(v);
        std::apply(x->kernel, x->p);
    };
    enqueue({ name, (const void *) kernel, call, &args, sizeof args }, grid, block, smem, s);
}

/* The one way to launch; the product's macro is this one here, and <<<>>> under nvcc. */
#define CUDAEMU_TEXT_(x) #x
#define CUDAEMU_TEXT(x)  CUDAEMU_TEXT_(x)
#define CUDAEMU_LAUNCH(kernel, grid, block, smem, stream, ...)                                    \
    cudaemu::launch("kernel " #kernel " (" __FILE__ ":" CUDAEMU_TEXT(__LINE__) ")", kernel, grid, \
                    block, smem, stream, ##__VA_ARGS__)
/* extern __shared__ type name[]; */
#define CUDAEMU_DYNAMIC_SHARED(type, name) \
    type *name = static_cast<type *>(cudaemu::dynamic_shared())

template <class T> uint64_t bits(T v)
{
    static_assert(sizeof v <= 8 && std::is_trivially_copyable<T>::value, "up to 8 bytes");
    uint64_t u = 0;
    std::memcpy(&u, &v, sizeof v);
    return u;
}
template <class T> T from_bits(uint64_t u)
{
    T v;
    std::memcpy(&v, &u, sizeof v);
    return v;
}
template <class T> T shuffle(unsigned mask, T v, int from, int width, int line)
{
    int lane = (int) me().lane, base = lane & ~(width - 1);
    return from_bits<T>(
        warp(SHUFFLE, mask, bits(v), from < base || from >= base + width ? lane : from, line));
}
template <class T> T shuffle_idx(unsigned mask, T v, int i, int width, int line)
{
    return shuffle(mask, v, (int) (me().lane & ~(unsigned) (width - 1)) + (i & (width - 1)), width,
                   line);
}
template <class T> T shuffle_up(unsigned mask, T v, unsigned d, int width, int line)
{
    return shuffle(mask, v, (int) (me().lane - d), width, line);
}
template <class T> T shuffle_down(unsigned mask, T v, unsigned d, int width, int line)
{
    return shuffle(mask, v, (int) (me().lane + d), width, line);
}
template <class T> T shuffle_xor(unsigned mask, T v, int x, int width, int line)
{
    return shuffle(mask, v, (int) me().lane ^ x, width, line);
}
template <class T, class F> T atomic(T *p, F f)
{
    T old;
    atomic_load(p, &old, sizeof old);
    T now = f(old);
    atomic_store(p, &now, sizeof now);
    return old;
}
} // namespace cudaemu

#define threadIdx (cudaemu::me().tid)
#define blockIdx  (cudaemu::me().bid)
#define blockDim  (cudaemu::me().bdim)
#define gridDim   (cudaemu::me().gdim)
static const int warpSize = 32;

#define __syncthreads()        cudaemu::block_barrier(__LINE__)
#define __syncthreads_or(p)    (cudaemu::block_count(__LINE__, (p) != 0) != 0)
#define __syncthreads_and(p)   (cudaemu::block_count(__LINE__, (p) == 0) == 0)
#define __syncthreads_count(p) cudaemu::block_count(__LINE__, (p) != 0)
#define __syncwarp(...) \
    ((void) cudaemu::warp(cudaemu::SYNC, cudaemu::mask_or_all(__VA_ARGS__), 0, 0, __LINE__))
#define __activemask()      ((unsigned) cudaemu::warp(cudaemu::ACTIVE, 0, 0, 0, __LINE__))
#define __ballot_sync(m, p) ((unsigned) cudaemu::warp(cudaemu::BALLOT, m, (p) != 0, 0, __LINE__))
#define __any_sync(m, p)    (__ballot_sync(m, p) != 0)
#define __all_sync(m, p)    (__ballot_sync(m, !(p)) == 0)
#define __shfl_sync(m, v, ...)                                                             \
    cudaemu::shuffle_args(cudaemu::shuffle_idx<std::decay_t<decltype(v)>>, m, v, __LINE__, \
                          __VA_ARGS__)
#define __shfl_up_sync(m, v, ...)                                                         \
    cudaemu::shuffle_args(cudaemu::shuffle_up<std::decay_t<decltype(v)>>, m, v, __LINE__, \
                          __VA_ARGS__)
#define __shfl_down_sync(m, v, ...)                                                         \
    cudaemu::shuffle_args(cudaemu::shuffle_down<std::decay_t<decltype(v)>>, m, v, __LINE__, \
                          __VA_ARGS__)
#define __shfl_xor_sync(m, v, ...)                                                         \
    cudaemu::shuffle_args(cudaemu::shuffle_xor<std::decay_t<decltype(v)>>, m, v, __LINE__, \
                          __VA_ARGS__)
namespace cudaemu
{
static inline unsigned mask_or_all(unsigned mask = ~0u) { return mask; }
template <class T, class D, class E>
T shuffle_args(T (*f)(unsigned, T, D, int, int), unsigned mask, T v, int line, E d, int width = 32)
{
    return f(mask, v, (D) d, width, line);
}
} // namespace cudaemu

#define __threadfence()        cudaemu::fence()
#define __threadfence_block()  ((void) 0)
#define __threadfence_system() cudaemu::fence()
#define __trap()               cudaemu::trap("__trap()")
#define __nanosleep(ns)        ((void) (ns))
static inline long long clock64() { return (long long) cudaemu::ticks(); }

#define CUDAEMU_ATOMICS(T)                                           \
    static inline T atomicAdd(T *p, T v)                             \
    {                                                                \
        return cudaemu::atomic(p, [=](T o) { return (T) (o + v); }); \
    }                                                                \
    static inline T atomicExch(T *p, T v)                            \
    {                                                                \
        return cudaemu::atomic(p, [=](T) { return v; });             \
    }
#define CUDAEMU_ATOMICS_INT(T)                                            \
    CUDAEMU_ATOMICS(T)                                                    \
    static inline T atomicSub(T *p, T v)                                  \
    {                                                                     \
        return cudaemu::atomic(p, [=](T o) { return (T) (o - v); });      \
    }                                                                     \
    static inline T atomicMin(T *p, T v)                                  \
    {                                                                     \
        return cudaemu::atomic(p, [=](T o) { return std::min(o, v); });   \
    }                                                                     \
    static inline T atomicMax(T *p, T v)                                  \
    {                                                                     \
        return cudaemu::atomic(p, [=](T o) { return std::max(o, v); });   \
    }                                                                     \
    static inline T atomicAnd(T *p, T v)                                  \
    {                                                                     \
        return cudaemu::atomic(p, [=](T o) { return (T) (o & v); });      \
    }                                                                     \
    static inline T atomicOr(T *p, T v)                                   \
    {                                                                     \
        return cudaemu::atomic(p, [=](T o) { return (T) (o | v); });      \
    }                                                                     \
    static inline T atomicXor(T *p, T v)                                  \
    {                                                                     \
        return cudaemu::atomic(p, [=](T o) { return (T) (o ^ v); });      \
    }                                                                     \
    static inline T atomicCAS(T *p, T cmp, T v)                           \
    {                                                                     \
        return cudaemu::atomic(p, [=](T o) { return o == cmp ? v : o; }); \
    }
CUDAEMU_ATOMICS(float)
CUDAEMU_ATOMICS(double)
CUDAEMU_ATOMICS_INT(int)
CUDAEMU_ATOMICS_INT(unsigned)
CUDAEMU_ATOMICS_INT(unsigned long long)
static inline unsigned atomicInc(unsigned *p, unsigned v)
{
    return cudaemu::atomic(p, [=](unsigned o) { return o >= v ? 0 : o + 1; });
}

template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T __ldca(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldlu(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
template <class T> static inline void __stcg(T *p, T v) { *p = v; }
template <class T> static inline void __stwt(T *p, T v) { *p = v; }

static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }
/* Names that the C library has, too: */
#define __expf(x)    std::exp((float) (x))
#define __logf(x)    std::log((float) (x))
#define __log2f(x)   std::log2((float) (x))
#define __powf(x, y) std::pow((float) (x), (float) (y))
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }
static inline float __saturatef(float a) { return a > 0 ? std::min(a, 1.0f) : 0; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
static inline int __float_as_int(float f) { return cudaemu::from_bits<int>(cudaemu::bits(f)); }
static inline unsigned __float_as_uint(float f)
{
    return cudaemu::from_bits<unsigned>(cudaemu::bits(f));
}
static inline float __int_as_float(int i) { return cudaemu::from_bits<float>(cudaemu::bits(i)); }
static inline float __uint_as_float(unsigned i)
{
    return cudaemu::from_bits<float>(cudaemu::bits(i));
}
static inline long long __double_as_longlong(double d)
{
    return cudaemu::from_bits<long long>(cudaemu::bits(d));
}
static inline double __longlong_as_double(long long i)
{
    return cudaemu::from_bits<double>(cudaemu::bits(i));
}
static inline int __float2int_rn(float f) { return (int) std::nearbyint(f); }
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned) ((uint64_t) a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long) (((unsigned __int128) a * b) >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned) x) : 32; }
static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;
static inline float min(float a, float b) { return std::fmin(a, b); }
static inline float max(float a, float b) { return std::fmax(a, b); }
static inline unsigned min(unsigned a, int b) { return std::min(a, (unsigned) b); }
static inline unsigned max(unsigned a, int b) { return std::max(a, (unsigned) b); }
static inline unsigned min(int a, unsigned b) { return std::min((unsigned) a, b); }
static inline unsigned max(int a, unsigned b) { return std::max((unsigned) a, b); }
#endif
