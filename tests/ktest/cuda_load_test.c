/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the CUDA module: what is said when there is none, a broken one, another version's; and the real one, whose rows join the
 * table wherever it can be opened, GPU or not. Arguments: a foreign module, the real one or "none". */
#include "ps_cmocka.h"

#include "engine/base/ps_err.h"
#include "kernels/cuda/ps_cuda.h"
#include "ps_config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *foreign, *real;

static void none(void **state)
{
    const struct ps_cuda_api *api = NULL;
    struct ps_detail dt = { { 0 } };
    if (access(PS_MODULE_DIR "/penstock-cuda.so", F_OK) == 0) skip(); /* installed here */
    assert_int_equal(ps_cuda_load(NULL, &api, &dt), -ENOENT);
    assert_says(&dt, "penstock-cuda.so");
    assert_null(api);
}

static void broken(void **state)
{
    const struct ps_cuda_api *api = NULL;
    struct ps_detail dt = { { 0 } };
    assert_int_equal(ps_cuda_load("/dev/null", &api, &dt), -ENODEV);
    assert_says(&dt, "/dev/null");
    assert_int_equal(ps_cuda_load("no/such/module.so", &api, &dt), -ENODEV);
    assert_says(&dt, "no/such/module.so");
    assert_null(api);
}

/* One that was not copied to its end, which dlopen() would not survive; a pipe, which it would wait for. */
static void cut_short(void **state)
{
    const struct ps_cuda_api *api = NULL;
    struct ps_detail dt = { { 0 } };
    static char bytes[1 << 20];
    char path[] = "cuda-load-XXXXXX";
    FILE *whole = fopen(foreign, "re");
    int fd = mkstemp(path);
    assert_non_null(whole);
    const size_t n = fread(bytes, 1, sizeof bytes, whole);
    assert_true(n > 4096 && n < sizeof bytes && fd >= 0);
    assert_int_equal(write(fd, bytes, n - 1), n - 1);
    assert_int_equal(ps_cuda_load(path, &api, &dt), -ENODEV);
    assert_says(&dt, "cut short");
    assert_false(unlink(path) || mkfifo(path, 0600));
    assert_int_equal(ps_cuda_load(path, &api, &dt), -ENODEV);
    assert_says(&dt, "regular file");
    assert_false(unlink(path) || close(fd) || fclose(whole));
    assert_null(api);
}

static void of_another_version(void **state)
{
    const struct ps_cuda_api *api = NULL;
    struct ps_detail dt = { { 0 } };
    assert_int_equal(ps_cuda_load(foreign, &api, &dt), -PS_EUNSUPPORTED);
    assert_says(&dt, "another version");
    assert_null(api);
    const struct ps_layernorm a = { .rows = 1, .cols = 1 };
    assert_null(ps_kern_pick(PS_OP_layernorm, PS_PLACE_CUDA, 90, &a));
}

static void the_real_one(void **state)
{
    const struct ps_cuda_api *api = NULL, *again = NULL;
    struct ps_detail dt = { { 0 } };
    if (!strcmp(real, "none")) skip();
    int r = ps_cuda_load(real, &api, &dt);
    if (r == -ENODEV) {
        assert_says(&dt, "cublas"); /* the one library that it does not bring along */
        skip();
    }
    assert_int_equal(r, 0);
    assert_int_equal(ps_cuda_load(real, &again, &dt), 0);
    assert_ptr_equal(api, again);
    const struct ps_layernorm a = { .rows = 1, .cols = 1 };
    const struct ps_kern *k = ps_kern_pick(PS_OP_layernorm, PS_PLACE_CUDA, 75, &a);
    assert_non_null(k);
    assert_string_equal(k->name, "layernorm_cuda");
    assert_null(ps_kern_pick(PS_OP_layernorm, PS_PLACE_CUDA, 70, &a));
    assert_string_equal(ps_kern_pick(PS_OP_layernorm, PS_PLACE_HOST, 0, &a)->name, "layernorm_ref");
    struct ps_cuda_info info;
    r = api->info(&info);
    assert_true(r == 0 || r == -ENODEV || r == -PS_EDEVICE);
    if (r < 0) assert_true(*api->error());
    if (r == 0) assert_true(info.sm >= 30 && info.total_bytes > 0 && *info.name);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(none), cmocka_unit_test(broken),
                                        cmocka_unit_test(cut_short),
                                        cmocka_unit_test(of_another_version),
                                        cmocka_unit_test(the_real_one) };
    if (argc != 3) return 2;
    foreign = argv[1];
    real = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
