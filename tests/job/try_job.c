/* SPDX-License-Identifier: Apache-2.0 */
#include "try_job.h"
#include "ps_cmocka.h"
#include <dirent.h>
#include <unistd.h>

bool tj_on_disk;

void tj_begin(struct tj *t)
{
    memset(t, 0, sizeof *t);
    memset(&fake, 0, sizeof fake);
    fake.slots = 2;
    fake.micro_batches = 2;
    fake.stop = &t->stop;
    /* In memory where that is to be had: the tests sync a lot. */
    (void) snprintf(t->dir, sizeof t->dir, "/dev/shm/ps-job-XXXXXX");
    if (tj_on_disk || !mkdtemp(t->dir)) {
        (void) snprintf(t->dir, sizeof t->dir, "/tmp/ps-job-XXXXXX");
        assert_non_null(mkdtemp(t->dir));
    }
    (void) snprintf(t->in, sizeof t->in, "%s/in.jsonl", t->dir);
    (void) snprintf(t->out, sizeof t->out, "%s/out.jsonl", t->dir);
    (void) snprintf(t->kv, sizeof t->kv, "%s/kv.jsonl", t->dir);
    (void) snprintf(t->report, sizeof t->report, "%s/report.json", t->dir);
    t->cfg = (struct ps_job_cfg) {
        .model = fake_model(),
        .tok = fake_tok(),
        .input = t->in,
        .output = t->out,
        .limit = UINT64_MAX,
        .ids_mem = UINT64_MAX,
        .defaults = { .max_tokens = 16, .top_p = 1, .logprobs = -1 },
        .engine = fake_engine,
        .stop = &t->stop,
        .now = 1700000000,
    };
    t->cfg.plan.kv_config = ps_kv_config_default();
}

void tj_end(struct tj *t)
{
    ps_job_result_done(&t->res);
    DIR *d = opendir(t->dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[512];
        (void) snprintf(path, sizeof path, "%s/%s", t->dir, e->d_name);
        if (e->d_name[0] != '.') (void) remove(path);
    }
    if (d) (void) closedir(d);
    (void) rmdir(t->dir);
}

void tj_input_bytes(struct tj *t, const void *p, size_t n)
{
    FILE *f = fopen(t->in, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    (void) fclose(f);
}
void tj_input(struct tj *t, const char *text) { tj_input_bytes(t, text, strlen(text)); }

int tj_run(struct tj *t)
{
    ps_job_result_done(&t->res);
    memset(&t->res, 0, sizeof t->res);
    memset(&t->dt, 0, sizeof t->dt);
    t->rc = ps_job_run(&t->cfg, &t->res, &t->dt);
    return t->rc;
}

static void name_of(const struct tj *t, const char *suffix, char path[160])
{
    (void) snprintf(path, 160, "%s%s", t->out, suffix);
}

bool tj_exists(const struct tj *t, const char *suffix)
{
    char path[160];
    name_of(t, suffix, path);
    return !access(path, F_OK);
}

char *tj_slurp(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    (void) fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *p = calloc(1, (size_t) n + 1);
    assert_int_equal(fread(p, 1, (size_t) n, f), n);
    (void) fclose(f);
    return p;
}

char *tj_read(const struct tj *t, const char *suffix)
{
    char path[160];
    name_of(t, suffix, path);
    return tj_slurp(path);
}

size_t tj_lines(const struct tj *t, const char *suffix)
{
    ps_auto_free char *p = tj_read(t, suffix);
    size_t n = 0;
    for (char *q = p; q && (q = strchr(q, '\n')); q++) n++;
    return n;
}

json_t *tj_line(const struct tj *t, size_t i)
{
    ps_auto_free char *p = tj_read(t, "");
    assert_non_null(p);
    char *s = p;
    for (; i; i--) {
        s = strchr(s, '\n');
        assert_non_null(s);
        s++;
    }
    char *nl = strchr(s, '\n');
    assert_non_null(nl);
    json_error_t e;
    json_t *j = json_loadb(s, (size_t) (nl - s), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (!j) fail_msg("line is no JSON: %s: %.300s", e.text, s);
    return j;
}

json_t *tj_one(struct tj *t, const char *line, char ret_code[64])
{
    (void) unlink(t->out);
    tj_input(t, line);
    ret_code[0] = 0;
    assert_ok_dt(tj_run(t), &t->dt);
    json_t *j = tj_line(t, 0), *err = json_object_get(j, "error"), *ret = NULL;
    if (json_is_null(err)) {
        json_t *body = json_object_get(json_object_get(j, "response"), "body");
        ret = json_incref(json_array_get(json_object_get(body, "choices"), 0));
        assert_non_null(ret);
    } else {
        assert_true(json_is_null(json_object_get(j, "response")));
        (void) snprintf(ret_code, 64, "%s", json_string_value(json_object_get(err, "code")));
        assert_true(strlen(json_string_value(json_object_get(err, "message"))) > 5);
        assert_int_equal(json_integer_value(json_object_get(err, "line")), 1);
    }
    json_decref(j);
    return ret;
}
