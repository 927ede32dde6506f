/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/profile.h"
#include <assert.h>
#include <math.h>

double ps_curve_at(const struct ps_curve *c, double x, bool *outside)
{
    assert(c->n >= 1 && c->n <= PS_CURVE_MAX);
    const uint32_t last = c->n - 1;
    if (outside && (x < c->x[0] || x > c->x[last])) *outside = true;
    if (x <= c->x[0]) return c->y[0];
    if (x >= c->x[last]) return c->y[last];
    uint32_t i = 1;
    while (c->x[i] < x) i++;
    const double share = log(x / c->x[i - 1]) / log(c->x[i] / c->x[i - 1]);
    return c->y[i - 1] * pow(c->y[i] / c->y[i - 1], share);
}
