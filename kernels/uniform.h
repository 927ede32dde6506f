/* SPDX-License-Identifier: Apache-2.0 */
/* The generator behind ps_uniform(), for kernels of every place. */
#ifndef PS_UNIFORM_H
#define PS_UNIFORM_H
#include <stdint.h>

#ifdef __CUDACC__
#define PS_HOST_AND_DEVICE __host__ __device__
#else
#define PS_HOST_AND_DEVICE
#endif

/* Philox 4x32, 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), counter
 * (index, 0, 0, 0), the key's low and high half as its key; the first 53 of the first 64 bits. */
PS_HOST_AND_DEVICE static inline double ps_philox(uint64_t key, uint32_t index)
{
    uint32_t c[4] = { index, 0, 0, 0 }, k0 = (uint32_t) key, k1 = (uint32_t) (key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t m0 = (uint64_t) 0xd2511f53u * c[0], m1 = (uint64_t) 0xcd9e8d57u * c[2];
        const uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t) (m1 >> 32) ^ c1 ^ k0;
        c[1] = (uint32_t) m1;
        c[2] = (uint32_t) (m0 >> 32) ^ c3 ^ k1;
        c[3] = (uint32_t) m0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return (double) (((uint64_t) c[1] << 32 | c[0]) >> 11) * 0x1p-53;
}
#endif
