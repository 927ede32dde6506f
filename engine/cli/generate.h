/* SPDX-License-Identifier: Apache-2.0 */
/* generate's options, read. */
#ifndef PS_GENERATE_H
#define PS_GENERATE_H
#include "engine/cli/plan.h"
#include "engine/job/job.h"

enum ps_progress_mode { PS_PROGRESS_AUTO, PS_PROGRESS_PLAIN, PS_PROGRESS_NONE };

/* What a plan is chosen by, and what came of it. */
struct ps_planning {
    struct ps_profile profile;
    bool known; /* the profile says enough to simulate a plan */
    const volatile int *stop;
    bool wants_more; /* what a little more would bring is found out, too */
    /* Of the plan that was chosen: */
    double total_s; /* predicted; 0: not simulated, and nothing below is known */
    double tokens;  /* that are generated */
    struct ps_figures figures;
    struct ps_more more;
};

struct ps_generate_args {
    const char *model;
    struct ps_engine_args engine;
    struct ps_job_cfg job; /* plan and run are engine's at first */
    struct ps_cuda_info gpu;
    enum ps_progress_mode progress;
    struct ps_planning planning;
};

/* What is opened for it. */
struct ps_generate_model {
    char *packed_folder; /* NULL: the model was packed already */
    char *offload_dir;
    struct ps_packed *packed;
    struct ps_tok *tok;
};
void ps_generate_close(struct ps_generate_model *m);
/* The model, which is packed first if need be; without its tokenizer. */
int ps_generate_open(const struct ps_generate_args *a, struct ps_generate_model *m,
                     struct ps_detail *dt) ps_must_check;
/* Everything that was not given: memory, threads, GPU, where the disk is used (beside `output`). */
int ps_generate_machine(struct ps_generate_args *a, const char *output, struct ps_generate_model *m,
                        struct ps_detail *dt) ps_must_check;

/* Ends the process with 2 (and a message) for what it cannot read. */
void ps_generate_parse(int argc, char **argv, struct ps_generate_args *ret);
/* Finds the GPU and what may be taken of it: plan.gpu, run.cuda and run.near_pci; -PS_EUSAGE if an option needs one and there is none. */
int ps_generate_gpu(struct ps_generate_args *a, struct ps_detail *dt) ps_must_check;
/* The GPU that this process can use: NULL, and why, if there is none. */
const struct ps_cuda_api *ps_gpu_usable(struct ps_cuda_info *ret, struct ps_detail *why);
/* What may be taken of its memory: `wanted`, or as much as there is (UINT64_MAX); warns where that is less. */
uint64_t ps_gpu_ceiling(const struct ps_cuda_info *gpu, uint64_t wanted);
/* Sets up progress and messages of the job. */
void ps_generate_ui(struct ps_job_cfg *job, enum ps_progress_mode mode);
void ps_generate_summary(const struct ps_job_cfg *job, const struct ps_job_result *r);
/* What the links and the arithmetic do, for the plan and the report: from the profile that `penstock probe` made of this machine, else by a quick
 * look; what fails stays unknown. */
void ps_generate_probe(struct ps_generate_args *a, const char *offload_dir);
/* Rates of a disk of this machine that were not found, since there was no room on it: a guess, for what does not fit in memory has to lie there. */
void ps_profile_guess_disk(struct ps_profile *p);
/* The profile that `penstock probe` made of this machine with this GPU ("" = none), if it is there. */
bool ps_profile_of_this(const char *gpu, struct ps_profile *ret);
/* struct ps_job_engine's, with a struct ps_planning: by simulation on a profile that was probed; by the closed form, and then simulated,
 * on one from a quick look; by the closed form for a small model where there is none. */
int ps_generate_plan(void *ud, const struct ps_plan_req *req, const struct ps_lengths *lengths,
                     struct ps_plan *ret, struct ps_simulated *ret_predicted, char **ret_text,
                     struct ps_detail *dt) ps_must_check;
#endif
