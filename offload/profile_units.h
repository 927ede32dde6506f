/* SPDX-License-Identifier: Apache-2.0 */
/* Units of a hardware profile, and the fields that have them: what the reader checks and the probe writes. Private to this folder. */
#ifndef PS_PROFILE_UNITS_H
#define PS_PROFILE_UNITS_H
#include "offload/profile.h"

enum ps_dim {
    PS_DIM_RATE,
    PS_DIM_FLOPS,
    PS_DIM_BYTES,
    PS_DIM_TIME,
    PS_DIM_CORES,
    PS_DIM_THREADS,
    PS_DIM_SM,    /* what CUDA calls an architecture: 75 is compute capability 7.5 */
    PS_DIM_TIMES, /* so many times as much */
    PS_DIM_MONEY,
    PS_DIM__COUNT
};

/* What a unit is worth in bytes, seconds, ...: 0 if there is none of that name, or it measures something else. */
double ps_unit(enum ps_dim d, const char *name);
/* "B/s, KB/s, ... or TB/s". */
const char *ps_units_text(enum ps_dim d);

/* A figure of a section. Values are kept in a struct ps_profile, or in a worker's rates, `at` bytes from its start. */
enum ps_field_type { PS_FIELD_DOUBLE, PS_FIELD_U64, PS_FIELD_U32 };
struct ps_field {
    const char *key;
    enum ps_dim dim;
    double least, most; /* what is outside cannot be meant */
    enum ps_field_type type;
    enum ps_need { PS_MAY_LACK, PS_MAY_BE_NULL, PS_MUST_HAVE } need;
    size_t at;
};
/* Each ends with a NULL key. Of struct ps_worker_rates (ops: `checksum` is a call's): */
extern const struct ps_field ps_fields_worker[], ps_fields_ops[];
/* Of struct ps_profile: */
extern const struct ps_field ps_fields_host[], ps_fields_gpu[], ps_fields_disk[], ps_fields_links[],
    ps_fields_price[];
/* Puts a value into its place in what begins at base. */
void ps_field_put(const struct ps_field *f, void *base, double v);
double ps_field_get(const struct ps_field *f, const void *base);

/* Bounds of what curves hold. */
#define PS_PROFILE_RATE_LEAST  1e3
#define PS_PROFILE_RATE_MOST   1e15
#define PS_PROFILE_FLOPS_LEAST 1e3
#define PS_PROFILE_FLOPS_MOST  1e18
#define PS_PROFILE_X_MOST      1e9
#endif
