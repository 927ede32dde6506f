/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a job's results: OUTPUT.part, where records gather in the order of completion; the part file of --dump-kv, in the
 * same order; and OUTPUT, which is made of them at the end. */
#ifndef PS_OUTPUT_H
#define PS_OUTPUT_H
#include "engine/job/journal.h"
#include "engine/job/jout.h"
#include "engine/job/results.h"
#include "engine/job/table.h"
#include <signal.h>

struct ps_output {
    char *path, *part, *journal, *sorted; /* sorted: the ordering pass's file */
    char *dump, *dump_part;               /* NULL without --dump-kv */
    struct ps_jout out, kept;
    bool in_order;            /* the records in the part file stand in the input's order */
    int64_t last_line;        /* of the last record, for that */
    uint64_t unsynced;        /* records since the last sync */
    uint64_t kept_done;       /* where the last finished request's KV ends */
    struct XXH3_state_s *sum; /* of the part file's first `summed` bytes */
    uint64_t summed;
};

/* What was there when a job began. */
struct ps_done {
    uint64_t done, failed, prompt_tokens, generated_tokens;
    int64_t created; /* of the last record that says it, else 0 */
    uint64_t lines;  /* sum of ps_line_key() of their lines */
    uint32_t last_line;
    bool in_order; /* their lines ascend */
    bool torn;     /* something stands behind the last whole line (look() only) */
};
/* Sums of it tell whether two sets of lines of INPUT are the same, whatever their order. */
uint64_t ps_line_key(uint32_t line);

int ps_output_init(struct ps_output *o, const char *path, const char *dump) ps_must_check;
void ps_output_done(struct ps_output *o); /* closes; removes nothing */

/* Looks at OUTPUT: 1 if it is there and of this job (with its counts; whether it is all of the job is the caller's to find out), 0 if it is
 * not there, -PS_ECONFLICT if it is something else. */
int ps_output_look(const struct ps_output *o, uint64_t job, struct ps_done *ret,
                   struct ps_detail *dt) ps_must_check;
/* Opens the part files for appending. Unless `anew`, takes in what is there: marks it done in the table, cuts off a torn end and what the
 * other file does not know of. With --dump-kv, each result has `layers` lines there. -PS_ECORRUPT if bytes that were there for `part`
 * are others now; those that are missing are made again. */
int ps_output_open(struct ps_output *o, bool anew, const struct ps_part_sum *part, uint64_t job,
                   uint32_t layers, struct ps_table *t, struct ps_done *ret,
                   struct ps_detail *dt) ps_must_check;
/* What open() would refuse (`part` NULL: what is there will be discarded); nothing is changed. */
int ps_output_check_parts(struct ps_output *o, const struct ps_part_sum *part,
                          struct ps_detail *dt) ps_must_check;
/* A record was written to o->out, beginning at `from` (or failed with r < 0, and is taken back). */
int ps_output_record(struct ps_output *o, int r, uint64_t from, struct ps_table *t, uint32_t index,
                     struct ps_detail *dt) ps_must_check;
/* Writes out what is buffered and makes it durable. */
int ps_output_sync(struct ps_output *o, struct ps_detail *dt) ps_must_check;
/* -ENOENT if somebody removed a file that this job writes to (or its folder): what comes would be lost with it. */
int ps_output_named(const struct ps_output *o, const struct ps_journal *j,
                    struct ps_detail *dt) ps_must_check;
/* The sum of what was written out. */
int ps_output_sum(struct ps_output *o, struct ps_part_sum *ret, struct ps_detail *dt) ps_must_check;
/* Puts the records in order (or leaves them in that of completion), renames, removes the part file. -ECANCELED when *stop. */
int ps_output_finish(struct ps_output *o, const struct ps_table *t, bool completion,
                     const volatile sig_atomic_t *stop, struct ps_detail *dt) ps_must_check;
/* OUTPUT is complete, with `done`: ends what a finish() that was cut short left to do. 1 if the journal may go, 0 if the part file
 * belongs to a newer attempt, or an error. `look`: nothing is changed. */
int ps_output_tidy(struct ps_output *o, uint64_t job, const struct ps_done *done, bool look,
                   struct ps_detail *dt) ps_must_check;
#endif
