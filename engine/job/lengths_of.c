/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/lengths_of.h"
#include "engine/base/ps_mem.h"

void ps_lengths_done(struct ps_lengths *l)
{
    free((void *) (uintptr_t) l->prompt);
    free((void *) (uintptr_t) l->gen);
    *l = (struct ps_lengths) { 0 };
}

int ps_lengths_of(const struct ps_spool *spool, const struct ps_table *table, uint64_t requests,
                  struct ps_lengths *ret)
{
    ps_auto_free uint32_t *prompt = ps_calloc(requests, sizeof *prompt);
    ps_auto_free uint32_t *gen = ps_calloc(requests, sizeof *gen);
    uint64_t n = 0;
    if (!prompt || !gen) return -ENOMEM;
    for (uint32_t i = 0; i < table->n && n < requests; i++) {
        struct ps_spool_head h;
        uint64_t off;
        int r = ps_table_off(table, i, &off);
        if (!r) r = ps_spool_head(spool, off, &h);
        if (r < 0) return r;
        if (h.error) continue;
        prompt[n] = h.n_prompt;
        gen[n++] = h.max_tokens;
    }
    *ret = (struct ps_lengths) { .n = n, .prompt = PS_TAKE(prompt), .gen = PS_TAKE(gen) };
    return 0;
}
