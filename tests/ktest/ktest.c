/* SPDX-License-Identifier: Apache-2.0 */
/* Options, the list of checks, the verdicts. */
#include "ktest.h"
#include "engine/base/ps_cpu.h"
#include "engine/base/ps_err.h"
#include "kt.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef KT_CUDAEMU
#include "cudaemu.h"
#endif

#define TESTS(X) \
    X(embed)     \
    X(layernorm) \
    X(convert)   \
    X(linear) X(kv_round) X(attn_prompt) X(attn_decode) X(kv_compact) X(kv_replay) X(sample) X(call)
#define X(op) extern const struct kt_test kt_test_##op;
TESTS(X)
#undef X
static const struct kt_test *const tests[] = {
#define X(op) &kt_test_##op,
    TESTS(X)
#undef X
};

static void usage(void)
{
    puts("ktest [--list] [--op=GLOB] [--variant=GLOB] [--seed=N] [--cpumask=MASK]\n"
         "      [--bench[=MS]] [--full] [--cpu-time] [--shape=GLOB] [--dims=MxNxK] [--sets=N] "
         "[--threads=N] [--json=FILE]\n"
         "      [--openblas=LIB] [--mkl=LIB] [--cuda=MODULE] [--limits=GFLOPS,GB_PER_S]\n"
         "Compares every row of the kernel table with the scalar reference; with --bench times "
         "them instead.\n"
         "--dims of attention: sequences x entries x head_dim. --bench --cuda times the module's "
         "rows "
         "on the GPU and\nwants its limits (bench/gpu.sh measures them).");
}

/* "--name=VALUE" or "--name VALUE". */
static const char *value(int argc, char **argv, int *i, const char *name)
{
    const size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0) return NULL;
    if (argv[*i][n] == '=') return argv[*i] + n + 1;
    return argv[*i][n] == 0 && *i + 1 < argc ? argv[++*i] : NULL;
}

static int list(void)
{
    const struct ps_kern *k;
    for (size_t r = 0; (k = ps_kern_at(r)); r++) puts(k->name);
    return 0;
}

/* -1: go on. */
static int parse(struct kt *kt, uint32_t *seed, int argc, char **argv)
{
    const char *v;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--list")) return list();
        if (!strcmp(argv[i], "--bench"))
            kt->bench.ms = 300;
        else if (!strcmp(argv[i], "--full"))
            kt->bench.full = true;
        else if (!strcmp(argv[i], "--cpu-time"))
            kt->bench.cpu_time = true;
        else if ((v = value(argc, argv, &i, "--op")))
            kt->op_glob = v;
        else if ((v = value(argc, argv, &i, "--variant")))
            kt->var_glob = v;
        else if ((v = value(argc, argv, &i, "--seed")))
            *seed = (uint32_t) strtoul(v, NULL, 0);
        else if ((v = value(argc, argv, &i, "--cpumask")))
            kt->cpu &= (uint32_t) strtoul(v, NULL, 0);
        else if ((v = value(argc, argv, &i, "--bench")))
            kt->bench.ms = strtod(v, NULL);
        else if ((v = value(argc, argv, &i, "--shape")))
            kt->bench.shape_glob = v;
        else if ((v = value(argc, argv, &i, "--sets")))
            kt->bench.sets = (unsigned) strtoul(v, NULL, 0);
        else if ((v = value(argc, argv, &i, "--dims"))) {
            unsigned *d = kt->bench.dims;
            if (sscanf(v, "%ux%ux%u", &d[0], &d[1], &d[2]) != 3 || !d[0] || !d[1] || !d[2]) {
                fprintf(stderr, "ktest: --dims=%s: want MxNxK, all at least 1\n", v);
                return 2;
            }
        } else if ((v = value(argc, argv, &i, "--threads")))
            kt->bench.threads = (unsigned) strtoul(v, NULL, 0);
        else if ((v = value(argc, argv, &i, "--openblas")))
            kt->bench.openblas = v;
        else if ((v = value(argc, argv, &i, "--mkl")))
            kt->bench.mkl = v;
        else if ((v = value(argc, argv, &i, "--cuda")))
            kt->module = v;
        else if ((v = value(argc, argv, &i, "--limits"))) {
            if (sscanf(v, "%lf,%lf", &kt->floor_flops, &kt->floor_bytes) != 2 ||
                !(kt->floor_flops > 0) || !(kt->floor_bytes > 0)) {
                fprintf(stderr, "ktest: --limits=%s: want GFLOPS,GB_PER_S\n", v);
                return 2;
            }
        } else if ((v = value(argc, argv, &i, "--json"))) {
            if (!(kt->bench.json = fopen(v, "w"))) {
                perror(v);
                return 2;
            }
        } else {
            fprintf(stderr, "ktest: unknown option %s\n", argv[i]);
            usage();
            return 2;
        }
    }
    return -1;
}

static void seed_rng(struct kt *kt, uint32_t seed) /* the same data alone or in a full run */
{
    for (uint32_t j = 0; j < 4; j++) kt->rng[j] = (seed + j * 0x9e3779b9u) | 1u;
    for (int i = 0; i < 16; i++) (void) kt_rnd(kt);
}

static int verdicts(struct kt *kt)
{
    unsigned pass = 0, fail = 0, skip = 0;
    const struct ps_kern *k;
    bool covered[PS_OP__COUNT] = { 0 };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) covered[tests[i]->op] = true;
    for (size_t r = 0; (k = ps_kern_at(r)); r++) {
        if (fnmatch(kt->op_glob, ps_op_name(k->op), 0) || fnmatch(kt->var_glob, k->name, 0))
            continue;
        const char *why = NULL;
        if (!covered[k->op])
            why = "no check covers this op";
        else if (kt->verdict[r] == KT_NONE)
            why = "no check has a shape that this row takes";
        if (why) printf("FAIL %s: %s\n", k->name, why);
        if (kt->verdict[r] == KT_SKIP) printf("skip %s (not on this machine)\n", k->name);
        pass += !why && kt->verdict[r] == KT_PASS;
        skip += !why && kt->verdict[r] == KT_SKIP;
        fail += why || kt->verdict[r] == KT_FAIL;
    }
    printf("%u passed, %u failed, %u skipped\n", pass, fail, skip);
    return fail ? 1 : pass ? 0 : 77;
}

/* The rows of a module, or of this program when it was linked with the emulation. */
static void cuda(struct kt *kt, uint32_t seed)
{
#ifdef KT_CUDAEMU
    cudaemu_reset(seed);
    kt->cuda = ps_cuda_module();
    ps_kern_add(kt->cuda->rows);
#else
    struct ps_detail dt = { { 0 } };
    if (!kt->module) return;
    if (ps_cuda_load(kt->module, &kt->cuda, &dt) < 0) {
        fprintf(stderr, "ktest: %s\n", dt.text);
        exit(2);
    }
#endif
    kt_cuda_open(kt);
}

int main(int argc, char **argv)
{
    static struct kt kt = { .op_glob = "*",
                            .var_glob = "*",
                            .bench = { .threads = 1, .shape_glob = "*" } };
    uint32_t seed = (uint32_t) time(NULL) ^ (uint32_t) getpid();
    kt.cpu = ps_cpu_flags();
    const int rc = parse(&kt, &seed, argc, argv);
    if (rc >= 0) return rc;
    if (!kt.bench.threads) kt.bench.threads = 1;
    if (kt.bench.threads > KT_THREADS_MAX) kt.bench.threads = KT_THREADS_MAX;
    cuda(&kt, seed);
    if (kt.cuda && kt.bench.ms > 0 && !(kt.floor_flops > 0)) {
        fputs("ktest: --bench on a GPU wants --limits=GFLOPS,GB_PER_S\n", stderr);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("# ktest seed=%u cpu=0x%x\n", seed, kt.cpu);
    if (kt.bench.ms > 0)
        kt_bench_open(&kt);
    else
        kt_catch_crashes();
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (fnmatch(kt.op_glob, ps_op_name(tests[i]->op), 0)) continue;
        seed_rng(&kt, seed);
        if (kt.bench.ms <= 0)
            tests[i]->check(&kt);
        else if (tests[i]->bench) {
            tests[i]->bench(&kt);
            kt_big_free(&kt);
        }
    }
    if (kt.bench.ms > 0) {
        kt_bench_close(&kt);
        if (kt.cuda) kt_cuda_close(&kt);
        return 0;
    }
    if (kt.cuda) kt_cuda_close(&kt);
    return verdicts(&kt);
}
