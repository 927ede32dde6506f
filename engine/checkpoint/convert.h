/* SPDX-License-Identifier: Apache-2.0 */
/* Between a checkpoint and a model: which of its tensors are which of the model's, and the steps that convert and the dummy
 * model share. */
#ifndef PS_CONVERT_H
#define PS_CONVERT_H
#include "engine/checkpoint/pack_write.h"
#include "engine/checkpoint/source.h"

enum { PS_MATCH_EXTRA = 10 };

struct ps_match {
    const struct ps_src_tensor **from; /* of each of the model's tensors, in packing order */
    size_t n;
    enum ps_dtype dtype;                               /* that holds all their values */
    const struct ps_src_tensor *tied_head;             /* lm_head.weight of a tied model, or NULL */
    const struct ps_src_tensor *extra[PS_MATCH_EXTRA]; /* the first few that are not the model's */
    size_t n_extra;
};
/* Refuses, naming tensor and file: missing, of another shape, of a dtype that weights cannot have. */
int ps_match_make(const struct ps_shape *shape, const struct ps_src *s, const char *folder,
                  struct ps_match *ret, struct ps_detail *dt) ps_must_check;
void ps_match_done(struct ps_match *m);
/* By the model's name for it. */
const struct ps_src_tensor *ps_match_find(const struct ps_src *s, const char *name);

/* The greatest id in the folder's tokenizer files, -1 if there are none. */
int ps_vocab_top(const char *folder, int64_t *ret, struct ps_detail *dt) ps_must_check;

/* Files beside the weights that go along; ends with NULL. */
extern const char *const ps_side_files[];

struct ps_packed_text {
    const char *text;
    size_t len;
};
int ps_pack_produce(const char *dst, const struct ps_packed_text *config, const char *folder,
                    struct ps_pack_job *job, const struct ps_convert_opt *opt,
                    struct ps_detail *dt) ps_must_check;
#endif
