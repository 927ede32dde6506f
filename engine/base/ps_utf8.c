/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/ps_utf8.h"
#include <string.h>

size_t ps_utf8_char(const char *s, size_t n)
{
    const uint8_t *u = (const uint8_t *) s;
    size_t len = ps_utf8_lead(u[0]);
    if (len < 2) return len;
    if (n < len || !ps_utf8_second(u[0], u[1])) return 0;
    for (size_t i = 2; i < len; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    return len;
}

size_t ps_utf8_valid(const char *s, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint64_t eight;
        for (; i + 8 <= len; i += 8) {
            memcpy(&eight, s + i, 8);
            if (eight & 0x8080808080808080u) break;
        }
        while (i < len && (uint8_t) s[i] < 0x80) i++;
        if (i == len) break;
        size_t n = ps_utf8_char(s + i, len - i);
        if (!n) break;
        i += n;
    }
    return i;
}

size_t ps_utf8_points(const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((uint8_t) s[i] & 0xc0) != 0x80;
    return n;
}

size_t ps_utf8_put(char ret[4], uint32_t point)
{
    if (point < 0x80) {
        ret[0] = (char) point;
        return 1;
    }
    size_t n = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; point >>= 6) ret[i] = (char) (0x80 | (point & 63));
    ret[0] = (char) ((0xf00u >> n & 0xff) | point);
    return n;
}
