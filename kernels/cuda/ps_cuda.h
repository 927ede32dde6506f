/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA part as C code sees it: no CUDA types, nothing to link.
 *
 * All that needs CUDA is one module, penstock-cuda.so, which is opened at run time: the program starts and works
 * where there is no driver, no GPU and no CUDA library. The module brings its rows of the kernel table and the few
 * calls by which a device uses them. Functions return 0 or a negative error; what failed is then in error(). They may be
 * called from any thread; a struct ps_cuda_stream belongs to one thread at a time. */
#ifndef PS_CUDA_H
#define PS_CUDA_H
#include "kernels/kern.h"

struct ps_detail;

/* What a row finds in span->stream. The module fills all but the memory, which is the caller's: of the GPU, except `err`,
 * which may be pinned host memory. A stream for copies alone has none. */
enum { PS_CUDA_COUNTERS = 1 << 16 };
struct ps_cuda_stream {
    void *stream;   /* cudaStream_t */
    void *blas;     /* of linear_lt.cu */
    void *blas_mem; /* what the library works in */
    size_t blas_bytes;
    uint32_t *counters; /* [PS_CUDA_COUNTERS], zero; kernels that count leave zeroes behind */
    int32_t
        *err; /* [PS_OP__COUNT], zero: the error that a kernel of this op has found in its data */
    uint32_t sm;              /* 75, 90, ... */
    uint64_t launches, calls; /* of kernels, of library products: since the stream was opened */
};

struct ps_cuda_info {
    char name[128], pci[16]; /* pci: "0000:3b:00.0", as in /sys/bus/pci/devices */
    uint32_t sm, processors;
    uint64_t total_bytes, free_bytes;
    uint32_t driver, runtime; /* CUDA versions, 1000 * major + 10 * minor */
};

enum { PS_CUDA_ABI = 3, PS_CUDA_SM_MIN = 75 };
struct ps_cuda_api {
    uint32_t abi;
    const struct ps_kern *rows;
    /* -ENODEV: no driver, no device, or a driver too old for this module; -PS_EUNSUPPORTED: kernels cannot read pinned
     * memory where it lies (WSL); error() says which. */
    int (*info)(struct ps_cuda_info *ret);
    int (*alloc)(size_t bytes, void **ret); /* of the GPU, 256-byte aligned */
    int (*free)(void *p);
    int (*pin)(void *p, size_t bytes); /* host memory, so that the GPU may copy and read it */
    int (*unpin)(void *p);
    int (*open)(struct ps_cuda_stream *s); /* the memory is set already; zeroes counters and err */
    int (*close)(struct ps_cuda_stream *s);
    /* In the stream's turn, in any direction, between the GPU's and pinned memory. */
    int (*copy)(struct ps_cuda_stream *s, void *dst, const void *src, size_t bytes);
    int (*copy_2d)(struct ps_cuda_stream *s, void *dst, size_t dst_pitch, const void *src,
                   size_t src_pitch, size_t row_bytes, size_t rows);
    int (*sync)(struct ps_cuda_stream *s);
    /* Events: a place in a stream. wait: what is put into s from now on comes after it. ns: between two that were reached. */
    int (*event_make)(void **ret);
    int (*event_free)(void *event);
    int (*event_put)(struct ps_cuda_stream *s, void *event);
    int (*event_wait)(struct ps_cuda_stream *s, void *event);
    int (*event_sync)(void *event);
    int (*event_ns)(void *from, void *to, uint64_t *ret);
    /* This thread's last failure: the call, CUDA's name for it, and its words. "" when nothing failed. */
    const char *(*error)(void);
};

/* The module's one symbol. */
#define PS_CUDA_SYMBOL "ps_cuda_module"
const struct ps_cuda_api *ps_cuda_module(void);

/* Opens the module at `path`, or (NULL) the one beside the program, else in the library folder, and adds its rows to the
 * kernel table; once. -ENOENT: there is none; -ENODEV: it is there and cannot be opened (a CUDA library is missing);
 * -PS_EUNSUPPORTED: it is another version's. Says nothing of a GPU. */
int ps_cuda_load(const char *path, const struct ps_cuda_api **ret, struct ps_detail *dt)
    __attribute__((warn_unused_result));
/* Whether the driver's library is there. To be asked first: the module brings cuBLAS, some 100 MiB of this process for nothing
 * where no driver is. */
bool ps_cuda_driver(void);
#endif
