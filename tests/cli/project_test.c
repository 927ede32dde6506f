/* SPDX-License-Identifier: Apache-2.0 */
/* A long run from some of its sweeps, beside that run sweep by sweep: sequences that begin together or one after the other, and take a
 * little longer with each token. */
#include "engine/cli/bench.h"
#include "ps_cmocka.h"
#include <math.h>

enum { SEQS = 6 };

struct block {
    uint32_t made[SEQS], gen, each; /* so many begin in a sweep */
    struct ps_run_stats st;
};

/* Seconds that a sequence's next token takes. */
static double cost(uint32_t made) { return 1e-3 + 3e-6 * made; }

/* A sweep; jump: what is skipped after its tokens. */
static void sweep(struct block *b, uint32_t *leader, uint32_t jump)
{
    uint32_t begun = 0;
    for (int i = 0; i < SEQS; i++) {
        if (b->made[i] >= b->gen) continue;
        if (!b->made[i] && begun++ == b->each) break;
        if (b->made[i])
            b->st.decode_s += cost(b->made[i]);
        else
            b->st.prefill_s += 1;
        b->made[i]++;
        b->st.generated_tokens++;
        if (b->made[i] > *leader) *leader = b->made[i];
        b->made[i] += jump;
    }
    b->st.active = 0;
    for (int i = 0; i < SEQS; i++) b->st.active += b->made[i] && b->made[i] < b->gen;
}

static double whole(uint32_t gen, uint32_t each)
{
    struct block b = { .gen = gen, .each = each };
    uint32_t leader = 0;
    do sweep(&b, &leader, 0);
    while (b.st.active);
    assert_int_equal(b.st.generated_tokens, SEQS * gen);
    return b.st.decode_s;
}

/* -> sweeps that were run. */
static unsigned projected(uint32_t gen, uint32_t each, uint32_t n, struct ps_bench_run *ret)
{
    struct block b = { .gen = gen, .each = each };
    struct ps_projection p = { .sweeps = n, .gen = gen, .requests = SEQS, .place = -1 };
    unsigned sweeps = 0;
    bool done = false;
    while (!done && sweeps < 10000) {
        sweep(&b, &p.leader, p.skip);
        sweeps++;
        done = ps_project_sweep(&p, &b.st);
    }
    assert_true(done);
    *ret = (struct ps_bench_run) { .prefill_s = b.st.prefill_s };
    ps_project(&p, ret);
    assert_true(ret->projected);
    assert_int_equal(ret->generated_tokens, SEQS * gen);
    return sweeps;
}

static void a_few_sweeps_tell_of_all(void **state)
{
    static const uint32_t gens[] = { 60, 128, 1000, 1777 };
    for (size_t g = 0; g < PS_ARRAY_LEN(gens); g++)
        for (uint32_t each = 1; each <= SEQS; each++)
            for (uint32_t n = 1; n < 9; n += 3) {
                struct ps_bench_run r;
                unsigned sweeps = projected(gens[g], each, n, &r);
                assert_true(sweeps <= 3 * (n + 1) + 2 * SEQS);
                assert_float_equal(r.decode_s, whole(gens[g], each), 0.005 * r.decode_s);
                if (each == SEQS) /* all alike: a straight line */
                    assert_float_equal(r.decode_s, whole(gens[g], each), 1e-9 * r.decode_s);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_few_sweeps_tell_of_all) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
