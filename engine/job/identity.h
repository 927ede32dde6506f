/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a job that job: the input's contents, the model, and the options that change results, as names and readable
 * values, so that a refusal can say what differs; and one hash over them, which is in every record's id. */
#ifndef PS_IDENTITY_H
#define PS_IDENTITY_H
#include "engine/job/job.h"

enum { PS_IDENT_MAX = 32, PS_IDENT_VALUE = 128 };
struct ps_ident {
    size_t n;
    struct ps_ident_item {
        char name[32];
        char value[PS_IDENT_VALUE];
    } items[PS_IDENT_MAX];
};

/* Adds an item. A value longer than PS_IDENT_VALUE - 1 bytes is cut: what may be longer brings a hash of its own. */
void ps_ident_add(struct ps_ident *id, const char *name, const char *fmt, ...) ps_printf_(3, 4);
/* From the configuration; input_fd is read from its start. */
int ps_ident_make(const struct ps_job_cfg *cfg, int input_fd, struct ps_ident *ret,
                  struct ps_detail *dt) ps_must_check;
uint64_t ps_ident_hash(const struct ps_ident *id);
/* Whether they are equal; if not, `ret_text` says what changed, from what, to what. */
bool ps_ident_same(const struct ps_ident *was, const struct ps_ident *is, char *ret_text, size_t n);
#endif
