/* SPDX-License-Identifier: Apache-2.0 */
/* How long a row's requests are: all alike, drawn from ranges, or those of a job's file, over and over if more are wanted. A request's own
 * lengths depend on the seed and its number alone. */
#include "engine/base/ps_mem.h"
#include "engine/cli/bench.h"
#include "engine/job/lengths_of.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

bool ps_bench_len_parse(const char *text, struct ps_bench_len *ret)
{
    const char *dash = strchr(text, '-');
    char least[24] = "";
    struct ps_bench_len v;
    if (dash && (size_t) (dash - text) < sizeof least) memcpy(least, text, (size_t) (dash - text));
    if (!ps_opt_u32(dash ? least : text, 1, &v.least)) return false;
    v.most = v.least;
    if (dash && (!ps_opt_u32(dash + 1, 1, &v.most) || v.most < v.least)) return false;
    if (v.most > UINT32_MAX / 2) return false;
    *ret = v;
    return true;
}

const char *ps_bench_len_text(struct ps_bench_len l, char room[static PS_BENCH_LEN_TEXT])
{
    if (l.least == l.most)
        (void) snprintf(room, PS_BENCH_LEN_TEXT, "%" PRIu32, l.most);
    else
        (void) snprintf(room, PS_BENCH_LEN_TEXT, "%" PRIu32 "-%" PRIu32, l.least, l.most);
    return room;
}

bool ps_bench_mixed(const struct ps_bench_row *row)
{
    return row->job || row->prompt.least != row->prompt.most || row->gen.least != row->gen.most;
}

static uint32_t draw(struct ps_bench_len l, uint64_t seed, uint64_t i, bool gen)
{
    const uint64_t key[2] = { i, gen };
    return l.least + (uint32_t) (XXH64(key, sizeof key, seed) % (l.most - l.least + 1u));
}

static int read_job(struct ps_bench_row *row, struct ps_detail *dt)
{
    const struct ps_job_file f = { .path = row->job,
                                   .limit = UINT64_MAX,
                                   .defaults = {
                                       .max_tokens = row->gen.most, .top_p = 1, .logprobs = -1 } };
    struct ps_job_stats stats;
    return ps_job_file_read(&f, row->model->path, row->model->packed, &stats, &row->of_job, dt);
}

static void widen(struct ps_bench_len *l, uint32_t v)
{
    if (v < l->least) l->least = v;
    if (v > l->most) l->most = v;
}

static void add_up(struct ps_bench_row *row, struct ps_job_stats *ret)
{
    *ret = (struct ps_job_stats) { .requests = row->lengths.n, .most_banned = 1 };
    if (row->job) row->prompt = row->gen = (struct ps_bench_len) { UINT32_MAX, 0 };
    for (uint64_t i = 0; i < row->lengths.n; i++) {
        const uint32_t prompt = row->lengths.prompt[i], gen = row->lengths.gen[i];
        ret->prompt_tokens += prompt;
        ret->max_new_tokens += gen;
        if (prompt > ret->longest_prompt) ret->longest_prompt = prompt;
        if (prompt + gen > ret->longest_total) ret->longest_total = prompt + gen;
        if (!row->job) continue;
        widen(&row->prompt, prompt);
        widen(&row->gen, gen);
    }
}

static int mix(const struct ps_bench *b, struct ps_bench_row *row, uint64_t n, struct ps_detail *dt)
{
    enum { MOST = 10000000 };
    if (n > MOST)
        return ps_fail(dt, -PS_EUSAGE,
                       "%" PRIu64 " requests: at most %d may have lengths of their own", n, MOST);
    uint32_t *prompt = ps_calloc(n, sizeof *prompt), *gen = ps_calloc(n, sizeof *gen);
    ps_lengths_done(&row->lengths);
    row->lengths = (struct ps_lengths) { .n = n, .prompt = prompt, .gen = gen };
    if (!prompt || !gen) return -ENOMEM;
    for (uint64_t i = 0; i < n; i++) {
        prompt[i] =
            row->job ? row->of_job.prompt[i % row->of_job.n] : draw(row->prompt, b->seed, i, false);
        gen[i] = row->job ? row->of_job.gen[i % row->of_job.n] : draw(row->gen, b->seed, i, true);
    }
    return 0;
}

int ps_bench_lengths(struct ps_bench *b, struct ps_bench_row *row, uint64_t n,
                     struct ps_job_stats *ret_stats, struct ps_detail *dt)
{
    int r = row->job && !row->of_job.n ? read_job(row, dt) : 0;
    if (r < 0) return r;
    if (ps_bench_mixed(row)) {
        r = mix(b, row, n ? n : row->of_job.n, dt);
        if (!r) add_up(row, ret_stats);
    } else {
        ps_job_alike(n, row->prompt.most, row->gen.most, ret_stats, &row->lengths);
    }
    return r;
}
