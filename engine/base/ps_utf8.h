/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as Unicode's table 3-7 has it: no form longer than needed, no surrogates, nothing above U+10FFFF. Pure functions. */
#ifndef PS_UTF8_H
#define PS_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a character that begins with this one; 0 = none does. */
static inline unsigned ps_utf8_lead(uint8_t b)
{
    return b < 0x80 ? 1 : b < 0xc2 || b > 0xf4 ? 0 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}
/* Whether a character that begins with `lead` may go on with `b`. Its third and fourth byte may be any from 80 to bf. */
static inline bool ps_utf8_second(uint8_t lead, uint8_t b)
{
    uint8_t lo = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t hi = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return b >= lo && b <= hi;
}
/* Bytes of the character at s[0, n), n > 0; 0 if it is none, or cut off. */
size_t ps_utf8_char(const char *s, size_t n);
/* Bytes of the longest valid prefix: len if all is valid. */
size_t ps_utf8_valid(const char *s, size_t len);
/* Code points of valid UTF-8. */
size_t ps_utf8_points(const char *s, size_t len);
/* Writes a code point (no surrogate, at most U+10FFFF); returns the number of bytes. */
size_t ps_utf8_put(char ret[4], uint32_t point);
#endif
