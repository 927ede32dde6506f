/* SPDX-License-Identifier: Apache-2.0 */
/* A job in a temporary folder, for the tests of this layer. */
#ifndef TRY_JOB_H
#define TRY_JOB_H
#include "fake.h"
#include <jansson.h>

struct tj {
    char dir[64], in[96], out[96], kv[96], report[96];
    struct ps_job_cfg cfg;
    struct ps_job_result res;
    struct ps_detail dt;
    volatile sig_atomic_t stop;
    int rc;
};

extern bool tj_on_disk; /* for files too large for memory */
void tj_begin(struct tj *t);
void tj_end(struct tj *t);
void tj_input(struct tj *t, const char *text);
void tj_input_bytes(struct tj *t, const void *p, size_t n);
int tj_run(struct tj *t); /* with fresh result and detail; the return value of ps_job_run */
bool tj_exists(const struct tj *t, const char *suffix); /* OUTPUT + suffix */
/* OUTPUT + suffix, whole; the caller frees it. */
char *tj_read(const struct tj *t, const char *suffix);
char *tj_slurp(const char *path);
/* Line i (from 0) of OUTPUT as JSON; the caller drops it. */
json_t *tj_line(const struct tj *t, size_t i);
size_t tj_lines(const struct tj *t, const char *suffix);
/* Runs one line of input and gives its choice, or its error code (in which case *ret_code is set). The caller drops it. */
json_t *tj_one(struct tj *t, const char *line, char ret_code[64]);
#endif
