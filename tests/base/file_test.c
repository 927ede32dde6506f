/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_file.h"
#include "engine/base/ps_mem.h"
#include "ps_cmocka.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int make_folder(void **state)
{
    (void) snprintf(folder, sizeof folder, "/tmp/ps-file-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state) { return rmdir(folder); }

static void paths(void **state)
{
    static const char *const of[][2] = { { "a", "." },     { "a/b", "a" }, { "/a", "/" },
                                         { "/a/b", "/a" }, { "", "." },    { "a/", "a" } };
    for (size_t i = 0; i < PS_ARRAY_LEN(of); i++) {
        ps_auto_free char *p = NULL;
        assert_ok(ps_folder_of(of[i][0], &p));
        assert_string_equal(p, of[i][1]);
    }
    ps_auto_free char *p = ps_concat("a", "/", "bc");
    assert_string_equal(p, "a/bc");
    assert_true(ps_is_file("/proc/self", "status") && ps_is_file("/proc/self/", "status"));
    assert_true(ps_is_regular("/proc/self/status"));
    assert_true(ps_same_file("/proc/self/..", "/proc") && !ps_same_file("/proc", "/dev"));
    assert_false(ps_same_file("nothing", "nothing"));
    assert_false(ps_is_regular("/proc/self") || ps_is_regular("/dev/null") || ps_is_regular(""));
    assert_false(ps_is_file("/proc", "self") || ps_is_file(folder, "nothing"));
}

static void whole_reads_and_writes(void **state)
{
    struct ps_detail dt = { "" };
    ps_auto_free char *path = ps_concat(folder, "/", "f"), *text = NULL;
    char buf[8] = "";
    size_t len = 0;
    ps_auto_close int fd = ps_temp_beside(path, &dt);
    assert_true(fd >= 0);
    assert_ok(ps_pwrite_all(fd, "abcdef", 6, 2));
    assert_ok(ps_pread_all(fd, buf, 8, 0));
    assert_memory_equal(buf, "\0\0abcdef", 8);
    assert_err(ps_pread_all(fd, buf, 8, 1), ENODATA);
    assert_err(ps_pread_all(-1, buf, 1, 0), EBADF);
    assert_err(ps_pwrite_all(-1, buf, 1, 0), EBADF);
    assert_false(ps_is_file(folder, "f")); /* it has no name */
    ps_auto_free char *open_file = malloc(64);
    (void) snprintf(open_file, 64, "/proc/self/fd/%d", fd);
    assert_ok_dt(ps_slurp(open_file, 8, &text, &len, &dt), &dt);
    assert_int_equal(len, 8);
    assert_memory_equal(text, "\0\0abcdef", 9);
    free(PS_TAKE(text));
    assert_err(ps_slurp(open_file, 7, &text, &len, &dt), EFBIG);
    assert_non_null(strstr(dt.text, open_file));
}

static void what_is_no_file_is_refused(void **state)
{
    struct ps_detail dt;
    ps_auto_free char *text = NULL, *fifo = ps_concat(folder, "/", "fifo");
    size_t len;
    assert_err(ps_slurp(folder, 8, &text, &len, &dt), EISDIR);
    assert_err(ps_slurp(fifo, 8, &text, &len, &dt), ENOENT);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_err(ps_slurp(fifo, 8, &text, &len, &dt), PS_EFORMAT);
    assert_int_equal(unlink(fifo), 0);
    assert_ok(ps_sync_folder(folder));
    assert_ok(ps_sync_beside(fifo));
    assert_err(ps_sync_folder(fifo), ENOENT);
}

static int files_beside(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) n += !strncmp(e->d_name, "new", 3);
    (void) closedir(d);
    return n;
}

/* Whole under its name, or as it was; what is beside it stays. */
static void files_are_replaced_whole(void **state)
{
    struct ps_detail dt;
    char number[32];
    (void) snprintf(number, sizeof number, ".tmp-%d", getpid());
    ps_auto_free char *path = ps_concat(folder, "/", "new"), *other = ps_concat(path, "", number),
                      *inside = ps_concat(path, "/", "x"), *text = NULL, *theirs = NULL;
    size_t len;
    assert_ok_dt(ps_file_replaceable(path, &dt), &dt);
    assert_ok_dt(ps_file_replace(path, "one", &dt), &dt);
    assert_ok_dt(ps_file_replaceable(path, &dt), &dt);
    assert_err(ps_file_replace(inside, "two", &dt), ENOTDIR);
    assert_non_null(strstr(dt.text, inside));
    assert_int_equal(rename(path, other), 0); /* it has the name that would be taken */
    assert_int_equal(mkdir(path, 0700), 0);
    assert_err(ps_file_replace(path, "two", &dt), EISDIR);
    assert_int_equal(rmdir(path), 0);
    assert_ok_dt(ps_file_replace(path, "three", &dt), &dt);
    assert_ok_dt(ps_slurp(path, 8, &text, &len, &dt), &dt);
    assert_string_equal(text, "three");
    assert_ok_dt(ps_slurp(other, 8, &theirs, &len, &dt), &dt);
    assert_string_equal(theirs, "one");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(files_beside(), 1);
    assert_err(ps_file_replaceable(folder, &dt), PS_EUSAGE);
    assert_err(ps_file_replaceable("/dev/null", &dt), PS_EUSAGE);
    assert_err(ps_file_replaceable(inside, &dt), ENOTDIR);
    assert_int_equal(unlink(path), 0);
}

static void every_allocation_may_fail(void **state)
{
    struct ps_detail dt;
    ps_auto_free char *path = ps_concat(folder, "/", "f");
    for (uint64_t nth = 1;; nth++) {
        assert_true(nth < 20);
        ps_mem_fault_arm(nth);
        int fd = ps_temp_beside(path, &dt), r = ps_sync_beside(path);
        int hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (fd >= 0) (void) close(fd);
        assert_true(hit ? fd == -ENOMEM || r == -ENOMEM : fd >= 0 && r == 0);
        if (!hit) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),
        cmocka_unit_test(whole_reads_and_writes),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(files_are_replaced_whole),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
