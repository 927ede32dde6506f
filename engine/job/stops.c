/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job/stops.h"

void ps_stops_begin(struct ps_stops *s, uint32_t n, const uint32_t *len, const void *bytes,
                    uint16_t *fail)
{
    *s = (struct ps_stops) { .n = n };
    const uint8_t *p = bytes;
    for (uint32_t i = 0; i < n; i++) {
        s->len[i] = len[i];
        s->text[i] = p;
        s->fail[i] = fail;
        /* fail[j]: the longest proper prefix that is also a suffix of the first j + 1 bytes */
        fail[0] = 0;
        for (uint32_t j = 1, k = 0; j < len[i]; j++) {
            while (k && p[j] != p[k]) k = fail[k - 1];
            k += p[j] == p[k];
            fail[j] = (uint16_t) k;
        }
        p += len[i];
        fail += len[i];
    }
}

/* One byte for one automaton; true when its string is complete. */
static bool step(struct ps_stops *s, uint32_t i, uint8_t c)
{
    uint32_t k = s->state[i];
    if (k == s->len[i]) k = s->fail[i][k - 1];
    while (k && s->text[i][k] != c) k = s->fail[i][k - 1];
    k += s->text[i][k] == c;
    s->state[i] = k;
    return k == s->len[i];
}

bool ps_stops_feed(struct ps_stops *s, const char *p, size_t n, bool deaf, uint64_t *ret_cut)
{
    if (!s->n) return false;
    for (size_t b = 0; b < n; b++) {
        uint32_t longest = 0;
        s->seen++;
        for (uint32_t i = 0; i < s->n; i++)
            if (step(s, i, (uint8_t) p[b]) && s->len[i] > longest) longest = s->len[i];
        if (!longest || deaf) continue;
        *ret_cut = s->seen - longest;
        return true;
    }
    return false;
}
