// SPDX-License-Identifier: Apache-2.0
/* linear by cuBLASLt: f16 or bf16 (or f32) in, f32 sums, bias, ReLU and residual in the same kernel. Column-major, as the library sees it,
 * y^T [n, m] = w^T^T x^T: a column of what it calls D is a row of ours, so that a bias is one per row of D.
 *
 * The types are those of cublasLtMatmul's table: of 16-bit A and B, C and D are f32 and so is the bias, or all have A's type. The residual is C.
 *
 * Which algorithm is best for a shape is asked once and kept with the descriptors, for the last SHAPES shapes of the stream. */
#include "kernels/cuda/cu.cuh"
#include "kernels/cuda/rows.cuh"
#include <cstdlib>
#include <cublasLt.h>

static constexpr uint32_t SHAPES = 64;

/* What the choice of an algorithm depends on. No padding: compared as bytes. */
struct lt_shape {
    uint32_t m, n, k, ldx, ldy, ldr; /* ldr: 0 = no residual */
    uint8_t wtype, rounded_y, relu, in_place;
    uint8_t w_align, x_align, r_align, y_align, bias_align,
        rest[3]; /* as powers of two; bias: 0 = none */
};
static_assert(sizeof(lt_shape) == 6 * sizeof(uint32_t) + 12, "padding");
struct lt_product {
    lt_shape shape;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t w, x, r, y;
    cublasLtMatmulAlgo_t algo;
    bool offered;
};
struct lt_state {
    cublasLtHandle_t handle;
    lt_product of[SHAPES];
    uint32_t n, next; /* next: to be forgotten for a new one */
};

static lt_state *state_of(const ps_cuda_stream *s) { return static_cast<lt_state *>(s->blas); }

int ps_linear_lt_open(ps_cuda_stream *s)
{
    lt_state *t = static_cast<lt_state *>(calloc(1, sizeof(lt_state)));
    if (!t) return -ENOMEM;
    const int r = PS_LT(Create, &t->handle);
    if (r < 0)
        free(t);
    else
        s->blas = t;
    return r;
}

int ps_linear_lt_close(ps_cuda_stream *s)
{
    lt_state *t = state_of(s);
    if (!t) return 0;
    const int r = PS_LT(Destroy, t->handle);
    free(t);
    s->blas = nullptr;
    return r;
}

/* The greatest power of two, up to 256 bytes, that divides the address. */
static uint8_t align_of(const void *p)
{
    uint8_t a = 0;
    while (a < 8 && (uintptr_t) p % (2u << a) == 0) a++;
    return a;
}

static void *out_of(const ps_linear &a) { return a.rounded_y ? a.rounded_y : a.y; }
static const void *in_of(const ps_linear &a) { return a.rounded_x ? a.rounded_x : a.x; }

static lt_shape shape_of(const ps_linear &a)
{
    lt_shape s = {};
    s.m = a.m, s.n = a.n, s.k = a.k, s.ldx = a.ldx, s.ldy = a.ldy;
    s.ldr = a.residual ? a.ldr : 0;
    s.wtype = (uint8_t) a.wtype, s.rounded_y = a.rounded_y != nullptr,
    s.relu = a.act == PS_ACT_RELU;
    s.in_place = a.residual && a.residual == a.y;
    s.w_align = align_of(a.w), s.x_align = align_of(in_of(a)), s.y_align = align_of(out_of(a));
    s.r_align = a.residual ? align_of(a.residual) : s.y_align;
    s.bias_align = a.bias ? align_of(a.bias) : 0;
    return s;
}

static int set_bias(lt_product *p, const void *bias)
{
    return PS_LT(MatmulDescSetAttribute, &p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                 sizeof bias);
}

static int describe(lt_product *p, const ps_linear &a)
{
    static const cudaDataType types[PS_DTYPE__COUNT] = { CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF };
    const cudaDataType in = types[a.wtype], out = a.rounded_y ? in : CUDA_R_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t end =
        a.bias ? (p->shape.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
               : (p->shape.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT);
    int r = PS_LT(MatmulDescInit, &p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (r >= 0)
        r = PS_LT(MatmulDescSetAttribute, &p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                  sizeof transposed);
    if (r >= 0)
        r = PS_LT(MatmulDescSetAttribute, &p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &end,
                  sizeof end);
    if (r >= 0 && a.bias) r = set_bias(p, a.bias);
    if (r >= 0) r = PS_LT(MatrixLayoutInit, &p->w, in, a.k, a.n, a.k);
    if (r >= 0) r = PS_LT(MatrixLayoutInit, &p->x, in, a.k, a.m, a.ldx);
    if (r >= 0) r = PS_LT(MatrixLayoutInit, &p->y, out, a.n, a.m, a.ldy);
    if (r >= 0) r = PS_LT(MatrixLayoutInit, &p->r, out, a.n, a.m, a.residual ? a.ldr : a.ldy);
    return r;
}

static int choose(ps_cuda_stream *s, lt_product *p)
{
    cublasLtMatmulPreferenceOpaque_t want;
    const uint64_t work = s->blas_bytes;
    const struct {
        cublasLtMatmulPreferenceAttributes_t of;
        uint8_t power;
    } aligned[] = { { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->shape.w_align },
                    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->shape.x_align },
                    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p->shape.r_align },
                    { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p->shape.y_align } };
    int r = PS_LT(MatmulPreferenceInit, &want);
    if (r >= 0)
        r = PS_LT(MatmulPreferenceSetAttribute, &want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                  &work, sizeof work);
    for (size_t i = 0; i < sizeof aligned / sizeof aligned[0] && r >= 0; i++) {
        const uint32_t bytes = 1u << aligned[i].power;
        r = PS_LT(MatmulPreferenceSetAttribute, &want, aligned[i].of, &bytes, sizeof bytes);
    }
    if (r < 0) return r;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    const cublasStatus_t e = cublasLtMatmulAlgoGetHeuristic(
        state_of(s)->handle, &p->desc, &p->w, &p->x, &p->r, &p->y, &want, 1, &best, &found);
    p->offered = e == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    if (p->offered) p->algo = best.algo;
    return e == CUBLAS_STATUS_NOT_SUPPORTED ? 0 : ps_cublas_rc(e, "cublasLtMatmulAlgoGetHeuristic");
}

/* The shape's product, which is made if it is new; what could not be made is not kept. */
static int product_of(ps_cuda_stream *s, const ps_linear &a, lt_product **ret)
{
    lt_state *t = state_of(s);
    const lt_shape shape = shape_of(a);
    for (uint32_t i = 0; i < t->n; i++)
        if (memcmp(&t->of[i].shape, &shape, sizeof shape) == 0) {
            *ret = &t->of[i];
            return a.bias ? set_bias(*ret, a.bias) : 0;
        }
    lt_product p = {};
    p.shape = shape;
    int r = describe(&p, a);
    if (r >= 0) r = choose(s, &p);
    if (r < 0) return r;
    *ret = &t->of[t->next];
    **ret = p;
    t->next = (t->next + 1) % SHAPES;
    if (t->n < SHAPES) t->n++;
    return 0;
}

int ps_linear_lt_cuda(const ps_linear &a, ps_cuda_stream *s)
{
    lt_product *p = nullptr;
    int r = product_of(s, a, &p);
    if (r < 0) return r;
    if (!p->offered) return -PS_EUNSUPPORTED;
    const float one = 1, beta = a.residual ? 1 : 0;
    void *y = out_of(a);
    /* In place the two layouts are one. */
    cublasLtMatrixLayoutOpaque_t *c = a.residual && !p->shape.in_place ? &p->r : &p->y;
    s->calls++;
    return PS_LT(Matmul, state_of(s)->handle, &p->desc, &one, a.w, &p->w, in_of(a), &p->x, &beta,
                 a.residual ? a.residual : y, c, y, &p->y, &p->algo, s->blas_mem, s->blas_bytes,
                 ps_cuda_of(s));
}
