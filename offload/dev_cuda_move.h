/* SPDX-License-Identifier: Apache-2.0 */
/* A task of the cuda device that moves bytes. Private to this folder. */
#ifndef PS_DEV_CUDA_MOVE_H
#define PS_DEV_CUDA_MOVE_H
#include "kernels/cuda/ps_cuda.h"
#include "offload/dev.h"
#include "offload/pinned.h"

/* Into the stream. The host side of a copy must lie in one registration (pinned.h): where it does not, there are more copies. pinned may be
 * NULL: in one each. Adds to *copies how many they were. */
int ps_cuda_move(const struct ps_cuda_api *api, const struct ps_pinned *pinned,
                 struct ps_cuda_stream *s, const struct ps_task *t, uint64_t *copies) ps_must_check;
#endif
