/* SPDX-License-Identifier: Apache-2.0 */
/* Looked at are the first and the last word of each row of each operand, and only operands that some kernel writes: weights and
 * argument blocks are written by moves and by the host. */
#include "uses_check.h"
#include "ps_cmocka.h"

enum { PLACES = 1 << 18, NAMES = 8 };

struct place {
    uintptr_t at; /* 0: free */
    const struct ps_buf *names[NAMES];
    unsigned n;
    bool written;
};
static struct place places[PLACES];
static unsigned n_places;

struct task {
    enum ps_op op;
    const struct ps_use *uses;
    unsigned n;
};

void uses_check_reset(void)
{
    memset(places, 0, sizeof places);
    n_places = 0;
}

static struct place *find(uintptr_t at)
{
    size_t i = (size_t) ((at >> 2) * 0x9E3779B97F4A7C15u >> 40);
    while (places[i % PLACES].at && places[i % PLACES].at != at) i++;
    return &places[i % PLACES];
}

static bool names(const struct task *t, const struct ps_buf *b, bool writes)
{
    for (unsigned i = 0; i < t->n; i++)
        if (t->uses[i].buf == b && (t->uses[i].writes || !writes)) return true;
    return false;
}

static void word(const struct task *t, uintptr_t at, bool writes)
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
        if (names(t, p->names[i], writes)) p->names[kept++] = p->names[i];
    p->n = kept;
    p->written |= writes;
    if (p->written && !kept)
        fail_msg("%s shares bytes with an earlier task, but no buffer", ps_op_name(t->op));
}

static void touch(const struct task *t, const void *p, uint64_t rows, uint64_t pitch,
                  uint64_t bytes, bool writes)
{
    for (uint64_t i = 0; p && bytes && i < rows; i++) {
        word(t, (uintptr_t) p + i * pitch, writes);
        word(t, (uintptr_t) p + i * pitch + (bytes - 1) / 4 * 4, writes);
    }
}

static void floats(const struct task *t, const float *p, uint64_t rows, uint64_t ld, uint64_t cols,
                   bool writes)
{
    touch(t, p, rows, ld * sizeof *p, cols * sizeof *p, writes);
}

/* n entries from `at` on, of each head. */
struct heads {
    uint64_t heads, entry, cap, at, n;
};
static void entries(const struct task *t, const void *p, const struct heads *h, uint64_t entry,
                    bool writes)
{
    if (p)
        touch(t, (const uint8_t *) p + h->at * entry, h->heads, h->cap * entry, h->n * entry,
              writes);
}
static void slab(const struct task *t, const struct ps_slab *s, const struct heads *h, bool writes)
{
    entries(t, s->k, h, h->entry, writes);
    entries(t, s->v, h, h->entry, writes);
    entries(t, s->score, h, sizeof *s->score, writes);
    entries(t, s->pos, h, sizeof *s->pos, writes);
}

static void of_embed(const struct task *t, const struct ps_embed *a)
{
    floats(t, a->y, a->rows, a->ldy, a->cols, true);
    uint64_t row = a->cols * ps_dtype_bytes(a->dtype);
    touch(t, a->table, a->n_rows, row, row, false);
}

static void of_linear(const struct task *t, const struct ps_linear *a)
{
    floats(t, a->x, a->m, a->ldx, a->k, false);
    floats(t, a->residual, a->m, a->ldr, a->n, false);
    floats(t, a->y, a->m, a->ldy, a->n, true);
}

static void of_round(const struct task *t, const struct ps_kv_round *a)
{
    struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), a->cap, a->at, a->rows };
    floats(t, a->k, a->rows, a->ldk, a->kv_heads * a->d, false);
    floats(t, a->v, a->rows, a->ldv, a->kv_heads * a->d, false);
    slab(t, &(struct ps_slab) { .k = a->dst_k, .v = a->dst_v }, &h, true);
}

static void of_prompt(const struct task *t, const struct ps_attn_prompt *a)
{
    for (const struct ps_prompt_seq *s = a->seqs; s < a->seqs + a->n_seqs; s++) {
        struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), s->cap, 0,
                           s->first + s->rows };
        floats(t, s->q, s->rows, a->ldq, a->q_heads * a->d, false);
        floats(t, s->o, s->rows, a->ldo, a->q_heads * a->d, true);
        slab(t, &(struct ps_slab) { .k = (void *) s->k, .v = (void *) s->v }, &h, false);
        slab(t, &(struct ps_slab) { .score = s->score }, &h, true);
    }
}

static void of_decode(const struct task *t, const struct ps_attn_decode *a)
{
    for (const struct ps_decode_row *r = a->rows; r < a->rows + a->n_rows; r++) {
        struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), r->slab.cap, 0, r->len };
        floats(t, r->q, 1, 0, a->q_heads * a->d, false);
        floats(t, r->k, 1, 0, a->kv_heads * a->d, false);
        floats(t, r->v, 1, 0, a->kv_heads * a->d, false);
        floats(t, r->o, 1, 0, a->q_heads * a->d, true);
        slab(t, &r->slab, &h, true);
        touch(t, r->at, 1, 0, a->kv_heads * sizeof *r->at, true);
        h = (struct heads) { a->kv_heads, h.entry, r->log_cap, r->log_at, 1 };
        slab(t, &(struct ps_slab) { .k = r->log_k, .v = r->log_v, .pos = r->log_index }, &h, true);
    }
}

static void of_compact(const struct task *t, const struct ps_kv_compact *a)
{
    for (const struct ps_compact_seq *s = a->seqs; s < a->seqs + a->n_seqs; s++) {
        struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), s->src.cap, 0,
                           s->total };
        slab(t, &s->src, &h, false);
        h.cap = s->dst.cap;
        h.n = 1; /* at least that stays */
        slab(t, &s->dst, &h, true);
    }
}

static void of_replay(const struct task *t, const struct ps_kv_replay *a)
{
    for (const struct ps_replay_seq *s = a->seqs; s < a->seqs + a->n_seqs; s++) {
        struct heads h = { a->kv_heads, a->d * ps_dtype_bytes(a->kv_type), s->log_cap, 0, s->n };
        slab(t,
             &(struct ps_slab) {
                 .k = (void *) s->log_k, .v = (void *) s->log_v, .pos = (void *) s->log_index },
             &h, false);
        h.cap = s->cap;
        slab(t, &(struct ps_slab) { .k = s->k, .v = s->v }, &h, true);
    }
}

static void of_sample(const struct task *t, const struct ps_sample *a)
{
    for (const struct ps_sample_row *r = a->rows; r < a->rows + a->n_rows; r++) {
        floats(t, r->logits, 1, 0, a->vocab, false);
        touch(t, r->out, 1, 0, sizeof *r->out, true);
    }
}

void uses_check(enum ps_op op, const void *args, const struct ps_use *uses, unsigned n_uses)
{
    const struct task t = { op, uses, n_uses };
    const struct ps_layernorm *norm = args;
    switch (op) {
    case PS_OP_embed: of_embed(&t, args); break;
    case PS_OP_layernorm:
        floats(&t, norm->x, norm->rows, norm->ldx, norm->cols, false);
        floats(&t, norm->y, norm->rows, norm->ldy, norm->cols, true);
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
