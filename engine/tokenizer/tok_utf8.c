/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tokenizer/tok_impl.h"
#include <utf8proc.h>

/* Printable Latin-1 stands for itself, the other 68 bytes get 256, 257, ... in order (GPT-2's bytes_to_unicode). */
#define ROW(b)                                                                                \
    b, b + 1, b + 2, b + 3, b + 4, b + 5, b + 6, b + 7, b + 8, b + 9, b + 10, b + 11, b + 12, \
        b + 13, b + 14, b + 15
const uint16_t tok_byte_char[256] = {
    ROW(256),  ROW(272), /* 00-1f */
    288,       33,        34,        35,        36,       37,       38,   39,
    40,        41,        42,        43,        44,       45,       46,   47, /* space */
    ROW(0x30), ROW(0x40), ROW(0x50), ROW(0x60), 0x70,     0x71,     0x72, 0x73,
    0x74,      0x75,      0x76,      0x77,      0x78,     0x79,     0x7a, 0x7b,
    0x7c,      0x7d,      0x7e,      289,       ROW(290), ROW(306), /* 80-9f */
    322,       0xa1,      0xa2,      0xa3,      0xa4,     0xa5,     0xa6, 0xa7,
    0xa8,      0xa9,      0xaa,      0xab,      0xac,     323,      0xae, 0xaf,
    ROW(0xb0), ROW(0xc0), ROW(0xd0), ROW(0xe0), ROW(0xf0)
};
#undef ROW

size_t tok_char_at(const char *s, size_t n, int32_t *c)
{
    utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *) s, (utf8proc_ssize_t) n, c);
    return k > 0 ? (size_t) k : 1;
}

size_t tok_char_end(const char *s, size_t n, int32_t *c)
{
    size_t k = 1;
    while (k < 4 && k < n && ((uint8_t) s[n - k] & 0xc0) == 0x80) k++;
    (void) tok_char_at(s + n - k, k, c);
    return k;
}

bool tok_is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Alphabetic, marks, decimal digits, connectors, joiners (UTS 18). The circled letters are symbols by category but alphabetic. */
bool tok_is_word(int32_t c)
{
    if (c == 0x200c || c == 0x200d) return true;
    if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
        (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189))
        return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
    }
}

bool tok_text_to_bytes(const char *text, size_t len, char *ret, size_t *ret_len)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        int32_t c = -1;
        size_t k = tok_char_at(text + i, len - i, &c);
        int b = -1;
        if (c >= 0 && c < 256 && tok_byte_char[c] == c)
            b = c;
        else if (c >= 256 && c <= 323)
            b = c < 289 ? c - 256 : c == 289 ? 0x7f : c < 323 ? c - 290 + 0x80 : 0xad;
        if (b < 0) return false;
        ret[n++] = (char) b;
        i += k;
    }
    *ret_len = n;
    return true;
}
