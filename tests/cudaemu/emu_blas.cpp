// SPDX-License-Identifier: Apache-2.0
// cuBLAS and cuBLASLt: one piece of work per call, whose ranges are known. Each element is a sum over ascending k in f32. The
// workspace is written by every call, so that two streams that share one are found.
#include "cublasLt.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "emu_order.h"

struct cublasContext {
    cudaStream_t stream = nullptr;
    void *work = nullptr;
    size_t work_bytes = 0;
    void *own = nullptr; // memory that it took because it was given none
};
struct cudaemu_lt {
    int unused;
};
// What the opaque structs hold.
struct cudaemu_lt_desc {
    uint64_t made; // ~0 until then
    cublasComputeType_t compute;
    int32_t ta, tb, bias_type;
    uint32_t epilogue;
    const void *bias;
};
struct cudaemu_lt_layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};
enum { LT_A, LT_B, LT_C, LT_D, LT_MATRICES };
struct cudaemu_lt_pref {
    uint64_t work_bytes;
    uint32_t align[LT_MATRICES];
};
// What it was chosen for; a product of another kind is not computed by it.
struct cudaemu_lt_algo {
    uint64_t made, problem, work_bytes;
    uint32_t align[LT_MATRICES], bias_align;
};

namespace cudaemu
{
enum : size_t { OWN_WORK = 4 << 20 };

static size_t bytes(cudaDataType t) { return t == CUDA_R_32F ? 4 : 2; }
static bool known_type(cudaDataType t)
{
    return t == CUDA_R_32F || t == CUDA_R_16F || t == CUDA_R_16BF;
}
static float get(cudaDataType t, const void *p, size_t i)
{
    if (t == CUDA_R_32F) return static_cast<const float *>(p)[i];
    uint16_t u = static_cast<const uint16_t *>(p)[i];
    return t == CUDA_R_16F ? f16_to_f32(u) : bf16_to_f32(u);
}
static void put(cudaDataType t, void *p, size_t i, float v)
{
    if (t == CUDA_R_32F)
        static_cast<float *>(p)[i] = v;
    else
        static_cast<uint16_t *>(p)[i] = t == CUDA_R_16F ? f32_to_f16(v) : f32_to_bf16(v);
}

struct Matrix { // column-major
    const void *p;
    cudaDataType type;
    size_t rows, cols, ld;
    float at(size_t r, size_t c) const { return get(type, p, c * ld + r); }
    Addr lo() const { return reinterpret_cast<Addr>(p); }
    void ranges(std::vector<Range> *to, bool write) const
    {
        size_t b = bytes(type);
        if (rows == ld || cols == 1)
            to->push_back({ lo(), lo() + ((cols - 1) * ld + rows) * b, write });
        else
            for (size_t c = 0; c < cols; c++)
                to->push_back({ lo() + c * ld * b, lo() + (c * ld + rows) * b, write });
    }
};
struct Product {
    Matrix a, b, c, d; // c may be NULL
    bool ta, tb, relu;
    float alpha, beta;
    const void *bias;
    cudaDataType bias_type;
};
static void compute(const Product &x)
{
    size_t k = x.ta ? x.a.rows : x.a.cols;
    std::vector<float> row(k), col(x.d.cols * k);
    for (size_t j = 0; j < x.d.cols; j++)
        for (size_t i = 0; i < k; i++) col[j * k + i] = x.tb ? x.b.at(j, i) : x.b.at(i, j);
    for (size_t m = 0; m < x.d.rows; m++) {
        for (size_t i = 0; i < k; i++) row[i] = x.ta ? x.a.at(i, m) : x.a.at(m, i);
        for (size_t n = 0; n < x.d.cols; n++) {
            float sum = 0;
            for (size_t i = 0; i < k; i++) sum += row[i] * col[n * k + i];
            sum *= x.alpha;
            if (x.beta != 0) sum += x.beta * x.c.at(m, n);
            if (x.bias) sum += get(x.bias_type, x.bias, m);
            if (x.relu && sum < 0) sum = 0;
            put(x.d.type, const_cast<void *>(x.d.p), n * x.d.ld + m, sum);
        }
    }
}

// Device memory, or the product is refused: cuBLAS would fault.
static bool on_the_device(const std::vector<Range> &ranges)
{
    for (const Range &r : ranges) {
        const Piece *d = device_piece(r.lo);
        if (d && r.hi <= d->hi) continue;
        report("a matrix product leaves device memory: %zu bytes at %s", (size_t) (r.hi - r.lo),
               describe(r.lo).c_str());
        return false;
    }
    return true;
}
static cublasStatus_t queue(const char *call, cudaStream_t s, const std::vector<Product> &all,
                            void *work, size_t work_bytes)
{
    std::vector<Range> ranges;
    for (const Product &x : all) {
        if (!known_type(x.a.type) || x.a.type != x.b.type || !known_type(x.d.type))
            return CUBLAS_STATUS_NOT_SUPPORTED;
        if (x.a.type != x.d.type && x.d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (x.a.ld < x.a.rows || x.b.ld < x.b.rows || x.d.ld < x.d.rows)
            return CUBLAS_STATUS_INVALID_VALUE;
        if (x.d.rows == 0 || x.d.cols == 0) return CUBLAS_STATUS_SUCCESS;
        x.a.ranges(&ranges, false);
        x.b.ranges(&ranges, false);
        if (x.beta != 0) x.c.ranges(&ranges, false);
        if (x.bias) {
            Addr lo = reinterpret_cast<Addr>(x.bias);
            ranges.push_back({ lo, lo + x.d.rows * bytes(x.bias_type), false });
        }
        x.d.ranges(&ranges, true);
    }
    Addr w = reinterpret_cast<Addr>(work);
    if (work_bytes) ranges.push_back({ w, w + work_bytes, true });
    if (!valid(s) || !on_the_device(ranges)) return CUBLAS_STATUS_EXECUTION_FAILED;
    const Product &x = all[0];
    std::string what = plain(call) + " " + std::to_string(x.d.rows) + " x " +
                       std::to_string(x.d.cols) + " x " +
                       std::to_string(x.ta ? x.a.rows : x.a.cols);
    submit(s, what, std::move(ranges), [=](Op &) {
        for (const Product &p : all) compute(p);
        if (work_bytes) std::memset(work, 0xff, work_bytes);
    });
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t status(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation: return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorNoDevice:
    case cudaErrorInitializationError: return CUBLAS_STATUS_NOT_INITIALIZED;
    case cudaErrorNotSupported: return CUBLAS_STATUS_NOT_SUPPORTED;
    case cudaErrorInvalidValue: return CUBLAS_STATUS_INVALID_VALUE;
    case cudaErrorNoKernelImageForDevice: return CUBLAS_STATUS_ARCH_MISMATCH;
    default: return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}
#define CUDAEMU_BLAS_CALL()        \
    cudaemu::Call call_(__func__); \
    if (call_.err != cudaSuccess) return status(call_.err)

static float scalar(const void *p) { return *static_cast<const float *>(p); }
static cublasStatus_t gemm(const char *call, cublasHandle_t h, cublasOperation_t ta,
                           cublasOperation_t tb, int m, int n, int k, const void *alpha, Matrix a,
                           long long stride_a, Matrix b, long long stride_b, const void *beta,
                           Matrix c, long long stride_c, int count, cublasComputeType_t type)
{
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || count < 0 || !alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
    if (type != CUBLAS_COMPUTE_32F && type != CUBLAS_COMPUTE_32F_PEDANTIC)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (m == 0 || n == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;
    if (!h->work && !h->own && device_alloc(OWN_WORK, &h->own) != cudaSuccess)
        return CUBLAS_STATUS_ALLOC_FAILED;
    auto dim = [](int x) { return (size_t) x; };
    a.rows = dim(ta ? k : m), a.cols = dim(ta ? m : k);
    b.rows = dim(tb ? n : k), b.cols = dim(tb ? k : n);
    c.rows = dim(m), c.cols = dim(n);
    std::vector<Product> all;
    for (long long i = 0; i < count; i++) {
        auto shift = [i](Matrix x, long long stride) {
            x.p = static_cast<const char *>(x.p) + i * stride * (long long) bytes(x.type);
            return x;
        };
        Matrix d = shift(c, stride_c);
        all.push_back({ shift(a, stride_a), shift(b, stride_b), d, d, ta == CUBLAS_OP_T,
                        tb == CUBLAS_OP_T, false, scalar(alpha), scalar(beta), nullptr,
                        CUDA_R_32F });
    }
    return queue(call, h->stream, all, h->work ? h->work : h->own,
                 h->work ? h->work_bytes : (size_t) OWN_WORK);
}
template <class T> static cublasStatus_t take(T *to, const void *v, size_t size)
{
    if (size != sizeof *to) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(to, v, size);
    return CUBLAS_STATUS_SUCCESS;
}
enum : uint64_t { MADE = 0x6d616465 };
template <class T, class O> static T *inside(O *opaque)
{
    static_assert(sizeof(T) <= sizeof *opaque, "");
    return reinterpret_cast<T *>(opaque);
}
struct LtProblem {
    const cudaemu_lt_desc *d;
    const cudaemu_lt_layout *of[LT_MATRICES];
    // As the library documents it: 16-bit A and B go with C, D and bias of their type, or of f32; f32 with f32.
    cublasStatus_t check() const
    {
        const cudaDataType a = of[LT_A]->type, out = of[LT_D]->type;
        if (d->made != MADE) return CUBLAS_STATUS_INVALID_VALUE;
        if (of[LT_B]->type != a || of[LT_C]->type != out || (out != a && out != CUDA_R_32F) ||
            (d->bias_type != -1 && d->bias_type != (int32_t) out))
            return CUBLAS_STATUS_NOT_SUPPORTED;
        return of[LT_C]->rows != of[LT_D]->rows || of[LT_C]->cols != of[LT_D]->cols
                   ? CUBLAS_STATUS_INVALID_VALUE
                   : CUBLAS_STATUS_SUCCESS;
    }
    uint64_t hash() const
    {
        uint64_t h = d->compute;
        auto add = [&h](uint64_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15ull + (h >> 29); };
        for (const cudaemu_lt_layout *l : of)
            add(l->type), add(l->rows), add(l->cols), add((uint64_t) l->ld);
        add((uint64_t) d->ta), add((uint64_t) d->tb), add(d->epilogue),
            add((uint64_t) d->bias_type);
        return h;
    }
};
static uint32_t bias_align(const cudaemu_lt_desc *d) // up to 256
{
    const Addr a = reinterpret_cast<Addr>(d->bias) | 256;
    return d->bias ? (uint32_t) (a & -a) : 0;
}
static bool lt_refuses;
static Matrix matrix(const void *p, cudaDataType t, int ld) { return { p, t, 0, 0, (size_t) ld }; }
} // namespace cudaemu

using namespace cudaemu;
extern "C" {
const char *cublasGetStatusName(cublasStatus_t s)
{
    switch (s) {
#define S(x) \
    case x: return #x
        S(CUBLAS_STATUS_SUCCESS);
        S(CUBLAS_STATUS_NOT_INITIALIZED);
        S(CUBLAS_STATUS_ALLOC_FAILED);
        S(CUBLAS_STATUS_INVALID_VALUE);
        S(CUBLAS_STATUS_ARCH_MISMATCH);
        S(CUBLAS_STATUS_MAPPING_ERROR);
        S(CUBLAS_STATUS_EXECUTION_FAILED);
        S(CUBLAS_STATUS_INTERNAL_ERROR);
        S(CUBLAS_STATUS_NOT_SUPPORTED);
        S(CUBLAS_STATUS_LICENSE_ERROR);
#undef S
    }
    return "unknown";
}
const char *cublasGetStatusString(cublasStatus_t s) { return cublasGetStatusName(s); }
cublasStatus_t cublasCreate_v2(cublasHandle_t *h)
{
    CUDAEMU_BLAS_CALL();
    *h = new cublasContext;
    handles++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
    CUDAEMU_BLAS_CALL();
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    counted_sync(); // as documented
    reach_all();
    if (h->own) (void) device_free(h->own);
    delete h;
    handles--;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int *version)
{
    CUDAEMU_BLAS_CALL();
    *version = 130000;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
    CUDAEMU_BLAS_CALL();
    h->stream = s;
    h->work = nullptr; // as documented: back to its own workspace
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t h, cudaStream_t *s)
{
    CUDAEMU_BLAS_CALL();
    *s = h->stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t n)
{
    CUDAEMU_BLAS_CALL();
    if (reinterpret_cast<Addr>(p) % 256) return CUBLAS_STATUS_INVALID_VALUE;
    h->work = p;
    h->work_bytes = n;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t mode)
{
    CUDAEMU_BLAS_CALL();
    return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t)
{
    CUDAEMU_BLAS_CALL();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    CUDAEMU_BLAS_CALL();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                              int n, int k, const float *alpha, const float *a, int lda,
                              const float *b, int ldb, const float *beta, float *c, int ldc)
{
    CUDAEMU_BLAS_CALL();
    return gemm(__func__, h, ta, tb, m, n, k, alpha, matrix(a, CUDA_R_32F, lda), 0,
                matrix(b, CUDA_R_32F, ldb), 0, beta, matrix(c, CUDA_R_32F, ldc), 0, 1,
                CUBLAS_COMPUTE_32F);
}
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                            int n, int k, const void *alpha, const void *a, cudaDataType at,
                            int lda, const void *b, cudaDataType bt, int ldb, const void *beta,
                            void *c, cudaDataType ct, int ldc, cublasComputeType_t type,
                            cublasGemmAlgo_t)
{
    CUDAEMU_BLAS_CALL();
    return gemm(__func__, h, ta, tb, m, n, k, alpha, matrix(a, at, lda), 0, matrix(b, bt, ldb), 0,
                beta, matrix(c, ct, ldc), 0, 1, type);
}
cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType at, int lda, long long stride_a, const void *b,
    cudaDataType bt, int ldb, long long stride_b, const void *beta, void *c, cudaDataType ct,
    int ldc, long long stride_c, int count, cublasComputeType_t type, cublasGemmAlgo_t)
{
    CUDAEMU_BLAS_CALL();
    return gemm(__func__, h, ta, tb, m, n, k, alpha, matrix(a, at, lda), stride_a,
                matrix(b, bt, ldb), stride_b, beta, matrix(c, ct, ldc), stride_c, count, type);
}

// ---- cuBLASLt

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    CUDAEMU_BLAS_CALL();
    counted_sync(); // as documented
    reach_all();
    delete h;
    handles--;
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) { return 130000; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    CUDAEMU_BLAS_CALL();
    *h = new cudaemu_lt();
    handles++;
    return CUBLAS_STATUS_SUCCESS;
}
void cudaemu_lt_refuse(bool refuse) { lt_refuses = refuse; }
cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc, cublasComputeType_t type,
                                      cudaDataType scale)
{
    CUDAEMU_BLAS_CALL();
    if (scale != CUDA_R_32F || (type != CUBLAS_COMPUTE_32F && type != CUBLAS_COMPUTE_32F_PEDANTIC))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *inside<cudaemu_lt_desc>(desc) = { MADE, type, 0, 0, -1, CUBLASLT_EPILOGUE_DEFAULT, nullptr };
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t a, const void *v,
                                              size_t size)
{
    CUDAEMU_BLAS_CALL();
    cudaemu_lt_desc *d = inside<cudaemu_lt_desc>(desc);
    switch (a) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(&d->ta, v, size);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(&d->tb, v, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(&d->epilogue, v, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(&d->bias, v, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(&d->bias_type, v, size);
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t l, cudaDataType type, uint64_t rows,
                                        uint64_t cols, int64_t ld)
{
    CUDAEMU_BLAS_CALL();
    *inside<cudaemu_lt_layout>(l) = { type, rows, cols, ld };
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t p)
{
    CUDAEMU_BLAS_CALL();
    *inside<cudaemu_lt_pref>(p) = { 0, { 256, 256, 256, 256 } };
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t a,
                                                    const void *v, size_t size)
{
    CUDAEMU_BLAS_CALL();
    cudaemu_lt_pref *p = inside<cudaemu_lt_pref>(pref);
    if (a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return take(&p->work_bytes, v, size);
    return take(&p->align[a - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], v, size);
}
static LtProblem problem(cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out)
{
    auto of = [](cublasLtMatrixLayout_t l) { return inside<cudaemu_lt_layout>(l); };
    return { inside<cudaemu_lt_desc>(d), { of(a), of(b), of(c), of(out) } };
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t pref, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *ret_n)
{
    *ret_n = 0;
    CUDAEMU_BLAS_CALL();
    if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const LtProblem x = problem(d, a, b, c, out);
    const cublasStatus_t st = x.check();
    if (st != CUBLAS_STATUS_SUCCESS || lt_refuses)
        return lt_refuses ? CUBLAS_STATUS_NOT_SUPPORTED : st;
    const cudaemu_lt_pref *p = inside<cudaemu_lt_pref>(pref);
    results[0] = {};
    cudaemu_lt_algo *algo = inside<cudaemu_lt_algo>(&results[0].algo);
    *algo = { MADE, x.hash(), p->work_bytes, {}, bias_align(x.d) };
    std::memcpy(algo->align, p->align, sizeof algo->align);
    results[0].workspaceSize = p->work_bytes;
    *ret_n = 1;
    return CUBLAS_STATUS_SUCCESS;
}
// An algorithm reads and writes as many bytes at a time as the addresses allowed that it was chosen for.
static bool fits(const cudaemu_lt_algo *algo, const LtProblem &x, const void *const at[LT_MATRICES],
                 const void *work, size_t work_bytes)
{
    const char *what = algo->made != MADE || algo->problem != x.hash() ? "for another product"
                       : work_bytes < algo->work_bytes || reinterpret_cast<Addr>(work) % 256
                           ? "with more memory to work in"
                       : bias_align(x.d) < algo->bias_align ? "for another bias"
                                                            : nullptr;
    for (int i = 0; i < LT_MATRICES && !what; i++)
        if (reinterpret_cast<Addr>(at[i]) % algo->align[i]) what = "for other addresses";
    if (what) report("cublasLtMatmul: the algorithm was chosen %s", what);
    return !what;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *out, cublasLtMatrixLayout_t lout,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t work_bytes,
                              cudaStream_t s)
{
    CUDAEMU_BLAS_CALL();
    if (!h || !algo) return CUBLAS_STATUS_NOT_INITIALIZED;
    const LtProblem p = problem(desc, la, lb, lc, lout);
    const cublasStatus_t st = p.check();
    if (st != CUBLAS_STATUS_SUCCESS) return st;
    const void *const at[LT_MATRICES] = { a, b, c, out };
    if (!fits(inside<const cudaemu_lt_algo>(algo), p, at, work, work_bytes) ||
        (c == out && std::memcmp(lc, lout, sizeof *lc) != 0))
        return CUBLAS_STATUS_INVALID_VALUE;
    auto of = [&](int i) {
        const cudaemu_lt_layout *l = p.of[i];
        return Matrix { at[i], l->type, l->rows, l->cols, (size_t) l->ld };
    };
    const cudaemu_lt_desc *d = p.d;
    Product x = { of(LT_A),
                  of(LT_B),
                  of(LT_C),
                  of(LT_D),
                  d->ta != 0,
                  d->tb != 0,
                  (d->epilogue & CUBLASLT_EPILOGUE_RELU) != 0,
                  scalar(alpha),
                  scalar(beta),
                  nullptr,
                  p.of[LT_D]->type };
    if (d->epilogue & CUBLASLT_EPILOGUE_BIAS) x.bias = d->bias;
    if (d->epilogue & CUBLASLT_EPILOGUE_BIAS && !d->bias) return CUBLAS_STATUS_INVALID_VALUE;
    size_t m = x.ta ? x.a.cols : x.a.rows, k = x.ta ? x.a.rows : x.a.cols,
           kb = x.tb ? x.b.cols : x.b.rows, n = x.tb ? x.b.rows : x.b.cols;
    if (m != x.d.rows || n != x.d.cols || k != kb) return CUBLAS_STATUS_INVALID_VALUE;
    return queue(__func__, s, { x }, work, work_bytes);
}
}
