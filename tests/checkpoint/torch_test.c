/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch files, written by the real torch.save (make_fixtures.py): what must be read gives the right numbers, what must not is
 * refused by name, and no damage to a file does more than that. */
#include "engine/checkpoint/crc32.h"
#include "engine/checkpoint/pack.h"
#include "engine/checkpoint/source.h"
#include "ps_cmocka.h"
#include "tiny_model.h"
#include <fcntl.h>
#include <limits.h>

static const char *fixture(const char *name)
{
    static char path[PATH_MAX];
    const char *root = getenv("PS_SOURCE_ROOT");
    if (!root) {
        skip();
        return NULL;
    }
    (void) snprintf(path, sizeof path, "%s/tests/checkpoint/torch/%s", root, name);
    return path;
}

static void good_files(void **state)
{
    static const struct {
        const char *name;
        enum ps_dtype dtype;
    } cases[] = {
        { "f16", PS_F16 },       { "bf16", PS_BF16 },      { "f32", PS_F32 },
        { "dict", PS_F16 },      { "protocol3", PS_F16 },  { "protocol4", PS_F16 },
        { "protocol5", PS_F16 }, { "parameters", PS_F16 }, { "shared", PS_F16 },
        { "shards", PS_F16 },    { "plainzip", PS_F16 },   { "extra", PS_F16 },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        char dst[PATH_MAX];
        struct ps_detail dt;
        tiny_path(dst, sizeof dst, tiny_folder(), "p");
        assert_ok_dt(ps_pack_convert(fixture(cases[i].name), dst, NULL, &dt), &dt);
        tiny_check(dst, cases[i].dtype);
    }
}

static void bad_files(void **state)
{
    static const struct {
        const char *name, *says, *also;
        int err;
    } cases[] = {
        { "legacy", "before 1.6", "pytorch_model.bin", PS_EUNSUPPORTED },
        { "nested", "model", "state_dict", PS_EUNSUPPORTED },
        { "tensor", "a tensor instead of", "pytorch_model.bin", PS_EUNSUPPORTED },
        { "code", "posix.system", "pytorch_model.bin", PS_EUNSUPPORTED },
        { "scalar", "fc2.bias", "an int", PS_EUNSUPPORTED },
        { "ints", "fc2.bias", "I32", PS_EUNSUPPORTED },
        { "transposed", "fc1.weight", "torch.save({k: v.contiguous()", PS_EUNSUPPORTED },
        { "compressed", "compressed", "pytorch_model.bin", PS_EUNSUPPORTED },
        { "bigendian", "big", "pytorch_model.bin", PS_EUNSUPPORTED },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        char dst[PATH_MAX];
        struct ps_detail dt = { "" };
        const char *parent = tiny_folder();
        tiny_path(dst, sizeof dst, parent, "p");
        int r = ps_pack_convert(fixture(cases[i].name), dst, NULL, &dt);
        if (r != -cases[i].err) fail_msg("%s: %s (%s)", cases[i].name, ps_err_name(r), dt.text);
        assert_says(&dt, cases[i].says);
        assert_says(&dt, cases[i].also);
        assert_int_equal(tiny_count(parent), 0);
    }
}

/* Opens FOLDER/m.bin. */
static int open_it(const char *folder, size_t n)
{
    struct ps_detail dt = { "" };
    ps_auto_src struct ps_src *s = NULL;
    char path[PATH_MAX];
    tiny_path(path, sizeof path, folder, "m.bin");
    int r = ps_src_open_file(path, &s, &dt);
    if (r < 0 && !strstr(dt.text, "m.bin") && !strstr(dt.text, "is there twice"))
        fail_msg("%s does not name the file", dt.text);
    for (size_t i = 0; r == 0 && i < s->n_tensors; i++) /* nothing points outside */
        assert_true(s->tensors[i].off <= n && s->tensors[i].bytes <= n - s->tensors[i].off);
    return r;
}

/* A copy of a fixture as FOLDER/m.bin, open for changes (in place: a file that is replaced is flushed to the disk). */
static int copy_of(const char *name, const char *folder, char **bytes, size_t *n)
{
    char path[PATH_MAX];
    *bytes = tiny_read(fixture(name), "pytorch_model.bin", n);
    tiny_write(folder, "m.bin", *bytes, *n);
    tiny_path(path, sizeof path, folder, "m.bin");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* Cut at every length: never accepted. */
static void every_truncation(void **state)
{
    size_t n;
    char *b;
    const char *folder = tiny_folder();
    int fd = copy_of("f16", folder, &b, &n);
    assert_ok(open_it(folder, n));
    while (n-- > 0) {
        assert_int_equal(ftruncate(fd, (off_t) n), 0);
        if (open_it(folder, n) >= 0) fail_msg("accepted when cut at %zu", n);
    }
    (void) close(fd);
    free(b);
}

/* Each byte that is not tensor data changed, one after the other: an error or a file whose tensors lie inside it. */
static void every_byte_changed(void **state)
{
    static const unsigned char marks[] = { 0xff, 0x01, 0x80 };
    size_t n;
    char *b;
    const char *folder = tiny_folder();
    int fd = copy_of("shared", folder, &b, &n);
    for (size_t i = 0; i < n; i++) {
        if (i > 2600 && n - i > 1400 && i % 61) continue; /* elements of the one storage, mostly */
        char c = (char) (b[i] ^ marks[i % 3]);
        assert_int_equal(pwrite(fd, &c, 1, (off_t) i), 1);
        (void) open_it(folder, n);
        assert_int_equal(pwrite(fd, b + i, 1, (off_t) i), 1);
    }
    assert_ok(open_it(folder, n));
    (void) close(fd);
    free(b);
}

/* One bit of each tensor, and of the pickle, is wrong: the archive's checksums show it. */
static void every_tensor_damaged(void **state)
{
    static const char *const files[] = { "config.json", "pytorch_model.bin" };
    char path[PATH_MAX], dst[PATH_MAX];
    const char *folder = tiny_folder();
    struct ps_detail dt = { "" };
    ps_auto_src struct ps_src *s = NULL;
    for (int i = 0; i < 2; i++) {
        size_t n;
        char *b = tiny_read(fixture("f16"), files[i], &n);
        tiny_write(folder, files[i], b, n);
        free(b);
    }
    tiny_path(path, sizeof path, folder, files[1]);
    tiny_path(dst, sizeof dst, tiny_folder(), "p");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_ok_dt(ps_src_open(folder, &s, &dt), &dt);
    assert_true(s->n_tensors > 4);
    for (size_t i = 0; i <= s->n_tensors; i++) {
        uint64_t off = i < s->n_tensors ? s->tensors[i].off + s->tensors[i].bytes / 2 : 80;
        char c, was;
        assert_int_equal(pread(fd, &was, 1, (off_t) off), 1);
        c = (char) (was ^ 1);
        assert_int_equal(pwrite(fd, &c, 1, (off_t) off), 1);
        int r = ps_pack_convert(folder, dst, NULL, &dt);
        if (r != -PS_ECORRUPT) fail_msg("tensor %zu: %s (%s)", i, ps_err_name(r), dt.text);
        assert_says(&dt, path);
        assert_says(&dt, i < s->n_tensors ? s->tensors[i].name : "data.pkl");
        assert_int_equal(pwrite(fd, &was, 1, (off_t) off), 1);
    }
    assert_ok_dt(ps_pack_convert(folder, dst, NULL, &dt), &dt);
    (void) close(fd);
}

static void crc32_known(void **state)
{
    struct ps_crc32 c;
    char b[300];
    ps_crc32_init(&c);
    assert_int_equal(ps_crc32(&c, "123456789", 9), 0xcbf43926);
    assert_int_equal(ps_crc32(&c, "", 0), 0);
    for (size_t i = 0; i < sizeof b; i++) b[i] = (char) (i * i + 7);
    uint32_t whole = ps_crc32(&c, b, sizeof b);
    for (size_t i = 0; i <= sizeof b; i++) {
        uint32_t head = ps_crc32_shift(ps_crc32(&c, b, i), sizeof b - i);
        assert_int_equal(head ^ ps_crc32(&c, b + i, sizeof b - i), whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),           cmocka_unit_test(bad_files),
        cmocka_unit_test(every_truncation),     cmocka_unit_test(every_byte_changed),
        cmocka_unit_test(every_tensor_damaged), cmocka_unit_test(crc32_known),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_cleanup();
    return r;
}
