/* SPDX-License-Identifier: Apache-2.0 */
/* Writes result records: one JSON line a request, in OpenAI's Batch output form. */
#ifndef PS_RECORD_H
#define PS_RECORD_H
#include "engine/job/slots.h"

struct ps_recorder {
    const struct ps_spool *spool;
    const struct ps_tok *tok; /* may be NULL */
    const char *model;        /* reported when the line named none */
    uint64_t job;             /* the job's hash, for ids */
    int64_t created;          /* Unix time */
    char *text;               /* room for one token's text */
    char *tops;               /* PS_TOP_MAX + 1 times that */
    size_t text_cap;
    uint8_t *read; /* of tapes */
    uint32_t read_cap;
};
/* The fields above `text` are the caller's to set before. */
int ps_recorder_init(struct ps_recorder *r) ps_must_check;
void ps_recorder_done(struct ps_recorder *r);

/* Whole lines with their ends; what the writer could not take is its sticky error. */
int ps_record_result(struct ps_recorder *r, const struct ps_slot *s,
                     struct ps_jout *o) ps_must_check;
int ps_record_error(struct ps_recorder *r, uint64_t off, const struct ps_spool_head *h,
                    struct ps_jout *o) ps_must_check;
/* One layer of --dump-kv. */
int ps_record_kept(struct ps_recorder *r, const struct ps_slot *s, const struct ps_kept *k,
                   struct ps_jout *o) ps_must_check;

/* logprobs.c: the value of "logprobs". */
int ps_record_logprobs(struct ps_recorder *r, const struct ps_slot *s,
                       struct ps_jout *o) ps_must_check;
#endif
