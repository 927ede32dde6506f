/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine and its container allow, and what to do about what they do not. Looks, tries and undoes; needs
 * no privileges; takes well under a second. The command prints the findings. */
#ifndef PS_DOCTOR_H
#define PS_DOCTOR_H
#include "engine/base/ps_err.h"
#include "engine/base/ps_util.h"

enum ps_health { PS_HEALTH_OK, PS_HEALTH_INFO, PS_HEALTH_WARN, PS_HEALTH_FAIL, PS_HEALTH__COUNT };
const char *ps_health_name(enum ps_health h); /* "ok", "info", "warn", "fail" */

struct ps_finding {
    const char *id; /* "io_uring", "memlock", "direct_io", ...: stable, for scripts */
    enum ps_health health;
    char text[400];
    char advice[400]; /* empty when there is nothing to do */
};

/* `folder`: where offloaded data would go; an existing one. *ret is the caller's to free(). Fails only for want of
 * memory or of the folder: what it finds wrong is a finding. */
int ps_doctor(const char *folder, struct ps_finding **ret, size_t *ret_n,
              struct ps_detail *dt) ps_must_check;
#endif
