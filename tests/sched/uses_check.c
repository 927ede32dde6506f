/* SPDX-License-Identifier: Apache-2.0 */
/* Looked at are the first and the last word of each row of each operand; of weights, which only moves write, whether their first and last byte
 * lie in buffers that are named. */
#include "uses_check.h"
#include "late_dev.h"
#include "ps_cmocka.h"

enum { PLACES = 1 << 18, NAMES = 8, HOSTS = 64 };

enum how { READS, WRITES, GIVEN /* reads what the host writes */ };

struct place {
    uintptr_t at; /* 0: free */
    const struct ps_buf *names[NAMES];
    unsigned n;
    bool written;
};
static struct place places[PLACES];
static unsigned n_places;
static const struct ps_buf *hosts[HOSTS]; /* that the host waits for before it writes */
static unsigned n_hosts;

struct task {
    enum ps_op op;
    const struct ps_use *uses;
    unsigned n;
};

void uses_check_reset(void)
{
    memset(places, 0, sizeof places);
    n_places = n_hosts = 0;
}

static bool is_host(const struct ps_buf *b)
{
    for (unsigned i = 0; i < n_hosts; i++)
        if (hosts[i] == b) return true;
    return false;
}

static void host_waits(const struct ps_buf *b, bool writes)
{
    if (!writes || is_host(b)) return;
    assert_true(n_hosts < HOSTS);
    hosts[n_hosts++] = b;
}

static struct place *find(uintptr_t at)
{
    size_t i = (size_t) ((at >> 2) * 0x9E3779B97F4A7C15u >> 40);
    while (places[i % PLACES].at && places[i % PLACES].at != at) i++;
    return &places[i % PLACES];
}

static bool names(const struct task *t, const struct ps_buf *b, enum how how)
{
    if (how == GIVEN && !is_host(b)) return false;
    for (unsigned i = 0; i < t->n; i++)
        if (t->uses[i].buf == b && (t->uses[i].writes || how != WRITES)) return true;
    return false;
}

static void word(const struct task *t, uintptr_t at, enum how how)
{
    struct place *p = find(at);
    if (!p->at) {
        p->at = at;
        assert_true(++n_places < PLACES / 2);
        for (unsigned i = 0; i < t->n; i++)
            if (t->uses[i].buf) p->names[p->n++] = t->uses[i].buf;
        assert_true(p->n <= NAMES);
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < p->n; i++)
        if (names(t, p->names[i], how)) p->names[kept++] = p->names[i];
    p->n = kept;
    p->written |= how != READS;
    if (p->written && !kept)
        fail_msg("%s shares bytes with an earlier task or the host, but no buffer",
                 ps_op_name(t->op));
}

static void touch(const struct task *t, const void *p, uint64_t rows, uint64_t pitch,
                  uint64_t bytes, enum how how)
{
    for (uint64_t i = 0; p && bytes && i < rows; i++) {
        word(t, (uintptr_t) p + i * pitch, how);
        word(t, (uintptr_t) p + i * pitch + (bytes - 1) / 4 * 4, how);
    }
}

static bool names_byte(const struct task *t, const uint8_t *p)
{
    for (unsigned i = 0; i < t->n; i++) {
        const struct ps_buf *b = t->uses[i].buf;
        const uint8_t *at = b && b->where != PS_DISK ? b->p : NULL;
        if (at && p >= at && p < at + b->len_bytes) return true;
    }
    return false;
}

static void weights(const struct task *t, const void *p, uint64_t bytes)
{
    const uint8_t *at = p;
    if (at && !(names_byte(t, at) && names_byte(t, at + bytes - 1)))
        fail_msg("%s reads weights of a buffer that it does not name", ps_op_name(t->op));
}

static void floats(const struct task *t, const float *p, uint64_t rows, uint64_t ld, uint64_t cols,
                   enum how how)
{
    touch(t, p, rows, ld * sizeof *p, cols * sizeof *p, how);
}

/* n entries from `at` on, of each head. */
struct heads {
    uint64_t heads, entry, cap, at, n;
};
static void entries(const struct task *t, const void *p, const struct heads *h, uint64_t entry,
                    enum how how)
{
    if (p)
        touch(t, (const uint8_t *) p + h->at * entry, h->heads, h->cap * entry, h->n * entry, how);
}
static void slab(const struct task *t, const struct ps_slab *s, const struct heads *h, enum how how)
{
    entries(t, s->k, h, h->entry, how);
    entries(t, s->v, h, h->entry, how);
    entries(t, s->score, h, sizeof *s->score, how);
    entries(t, s->pos, h, sizeof *s->pos, how);
}

static void of_embed(const struct task *t, const struct ps_embed *a)
{
    floats(t, a->y, a->rows, a->ldy, a->cols, WRITES);
    touch(t, a->ids, 1, 0, a->rows * sizeof *a->ids, GIVEN);
    uint64_t row = a->cols * ps_dtype_bytes(a->dtype);
    touch(t, a->table, a->n_rows, row, row, READS);
}

static void of_norm(const struct task *t, const struct ps_layernorm *a)
{
    const uint64_t each = ps_dtype_bytes(a->dtype);
    floats(t, a->x, a->rows, a->ldx, a->cols, READS);
    weights(t, a->w, a->cols * each);
    weights(t, a->b, a->cols * each);
    floats(t, a->y, a->rows, a->ldy, a->cols, WRITES);
    touch(t, a->rounded, 1, 0, each * a->rows * a->cols, WRITES);
}

static void of_linear(const struct task *t, const struct ps_linear *a)
{
    const uint64_t each = ps_dtype_bytes(a->wtype);
    floats(t, a->x, a->m, a->ldx, a->k, READS);
    touch(t, a->rounded_x, a->m, a->ldx * each, a->k * each, READS);
    weights(t, a->w, each * a->n * a->k);
    weights(t, a->bias, a->n * (a->bias_f32 ? sizeof(float) : each));
    touch(t, a->bias_f32 ? a->bias : NULL, 1, 0, a->n * sizeof(float), READS);
    floats(t, a->residual, a->m, a->ldr, a->n, READS);
    floats(t, a->y, a->m, a->ldy, a->n, WRITES);
    touch(t, a->rounded_y, a->m, a->ldy * each, a->n * each, WRITES);
}

static void of_round(const struct task *t, const struct ps_kv_round *a)
{
    struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), a->cap, a->at, a->rows };
    floats(t, a->k, a->rows, a->ldk, a->kv_heads * a->d, READS);
    floats(t, a->v, a->rows, a->ldv, a->kv_heads * a->d, READS);
    slab(t, &(struct ps_slab) { .k = a->dst_k, .v = a->dst_v }, &h, WRITES);
}

static void of_prompt(const struct task *t, const struct ps_attn_prompt *a)
{
    touch(t, a->seqs, 1, 0, a->n_seqs * sizeof *a->seqs, GIVEN);
    for (const struct ps_prompt_seq *s = a->seqs; s < a->seqs + a->n_seqs; s++) {
        struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), s->cap, 0,
                           s->first + s->rows };
        floats(t, s->q, s->rows, a->ldq, a->q_heads * a->d, READS);
        const uint64_t each = ps_dtype_bytes(a->o_type);
        touch(t, s->o, s->rows, a->ldo * each, a->q_heads * a->d * each, WRITES);
        slab(t, &(struct ps_slab) { .k = (void *) s->k, .v = (void *) s->v }, &h, READS);
        slab(t, &(struct ps_slab) { .score = s->score }, &h, WRITES);
    }
}

static void of_decode(const struct task *t, const struct ps_attn_decode *a)
{
    touch(t, a->rows, 1, 0, a->n_rows * sizeof *a->rows, GIVEN);
    for (const struct ps_decode_row *r = a->rows; r < a->rows + a->n_rows; r++) {
        struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), r->slab.cap, 0, r->len };
        floats(t, r->q, 1, 0, a->q_heads * a->d, READS);
        floats(t, r->k, 1, 0, a->kv_heads * a->d, READS);
        floats(t, r->v, 1, 0, a->kv_heads * a->d, READS);
        touch(t, r->o, 1, 0, a->q_heads * a->d * ps_dtype_bytes(a->o_type), WRITES);
        slab(t, &r->slab, &h, WRITES);
        touch(t, r->at, 1, 0, a->kv_heads * sizeof *r->at, WRITES);
        h = (struct heads) { a->kv_heads, h.entry, r->log_cap, r->log_at, 1 };
        slab(t, &(struct ps_slab) { .k = r->log_k, .v = r->log_v, .pos = r->log_index }, &h,
             WRITES);
    }
}

static void of_compact(const struct task *t, const struct ps_kv_compact *a)
{
    touch(t, a->seqs, 1, 0, a->n_seqs * sizeof *a->seqs, GIVEN);
    for (const struct ps_compact_seq *s = a->seqs; s < a->seqs + a->n_seqs; s++) {
        struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), s->src.cap, 0,
                           s->total };
        slab(t, &s->src, &h, READS);
        h.cap = s->dst.cap;
        h.n = 1; /* at least that stays */
        slab(t, &s->dst, &h, WRITES);
    }
}

static void of_replay(const struct task *t, const struct ps_kv_replay *a)
{
    touch(t, a->seqs, 1, 0, a->n_seqs * sizeof *a->seqs, GIVEN);
    for (const struct ps_replay_seq *s = a->seqs; s < a->seqs + a->n_seqs; s++) {
        struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), s->log_cap, 0, s->n };
        slab(t,
             &(struct ps_slab) {
                 .k = (void *) s->log_k, .v = (void *) s->log_v, .pos = (void *) s->log_index },
             &h, READS);
        h.cap = s->cap;
        slab(t, &(struct ps_slab) { .k = s->k, .v = s->v }, &h, WRITES);
    }
}

static void of_sample(const struct task *t, const struct ps_sample *a)
{
    touch(t, a->rows, 1, 0, a->n_rows * sizeof *a->rows, GIVEN);
    for (const struct ps_sample_row *r = a->rows; r < a->rows + a->n_rows; r++) {
        floats(t, r->logits, 1, 0, a->vocab, READS);
        touch(t, r->out, 1, 0, sizeof *r->out, WRITES);
    }
}

static void check(enum ps_op op, const void *args, const struct ps_use *uses, unsigned n_uses)
{
    const struct task t = { op, uses, n_uses };
    const struct ps_convert *convert = args;
    switch (op) {
    case PS_OP_embed: of_embed(&t, args); break;
    case PS_OP_layernorm: of_norm(&t, args); break;
    case PS_OP_convert:
        touch(&t, convert->x, 1, 0, convert->n * ps_dtype_bytes(convert->from), READS);
        touch(&t, convert->y, 1, 0, convert->n * ps_dtype_bytes(convert->to), WRITES);
        break;
    case PS_OP_linear: of_linear(&t, args); break;
    case PS_OP_kv_round: of_round(&t, args); break;
    case PS_OP_attn_prompt: of_prompt(&t, args); break;
    case PS_OP_attn_decode: of_decode(&t, args); break;
    case PS_OP_kv_compact: of_compact(&t, args); break;
    case PS_OP_kv_replay: of_replay(&t, args); break;
    case PS_OP_sample: of_sample(&t, args); break;
    case PS_OP_call: break; /* checksums, which read weights */
    case PS_OP__COUNT: fail();
    }
}

/* ---- the scheduler's calls pass through here: the test is linked with --wrap */

int __real_ps_dev_run(struct ps_dev *d, enum ps_q q, enum ps_op op, const void *args,
                      const struct ps_use *uses, unsigned n_uses);
int __real_ps_dev_wait(struct ps_dev *d, const struct ps_buf *buf, bool writes);
int __wrap_ps_dev_run(struct ps_dev *d, enum ps_q q, enum ps_op op, const void *args,
                      const struct ps_use *uses, unsigned n_uses);
int __wrap_ps_dev_wait(struct ps_dev *d, const struct ps_buf *buf, bool writes);

int __wrap_ps_dev_run(struct ps_dev *d, enum ps_q q, enum ps_op op, const void *args,
                      const struct ps_use *uses, unsigned n_uses)
{
    check(op, args, uses, n_uses);
    return __real_ps_dev_run(d, late_dev_queue(d, q, op), op, args, uses, n_uses);
}

int __wrap_ps_dev_wait(struct ps_dev *d, const struct ps_buf *buf, bool writes)
{
    host_waits(buf, writes);
    return __real_ps_dev_wait(d, buf, writes);
}
