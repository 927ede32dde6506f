/* SPDX-License-Identifier: Apache-2.0 */
/* Units, scratch and cost of embed, layernorm, convert, linear and call. */
#include "kernels/linear_scratch.h"
#include "kernels/op_info.h"

static uint64_t embed_units(const void *args) { return ((const struct ps_embed *) args)->rows; }
static struct ps_cost embed_cost(const void *args)
{
    const struct ps_embed *a = args;
    const double n = (double) a->rows * a->cols;
    return (struct ps_cost) {
        .flops = a->add ? n : 0,
        .bytes = n * ((double) ps_dtype_bytes(a->dtype) + (a->add ? 8 : 4)),
    };
}
const struct ps_op_info ps_op_info_embed = {
    .args_size = sizeof(struct ps_embed),
    .units = embed_units,
    .cost = embed_cost,
};

static uint64_t layernorm_units(const void *args)
{
    return ((const struct ps_layernorm *) args)->rows;
}
static struct ps_cost layernorm_cost(const void *args)
{
    const struct ps_layernorm *a = args;
    const double n = (double) a->rows * a->cols, wb = (double) ps_dtype_bytes(a->dtype);
    return (struct ps_cost) {
        .flops = 7 * n,
        .bytes = n * ((a->y ? 8 : 4) + (a->rounded ? wb : 0)) + 2 * wb * a->cols,
    };
}
const struct ps_op_info ps_op_info_layernorm = {
    .args_size = sizeof(struct ps_layernorm),
    .units = layernorm_units,
    .cost = layernorm_cost,
};

static uint64_t convert_units(const void *args)
{
    return (((const struct ps_convert *) args)->n + PS_CONVERT_UNIT - 1) / PS_CONVERT_UNIT;
}
static struct ps_cost convert_cost(const void *args)
{
    const struct ps_convert *a = args;
    return (struct ps_cost) { .bytes = (double) a->n *
                                       (double) (ps_dtype_bytes(a->from) + ps_dtype_bytes(a->to)) };
}
const struct ps_op_info ps_op_info_convert = {
    .args_size = sizeof(struct ps_convert),
    .units = convert_units,
    .cost = convert_cost,
};

static uint64_t linear_units(const void *args)
{
    return ((uint64_t) ((const struct ps_linear *) args)->n + PS_LINEAR_UNIT - 1) / PS_LINEAR_UNIT;
}
static struct ps_cost linear_cost(const void *args)
{
    const struct ps_linear *a = args;
    const double m = a->m, n = a->n, k = a->k, wb = (double) ps_dtype_bytes(a->wtype),
                 xb = a->rounded_x ? wb : 4, yb = a->rounded_y ? wb : 4;
    return (struct ps_cost) {
        .flops = 2 * m * n * k,
        .bytes = wb * n * k + (a->bias ? n * (a->bias_f32 ? 4 : wb) : 0) +
                 m * (k * xb + n * yb + (a->residual ? 4 * n : 0)),
    };
}
/* Packing x into tiles, some 13 outputs' worth of work with one thread and twice that beside another: 2048 rows and 8192 columns
 * took 5 % longer in 16 spans than in 2 (AVX-512, a Zen 5). */
static double linear_span_share(const void *args)
{
    const struct ps_linear *a = args;
    return a->m > PS_LIN_DOT_MAX ? 13.0 / a->n : 0;
}
const struct ps_op_info ps_op_info_linear = {
    .args_size = sizeof(struct ps_linear),
    .units = linear_units,
    .scratch = ps_linear_scratch,
    .cost = linear_cost,
    .span_share = linear_span_share,
};

static uint64_t call_units(const void *args) { return 1; }
static struct ps_cost call_cost(const void *args)
{
    return (struct ps_cost) { .bytes = (double) ((const struct ps_call *) args)->bytes };
}
const struct ps_op_info ps_op_info_call = {
    .args_size = sizeof(struct ps_call),
    .units = call_units,
    .cost = call_cost,
};
