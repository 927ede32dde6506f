/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a job: order, resume, lock, refusals, signals, disk trouble, and what stays on disk after each. */
#include "engine/base/ps_mem.h"
#include "engine/job/report.h"
#include "ps_cmocka.h"
#include "try_job.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* n lines of different lengths, so that they end in another order; some of them are wrong. */
static void mixed_input(struct tj *t, unsigned n)
{
    FILE *f = fopen(t->in, "w");
    for (unsigned i = 0; i < n; i++) {
        if (i % 7 == 3)
            (void) fprintf(f, "{\"custom_id\": \"bad %u\", \"body\": {\"prompt\": %u}}\n", i, i);
        else
            (void) fprintf(f,
                           "{\"custom_id\": \"id %u\", \"body\": {\"prompt\": \"p%u\", "
                           "\"max_tokens\": %u, \"logprobs\": 1}}\n\n",
                           i, i, 1 + (i * 13) % 40);
    }
    (void) fclose(f);
}

static void ids_in_order(const struct tj *t, unsigned n)
{
    assert_int_equal(tj_lines(t, ""), n);
    ps_auto_free char *out = tj_read(t, "");
    char *s = out;
    for (unsigned i = 0; i < n; i++, s = strchr(s, '\n') + 1) {
        char want[64];
        (void) snprintf(want, sizeof want, "\"custom_id\": \"%s %u\"", i % 7 == 3 ? "bad" : "id",
                        i);
        char *hit = strstr(s, want);
        assert_true(hit && hit < strchr(s, '\n'));
    }
}

static void nothing_beside(const struct tj *t)
{
    assert_false(tj_exists(t, ".part"));
    assert_false(tj_exists(t, ".journal"));
    assert_false(tj_exists(t, ".sorted"));
}

static void results_in_input_order(void **state)
{
    struct tj t;
    tj_begin(&t);
    t.cfg.report = t.report;
    mixed_input(&t, 60);
    assert_ok_dt(tj_run(&t), &t.dt);
    ids_in_order(&t, 60);
    nothing_beside(&t);
    assert_int_equal(t.res.requests, 60);
    assert_int_equal(t.res.failed, 9);
    assert_int_equal(fake.most_active, 4);
    ps_auto_free char *rep = tj_slurp(t.report);
    json_error_t e;
    json_t *j = json_loads(rep, 0, &e);
    assert_non_null(j);
    static const char *const keys[] = { "version", "machine",    "model",  "job",      "plan",
                                        "time",    "throughput", "links",  "wait_s",   "memory",
                                        "kv",      "predicted",  "actual", "projected" };
    for (size_t i = 0; i < PS_ARRAY_LEN(keys); i++) assert_non_null(json_object_get(j, keys[i]));
    json_t *job = json_object_get(j, "job");
    assert_int_equal(json_integer_value(json_object_get(job, "requests")), 60);
    assert_int_equal(json_integer_value(json_object_get(job, "failed")), 9);
    assert_int_equal(json_integer_value(json_object_get(job, "generated_tokens")),
                     t.res.generated_tokens);
    assert_true(json_is_false(json_object_get(j, "projected")));
    json_decref(j);
    tj_end(&t);
}

static void order_of_completion(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 60);
    t.cfg.order_completion = true;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(tj_lines(&t, ""), 60);
    ps_auto_free char *mixed = tj_read(&t, "");
    (void) unlink(t.out);
    t.cfg.order_completion = false;
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *sorted = tj_read(&t, "");
    assert_int_equal(strlen(mixed), strlen(sorted));
    assert_string_not_equal(mixed, sorted);
    tj_end(&t);
}

static void same_command_again(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 20);
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *first = tj_read(&t, "");
    uint64_t failed = t.res.failed, generated = t.res.generated_tokens;
    t.cfg.now++;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_true(t.res.already_done);
    assert_int_equal(t.res.failed, failed);
    assert_int_equal(t.res.generated_tokens, generated);
    assert_int_equal(fake.runs, 1);
    ps_auto_free char *second = tj_read(&t, "");
    assert_string_equal(first, second);
    nothing_beside(&t);
    /* --no-resume does it anew, and replaces its own OUTPUT */
    t.cfg.no_resume = true;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(fake.runs, 2);
    tj_end(&t);
}

static void other_output_is_not_touched(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 5);
    assert_ok_dt(tj_run(&t), &t.dt);
    t.cfg.defaults.seed = 9;
    assert_err(tj_run(&t), PS_ECONFLICT);
    assert_says(&t.dt, "--overwrite");
    FILE *f = fopen(t.out, "w");
    (void) fputs("my diary\n", f);
    (void) fclose(f);
    assert_err(tj_run(&t), PS_ECONFLICT);
    ps_auto_free char *diary = tj_read(&t, "");
    assert_string_equal(diary, "my diary\n");
    nothing_beside(&t);
    t.cfg.no_resume = true;
    assert_err(tj_run(&t), PS_ECONFLICT);
    t.cfg.overwrite = true;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(tj_lines(&t, ""), 5);
    tj_end(&t);
}

static void stop_and_go_on(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 60);
    t.cfg.dump_kv = t.kv;
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *whole = tj_read(&t, "");
    ps_auto_free char *kv = tj_slurp(t.kv);
    uint64_t generated = t.res.generated_tokens, prompts = t.res.prompt_tokens;
    (void) unlink(t.out);
    unsigned runs = 0;
    do {
        t.stop = 0;
        fake.stop_at =
            11 + runs * 5; /* a sequence starts again from its prompt: it needs its length */
        t.cfg.now = runs ? 1 : 1700000000; /* `created` is the first run's */
        assert_ok_dt(tj_run(&t), &t.dt);
        assert_int_equal(t.res.interrupted, tj_exists(&t, ".journal"));
        assert_int_equal(t.res.interrupted, !tj_exists(&t, ""));
        runs++;
    } while (t.res.interrupted && runs < 200);
    assert_true(runs > 5);
    ps_auto_free char *pieces = tj_read(&t, "");
    assert_string_equal(whole, pieces);
    assert_int_equal(t.res.generated_tokens, generated);
    assert_int_equal(t.res.prompt_tokens, prompts);
    assert_int_equal(t.res.failed, 9);
    ps_auto_free char *kv2 = tj_slurp(t.kv);
    assert_int_equal(strlen(kv), strlen(kv2)); /* the order may differ */
    nothing_beside(&t);
    tj_end(&t);
}

static uint64_t die_at;
static void die(uint64_t sweep)
{
    if (sweep == die_at) (void) raise(SIGKILL);
}

/* Killed at any moment, the next run ends with the same bytes; torn ends are cut off. */
static void killed_and_resumed(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 40);
    t.cfg.dump_kv = t.kv;
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *whole = tj_read(&t, "");
    ps_auto_free char *kv = tj_slurp(t.kv);
    (void) unlink(t.out);
    (void) unlink(t.kv);
    for (unsigned round = 0; round < 12; round++) {
        (void) fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            die_at = 3 + round * 5 % 13;
            fake.at_sweep = die;
            t.cfg.now += round;
            (void) tj_run(&t);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        char path[160];
        (void) snprintf(path, sizeof path, "%s.part", t.out);
        int fd = open(path, O_WRONLY | O_APPEND);
        if (fd >= 0) {
            assert_int_equal(write(fd, "{\"id\": \"batch_req_", 18), 18);
            (void) close(fd);
        }
    }
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *pieces = tj_read(&t, "");
    assert_string_equal(whole, pieces);
    ps_auto_free char *kv2 = tj_slurp(t.kv);
    assert_int_equal(strlen(kv), strlen(kv2));
    nothing_beside(&t);
    tj_end(&t);
}

static void die_before_ordering(void *ud, const struct ps_job_progress *p)
{
    if (p->phase == PS_JOB_ORDERING) (void) raise(SIGKILL);
}

/* A newer attempt that had all its records when it was killed is ended, not taken for what an older one left behind; what one did leave
 * behind just goes. */
static void killed_before_the_rename(void **state)
{
    struct tj t;
    char part[160], journal[160];
    tj_begin(&t);
    mixed_input(&t, 20);
    assert_ok_dt(tj_run(&t), &t.dt);
    (void) snprintf(part, sizeof part, "%s.part", t.out);
    (void) snprintf(journal, sizeof journal, "%s.journal", t.out);
    (void) fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        t.cfg.no_resume = true;
        t.cfg.now += 60;
        t.cfg.progress = die_before_ordering;
        (void) tj_run(&t);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(tj_lines(&t, ".part"), 20);
    ps_auto_free char *was = tj_slurp(journal);
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_false(t.res.already_done);
    ids_in_order(&t, 20);
    ps_auto_free char *out = tj_read(&t, "");
    assert_null(strstr(out, "\"created\": 1700000000"));
    assert_non_null(strstr(out, "\"created\": 1700000060"));
    nothing_beside(&t);

    FILE *f = fopen(journal, "w"); /* as if it had ended after the rename */
    (void) fputs(was, f);
    (void) fclose(f);
    f = fopen(part, "w");
    (void) fputs(out, f);
    (void) fclose(f);
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_true(t.res.already_done);
    nothing_beside(&t);
    tj_end(&t);
}

static void interrupt(struct tj *t, unsigned lines)
{
    mixed_input(t, lines);
    fake.stop_at = 11;
    assert_ok_dt(tj_run(t), &t->dt);
    assert_true(t->res.interrupted);
    assert_true(tj_lines(t, ".part") > 0);
    t->stop = 0;
    fake.stop_at = 0;
}

static void what_changed_is_named(void **state)
{
    struct tj t;
    tj_begin(&t);
    interrupt(&t, 30);
    size_t had = tj_lines(&t, ".part");
    struct ps_packed other = *fake_model();
    other.hash++;
    struct ps_job_cfg was = t.cfg;
    t.cfg.model = &other;
    assert_err(tj_run(&t), PS_ECONFLICT);
    assert_says(&t.dt, "MODEL was 0000000000001234, is 0000000000001235");
    t.cfg = was;
    t.cfg.plan.kv_config.policy = "h2o";
    t.cfg.defaults.temperature = 0.5f;
    assert_err(tj_run(&t), PS_ECONFLICT);
    assert_says(&t.dt, "--kv-policy was full, is h2o");
    assert_says(&t.dt, "--temperature was 0, is 0.5");
    t.cfg = was;
    t.cfg.defaults.n_stop = 1;
    t.cfg.defaults.stop[0] = (struct ps_jstr) { (char[]) { "x\"\xff" }, 3 };
    assert_err(tj_run(&t), PS_ECONFLICT);
    assert_says(&t.dt, "--stop was not given");
    t.cfg = was;
    t.cfg.dump_kv = t.kv;
    assert_err(tj_run(&t), PS_ECONFLICT);
    assert_says(&t.dt, "--dump-kv");
    t.cfg = was;
    FILE *f = fopen(t.in, "a");
    (void) fputs("{\"prompt\": \"x\"}\n", f);
    (void) fclose(f);
    assert_err(tj_run(&t), PS_ECONFLICT);
    assert_says(&t.dt, "INPUT was");
    assert_int_equal(tj_lines(&t, ".part"), had);
    t.cfg.no_resume = true;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(tj_lines(&t, ""), 31);
    tj_end(&t);
}

/* The same where --no-resume began it, beside an OUTPUT that is complete. */
static void dump_is_asked_for_too_late(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 30);
    assert_ok_dt(tj_run(&t), &t.dt);
    t.cfg.no_resume = true;
    interrupt(&t, 30);
    t.cfg.no_resume = false;
    ps_auto_free char *part = tj_read(&t, ".part");
    t.cfg.dump_kv = t.kv;
    assert_err(tj_run(&t), PS_ECONFLICT);
    assert_says(&t.dt, "--dump-kv");
    ps_auto_free char *same = tj_read(&t, ".part");
    assert_string_equal(part, same);
    t.cfg.dump_kv = NULL;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_false(t.res.already_done);
    nothing_beside(&t);
    tj_end(&t);
}

static void damaged_helpers(void **state)
{
    struct tj t;
    char path[160];
    tj_begin(&t);
    interrupt(&t, 30);
    (void) snprintf(path, sizeof path, "%s.journal", t.out);
    ps_auto_free char *journal = tj_slurp(path);
    assert_int_equal(truncate(path, 30), 0);
    assert_err(tj_run(&t), PS_ECONFLICT); /* a torn first line: the part file could be anybody's */
    assert_says(&t.dt, "--no-resume");
    FILE *f = fopen(path, "w");
    (void) fputs("{}\n", f);
    (void) fclose(f);
    assert_err(tj_run(&t), PS_EFORMAT);
    f = fopen(path, "w");
    (void) fputs(journal, f);
    (void) fputs("{\"run\": 2, \"su", f);
    (void) fclose(f);
    assert_ok_dt(tj_run(&t), &t.dt);
    ids_in_order(&t, 30);
    nothing_beside(&t);
    tj_end(&t);
}

static void one_process_at_a_time(void **state)
{
    struct tj t;
    int pipes[2];
    tj_begin(&t);
    mixed_input(&t, 30);
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (!pid) { /* holds the lock as a journal's owner does, until it is killed */
        char path[160];
        (void) snprintf(path, sizeof path, "%s.journal", t.out);
        int fd = open(path, O_RDWR | O_CREAT, 0666);
        struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        (void) !fcntl(fd, F_SETLK, &l);
        (void) !write(pipes[1], "x", 1);
        for (;;) (void) pause();
    }
    char c, who[32];
    assert_int_equal(read(pipes[0], &c, 1), 1);
    assert_err(tj_run(&t), EBUSY);
    (void) snprintf(who, sizeof who, "%d", (int) pid);
    assert_says(&t.dt, who);
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
    assert_ok_dt(tj_run(&t), &t.dt);
    ids_in_order(&t, 30);
    (void) close(pipes[0]);
    (void) close(pipes[1]);
    tj_end(&t);
}

static void empty_input(void **state)
{
    static const char *const empty[] = { "", "\n \n\r\n", "\xef\xbb\xbf" };
    for (size_t i = 0; i < PS_ARRAY_LEN(empty); i++) {
        struct tj t;
        tj_begin(&t);
        tj_input(&t, empty[i]);
        assert_ok_dt(tj_run(&t), &t.dt);
        assert_int_equal(t.res.requests, 0);
        assert_false(tj_exists(&t, ""));
        nothing_beside(&t);
        tj_end(&t);
    }
}

static void input_is_output(void **state)
{
    struct tj t;
    char link_path[128];
    tj_begin(&t);
    mixed_input(&t, 3);
    t.cfg.output = t.in;
    assert_err(tj_run(&t), PS_EUSAGE);
    (void) snprintf(link_path, sizeof link_path, "%s/link", t.dir);
    assert_int_equal(symlink(t.in, link_path), 0);
    t.cfg.output = link_path;
    t.cfg.overwrite = true;
    assert_err(tj_run(&t), PS_EUSAGE);
    (void) unlink(link_path);
    assert_int_equal(link(t.in, link_path), 0);
    assert_err(tj_run(&t), PS_EUSAGE);
    assert_says(&t.dt, "same file");
    t.cfg.output = t.dir;
    assert_err(tj_run(&t), PS_EUSAGE);
    t.cfg.output = t.out;
    t.cfg.input = t.dir;
    assert_err(tj_run(&t), EISDIR);
    t.cfg.input = "/nowhere/at/all";
    assert_err(tj_run(&t), ENOENT);
    assert_says(&t.dt, "/nowhere/at/all");
    tj_end(&t);
}

static void input_from_a_pipe(void **state)
{
    struct tj t;
    char fifo[128];
    tj_begin(&t);
    mixed_input(&t, 20);
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *whole = tj_read(&t, "");
    (void) unlink(t.out);
    (void) snprintf(fifo, sizeof fifo, "%s/fifo", t.dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pid_t pid = fork();
    if (!pid) {
        ps_auto_free char *in = tj_slurp(t.in);
        int fd = open(fifo, O_WRONLY);
        for (char *s = in; *s;) {
            ssize_t n = write(fd, s, strlen(s) < 100 ? strlen(s) : 100);
            if (n > 0) s += n;
        }
        _exit(0);
    }
    t.cfg.input = fifo;
    assert_ok_dt(tj_run(&t), &t.dt);
    (void) waitpid(pid, NULL, 0);
    ps_auto_free char *piped = tj_read(&t, "");
    assert_string_equal(whole, piped);
    tj_end(&t);
}

static void limit_and_stats(void **state)
{
    struct tj t;
    tj_begin(&t);
    tj_input(&t, "{\"prompt\": \"abc\", \"max_tokens\": 5}\n\n{\"prompt\": [5,6,7,8,9,10], "
                 "\"max_tokens\": 1, \"logprobs\": 3}\n"
                 "{\"prompt\": \"a\", \"max_tokens\": 100}\n");
    t.cfg.limit = 2;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(tj_lines(&t, ""), 2);
    assert_int_equal(fake.stats.requests, 2);
    assert_int_equal(fake.stats.prompt_tokens, 10);
    assert_int_equal(fake.stats.max_new_tokens, 6);
    assert_int_equal(fake.stats.longest_prompt, 6);
    assert_int_equal(fake.stats.longest_total, 9);
    assert_int_equal(fake.stats.most_top, 3);
    assert_false(fake.stats.scores_prompts);
    tj_end(&t);
}

static void only_failures(void **state)
{
    struct tj t;
    tj_begin(&t);
    tj_input(&t, "x\n{\"prompt\": \"\"}\n");
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(t.res.failed, 2);
    assert_int_equal(fake.runs, 0);
    assert_int_equal(tj_lines(&t, ""), 2);
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_true(t.res.already_done);
    assert_int_equal(t.res.failed, 2);
    tj_end(&t);
}

static void what_does_not_fit(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 3);
    fake.no_fit = true;
    assert_err(tj_run(&t), PS_EBUDGET);
    assert_non_null(strstr(t.res.plan_text, "needs 2000 bytes"));
    nothing_beside(&t);
    assert_false(tj_exists(&t, ""));
    fake.no_fit = false;
    t.cfg.dry_run = true;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_string_equal(t.res.plan_text, "a plan\n");
    assert_int_equal(fake.runs, 0);
    nothing_beside(&t);
    tj_end(&t);
}

static void too_many_names(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 12);
    t.cfg.ids_mem = 600;
    assert_int_equal(tj_run(&t), -PS_EBUDGET);
    assert_says(&t.dt, "custom_ids that come twice");
    assert_false(tj_exists(&t, ".part"));
    tj_end(&t);
}

static void run_fails(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 40);
    fake.fail_at = 20;
    assert_err(tj_run(&t), EIO);
    assert_says(&t.dt, "disk broke");
    size_t had = tj_lines(&t, ".part");
    assert_true(had > 0);
    fake.fail_at = 0;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(t.res.resumed, had);
    ids_in_order(&t, 40);
    (void) unlink(t.out);
    fake.nan = true;
    assert_err(tj_run(&t), PS_ENUMERIC);
    assert_says(&t.dt, "line 1");
    tj_end(&t);
}

static double number(const json_t *report, const char *object, const char *key)
{
    const json_t *v = json_object_get(json_object_get(report, object), key);
    return json_is_null(v) ? -1 : json_number_value(v);
}

static void note_warning(void *ud, const char *text) { (void) snprintf(ud, 400, "%s", text); }

/* Less can be pinned than the plan wants: another plan, another block, the same results; if that is not to be had, one without the GPU, or an error where that is asked
 * for. */
static void less_is_pinned(void **state)
{
    struct tj t;
    char warning[400] = "";
    struct ps_cuda_info gpu = { .name = "toy GPU" };
    tj_begin(&t);
    mixed_input(&t, 60);
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *whole = tj_read(&t, "");
    assert_int_equal(unlink(t.out), 0);
    t.cfg.report = t.report;
    t.cfg.plan.gpu = (struct ps_plan_gpu) { 5000, 75 };
    t.cfg.gpu = &gpu;
    t.cfg.warn = note_warning;
    t.cfg.ud = warning;
    fake.can_pin = (uint64_t) 400 << 20;
    fake.runs = fake.most_active = 0;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(fake.runs, 2);
    assert_int_equal(fake.most_active, 10);
    assert_non_null(strstr(warning, "toy: memory cannot be pinned"));
    assert_non_null(strstr(warning, "400.0 MiB"));
    ps_auto_free char *again = tj_read(&t, "");
    assert_string_equal(whole, again);
    ps_auto_free char *text = tj_slurp(t.report);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_int_equal(number(j, "memory", "pinned"), fake.can_pin);
    assert_int_equal(number(j, "gpu", "launches"), 90);
    assert_int_equal(number(j, "gpu", "library_calls"), 10);
    assert_int_equal(number(j, "gpu", "launches_per_decode_pass"), 9);
    assert_true(number(j, "gpu", "copies_per_decode_pass") == 0.5);
    assert_true(number(j, "gpu", "events_per_decode_pass") == 19);
    assert_true(number(j, "gpu", "stream_waits_per_decode_pass") == 2.5);
    assert_int_equal(number(json_object_get(j, "plan"), "attention", "host_slabs"), 3);
    assert_int_equal(number(json_object_get(j, "memory"), "peak", "gpu"), 1000);
    assert_int_equal(number(json_object_get(j, "memory"), "taken", "host"), 2000);
    assert_int_equal(number(json_object_get(j, "memory"), "budget", "gpu"), 5000);
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "machine"), "gpu")),
                        "toy GPU");
    json_decref(j);
    assert_int_equal(unlink(t.out), 0);
    fake.can_pin = 0;
    t.cfg.plan.gpu.asked = true;
    assert_err(tj_run(&t), PS_EPIN);
    assert_int_equal(fake.runs, 4);
    t.cfg.plan.gpu.asked = false;
    assert_ok_dt(tj_run(&t), &t.dt);
    assert_int_equal(fake.runs, 7);
    assert_non_null(strstr(warning, "without the GPU"));
    ps_auto_free char *host = tj_read(&t, "");
    assert_string_equal(whole, host);
    ps_auto_free char *of_host = tj_slurp(t.report);
    j = json_loads(of_host, 0, NULL);
    assert_non_null(j);
    assert_true(json_is_null(json_object_get(j, "gpu")));
    assert_true(json_is_null(json_object_get(json_object_get(j, "memory"), "pinned")));
    json_decref(j);
    tj_end(&t);
}

/* What is named took a good part of the time; of a job that was all start-up nothing is said. */
static void what_limited_it(void **state)
{
    static const struct {
        enum ps_sum most;
        double s;
        const char *told;
        bool gpu;
        double probed; /* reads */
    } cases[] = {
        { PS_SUM_OUTPUT_S, 5, "writing results (50 %" },
        { PS_SUM_COMPUTE_S, 5, "arithmetic" },
        { PS_SUM_WAIT_WEIGHTS_S, 5, "reading weights from disk (2.00 GB/s)" },
        { PS_SUM_WAIT_WEIGHTS_S, 5, "(2.00 GB/s, 80 % of what", false, 2.5e9 },
        { PS_SUM_WAIT_WEIGHTS_S, 5, "(2.00 GB/s, more than the 1.60 that the probe found)", false,
          1.6e9 },
        { PS_SUM_WAIT_KV_S, 5, "reading KV from disk" },
        { PS_SUM_OUTPUT_S, 0.3, "" },
        { PS_SUM_OUTPUT_S, 5, "writing results (50 %", true },
        { PS_SUM_Q_S + PS_Q_COMPUTE, 5, "the GPU (", true },
        { PS_SUM_Q_S + PS_Q_H2D, 5, "copies to the GPU (1.00 GB/s)", true },
        { PS_SUM_Q_S + PS_Q_HOST, 5, "attention on the host", true },
        { PS_SUM_Q_S + PS_Q_READ, 8, "reading weights from disk (1.00 GB/s)", true },
        { PS_SUM_Q_S + PS_Q_HOST, 0.3, "reading weights", true },
    };
    static const struct ps_plan plans[] = { { 0 }, { .gpu_bytes = 1 } };
    struct ps_job_cfg cfg = { 0 };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        struct ps_job_result res = { 0 };
        struct ps_report rep = { &cfg, &res, &plans[cases[i].gpu], NULL };
        char text[160];
        res.sums[PS_SUM_TOTAL_S] = 10;
        res.sums[PS_SUM_COMPUTE_S] = 0.1;
        res.sums[PS_SUM_Q_BYTES + PS_Q_READ] = 8e9;
        res.sums[PS_SUM_Q_S + PS_Q_READ] = 4;
        res.sums[PS_SUM_Q_BYTES + PS_Q_H2D] = 5e9;
        res.sums[cases[i].most] = cases[i].s;
        cfg.probed.disk_read = cases[i].probed;
        ps_report_limit(&rep, text, sizeof text);
        if (*cases[i].told ? !strstr(text, cases[i].told) : *text)
            fail_msg("case %zu: \"%s\"", i, text);
    }
}

/* A file-size limit stands in for a full disk: wherever it strikes, what is finished stays, and with room again the job ends well. */
static void disk_full(void **state)
{
    struct tj t;
    struct rlimit old;
    tj_begin(&t);
    mixed_input(&t, 40);
    t.cfg.dump_kv = t.kv;
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *whole = tj_read(&t, "");
    (void) signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (rlim_t most = 4096; most < 40000; most += 3000) {
        (void) unlink(t.out);
        struct rlimit few = { most, old.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
        int r = tj_run(&t);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        if (r < 0) {
            assert_int_equal(r, -EFBIG);
            if (!strstr(t.dt.text, t.out) && !strstr(t.dt.text, t.kv))
                fail_msg("which file: %s", t.dt.text);
            assert_false(tj_exists(&t, ""));
        }
        t.cfg.now = 1700000000;
        assert_ok_dt(tj_run(&t), &t.dt);
        ps_auto_free char *again = tj_read(&t, "");
        assert_string_equal(whole, again);
    }
    tj_end(&t);
}

/* Every allocation fails in turn: an error, and the next run is right. */
static void out_of_memory(void **state)
{
    struct tj t;
    tj_begin(&t);
    mixed_input(&t, 12);
    t.cfg.report = t.report;
    assert_ok_dt(tj_run(&t), &t.dt);
    ps_auto_free char *whole = tj_read(&t, "");
    for (uint64_t n = 1; n < 200; n++) {
        (void) unlink(t.out);
        ps_mem_fault_arm(n);
        int r = tj_run(&t);
        bool hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (!hit) {
            assert_ok_dt(r, &t.dt);
            assert_true(n > 10);
            tj_end(&t);
            return;
        }
        if (r == -EFBIG || !r) fail_msg("allocation %u failed unnoticed", (unsigned) n);
        assert_int_equal(r, -ENOMEM);
        assert_ok_dt(tj_run(&t), &t.dt);
        ps_auto_free char *again = tj_read(&t, "");
        assert_string_equal(whole, again);
    }
    fail_msg("never without a fault");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_in_input_order),
        cmocka_unit_test(order_of_completion),
        cmocka_unit_test(same_command_again),
        cmocka_unit_test(other_output_is_not_touched),
        cmocka_unit_test(stop_and_go_on),
        cmocka_unit_test(killed_and_resumed),
        cmocka_unit_test(killed_before_the_rename),
        cmocka_unit_test(what_changed_is_named),
        cmocka_unit_test(damaged_helpers),
        cmocka_unit_test(one_process_at_a_time),
        cmocka_unit_test(empty_input),
        cmocka_unit_test(input_is_output),
        cmocka_unit_test(input_from_a_pipe),
        cmocka_unit_test(limit_and_stats),
        cmocka_unit_test(only_failures),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(run_fails),
        cmocka_unit_test(less_is_pinned),
        cmocka_unit_test(what_limited_it),
        cmocka_unit_test(disk_full),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(too_many_names),
        cmocka_unit_test(dump_is_asked_for_too_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
