/* SPDX-License-Identifier: Apache-2.0 */
/* The room for requests under way: taken once, when the plan's shape and the input's longest lines are known. Nothing is
 * allocated between a sequence's admission and its end. */
#ifndef PS_SLOTS_H
#define PS_SLOTS_H
#include "engine/job/spool.h"
#include "engine/job/stops.h"
#include "engine/job/tape.h"
#include "engine/sched/run.h"
#include "engine/tokenizer/tokenizer.h"

struct ps_slot {
    struct ps_seq seq;
    uint32_t index; /* in the table */
    uint64_t off;   /* in the spool */
    struct ps_spool_head head;
    int32_t *ids, *stop_ids; /* stop_ids: EOS, if it counts, and the request's own */
    uint32_t n_stop_ids;
    char *stop_bytes;
    uint16_t *stop_fail;
    struct ps_stops stops;
    struct ps_decoder dec;
    struct ps_tape tape;
    uint64_t cut; /* bytes of text that stay; UINT64_MAX = all */
    uint32_t n_new;
    bool stopped;     /* finish_reason "stop" */
    bool last_hidden; /* the last token ended it and is not in the text */
    struct ps_slot *next;
};

struct ps_slots {
    struct ps_slot *slots, *free;
    uint32_t n;
    void *mem;
    int fd; /* tapes */
};

struct ps_slots_cfg {
    uint32_t n, longest_prompt, longest_total, most_top, most_stop_bytes, most_stop_ids;
    bool logprobs; /* some request wants them */
    const char *beside;
};
int ps_slots_open(const struct ps_slots_cfg *cfg, struct ps_slots *ret,
                  struct ps_detail *dt) ps_must_check;
void ps_slots_close(struct ps_slots *s);

/* Fills a free slot from the spool, ready for the scheduler; NULL in *ret when none is free. */
int ps_slots_take(struct ps_slots *s, const struct ps_spool *spool, uint64_t off, uint32_t index,
                  int32_t eos, const struct ps_tok *tok, struct ps_slot **ret) ps_must_check;
void ps_slots_give(struct ps_slots *s, struct ps_slot *slot);
/* One generated token: appends it and decides whether it is the last. `out` is the decoder's room. */
int ps_slot_token(struct ps_slot *s, uint32_t index, const struct ps_sample_out *out, char *text,
                  bool *ret_end) ps_must_check;
#endif
