/* SPDX-License-Identifier: Apache-2.0 */
/* The CRC-32 of zip archives (APPNOTE 4.4.7), also of bytes that come in any order: each piece's sum, shifted by the bytes that follow
 * it, XORed together is the sum of the whole. */
#ifndef PS_CRC32_H
#define PS_CRC32_H
#include <stddef.h>
#include <stdint.h>

struct ps_crc32 {
    uint32_t t[8][256];
};
void ps_crc32_init(struct ps_crc32 *c);
uint32_t ps_crc32(const struct ps_crc32 *c, const void *bytes, size_t n);
uint32_t ps_crc32_shift(uint32_t crc, uint64_t n_bytes);
#endif
