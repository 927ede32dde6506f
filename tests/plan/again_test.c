/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan says of itself, as wishes: they are granted, and by that plan. */
#include "engine/base/ps_mem.h"
#include "engine/checkpoint/pack_file.h"
#include "plan_model.h"
#include "ps_cmocka.h"
#include <inttypes.h>
#include <string.h>

static const char *const models[] = { "opt-125m", "opt-350m", "opt-1.3b", "opt-6.7b" };
static unsigned seed;
static unsigned below(unsigned n) { return (unsigned) rand_r(&seed) % n; }

static struct ps_plan_req random_req(const struct ps_packed *m)
{
    static const char *const policies[] = { "full", "h2o", "local", "sink" };
    const double part = (double) m->weight_bytes * 3 / 1000;
    const bool gpu = below(4);
    struct ps_plan_req q = pm_req(m, 1 + below(2000), 1 + below(700), 1 + below(200),
                                  (uint64_t) (part * (1 + below(1000))),
                                  gpu ? (uint64_t) (part * (1 + below(1000))) : 0);
    q.kv_config.policy = policies[below(4)];
    q.disk_space = (uint64_t) (part * (1 + below(3000)));
    q.rates = (struct ps_rates) { .disk_read = 2e9 * (1 + below(4)), .disk_write = 1e9 };
    if (below(2)) q.gpu_batch_size = 1 + below(40);
    if (below(2)) q.num_gpu_batches = 1 + below(6);
    if (below(4) == 0) q.prefetch = below(2) ? 1 + below(3) : PS_PREFETCH_NONE;
    if (gpu && below(4) == 0) q.pin_max = q.host_mem / 3;
    q.no_disk = below(5) == 0;
    return q;
}

/* As `plan` tells them: the shares that it wanted, for those that came to be may come to others, a chunk away. */
static struct ps_plan_req wishes_of(const struct ps_plan_req *q, const struct ps_plan *p)
{
    struct ps_plan_req w = *q;
    w.gpu_batch_size = p->slots;
    w.num_gpu_batches = p->micro_batches;
    w.prefill_tokens = p->prefill_tokens;
    w.prefetch = p->prefetch ? p->prefetch : PS_PREFETCH_NONE;
    w.weights = p->detail->from.weights;
    w.kv = p->detail->from.kv;
    w.hidden = p->detail->from.hidden;
    return w;
}

/* No more than was taken, to the byte, and `more`. */
static void exactly(struct ps_plan_req *q, const struct ps_plan *p, uint64_t more)
{
    q->host_mem = p->host_bytes + more;
    q->disk_space = p->disk_bytes;
    if (q->gpu.mem_bytes) q->gpu.mem_bytes = p->gpu_bytes + more;
}

static void make(const struct ps_plan_req *q, struct ps_plan *ret, const char *what, int i)
{
    struct ps_detail dt = { "" };
    int r = ps_plan_make(q, ret, NULL, &dt);
    if (r < 0) fail_msg("%d: %s: %s", i, what, dt.text);
    pm_check(q, ret);
}

static void same_placement(const struct ps_plan *a, const struct ps_plan *b, int i)
{
    assert_true(a->slots == b->slots && a->micro_batches == b->micro_batches);
    assert_true(a->prefill_tokens == b->prefill_tokens && a->prefetch == b->prefetch);
    for (int t = 0; t < PS_TIER__COUNT; t++)
        if (a->weight_bytes[t] != b->weight_bytes[t] || a->kv_bytes[t] != b->kv_bytes[t] ||
            a->hidden_bytes[t] != b->hidden_bytes[t])
            fail_msg("%d: tier %d: weights %" PRIu64 " %" PRIu64 ", KV %" PRIu64 " %" PRIu64
                     ", hidden states %" PRIu64 " %" PRIu64,
                     i, t, a->weight_bytes[t], b->weight_bytes[t], a->kv_bytes[t], b->kv_bytes[t],
                     a->hidden_bytes[t], b->hidden_bytes[t]);
}

static int many(int n)
{
    const char *t = getenv("PS_SEARCH_TIMES");
    return t ? n * atoi(t) : n;
}

static void try_again(const struct ps_plan_req *q, int i, const struct ps_plan *p)
{
    struct ps_plan_req w = wishes_of(q, p);
    struct ps_plan x;
    make(&w, &x, "the plan's own shape and shares", i);
    same_placement(p, &x, i);
    ps_plan_done(&x);
    exactly(&w, p, 0);
    make(&w, &x, "and its own memory", i);
    same_placement(p, &x, i);
    ps_plan_done(&x);
    w = *q; /* shares that are sought anew may be off by a chunk */
    exactly(&w, p, q->model->chunk_bytes);
    make(&w, &x, "its own memory alone", i);
    ps_plan_done(&x);
}

static void what_a_plan_says_of_itself(void **state)
{
    unsigned plans = 0;
    seed = 17;
    for (int i = 0; i < many(60); i++) {
        struct ps_packed *m = pm_model(models[below(4)]);
        const struct ps_plan_req q = random_req(m);
        struct ps_plan p[3];
        struct ps_detail dt = { "" };
        unsigned n = 0;
        int r = ps_plan_best(&q, 3, p, &n, NULL, &dt);
        if (r < 0) assert_err(r, PS_EBUDGET);
        plans += n;
        for (unsigned k = 0; k < n; k++) {
            try_again(&q, i, &p[k]);
            ps_plan_done(&p[k]);
        }
        ps_pack_close(m);
    }
    assert_true(plans > 40);
}

/* The number in MiB behind some words, in bytes; 0: it does not say. */
static uint64_t said(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    return at ? strtoull(at + strlen(words), NULL, 10) << 20 : 0;
}

static void allow(struct ps_plan_req *q, const char *text)
{
    const uint64_t host = said(text, "with --host-mem "), gpu = said(text, " and --gpu-mem "),
                   disk = said(text, " and --disk-space "), pin = said(text, ", if ");
    assert_true(host > 0);
    if (host > q->host_mem) q->host_mem = host;
    if (gpu) q->gpu.mem_bytes = gpu;
    if (disk) q->disk_space = disk;
    if (pin) q->pin_max = pin;
}

/* What a refusal names is enough, or next to it: shares that are sought anew may come to a little more. */
static void what_a_refusal_says_would_do(void **state)
{
    unsigned refused = 0, again = 0;
    seed = 23;
    for (int i = 0; i < many(60); i++) {
        struct ps_packed *m = pm_model(models[below(4)]);
        struct ps_plan_req q = random_req(m);
        struct ps_plan p = { 0 };
        q.host_mem /= 1 + below(100);
        q.gpu.mem_bytes /= 1 + below(100);
        for (int times = 0; !p.detail; times++) {
            struct ps_detail dt = { "" };
            ps_auto_free char *text = NULL;
            int r = ps_plan_make(&q, &p, &text, &dt);
            if (!r) break;
            if (times == 3) fail_msg("%d: %s", i, dt.text);
            assert_err(r, PS_EBUDGET);
            allow(&q, text);
            refused += !times;
            again += times > 0;
        }
        pm_check(&q, &p);
        ps_plan_done(&p);
        ps_pack_close(m);
    }
    assert_true(refused > 10 && again <= refused / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_a_plan_says_of_itself),
                                        cmocka_unit_test(what_a_refusal_says_would_do) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
