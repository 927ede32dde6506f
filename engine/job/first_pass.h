/* SPDX-License-Identifier: Apache-2.0 */
/* The first pass over the input: every line is checked and tokenised once, into the spool; what stays in memory is the table. */
#ifndef PS_FIRST_PASS_H
#define PS_FIRST_PASS_H
#include "engine/job/spool.h"
#include "engine/job/table.h"
#include "engine/plan/plan.h"
#include "engine/tokenizer/tokenizer.h"
#include <signal.h>

struct ps_first_cfg {
    struct ps_rules rules;
    const struct ps_tok *tok; /* NULL: ids only */
    int fd;                   /* seekable; read from its start */
    const char *input;        /* its name, for messages */
    const char *beside;       /* what the spool lies beside, for messages */
    bool text;
    uint64_t limit;                    /* requests at most */
    const volatile sig_atomic_t *stop; /* non-zero: -ECANCELED; may be NULL */
    void (*progress)(void *ud, uint64_t requests);
    void *progress_ud;
};

struct ps_first {
    struct ps_job_stats stats;
    uint32_t failed;
    uint32_t most_stop_bytes, most_stop_ids, longest_new; /* over the valid lines */
    bool logprobs;                                        /* some valid line wants them */
    bool no_tokens;        /* some valid line's result will have neither text nor ids */
    uint32_t first_failed; /* the first line that is in error, and why */
    char first_message[PS_MESSAGE_MAX];
    double tokenizer_s;
};

/* -ECANCELED when *stop; an error tells file and offset, or line. */
int ps_first_pass(const struct ps_first_cfg *cfg, struct ps_spool *spool, struct ps_table *table,
                  struct ps_first *ret, struct ps_detail *dt) ps_must_check;
double ps_job_now_s(void); /* monotonic */
#endif
