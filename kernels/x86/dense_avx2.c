/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/x86/vec_avx2.h"

#include "kernels/x86/dense_impl.h"
#include "kernels/x86/x86_rows.h"

int ps_embed_avx2(const void *args, const struct ps_span *span) { return embed_run(args, span); }
int ps_layernorm_avx2(const void *args, const struct ps_span *span)
{
    return layernorm_run(args, span);
}
