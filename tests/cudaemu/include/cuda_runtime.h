/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for CUDA's header (runtime API 12 and 13) where a .cu or device file is built by gcc, g++ or clang for the
 * emulation: the same source, run on the CPU. Only what the project uses; a call that is missing here does not
 * compile. Plain C sees the API, C++ sees kernels too. What runs how: cudaemu.h. */
#ifndef PS_CUDAEMU_RUNTIME_H
#define PS_CUDAEMU_RUNTIME_H
#include <stddef.h>
#include <stdint.h>

#define CUDART_VERSION 13000

#define CUDAEMU_ERRORS(X)                                                                   \
    X(cudaSuccess, 0, "no error")                                                           \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                         \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                        \
    X(cudaErrorInitializationError, 3, "initialization error")                              \
    X(cudaErrorCudartUnloading, 4, "driver shutting down")                                  \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                   \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")             \
    X(cudaErrorInsufficientDriver, 35,                                                      \
      "CUDA driver version is insufficient for CUDA runtime version")                       \
    X(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable") \
    X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                        \
    X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                         \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                \
    X(cudaErrorNoKernelImageForDevice, 209,                                                 \
      "no kernel image is available for execution on the device")                           \
    X(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                       \
    X(cudaErrorNotReady, 600, "device not ready")                                           \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")             \
    X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")        \
    X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")               \
    X(cudaErrorAssert, 710, "device-side assert triggered")                                 \
    X(cudaErrorHostMemoryAlreadyRegistered, 712,                                            \
      "part or all of the requested memory range is already mapped")                        \
    X(cudaErrorHostMemoryNotRegistered, 713,                                                \
      "pointer does not correspond to a registered memory region")                          \
    X(cudaErrorMisalignedAddress, 716, "misaligned address")                                \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                            \
    X(cudaErrorNotPermitted, 800, "operation not permitted")                                \
    X(cudaErrorNotSupported, 801, "operation not supported")                                \
    X(cudaErrorSystemNotReady, 802, "system not yet initialized")                           \
    X(cudaErrorSystemDriverMismatch, 803,                                                   \
      "system has unsupported display driver / cuda driver combination")                    \
    X(cudaErrorUnknown, 999, "unknown error")

typedef enum cudaError {
#define X(name, value, text) name = value,
    CUDAEMU_ERRORS(X)
#undef X
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrIntegrated = 18,
    cudaDevAttrAsyncEngineCount = 40,
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrCanUseHostPointerForRegisteredMem = 91,
    cudaDevAttrHostRegisterSupported = 99,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
};
struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int warpSize, maxThreadsPerBlock, major, minor, multiProcessorCount, l2CacheSize;
    int pciBusID, pciDeviceID, pciDomainID, asyncEngineCount;
};
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum {
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2,
    cudaHostAllocWriteCombined = 4,
};
enum {
    cudaHostRegisterDefault = 0,
    cudaHostRegisterPortable = 1,
    cudaHostRegisterMapped = 2,
    cudaHostRegisterIoMemory = 4,
    cudaHostRegisterReadOnly = 8,
};
enum {
    cudaDeviceScheduleAuto = 0,
    cudaDeviceScheduleSpin = 1,
    cudaDeviceScheduleYield = 2,
    cudaDeviceScheduleBlockingSync = 4,
};
enum { cudaEventRecordDefault = 0, cudaEventWaitDefault = 0 };

typedef struct CUstream_st *cudaStream_t; /* NULL: the legacy default stream */
typedef struct CUevent_st *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *ud);
#define CUDART_CB
#define cudaStreamLegacy ((cudaStream_t) 0x1)

#ifdef __cplusplus
#define CUDAEMU_OR(v) = v
extern "C" {
#else
#define CUDAEMU_OR(v)
#endif
const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

cudaError_t cudaDriverGetVersion(int *v);
cudaError_t cudaRuntimeGetVersion(int *v);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int dev);
cudaError_t cudaGetDevice(int *dev);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int dev);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int dev);
cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int dev);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);

cudaError_t cudaMalloc(void **p, size_t n);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMallocHost(void **p, size_t n);
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned flags);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p);

cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k);
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k,
                            cudaStream_t st CUDAEMU_OR(0));
cudaError_t cudaMemcpy2D(void *d, size_t dpitch, const void *s, size_t spitch, size_t width,
                         size_t height, enum cudaMemcpyKind k);
cudaError_t cudaMemcpy2DAsync(void *d, size_t dpitch, const void *s, size_t spitch, size_t width,
                              size_t height, enum cudaMemcpyKind k, cudaStream_t st CUDAEMU_OR(0));
cudaError_t cudaMemset(void *d, int v, size_t n);
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st CUDAEMU_OR(0));
cudaError_t cudaMemset2DAsync(void *d, size_t pitch, int v, size_t width, size_t height,
                              cudaStream_t st CUDAEMU_OR(0));

cudaError_t cudaStreamCreate(cudaStream_t *s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags CUDAEMU_OR(0));
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *ud);

cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s CUDAEMU_OR(0));
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b);

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute a, int v);
#ifdef __cplusplus
}
template <class T> cudaError_t cudaMalloc(T **p, size_t n) { return cudaMalloc((void **) p, n); }
template <class T> cudaError_t cudaMallocHost(T **p, size_t n)
{
    return cudaMallocHost((void **) p, n);
}
template <class T> cudaError_t cudaHostAlloc(T **p, size_t n, unsigned flags)
{
    return cudaHostAlloc((void **) p, n, flags);
}
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*k)(P...), enum cudaFuncAttribute a, int v)
{
    return cudaFuncSetAttribute((const void *) k, a, v);
}
#include "cudaemu_kernel.h"
#endif
#endif
