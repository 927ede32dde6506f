/* SPDX-License-Identifier: Apache-2.0 */
/* A toy below the job: a tokenizer of bytes (id = byte + 3; 0 <s>, 1 <pad>, 2 </s> are special; 259.. are "ab", "</", and one half of a
 * character), a plan of fixed shape, and a "model" that repeats its prompt: generated token i is prompt token
 * 1 + i mod (n - 1), or 'x' when that one is banned. Log-probabilities are functions of token and place. */
#ifndef FAKE_H
#define FAKE_H
#include "engine/job/job.h"

enum { FAKE_VOCAB = 262, FAKE_POSITIONS = 200, FAKE_LAYERS = 2, FAKE_AB = 259, FAKE_HALF = 261 };

struct fake {
    uint32_t slots, micro_batches;
    uint64_t stop_at, fail_at;        /* sweep number; 0 = never */
    volatile sig_atomic_t *stop;      /* raised at stop_at */
    void (*at_sweep)(uint64_t sweep); /* may be NULL */
    bool no_fit, nan;
    uint64_t can_pin; /* bytes; a plan for a GPU wants 1 GB of it */
    uint64_t runs, sweeps, next_calls;
    uint32_t most_active;
    const struct ps_job_stats *seen; /* what the plan was asked for */
    struct ps_job_stats stats;
};
extern struct fake fake;
extern const struct ps_job_engine fake_engine;
const struct ps_tok *fake_tok(void);
const struct ps_packed *fake_model(void);
#endif
