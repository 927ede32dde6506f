/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say how a job is to be run (memory and placement, KV cache, machine): a child parser of each command that has them,
 * which hands its struct ps_engine_args down as that child's input. */
#ifndef PS_ENGINE_OPTIONS_H
#define PS_ENGINE_OPTIONS_H
#include "engine/cli/cli.h"
#include "engine/sched/run.h"

struct ps_engine_args {
    struct ps_plan_req plan; /* host_mem, disk_space: UINT64_MAX if not given */
    uint64_t gpu_mem;        /* UINT64_MAX if not given; 0: no GPU is to be used */
    const char *pack_dir, *offload_dir;
    const char *shares; /* of --weights, --kv and --hidden the last that was typed; NULL = none */
    bool percent;       /* --percent was typed */
    struct ps_run_cfg run; /* numa_nodes, io, queue_depth, verify_always */
};

extern const struct argp ps_engine_argp;
/* The same options; --help says what they are to a command that only plans. */
extern const struct argp ps_engine_plan_argp;
/* Nothing given. */
void ps_engine_args_init(struct ps_engine_args *ret);
/* FlexGen's `--percent a b c d e f` is one option with six values: before argp sees them, they become one argument. */
void ps_engine_join(int *argc, char **argv);
/* A help_filter for the command's own parser: lists the KV policies at the end. */
char *ps_engine_help(int key, const char *text, void *input);
/* Sets one of them by its name without "--": 0, -PS_EUSAGE (with what was expected), or -ENOENT if it is none of them. `arg` is kept. */
int ps_engine_set(struct ps_engine_args *a, const char *name, char *arg,
                  struct ps_detail *dt) ps_must_check;
/* The option that cannot be had without a GPU; NULL if there is none. */
const char *ps_engine_needs_gpu(const struct ps_plan_req *q);
#endif
