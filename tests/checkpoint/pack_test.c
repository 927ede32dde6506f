/* SPDX-License-Identifier: Apache-2.0 */
/* Convert and open: round trips, and that what is packed is what the source said. */
#include "engine/base/ps_cpu.h"
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack.h"
#include "ps_cmocka.h"
#include "tiny_model.h"
#include <fcntl.h>
#include <limits.h>

static char dst[PATH_MAX];

static const char *new_dst(void)
{
    tiny_path(dst, sizeof dst, tiny_folder(), "packed");
    return dst;
}

/* Every chunk verifies, every element is `tiny_value`. */
static void check_packed(const char *folder, enum ps_dtype dtype)
{
    struct ps_detail dt;
    ps_auto_pack struct ps_packed *p = NULL;
    assert_true(ps_pack_is(folder));
    assert_ok_dt(ps_pack_open(folder, &p, &dt), &dt);
    assert_int_equal(p->dtype, dtype);
    assert_int_equal(p->file_bytes % PS_PACK_ALIGN, 0);
    size_t n;
    char *file = tiny_read(folder, "weights-00001-of-00001.safetensors", &n);
    assert_int_equal(n, p->file_bytes);
    uint64_t at = p->chunks[0].off;
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        assert_int_equal(p->chunks[i].off, at);
        assert_ok_dt(ps_pack_verify(p, i, file + at, &dt), &dt);
        at += p->chunks[i].len;
    }
    assert_int_equal(at, n);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct ps_packed_tensor *t = &p->tensors[i];
        assert_int_equal(t->off % PS_PACK_ALIGN, 0);
        for (uint64_t k = 0; k < (uint64_t) t->t.rows * t->t.cols; k++)
            if (!(ps_dtype_get(dtype, file + t->off, k) == tiny_value(t->t.name, k)))
                fail_msg("%s[%llu]", t->t.name, (unsigned long long) k);
        assert_int_equal(p->chunks[t->first_chunk].group, t->t.group);
    }
    file[p->chunks[1].off + 5] ^= 4;
    assert_err(ps_pack_verify(p, 1, file + p->chunks[1].off, &dt), PS_ECORRUPT);
    assert_says(&dt, p->tensors[p->chunks[1].first_tensor].t.name);
    assert_says(&dt, p->path);
    free(file);
}

static void every_pair_of_dtypes(void **state)
{
    for (int level = 0; level < 2; level++)
        for (int from = 0; from < PS_DTYPE__COUNT; from++)
            for (int to = -1; to < PS_DTYPE__COUNT; to++) {
                struct tiny_opt o = { .dtype = (enum ps_dtype) from };
                struct ps_convert_opt c = { .dtype = to };
                struct ps_shape s;
                struct ps_detail dt;
                const char *src = tiny_folder();
                tiny_make(src, &o, &s);
                ps_cpu_set_mask(level ? 0 : UINT32_MAX);
                int r = ps_pack_convert(src, new_dst(), &c, &dt);
                ps_cpu_set_mask(UINT32_MAX);
                assert_ok_dt(r, &dt);
                check_packed(dst, (enum ps_dtype)(to < 0 ? from : to));
            }
}

static void shapes_and_layouts(void **state)
{
    static const struct tiny_opt cases[] = {
        { .dtype = PS_F16,
          .config_more = ",\"do_layer_norm_before\":false,"
                         "\"word_embed_proj_dim\":16" },
        { .dtype = PS_F16, .config_more = ",\"enable_bias\":false" },
        { .dtype = PS_F32, .config_more = ",\"tie_word_embeddings\":false" },
        { .dtype = PS_F16, .prefix = "" },
        { .dtype = PS_F16, .shards = 3 },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        struct ps_shape s;
        struct ps_detail dt;
        const char *src = tiny_folder();
        tiny_make(src, &cases[i], &s);
        assert_ok_dt(ps_pack_convert(src, new_dst(), NULL, &dt), &dt);
        check_packed(dst, cases[i].dtype);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_dtypes),
        cmocka_unit_test(shapes_and_layouts),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_cleanup();
    return r;
}
