/* SPDX-License-Identifier: Apache-2.0 */
/* The table on stdout: a line a row, in columns that fit. */
#include "engine/base/ps_mem.h"
#include "engine/cli/bench.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum col {
    ROW,
    MODEL, /* where there are several */
    TOKENS,
    REQUESTS,
    BLOCK,
    PREFILL,
    DECODE,
    TOTAL,
    OF_FIRST,
    MEMORY,
    LIMIT,
    OF_FLOOR,
    PUBLISHED, /* of suites that have it */
    COLS
};
enum { CELL = 112 };
static const char *const heads[COLS] = {
    "row",        "model",     "tokens",   "requests", "block",
    "prefill /s", "decode /s", "tokens/s", "of first", "GPU / host / disk, GiB",
    "limit",      "of floor",  "published"
};

struct line {
    char cell[COLS][CELL];
};

static void rate(char *cell, double v)
{
    if (isfinite(v))
        (void) snprintf(cell, CELL, v < 10 ? "%.3f" : v < 1000 ? "%.1f" : "%.0f", v);
    else
        (void) snprintf(cell, CELL, "-");
}

static void total(char *cell, const struct ps_bench_spread *s, bool spread)
{
    char least[CELL], most[CELL];
    rate(cell, s->median);
    if (!spread || !isfinite(s->median)) return;
    rate(least, s->least);
    rate(most, s->most);
    const size_t n = strlen(cell);
    (void) snprintf(cell + n, CELL - n, " (%.20s - %.20s)", least, most);
}

static void gib(char *text, size_t n, double bytes)
{
    if (bytes > 0)
        (void) snprintf(text, n, "%.2f", bytes / 0x1p30);
    else
        (void) snprintf(text, n, "-");
}

/* Simulated: what the plan takes. */
static void memory(char *cell, const struct ps_bench_row *row, const struct ps_bench_run *r)
{
    char gpu[24], host[24], disk[24];
    gib(gpu, sizeof gpu, (double) row->plan.gpu_bytes);
    gib(host, sizeof host, (double) (r->peak_host ? r->peak_host : row->plan.host_bytes));
    gib(disk, sizeof disk, (double) row->plan.disk_bytes);
    (void) snprintf(cell, CELL, "%s / %s / %s", gpu, host, disk);
}

static void measured(const struct ps_bench *b, const struct ps_bench_row *row, struct line *l)
{
    const struct ps_bench_run *r = ps_bench_middle(row);
    const struct ps_bench_limit limit = ps_bench_limit(row, r);
    const size_t at = offsetof(struct ps_bench_rates, total);
    const struct ps_bench_spread all = ps_bench_spread(row, at),
                                 first = ps_bench_spread(ps_bench_first(b, row), at);
    rate(l->cell[PREFILL], ps_bench_spread(row, offsetof(struct ps_bench_rates, prefill)).median);
    rate(l->cell[DECODE], ps_bench_spread(row, offsetof(struct ps_bench_rates, decode)).median);
    total(l->cell[TOTAL], &all, row->n_runs > 1);
    if (isfinite(first.median))
        (void) snprintf(l->cell[OF_FIRST], CELL, "%.2f x", all.median / first.median);
    memory(l->cell[MEMORY], row, r);
    if (!limit.link) return;
    (void) snprintf(l->cell[LIMIT], CELL, "%s", limit.link);
    (void) snprintf(l->cell[OF_FLOOR], CELL, "%.0f %%", 100 * ps_bench_share(limit, r));
}

static void fill(const struct ps_bench *b, const struct ps_bench_row *row, struct line *l)
{
    char prompt[PS_BENCH_LEN_TEXT], gen[PS_BENCH_LEN_TEXT];
    for (int i = 0; i < COLS; i++) (void) snprintf(l->cell[i], CELL, "-");
    (void) snprintf(l->cell[ROW], CELL, "%s", row->name);
    (void) snprintf(l->cell[MODEL], CELL, "%s", row->model->packed->shape.name);
    (void) snprintf(l->cell[TOKENS], CELL, "%s + %s", ps_bench_len_text(row->prompt, prompt),
                    ps_bench_len_text(row->gen, gen));
    if (row->requests) (void) snprintf(l->cell[REQUESTS], CELL, "%" PRIu64, row->requests);
    if (row->planned)
        (void) snprintf(l->cell[BLOCK], CELL, "%" PRIu32 " x %" PRIu32, row->plan.slots,
                        row->plan.micro_batches);
    const json_t *published = json_object_get(row->spec, "published");
    if (published)
        rate(l->cell[PUBLISHED], json_number_value(json_object_get(published, "tokens_per_s")));
    if (ps_bench_middle(row))
        measured(b, row, l);
    else
        (void) snprintf(l->cell[TOTAL], CELL, row->err ? "failed" : "not run");
}

static bool has_published(const struct ps_bench *b)
{
    for (size_t i = 0; i < b->n_rows; i++)
        if (json_object_get(b->rows[i].spec, "published")) return true;
    return false;
}

/* A width of 0: the column is left out. */
static void print(const struct line *l, const size_t *width)
{
    for (int i = 0; i < COLS; i++)
        if (width[i])
            (void) printf("| %*s ", (int) (i ? width[i] : 0) - (i ? 0 : (int) width[i]),
                          l->cell[i]);
    (void) printf("|\n");
}

static void rule(const size_t *width)
{
    for (int i = 0; i < COLS; i++) {
        if (!width[i]) continue;
        (void) printf("| ");
        for (size_t k = 0; k < width[i]; k++) (void) putchar('-');
        (void) putchar(' ');
    }
    (void) printf("|\n");
}

static void head(const struct ps_bench *b)
{
    const char *source = json_string_value(json_object_get(b->suite, "source"));
    for (size_t i = 0; i < b->n_models; i++)
        (void) printf("%s%s, ", b->models[i]->packed->shape.name,
                      b->models[i]->random ? " (random weights)" : "");
    if (b->profile)
        (void) printf("%s. Simulated on that machine, not run; memory is what the plans take.\n",
                      b->profile->name);
    else
        (void) printf("%s, %u CPUs%s%s. %s\n", b->machine.cpu_model, b->machine.cpus,
                      b->gpu[0] ? ", " : "", b->gpu,
                      b->repeats > 1 ? "Medians (least - most)." : "One run each.");
    if (source) (void) printf("%s\n", source);
    if (b->project)
        (void) printf("Projected: %" PRIu32 " sweep%s each early, midway and late were run.\n",
                      b->project, ps_plural(b->project));
    (void) putchar('\n');
}

/* Of a row's middle run; NAN: there is none. */
static double share_of_floor(const struct ps_bench_row *row)
{
    const struct ps_bench_run *r = ps_bench_middle(row);
    return r ? ps_bench_share(ps_bench_limit(row, r), r) : NAN;
}

static void notes(const struct ps_bench *b)
{
    bool above = false;
    for (size_t i = 0; i < b->n_rows; i++) {
        const struct ps_bench_row *row = &b->rows[i];
        const struct ps_bench_run *r = ps_bench_middle(row);
        if (row->err) (void) printf("%s: %s\n", row->name, row->dt.text);
        if (r && r->outside[0])
            (void) printf("%s: beyond what was probed: %s\n", row->name, r->outside);
        above |= share_of_floor(row) > 1.005;
    }
    if (above)
        (void) puts(
            "Above 100 % of the floor: the machine did more than the probe found it can do; "
            "`penstock probe` measures it more thoroughly.");
}

int ps_bench_table(const struct ps_bench *b)
{
    ps_auto_free struct line *lines = ps_calloc(b->n_rows + 1, sizeof *lines);
    size_t width[COLS] = { 0 };
    if (!lines) return -ENOMEM;
    for (int i = 0; i < COLS; i++) (void) snprintf(lines[0].cell[i], CELL, "%s", heads[i]);
    for (size_t k = 0; k < b->n_rows; k++) fill(b, &b->rows[k], &lines[k + 1]);
    for (size_t k = 0; k <= b->n_rows; k++)
        for (int i = 0; i < COLS; i++)
            if (strlen(lines[k].cell[i]) > width[i]) width[i] = strlen(lines[k].cell[i]);
    if (b->n_models < 2) width[MODEL] = 0;
    if (!has_published(b)) width[PUBLISHED] = 0;
    head(b);
    print(&lines[0], width);
    rule(width);
    for (size_t k = 0; k < b->n_rows; k++) print(&lines[k + 1], width);
    notes(b);
    return ferror(stdout) ? -EIO : 0;
}
