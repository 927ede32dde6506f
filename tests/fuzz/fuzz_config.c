/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ps_shape s;
    struct ps_detail dt;
    struct ps_tensor *t = NULL;
    struct ps_steps a, b, c;
    size_t n;
    if (ps_shape_parse((const char *) data, size, "config.json", &s, &dt) < 0) return 0;
    ps_model_steps(&s, &a, &b, &c);
    if (s.layers < 100 && ps_model_tensors(&s, &t, &n, &dt) == 0) free(t);
    return 0;
}
