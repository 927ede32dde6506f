/* SPDX-License-Identifier: Apache-2.0 */
/* The store contract, run against every store, alone and with faults below and above. */
#include "engine/base/ps_mem.h"
#include "offload/store.h"
#include "offload/store_fault.h"
#include "ps_cmocka.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ALIGN = 4096, N_BLOCKS = 64, SIZE = ALIGN * N_BLOCKS, DEPTH = 5 };

static char dir[64];

struct stand {
    char path[2][96];
    struct ps_store_file files[2];
    struct ps_store *t;
    uint8_t *mem;
};

static void fill(uint8_t *p, uint64_t off, size_t n)
{
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t) ((off + i) * 2654435761u >> 13);
}

static void make_file(const char *path, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    ps_auto_free uint8_t *p = malloc(size ? size : 1);
    fill(p, 0, size);
    assert_int_equal(write(fd, p, size), (ssize_t) size);
    (void) fsync(fd);
    (void) close(fd);
}

/* Two files: 0 may be written, 1 only read and its end is not aligned. */
static void stand_make(struct stand *s)
{
    *s = (struct stand) { 0 };
    for (int i = 0; i < 2; i++) {
        snprintf(s->path[i], sizeof s->path[i], "%s/file-%d", dir, i);
        make_file(s->path[i], i ? SIZE - 100 : SIZE);
        s->files[i] = (struct ps_store_file) { .path = s->path[i], .write = i == 0 };
    }
    s->mem = ps_aligned(ALIGN, SIZE);
    assert_non_null(s->mem);
}

static int stand_open(struct stand *s, const char *name, const char *fault, bool no_direct,
                      struct ps_detail *dt)
{
    struct ps_store_cfg cfg = { .files = s->files,
                                .n_files = 2,
                                .depth = DEPTH,
                                .mem = s->mem,
                                .mem_bytes = SIZE,
                                .fault = fault,
                                .no_direct = no_direct };
    return ps_store_open(ps_store_find(name), &cfg, &s->t, dt);
}

static void stand_done(struct stand *s)
{
    s->t = ps_store_close(s->t);
    for (int i = 0; i < 2; i++) (void) unlink(s->path[i]);
    free(s->mem);
}

static bool skip_uring(const char *name)
{
    if (!ps_store_find(name)) return true;
    if (strcmp(name, "uring") != 0) return false;
    struct stand s;
    stand_make(&s);
    int r = stand_open(&s, name, NULL, false, NULL);
    stand_done(&s);
    return r < 0; /* refused here: nothing to test */
}

static void reap_all(struct ps_store *t, unsigned n, int64_t want)
{
    struct ps_io *d[3];
    while (n) {
        int r = ps_store_reap(t, d, 3, -1);
        assert_ok(r);
        assert_true((unsigned) r <= n);
        for (int i = 0; i < r; i++)
            if (d[i]->res != want)
                fail_msg("res %lld, wanted %lld", (long long) d[i]->res, (long long) want);
        n -= (unsigned) r;
    }
}

/* Every block through the queue, depth ios at a time, in a scrambled order; then read back. */
static void round_trip(struct stand *s, enum ps_io_dir way)
{
    struct ps_io io[N_BLOCKS] = { 0 };
    unsigned sent = 0, back = 0;
    while (back < N_BLOCKS) {
        for (int r = 1; sent < N_BLOCKS && r > 0; sent += (unsigned) r) {
            unsigned b = sent * 37 % N_BLOCKS;
            struct ps_io *p = &io[b];
            *p = (struct ps_io) { .dir = way,
                                  .len = ALIGN,
                                  .off = (uint64_t) b * ALIGN,
                                  .buf = s->mem + (size_t) b * ALIGN,
                                  .ud = p };
            r = ps_store_submit(s->t, &p, 1);
            assert_ok(r);
        }
        struct ps_io *d[4];
        int r = ps_store_reap(s->t, d, 4, -1);
        assert_ok(r);
        for (int i = 0; i < r; i++) {
            assert_true(d[i]->res == ALIGN && d[i]->ud == d[i]);
            d[i]->ud = NULL; /* once only */
        }
        back += (unsigned) r;
    }
}

static void check_stand(struct stand *s)
{
    ps_auto_free uint8_t *want = malloc(SIZE);
    for (int i = 0; i < SIZE; i++) want[i] = (uint8_t) (i * 7 + i / 251);
    memcpy(s->mem, want, SIZE);
    round_trip(s, PS_IO_WRITE);
    memset(s->mem, 0xa5, SIZE);
    round_trip(s, PS_IO_READ);
    assert_memory_equal(s->mem, want, SIZE);
    memset(s->mem, 0xa5, SIZE); /* one large transfer */
    assert_ok(ps_store_rw(s->t, PS_IO_READ, 0, ALIGN, s->mem + ALIGN, SIZE - ALIGN));
    assert_memory_equal(s->mem + ALIGN, want + ALIGN, SIZE - ALIGN);
    fill(want, 0, SIZE);
    assert_ok(ps_store_rw(s->t, PS_IO_READ, 1, ALIGN, s->mem, ALIGN));
    assert_memory_equal(s->mem, want + ALIGN, ALIGN);
}

static const char *const real[] = { "uring", "pread" };

static void bytes_come_back(void **state)
{
    static const char *const faults[] = {
        NULL,        "short:2", "short:3,intr:2",
        "delay:300", "reorder", "delay:200,reorder,short:2,seed:7"
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(real); i++)
        for (size_t f = 0; f < PS_ARRAY_LEN(faults) && !skip_uring(real[i]); f++)
            for (int no_direct = 0; no_direct < 2; no_direct++) {
                struct stand s;
                struct ps_detail dt = { { 0 } };
                stand_make(&s);
                assert_ok_dt(stand_open(&s, real[i], faults[f], no_direct, &dt), &dt);
                assert_true(s.files[0].size == SIZE && s.files[1].size == SIZE - 100);
                assert_true(!no_direct || !s.t->info.direct);
                assert_string_equal(ps_store_path(s.t, 1), s.path[1]);
                check_stand(&s);
                stand_done(&s);
            }
}

/* A buffer outside the registered memory works as well. */
static void unregistered_memory(void **state)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(real) && !skip_uring(real[i]); i++) {
        struct stand s;
        stand_make(&s);
        assert_ok(stand_open(&s, real[i], NULL, false, NULL));
        ps_auto_free uint8_t *p = ps_aligned(ALIGN, ALIGN), *want = malloc(ALIGN);
        fill(want, ALIGN * 3, ALIGN);
        assert_ok(ps_store_rw(s.t, PS_IO_READ, 0, ALIGN * 3, p, ALIGN));
        assert_memory_equal(p, want, ALIGN);
        stand_done(&s);
    }
}

static void fills_up(void **state)
{
    static const char *const names[] = { "uring", "pread", "null" };
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        for (int fault = 0; fault < 2 && !skip_uring(names[i]); fault++) {
            struct stand s;
            stand_make(&s);
            assert_ok(stand_open(&s, names[i], fault ? "delay:100" : NULL, false, NULL));
            struct ps_io io[DEPTH + 3] = { 0 }, *p[DEPTH + 3];
            for (int k = 0; k < DEPTH + 3; k++) {
                io[k] = (struct ps_io) { .buf = s.mem + (size_t) k * ALIGN, .len = ALIGN };
                p[k] = &io[k];
            }
            assert_int_equal(s.t->info.depth, DEPTH);
            assert_int_equal(ps_store_submit(s.t, p, DEPTH + 3), DEPTH);
            assert_int_equal(ps_store_submit(s.t, p + DEPTH, 1), 0);
            reap_all(s.t, DEPTH, ALIGN);
            assert_int_equal(ps_store_submit(s.t, p + DEPTH, 3), 3);
            reap_all(s.t, 3, ALIGN);
            stand_done(&s);
        }
}

static void bad_transfers_are_refused(void **state)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(real) && !skip_uring(real[i]); i++) {
        struct stand s;
        stand_make(&s);
        assert_ok(stand_open(&s, real[i], NULL, false, NULL));
        assert_err(ps_store_rw(s.t, PS_IO_READ, 0, 1, s.mem, ALIGN), EINVAL);
        assert_err(ps_store_rw(s.t, PS_IO_READ, 0, 0, s.mem + 1, ALIGN), EINVAL);
        assert_err(ps_store_rw(s.t, PS_IO_READ, 0, 0, s.mem, 0), EINVAL);
        assert_err(ps_store_rw(s.t, PS_IO_READ, 0, UINT64_MAX - ALIGN + 1, s.mem, ALIGN), EINVAL);
        assert_err(ps_store_rw(s.t, PS_IO_READ, 2, 0, s.mem, ALIGN), EINVAL);
        assert_err(ps_store_rw(s.t, PS_IO_WRITE, 1, 0, s.mem, ALIGN), EBADF);
        /* Past the end, across the end, and the last piece that is not whole. */
        assert_err(ps_store_rw(s.t, PS_IO_READ, 0, SIZE, s.mem, ALIGN), ENODATA);
        assert_err(ps_store_rw(s.t, PS_IO_READ, 0, SIZE - ALIGN, s.mem, 2 * ALIGN), ENODATA);
        assert_err(ps_store_rw(s.t, PS_IO_READ, 1, SIZE - ALIGN, s.mem, ALIGN), ENODATA);
        assert_ok(ps_store_rw(s.t, PS_IO_READ, 1, SIZE - 2 * ALIGN, s.mem, ALIGN));
        stand_done(&s);
    }
}

static void *wake_main(void *arg)
{
    ps_store_wake(arg);
    return NULL;
}

static void wake_ends_a_wait(void **state)
{
    static const char *const names[] = { "uring", "pread", "null" };
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        for (int fault = 0; fault < 2 && !skip_uring(names[i]); fault++) {
            struct stand s;
            struct ps_io *d[2];
            stand_make(&s);
            assert_ok(stand_open(&s, names[i], fault ? "delay:50" : NULL, false, NULL));
            for (int k = 0; k < 20; k++) { /* now or the next one */
                pthread_t th;
                assert_int_equal(pthread_create(&th, NULL, wake_main, s.t), 0);
                assert_int_equal(ps_store_reap(s.t, d, 2, -1), 0);
                (void) pthread_join(th, NULL);
            }
            assert_int_equal(ps_store_reap(s.t, d, 2, 0), 0); /* nothing is left of them */
            assert_int_equal(ps_store_reap(s.t, d, 2, 2000000), 0);
            if (strcmp(names[i], "null") != 0) check_stand(&s);
            stand_done(&s);
        }
}

static void null_reads_zeros(void **state)
{
    struct stand s;
    stand_make(&s);
    assert_ok(stand_open(&s, "null", NULL, false, NULL));
    memset(s.mem, 7, ALIGN);
    assert_ok(ps_store_rw(s.t, PS_IO_WRITE, 0, 0, s.mem, ALIGN));
    assert_ok(ps_store_rw(s.t, PS_IO_READ, 0, 0, s.mem, ALIGN));
    for (int i = 0; i < ALIGN; i++) assert_int_equal(s.mem[i], 0);
    stand_done(&s);
}

static void faults_strike_once(void **state)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(real) && !skip_uring(real[i]); i++) {
        struct stand s;
        stand_make(&s);
        assert_ok(stand_open(&s, real[i], "read:2:EIO,write:1:ENOSPC,write:3:EDQUOT,flip:4", false,
                             NULL));
        assert_ok(ps_store_rw(s.t, PS_IO_READ, 0, 0, s.mem, ALIGN));
        assert_err(ps_store_rw(s.t, PS_IO_READ, 0, 0, s.mem, ALIGN), EIO);
        assert_ok(ps_store_rw(s.t, PS_IO_READ, 0, 0, s.mem, ALIGN));
        assert_err(ps_store_rw(s.t, PS_IO_WRITE, 0, 0, s.mem, ALIGN), ENOSPC);
        assert_ok(ps_store_rw(s.t, PS_IO_WRITE, 0, 0, s.mem, ALIGN));
        assert_err(ps_store_rw(s.t, PS_IO_WRITE, 0, 0, s.mem, ALIGN), EDQUOT);
        ps_auto_free uint8_t *want = malloc(ALIGN);
        fill(want, 0, ALIGN);
        int wrong = 0;
        assert_ok(ps_store_rw(s.t, PS_IO_READ, 0, 0, s.mem, ALIGN));
        for (int k = 0; k < ALIGN; k++) wrong += __builtin_popcount(want[k] ^ s.mem[k]);
        assert_int_equal(wrong, 1);
        assert_ok(ps_store_rw(s.t, PS_IO_READ, 0, 0, s.mem, ALIGN));
        assert_memory_equal(s.mem, want, ALIGN);
        stand_done(&s);
    }
}

static void bad_specs_are_refused(void **state)
{
    static const char *const bad[] = { "read",
                                       "read:0:EIO",
                                       "read:1:EFOO",
                                       "read:1",
                                       "flip:x",
                                       "short:1",
                                       "delay:",
                                       "intr:-2",
                                       "read:1:EIO;flip:2",
                                       "sleep:3",
                                       "flip:99999999999999999999" };
    struct ps_faults f;
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        struct ps_detail dt = { { 0 } };
        assert_err(ps_faults_parse(bad[i], &f, &dt), EINVAL);
        assert_says(&dt, "expected");
    }
    assert_ok(ps_faults_parse("", &f, NULL));
    assert_ok(ps_faults_parse("read:3:EIO,flip:2,reorder,seed:0", &f, NULL));
    assert_true(f.reorder && f.n_flip == 1 && f.fail[PS_IO_READ][0].nth == 3);
}

static void errors_name_the_file(void **state)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(real) && !skip_uring(real[i]); i++) {
        struct stand s;
        struct ps_detail dt = { { 0 } };
        stand_make(&s);
        (void) unlink(s.path[1]);
        assert_err(stand_open(&s, real[i], NULL, false, &dt), ENOENT);
        assert_says(&dt, s.path[1]);
        assert_int_equal(mkdir(s.path[1], 0700), 0);
        assert_true(stand_open(&s, real[i], NULL, false, &dt) < 0);
        assert_says(&dt, s.path[1]);
        (void) rmdir(s.path[1]);
        assert_null(s.t);
        struct ps_store_cfg none = { 0 };
        assert_err(ps_store_open(ps_store_find(real[i]), &none, &s.t, &dt), EINVAL);
        stand_done(&s);
    }
}

static void open_survives_oom(void **state)
{
    static const char *const names[] = { "uring", "pread", "null" };
    for (size_t k = 0; k < PS_ARRAY_LEN(names); k++)
        for (unsigned n = 1; !skip_uring(names[k]); n++) {
            struct stand s;
            stand_make(&s);
            s.t = (void *) 0x1;
            ps_mem_fault_arm(n);
            int r = stand_open(&s, names[k], "delay:1", false, NULL), hit = ps_mem_fault_hit();
            ps_mem_fault_arm(0);
            if (r < 0) {
                assert_true(hit && r == -ENOMEM && s.t == (void *) 0x1);
                s.t = NULL;
            }
            stand_done(&s); /* some allocations are optional: open then goes on */
            if (!hit) break;
            assert_true(n < 100);
        }
}

static void best_is_one_of_both(void **state)
{
    struct stand s;
    struct ps_detail why, dt = { { 0 } };
    stand_make(&s);
    struct ps_store_cfg cfg = { .files = s.files, .n_files = 2, .fault = "short:2" };
    assert_ok_dt(ps_store_open_best(&cfg, &s.t, &why, &dt), &dt);
    assert_string_equal(s.t->ops->name, "fault");
    check_stand(&s);
    s.t = ps_store_close(s.t);
    cfg.fault = NULL;
    assert_ok_dt(ps_store_open_best(&cfg, &s.t, &why, &dt), &dt);
    assert_true((s.t->ops == ps_store_find("pread")) == (why.text[0] != 0));
    stand_done(&s);
}

/* A container's seccomp profile: io_uring_setup answers EPERM. In a child, since a filter stays. */
static int refused_child(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = { .len = PS_ARRAY_LEN(code), .filter = code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
        return 77; /* no filters here */
    struct stand s;
    struct ps_detail why = { { 0 } }, dt = { { 0 } };
    stand_make(&s);
    struct ps_store_cfg cfg = { .files = s.files, .n_files = 2 };
    if (ps_store_open_best(&cfg, &s.t, &why, &dt) < 0) return 1;
    if (strcmp(s.t->ops->name, "pread") != 0 || !strstr(why.text, "EPERM")) return 2;
    if (ps_store_rw(s.t, PS_IO_READ, 0, 0, s.mem, ALIGN) < 0) return 3;
    s.t = ps_store_close(s.t);
    if (stand_open(&s, "uring", NULL, false, &dt) != -EPERM || s.t) return 4;
    return strstr(dt.text, "io_uring") ? 0 : 5;
}

static void refused_io_uring_falls_back(void **state)
{
    if (!ps_store_find("uring")) skip();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(refused_child());
    int st = 0;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFEXITED(st));
    if (WEXITSTATUS(st) == 77) skip();
    assert_int_equal(WEXITSTATUS(st), 0);
    struct stand s; /* the child's files have the same names */
    stand_make(&s);
    stand_done(&s);
}

/* close() with transfers under way: the buffers are the caller's again when it returns. */
static void close_waits(void **state)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(real) && !skip_uring(real[i]); i++)
        for (int fault = 0; fault < 2; fault++) {
            struct stand s;
            stand_make(&s);
            assert_ok(stand_open(&s, real[i], fault ? "delay:500" : NULL, false, NULL));
            struct ps_io io[DEPTH] = { 0 }, *p[DEPTH];
            for (int k = 0; k < DEPTH; k++) {
                io[k] = (struct ps_io) { .buf = s.mem + (size_t) k * 8 * ALIGN, .len = 8 * ALIGN };
                p[k] = &io[k];
            }
            assert_int_equal(ps_store_submit(s.t, p, DEPTH), DEPTH);
            stand_done(&s);
        }
    assert_null(ps_store_close(NULL));
}

int main(void)
{
    (void) snprintf(dir, sizeof dir, "ps-store-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(unregistered_memory),
        cmocka_unit_test(fills_up),
        cmocka_unit_test(bad_transfers_are_refused),
        cmocka_unit_test(wake_ends_a_wait),
        cmocka_unit_test(null_reads_zeros),
        cmocka_unit_test(faults_strike_once),
        cmocka_unit_test(bad_specs_are_refused),
        cmocka_unit_test(errors_name_the_file),
        cmocka_unit_test(open_survives_oom),
        cmocka_unit_test(best_is_one_of_both),
        cmocka_unit_test(refused_io_uring_falls_back),
        cmocka_unit_test(close_waits),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    (void) rmdir(dir);
    return r;
}
