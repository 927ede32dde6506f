/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions and random elements: the fast form against the scalar one, bit for bit, and the scalar one against ps_dtype. */
#include "engine/base/ps_cpu.h"
#include "engine/checkpoint/elems.h"
#include "ps_cmocka.h"
#include <math.h>

enum { N = 1 << 16 };

/* All 2^16 patterns of a 16-bit type, or f32 patterns over the whole range. */
static void patterns(enum ps_dtype t, void *p)
{
    uint32_t *w = p;
    uint16_t *h = p;
    for (uint32_t i = 0; i < N; i++) {
        if (t == PS_F32)
            w[i] = i * 65537u + (i << 3);
        else
            h[i] = (uint16_t) i;
    }
}

static void element_by_element(void **state)
{
    uint32_t *src = calloc(N, 4), dst[1], want[1];
    for (int from = 0; from < PS_DTYPE__COUNT; from++)
        for (int to = 0; to < PS_DTYPE__COUNT; to++) {
            patterns((enum ps_dtype) from, src);
            size_t eb = ps_dtype_bytes((enum ps_dtype) from), ok = 0;
            for (size_t i = 0; i < N; i++) {
                const char *p = (const char *) src + i * eb;
                float f = ps_dtype_get((enum ps_dtype) from, p, 0);
                size_t r = ps_elems_convert((enum ps_dtype) from, p, (enum ps_dtype) to, dst, 1);
                ps_dtype_put((enum ps_dtype) to, want, 0, f);
                bool good = isfinite(f) && isfinite(ps_dtype_get((enum ps_dtype) to, want, 0));
                assert_int_equal(r, good);
                if (good) assert_memory_equal(dst, want, ps_dtype_bytes((enum ps_dtype) to));
                ok += good;
            }
            assert_true(ok > 1000);
        }
    free(src);
}

/* Runs of good elements of every length, unaligned, with one bad element anywhere. */
static void fast_as_scalar(void **state)
{
    enum { M = 9001 };
    char *src = calloc(M + 8, 4), *a = calloc(M, 4), *b = calloc(M, 4);
    uint32_t rnd = 1;
    for (int from = 0; from < PS_DTYPE__COUNT; from++)
        for (int to = 0; to < PS_DTYPE__COUNT; to++)
            for (size_t n = 0; n < M; n = n < 40 ? n + 1 : n * 3 + 1) {
                char *s = src + 2 * (n % 2); /* files align tensors as they like */
                size_t eb = ps_dtype_bytes((enum ps_dtype) from);
                for (size_t i = 0; i < n; i++) {
                    rnd = rnd * 1664525u + 1013904223u;
                    float f = ((float) (rnd >> 8) / 8388608 - 1) * (i % 7 ? 1 : 1e-6f);
                    uint32_t w[1];
                    ps_dtype_put((enum ps_dtype) from, w, 0, f);
                    memcpy(s + i * eb, w, eb);
                }
                for (int k = 0; k < 2; k++) {
                    size_t bad = k ? rnd % (n + 1) : n;
                    uint32_t inf[1];
                    ps_dtype_put((enum ps_dtype) from, inf, 0, k && n % 3 ? NAN : -INFINITY);
                    if (bad < n) memcpy(s + bad * eb, inf, eb);
                    size_t x = ps_elems_convert((enum ps_dtype) from, s, (enum ps_dtype) to, a, n);
                    ps_cpu_set_mask(0);
                    size_t y = ps_elems_convert((enum ps_dtype) from, s, (enum ps_dtype) to, b, n);
                    ps_cpu_set_mask(UINT32_MAX);
                    assert_int_equal(x, bad);
                    assert_int_equal(y, bad);
                    assert_memory_equal(a, b, bad * ps_dtype_bytes((enum ps_dtype) to));
                }
            }
    free(src);
    free(a);
    free(b);
}

static void random_is_a_function_of_its_index(void **state)
{
    enum { M = 3000 };
    for (int t = 0; t < PS_DTYPE__COUNT; t++) {
        enum ps_dtype dt = (enum ps_dtype) t;
        size_t eb = ps_dtype_bytes(dt);
        char whole[M * 4], part[M * 4];
        const uint64_t start[] = { 0, 5, 0xffffffffu - 1000, 0x300000000u - 7 };
        for (size_t s = 0; s < PS_ARRAY_LEN(start); s++) {
            ps_elems_random(77, start[s], 0.5f, 0.02f, dt, whole, M);
            for (size_t from = 0, n = 1; from + n <= M; from += n, n = n * 2 + 1) {
                ps_cpu_set_mask(n % 4 == 3 ? 0 : UINT32_MAX);
                ps_elems_random(77, start[s] + from, 0.5f, 0.02f, dt, part, n);
                ps_cpu_set_mask(UINT32_MAX);
                assert_memory_equal(part, whole + from * eb, n * eb);
            }
        }
    }
}

/* Mean and deviation as asked for; another key, other numbers. */
static void random_looks_normal(void **state)
{
    enum { M = 1 << 16 };
    float *a = calloc(M, 4), *b = calloc(M, 4);
    ps_elems_random(1, 0, 1.0f, 0.02f, PS_F32, a, M);
    ps_elems_random(2, 0, 1.0f, 0.02f, PS_F32, b, M);
    double sum = 0, sq = 0, cross = 0;
    for (size_t i = 0; i < M; i++) {
        sum += a[i] - 1;
        sq += (a[i] - 1.0) * (a[i] - 1.0);
        cross += (a[i] - 1.0) * (b[i] - 1.0);
    }
    assert_true(fabs(sum / M) < 0.0005);
    assert_true(fabs(sqrt(sq / M) - 0.02) < 0.0005);
    assert_true(fabs(cross / sq) < 0.02);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(element_by_element),
        cmocka_unit_test(fast_as_scalar),
        cmocka_unit_test(random_is_a_function_of_its_index),
        cmocka_unit_test(random_looks_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
