/* SPDX-License-Identifier: Apache-2.0 */
/* Elements from one type to another, checked: nothing that is not a finite number comes in or goes out. */
#ifndef PS_ELEMS_H
#define PS_ELEMS_H
#include "engine/base/ps_dtype.h"
#include "engine/base/ps_util.h"

/* Converts n elements (round to nearest even). Returns n, or the index of the first element that is NaN or infinite, or that
 * `to` cannot hold; dst is then partly written. src needs no alignment; the two do not overlap. */
size_t ps_elems_convert(enum ps_dtype from, const void *src, enum ps_dtype to, void *dst, size_t n);
/* The first i with a[i] != b[i] as numbers, or n. */
size_t ps_elems_compare(enum ps_dtype ta, const void *a, enum ps_dtype tb, const void *b, size_t n);

/* Random elements i0 .. i0 + n - 1 of the tensor with this key: base + scale * z, z near a normal distribution (the sum of four
 * uniform bytes, deviation 1). A pure function of (key, index), the same on every machine. */
void ps_elems_random(uint64_t key, uint64_t i0, float base, float scale, enum ps_dtype to,
                     void *dst, size_t n);
#endif
