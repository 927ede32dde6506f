// SPDX-License-Identifier: Apache-2.0
/* What a GPU and its link do at best: copies from and to pinned memory, one way and both at once, reading the GPU's memory, and
 * plain cuBLAS. JSON on stdout; bench/gpu.sh holds the product against it.
 *
 *   gpu-probe [--mib N] [--gemm MxNxK]...     N: size of copies and of what is read (1024); without --gemm, OPT-6.7B's and 30B's layers
 *
 * Rates are medians over samples of several milliseconds between two events, and of several ways the best one. */
#include "kernels/cuda/cu.cuh"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cublas_v2.h>
#include <vector>

int ps_cuda_rc(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return 0;
    (void) fprintf(stderr, "gpu-probe: %s: %s (%s)\n", what, cudaGetErrorString(e),
                   cudaGetErrorName(e));
    exit(1);
}
int ps_cublas_rc(int status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS) return 0;
    (void) fprintf(stderr, "gpu-probe: %s: cuBLAS status %d\n", what, status);
    exit(1);
}
#define BLAS(call) (void) ps_cublas_rc(call, #call)
#define CUDA(call) (void) PS_CUDA(call)

enum { BLOCK = 256, SAMPLES = 7 };

struct alignas(16) quad {
    uint32_t x, y, z, w;
};

__global__ void read_all(const quad *p, size_t n, uint32_t *out)
{
    const size_t step = (size_t) gridDim.x * blockDim.x;
    uint32_t s = 0;
    size_t i = (size_t) blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        const quad a = p[i], b = p[i + step], c = p[i + 2 * step], d = p[i + 3 * step];
        s ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
        s ^= c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < n; i += step) s ^= p[i].x ^ p[i].y ^ p[i].z ^ p[i].w;
    if (s == 0x5eedf00d) *out = s; // so that the reads are not dropped
}

__global__ void fill(__half *p, size_t n)
{
    const size_t step = (size_t) gridDim.x * blockDim.x;
    for (size_t i = (size_t) blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        p[i] = __float2half_rn((float) ((i * 2654435761u >> 8) % 2048) / 1024.0f - 1.0f);
}

struct rig {
    ps_cuda_stream main, other;
    cudaEvent_t from, to, other_to;
    uint8_t *host[2], *gpu[2];
    size_t bytes;
    uint32_t *out;
};

/* Milliseconds of what `work` puts into the streams, which wait for the start and are waited for. */
template <class F> static double once(rig &g, F work)
{
    float ms = 0;
    CUDA(cudaEventRecord(g.from, ps_cuda_of(&g.main)));
    CUDA(cudaStreamWaitEvent(ps_cuda_of(&g.other), g.from, 0));
    work();
    CUDA(cudaEventRecord(g.other_to, ps_cuda_of(&g.other)));
    CUDA(cudaStreamWaitEvent(ps_cuda_of(&g.main), g.other_to, 0));
    CUDA(cudaEventRecord(g.to, ps_cuda_of(&g.main)));
    CUDA(cudaEventSynchronize(g.to));
    CUDA(cudaEventElapsedTime(&ms, g.from, g.to));
    return std::max(static_cast<double>(ms), 1e-6);
}
template <class F> static double median(rig &g, F work)
{
    double s[SAMPLES];
    (void) once(g, work); // warm
    for (double &x : s) x = once(g, work);
    std::sort(s, s + SAMPLES);
    return s[SAMPLES / 2];
}

static void copies(rig &g, cudaStream_t s, void *dst, const void *src, size_t piece)
{
    for (size_t at = 0; at < g.bytes; at += piece)
        CUDA(cudaMemcpyAsync(static_cast<uint8_t *>(dst) + at,
                             static_cast<const uint8_t *>(src) + at, std::min(piece, g.bytes - at),
                             cudaMemcpyDefault, s));
}

static void links(rig &g)
{
    const size_t pieces[] = { 1u << 20, 8u << 20, 64u << 20 };
    double best[4] = { 0, 0, 0, 0 };
    for (size_t piece : pieces) {
        const auto down = [&] { copies(g, ps_cuda_of(&g.main), g.gpu[0], g.host[0], piece); };
        const auto up = [&] { copies(g, ps_cuda_of(&g.other), g.host[1], g.gpu[1], piece); };
        const double mb = static_cast<double>(g.bytes) / 1e6, both = median(g, [&] {
                                                                  down();
                                                                  up();
                                                              });
        const double rate[] = { mb / median(g, down), mb / median(g, up), mb / both };
        for (int i = 0; i < 3; i++) best[i] = std::max(best[i], rate[i]);
    }
    printf("\"h2d_gb_per_s\": %.3f, \"d2h_gb_per_s\": %.3f, \"both_each_way_gb_per_s\": %.3f,\n",
           best[0], best[1], best[2]);
}

static void memory(rig &g, int processors)
{
    const size_t n = g.bytes / sizeof(quad);
    double best = 0;
    for (int per : { 4, 8, 16, 32 }) {
        const unsigned grid = static_cast<unsigned>(processors * per);
        const auto read = [&] {
            (void) PS_LAUNCH(&g.main, read_all, grid, BLOCK,
                             reinterpret_cast<const quad *>(g.gpu[0]), n, g.out);
        };
        best = std::max(best, static_cast<double>(g.bytes) / 1e6 / median(g, read));
    }
    printf("\"hbm_read_gb_per_s\": %.3f,\n", best);
}

struct shape {
    int m, n, k;
};

/* y[m,n] = x[m,k] . w[n,k]^T, f16, f32 sums; up to 64 rows over matrices in turn, which no cache holds. ns of one product. */
static double gemm_ns(rig &g, cublasHandle_t h, shape s, cudaDataType out)
{
    const size_t each = static_cast<size_t>(s.n) * s.k * 2;
    const size_t sets = s.m > 64 ? 1 : std::max<size_t>(1, std::min<size_t>(64, g.bytes / each));
    uint8_t *w = nullptr, *x = nullptr, *y = nullptr;
    const float one = 1, zero = 0;
    CUDA(cudaMalloc(&w, each * sets));
    CUDA(cudaMalloc(&x, static_cast<size_t>(s.m) * s.k * 2));
    CUDA(cudaMalloc(&y, static_cast<size_t>(s.m) * s.n * 4));
    (void) PS_LAUNCH(&g.main, fill, 512, BLOCK, reinterpret_cast<__half *>(w), each * sets / 2);
    (void) PS_LAUNCH(&g.main, fill, 512, BLOCK, reinterpret_cast<__half *>(x),
                     static_cast<size_t>(s.m) * s.k);
    size_t reps = sets;
    const auto work = [&] {
        for (size_t i = 0; i < reps; i++)
            BLAS(cublasGemmEx(h, CUBLAS_OP_T, CUBLAS_OP_N, s.n, s.m, s.k, &one, w + i % sets * each,
                              CUDA_R_16F, s.k, x, CUDA_R_16F, s.k, &zero, y, out, s.n,
                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    };
    (void) once(g, work);
    reps = std::max<size_t>(
        sets, std::min<size_t>(
                  50, static_cast<size_t>(4 * static_cast<double>(sets) / once(g, work)) + 1));
    const double ns = median(g, work) * 1e6 / static_cast<double>(reps);
    CUDA(cudaFree(w));
    CUDA(cudaFree(x));
    CUDA(cudaFree(y));
    return ns;
}

static void gemms(rig &g, const std::vector<shape> &shapes)
{
    cublasHandle_t h = nullptr;
    uint8_t *mem = nullptr;
    const size_t bytes = 32u << 20;
    double best = 0;
    BLAS(cublasCreate(&h));
    CUDA(cudaMalloc(&mem, bytes));
    BLAS(cublasSetStream(h, ps_cuda_of(&g.main)));
    BLAS(cublasSetWorkspace(h, mem, bytes));
    printf("\"gemm\": [");
    for (size_t i = 0; i < shapes.size(); i++) {
        const shape s = shapes[i];
        const double f16 = gemm_ns(g, h, s, CUDA_R_16F), f32 = gemm_ns(g, h, s, CUDA_R_32F);
        best = std::max(best, 2.0 * s.m * s.n * s.k / std::min(f16, f32));
        printf(
            "%s\n  {\"m\": %d, \"n\": %d, \"k\": %d, \"f16_out_ns\": %.0f, \"f32_out_ns\": %.0f}",
            i ? "," : "", s.m, s.n, s.k, f16, f32);
    }
    printf("],\n\"gemm_gflops\": %.1f", best);
    BLAS(cublasDestroy(h));
    CUDA(cudaFree(mem));
}

static std::vector<shape> layers()
{
    std::vector<shape> out;
    for (int h : { 4096, 7168 })
        for (int m : { 1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096 }) {
            out.push_back({ m, h, h });
            out.push_back({ m, 4 * h, h });
            out.push_back({ m, h, 4 * h });
        }
    return out;
}

static cudaStream_t stream()
{
    cudaStream_t s = nullptr;
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

int main(int argc, char **argv)
{
    rig g = {};
    std::vector<shape> shapes;
    g.bytes = static_cast<size_t>(1024) << 20;
    for (int i = 1; i < argc; i += 2) {
        shape s = {};
        unsigned long mib = 0;
        const char *v = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--mib") && sscanf(v, "%lu", &mib) == 1 && mib && mib <= 65536)
            g.bytes = mib << 20;
        else if (!strcmp(argv[i], "--gemm") && sscanf(v, "%dx%dx%d", &s.m, &s.n, &s.k) == 3 &&
                 s.m > 0 && s.n > 0 && s.k > 0)
            shapes.push_back(s);
        else {
            fprintf(stderr, "gpu-probe [--mib N] [--gemm MxNxK]...\n");
            return 2;
        }
    }
    if (shapes.empty()) shapes = layers();
    int processors = 0;
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    g.main.stream = stream();
    g.other.stream = stream();
    for (cudaEvent_t *e : { &g.from, &g.to, &g.other_to })
        CUDA(cudaEventCreateWithFlags(e, cudaEventDefault));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaHostAlloc(&g.host[i], g.bytes, cudaHostAllocDefault));
        CUDA(cudaMalloc(&g.gpu[i], g.bytes));
        memset(g.host[i], i + 1, g.bytes);
        CUDA(cudaMemcpyAsync(g.gpu[i], g.host[i], g.bytes, cudaMemcpyDefault, ps_cuda_of(&g.main)));
        CUDA(cudaStreamSynchronize(ps_cuda_of(&g.main)));
    }
    CUDA(cudaMalloc(&g.out, sizeof *g.out));
    printf("{");
    links(g);
    memory(g, processors);
    gemms(g, shapes);
    printf("}\n");
    for (int i = 0; i < 2; i++) {
        CUDA(cudaFreeHost(g.host[i]));
        CUDA(cudaFree(g.gpu[i]));
    }
    CUDA(cudaFree(g.out));
    for (cudaEvent_t e : { g.from, g.to, g.other_to }) CUDA(cudaEventDestroy(e));
    for (ps_cuda_stream *s : { &g.main, &g.other }) CUDA(cudaStreamDestroy(ps_cuda_of(s)));
    return 0;
}
