/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of a benchmark: sgemm of OpenBLAS and of MKL, opened at run time, so that neither is needed to build or test. */
#ifndef PS_KT_BLAS_H
#define PS_KT_BLAS_H
#include "ktest.h"

/* y[m,n] = x[m,k] . w[n,k]^T, all f32, dense. */
struct kt_sgemm {
    float *y;
    const float *x, *w;
    int m, n, k;
};
struct kt_blas; /* one library; NULL from open: not there (said on stderr when a path was given) */
struct kt_blas *kt_openblas(struct kt *kt);
struct kt_blas *kt_mkl(struct kt *kt);
const char *kt_blas_name(const struct kt_blas *b);
void kt_blas_sgemm(const struct kt_blas *b, const struct kt_sgemm *g);
#endif
