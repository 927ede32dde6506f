/* SPDX-License-Identifier: Apache-2.0 */
#include "kt_blas.h"
#include "engine/base/ps_cpu.h"
#include "kt.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
struct kt_blas {
    char name[64];
    void *lib;
    void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                  float, float *, int);
};

static void *symbol(void *lib, const char *name) { return lib ? dlsym(lib, name) : NULL; }

static bool load(struct kt_blas *b, const char *path, const char *threads_fn, unsigned threads)
{
    void (*set)(int);
    void *p;
    b->lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!b->lib) fprintf(stderr, "ktest: no peer %s: %s\n", path, dlerror());
    if (!(p = symbol(b->lib, "cblas_sgemm"))) return false;
    memcpy(&b->sgemm, &p, sizeof p);
    if (!(p = symbol(b->lib, threads_fn))) return false;
    memcpy(&set, &p, sizeof p);
    set((int) threads);
    return true;
}

/* Releases of OpenBLAS that are older than the processor take it for something far slower: unless the caller
 * says otherwise, the core type is that of the instruction sets that are there. */
struct kt_blas *kt_openblas(struct kt *kt)
{
    static struct kt_blas b;
    char *(*core)(void);
    void *p;
    if (b.sgemm) return &b;
    if (kt->cpu & PS_CPU_AVX2)
        (void) setenv("OPENBLAS_CORETYPE", kt->cpu & PS_CPU_AVX512 ? "SkylakeX" : "Haswell", 0);
    if (!load(&b, kt->bench.openblas ? kt->bench.openblas : "libopenblas.so.0",
              "openblas_set_num_threads", kt->bench.threads))
        return NULL;
    if (!(p = symbol(b.lib, "openblas_get_corename"))) return NULL;
    memcpy(&core, &p, sizeof p);
    snprintf(b.name, sizeof b.name, "openblas(%s)", core());
    return &b;
}

struct kt_blas *kt_mkl(struct kt *kt)
{
    static struct kt_blas b;
    if (b.sgemm || !kt->bench.mkl) return b.sgemm ? &b : NULL;
    (void) setenv("MKL_THREADING_LAYER", "GNU", 0);
    snprintf(b.name, sizeof b.name, "mkl");
    return load(&b, kt->bench.mkl, "MKL_Set_Num_Threads", kt->bench.threads) ? &b : NULL;
}

const char *kt_blas_name(const struct kt_blas *b) { return b->name; }

void kt_blas_sgemm(const struct kt_blas *b, const struct kt_sgemm *g)
{
    b->sgemm(ROW_MAJOR, NO_TRANS, TRANS, g->m, g->n, g->k, 1.0f, g->x, g->k, g->w, g->k, 0.0f, g->y,
             g->n);
}
