/* SPDX-License-Identifier: Apache-2.0 */
/* Eight bytes a step, one table for each (Kounavis and Berry, "A systematic approach to building high performance software-based CRC
 * generators", 2005). Polynomials stand in a word with the lowest power in the highest bit. */
#include "engine/checkpoint/crc32.h"
#include <string.h>

#define POLY 0xedb88320u

static uint32_t times_x(uint32_t a) { return a >> 1 ^ (a & 1 ? POLY : 0); }

void ps_crc32_init(struct ps_crc32 *c)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int k = 0; k < 8; k++) v = times_x(v);
        c->t[0][i] = v;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            c->t[k][i] = c->t[k - 1][i] >> 8 ^ c->t[0][c->t[k - 1][i] & 255];
}

uint32_t ps_crc32(const struct ps_crc32 *c, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint32_t v = ~0u;
    for (; n >= 8; p += 8, n -= 8) {
        v ^= (uint32_t) p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16 | (uint32_t) p[3] << 24;
        v = c->t[7][v & 255] ^ c->t[6][v >> 8 & 255] ^ c->t[5][v >> 16 & 255] ^ c->t[4][v >> 24] ^
            c->t[3][p[4]] ^ c->t[2][p[5]] ^ c->t[1][p[6]] ^ c->t[0][p[7]];
    }
    for (; n; p++, n--) v = v >> 8 ^ c->t[0][(v ^ *p) & 255];
    return ~v;
}

static uint32_t mul(uint32_t a, uint32_t b)
{
    uint32_t r = 0;
    for (; a; a <<= 1, b = times_x(b))
        if (a >> 31) r ^= b;
    return r;
}

uint32_t ps_crc32_shift(uint32_t crc, uint64_t n_bytes)
{
    uint32_t x = 1u << 23; /* x^8 */
    for (; n_bytes; n_bytes >>= 1, x = mul(x, x))
        if (n_bytes & 1) crc = mul(x, crc);
    return crc;
}
