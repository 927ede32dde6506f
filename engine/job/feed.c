/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/feed.h"
#include <inttypes.h>
#include <string.h>

static const double journal_every_s = 1;

/* A result record that was put together (or not, r < 0): counts it. */
static int recorded(struct ps_feed *f, int r, uint64_t from, uint32_t index, uint64_t prompt,
                    uint64_t generated, bool failed)
{
    r = ps_output_record(f->output, r, from, f->table, index, &f->dt);
    if (r < 0) return r;
    f->result->done++;
    f->result->failed += failed;
    f->result->prompt_tokens += prompt;
    f->result->generated_tokens += generated;
    return 0;
}

static int failed_line(struct ps_feed *f, uint32_t index, uint64_t off,
                       const struct ps_spool_head *h)
{
    uint64_t from = ps_jout_tell(&f->output->out);
    int r = ps_record_error(&f->rec, off, h, &f->output->out);
    return recorded(f, r, from, index, 0, 0, true);
}

/* Moves the cursor to the next request that is neither done nor failed, with its offset in the spool; the failed ones on the way get
 * their records. 1, 0 at the end, or an error. */
static int advance(struct ps_feed *f, uint64_t *ret_off)
{
    for (; f->cursor < f->table->n; f->cursor++) {
        struct ps_spool_head h;
        if (ps_table_is_done(f->table, f->cursor)) continue;
        int r = ps_table_off(f->table, f->cursor, ret_off);
        if (!r) r = ps_spool_head(f->spool, *ret_off, &h);
        if (!r && !h.error) return 1;
        if (!r) r = failed_line(f, f->cursor, *ret_off, &h);
        if (r < 0) return r;
    }
    return 0;
}

static int out_of_spool(struct ps_feed *f, int r)
{
    if (r < 0 && !f->dt.text[0])
        return ps_fail(&f->dt, r, "%s: the job's temporary files beside it: %s", f->output->path,
                       ps_err_str(r));
    return r;
}

static int on_next(void *ud, struct ps_seq **ret)
{
    struct ps_feed *f = ud;
    struct ps_slot *s = NULL;
    double t0 = ps_job_now_s();
    uint64_t off;
    int r = advance(f, &off);
    if (r > 0) {
        r = ps_slots_take(&f->slots, f->spool, off, f->cursor, f->eos, f->cfg->tok, &s);
        if (!r && !s) r = ps_fail(&f->dt, -ENOBUFS, "more sequences at once than the plan said");
        if (!r) {
            f->cursor++;
            *ret = &s->seq;
            r = 1;
        }
    }
    f->output_s += ps_job_now_s() - t0;
    return out_of_spool(f, r);
}

static int on_scored(void *ud, struct ps_seq *q, uint32_t first, const struct ps_sample_out *out,
                     uint32_t n)
{
    struct ps_feed *f = ud;
    struct ps_slot *s = q->ud;
    int r = 0;
    for (uint32_t i = 0; !r && i < n; i++) r = ps_tape_put(&s->tape, &out[i]);
    return out_of_spool(f, r);
}

static int on_token(void *ud, struct ps_seq *q, uint32_t index, const struct ps_sample_out *out,
                    bool *ret_end)
{
    struct ps_feed *f = ud;
    struct ps_slot *s = q->ud;
    if (out->token < 0)
        return ps_fail(&f->dt, -PS_ENUMERIC,
                       "input line %" PRIu32
                       ": no token could be chosen: the model's logits are not finite numbers (or "
                       "min_tokens and stop tokens ban all of them)",
                       s->head.line);
    return out_of_spool(f, ps_slot_token(s, index, out, f->rec.text, ret_end));
}

static int on_kept(void *ud, struct ps_seq *q, const struct ps_kept *k)
{
    struct ps_feed *f = ud;
    int r = ps_record_kept(&f->rec, q->ud, k, &f->output->kept);
    return r < 0
               ? ps_output_record(f->output, r, ps_jout_tell(&f->output->out), f->table, 0, &f->dt)
               : 0;
}

static int on_end(void *ud, struct ps_seq *q)
{
    struct ps_feed *f = ud;
    struct ps_slot *s = q->ud;
    double t0 = ps_job_now_s();
    uint64_t from = ps_jout_tell(&f->output->out);
    /* A result is only there when its KV is. */
    int r = f->output->dump ? ps_jout_flush(&f->output->kept) : 0;
    if (!r) r = ps_record_result(&f->rec, s, &f->output->out);
    r = recorded(f, r, from, s->index, s->head.n_prompt, s->n_new, false);
    f->ended += s->head.max_tokens;
    ps_slots_give(&f->slots, s);
    f->output_s += ps_job_now_s() - t0;
    return r;
}

/* Costs of kernels: COMPUTE's are the GPU's if there is one, HOST's never. */
static void cost_sums(const struct ps_feed *f, const struct ps_run_stats *st, double *ret)
{
    const double *bytes = st->dev.mem_bytes;
    ret[PS_SUM_FLOPS] = st->dev.flops[PS_Q_COMPUTE];
    ret[PS_SUM_DRAM_BYTES] = bytes[PS_Q_HOST] + (f->gpu ? 0 : bytes[PS_Q_COMPUTE]);
    ret[PS_SUM_HBM_BYTES] = f->gpu ? bytes[PS_Q_COMPUTE] : 0;
}

static void gpu_sums(const struct ps_run_stats *st, double *ret)
{
    const struct ps_dev_cuda_asked *all = &st->gpu.all, *decode = &st->gpu.counted;
    ret[PS_SUM_LAUNCHES] = (double) all->launches;
    ret[PS_SUM_CALLS] = (double) all->calls;
    ret[PS_SUM_COPIES] = (double) all->copies;
    ret[PS_SUM_EVENTS] = (double) all->events;
    ret[PS_SUM_STREAM_WAITS] = (double) all->waits;
    ret[PS_SUM_HOST_SYNCS] = (double) st->gpu.syncs;
    ret[PS_SUM_DECODE_PASSES] = (double) st->decode_passes;
    ret[PS_SUM_DECODE_LAUNCHES] = (double) (decode->launches + decode->calls);
    ret[PS_SUM_DECODE_COPIES] = (double) decode->copies;
    ret[PS_SUM_DECODE_EVENTS] = (double) decode->events;
    ret[PS_SUM_DECODE_WAITS] = (double) decode->waits;
}

void ps_feed_sums(const struct ps_feed *f, const struct ps_run_stats *st, double ret[PS_SUM__COUNT])
{
    memcpy(ret, f->base, sizeof f->base);
    ret[PS_SUM_LOAD_S] += st->load_s;
    ret[PS_SUM_PREFILL_S] += st->prefill_s;
    ret[PS_SUM_DECODE_S] += st->decode_s;
    ret[PS_SUM_TOTAL_S] = ps_job_now_s() - f->t0;
    ret[PS_SUM_OUTPUT_S] += f->output_s;
    ret[PS_SUM_SWEEPS] = (double) st->sweeps;
    ret[PS_SUM_EVICTIONS] = (double) st->evictions;
    ret[PS_SUM_WAIT_WEIGHTS_S] = (double) st->dev.stall_ns[PS_KIND_WEIGHTS] * 1e-9;
    ret[PS_SUM_WAIT_KV_S] = (double) st->dev.stall_ns[PS_KIND_KV] * 1e-9;
    ret[PS_SUM_COMPUTE_S] = (double) st->dev.busy_ns[PS_Q_COMPUTE] * 1e-9;
    cost_sums(f, st, ret);
    gpu_sums(st, ret);
    for (int q = 0; q < PS_Q__COUNT; q++) {
        ret[PS_SUM_Q_BYTES + q] = ps_dev_moved(&st->dev, (enum ps_q) q);
        ret[PS_SUM_Q_S + q] = (double) st->dev.busy_ns[q] * 1e-9;
        ret[PS_SUM_LOAD_BYTES + q] = (double) st->load_bytes[q];
    }
    /* One link. */
    ret[PS_SUM_Q_BYTES + PS_Q_H2D] += ret[PS_SUM_Q_BYTES + PS_Q_UP];
    ret[PS_SUM_Q_S + PS_Q_H2D] += ret[PS_SUM_Q_S + PS_Q_UP];
}

/* Time left: tokens that can still come, scaled by how much of theirs the finished requests used, at this run's rate. */
static double left_s(const struct ps_feed *f, const struct ps_run_stats *st, double elapsed)
{
    const struct ps_job_result *r = f->result;
    if (st->generated_tokens < 1 || elapsed < 1) return -1;
    double rate = (double) st->generated_tokens / elapsed;
    double used = f->ended > 0 ? (double) r->generated_tokens / f->ended : 1;
    double under_way = (double) (f->before + st->generated_tokens - r->generated_tokens);
    double left = used * ((double) f->expected - f->ended) - under_way;
    return left > 0 ? left / rate : 0;
}

static void tell(struct ps_feed *f, const struct ps_run_stats *st)
{
    double elapsed = ps_job_now_s() - f->t0;
    if (!f->cfg->progress) return;
    struct ps_job_progress p = {
        .phase = PS_JOB_RUNNING,
        .done = f->result->done,
        .total = f->result->requests,
        .generated = st->generated_tokens,
        .active = st->active,
        .elapsed_s = elapsed,
        .left_s = left_s(f, st, elapsed),
    };
    f->cfg->progress(f->cfg->ud, &p);
}

static int on_sweep(void *ud, const struct ps_run_stats *st)
{
    struct ps_feed *f = ud;
    double t0 = ps_job_now_s(), sums[PS_SUM__COUNT];
    f->last = *st;
    int r = ps_output_named(f->output, f->journal, &f->dt);
    if (!r) r = ps_output_sync(f->output, &f->dt);
    if (!r && t0 - f->journal_at >= journal_every_s) {
        struct ps_part_sum part;
        ps_feed_sums(f, st, sums);
        f->journal_at = t0;
        if ((r = ps_output_sum(f->output, &part, &f->dt)) < 0) return r;
        r = ps_journal_sums(f->journal, sums, &part);
        if (r < 0) r = ps_fail(&f->dt, r, "%s: write failed: %s", f->journal->path, ps_err_str(r));
    }
    f->output_s += ps_job_now_s() - t0;
    tell(f, st);
    if (r < 0) return r;
    return f->cfg->stop && *f->cfg->stop ? PS_GO_STOP : PS_GO_ON;
}

struct ps_run_io ps_feed_io(struct ps_feed *f)
{
    return (struct ps_run_io) {
        .ud = f,
        .next = on_next,
        .scored = on_scored,
        .token = on_token,
        .kept = on_kept,
        .end = on_end,
        .sweep = on_sweep,
    };
}

int ps_feed_drain(struct ps_feed *f)
{
    uint64_t off;
    int r = out_of_spool(f, advance(f, &off));
    return r ? r : ps_output_sync(f->output, &f->dt);
}
