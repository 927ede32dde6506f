/* SPDX-License-Identifier: Apache-2.0 */
/* Random tasks on a cuda device, for its tests on the emulated GPU and on a real one. */
#ifndef PS_CUDA_RIG_H
#define PS_CUDA_RIG_H
#include "offload/dev_cuda.h"
#include "ps_cmocka.h"

enum {
    DISKS = 2,
    HOSTS = 5,
    GPUS = 5,
    BUFS = DISKS + HOSTS + GPUS,
    ROWS = 2,
    COLS = 1024,
    FLOATS = ROWS * COLS,
    BYTES = FLOATS * 4,
    THREADS = 2,
    STEPS = 60
};

struct mix {
    float *y;
    const float *x;
    float add;
};
struct rig {
    const struct ps_cuda_api *api;
    char path[64];
    struct ps_store *store;
    struct ps_dev *dev;
    uint8_t *mem; /* pinned: the host's buffers, then norm weights and one page of reports */
    struct ps_buf b[BUFS], w;
    struct mix jobs[STEPS];
};
enum { MEM = (HOSTS + 1) * BYTES };

/* api: whose rows are in the kernel table. 0 or a negative error, with the device's words in dt. */
int rig_open(struct rig *g, const struct ps_cuda_api *api, struct ps_detail *dt);
void rig_close(struct rig *g); /* also after a failed open */
/* Gives the buffers their places and first contents. */
int rig_init(struct rig *g);
/* Random moves and kernels on all queues; at the end everything is in the host's buffers, in turn, and so in `ret`. */
int rig_run(struct rig *g, unsigned seed, bool one_by_one, float ret[GPUS + HOSTS][FLOATS]);
int rig_whole_run(const struct ps_cuda_api *api, unsigned seed, bool one_by_one,
                  float ret[GPUS + HOSTS][FLOATS], struct ps_detail *dt);
float *rig_floats(const struct rig *g, int host); /* of the host's buffers */
#endif
