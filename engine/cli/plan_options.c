/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as the options that ask for it. */
#include "engine/cli/plan.h"
#include "engine/plan/layout.h"
#include <inttypes.h>
#include <stdio.h>

/* As they were wanted: those that came to be may come to others, a chunk away. With all their digits. */
static void shares(FILE *f, const char *option, bool gpu, const struct ps_shares *s)
{
    static const char *const tiers[PS_TIER__COUNT] = { "gpu", "host", "disk" };
    (void) fprintf(f, " --%s ", option);
    for (int t = gpu ? PS_TIER_GPU : PS_TIER_HOST; t < PS_TIER__COUNT; t++)
        (void) fprintf(f, "%s:%.17g%s", tiers[t], s->pct[t] > 0 ? s->pct[t] : 0,
                       t + 1 < PS_TIER__COUNT ? "," : "");
}

char *ps_plan_options(const struct ps_plan *p)
{
    const struct ps_plan_detail *d = p->detail;
    const struct ps_candidate *c = &d->from;
    const uint64_t far = c->slabs[PS_TIER_HOST] + c->slabs[PS_TIER_DISK];
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    (void) fprintf(f,
                   "--gpu-batch-size %" PRIu32 " --num-gpu-batches %" PRIu32
                   " --prefill-tokens %" PRIu32 " --prefetch %" PRIu32,
                   p->slots, p->micro_batches, p->prefill_tokens, p->prefetch);
    shares(f, "weights", d->gpu, &c->weights);
    shares(f, "kv", d->gpu, &c->kv);
    shares(f, "hidden", d->gpu, &c->hidden);
    if (d->gpu && far && (!p->host_slabs || p->host_slabs == far))
        (void) fprintf(f, " --attention %s", p->host_slabs ? "host" : "gpu");
    if (!fclose(f)) return text;
    free(text);
    return NULL;
}
