/* SPDX-License-Identifier: Apache-2.0 */
/* The spool: what the first pass made of the input, in an unlinked file, so that a million requests cost disk and not
 * memory. A record is a fixed head, the parts that generation reads at once (ids, stop ids, stop strings) and the parts that
 * only the result's record needs (texts, read again when it is written). */
#ifndef PS_SPOOL_H
#define PS_SPOOL_H
#include "engine/job/jout.h"
#include "engine/job/request.h"

enum ps_spool_text {
    PS_T_CUSTOM_ID,
    PS_T_MODEL,
    PS_T_USER,
    PS_T_PROMPT,
    PS_T_MESSAGE,
    PS_T__COUNT
};

struct ps_spool_head {
    uint32_t line, error;      /* enum ps_line_error */
    uint32_t n_prompt, prefix; /* ids; how many of them the tokenizer put in front of the text */
    uint32_t prompt_points;    /* code points of a prompt in words */
    uint32_t max_tokens, min_tokens, top_k, n_stop_ids, n_stop;
    float temperature, top_p;
    int32_t logprobs;
    uint64_t key;
    bool echo, ignore_eos, return_ids, tokens_as_ids, text_prompt, has_model, has_user;
    uint32_t stop_len[PS_STOPS], text_len[PS_T__COUNT];
};

struct ps_spool {
    struct ps_jout out;
};

/* Beside `path`. */
int ps_spool_open(const char *path, struct ps_spool *ret, struct ps_detail *dt) ps_must_check;
void ps_spool_close(struct ps_spool *s);
/* Appends; *ret_off is where. `head` has everything but lengths of stops, taken from the request. texts[i].s may be NULL. */
int ps_spool_put(struct ps_spool *s, const struct ps_spool_head *head, const int32_t *ids,
                 const struct ps_params *p, const struct ps_jstr texts[PS_T__COUNT],
                 uint64_t *ret_off) ps_must_check;
int ps_spool_flush(struct ps_spool *s) ps_must_check;
int ps_spool_head(const struct ps_spool *s, uint64_t off, struct ps_spool_head *ret) ps_must_check;
/* The parts behind the head: where they are, from the record's offset. */
uint64_t ps_spool_ids_off(uint64_t off);
uint64_t ps_spool_stop_ids_off(uint64_t off, const struct ps_spool_head *h);
uint64_t ps_spool_stops_off(uint64_t off, const struct ps_spool_head *h);
uint64_t ps_spool_text_off(uint64_t off, const struct ps_spool_head *h, enum ps_spool_text t);
/* Copies a text, escaped, into a record. */
int ps_spool_copy(const struct ps_spool *s, uint64_t off, const struct ps_spool_head *h,
                  enum ps_spool_text t, struct ps_jout *to) ps_must_check;
#endif
