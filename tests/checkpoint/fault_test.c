/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong on the way: no memory, no room, a signal, a kill; and what stands in the way of DST. */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/inspect.h"
#include "engine/checkpoint/pack.h"
#include "ps_cmocka.h"
#include "tiny_model.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct ps_detail dt;
static char dst[PATH_MAX];
static const char *parent;

static const char *new_dst(void)
{
    parent = tiny_folder();
    tiny_path(dst, sizeof dst, parent, "packed");
    dt.text[0] = 0;
    return dst;
}

static const char *new_src(void)
{
    struct tiny_opt o = { .dtype = PS_F16 };
    struct ps_shape s;
    const char *src = tiny_folder();
    tiny_make(src, &o, &s);
    tiny_write_text(src, "vocab.json", "{\"a\":0,\"b\":400}");
    tiny_write_text(src, "merges.txt", "#version: 0.2\n");
    return src;
}

static const char *fixture(void)
{
    static char path[PATH_MAX];
    const char *root = getenv("PS_SOURCE_ROOT");
    if (!root) skip();
    (void) snprintf(path, sizeof path, "%s/tests/checkpoint/torch/shards", root);
    return path;
}

static int try_convert(const char *src)
{
    int r = ps_pack_convert(src, dst, NULL, &dt);
    if (r < 0) assert_int_equal(tiny_count(parent), 0);
    return r;
}
static int try_dummy(const char *config)
{
    int r = ps_pack_dummy(config, dst, 7, NULL, &dt);
    if (r < 0) assert_int_equal(tiny_count(parent), 0);
    return r;
}
static int try_open(const char *folder)
{
    ps_auto_pack struct ps_packed *p = NULL;
    return ps_pack_open(folder, &p, &dt);
}
static int try_inspect(const char *path)
{
    json_t *j = NULL;
    int r = ps_inspect_model(path, true, &j, &dt);
    if (r == 0) json_decref(j);
    return r;
}

/* Runs what() with its 1st, 2nd, ... allocation failing until it passes untouched. */
static void all_fail(int (*what)(const char *arg), const char *arg)
{
    for (uint64_t nth = 1;; nth++) {
        assert_true(nth < 20000);
        dt.text[0] = 0;
        ps_mem_fault_arm(nth);
        int r = what(arg);
        int hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (!hit) {
            assert_ok_dt(r, &dt);
            break;
        }
        if (r != -ENOMEM)
            fail_msg("allocation %llu: %s (%s)", (unsigned long long) nth, ps_err_name(r), dt.text);
        assert_true(dt.text[0] != 0);
    }
}

static void every_allocation_fails(void **state)
{
    char config[PATH_MAX];
    const char *src = new_src();
    (void) new_dst();
    all_fail(try_convert, src);
    all_fail(try_open, dst);
    all_fail(try_inspect, dst);
    all_fail(try_inspect, src);
    (void) new_dst();
    all_fail(try_convert, fixture());
    tiny_path(config, sizeof config, src, "config.json");
    (void) new_dst();
    all_fail(try_dummy, config);
}

static void dst_in_the_way(void **state)
{
    const char *src = new_src();
    struct ps_convert_opt over = { .dtype = PS_F32, .overwrite = true };
    assert_ok_dt(ps_pack_convert(src, new_dst(), NULL, &dt), &dt);
    tiny_check(dst, PS_F16);
    assert_err(ps_pack_convert(src, dst, NULL, &dt), EEXIST);
    assert_says(&dt, dst);
    assert_says(&dt, "--overwrite");
    tiny_check(dst, PS_F16);
    assert_ok_dt(ps_pack_convert(src, dst, &over, &dt), &dt);
    tiny_check(dst, PS_F32);
    assert_int_equal(tiny_count(parent), 1); /* the earlier one is gone */
    char *text = tiny_read(dst, "merges.txt", NULL);
    assert_string_equal(text, "#version: 0.2\n");
    free(text);

    /* Somebody's folder, a file, a link, the source itself */
    tiny_write_text(new_dst() ? parent : "", "precious", "x");
    assert_err(ps_pack_convert(src, parent, &over, &dt), EEXIST);
    assert_says(&dt, "not a packed model");
    char path[PATH_MAX];
    tiny_path(path, sizeof path, parent, "precious");
    assert_err(ps_pack_convert(src, path, &over, &dt), EEXIST);
    tiny_path(path, sizeof path, parent, "link");
    assert_int_equal(symlink(src, path), 0);
    assert_err(ps_pack_convert(src, path, &over, &dt), EINVAL); /* is SRC */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_err(ps_pack_convert(src, path, &over, &dt), EEXIST);
    assert_err(ps_pack_convert(src, src, &over, &dt), EINVAL);
    tiny_path(path, sizeof path, parent, "no/such/folder");
    assert_err(ps_pack_convert(src, path, &over, &dt), ENOENT);
    assert_says(&dt, "no/such");
    assert_int_equal(tiny_count(parent), 2); /* precious and link */
    /* An empty folder may be replaced; a slash at the end changes nothing. */
    tiny_path(path, sizeof path, parent, "empty");
    assert_int_equal(mkdir(path, 0755), 0);
    (void) strcat(path, "//");
    assert_ok_dt(ps_pack_convert(src, path, &over, &dt), &dt);
    tiny_check(path, PS_F32);
}

/* A packed model is a source too. */
static void repack(void **state)
{
    char again[PATH_MAX];
    struct ps_convert_opt c = { .dtype = PS_BF16 };
    assert_ok_dt(ps_pack_convert(new_src(), new_dst(), NULL, &dt), &dt);
    tiny_path(again, sizeof again, parent, "again");
    assert_ok_dt(ps_pack_convert(dst, again, &c, &dt), &dt);
    tiny_check(again, PS_BF16);
}

static void links_are_followed(void **state)
{
    const char *src = new_src(), *cache = tiny_folder();
    static const char *const names[] = { "config.json", "model.safetensors", "vocab.json" };
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
        char a[PATH_MAX], b[PATH_MAX];
        tiny_path(a, sizeof a, src, names[i]);
        tiny_path(b, sizeof b, cache, names[i]);
        assert_int_equal(symlink(a, b), 0);
    }
    assert_ok_dt(ps_pack_convert(cache, new_dst(), NULL, &dt), &dt);
    tiny_check(dst, PS_F16);
    char path[PATH_MAX];
    struct stat st;
    tiny_path(path, sizeof path, dst, "vocab.json");
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
}

struct watch {
    volatile int stop;
    int after, calls, warnings;
    uint64_t last, total;
    char warned[1024];
};
static void progress(void *ud, uint64_t done, uint64_t total)
{
    struct watch *w = ud;
    assert_true(done > w->last && done <= total);
    w->last = done;
    w->total = total;
    if (++w->calls == w->after) __atomic_store_n(&w->stop, 1, __ATOMIC_RELAXED);
}
static void warn(void *ud, const char *text)
{
    struct watch *w = ud;
    w->warnings++;
    (void) snprintf(w->warned, sizeof w->warned, "%s", text);
}

static void stopped(void **state)
{
    const char *src = new_src();
    for (int after = 0; after < 10; after += 3) {
        struct watch w = { .stop = after == 0, .after = after };
        struct ps_convert_opt c = {
            .dtype = -1, .progress = progress, .warn = warn, .ud = &w, .stop = &w.stop
        };
        assert_err(ps_pack_convert(src, new_dst(), &c, &dt), ECANCELED);
        assert_int_equal(tiny_count(parent), 0);
    }
    struct watch w = { 0 };
    struct ps_convert_opt c = { .dtype = -1, .progress = progress, .warn = warn, .ud = &w };
    assert_ok_dt(ps_pack_convert(src, new_dst(), &c, &dt), &dt);
    assert_int_equal(w.last, w.total);
    assert_int_equal(w.warnings, 1); /* vocab.json has an id beyond the table */
    if (!strstr(w.warned, "400")) fail_msg("%s", w.warned);
}

/* Extra tensors: known ones are passed over in silence, others named; a tied head that differs is named. */
static void extras(void **state)
{
    static const struct {
        const char *name, *says;
    } cases[] = {
        { "model.decoder.version", NULL },
        { "model.decoder.embed_positions._float_tensor", NULL },
        { "who.knows", "who.knows" },
        { "lm_head.weight", "lm_head.weight" },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        struct tiny_opt o = { .dtype = PS_F16, .config_more = "" };
        struct ps_shape s;
        char extra[200];
        struct watch w = { 0 };
        struct ps_convert_opt c = { .dtype = -1, .warn = warn, .ud = &w };
        const char *src = tiny_folder();
        (void) snprintf(extra, sizeof extra,
                        "\"%s\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[0,0]}",
                        cases[i].name);
        o.extra = extra;
        tiny_make(src, &o, &s);
        assert_ok_dt(ps_pack_convert(src, new_dst(), &c, &dt), &dt);
        assert_int_equal(w.warnings, cases[i].says != NULL);
        if (cases[i].says && !strstr(w.warned, cases[i].says)) fail_msg("%s", w.warned);
        tiny_check(dst, PS_F16);
    }
}

static const char *big_config(void)
{
    static char path[PATH_MAX];
    const char *f = tiny_folder();
    tiny_write_text(f, "config.json",
                    "{\"model_type\":\"opt\",\"num_hidden_layers\":8,\"hidden_size\":512,"
                    "\"ffn_dim\":2048,\"num_attention_heads\":8,\"vocab_size\":9000,"
                    "\"max_position_embeddings\":600,\"torch_dtype\":\"float16\"}");
    tiny_path(path, sizeof path, f, "config.json");
    return path;
}

static void say(void *ud, uint64_t done, uint64_t total)
{
    (void) !write(*(int *) ud, "x", 1);
    if (done * 2 > total) (void) pause(); /* until the kill */
}

/* SIGKILL in the middle: nothing under DST; the next run says what lies there and succeeds. */
static void killed(void **state)
{
    const char *config = big_config();
    for (int chunks = 1; chunks < 20; chunks += 9) {
        int p[2];
        char c;
        (void) new_dst();
        assert_int_equal(pipe(p), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct ps_convert_opt o = { .dtype = -1, .progress = say, .ud = &p[1] };
            _exit(ps_pack_dummy(config, dst, 1, &o, NULL) < 0);
        }
        (void) close(p[1]);
        for (int i = 0; i < chunks; i++) assert_int_equal(read(p[0], &c, 1), 1);
        int status;
        (void) kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        (void) close(p[0]);
        assert_true(WIFSIGNALED(status));
        assert_false(tiny_exists(parent, "packed"));
        struct watch w = { 0 };
        struct ps_convert_opt o = { .dtype = -1, .warn = warn, .ud = &w };
        assert_ok_dt(ps_pack_dummy(config, dst, 1, &o, &dt), &dt);
        assert_int_equal(w.warnings, 1);
        if (!strstr(w.warned, ".partial.")) fail_msg("%s", w.warned);
    }
}

/* A limit on the size of files stands in for a full disk; it also ends fallocate(). */
static void file_size_limit(void **state)
{
    const char *config = big_config();
    (void) new_dst();
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit rl = { 5 << 20, 5 << 20 };
        (void) signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &rl) < 0) _exit(9);
        int r = ps_pack_dummy(config, dst, 1, NULL, &dt);
        (void) !write(p[1], &dt, sizeof dt);
        _exit(r == -EFBIG ? 0 : 1);
    }
    int status;
    (void) close(p[1]);
    assert_int_equal(read(p[0], &dt, sizeof dt), sizeof dt);
    (void) close(p[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status) fail_msg("%d: %s", status, dt.text);
    assert_says(&dt, "weights-00001");
    assert_int_equal(tiny_count(parent), 0);
}

/* Full before the weights, and full only once the weights are there. */
static int on_small_disk(const char *config, const char *src, const char *mount_at)
{
    char to[PATH_MAX];
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", mount_at, "tmpfs", 0, "size=1M") < 0)
        return 77;
    (void) snprintf(to, sizeof to, "%s/packed", mount_at);
    int r = ps_pack_dummy(config, to, 1, NULL, &dt);
    if (r != -ENOSPC || !strstr(dt.text, "free") || tiny_count(mount_at)) return 2;
    r = ps_pack_convert(src, to, NULL, &dt);
    if (r != -ENOSPC || !strstr(dt.text, "merges.txt") || tiny_count(mount_at)) return 3;
    return 0;
}

static void full_disk(void **state)
{
    const char *config = big_config(), *src = new_src(), *at = tiny_folder();
    char *much = calloc(1 << 20, 1);
    memset(much, 'a', (1 << 20) - 1);
    tiny_write_text(src, "merges.txt", much);
    free(much);
    pid_t pid = fork();
    if (pid == 0) {
        int r = on_small_disk(config, src, at);
        if (r && r != 77) (void) fprintf(stderr, "%s\n", dt.text);
        _exit(r);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip(); /* no right to mount */
    assert_int_equal(status, 0);
}

static void dummy_is_a_function_of_seed(void **state)
{
    const char *config = big_config();
    char *text[3];
    size_t n[3];
    for (int i = 0; i < 3; i++) {
        struct ps_convert_opt c = { .dtype = -1, .threads = i ? 3 : 1 };
        assert_ok_dt(ps_pack_dummy(config, new_dst(), i == 2 ? 8 : 9, &c, &dt), &dt);
        text[i] = tiny_read(dst, "weights-00001-of-00001.safetensors", &n[i]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(text[0], text[1], n[0]);
    assert_int_equal(n[0], n[2]);
    assert_true(memcmp(text[0], text[2], n[0]) != 0);
    for (int i = 0; i < 3; i++) free(text[i]);
}

static void cached(void **state)
{
    const char *src = new_src(), *dir = tiny_folder();
    char into[PATH_MAX];
    tiny_path(into, sizeof into, dir, "a/b");
    ps_auto_free char *one = NULL, *two = NULL, *three = NULL, *four = NULL, *five = NULL;
    struct watch w = { 0 };
    struct ps_convert_opt c = { .dtype = -1, .progress = progress, .ud = &w };
    assert_ok_dt(ps_pack_cached(src, into, &c, &one, &dt), &dt);
    tiny_check(one, PS_F16);
    int calls = w.calls;
    assert_ok_dt(ps_pack_cached(src, into, &c, &two, &dt), &dt);
    assert_string_equal(one, two);
    assert_int_equal(w.calls, calls); /* nothing was converted */
    assert_ok_dt(ps_pack_cached(one, into, NULL, &three, &dt), &dt);
    assert_string_equal(one, three);
    /* Another time stamp: another copy. A broken copy: made anew. */
    struct timespec t[2] = { { 1000, 5 }, { 1000, 5 } };
    char path[PATH_MAX];
    tiny_path(path, sizeof path, src, "model.safetensors");
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    assert_ok_dt(ps_pack_cached(src, into, NULL, &four, &dt), &dt);
    assert_string_not_equal(one, four);
    tiny_path(path, sizeof path, four, "weights-00001-of-00001.safetensors");
    assert_int_equal(truncate(path, 100), 0);
    assert_ok_dt(ps_pack_cached(src, into, NULL, &five, &dt), &dt);
    assert_string_equal(four, five);
    tiny_check(five, PS_F16);
    ps_auto_free char *six = NULL;
    assert_int_equal(setenv("XDG_CACHE_HOME", dir, 1), 0);
    assert_ok_dt(ps_pack_cached(src, NULL, NULL, &six, &dt), &dt);
    assert_memory_equal(six, dir, strlen(dir));
    assert_non_null(strstr(six, "/penstock/packed/"));
}

static void inspected(void **state)
{
    const char *src = new_src();
    assert_ok_dt(ps_pack_convert(src, new_dst(), NULL, &dt), &dt);
    char file[PATH_MAX], config[PATH_MAX];
    tiny_path(file, sizeof file, dst, "weights-00001-of-00001.safetensors");
    tiny_path(config, sizeof config, src, "config.json");
    const char *const paths[] = { dst, src, config, file, fixture() };
    const char *const kinds[] = { "packed", "huggingface", "config", "weights", "huggingface" };
    for (size_t i = 0; i < PS_ARRAY_LEN(paths); i++) {
        json_t *j;
        assert_ok_dt(ps_inspect_model(paths[i], true, &j, &dt), &dt);
        assert_string_equal(json_string_value(json_object_get(j, "kind")), kinds[i]);
        ps_auto_free char *text = ps_inspect_text(j);
        assert_non_null(text);
        assert_true(json_integer_value(json_object_get(j, "parameters")) > 100);
        if (i == 0) assert_string_equal(json_string_value(json_object_get(j, "checksums")), "ok");
        json_decref(j);
    }
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "\x55\xaa", 2, lseek(fd, 0, SEEK_END) - 9000), 2);
    (void) close(fd);
    json_t *j;
    assert_ok_dt(ps_inspect_model(dst, true, &j, &dt), &dt);
    assert_string_equal(json_string_value(json_object_get(j, "checksums")), "damaged");
    assert_int_equal(json_array_size(json_object_get(j, "damaged")), 1);
    ps_auto_free char *text = ps_inspect_text(j);
    assert_non_null(strstr(text, "DAMAGED"));
    json_decref(j);
    assert_err(ps_inspect_model("/nowhere", false, &j, &dt), ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(dst_in_the_way),
        cmocka_unit_test(repack),
        cmocka_unit_test(links_are_followed),
        cmocka_unit_test(stopped),
        cmocka_unit_test(extras),
        cmocka_unit_test(killed),
        cmocka_unit_test(file_size_limit),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(dummy_is_a_function_of_seed),
        cmocka_unit_test(cached),
        cmocka_unit_test(inspected),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_cleanup();
    return r;
}
