/* SPDX-License-Identifier: Apache-2.0 */
/* Models of random weights, for measuring: same shapes, same files, no meaning. */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/convert.h"
#include "engine/checkpoint/elems.h"
#include <string.h>
#include <xxhash.h>

struct dummy {
    const struct ps_packed *p;
    uint64_t seed;
};

static int fill(void *ud, uint32_t tensor, uint64_t elem0, uint64_t n, void *dst, void *scratch,
                struct ps_detail *dt)
{
    const struct dummy *d = ud;
    const struct ps_packed_tensor *t = &d->p->tensors[tensor];
    const enum ps_role role = t->t.role;
    const bool norm = role == PS_W_NORM1_W || role == PS_W_NORM2_W || role == PS_W_FINAL_NORM_W;
    uint64_t key = XXH3_64bits_withSeed(t->t.name, strlen(t->t.name), d->seed);
    /* As a trained model's: norms near 1, matrices as they are initialised, biases smaller. */
    ps_elems_random(key, elem0, norm ? 1.0f : 0.0f, t->t.vector ? 0.01f : 0.02f, t->dtype, dst, n);
    return 0;
}

int ps_pack_dummy(const char *config, const char *dst, uint64_t seed,
                  const struct ps_convert_opt *opt, struct ps_detail *dt)
{
    const struct ps_convert_opt none = { .dtype = -1 };
    if (!opt) opt = &none;
    ps_auto_free char *json = NULL;
    struct ps_packed_text text = { 0 };
    struct ps_shape shape;
    int r = ps_shape_load(config, &shape, &json, &text.len, dt);
    if (r < 0 || (r = ps_shape_runs(&shape, config, dt)) < 0) return r;
    text.text = json;
    ps_auto_pack struct ps_packed *p = ps_calloc(1, sizeof *p);
    if (!p) return ps_fail(dt, -ENOMEM, "out of memory");
    enum ps_dtype to = opt->dtype < 0 ? shape.dtype : (enum ps_dtype) opt->dtype;
    if ((r = ps_pack_layout(&shape, to, p, dt)) < 0) return r;
    struct ps_pack_head head;
    uint64_t source = XXH3_64bits_withSeed(json, text.len, seed);
    if ((r = ps_pack_head_make(p, source, &head, dt)) < 0) return r;
    struct dummy d = { .p = p, .seed = seed };
    struct ps_pack_job job = { .p = p, .head = &head, .fill = fill, .ud = &d };
    r = ps_pack_produce(dst, &text, NULL, &job, opt, dt);
    ps_pack_head_done(&head);
    return r;
}
