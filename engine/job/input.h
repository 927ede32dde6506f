/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PS_INPUT_H
#define PS_INPUT_H
#include "engine/job/job.h"

/* A descriptor of INPUT that can be read twice: "-" and what is no regular file is copied into an unlinked file beside OUTPUT
 * first, once the job's files were found to be apart (engine/job/places.h). */
int ps_input_open(const struct ps_job_cfg *cfg, int *ret_fd, struct ps_detail *dt) ps_must_check;
#endif
