/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/spool.h"
#include "engine/base/ps_file.h"
#include "engine/base/ps_utf8.h"

enum { SPOOL_BUF = 256 << 10, COPY_BUF = 16 << 10 };

int ps_spool_open(const char *path, struct ps_spool *ret, struct ps_detail *dt)
{
    int fd = ps_temp_beside(path, dt);
    if (fd < 0) return fd;
    int r = ps_jout_init(&ret->out, fd, 0, SPOOL_BUF);
    if (r < 0) {
        (void) close(fd);
        ret->out.fd = -1;
    }
    return r;
}

void ps_spool_close(struct ps_spool *s)
{
    if (s->out.buf && s->out.fd >= 0) (void) close(s->out.fd);
    ps_jout_done(&s->out);
}

int ps_spool_put(struct ps_spool *s, const struct ps_spool_head *head, const int32_t *ids,
                 const struct ps_params *p, const struct ps_jstr texts[PS_T__COUNT],
                 uint64_t *ret_off)
{
    struct ps_spool_head h = *head;
    h.n_stop = p->n_stop;
    h.n_stop_ids = p->n_stop_ids;
    for (uint32_t i = 0; i < p->n_stop; i++) h.stop_len[i] = (uint32_t) p->stop[i].len;
    for (int i = 0; i < PS_T__COUNT; i++) h.text_len[i] = texts[i].s ? (uint32_t) texts[i].len : 0;
    *ret_off = ps_jout_tell(&s->out);
    ps_jout_bytes(&s->out, &h, sizeof h);
    ps_jout_bytes(&s->out, ids, h.n_prompt * sizeof *ids);
    ps_jout_bytes(&s->out, p->stop_ids, p->n_stop_ids * sizeof p->stop_ids[0]);
    for (uint32_t i = 0; i < p->n_stop; i++) ps_jout_bytes(&s->out, p->stop[i].s, p->stop[i].len);
    for (int i = 0; i < PS_T__COUNT; i++) ps_jout_bytes(&s->out, texts[i].s, h.text_len[i]);
    return s->out.err;
}

int ps_spool_flush(struct ps_spool *s) { return ps_jout_flush(&s->out); }

int ps_spool_head(const struct ps_spool *s, uint64_t off, struct ps_spool_head *ret)
{
    return ps_pread_all(s->out.fd, ret, sizeof *ret, off);
}

uint64_t ps_spool_ids_off(uint64_t off) { return off + sizeof(struct ps_spool_head); }

uint64_t ps_spool_stop_ids_off(uint64_t off, const struct ps_spool_head *h)
{
    return ps_spool_ids_off(off) + (uint64_t) h->n_prompt * sizeof(int32_t);
}

uint64_t ps_spool_stops_off(uint64_t off, const struct ps_spool_head *h)
{
    return ps_spool_stop_ids_off(off, h) + (uint64_t) h->n_stop_ids * sizeof(int32_t);
}

uint64_t ps_spool_text_off(uint64_t off, const struct ps_spool_head *h, enum ps_spool_text t)
{
    off = ps_spool_stops_off(off, h);
    for (uint32_t i = 0; i < h->n_stop; i++) off += h->stop_len[i];
    for (int i = 0; i < (int) t; i++) off += h->text_len[i];
    return off;
}

/* Bytes at the end of p[0, n) that begin a character which goes on behind n. */
static size_t unfinished(const char *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = (uint8_t) p[n - back];
        if ((c & 0xc0) == 0x80) continue;
        return ps_utf8_lead(c) > back ? back : 0;
    }
    return 0;
}

int ps_spool_copy(const struct ps_spool *s, uint64_t off, const struct ps_spool_head *h,
                  enum ps_spool_text t, struct ps_jout *to)
{
    char buf[COPY_BUF];
    uint64_t at = ps_spool_text_off(off, h, t), left = h->text_len[t];
    while (left) {
        size_t n = left < sizeof buf ? (size_t) left : sizeof buf;
        int r = ps_pread_all(s->out.fd, buf, n, at);
        if (r < 0) return r;
        if (n < left) n -= unfinished(buf, n); /* a character is not cut in two */
        ps_jout_escaped(to, buf, n);
        at += n;
        left -= n;
    }
    return 0;
}
