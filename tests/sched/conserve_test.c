/* SPDX-License-Identifier: Apache-2.0 */
/* What is predicted is what is run: on `sim` each queue gets the same operations in the same order as on a device that computes, task by
 * task, and moves the same bytes; for placements, shapes, policies and mixes of prompts. */
#include "engine/base/ps_mem.h"
#include "offload/profile.h"
#include "ps_cmocka.h"
#include "sched_job.h"

enum { GPU_SCRATCH = 8 << 20 };

struct entry {
    int op; /* -1: a move */
    enum ps_kind kind;
    uint32_t tag;
    double bytes, flops;
};
/* A queue's tasks; each queue is told of by one thread. */
struct queue_log {
    struct entry *at;
    size_t n, room;
};
struct log {
    struct queue_log q[PS_Q__COUNT];
};

static void note(void *ud, enum ps_q q, const struct ps_task *t, uint64_t t0, uint64_t t1)
{
    struct queue_log *l = &((struct log *) ud)->q[q];
    if (ps_grow(&l->at, &l->room, l->n, l->n + 1, sizeof *l->at) < 0) abort();
    l->at[l->n++] = (struct entry) { .op = t->kern ? (int) t->kern->op : -1,
                                     .kind = t->kind,
                                     .tag = t->tag,
                                     .bytes = t->cost.bytes,
                                     .flops = t->cost.flops };
}

static bool same_entry(const struct entry *a, const struct entry *b)
{
    return a->op == b->op && a->kind == b->kind && a->tag == b->tag && a->bytes == b->bytes &&
           a->flops == b->flops;
}

static void same_logs(const char *what, const struct log *a, const struct log *b)
{
    for (int q = 0; q < PS_Q__COUNT; q++) {
        const struct queue_log *x = &a->q[q], *y = &b->q[q];
        for (size_t i = 0; i < x->n && i < y->n; i++)
            if (!same_entry(&x->at[i], &y->at[i]))
                fail_msg("%s: task %zu of queue %s: op %d, tag %x, %.0f bytes; on sim op %d, tag "
                         "%x, %.0f bytes",
                         what, i, ps_q_name((enum ps_q) q), x->at[i].op, x->at[i].tag,
                         x->at[i].bytes, y->at[i].op, y->at[i].tag, y->at[i].bytes);
        if (x->n != y->n)
            fail_msg("%s: %zu tasks in queue %s, on sim %zu", what, x->n, ps_q_name((enum ps_q) q),
                     y->n);
    }
}

/* ---- jobs */

static void length(struct sj *j, uint32_t i, uint32_t prompt, uint32_t new)
{
    j->seq[i].seq.n_prompt = prompt;
    j->seq[i].seq.max_tokens = new;
}

/* Nobody ends early: sim's tokens are all 0, and 13 would end a sequence. */
static void mix_prompts(struct sj *j, unsigned mix)
{
    static const int32_t never[] = { 13 };
    struct ps_job_stats *s = &j->stats;
    j->n_seqs = 12;
    s->requests = j->n_seqs;
    s->most_banned = 1;
    s->prompt_tokens = s->max_new_tokens = s->longest_prompt = s->longest_total = 0;
    for (uint32_t i = 0; i < j->n_seqs; i++) {
        struct ps_seq *q = &j->seq[i].seq;
        if (mix == 1) length(j, i, 24, 9);
        if (mix == 2) length(j, i, i == 7 ? 90 : 1 + i % 4, i % 5 ? 4 + i : 0);
        q->banned = never;
        q->n_banned = 1;
        q->min_tokens = SJ_LEN;
        s->prompt_tokens += q->n_prompt;
        s->max_new_tokens += q->max_tokens;
        if (q->n_prompt > s->longest_prompt) s->longest_prompt = q->n_prompt;
        if (q->n_prompt + q->max_tokens > s->longest_total)
            s->longest_total = q->n_prompt + q->max_tokens;
    }
}

/* Does all at once, what would be on a GPU in memory of the host. */
static void *gpu_scratch;
static int open_gpu(const struct ps_dev_cfg *cfg, struct ps_dev **ret)
{
    struct ps_dev_cfg c = *cfg;
    c.scratch = gpu_scratch;
    c.scratch_bytes = GPU_SCRATCH;
    int r = ps_dev_now_open(&c, ret);
    if (!r) (*ret)->where = PS_GPU;
    return r;
}

static const struct ps_profile machine = {
    .cores = 2,
    .threads = 2,
    .host = { .mem = 1e9, .copy = 1e9, .flops = 1e9, .task_s = 1e-5 },
    .gpu = { .mem = 1e10, .copy = 1e10, .flops = 1e10, .task_s = 1e-5 },
    .disk_read = { 1e8, 8e7 },
    .disk_write = { 5e7, 4e7 },
    .h2d = { 3e8, 2e8 },
    .d2h = { 3e8, 2e8 },
    .disk_s = 1e-5,
    .copy_s = 1e-5,
};

static void conserved(const struct sj *job, struct ps_plan_req *q, const char *what)
{
    static struct sj real, sim;
    static struct log on[2];
    const struct ps_sim_cfg cfg = { .profile = &machine };
    struct ps_detail dt = { "" };
    for (int x = 0; x < PS_Q__COUNT; x++) on[0].q[x].n = on[1].q[x].n = 0;
    real = *job;
    real.no_dump = true;
    real.trace = note;
    real.trace_ud = &on[0];
    real.device = q->gpu.mem_bytes ? open_gpu : NULL;
    sim = real;
    sim.trace_ud = &on[1];
    assert_ok_dt(sj_run(&real, q, NULL, &dt), &dt);
    assert_ok_dt(sj_run(&sim, q, &cfg, &dt), &dt);
    same_logs(what, &on[0], &on[1]);
    assert_int_equal(real.run.sweeps, sim.run.sweeps);
    assert_int_equal(real.run.generated_tokens, sim.run.generated_tokens);
    assert_int_equal(real.run.evictions, sim.run.evictions);
    assert_memory_equal(real.run.dev.bytes, sim.run.dev.bytes, sizeof sim.run.dev.bytes);
    assert_memory_equal(real.run.dev.tasks, sim.run.dev.tasks, sizeof sim.run.dev.tasks);
    assert_memory_equal(real.run.dev.flops, sim.run.dev.flops, sizeof sim.run.dev.flops);
}

/* ---- placements */

static const char *const policies[] = { "full", "h2o", "local", "sink" };
static const double on_host[] = { 100, 50, 0 };

static void shape(struct ps_plan_req *q, unsigned i)
{
    static const struct {
        uint32_t slots, mbs, prefill, prefetch;
    } shapes[] = {
        { 4, 1, 0, 1 }, { 2, 3, 0, 0 }, { 3, 2, 64, 2 }, { 1, 2, 0, 3 }, { 16, 1, 100, 0 }
    };
    const size_t k = i % PS_ARRAY_LEN(shapes);
    q->gpu_batch_size = shapes[k].slots;
    q->num_gpu_batches = shapes[k].mbs;
    q->prefill_tokens = shapes[k].prefill;
    q->prefetch = shapes[k].prefetch;
}

/* All placements of weights, KV and hidden states between memory and disk, on the cpu device. */
static void equal_to_the_cpu(void **state)
{
    static struct sj jobs[3];
    sj_open(&jobs[0], true);
    jobs[1] = jobs[2] = jobs[0];
    for (unsigned m = 0; m < 3; m++) mix_prompts(&jobs[m], m);
    for (unsigned i = 0; i < 2 * 27; i++) {
        char what[64];
        struct ps_plan_req q = sj_req(&jobs[i % 3], policies[i % 2]);
        const unsigned p = i / 2;
        struct ps_shares *const shares[] = { &q.weights, &q.kv, &q.hidden };
        for (unsigned k = 0, part = p; k < 3; k++, part /= 3)
            *shares[k] = (struct ps_shares) { { 0, on_host[part % 3], 100 - on_host[part % 3] } };
        shape(&q, i / 3);
        snprintf(what, sizeof what, "placement %u, %s", i, policies[i % 2]);
        conserved(&jobs[i % 3], &q, what);
    }
    sj_close(&jobs[0]);
}

/* Random ones beside a GPU, attention here or there. */
static void equal_beside_a_gpu(void **state)
{
    static const double pct[][PS_TIER__COUNT] = { { 0, 100, 0 }, { 0, 50, 50 }, { 0, 0, 100 },
                                                  { 100, 0, 0 }, { 50, 50, 0 }, { 50, 0, 50 },
                                                  { 30, 40, 30 } };
    static struct sj jobs[3];
    unsigned seed = 5;
    sj_open(&jobs[0], true);
    jobs[1] = jobs[2] = jobs[0];
    for (unsigned m = 0; m < 3; m++) mix_prompts(&jobs[m], m);
    gpu_scratch = ps_aligned(64, 3 * (size_t) GPU_SCRATCH);
    assert_non_null(gpu_scratch);
    for (unsigned i = 0; i < 60; i++) {
        char what[64];
        struct ps_plan_req q = sj_req(&jobs[i % 3], policies[i % 4]);
        struct ps_shares *const shares[] = { &q.weights, &q.kv, &q.hidden };
        for (unsigned k = 0; k < 3; k++) {
            /* every one of them for weights, then any */
            size_t at = k ? (size_t) rand_r(&seed) % 7 : i % 7;
            memcpy(shares[k]->pct, pct[at], sizeof pct[at]);
        }
        q.gpu = (struct ps_plan_gpu) { .mem_bytes = UINT64_C(1) << 30, .sm = 75 };
        q.attention = (enum ps_attention_at)(rand_r(&seed) % 3);
        shape(&q, (unsigned) rand_r(&seed));
        snprintf(what, sizeof what, "beside a GPU, %u, %s", i, policies[i % 4]);
        conserved(&jobs[i % 3], &q, what);
    }
    free(gpu_scratch);
    sj_close(&jobs[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(equal_to_the_cpu),
                                        cmocka_unit_test(equal_beside_a_gpu) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
