/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/profile_units.h"
#include <string.h>

static const struct {
    const char *name;
    enum ps_dim dim;
    double worth;
} units[] = {
    { "B/s", PS_DIM_RATE, 1 },        { "KB/s", PS_DIM_RATE, 1e3 },
    { "MB/s", PS_DIM_RATE, 1e6 },     { "GB/s", PS_DIM_RATE, 1e9 },
    { "GiB/s", PS_DIM_RATE, 0x1p30 }, { "TB/s", PS_DIM_RATE, 1e12 },
    { "FLOP/s", PS_DIM_FLOPS, 1 },    { "MFLOP/s", PS_DIM_FLOPS, 1e6 },
    { "GFLOP/s", PS_DIM_FLOPS, 1e9 }, { "TFLOP/s", PS_DIM_FLOPS, 1e12 },
    { "B", PS_DIM_BYTES, 1 },         { "KB", PS_DIM_BYTES, 1e3 },
    { "MB", PS_DIM_BYTES, 1e6 },      { "GB", PS_DIM_BYTES, 1e9 },
    { "TB", PS_DIM_BYTES, 1e12 },     { "KiB", PS_DIM_BYTES, 0x1p10 },
    { "MiB", PS_DIM_BYTES, 0x1p20 },  { "GiB", PS_DIM_BYTES, 0x1p30 },
    { "TiB", PS_DIM_BYTES, 0x1p40 },  { "s", PS_DIM_TIME, 1 },
    { "ms", PS_DIM_TIME, 1e-3 },      { "us", PS_DIM_TIME, 1e-6 },
    { "cores", PS_DIM_CORES, 1 },     { "threads", PS_DIM_THREADS, 1 },
    { "sm", PS_DIM_SM, 1 },           { "x", PS_DIM_TIMES, 1 },
    { "USD/h", PS_DIM_MONEY, 1 },
};

double ps_unit(enum ps_dim d, const char *name)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(units); i++)
        if (units[i].dim == d && !strcmp(units[i].name, name)) return units[i].worth;
    return 0;
}

const char *ps_units_text(enum ps_dim d)
{
    static const char *const texts[PS_DIM__COUNT] = {
        [PS_DIM_RATE] = "B/s, KB/s, MB/s, GB/s, GiB/s or TB/s",
        [PS_DIM_FLOPS] = "FLOP/s, MFLOP/s, GFLOP/s or TFLOP/s",
        [PS_DIM_BYTES] = "B, KB, MB, GB, TB, KiB, MiB, GiB or TiB",
        [PS_DIM_TIME] = "s, ms or us",
        [PS_DIM_CORES] = "cores",
        [PS_DIM_THREADS] = "threads",
        [PS_DIM_SM] = "sm (75 for compute capability 7.5)",
        [PS_DIM_TIMES] = "x",
        [PS_DIM_MONEY] = "USD/h",
    };
    return texts[d];
}

#define RATE(key, need, at)                                                                      \
    {                                                                                            \
        key, PS_DIM_RATE, PS_PROFILE_RATE_LEAST, PS_PROFILE_RATE_MOST, PS_FIELD_DOUBLE, need, at \
    }
#define FLOPS(key, need, at)                                                                     \
    {                                                                                            \
        key, PS_DIM_FLOPS, PS_PROFILE_FLOPS_LEAST, PS_PROFILE_FLOPS_MOST, PS_FIELD_DOUBLE, need, \
            at                                                                                   \
    }
#define BYTES(key, need, at)                                      \
    {                                                             \
        key, PS_DIM_BYTES, 0x1p20, 0x1p60, PS_FIELD_U64, need, at \
    }
#define SECONDS(key, at)                                          \
    {                                                             \
        key, PS_DIM_TIME, 0, 10, PS_FIELD_DOUBLE, PS_MAY_LACK, at \
    }
#define W(member) offsetof(struct ps_worker_rates, member)
#define P(member) offsetof(struct ps_profile, member)

const struct ps_field ps_fields_worker[] = {
    RATE("read", PS_MUST_HAVE, W(mem)),
    RATE("copy", PS_MAY_LACK, W(copy)),
    FLOPS("flops", PS_MUST_HAVE, W(flops)),
    { "scores", PS_DIM_TIMES, 0.5, 100, PS_FIELD_DOUBLE, PS_MAY_LACK, W(scores) },
    RATE("residual", PS_MAY_LACK, W(residual)),
    SECONDS("task", W(task_s)),
    SECONDS("spread", W(spread_s)),
    SECONDS("wait", W(wait_s)),
    SECONDS("gap", W(gap_s)),
    { 0 },
};
const struct ps_field ps_fields_host[] = {
    BYTES("mem", PS_MUST_HAVE, P(host_mem)),
    BYTES("pin", PS_MAY_LACK, P(pin_max)),
    { "cores", PS_DIM_CORES, 1, 4096, PS_FIELD_U32, PS_MAY_LACK, P(cores) },
    { "threads", PS_DIM_THREADS, 1, 4096, PS_FIELD_U32, PS_MAY_LACK, P(threads) },
    { 0 },
};
const struct ps_field ps_fields_gpu[] = {
    BYTES("mem", PS_MUST_HAVE, P(gpu_mem)),
    { "sm", PS_DIM_SM, 50, 200, PS_FIELD_U32, PS_MUST_HAVE, P(sm) },
    { 0 },
};
const struct ps_field ps_fields_disk[] = {
    BYTES("space", PS_MAY_LACK, P(disk_space)),
    RATE("read", PS_MAY_BE_NULL, P(disk_read.alone)),
    RATE("write", PS_MAY_BE_NULL, P(disk_write.alone)),
    RATE("read_beside_write", PS_MAY_LACK, P(disk_read.beside)),
    RATE("write_beside_read", PS_MAY_LACK, P(disk_write.beside)),
    RATE("read_beside_kernels", PS_MAY_LACK, P(disk_read.busy)),
    SECONDS("read_delay", P(disk_read.delay_s)),
    SECONDS("write_delay", P(disk_write.delay_s)),
    SECONDS("read_delay_beside_kernels", P(disk_read.busy_delay_s)),
    SECONDS("write_delay_beside_kernels", P(disk_write.busy_delay_s)),
    { "read_behind_write", PS_DIM_TIMES, 0, 1, PS_FIELD_DOUBLE, PS_MAY_LACK, P(disk_read.behind) },
    { "write_behind_read", PS_DIM_TIMES, 0, 1, PS_FIELD_DOUBLE, PS_MAY_LACK, P(disk_write.behind) },
    { "cores", PS_DIM_CORES, 0, 4096, PS_FIELD_DOUBLE, PS_MAY_LACK, P(io_cores) },
    SECONDS("transfer", P(disk_s)),
    { 0 },
};
const struct ps_field ps_fields_links[] = {
    RATE("h2d", PS_MAY_LACK, P(h2d.alone)),
    RATE("d2h", PS_MAY_LACK, P(d2h.alone)),
    RATE("h2d_beside_d2h", PS_MAY_LACK, P(h2d.beside)),
    RATE("d2h_beside_h2d", PS_MAY_LACK, P(d2h.beside)),
    SECONDS("copy", P(copy_s)),
    { 0 },
};
const struct ps_field ps_fields_price[] = {
    { "price", PS_DIM_MONEY, 0, 1e5, PS_FIELD_DOUBLE, PS_MAY_LACK, P(usd_per_hour) },
    { 0 },
};
#define OP(name) RATE(#name, PS_MAY_LACK, W(op[PS_OP_##name]))
const struct ps_field ps_fields_ops[] = {
    OP(embed),
    OP(layernorm),
    OP(kv_round),
    OP(kv_compact),
    OP(kv_replay),
    OP(sample),
    RATE("checksum", PS_MAY_LACK, W(op[PS_OP_call])),
    { 0 },
};

void ps_field_put(const struct ps_field *f, void *base, double v)
{
    void *at = (uint8_t *) base + f->at;
    if (f->type == PS_FIELD_U64)
        *(uint64_t *) at = (uint64_t) v;
    else if (f->type == PS_FIELD_U32)
        *(uint32_t *) at = (uint32_t) v;
    else
        *(double *) at = v;
}

double ps_field_get(const struct ps_field *f, const void *base)
{
    const void *at = (const uint8_t *) base + f->at;
    if (f->type == PS_FIELD_U64) return (double) *(const uint64_t *) at;
    if (f->type == PS_FIELD_U32) return *(const uint32_t *) at;
    return *(const double *) at;
}
