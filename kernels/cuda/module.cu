// SPDX-License-Identifier: Apache-2.0
/* The module's surface: its rows, and the calls of ps_cuda.h. */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/rows.cuh"
#include <cctype>
#include <cstdio>
#include <cstring>
#include <cublasLt.h>

static thread_local char failure[512];

int ps_cuda_rc(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return 0;
    (void) cudaGetLastError(); // told; a launch that succeeds later must not find it
    (void) snprintf(failure, sizeof failure, "%s: %s (%s)", what, cudaGetErrorString(e),
                    cudaGetErrorName(e));
    switch (e) {
    case cudaErrorMemoryAllocation: return -ENOMEM;
    case cudaErrorInvalidValue: return -EINVAL;
    case cudaErrorNotSupported: return -PS_EUNSUPPORTED;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver: return -ENODEV;
    default: return -PS_EDEVICE;
    }
}

int ps_cublas_rc(int status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS) return 0;
    const cudaError_t e = cudaGetLastError(); // what cuBLAS itself met, or a kernel before it
    (void) snprintf(failure, sizeof failure, "%s: cuBLAS status %d%s%s", what, status,
                    e == cudaSuccess ? "" : ", ", e == cudaSuccess ? "" : cudaGetErrorName(e));
    return status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -PS_EDEVICE;
}

static int info(ps_cuda_info *ret)
{
    ps_cuda_info i = {};
    int n = 0, major = 0, minor = 0, processors = 0, in_place = 0, driver = 0, runtime = 0;
    size_t free_bytes = 0, total = 0;
    (void) cudaDriverGetVersion(&driver);
    (void) cudaRuntimeGetVersion(&runtime);
    int r = PS_CUDA(cudaGetDeviceCount(&n));
    if (r >= 0 && n == 0) r = ps_cuda_rc(cudaErrorNoDevice, "cudaGetDeviceCount");
    if (r >= 0) r = PS_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (r >= 0) r = PS_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    if (r >= 0) r = PS_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    if (r >= 0)
        r = PS_CUDA(
            cudaDeviceGetAttribute(&in_place, cudaDevAttrCanUseHostPointerForRegisteredMem, 0));
    if (r >= 0 && !in_place)
        r = ps_cuda_rc(cudaErrorNotSupported, "kernels that read pinned host memory in place");
    if (r >= 0) r = PS_CUDA(cudaDeviceGetPCIBusId(i.pci, sizeof i.pci, 0));
    cudaDeviceProp p = {};
    if (r >= 0) r = PS_CUDA(cudaGetDeviceProperties(&p, 0));
    if (r >= 0) r = PS_CUDA(cudaMemGetInfo(&free_bytes, &total));
    if (r < 0) return r;
    (void) snprintf(i.name, sizeof i.name, "%.127s", p.name);
    for (char *c = i.pci; *c; c++) *c = (char) tolower(*c); // sysfs has small letters
    i.sm = (uint32_t) (major * 10 + minor);
    i.processors = (uint32_t) processors;
    i.free_bytes = free_bytes;
    i.total_bytes = total;
    i.driver = (uint32_t) driver;
    i.runtime = (uint32_t) runtime;
    *ret = i;
    return 0;
}

static int alloc(size_t bytes, void **ret) { return PS_CUDA(cudaMalloc(ret, bytes)); }
static int release(void *p) { return PS_CUDA(cudaFree(p)); }

static int pin(void *p, size_t bytes)
{
    return PS_CUDA(cudaHostRegister(p, bytes, cudaHostRegisterDefault));
}
static int unpin(void *p) { return PS_CUDA(cudaHostUnregister(p)); }

static int close_stream(ps_cuda_stream *s)
{
    int r2 = 0;
    const int r = ps_linear_lt_close(s);
    if (s->stream) r2 = PS_CUDA(cudaStreamDestroy(ps_cuda_of(s)));
    s->stream = nullptr;
    return r < 0 ? r : r2;
}

/* What failed first is what error() tells. */
static void give_up_stream(ps_cuda_stream *s)
{
    char words[sizeof failure];
    memcpy(words, failure, sizeof words);
    (void) close_stream(s);
    memcpy(failure, words, sizeof words);
}

static int open_stream(ps_cuda_stream *s)
{
    cudaStream_t stream = nullptr;
    int major = 0, minor = 0;
    int r = PS_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (r >= 0) r = PS_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    if (r >= 0) r = PS_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (r < 0) return r;
    s->stream = stream;
    s->blas = nullptr;
    s->sm = (uint32_t) (major * 10 + minor);
    s->launches = s->calls = 0;
    if (!s->counters) return 0;
    r = PS_CUDA(cudaMemsetAsync(s->counters, 0, PS_CUDA_COUNTERS * sizeof *s->counters, stream));
    if (r >= 0) r = PS_CUDA(cudaMemsetAsync(s->err, 0, PS_OP__COUNT * sizeof *s->err, stream));
    if (r >= 0) r = ps_linear_lt_open(s);
    if (r < 0) give_up_stream(s);
    return r;
}

static int copy(ps_cuda_stream *s, void *dst, const void *src, size_t bytes)
{
    return PS_CUDA(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, ps_cuda_of(s)));
}
static int copy_2d(ps_cuda_stream *s, void *dst, size_t dst_pitch, const void *src,
                   size_t src_pitch, size_t row_bytes, size_t rows)
{
    return PS_CUDA(cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, row_bytes, rows,
                                     cudaMemcpyDefault, ps_cuda_of(s)));
}
static int sync(ps_cuda_stream *s) { return PS_CUDA(cudaStreamSynchronize(ps_cuda_of(s))); }

static int event_make(void **ret)
{
    cudaEvent_t e = nullptr;
    int r = PS_CUDA(cudaEventCreateWithFlags(&e, cudaEventBlockingSync));
    *ret = e;
    return r;
}
static int event_free(void *e) { return PS_CUDA(cudaEventDestroy(static_cast<cudaEvent_t>(e))); }
static int event_put(ps_cuda_stream *s, void *e)
{
    return PS_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(e), ps_cuda_of(s)));
}
static int event_wait(ps_cuda_stream *s, void *e)
{
    return PS_CUDA(cudaStreamWaitEvent(ps_cuda_of(s), static_cast<cudaEvent_t>(e), 0));
}
static int event_sync(void *e)
{
    return PS_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(e)));
}
static int event_ns(void *from, void *to, uint64_t *ret)
{
    float ms = 0;
    int r = PS_CUDA(
        cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)));
    *ret = ms > 0 ? static_cast<uint64_t>(static_cast<double>(ms) * 1e6) : 0;
    return r;
}
static const char *error() { return failure; }

/* Where the rows of the CPU have scratch. */
static size_t no_scratch(const void *) { return 0; }
#define ROW(o, takes, scratch)                                                              \
    {                                                                                       \
        PS_OP_##o, #o "_cuda", PS_PLACE_CUDA, PS_CUDA_SM_MIN, takes, ps_##o##_cuda, scratch \
    }
static const ps_kern rows[] = {
    ROW(embed, nullptr, nullptr),
    ROW(layernorm, nullptr, nullptr),
    ROW(convert, nullptr, nullptr),
    ROW(linear, nullptr, no_scratch),
    ROW(kv_round, nullptr, nullptr),
    ROW(attn_prompt, ps_attn_prompt_cuda_takes, ps_attn_prompt_cuda_scratch),
    ROW(attn_decode, ps_attn_decode_cuda_takes, ps_attn_decode_cuda_scratch),
    ROW(kv_compact, nullptr, no_scratch),
    ROW(kv_replay, nullptr, nullptr),
    ROW(sample, ps_sample_cuda_takes, ps_sample_cuda_scratch),
    {},
};

static const ps_cuda_api api = { PS_CUDA_ABI, rows,       info,        alloc,        release,
                                 pin,         unpin,      open_stream, close_stream, copy,
                                 copy_2d,     sync,       event_make,  event_free,   event_put,
                                 event_wait,  event_sync, event_ns,    error };

extern "C" __attribute__((visibility("default"))) const ps_cuda_api *ps_cuda_module(void)
{
    return &api;
}
