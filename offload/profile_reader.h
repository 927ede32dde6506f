/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a hardware profile's reader: where it stands, and what it does with a figure or a curve there. Functions return 0 or
 * -PS_EFORMAT with the detail written. Private to this folder. */
#ifndef PS_PROFILE_READER_H
#define PS_PROFILE_READER_H
#include "engine/base/ps_json.h"
#include "offload/profile_units.h"

struct ps_reader {
    const char *file;
    struct ps_detail *dt;
    char path[160]; /* "host.linear[2].over_m" */
    size_t len;
    struct ps_profile *p;
};

/* Steps into a member or an item, and back with a result: `was` is what enter returned. */
size_t ps_reader_enter(struct ps_reader *r, const char *key);
size_t ps_reader_enter_item(struct ps_reader *r, size_t i);
int ps_reader_leave(struct ps_reader *r, size_t was, int result);

/* "FILE: PATH is WHAT IT HELD; expected WANT"; _at: of a member. v may be NULL: it is missing. */
int ps_reader_refuse(const struct ps_reader *r, const json_t *v, const char *want);
int ps_reader_refuse_at(struct ps_reader *r, const char *key, const json_t *v, const char *want);
/* Refuses what is no object, and members that none of the lists names; a and b may be NULL, names ends with NULL. */
int ps_reader_only(struct ps_reader *r, const json_t *v, const struct ps_field *a,
                   const struct ps_field *b, const char *const *names);

/* A member that is a text; ret may be NULL. What may lack leaves *ret alone. */
int ps_reader_text(struct ps_reader *r, const json_t *obj, const char *key, bool must, char *ret,
                   size_t cap);
/* A member that is an integer. */
int ps_reader_int(struct ps_reader *r, const json_t *obj, const char *key, double least,
                  double most, double *ret);
/* The figures of a list that are members of obj, each into base + its place. */
int ps_reader_figures(struct ps_reader *r, const json_t *obj, const struct ps_field *f, void *base);
/* A member that is a curve of rates. */
int ps_reader_curve(struct ps_reader *r, const json_t *obj, const char *key, enum ps_dim d,
                    struct ps_curve *ret);
#endif
