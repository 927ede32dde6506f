/* SPDX-License-Identifier: Apache-2.0 */
/* Other schedules than ours do what they say: seen in the times of each task, on the `sim` device, where they equal closed forms, and on the cpu's. */
#include "offload/profile.h"
#include "ps_cmocka.h"
#include "sched_job.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { MOST_TASKS = 1 << 16, MOST_STEPS = 1 << 14, GROUPS = 4 };

struct span {
    enum ps_q q;
    enum ps_op op; /* PS_OP__COUNT: a move */
    enum ps_kind kind;
    uint32_t tag;
    uint64_t t0, t1;
};
/* A (group, micro-batch) on COMPUTE: from the start of its first task to the end of its last. */
struct step {
    uint32_t group, tasks;
    uint64_t begin, end;
};
static struct timeline {
    pthread_mutex_t lock;
    struct span span[MOST_TASKS];
    size_t n;
    struct step step[MOST_STEPS];
    size_t n_steps;
} line = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void note(void *ud, enum ps_q q, const struct ps_task *t, uint64_t t0, uint64_t t1)
{
    (void) pthread_mutex_lock(&line.lock);
    assert_true(line.n < MOST_TASKS);
    line.span[line.n++] =
        (struct span) { q, t->kern ? t->kern->op : PS_OP__COUNT, t->kind, t->tag, t0, t1 };
    (void) pthread_mutex_unlock(&line.lock);
}

/* The head's last task samples; the embedding of the next sweep may follow it under the same tag. */
static void find_steps(void)
{
    const struct span *last = NULL;
    line.n_steps = 0;
    for (size_t i = 0; i < line.n; i++) {
        const struct span *s = &line.span[i];
        if (s->q != PS_Q_COMPUTE) continue;
        if (!last || last->tag != s->tag || last->op == PS_OP_sample) {
            assert_true(line.n_steps < MOST_STEPS);
            line.step[line.n_steps++] = (struct step) { .group = s->tag >> 16, .begin = s->t0 };
        }
        line.step[line.n_steps - 1].end = s->t1;
        line.step[line.n_steps - 1].tasks++;
        last = s;
    }
}

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->t0 != y->t0) return x->t0 < y->t0 ? -1 : 1;
    return x->t1 < y->t1 ? -1 : x->t1 > y->t1; /* a task that took no time came first */
}

/* Tasks that begin before the one that began before them is done. */
static size_t overlaps(void)
{
    size_t n = 0;
    qsort(line.span, line.n, sizeof *line.span, by_start);
    for (size_t i = 1; i < line.n; i++) n += line.span[i].t0 < line.span[i - 1].t1;
    return n;
}

/* Tasks begun during a step, or before it, that are not done when the next one begins. */
static size_t pass_barriers(void)
{
    size_t n = 0;
    for (size_t i = 0; i < line.n; i++)
        for (size_t k = 0; k + 1 < line.n_steps; k++)
            n += line.span[i].t0 < line.step[k].end && line.span[i].t1 > line.step[k + 1].begin &&
                 line.span[i].t0 < line.step[k + 1].begin;
    return n;
}

/* Weights that come sooner than during the group before theirs. */
static size_t too_early(void)
{
    size_t n = 0;
    for (size_t i = 0; i < line.n; i++) {
        const struct span *s = &line.span[i];
        size_t k = 0;
        if (s->kind != PS_KIND_WEIGHTS || s->t1 <= line.step[0].begin) continue; /* loaded */
        while (k < line.n_steps && line.step[k].end <= s->t0) k++;
        if (k == line.n_steps) continue;
        const uint32_t group = s->tag >> 16, now = line.step[k].group;
        n += group != now && group != (now + 1) % GROUPS;
    }
    return n;
}

struct where {
    double weights, kv, hidden; /* percent on disk */
    uint32_t slots, mbs, prefetch;
    bool gpu;           /* beside one, with attention on the host; nothing lies there */
    const char *policy; /* NULL: h2o */
};
static const struct where wheres[] = {
    { 100, 0, 0, 4, 1, 1 },   { 100, 0, 0, 2, 3, 1 },      { 60, 100, 0, 2, 2, 1 },
    { 0, 100, 50, 3, 2, 1 },  { 100, 100, 100, 2, 3, 1 },  { 100, 50, 0, 16, 1, 1 },
    { 30, 50, 100, 4, 4, 2 }, { 50, 0, 0, 2, 3, 1, true }, { 100, 50, 50, 3, 2, 1, true },
};

static void run(struct sj *j, const struct where *w, const struct ps_schedule *how,
                const struct ps_profile *machine)
{
    struct ps_detail dt = { "" };
    struct ps_plan_req q = sj_req(j, w->policy ? w->policy : "h2o");
    const struct ps_sim_cfg sim = { .profile = machine, .trace = note };
    q.weights = (struct ps_shares) { { 0, 100 - w->weights, w->weights } };
    q.kv = (struct ps_shares) { { 0, 100 - w->kv, w->kv } };
    q.hidden = (struct ps_shares) { { 0, 100 - w->hidden, w->hidden } };
    q.gpu_batch_size = w->slots;
    q.num_gpu_batches = w->mbs;
    q.prefetch = w->prefetch;
    if (w->gpu) {
        q.gpu = (struct ps_plan_gpu) { .mem_bytes = UINT64_C(1) << 30, .sm = 75 };
        q.attention = PS_ATTENTION_HOST;
    }
    line.n = 0;
    j->schedule = how;
    j->trace = note;
    assert_ok_dt(sj_run(j, &q, machine ? &sim : NULL, &dt), &dt);
    find_steps();
}

static void open_job(struct sj *j)
{
    sj_open(j, true);
    for (uint32_t i = 0; i < j->n_seqs; i++)
        j->seq[i].seq.score_prompt = false; /* a head is one step, then */
}

static const struct ps_profile all_slow = {
    .host = { .flops = 1e8,
              .copy = 1e8,
              .op = { [PS_OP_call] = 1e8, [PS_OP_kv_replay] = 1e8 },
              .task_s = 1e-5 },
    .gpu = { .flops = 1e8, .task_s = 1e-5 },
    .disk_read.alone = 1e8,
    .disk_write.alone = 5e7,
    .h2d.alone = 3e8,
    .d2h.alone = 3e8,
    .disk_s = 1e-5,
    .copy_s = 1e-5
};

static double seconds(const struct sj *j)
{
    return j->run.load_s + j->run.prefill_s + j->run.decode_s;
}

static void without_overlap_times_add_up(void **state)
{
    static const struct ps_schedule how = { .no_overlap = true };
    static struct sj j;
    open_job(&j);
    for (size_t i = 0; i < PS_ARRAY_LEN(wheres); i++) {
        run(&j, &wheres[i], NULL, &all_slow);
        const double ours = seconds(&j);
        assert_true(overlaps() > 0);
        run(&j, &wheres[i], &how, &all_slow);
        double sum = 0;
        for (int q = 0; q < PS_Q__COUNT; q++) sum += (double) j.run.dev.busy_ns[q] * 1e-9;
        assert_int_equal(overlaps(), 0);
        assert_float_equal(seconds(&j), sum, 1e-6 * sum);
        assert_true(ours < sum * 0.999);
    }
    sj_close(&j);
}

static double longer(double a, double b) { return a > b ? a : b; }

/* Seconds that weights of a group take to come in a sweep. */
static double bytes_s(const struct sj *j, uint32_t group, double rate)
{
    double sum = 0;
    for (uint32_t i = 0; i < j->model->n_chunks; i++)
        if (j->model->chunks[i].group == group) sum += j->model->chunks[i].len / rate;
    return sum;
}

/* One sequence, weights on disk: a step takes as long as its tasks or as the next group's weights. The stem's are there for the
 * embedding when the head has had them. */
static void barrier_times_are_those_of_a_closed_form(void **state)
{
    static const struct ps_schedule how = { .barrier = true };
    static const double rates[] = { 1e6, 3e7, 1e8, 4e8, 1e11 }; /* from disk-bound to free */
    static struct sj j;
    open_job(&j);
    j.n_seqs = 1;
    j.seq[0].seq.max_tokens = 6;
    for (size_t i = 0; i < PS_ARRAY_LEN(rates); i++) {
        const struct ps_profile machine = { .disk_read.alone = rates[i], .host.flops = 1e8 };
        run(&j, &wheres[0], &how, &machine);
        assert_int_equal(line.n_steps, 6 * (GROUPS + 1));
        double want = bytes_s(&j, 0, rates[i]);
        for (size_t k = 0; k < line.n_steps; k++) {
            const struct step *s = &line.step[k];
            double read = bytes_s(&j, (s->group + 1) % GROUPS, rates[i]);
            if ((k && k % (GROUPS + 1) == 0) || k == line.n_steps - 1) read = 0;
            want += longer((double) (s->end - s->begin) * 1e-9, read);
        }
        assert_float_equal(seconds(&j), want, 1e-6 * want);
    }
    sj_close(&j);
}

static void barriers_hold(void **state)
{
    static const struct ps_schedule how = { .barrier = true };
    static struct sj j;
    size_t early = 0;
    open_job(&j);
    for (size_t i = 0; i < PS_ARRAY_LEN(wheres); i++)
        for (int real = 0; real < 2 - wheres[i].gpu; real++) {
            run(&j, &wheres[i], NULL, real ? NULL : &all_slow);
            assert_true(real || pass_barriers() > 0);
            early += real ? 0 : too_early();
            run(&j, &wheres[i], &how, real ? NULL : &all_slow);
            assert_int_equal(pass_barriers(), 0);
            assert_int_equal(too_early(), 0);
        }
    assert_true(early > 0); /* prefetch 2 */
    sj_close(&j);
}

static void without_overlap_the_cpu_does_one_thing_at_a_time(void **state)
{
    static const struct ps_schedule how = { .no_overlap = true };
    static struct sj j;
    open_job(&j);
    for (size_t i = 0; i < PS_ARRAY_LEN(wheres) && !wheres[i].gpu; i++) {
        run(&j, &wheres[i], &how, NULL);
        assert_int_equal(overlaps(), 0);
    }
    sj_close(&j);
}

/* ---- blocks */

enum { BLOCK = 6 };
static struct sj blocks;
static bool refilled; /* somebody had a token while others of an earlier block had not ended */

static void look_who_is_in(void)
{
    for (uint32_t i = 0; i < blocks.n_seqs; i++)
        for (uint32_t k = 0; blocks.seq[i].n_out && k < i / BLOCK * BLOCK; k++)
            refilled |= !blocks.seq[k].ends;
}

static void blocks_end_before_they_are_filled_anew(void **state)
{
    static const struct ps_schedule how = { .no_continuous = true };
    static const struct where w = { 0, 0, 0, 2, 3, 1 };
    uint64_t sweeps = 0;
    open_job(&blocks);
    for (uint32_t i = 0; i < blocks.n_seqs;) {
        uint32_t longest = 1;
        do longest = (uint32_t) longer(longest, blocks.seq[i].seq.max_tokens);
        while (++i % BLOCK && i < blocks.n_seqs);
        sweeps += longest;
    }
    blocks.seen = look_who_is_in;
    run(&blocks, &w, NULL, &all_slow);
    assert_true(refilled);
    assert_true(blocks.run.sweeps < sweeps);
    refilled = false;
    run(&blocks, &w, &how, &all_slow);
    assert_false(refilled);
    assert_int_equal(blocks.run.sweeps, sweeps);
    sj_close(&blocks);
}

/* ---- sequences that jump ahead */

/* COMPUTE's seconds in each sweep with a decode row, by the tokens that the sequence had. */
static void sweeps_of(double *ret, uint32_t made, uint32_t jump_at, uint32_t jump)
{
    for (size_t k = 0; k < line.n_steps; k++) {
        ret[made] += (double) (line.step[k].end - line.step[k].begin) * 1e-9;
        if (k % (GROUPS + 1) == GROUPS && ++made == jump_at) made += jump;
    }
}

/* A sweep takes what it would have taken had those before it been run. */
static void a_jump_leaves_out_sweeps(void **state)
{
    enum { GEN = 40, AT = 7, FAR = 20 };
    static const char *const policies[] = { "full", "h2o" };
    static struct sj j;
    open_job(&j);
    j.n_seqs = 1;
    j.seq[0].seq.max_tokens = GEN;
    for (size_t p = 0; p < PS_ARRAY_LEN(policies); p++)
        for (double disk = 0; disk <= 100; disk += 100) {
            const struct where w = {
                .kv = disk, .slots = 1, .mbs = 1, .prefetch = 1, .policy = policies[p]
            };
            double all[GEN] = { 0 }, some[GEN] = { 0 };
            j.jump = 0;
            run(&j, &w, NULL, &all_slow);
            sweeps_of(all, 0, 0, 0);
            j.jump_at = AT;
            j.jump = FAR;
            run(&j, &w, NULL, &all_slow);
            assert_int_equal(j.run.sweeps, GEN - FAR);
            assert_int_equal(j.run.generated_tokens, GEN - FAR);
            sweeps_of(some, 0, AT, FAR);
            for (uint32_t i = 0; i < GEN; i++) {
                const bool left_out = i >= AT && i < AT + FAR;
                assert_float_equal(some[i], left_out ? 0 : all[i], 1e-9);
            }
        }
    sj_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_overlap_times_add_up),
        cmocka_unit_test(without_overlap_the_cpu_does_one_thing_at_a_time),
        cmocka_unit_test(barrier_times_are_those_of_a_closed_form),
        cmocka_unit_test(barriers_hold),
        cmocka_unit_test(blocks_end_before_they_are_filled_anew),
        cmocka_unit_test(a_jump_leaves_out_sweeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
