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
                tiny_check(dst, (enum ps_dtype)(to < 0 ? from : to));
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
        tiny_check(dst, cases[i].dtype);
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
