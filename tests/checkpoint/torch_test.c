/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch files, written by the real torch.save (make_fixtures.py): what must be read gives the right numbers, what must not is
 * refused by name, and no damage to a file does more than that. */
#include "engine/base/ps_mem.h"
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
        { "strided", PS_F16 },
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

/* A fixture's folder that may be damaged; `path` of its weights. */
static const char *copied(const char *name, char *path, size_t cap)
{
    static const char *const files[] = { "config.json", "pytorch_model.bin" };
    const char *folder = tiny_folder();
    for (int i = 0; i < 2; i++) {
        size_t n;
        char *b = tiny_read(fixture(name), files[i], &n);
        tiny_write(folder, files[i], b, n);
        free(b);
    }
    tiny_path(path, cap, folder, files[1]);
    return folder;
}

/* One bit of each tensor, and of the pickle, is wrong: the archive's checksums show it. */
static void damage_every_tensor(const char *name)
{
    char path[PATH_MAX], dst[PATH_MAX];
    const char *folder = copied(name, path, sizeof path);
    struct ps_detail dt = { "" };
    ps_auto_src struct ps_src *s = NULL;
    tiny_path(dst, sizeof dst, tiny_folder(), "p");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_ok_dt(ps_src_open(folder, &s, &dt), &dt);
    assert_true(s->n_tensors > 4);
    for (size_t i = 0; i <= s->n_tensors; i++) {
        const struct ps_src_tensor *t = &s->tensors[i];
        if (i < s->n_tensors && !strcmp(t->name, "lm_head.weight"))
            continue; /* is not read in full */
        uint64_t off = i < s->n_tensors ? t->off + t->bytes / 2 : 80;
        char c, was;
        assert_int_equal(pread(fd, &was, 1, (off_t) off), 1);
        c = (char) (was ^ 1);
        assert_int_equal(pwrite(fd, &c, 1, (off_t) off), 1);
        int r = ps_pack_convert(folder, dst, NULL, &dt);
        if (r != -PS_ECORRUPT)
            fail_msg("%s, tensor %zu: %s (%s)", name, i, ps_err_name(r), dt.text);
        assert_says(&dt, path);
        assert_says(&dt, i == s->n_tensors          ? "data.pkl"
                         : t->bytes == t->sum.bytes ? t->name
                                                    : "tensor");
        assert_int_equal(pwrite(fd, &was, 1, (off_t) off), 1);
    }
    assert_ok_dt(ps_pack_convert(folder, dst, NULL, &dt), &dt);
    (void) close(fd);
}

static void every_tensor_damaged(void **state)
{
    damage_every_tensor("f16");
    damage_every_tensor("shared");
    damage_every_tensor("strided");
}

/* A signal ends the reading of storages, too: what they hold does not come up any more. */
static void stopped_before_writing(void **state)
{
    char path[PATH_MAX], dst[PATH_MAX];
    const char *folder = copied("strided", path, sizeof path);
    struct ps_detail dt = { "" };
    ps_auto_src struct ps_src *s = NULL;
    const volatile int stop = 1;
    const struct ps_convert_opt opt = { .dtype = -1, .stop = &stop };
    tiny_path(dst, sizeof dst, tiny_folder(), "p");
    assert_ok_dt(ps_src_open(folder, &s, &dt), &dt);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    for (size_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].strided)
            assert_int_equal(pwrite(fd, "damaged", 2, (off_t) s->tensors[i].off), 2);
    (void) close(fd);
    assert_int_equal(ps_pack_convert(folder, dst, NULL, &dt), -PS_ECORRUPT);
    assert_int_equal(ps_pack_convert(folder, dst, &opt, &dt), -ECANCELED);
}

/* Any run of elements of a view: the whole, a row's rest, one. */
static void every_run_of_views(void **state)
{
    char path[PATH_MAX];
    struct ps_detail dt = { "" };
    ps_auto_src struct ps_src *s = NULL;
    tiny_path(path, sizeof path, fixture("strided"), "pytorch_model.bin");
    assert_ok_dt(ps_src_open_file(path, &s, &dt), &dt);
    int views = 0;
    for (size_t k = 0; k < s->n_tensors; k++) {
        const struct ps_src_tensor *t = &s->tensors[k];
        uint64_t numel;
        assert_true(ps_src_numel(t->dims, t->ndim, &numel));
        size_t bytes = ps_dtype_bytes((enum ps_dtype) t->dtype);
        const char *of =
            strcmp(t->name, "lm_head.weight") ? t->name : "model.decoder.embed_tokens.weight";
        if (!t->strided) continue;
        views++;
        for (uint64_t at = 0; at < numel; at++)
            for (uint64_t n = 1; n <= numel - at; n += n < 20 ? 1 : 13) {
                ps_auto_free char *room = ps_aligned(4096, PS_SRC_ROOM + n * bytes);
                const char *got;
                assert_non_null(room);
                assert_ok_dt(ps_src_elems(s, t, room, at, n, &got, &dt), &dt);
                for (uint64_t i = 0; i < n; i++) {
                    float v = tiny_value(of, at + i),
                          x = ps_dtype_get((enum ps_dtype) t->dtype, got, i);
                    if (!(x == v))
                        fail_msg("%s, element %llu", t->name, (unsigned long long) (at + i));
                }
            }
    }
    assert_int_equal(views, 9);
}

/* Long runs go in pieces, none of which is more than the room beyond the elements holds. */
static void long_runs_of_views(void **state)
{
    enum { ELEMS = 40000, GUARD = 64 };
    static const struct {
        uint64_t dims[2], strides[2];
        uint32_t ndim;
    } cases[] = {
        { { 20000 }, { 2 }, 1 },           { { 9, 4444 }, { 1, 9 }, 2 },
        { { 9, 4000 }, { 4001, 1 }, 2 },   { { 2, 1250 }, { 3, 32 }, 2 },
        { { 1250, 2 }, { 16, 20000 }, 2 }, { { 4, 9 }, { 1, 4096 }, 2 },
        { { 3, 8 }, { 4095, 4097 }, 2 },   { { 30000 }, { 0 }, 1 },
        { { 7, 5000 }, { 5000, 0 }, 2 },   { { 150, 150 }, { 1, 1 }, 2 },
        { { 500, 70 }, { 1, 500 }, 2 },    { { 5000, 7 }, { 1, 5000 }, 2 },
    };
    char path[PATH_MAX];
    ps_auto_free uint16_t *data = ps_calloc(ELEMS, sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < ELEMS; i++) data[i] = (uint16_t) i;
    const char *folder = tiny_folder();
    tiny_write(folder, "data", data, ELEMS * sizeof *data);
    tiny_path(path, sizeof path, folder, "data");
    struct ps_src_file f = { .path = path,
                             .fd = open(path, O_RDONLY | O_CLOEXEC),
                             .fd_direct = -1 };
    const struct ps_src s = { .files = &f, .n_files = 1 };
    assert_true(f.fd >= 0);
    for (size_t k = 0; k < PS_ARRAY_LEN(cases); k++) {
        struct ps_src_tensor t = {
            .name = "t", .dtype = PS_F16, .ndim = cases[k].ndim, .strided = true
        };
        memcpy(t.dims, cases[k].dims, sizeof cases[k].dims);
        memcpy(t.strides, cases[k].strides, sizeof cases[k].strides);
        uint64_t n = t.dims[0] * (t.ndim == 2 ? t.dims[1] : 1), last = t.dims[t.ndim - 1];
        ps_auto_free char *room = ps_calloc(n * 2 + PS_SRC_ROOM + GUARD, 1);
        const char *got;
        struct ps_detail dt = { "" };
        assert_non_null(room);
        for (int part = 0; part < 2;
             part++) { /* whole, and from the middle of a row to that of another */
            const uint64_t from = part ? n / 3 : 0, m = part ? n / 2 : n;
            memset(room, 0xee, n * 2);
            assert_ok_dt(ps_src_elems(&s, &t, room, from, m, &got, &dt), &dt);
            for (uint64_t i = from; i < from + m; i++) {
                uint16_t v;
                memcpy(&v, got + 2 * (i - from), 2);
                uint64_t at = t.ndim == 1 ? i * t.strides[0]
                                          : i / last * t.strides[0] + i % last * t.strides[1];
                if (v != at) fail_msg("case %zu, element %llu", k, (unsigned long long) i);
            }
        }
        for (size_t i = 0; i < GUARD; i++)
            if (room[n * 2 + PS_SRC_ROOM + i]) fail_msg("case %zu writes beyond the room", k);
    }
    (void) close(f.fd);
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
        cmocka_unit_test(every_tensor_damaged), cmocka_unit_test(stopped_before_writing),
        cmocka_unit_test(every_run_of_views),   cmocka_unit_test(long_runs_of_views),
        cmocka_unit_test(crc32_known),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_cleanup();
    return r;
}
