/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader of hardware profiles takes has values within their bounds, and can be asked for them. */
#include "offload/profile.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct ps_curve *c)
{
    if (!c->n || c->n > PS_CURVE_MAX) abort();
    for (double x = 1; x < 1e6; x *= 3) {
        const double y = ps_curve_at(c, x, NULL);
        if (!(y >= 1 && y <= 1e18)) abort();
    }
}

static void worker(const struct ps_worker_rates *w)
{
    if (!(w->mem > 0) || !(w->flops > 0)) abort();
    for (uint32_t i = 0; i < w->n_linear; i++) check(&w->linear[i].over_m);
    for (uint32_t i = 0; i < w->n_decode; i++) check(&w->decode[i].over_n);
    for (uint32_t i = 0; i < w->n_prompt; i++) check(&w->prompt[i].over_n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ps_profile p;
    struct ps_detail dt;
    if (ps_profile_parse((const char *) data, size, "hardware.json", &p, &dt) < 0) return 0;
    worker(&p.host);
    if (p.gpu_mem) worker(&p.gpu);
    for (uint32_t i = 0; i < p.n_disk_read; i++) check(&p.disk_read_at[i].over_depth);
    return 0;
}
