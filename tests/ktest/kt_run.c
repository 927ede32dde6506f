/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the rows of one op at one shape and compares. */
#include "engine/base/ps_err.h"
#include "kt.h"
#include <fnmatch.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static sigjmp_buf crash_env;
static volatile sig_atomic_t crash_armed;
static void on_crash(int sig)
{
    if (crash_armed) siglongjmp(crash_env, sig);
    signal(sig, SIG_DFL);
    raise(sig);
}

void kt_catch_crashes(void)
{
    static const int sigs[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };
    struct sigaction sa = { .sa_handler = on_crash };
    for (size_t i = 0; i < sizeof sigs / sizeof sigs[0]; i++) sigaction(sigs[i], &sa, NULL);
}

bool kt_usable(const struct kt *kt, const struct ps_kern *k)
{
    if (k->place == PS_PLACE_CUDA) return kt->cuda && k->need <= kt->stream.sm;
    return (k->need & kt->cpu) == k->need;
}

/* What went wrong with one run; `why` NULL: nothing. */
struct fault {
    const char *why;
    const struct kt_buf *buf; /* with the differing element, if one differs */
    size_t at;
    const uint8_t *want;
};

/* Own frame: nothing that lives across sigsetjmp is read after the jump. 0 or the signal. */
static int guarded_run(struct kt *kt, const struct ps_kern *k, const void *args,
                       const struct ps_span *span, int *ret_rc, const char **ret_why)
{
    const int sig = sigsetjmp(crash_env, 1);
    if (sig == 0) {
        crash_armed = 1;
        *ret_rc = k->place == PS_PLACE_CUDA
                      ? kt_cuda_run(kt, k, args, &kt->buf[kt->n_buf - 1], ret_why)
                      : k->run(args, span);
    }
    crash_armed = 0;
    return sig;
}

/* One span, with scratch of exactly the declared size, filled with NaN. */
static const char *run_span(struct kt *kt, const struct ps_kern *k, const void *args,
                            uint64_t begin, uint64_t end, int want_rc)
{
    const size_t bytes = (ps_kern_scratch(k, args) + 63) & ~(size_t) 63;
    struct kt_buf *s = kt_buf_new(kt, bytes, KT_OUT, KT_U8, 0);
    memset(s->p, 0xff, bytes);
    const struct ps_span span = { .begin = begin, .end = end, .scratch = s->p };
    int rc = 0;
    const char *why = NULL;
    kt_bufs_protect(kt, PROT_READ);
    const int sig = guarded_run(kt, k, args, &span, &rc, &why);
    kt_bufs_protect(kt, PROT_READ | PROT_WRITE);
    if (sig)
        why = sig == SIGILL ? "illegal instruction"
                            : "access outside its buffers, or a write to an input";
    else if (why)
        ;
    else if (!kt_canaries_ok(kt))
        why = "wrote before a buffer";
    else if (rc < 0 && rc != want_rc)
        why = ps_err_name(rc);
    else if (rc == 0 && want_rc < 0 && begin == 0 && end == ps_op_units(k->op, args))
        why = "no error where one is due";
    const unsigned last = --kt->n_buf; /* frees the scratch alone */
    munmap(kt->buf[last].map, kt->buf[last].map_len);
    free(kt->buf[last].first);
    free(kt->buf[last].want);
    free(kt->buf[last].one);
    return why;
}

static const char *run_random_spans(struct kt *kt, const struct ps_kern *k,
                                    const struct kt_spec *sp)
{
    enum { MAX = 16 };
    const uint64_t units = ps_op_units(sp->op, sp->args);
    uint64_t cut[MAX + 1] = { 0 };
    unsigned n = 1 + kt_below(kt, units < MAX ? (uint32_t) units : MAX), order[MAX];
    for (unsigned i = 1; i < n; i++) cut[i] = kt_below(kt, (uint32_t) units + 1);
    cut[n] = units;
    for (unsigned i = 1; i < n; i++) /* insertion sort */
        for (unsigned j = i; j > 1 && cut[j] < cut[j - 1]; j--) {
            const uint64_t t = cut[j];
            cut[j] = cut[j - 1];
            cut[j - 1] = t;
        }
    for (unsigned i = 0; i < n; i++) order[i] = i;
    for (unsigned i = n - 1; i > 0; i--) {
        const unsigned j = kt_below(kt, i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    const char *why = NULL;
    for (unsigned i = 0; i < n && !why; i++)
        if (cut[order[i]] < cut[order[i] + 1])
            why = run_span(kt, k, sp->args, cut[order[i]], cut[order[i] + 1], sp->want_rc);
    return why;
}

static const char *run_pieces(struct kt *kt, const struct ps_kern *k, const struct kt_spec *sp)
{
    _Alignas(16) uint8_t args[KT_ARGS_MAX];
    const char *why = NULL;
    for (unsigned i = 0; !why && sp->piece(kt, sp->args, i, args); i++)
        why = run_span(kt, k, args, 0, ps_op_units(sp->op, args), sp->want_rc);
    return why;
}

static double element(enum kt_type t, const uint8_t *p, size_t i)
{
    int32_t v = p[0];
    if (t == KT_F32) return (double) ps_dtype_get(PS_F32, p, i);
    if (t == KT_F16) return (double) ps_dtype_get(PS_F16, p, i);
    if (t == KT_BF16) return (double) ps_dtype_get(PS_BF16, p, i);
    if (t == KT_I32)
        memcpy(&v, p + i * sizeof v, sizeof v);
    else
        v = p[i];
    return v;
}

/* Equal bits, or both numbers and near enough; least: what is small is held to no less. Written so that a NaN in got is a mismatch. */
static bool near(const struct kt_buf *b, const uint8_t *want, float rel, double least, size_t i)
{
    const size_t sz = kt_type_bytes(b->type);
    if (!memcmp(want + i * sz, b->p + i * sz, sz)) return true;
    if (b->type == KT_I32 || b->type == KT_U8) return false;
    const double w = element(b->type, want, i), g = element(b->type, b->p, i);
    return fabs(g - w) <= (double) rel * fmax(fabs(w), least);
}

/* loose, usual: the kt_spec's; loose is 0 where its tolerance does not apply. */
static void compare_buf(const struct kt_buf *b, const uint8_t *want, bool bits, float loose,
                        float usual, struct fault *f)
{
    const size_t sz = kt_type_bytes(b->type), n = b->bytes / sz;
    double scale = 0;
    for (size_t i = 0; i < n && !bits && sz > 1; i++) {
        const double w = fabs(element(b->type, want, i));
        if (w < INFINITY) scale = fmax(scale, w);
    }
    const float rel = loose > 0 ? loose : b->rel;
    const double least = loose > 0 ? fmax(scale, usual) : 0.1 * scale;
    for (size_t i = 0; i < n; i++)
        if (bits ? memcmp(want + i * sz, b->p + i * sz, sz) != 0 : !near(b, want, rel, least, i)) {
            *f = (struct fault) { bits ? "bits depend on how the work is cut"
                                       : "differs from reference",
                                  b, i, want };
            return;
        }
}

/* want: the reference's results (by tolerance), or this row's own as one span (bit by bit). */
static void compare(struct kt *kt, const struct kt_spec *sp, bool bits, bool loose, struct fault *f)
{
    const void *want[KT_BUF_MAX], *got[KT_BUF_MAX];
    size_t bytes[KT_BUF_MAX], n = 0;
    for (unsigned i = 0; i < kt->n_buf && !f->why; i++) {
        const struct kt_buf *b = &kt->buf[i];
        if (b->role == KT_IN) continue;
        want[n] = b->want;
        got[n] = b->p;
        bytes[n++] = b->bytes;
        if (bits || !sp->compare)
            compare_buf(b, bits ? b->one : b->want, bits, loose ? sp->loose : 0, sp->usual, f);
    }
    if (!bits && sp->compare) f->why = sp->compare(sp->args, want, got, bytes);
}

static struct fault run_row(struct kt *kt, const struct ps_kern *k, const struct kt_spec *sp)
{
    struct fault f = { 0 };
    kt_bufs_reset(kt);
    f.why = run_span(kt, k, sp->args, 0, ps_op_units(sp->op, sp->args), sp->want_rc);
    if (f.why || sp->want_rc < 0) return f;
    const bool cuda = k->place == PS_PLACE_CUDA, loose = cuda && sp->loose > 0;
    compare(kt, sp, false, loose, &f);
    for (unsigned i = 0; i < kt->n_buf; i++)
        if (kt->buf[i].role != KT_IN) memcpy(kt->buf[i].one, kt->buf[i].p, kt->buf[i].bytes);
    for (int way = 0; way < 2 && !f.why; way++) {
        if (way == 0 && cuda) continue; /* is always given the whole */
        if (way == 1 && (!sp->piece || loose)) break;
        kt_bufs_reset(kt);
        f.why = way ? run_pieces(kt, k, sp) : run_random_spans(kt, k, sp);
        if (!f.why) compare(kt, sp, true, false, &f);
    }
    return f;
}

static void print_fault(const struct ps_kern *k, const char *shape, const struct kt *kt,
                        const struct fault *f)
{
    printf("FAIL %s %s: %s", k->name, shape, f->why);
    if (f->buf) {
        unsigned nth = 0;
        for (const struct kt_buf *b = kt->buf; b < f->buf; b++) nth += b->role != KT_IN;
        printf(", output %u [%zu]: got %.9g want %.9g", nth, f->at,
               element(f->buf->type, f->buf->p, f->at), element(f->buf->type, f->want, f->at));
    }
    printf("\n");
}

void kt_check(struct kt *kt, const struct kt_spec *spec, const char *shape_fmt, ...)
{
    char shape[96];
    const struct ps_kern *ref = ps_kern_ref(spec->op), *k;
    va_list ap;
    va_start(ap, shape_fmt);
    vsnprintf(shape, sizeof shape, shape_fmt, ap);
    va_end(ap);

    for (unsigned i = 0; i < kt->n_buf; i++)
        if (kt->buf[i].role == KT_INOUT) memcpy(kt->buf[i].first, kt->buf[i].p, kt->buf[i].bytes);
    kt_bufs_reset(kt);
    if (!ref) abort();
    const char *why =
        run_span(kt, ref, spec->args, 0, ps_op_units(spec->op, spec->args), spec->want_rc);
    for (unsigned i = 0; i < kt->n_buf; i++)
        if (kt->buf[i].role != KT_IN) memcpy(kt->buf[i].want, kt->buf[i].p, kt->buf[i].bytes);
    if (why) printf("FAIL %s %s: %s\n", ref->name, shape, why);

    for (size_t row = 0; (k = ps_kern_at(row)); row++) {
        if (k->op != spec->op || fnmatch(kt->var_glob, k->name, 0) != 0) continue;
        if (!kt_usable(kt, k)) {
            kt->verdict[row] = KT_SKIP;
            continue;
        }
        if (k->takes && !k->takes(spec->args)) continue;
        struct fault f = { .why = why };
        if (!why) f = run_row(kt, k, spec);
        if (f.why) print_fault(k, shape, kt, &f);
        if (f.why)
            kt->verdict[row] = KT_FAIL;
        else if (kt->verdict[row] != KT_FAIL)
            kt->verdict[row] = KT_PASS;
    }
    kt_bufs_free(kt);
}
