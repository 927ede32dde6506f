/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/dev_cuda_move.h"

struct move {
    const struct ps_cuda_api *api;
    const struct ps_pinned *pinned;
    struct ps_cuda_stream *s;
    const struct ps_task *t;
    uint64_t copies;
};

/* Of `bytes`, those that lie in one registration. */
static uint64_t in_one(const struct move *m, const uint8_t *dst, const uint8_t *src, uint64_t bytes)
{
    const uint8_t *host = m->t->dst_where == PS_HOST   ? dst
                          : m->t->src_where == PS_HOST ? src
                                                       : NULL;
    const uint64_t n = host && m->pinned ? ps_pinned_run(m->pinned, host, bytes) : bytes;
    return n ? n : bytes; /* not pinned at all */
}

static int row(struct move *m, uint8_t *dst, const uint8_t *src)
{
    int r = 0;
    for (uint64_t n, left = m->t->rect.row_bytes; left && !r; left -= n, dst += n, src += n) {
        n = in_one(m, dst, src, left);
        r = m->api->copy(m->s, dst, src, n);
        m->copies++;
    }
    return r;
}

static int rows(struct move *m, uint8_t *dst, const uint8_t *src)
{
    const struct ps_rect *c = &m->t->rect;
    const uint64_t pitch = m->t->dst_where == PS_HOST ? c->dst_pitch : c->src_pitch;
    int r = 0;
    for (uint64_t n, left = c->rows; left && !r;
         left -= n, dst += n * c->dst_pitch, src += n * c->src_pitch) {
        const uint64_t span = in_one(m, dst, src, (left - 1) * pitch + c->row_bytes);
        n = span < c->row_bytes ? 0 : (span - c->row_bytes) / pitch + 1; /* whole rows */
        if (n > 1) {
            r = m->api->copy_2d(m->s, dst, c->dst_pitch, src, c->src_pitch, c->row_bytes, n);
            m->copies++;
        } else {
            n = 1;
            r = row(m, dst, src);
        }
    }
    return r;
}

int ps_cuda_move(const struct ps_cuda_api *api, const struct ps_pinned *pinned,
                 struct ps_cuda_stream *s, const struct ps_task *t, uint64_t *copies)
{
    struct move m = { api, pinned, s, t, 0 };
    const struct ps_rect *c = &t->rect;
    uint8_t *dst = t->dst + c->dst_off;
    const uint8_t *src = t->src + c->src_off;
    const int r = c->rows > 1 ? rows(&m, dst, src) : row(&m, dst, src);
    *copies += m.copies;
    return r;
}
