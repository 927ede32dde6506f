/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PS_INPUT_H
#define PS_INPUT_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"
#include <signal.h>

/* A descriptor of INPUT that can be read twice: "-" and what is no regular file is copied into an unlinked file beside `output`
 * first. Refuses INPUT that is OUTPUT or one of its helpers, through links too. */
int ps_input_open(const char *input, const char *output, const volatile sig_atomic_t *stop,
                  int *ret_fd, struct ps_detail *dt) ps_must_check;
#endif
