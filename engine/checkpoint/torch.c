/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/checkpoint/source.h"

int ps_torch_read(struct ps_src *s, uint32_t file, struct ps_detail *dt)
{
    return ps_fail(dt, -PS_EUNSUPPORTED, "%s: not yet", s->files[file].path);
}
