/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files of our own records back, in bounded memory, whatever the records' length: of each line its beginning and its
 * end are looked at, which is where a record says whose it is and what came of it. A torn last line is not a record. */
#ifndef PS_RESULTS_H
#define PS_RESULTS_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

enum { PS_RESULT_HEAD = 4096, PS_RESULT_TAIL = 256 };

struct ps_result {
    uint64_t off, len; /* with its line end */
    /* of a results file; ok = false if it does not look like ours */
    bool ok, failed, stopped;
    uint64_t job;
    uint32_t line;
    uint64_t prompt_tokens, generated_tokens;
    int64_t created; /* 0: a failed line, or one whose head does not reach that far */
    /* custom_id as written, cut at the head's size; NULL if there is none. Valid until the next call. */
    const char *custom_id;
    size_t custom_id_len;
};

struct ps_results {
    int fd;
    uint64_t off; /* of buf[0] */
    char *buf;
    size_t from, to;
    char head[PS_RESULT_HEAD], tail[PS_RESULT_TAIL];
    size_t n_head, n_tail;
};

int ps_results_open(int fd, struct ps_results *ret) ps_must_check; /* from its start */
void ps_results_close(struct ps_results *r);
/* 1 with a line, 0 at the end (or at a torn line), or an error. Of a line that does not begin as ours do, it may be a part. */
int ps_results_next(struct ps_results *r, struct ps_result *ret) ps_must_check;
#endif
