/* SPDX-License-Identifier: Apache-2.0 */
/* Puts measured figures and curves into the JSON of a hardware profile. Private to this folder. */
#ifndef PS_PROFILE_WRITE_H
#define PS_PROFILE_WRITE_H
#include "engine/base/ps_json.h"
#include "offload/probe.h"
#include "offload/profile_units.h"

struct ps_profile_out {
    json_t *root, *notes;
    unsigned figures, noisy, throttled; /* so far */
    int err;                            /* -ENOMEM: something is missing */
};
int ps_out_open(struct ps_profile_out *o) ps_must_check;
void ps_out_close(struct ps_profile_out *o); /* also after an error, and twice */
/* A member of obj that is a new object, or (in a list) one more: not the caller's; NULL once memory was short, which what follows takes. */
json_t *ps_out_object(struct ps_profile_out *o, json_t *obj, const char *key);
json_t *ps_out_list(struct ps_profile_out *o, json_t *obj, const char *key);
json_t *ps_out_item(struct ps_profile_out *o, json_t *list);
void ps_out_set(struct ps_profile_out *o, json_t *obj, const char *key, json_t *value);
void ps_out_note(struct ps_profile_out *o, const char *fmt, ...) ps_printf_(2, 3);

/* Values are in bytes, seconds and so on; what is not known (0 for rates) becomes null. */
void ps_out_value(struct ps_profile_out *o, json_t *obj, const char *key, double value,
                  const char *unit);
void ps_out_rate(struct ps_profile_out *o, json_t *obj, const char *key, const struct ps_rate *r,
                 const char *unit);
void ps_out_curve(struct ps_profile_out *o, json_t *obj, const char *key, const double *x,
                  const struct ps_rate *y, unsigned n, const char *unit);
/* The text, which a reader has taken; the caller frees it. */
int ps_out_text(struct ps_profile_out *o, char **ret, struct ps_detail *dt) ps_must_check;
#endif
