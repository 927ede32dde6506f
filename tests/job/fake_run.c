/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_mem.h"
#include "fake.h"
#include "ps_cmocka.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct fake fake;

const struct ps_packed *fake_model(void)
{
    static struct ps_packed p = {
        .shape = { .name = "toy",
                   .layers = FAKE_LAYERS,
                   .hidden = 4,
                   .q_heads = 1,
                   .kv_heads = 1,
                   .head_dim = 4,
                   .vocab = FAKE_VOCAB,
                   .positions = FAKE_POSITIONS,
                   .eos = 2,
                   .bos = 2,
                   .pad = 1 },
        .hash = 0x1234,
        .weight_bytes = 1000,
    };
    return &p;
}

/* All of them, or of very many their mean. */
static void check_lengths(const struct ps_job_stats *j, const struct ps_lengths *l)
{
    uint64_t prompt = 0, gen = 0;
    assert_int_equal(l->n, j->requests);
    if (!l->prompt) {
        assert_true(l->n > 1000 && l->each_prompt == j->prompt_tokens / j->requests);
        return;
    }
    for (uint64_t i = 0; i < l->n; i++) {
        prompt += l->prompt[i];
        gen += l->gen[i];
    }
    assert_int_equal(prompt, j->prompt_tokens);
    assert_int_equal(gen, j->max_new_tokens);
}

static int plan_make(void *ud, const struct ps_plan_req *req, const struct ps_lengths *lengths,
                     struct ps_plan *ret, struct ps_simulated *ret_predicted, char **ret_text,
                     struct ps_detail *dt)
{
    fake.stats = req->job;
    check_lengths(&req->job, lengths);
    if (fake.no_fit) {
        *ret_text = strdup("weights 1000\nneeds 2000 bytes\n");
        return ps_fail(dt, -PS_EBUDGET, "--host-mem is too small");
    }
    *ret =
        (struct ps_plan) { .slots = fake.slots, .micro_batches = fake.micro_batches, .kv_cap = 8 };
    if (!req->gpu.mem_bytes) return 0;
    ret->gpu_bytes = 1000;
    ret->host_slabs = 3;
    ret->pinned_bytes = req->pin_max ? req->pin_max : 1000000000;
    if (req->pin_max) ret->slots += 3; /* another shape */
    return 0;
}
static char *plan_text(const struct ps_plan_req *req, const struct ps_plan *plan)
{
    return strdup("a plan\n");
}
static void plan_done(struct ps_plan *p) {}

struct active {
    struct ps_seq *s;
    uint32_t n;
};

static float toy_logprob(int32_t token, uint32_t place)
{
    return -0.1f * (float) (token % 7) - 0.01f * (float) (place % 50);
}

static struct ps_sample_out sample(const struct ps_seq *s, int32_t token, uint32_t place)
{
    struct ps_sample_out o = { .token = token,
                               .logprob = toy_logprob(token, place),
                               .n_top = s->n_top };
    for (uint32_t i = 0; i < s->n_top; i++) {
        o.top_id[i] = (int32_t) ((uint32_t) (token + 1 + (int32_t) i) % FAKE_VOCAB);
        o.top_logprob[i] = -0.001f * (float) (i + 1);
    }
    return o;
}

static int32_t choose(const struct ps_seq *s, uint32_t i)
{
    int32_t t = s->n_prompt > 1 ? s->prompt[1 + i % (s->n_prompt - 1)] : s->prompt[0];
    if (s->temperature > 0) t = 3 + 'a' + (int32_t) (ps_uniform(s->key, i) * 26);
    for (uint32_t b = 0; i < s->min_tokens && b < s->n_banned; b++)
        if (s->banned[b] == t) t = 3 + 'x';
    return t;
}

static int end_seq(const struct ps_run_cfg *cfg, const struct ps_run_io *io, const struct active *a)
{
    int r = 0;
    int32_t pos[2] = { 0, (int32_t) (a->s->n_prompt + a->n) - 1 };
    float score[2] = { 0.5f, 1.25f };
    for (uint32_t l = 0; !r && cfg->dump_kv && l < FAKE_LAYERS; l++) {
        struct ps_kept k = { .layer = l,
                             .kv_heads = 1,
                             .n = 2,
                             .tokens_fed = a->s->n_prompt + a->n,
                             .pos = pos,
                             .score = l ? score : NULL };
        r = io->kept(io->ud, a->s, &k);
    }
    return r ? r : io->end(io->ud, a->s);
}

static int step(const struct ps_run_cfg *cfg, const struct ps_run_io *io, struct active *a,
                struct ps_run_stats *st)
{
    int r = 0;
    bool end = false;
    if (!a->n && a->s->score_prompt)
        for (uint32_t i = 1; !r && i < a->s->n_prompt; i++) {
            struct ps_sample_out o = sample(a->s, a->s->prompt[i], i);
            r = io->scored(io->ud, a->s, i, &o, 1);
        }
    if (!a->n) st->prompt_tokens += a->s->n_prompt;
    if (!r && a->n < a->s->max_tokens) {
        struct ps_sample_out o =
            sample(a->s, fake.nan ? -1 : choose(a->s, a->n), a->s->n_prompt + a->n);
        r = io->token(io->ud, a->s, a->n++, &o, &end);
        st->generated_tokens++;
    }
    if (r || (!end && a->n < a->s->max_tokens)) return r;
    r = end_seq(cfg, io, a);
    a->s = NULL;
    return r;
}

static int run(const struct ps_run_cfg *cfg, const struct ps_run_io *io, struct ps_run_stats *ret,
               struct ps_detail *dt)
{
    uint32_t cap = cfg->plan->slots * cfg->plan->micro_batches;
    ps_auto_free struct active *a = ps_calloc(cap, sizeof *a);
    struct ps_run_stats st = { 0 };
    bool dry = false;
    if (!a) return -ENOMEM;
    fake.runs++;
    ret->pinned_bytes = cfg->plan->pinned_bytes;
    if (ret->pinned_bytes > fake.can_pin) {
        ret->pinned_bytes = fake.can_pin;
        return ps_fail(dt, -PS_EPIN, "toy: memory cannot be pinned");
    }
    st = (struct ps_run_stats) {
        .pinned_bytes = ret->pinned_bytes,
        .gpu = { .all = { .launches = 90, .calls = 10, .copies = 7 },
                 .counted = { .launches = 64,
                              .calls = 8,
                              .copies = 4,
                              .events = 152,
                              .waits = 20 } },
        .decode_passes = 8,
        .taken_bytes = { [PS_TIER_GPU] = cfg->plan->gpu_bytes, [PS_TIER_HOST] = 2000 }
    };
    for (;;) {
        uint32_t active = 0;
        int r = 0;
        for (uint32_t i = 0; i < cap; i++) {
            if (!a[i].s && !dry) {
                fake.next_calls++;
                a[i].n = 0;
                r = io->next(io->ud, &a[i].s);
                if (r < 0) return r;
                if (!r) a[i].s = NULL;
                dry = !r;
            }
            active += a[i].s != NULL;
        }
        if (active > fake.most_active) fake.most_active = active;
        if (!active) break;
        for (uint32_t i = 0; i < cap; i++)
            if (a[i].s && (r = step(cfg, io, &a[i], &st)) < 0) return r;
        st.sweeps++;
        st.active = active;
        st.decode_s += 0.001;
        st.prefill_s += 0.001;
        fake.sweeps++;
        if (st.sweeps == fake.stop_at) *fake.stop = 1;
        if (fake.at_sweep) fake.at_sweep(st.sweeps);
        if (st.sweeps == fake.fail_at) return ps_fail(dt, -EIO, "toy: disk broke");
        *ret = st;
        r = io->sweep(io->ud, &st);
        if (r) return r;
    }
    *ret = st;
    return 0;
}

const struct ps_job_engine fake_engine = { plan_make, plan_text, plan_done, run, NULL };
