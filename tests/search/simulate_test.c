/* SPDX-License-Identifier: Apache-2.0 */
/* A long job's time from some of its sweeps: compared with all of them on jobs that are short enough. */
#include "engine/base/ps_mem.h"
#include "engine/search/sample.h"
#include "ps_cmocka.h"
#include "sim_rig.h"
#include <math.h>
#include <string.h>

enum { MANY = 600 };

struct job {
    const char *name, *model, *policy;
    bool gpu, mixed;
    uint32_t n, prompt, gen;
    double kv_disk, weights_disk, hidden_disk; /* percent; -1: as the plan likes */
    uint32_t slots, mbs, prefill, prefetch;
    bool no_continuous;
};

/* Small enough to run every sweep of, and with more sweeps than are run otherwise. */
static const struct job jobs[] = {
    { "uniform", "opt-1.3b", "full", true, false, MANY, 64, 24, -1, -1, -1, 8, 2, 0, 0, false },
    { "uniform, h2o", "opt-1.3b", "h2o", true, false, MANY, 64, 24, -1, -1, -1, 8, 2, 0, 0, false },
    { "mixed", "opt-1.3b", "full", true, true, MANY, 60, 30, -1, -1, -1, 8, 2, 0, 0, false },
    { "mixed, h2o", "opt-1.3b", "h2o", true, true, MANY, 60, 30, -1, -1, -1, 8, 2, 0, 0, false },
    { "host", "opt-1.3b", "full", false, true, MANY, 60, 30, -1, -1, -1, 8, 2, 0, 0, false },
    { "host, disk", "opt-1.3b", "h2o", false, false, MANY, 64, 24, 100, 50, 0, 8, 2, 0, 1, false },
    { "disk, mixed", "opt-1.3b", "full", true, true, MANY, 60, 30, 50, 100, 0, 8, 2, 0, 2, false },
    { "hidden", "opt-1.3b", "full", true, false, MANY, 64, 24, 0, 0, 100, 8, 2, 0, 1, false },
    { "one by one", "opt-1.3b", "full", true, false, 40, 64, 20, -1, -1, -1, 1, 1, 0, 0, false },
    { "one token", "opt-1.3b", "full", true, true, 4000, 64, 1, -1, -1, -1, 8, 2, 0, 0, false },
    { "scored", "opt-1.3b", "full", true, true, 4000, 64, 0, -1, -1, -1, 8, 2, 0, 0, false },
    { "blocks", "opt-1.3b", "h2o", true, true, MANY, 60, 30, -1, -1, -1, 8, 2, 0, 0, true },
};

static uint32_t prompts[4000], gens[4000];

static void open_job(struct rig *r, const struct job *j)
{
    struct ps_lengths l = { .n = j->n, .each_prompt = j->prompt, .each_gen = j->gen };
    unsigned seed = 3;
    for (uint32_t i = 0; i < j->n; i++) {
        prompts[i] = 1 + (uint32_t) rand_r(&seed) % (2 * j->prompt);
        gens[i] = j->gen > 1 ? 1 + (uint32_t) rand_r(&seed) % (2 * j->gen) : j->gen;
    }
    if (j->mixed) {
        l.prompt = prompts;
        l.gen = gens;
    }
    rig_open(r, j->model, 3, j->gpu ? &rig_t4 : &rig_cpu, &l, j->policy);
    r->schedule.no_continuous = j->no_continuous;
    r->req.gpu_batch_size = j->slots;
    r->req.num_gpu_batches = j->mbs;
    r->req.prefill_tokens = j->prefill;
    r->req.prefetch = j->prefetch;
    if (j->kv_disk >= 0) r->req.kv = (struct ps_shares) { { 0, 100 - j->kv_disk, j->kv_disk } };
    if (j->weights_disk >= 0)
        r->req.weights = (struct ps_shares) { { 0, 100 - j->weights_disk, j->weights_disk } };
    if (j->hidden_disk >= 0)
        r->req.hidden = (struct ps_shares) { { 0, 100 - j->hidden_disk, j->hidden_disk } };
    rig_plan(r);
}

static unsigned off;

static void near(const struct job *j, const char *what, double got, double want, double share,
                 double of)
{
    if (fabs(got - want) <= share * of) return;
    off++;
    print_message("%s: %s: %g, with every sweep %g\n", j->name, what, got, want);
}

static double tasks_of(const struct ps_run_stats *s)
{
    double sum = 0;
    for (int q = 0; q < PS_Q__COUNT; q++) sum += (double) s->dev.tasks[q];
    return sum;
}

static void compare(const struct job *j, const struct ps_simulated *a, const struct ps_simulated *b)
{
    const struct ps_run_stats *x = &a->run, *y = &b->run;
    assert_int_equal(x->sweeps, y->sweeps);
    assert_int_equal(x->prompt_tokens, y->prompt_tokens);
    assert_int_equal(x->generated_tokens, y->generated_tokens);
    assert_int_equal(x->evictions, y->evictions);
    assert_int_equal(x->decode_passes, y->decode_passes);
    assert_memory_equal(x->dev.bytes, y->dev.bytes, sizeof x->dev.bytes);
    near(j, "time", a->total_s, b->total_s, 0.01, b->total_s);
    near(j, "load", x->load_s, y->load_s, 0, 1);
    near(j, "prefill", x->prefill_s, y->prefill_s, 0.01, b->total_s);
    for (int q = 0; q < PS_Q__COUNT; q++) {
        near(j, "busy", (double) x->dev.busy_ns[q], (double) y->dev.busy_ns[q], 0.01e9, b->total_s);
        near(j, "flops", x->dev.flops[q], y->dev.flops[q], 0.03, y->dev.flops[q]);
    }
    near(j, "tasks", tasks_of(x), tasks_of(y), 0.02, tasks_of(y));
    near(j, "idle", (double) x->dev.idle_ns, (double) y->dev.idle_ns, 0.01e9, b->total_s);
    near(j, "end", a->end_s, b->end_s, 0.03, b->end_s);
    near(j, "end of 95 %", a->end_p95_s, b->end_p95_s, 0.1, b->end_p95_s);
    near(j, "first token", a->first_token_s, b->first_token_s, 0.05, b->first_token_s);
}

static void some_sweeps_tell_of_all(void **state)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(jobs); i++) {
        struct rig r;
        open_job(&r, &jobs[i]);
        const struct ps_simulated all = rig_run(&r, true, 0), some = rig_run(&r, false, 60);
        print_message("%s: %llu of %llu sweeps, %+.2f %%\n", jobs[i].name,
                      (unsigned long long) some.sweeps_run, (unsigned long long) all.run.sweeps,
                      100 * (some.total_s / all.total_s - 1));
        assert_int_equal(all.sweeps_run, all.run.sweeps);
        assert_true(some.sweeps_run <= 60 && some.sweeps_run < all.run.sweeps / 2);
        assert_true(some.tasks_run < all.tasks_run);
        compare(&jobs[i], &some, &all);
        rig_close(&r);
    }
    assert_int_equal(off, 0);
}

/* However few may be run: less exact, but the same bytes; and the same each time. */
static void few_sweeps(void **state)
{
    struct rig r;
    open_job(&r, &jobs[0]);
    const struct ps_simulated all = rig_run(&r, true, 0);
    for (uint32_t most = 1; most < 30; most += 4) {
        const struct ps_simulated s = rig_run(&r, false, most), again = rig_run(&r, false, most);
        assert_true(s.sweeps_run <= (most < 6 ? 6 : most));
        near(&jobs[0], "time", s.total_s, all.total_s, 0.05, all.total_s);
        assert_memory_equal(s.run.dev.bytes, all.run.dev.bytes, sizeof all.run.dev.bytes);
        assert_memory_equal(&s, &again, sizeof s);
    }
    assert_int_equal(off, 0);
    rig_close(&r);
}

/* All of them are run where there are few. */
static void short_jobs(void **state)
{
    static const struct job small[] = {
        { "one request", "opt-1.3b", "full", true, false, 1, 64, 5, -1, -1, -1, 8, 2, 0, 0, false },
        { "one sweep", "opt-1.3b", "h2o", false, false, 3, 64, 1, -1, -1, -1, 8, 2, 0, 0, false },
        { "none", "opt-1.3b", "full", true, false, 0, 64, 5, -1, -1, -1, 8, 2, 0, 0, false },
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(small); i++) {
        struct rig r;
        open_job(&r, &small[i]);
        const struct ps_simulated all = rig_run(&r, true, 0), some = rig_run(&r, false, 0);
        assert_memory_equal(&all, &some, sizeof all);
        assert_int_equal(all.sweeps_run, all.run.sweeps);
        assert_int_equal(all.run.generated_tokens, small[i].n * (uint64_t) small[i].gen);
        assert_true((all.total_s > 0) == (small[i].n > 0));
        rig_close(&r);
    }
}

/* What the papers run: hundreds of millions of tasks, of which a few million are enough. */
static void a_large_model(void **state)
{
    const struct ps_lengths l = { .n = 10000, .each_prompt = 512, .each_gen = 128 };
    const struct ps_profile *const machines[] = { &rig_t4, &rig_cpu };
    for (size_t i = 0; i < PS_ARRAY_LEN(machines); i++) {
        struct rig r;
        rig_open(&r, "opt-175b", 0, machines[i], &l, i ? "full" : "h2o");
        rig_plan(&r);
        const struct ps_simulated s = rig_run(&r, false, 8);
        print_message("%s: %llu of %.0f tasks\n", r.profile.name, (unsigned long long) s.tasks_run,
                      tasks_of(&s.run));
        assert_int_equal(s.run.generated_tokens, 10000 * 128);
        assert_true(s.tasks_run < 5000000 && tasks_of(&s.run) > 20 * (double) s.tasks_run);
        rig_close(&r);
    }
}

/* Sweeps beyond counting one by one. */
static void a_long_job(void **state)
{
    const struct ps_lengths l = { .n = 3000, .each_prompt = 8, .each_gen = 16 };
    struct rig r;
    rig_open(&r, "opt-125m", 1, &rig_t4, &l, "h2o");
    r.req.gpu_batch_size = 1;
    r.req.num_gpu_batches = 1;
    rig_plan(&r);
    const struct ps_simulated s = rig_run(&r, false, 0), all = rig_run(&r, true, 0);
    assert_int_equal(s.run.sweeps, 3000 * 16);
    assert_true(s.sweeps_run <= 256);
    assert_true(fabs(s.total_s / all.total_s - 1) < 0.01);
    assert_memory_equal(s.run.dev.bytes, all.run.dev.bytes, sizeof s.run.dev.bytes);
    rig_close(&r);
}

/* Each sweep is picked once, and the groups' sweeps are all there are: also where sweeps were put together, and one is left over. */
static void picks(void **state)
{
    for (uint64_t n = PS_STRETCHES - 1; n < 5 * PS_STRETCHES; n += PS_STRETCHES + 1) {
        struct ps_laid l;
        struct ps_picks s;
        double load[PS_LOAD__COUNT] = { 0 }, groups = 0;
        assert_ok(ps_laid_init(&l));
        for (uint64_t i = 0; i < n; i++) {
            load[PS_LOAD_ALL] = i + 1 == n ? 100 : 1 + (double) (i % 7);
            ps_laid_add(&l, load);
        }
        assert_ok(ps_sample_pick(&l, 60, &s));
        for (uint32_t i = 0; i < s.n; i++) {
            if (i) assert_true(s.at[i].sweep > s.at[i - 1].sweep);
            groups += s.at[i].counts ? fmax(s.at[i].group, 1) : 0;
        }
        assert_true(s.n <= 60 && groups == (double) n);
        free(s.at);
        ps_laid_done(&l);
    }
}

/* However long a job of equal requests is: what comes round and round is laid out once. */
static void beyond_counting(void **state)
{
    const struct ps_lengths few = { .n = 100003, .each_prompt = 40, .each_gen = 6 };
    struct ps_lengths many = few;
    struct rig r;
    rig_open(&r, "opt-1.3b", 2, &rig_t4, &few, "h2o");
    r.req.gpu_batch_size = 16;
    r.req.num_gpu_batches = 2;
    r.req.kv = (struct ps_shares) { { 0, 50, 50 } };
    rig_plan(&r);
    const struct ps_simulated all = rig_run(&r, true, 0), some = rig_run(&r, false, 0);
    assert_int_equal(some.run.sweeps, all.run.sweeps);
    assert_int_equal(some.run.evictions, all.run.evictions);
    assert_memory_equal(some.run.dev.bytes, all.run.dev.bytes, sizeof all.run.dev.bytes);
    assert_true(fabs(some.total_s / all.total_s - 1) < 0.002);
    many.n *= 10000;
    r.lengths = many;
    const struct ps_simulated long_one = rig_run(&r, false, 0);
    assert_int_equal(long_one.run.generated_tokens, 6 * many.n);
    assert_true(fabs(long_one.total_s / all.total_s / 10000 - 1) < 0.002);
    rig_close(&r);
}

/* Requests of many lengths: some of them tell of all, for a first look. */
static void many_lengths(void **state)
{
    enum { N = 60000 };
    struct ps_lengths l = { .n = N };
    ps_auto_free uint32_t *prompt = ps_calloc(N, sizeof *prompt);
    ps_auto_free uint32_t *gen = ps_calloc(N, sizeof *gen);
    unsigned seed = 4;
    assert_true(prompt && gen);
    for (uint32_t i = 0; i < N; i++) { /* and they grow */
        prompt[i] = 1 + (uint32_t) rand_r(&seed) % (20 + i / 1000);
        gen[i] = 1 + (uint32_t) rand_r(&seed) % (20 + i / 1500);
    }
    l.prompt = prompt;
    l.gen = gen;
    for (int gpu = 0; gpu < 2; gpu++) {
        struct rig r;
        rig_open(&r, "opt-1.3b", 2, gpu ? &rig_t4 : &rig_cpu, &l, gpu ? "full" : "h2o");
        r.req.gpu_batch_size = 32;
        r.req.num_gpu_batches = 2;
        rig_plan(&r);
        const struct ps_simulated all = rig_run(&r, false, 0);
        r.coarse = true;
        const struct ps_simulated some = rig_run(&r, false, 0);
        print_message("%+.2f %%\n", 100 * (some.total_s / all.total_s - 1));
        assert_int_equal(some.run.generated_tokens, all.run.generated_tokens);
        assert_int_equal(some.run.prompt_tokens, all.run.prompt_tokens);
        assert_true(some.run.sweeps != all.run.sweeps);
        assert_true(fabs(some.total_s / all.total_s - 1) < 0.01);
        assert_true(fabs(some.end_s / all.end_s - 1) < 0.02);
        rig_close(&r);
    }
}

static void cancelled(void **state)
{
    const volatile int stop = 1;
    struct rig r;
    open_job(&r, &jobs[0]);
    r.stop = &stop;
    struct ps_simulated s;
    assert_int_equal(rig_try(&r, false, 0, &s), -ECANCELED);
    assert_int_equal(rig_try(&r, true, 0, &s), -ECANCELED);
    rig_close(&r);
}

/* Every allocation in turn fails. */
static void allocations(void **state)
{
    const struct job j = { "", "opt-125m", "full", true, false, 40, 8, 16,
                           -1, -1,         -1,     1,    1,     0,  0, false };
    struct rig r;
    open_job(&r, &j);
    for (unsigned n = 1;; n++) {
        struct ps_simulated s;
        ps_mem_fault_arm(n);
        int err = rig_try(&r, false, 8, &s);
        const bool hit = ps_mem_fault_hit();
        ps_mem_fault_arm(0);
        if (err < 0) assert_err(err, ENOMEM);
        if (!hit) break;
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_sweeps_tell_of_all),
        cmocka_unit_test(few_sweeps),
        cmocka_unit_test(short_jobs),
        cmocka_unit_test(a_large_model),
        cmocka_unit_test(a_long_job),
        cmocka_unit_test(picks),
        cmocka_unit_test(beyond_counting),
        cmocka_unit_test(many_lengths),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
